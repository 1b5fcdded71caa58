-- SPDX-License-Identifier: Apache-2.0
--- The command `tpl topo`: its envelope, text, record, picture, and how it fails.
local helper = require("spec.cli.helper")
local json = require("tpl.json")

local function fixture(name) return "spec/fixtures/topologies/" .. name end

describe("tpl topo", function()
  it("prints one envelope with the promised fields", function()
    local r = helper.run { "topo", "--from", fixture("4xa6000-bridge-pairs.topo.txt"), "--json" }
    assert.equal(0, r.code)
    assert.equal(1, #r.lines)
    local e = r.lines[1]
    assert.equal("tpl.topo/1", e.schema)
    assert.is_true(e.ok)
    assert.equal(4, #e.result.devices)
    assert.equal("GPU0 GPU2", table.concat(e.result.suggest.tp2[1], " "))
    assert.equal("GPU1 GPU3", table.concat(e.result.suggest.tp2[2], " "))
    assert.equal("tp2xpp2", e.result.suggest.advice)
    assert.same({ fixture("4xa6000-bridge-pairs.topo.txt") }, { e.result.source.files[1] })
    assert.equal("matrix", e.result.source.kind)
  end)

  it("prints text without colour where stdout is no terminal", function()
    local r = helper.run { "topo", "--from", fixture("8xv100-cube-mesh-renumbered.topo.txt") }
    assert.equal(0, r.code)
    assert.matches("suggestion  tp4xpp2", r.stdout)
    assert.is_nil(r.stdout:find("\27", 1, true))
    assert.equal("", r.stderr)
  end)

  it("merges several files", function()
    local folder = helper.folder()
    local list = helper.write(folder .. "/list.smiL.txt", "GPU 0: NVIDIA RTX A6000 (UUID: GPU-00000000-0000-4000-8000-0000000000a0)\n"
      .. "GPU 1: NVIDIA RTX A6000 (UUID: GPU-00000000-0000-4000-8000-0000000000a1)\nGPU 2: NVIDIA RTX A6000 (UUID: GPU-00000000-0000-4000-8000-0000000000a2)\n"
      .. "GPU 3: NVIDIA RTX A6000 (UUID: GPU-00000000-0000-4000-8000-0000000000a3)\n")
    local r = helper.run { "topo", "--from", fixture("4xa6000-bridge-pairs.topo.txt"), "--from", list, "--json" }
    helper.remove(folder)
    assert.equal(0, r.code)
    local result = r.lines[1].result
    assert.equal(4, #result.devices)
    assert.equal("NVIDIA RTX A6000", result.devices[1].name)
    assert.same({ "GPU-00000000-0000-4000-8000-0000000000a0", "GPU-00000000-0000-4000-8000-0000000000a2" }, { unpack(result.suggest.tp2[1]) })
  end)

  it("records what it reads: the record gives the same result", function()
    local folder = helper.folder()
    local r = helper.run { "topo", "--from", fixture("3xa100-pcie-one-bridge.topo.txt"), "--record" }
    assert.equal(0, r.code)
    local path = helper.write(folder .. "/box.yaml", r.stdout)
    local a = helper.run { "topo", "--from", fixture("3xa100-pcie-one-bridge.topo.txt"), "--json" }.lines[1].result
    local b = helper.run { "topo", "--from", path, "--json" }.lines[1].result
    helper.remove(folder)
    for _, key in ipairs { "devices", "links", "nics", "islands", "suggest" } do assert.equal(json.encode(a[key]), json.encode(b[key])) end
  end)

  it("draws a picture into a file, beside what it prints", function()
    local folder = helper.folder()
    local r = helper.run { "topo", "--from", fixture("4xl40s-pcie.yaml"), "--svg", folder .. "/box.svg" }
    assert.equal(0, r.code)
    assert.matches("suggestion  tp2xpp2", r.stdout)
    assert.matches("^<%?xml", helper.read(folder .. "/box.svg"))
    r = helper.run { "topo", "--from", fixture("4xl40s-pcie.yaml"), "--svg", folder .. "/missing/box.svg", "--json" }
    helper.remove(folder)
    assert.are_not.equal(0, r.code)
    assert.is_false(r.lines[1].ok)
  end)

  it("shows this machine, and measures only that", function()
    local r = helper.run { "topo", "--json" }
    assert.equal(0, r.code)
    local result = r.lines[1].result
    assert.equal("probe", result.source.kind)
    assert.is_true(#result.devices >= 1)
    assert.is_true(#result.hosts[1].numa >= 1)
    r = helper.run { "topo", "--from", fixture("4xl40s-pcie.yaml"), "--measure" }
    assert.equal(2, r.code)
    assert.matches("^tpl: %-%-measure: ", r.stderr)
  end)

  it("exits 2 for a missing file and 6 for what is no topology of NVIDIA GPUs, with an envelope", function()
    local r = helper.run { "topo", "--from", "spec/nothing.txt", "--json" }
    assert.equal(2, r.code)
    assert.is_false(r.lines[1].ok)
    r = helper.run { "topo", "--from", fixture("amd.negative.nccl.xml"), "--json" }
    assert.equal(6, r.code)
    assert.matches("AMD", r.lines[1].error.message)
    r = helper.run { "topo", "--from", fixture("graph.negative.nccl-graph.xml") }
    assert.equal(6, r.code)
    assert.matches("NCCL graph file", r.stderr)
    assert.equal("", r.stdout)
    assert.equal(2, helper.run({ "topo", "extra" }).code)
  end)
end)
