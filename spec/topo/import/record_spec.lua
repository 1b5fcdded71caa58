-- SPDX-License-Identifier: Apache-2.0
--- Topology records as YAML and JSON: what is read, what is filled in, what is refused and in which line, and that a record comes back as written.
local err = require("tpl.err")
local nccl = require("tpl.topo.import.nccl_xml")
local hwloc = require("tpl.topo.import.hwloc_xml")
local json = require("tpl.json")
local record = require("tpl.topo.import.record")
local s = require("spec.topo.import.xml_support")
local util = require("tpl.util")
local yaml = require("tpl.yaml")

local function read(name) return record.read(s.fixture(name), name) end

local function refusal(text)
  local r, e = err.try(record.read, text, "box.yaml")
  assert.is_nil(r)
  assert.equal("format", e.code)
  assert.equal(6, e.exit)
  return e
end

describe("tpl.topo.import.record", function()
  it("knows records by their keys", function()
    for _, name in ipairs { "reference-host-mig.yaml", "cluster-repeat.yaml", "measured-pair.json", "mixed-memory.yaml" } do
      assert.is_true(record.detect(s.fixture(name)), name)
    end
    assert.is_false(record.detect("\tGPU0\tGPU1\n"))
    assert.is_false(record.detect("{\"model\": 1}"))
    assert.is_false(record.detect("apiVersion: v1\nkind: Pod\n"))
    assert.is_false(record.detect(s.fixture("no-gpu.hwloc.xml")))
  end)

  it("reads YAML, normalising addresses and numbers that mean text", function()
    local r = read("reference-host-mig.yaml")
    assert.equal("0000:1a:00.0", r.devices[1].pci)
    assert.equal("9.0", r.devices[1].sm)
    assert.equal("12.8", r.hosts[1].cuda)
    assert.equal("ref", r.devices[1].host)
    assert.equal("3g.40gb", r.devices[5].mig.profile)
    assert.equal("mig", r.devices[5].kind)
    assert.equal(0, r.devices[5].index)
    assert.equal("nvlink 18* node", s.links(r)["0-1"])
    assert.same({ "reference-host-mig.yaml" }, r.source.files)
    assert.equal("probe", r.source.kind)
    assert.same({}, r.doubts)
  end)
  it("reads JSON in its envelope, null as absent", function()
    local r = read("measured-pair.json")
    assert.same({ "cpu0", "cpu1" }, s.each(r, "uid"))
    assert.is_nil(r.hosts[1]["repeat"])
    assert.is_nil(r.hosts[1].driver)
    assert.equal(9.25, r.links[1].gb_s_ba)
    assert.equal("measured", r.links[1].source)
    assert.truthy(s.doubt(r, "unknown_field", 3)) -- "note"
  end)
  it("fills in what names need: uids, indices, hosts, kinds", function()
    local r = read("mixed-memory.yaml")
    assert.same({ "GPU0", "GPU1", "GPU2" }, s.each(r, "uid"))
    assert.same({ "host0", "host0", "host0" }, s.each(r, "host"))
    assert.same({ 0, 1, 2 }, s.each(r, "index"))
    assert.equal("host0", r.hosts[1].id)
    assert.equal("node", r.links[1].kind)
    assert.equal("nvlink", r.links[3].kind)
  end)
  it("keeps unknown fields, and says so with the line", function()
    local r = record.read("devices:\n  - uid: a\n    colour: red\nlinkz: []\n", "box.yaml")
    assert.equal("red", r.devices[1].colour)
    assert.truthy(s.doubt(r, "unknown_field", 3))
    assert.matches("links", s.doubt(r, "unknown_field", 4).message)
  end)

  it("refuses wrong types and values with file and line", function()
    for text, want in pairs {
      ["devices: 5"] = { 1, "expected a list" }, ["devices: {a: 1}"] = { 1, "expected a list" }, ["- 1"] = { nil, "expected a mapping" },
      ["devices:\n- uid: a\n  index: x"] = { 3, "'devices[1].index' is 'x'" }, ["devices:\n- uid: a\n  index: -1"] = { 3, "whole number" },
      ["devices:\n- uid: a\n  mem_bytes: 1.5"] = { 3, "whole number" }, ["devices:\n- {uid: a}\n- kind: tpu"] = { 3, "gpu, mig, cpu" },
      ["devices:\n- uid: [a]"] = { 2, "expected a text" }, ["devices:\n- null"] = { 2, "null" }, ["devices:\n-\n  - uid: a"] = { 3, "expected a mapping" },
      ["devices:\n- uid: a\n  usable: maybe"] = { 3, "true or false" }, ["devices:\n- uid: a\n  pci: 12"] = { 3, "expected a text" },
      ["devices:\n- uid: a\n  pci: zz"] = { 3, "no PCI address" }, ["hosts:\n- id: a\n  repeat: 0"] = { 3, "from 1 to 65536" },
      ["hosts:\n- id: a\n  repeat: 1e9"] = { 3, "from 1 to 65536" }, ["devices:\n- uid: a\n  mig: {mode: perhaps}"] = { 3, "on, off" },
      ["devices: [{uid: a}, {uid: b}]\nlinks:\n- {a: a, b: b, kind: wire}"] = { 3, "nvlink, c2c" },
      ["devices: [{uid: a}, {uid: b}]\nlinks:\n- {a: a, b: b, kind: pix, gb_s: -1}"] = { 3, "number of 0 or more" },
      ["devices:\n- uid: a\n  free_bytes: 2\n  mem_bytes: 1"] = { 3, "more is free" },
    } do
      local e = refusal(text)
      assert.equal(want[1] and "box.yaml:" .. want[1] or "box.yaml", e.where, text)
      assert.is_truthy(e.message:find(want[2], 1, true), text .. ": " .. e.message)
    end
  end)
  it("refuses names that lead nowhere, and names given twice", function()
    local two = "devices:\n- {uid: a}\n- {uid: b}\n"
    for text, want in pairs {
      ["devices:\n- uid: a\n- uid: a"] = { 3, "a second device 'a'" }, ["hosts:\n- id: x\n- id: x"] = { 3, "a second host" },
      ["hosts: [{id: x}]\ndevices:\n- host: y"] = { 3, "'y' is no host" }, [two .. "links:\n- a: a\n  b: c\n  kind: pix"] = { 6, "'c' is no device" },
      [two .. "links:\n- {a: a, kind: pix}"] = { 5, "without 'b'" }, [two .. "links:\n- {a: a, b: a, kind: pix}"] = { 5, "to itself" },
      [two .. "links:\n- {a: a, b: b}"] = { 5, "without 'kind'" }, [two .. "links:\n- {a: a, b: b, kind: pix}\n- {a: b, b: a, kind: pix}"] = { 6, "a second link" },
      [two .. "nics:\n- name: n\n  near: [a, c]"] = { 6, "'c' is no device" }, [two .. "nics:\n- name: n\n  to: {c: pix}"] = { 6, "'c' is no device" },
      [two .. "islands:\n- devices: [c]"] = { 5, "'c' is no device" }, ["networks:\n- hosts: [z]"] = { 2, "'z' is no host" },
      ["devices:\n- {uid: a, uuid: GPU-1}\n- {uid: b, uuid: GPU-1}"] = { 3, "two devices" },
      ["devices:\n" .. ("- {}\n"):rep(4097)] = { 1, "repeat" },
    } do
      local e = refusal(text)
      assert.equal("box.yaml:" .. want[1], e.where, text)
      assert.is_truthy(e.message:find(want[2], 1, true), text .. ": " .. e.message)
    end
  end)
  it("refuses JSON of something else, and CPU lists that are none", function()
    assert.matches("none of its keys", refusal('{"model": 1}').message)
    assert.same({}, record.read("{}", "box.json").devices)
    for _, cpus in ipairs { "5-2", "all", "0-3,x" } do
      local e = refusal("devices:\n- {uid: a}\n- {uid: b, cpus: '" .. cpus .. "'}\n")
      assert.equal("box.yaml:3", e.where)
      assert.matches("CPU list", e.message)
    end
    assert.same({ "3", "" }, { record.read("devices: [{cpus: 3}]\n", "x").devices[1].cpus, record.read("devices: [{cpus: ''}]\n", "x").devices[1].cpus })
  end)

  it("refuses what is no YAML or JSON", function()
    assert.equal("box.yaml:2", refusal("devices:\n- [").where)
    assert.equal("box.yaml:1", refusal('{"devices": [1').where)
    assert.matches("aliases", refusal("devices: &x []\nlinks: *x").message:gsub("anchors", "aliases"))
    assert.matches("duplicate", refusal("devices: []\ndevices: []").message)
  end)

  it("gives the same record again from what the importers made, as YAML and as JSON", function()
    local function comes_back(r, name)
      for _, text in ipairs { yaml.encode(r, { flow = true }), json.encode(r) } do
        local again = record.read(text, name)
        assert.is_true(util.same(r, again), name .. "\n" .. text .. "\n" .. yaml.encode(again))
      end
    end
    for _, name in ipairs { "reference-host-mig.yaml", "cluster-repeat.yaml", "mixed-memory.yaml" } do comes_back(read(name), name) end
    for _, name in ipairs { "h200-nvswitch-4.nccl.xml", "two-trays-mnnvl.nccl.xml", "faults.nccl.xml" } do comes_back(nccl.read(s.fixture(name), name), name) end
    comes_back(hwloc.read(s.fixture("nvswitch-4.hwloc.xml"), "n.xml"), "n.xml")
  end)

  it("gives a record or a clean error for every cut", function()
    for _, name in ipairs { "reference-host-mig.yaml", "measured-pair.json" } do
      s.cuts(s.fixture(name), 500, function(piece)
        local r, e = err.try(record.read, piece, name)
        if not r then assert.equal(6, e.exit, tostring(e)) end
      end)
    end
  end)
end)
