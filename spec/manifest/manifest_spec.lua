-- SPDX-License-Identifier: Apache-2.0
-- A manifest is written for one machine and compared with that machine after something happened to it.
local S = dofile("spec/emit/support.lua")
local files = dofile("spec/support/files.lua")
local manifest = require("tpl.manifest")
local tmpdir = dofile("spec/support/tmpdir.lua")
local yaml = require("tpl.yaml")

local U = S.uuid

local function report() return S.report({ { { U(0), U(1) }, { U(2), U(3) } } }, { layers = { { 0, 42 }, { 43, 79 } } }) end

local function written(extra) return manifest.make(report(), S.machine(4), extra) end

local function codes(changes)
  local out = {}
  for i, c in ipairs(changes) do out[i] = c.code end
  table.sort(out)
  return out
end

-- The machine as it would come back with GPUs in another order: other indices, other list order, the same boards in the same slots.
local function reordered(order)
  local t = S.machine(4)
  local devices = {}
  for i, n in ipairs(order) do
    devices[i] = t.devices[n + 1]
    devices[i].index = i - 1
  end
  t.devices = devices
  return t
end

describe("a manifest", function()
  it("holds what identifies the placement, and no index", function()
    local m = written { model = { sha256 = "ab12" }, assumptions = { "usable = 0.90 of memory" } }
    assert.equal("tpl.manifest/1", m.schema)
    assert.same({ tp = 2, pp = 2, ep = 1, dp = 1 }, m.degrees)
    assert.equal(("ab"):rep(32), m.plan_hash)
    assert.equal("ab12", m.model.sha256)
    assert.equal("570.86.15", m.hosts[1].driver)
    assert.equal(4, #m.devices)
    assert.same({ "0000:19:00.0", 0, "96.00.74.00.01" }, { m.devices[2].pci, m.devices[2].numa, m.devices[2].vbios })
    assert.equal(6, #m.links) -- 4 devices, each pair once
    assert.same({ { 0, 42 }, { U(0), U(1) } }, { { unpack(m.stages[1].layers) }, { unpack(m.stages[1].devices) } })
    assert.same({ "usable = 0.90 of memory" }, { unpack(m.assumptions) })
    assert.is_nil(manifest.text(m):find("index", 1, true))
  end)

  it("holds the chosen devices only", function()
    local m = manifest.make(S.report({ { { U(1), U(3) } } }), S.machine(4))
    assert.equal(2, #m.devices)
    assert.equal(1, #m.links)
  end)

  it("holds links within replicas, not between them", function()
    local m = manifest.make(S.report({ { { U(0), U(1) } }, { { U(2), U(3) } } }), S.machine(4))
    assert.equal(2, #m.links)
    assert.same({ U(2), U(3) }, { m.links[2].a, m.links[2].b })
    assert.same({ 0, 1 }, { m.stages[1].replica, m.stages[2].replica })
    assert.same({ U(2), U(3) }, manifest.pin(m, S.machine(4)).replicas[2].stages[1].devices)
  end)

  it("reads back from YAML as it was written", function()
    local dir = tmpdir.new()
    local m = written { model = { files = { { name = "model.safetensors", bytes = 3, mtime = 1796058644 } } } }
    assert.is_true(manifest.write(dir.path .. "/m.yaml", m))
    local back = assert(manifest.read(dir.path .. "/m.yaml"))
    assert.same(yaml.decode(yaml.encode(m)), back)
    assert.same({}, manifest.compare(back, S.machine(4), report()))
    assert.truthy(files.read(dir.path .. "/m.yaml"):find("^# Written by tpl"))
    dir:close()
  end)

  it("starts after the indices were swapped", function()
    for _, order in ipairs { { 1, 0, 2, 3 }, { 3, 2, 1, 0 }, { 2, 3, 0, 1 } } do
      local t = reordered(order)
      assert.same({}, manifest.compare(written(), t, report()))
      assert.same({ replicas = { { stages = { { devices = { U(0), U(1) }, layers = { 0, 42 } }, { devices = { U(2), U(3) }, layers = { 43,
        79 } } } } } },
        assert(manifest.pin(written(), t)))
    end
  end)

  it("finds its devices under other uids when the record names them by index", function()
    local t = reordered { 3, 2, 1, 0 }
    for i, d in ipairs(t.devices) do
      local old = d.uid
      d.uid = "GPU" .. i - 1
      for _, l in ipairs(t.links) do
        if l.a == old then l.a = d.uid end
        if l.b == old then l.b = d.uid end
      end
    end
    assert.same({}, manifest.compare(written(), t))
    assert.same({ "GPU3", "GPU2" }, manifest.pin(written(), t).replicas[1].stages[1].devices)
  end)

  it("compares UUIDs in any case of letters", function()
    local t = S.machine(4)
    for _, d in ipairs(t.devices) do d.uuid = d.uuid:upper() end
    assert.same({}, codes(manifest.compare(written(), t)))
  end)

  it("finds devices without UUID by PCI address, whatever their names are now", function()
    local function without(t, order)
      for i, d in ipairs(t.devices) do
        local old = d.uid
        d.uuid, d.uid = nil, "x" .. order[i]
        for _, l in ipairs(t.links) do
          if l.a == old then l.a = d.uid end
          if l.b == old then l.b = d.uid end
        end
      end
      return t
    end
    local m = manifest.make(S.report({ { { "x0", "x1" } } }), without(S.machine(2), { 0, 1 }))
    local t = without(S.machine(2), { 1, 0 })
    assert.same({}, manifest.compare(m, t))
    assert.same({ "x1", "x0" }, manifest.pin(m, t).replicas[1].stages[1].devices)
  end)

  it("finds CPU nodes by name", function()
    local t = S.topo { devices = { { uid = "cpu0", kind = "cpu", numa = 0 }, { uid = "cpu1", kind = "cpu", numa = 1 } } }
    local m = manifest.make(S.report({ { { "cpu0", "cpu1" } } }), t)
    assert.same({}, manifest.compare(m, t))
    assert.same({ "cpu0", "cpu1" }, manifest.pin(m, t).replicas[1].stages[1].devices)
  end)
end)

-- What happened -> how it must be called, and what the message must name.
local drifts = {
  ["a GPU was replaced"] = { function(t)
    t.devices[2].uuid, t.devices[2].uid = "GPU-deadbeef-0000-0000-0000-000000000000", "GPU-deadbeef-0000-0000-0000-000000000000"
  end, { "device_replaced" }, { U(1), "GPU-deadbeef-0000-0000-0000-000000000000", "0000:19:00.0" } },
  ["a GPU is gone"] = { function(t) table.remove(t.devices, 3) end, { "device_missing" }, { U(2) } },
  ["a NUMA node moved"] = { function(t) t.devices[1].numa = 1 end, { "numa_moved" }, { U(0), "NUMA node", "0 -> 1" } },
  ["a card moved to another slot"] = { function(t) t.devices[1].pci = "0000:9a:00.0" end, { "pci_moved" }, { U(0), "0000:18:00.0", "0000:9a:00.0" } },
  ["a link was lost"] = { function(t)
    t.links[1].kind, t.links[1].nvlinks = "sys", nil
  end, { "link_lost" }, { U(0), U(1), "NV18 -> SYS" } },
  ["a link is not in the machine any more"] = { function(t) table.remove(t.links, 1) end, { "link_lost" }, { U(0), U(1), "NV18 -> none" } },
  ["a link has fewer lanes"] = { function(t) t.links[6].nvlinks = 12 end, { "link_worse" }, { "NV18 -> NV12" } },
  ["peer access was lost"] = { function(t) t.links[1].p2p = { read = "ok", write = "cns" } end, { "p2p_lost" }, { "peer write", "ok -> cns" } },
  ["the driver changed"] = { function(t) t.hosts[1].driver = "575.51.03" end, { "driver_changed" }, { "570.86.15 -> 575.51.03" } },
  ["the VBIOS changed"] = { function(t) t.devices[4].vbios = "96.00.A0.00.01" end, { "vbios_changed" }, { "96.00.A0.00.01" } },
  ["the memory changed"] = { function(t) t.devices[4].mem_bytes = 40 * 2 ^ 30 end, { "memory_changed" }, { "85899345920 -> 42949672960" } },
  ["MIG was switched on"] = { function(t)
    t.devices[3].mig, t.devices[3].usable, t.devices[3].why_not = { mode = "on" }, false, { { code = "mig_parent", message = "MIG mode" } }
  end, { "mig_changed" }, { U(2), "off -> on" } },
  ["MIG is about to be switched on"] = { function(t) t.devices[3].mig = { mode = "off", pending = "on" } end, { "mig_changed" },
    { "off -> pending" } },
  ["MIG is about to be switched on, in NVML's words"] = { function(t) t.devices[3].mig = { mode = "disabled", pending = "enabled" } end,
    { "mig_changed" }, { "off -> pending" } },
  ["a GPU is not usable any more"] = { function(t)
    t.devices[3].usable, t.devices[3].why_not = false, { { code = "fabric", message = "fabric is not completed" } }
  end, { "device_unusable" }, { U(2), "fabric is not completed" } },
}

describe("a manifest refuses when", function()
  for what, case in pairs(drifts) do
    it(what, function()
      local t = S.machine(4)
      case[1](t)
      local ok, e = manifest.check(written(), t, report())
      assert.is_nil(ok)
      assert.same({ "drift", 4 }, { e.code, e.exit })
      assert.same(case[2], codes(e.changes))
      for _, part in ipairs(case[3]) do assert.truthy(e.message:find(part, 1, true), ("'%s' is not in: %s"):format(part, e.message)) end
    end)
  end

  it("several things happened, each named", function()
    local t = S.machine(4)
    drifts["a GPU was replaced"][1](t)
    drifts["the driver changed"][1](t)
    t.devices[1].numa = 1
    local _, e = manifest.check(written(), t, report())
    assert.same({ "device_replaced", "driver_changed", "numa_moved" }, codes(e.changes))
    for _, part in ipairs { U(1), "575.51.03", U(0) } do assert.truthy(e.message:find(part, 1, true)) end
  end)

  it("and not when the difference is accepted, which is still listed", function()
    local t = S.machine(4)
    t.hosts[1].driver = "575.51.03"
    assert.same({ "driver_changed" }, codes(assert(manifest.check(written(), t, report(), { accept = true }))))
  end)

  it("the plan is another one", function()
    local now = report()
    now.plan_hash, now.degrees = ("ef"):rep(32), { tp = 4, pp = 1, ep = 1, dp = 1 }
    local _, e = manifest.check(written(), S.machine(4), now)
    assert.same({ "degrees_changed", "degrees_changed", "plan_changed" }, codes(e.changes))
    assert.truthy(e.message:find("tp: 2 -> 4", 1, true))
  end)

  it("a pinned device is gone: there is no placement without it, even accepted", function()
    local t = S.machine(4)
    table.remove(t.devices, 2)
    local placement, e = manifest.pin(written(), t)
    assert.is_nil(placement)
    assert.same({ "drift", 4 }, { e.code, e.exit })
    assert.truthy(e.message:find(U(1), 1, true))
  end)
end)

describe("a manifest accepts", function()
  it("links that got better, and facts that a container hides", function()
    local t = S.machine(4)
    t.links[1].p2p, t.hosts[1].driver = nil, nil
    for _, d in ipairs(t.devices) do d.numa, d.vbios, d.pci = nil, nil, nil end
    assert.same({}, codes(manifest.compare(written(), t, report())))
    local was = S.machine(4)
    was.links[1].kind, was.links[1].nvlinks = "phb", nil
    assert.same({}, codes(manifest.compare(manifest.make(report(), was), S.machine(4), report())))
  end)

  it("changes of devices that the plan does not use", function()
    local m = manifest.make(S.report({ { { U(0), U(1) } } }), S.machine(4))
    local t = S.machine(4)
    t.devices[4].uuid, t.devices[4].uid, t.devices[3].numa = "GPU-x", "GPU-x", 0
    assert.same({}, codes(manifest.compare(m, t)))
  end)

  it("MIG off that is pending off, in any words", function()
    local t = S.machine(4)
    t.devices[1].mig, t.devices[2].mig, t.devices[3].mig = { mode = "off", pending = "off" }, { mode = "disabled", pending = "disabled" }, nil
    assert.same({}, codes(manifest.compare(written(), t, report())))
  end)

  it("measured rates within a fifth of each other, and refuses less", function()
    local was, now = S.machine(2), S.machine(2)
    was.links[1].gb_s, was.links[1].source = 400, "measured"
    local m = manifest.make(S.report({ { { U(0), U(1) } } }), was)
    now.links[1].gb_s, now.links[1].source = 330, "measured"
    assert.same({}, codes(manifest.compare(m, now)))
    now.links[1].gb_s = 310
    assert.same({ "link_worse" }, codes(manifest.compare(m, now)))
  end)

  it("another name of the only host", function()
    local t = S.machine(4)
    t.hosts[1].id = "renamed"
    for _, d in ipairs(t.devices) do d.host = "renamed" end
    assert.same({}, codes(manifest.compare(written(), t, report())))
  end)
end)

describe("the identity of weights", function()
  local dir

  before_each(function() dir = tmpdir.new() end)
  after_each(function() dir:close() end)

  -- FIPS 180-2 appendix B.1: SHA-256 of "abc".
  local ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

  local function identity(limit)
    return assert(manifest.identity({ dir.path .. "/model.safetensors", dir.path .. "/config.json" }, { hash_bytes = limit }))
  end

  local function changes(was, now)
    local out = manifest.compare(manifest.make(report(), S.machine(4), { model = was }), S.machine(4), report(), { model = now })
    for _, c in ipairs(out) do assert.equal("weights_changed", c.code) end
    return out
  end

  before_each(function()
    dir:write("model.safetensors", "abc")
    dir:write("config.json", "{}")
  end)

  it("is size, time and SHA-256 of each file, and the hash of the config", function()
    local id = identity()
    assert.same({ "config.json", "model.safetensors" }, { id.files[1].name, id.files[2].name })
    assert.same({ 3, ABC }, { id.files[2].bytes, id.files[2].sha256 })
    assert.equal(id.files[1].sha256, id.config_sha256)
  end)

  it("differs by one byte of the same size", function()
    local was = identity()
    dir:write("model.safetensors", "abd")
    local c = changes(was, identity())
    assert.equal(1, #c)
    assert.truthy(c[1].what:find("model.safetensors", 1, true))
  end)

  it("is the same after a copy at another time", function()
    local was = identity()
    assert(dir:sh("touch -d '2020-01-01' model.safetensors"))
    assert.same({}, changes(was, identity()))
  end)

  it("of a file too large to hash differs by time or size", function()
    local was = identity(2)
    assert.is_nil(was.files[2].sha256)
    assert.same({}, changes(was, identity(2)))
    assert(dir:sh("touch -d '2020-01-01' model.safetensors"))
    assert.equal(1, #changes(was, identity(2)))
  end)

  it("differs by a file that came or went", function()
    local was = identity()
    local now = assert(manifest.identity { dir.path .. "/config.json" })
    assert.equal(1, #changes(was, now))
    assert.equal(1, #changes(now, was))
  end)

  it("differs by the report's hash or bytes where no files are known", function()
    local now = report()
    now.model.weight_bytes = 1
    assert.same({ "weights_changed" }, codes(manifest.compare(written(), S.machine(4), now)))
    assert.same({ "weights_changed" }, codes(manifest.compare(written { model = { sha256 = "a" } }, S.machine(4), report(),
      { model = { sha256 = "b" } })))
  end)

  it("of a missing file is a usage error", function()
    local _, e = manifest.identity { dir.path .. "/none" }
    assert.equal(2, e.exit)
  end)
end)

describe("reading a manifest", function()
  local dir

  before_each(function() dir = tmpdir.new() end)
  after_each(function() dir:close() end)

  it("that is not there is exit 2", function()
    local _, e = manifest.read(dir.path .. "/none.yaml")
    assert.equal(2, e.exit)
  end)

  local good = "schema: tpl.manifest/1\ndevices:\n  - {uuid: GPU-1, numa: 0}\nstages:\n  - {devices: [GPU-1], i: 0}\n"

  it("that says only what is needed works", function()
    local m = assert(manifest.read(dir:write("m.yaml", good)))
    local t = S.topo { devices = { S.gpu(0, { uuid = "GPU-1", uid = "GPU0" }) } }
    assert.same({}, manifest.compare(m, t))
    assert.same({ "GPU0" }, manifest.pin(m, t).replicas[1].stages[1].devices)
  end)

  for what, text in pairs {
    ["another file"] = "hosts: []\n", ["no YAML"] = "a: [", ["an empty file"] = "", ["a list"] = "[1, 2]\n",
    ["devices of the wrong type"] = good:gsub("devices:\n  %- {uuid: GPU%-1, numa: 0}", "devices: 3"),
    ["a device without a name"] = good:gsub("uuid: GPU%-1, ", ""), ["a NUMA node that is a text"] = good:gsub("numa: 0", "numa: x"),
    ["no stages"] = good:gsub("stages:.*", ""), ["a stage without devices"] = good:gsub("devices: %[GPU%-1%], ", ""),
    ["layers that are no pair"] = good:gsub("i: 0", "layers: [1]"), ["links of the wrong type"] = good .. "links: 7\n",
    ["a link without ends"] = good .. "links: [{a: GPU-1}]\n", ["hosts of the wrong type"] = good .. "hosts: 1\n",
    ["files of the wrong type"] = good .. "model: {files: 3}\n", ["a file without a name"] = good .. "model: {files: [{bytes: 3}]}\n",
    ["p2p of the wrong type"] = good .. "links: [{a: GPU-1, b: GPU-2, p2p: 1}]\n", ["mig of the wrong type"] = good:gsub("numa: 0", "mig: 1"),
    ["a host that is no table"] = good .. "hosts: [1]\n", ["a replica below 0"] = good:gsub("i: 0", "replica: -3"),
    ["a replica left out"] = good:gsub("i: 0", "replica: 5"), ["nvlinks that are a text"] = good .. "links: [{a: x, b: y, nvlinks: many}]\n",
  } do
    it("refuses " .. what .. " as a format error with the file's name", function()
      local m, e = manifest.read(dir:write("m.yaml", text))
      assert.is_nil(m)
      assert.same({ "format", 6 }, { e.code, e.exit })
      assert.truthy(e.where:find("m.yaml", 1, true))
    end)
  end

  it("names the line of what is wrong", function()
    local _, e = manifest.read(dir:write("m.yaml", good:gsub("numa: 0", "numa: x")))
    assert.equal(dir.path .. "/m.yaml:3", e.where)
  end)
end)
