-- SPDX-License-Identifier: Apache-2.0
--- The probe on machines that the NVML stand-in plays. Expected values: the records of spec/topo/standin/machines.lua, which NVML's own forms carry
--- there and back, and the rules of facts/topology.md sections 2 and 3.
local machines = require("spec.topo.standin.machines")
local nvml = require("spec.support.nvml")

local function gpus(record)
  local out = {}
  for _, d in ipairs(record.devices) do if d.kind == "gpu" then out[#out + 1] = d end end
  return out
end

local function link(record, a, b)
  for _, l in ipairs(record.links) do if l.a == a and l.b == b then return l end end
end

local function codes(list)
  local out = {}
  for _, x in ipairs(list or {}) do out[#out + 1] = x.code end
  return out
end

local function probe(record, options)
  local got, e = nvml.probe(record, options)
  assert(got, e and tostring(e) .. (e.traceback or ""))
  return got
end

describe("the probe with NVML", function()
  it("gives back what the record of the reference host says of its GPUs", function()
    local want = machines.reference()
    local got = probe(want)
    assert.same({ "550.54.15", "12.4" }, { got.hosts[1].driver, got.hosts[1].cuda })
    assert.equal(4, #gpus(got))
    for i, d in ipairs(got.devices) do
      local w = want.devices[i]
      if not w then assert.equal("cpu", d.kind) break end
      if d.kind == "gpu" then
        for _, field in ipairs { "uid", "uuid", "index", "pci", "name", "sm", "vbios", "numa", "cpus", "mem_bytes", "free_bytes" } do
          assert.equal(w[field], d[field], field)
        end
        for _, field in ipairs { "pcie", "mig", "health" } do assert.same(w[field], d[field], field) end
        assert.equal(w.busy.used_bytes, d.busy.used_bytes)
        assert.same(w.busy.pids, { unpack(d.busy.pids) })
        assert.equal("host0", d.host)
      end
    end
  end)

  it("lists MIG slices after their card, over gaps in their numbers", function()
    local want = machines.reference()
    local got = probe(want)
    local kinds = {}
    for _, d in ipairs(got.devices) do kinds[#kinds + 1] = d.kind end
    assert.same({ "gpu", "gpu", "gpu", "mig", "mig", "gpu", "mig", "mig" }, { unpack(kinds, 1, 8) })
    local slice = got.devices[5]
    assert.equal(want.devices[5].uuid, slice.uid)
    assert.same({ mode = "on", parent = machines.uuid(2), profile = "3g.40gb" }, slice.mig)
    assert.equal(40448 * 2 ^ 20, slice.mem_bytes)
    assert.equal(1, slice.numa)
    assert.equal(got.devices[3].pci, slice.pci)
  end)

  it("counts NVLinks by their other end, and keeps the PCIe distance beside them", function()
    local got = probe(machines.reference())
    local l = link(got, machines.uuid(0), machines.uuid(3))
    assert.same({ "nvlink", "sys", 6, "stated" }, { l.kind, l.pcie, l.nvlinks, l.source })
    assert.is_nil(l.via_switch)
    assert.same({ read = "ok", write = "ok" }, l.p2p)
    assert.is_nil(l.p2p_ba)
  end)

  it("joins GPUs through switches: every pair has all links of a GPU", function()
    local got = probe(machines.dgx())
    local n = 0
    for _, l in ipairs(got.links) do
      if l.kind == "nvlink" then
        n = n + 1
        assert.same({ 18, true }, { l.nvlinks, l.via_switch })
      end
    end
    assert.equal(28, n) -- 8 * 7 / 2
  end)

  it("takes a cluster of zeros for no cluster, and tells the fabric's state and health", function()
    local want = machines.dgx()
    want.devices[2].fabric = { state = "completed", status = "insufficient resources", health = "unhealthy" }
    want.devices[3].fabric = { state = "in progress" }
    want.devices[4].fabric = { state = "completed", status = "success", health = "limited capacity",
      cluster = "01234567-89ab-cdef-0123-456789abcdef", clique = 7 }
    want.devices[5].nvml = { fabric_v2 = true } -- a driver that knows the second form of the struct only
    local got = gpus(probe(want))
    assert.same({ state = "completed", status = "success", health = "healthy" }, got[1].fabric)
    assert.same({ state = "completed", status = "insufficient resources", health = "unhealthy" }, got[2].fabric)
    assert.equal("in progress", got[3].fabric.state)
    assert.is_nil(got[3].fabric.status)
    assert.same(want.devices[4].fabric, got[4].fabric)
    assert.same({ state = "completed", status = "success", health = "healthy" }, got[5].fabric)
  end)

  it("keeps switches that a VM hides: links whose ends are not told", function()
    local want = machines.dgx()
    for _, d in ipairs(want.devices) do d.nvml = { hidden_peers = true } end
    local l = link(probe(want), machines.uuid(0), machines.uuid(7))
    assert.same({ "nvlink", 18, true }, { l.kind, l.nvlinks, l.via_switch })
  end)

  it("counts links that carry peer traffic, and the smaller number where the ends differ", function()
    local want = machines.bridge()
    want.devices[1].nvml = { p2p_links = 3 }
    local got = probe(want)
    assert.equal(3, link(got, machines.uuid(0), machines.uuid(1)).nvlinks)
    assert.same({ "nvlink_asymmetric" }, codes(got.doubts))
    for _, d in ipairs(want.devices) do d.nvml = { p2p_links = 0 } end
    local l = link(probe(want), machines.uuid(0), machines.uuid(1))
    assert.same({ "phb" }, { l.kind, l.nvlinks })
  end)

  it("keeps peer access of both ways apart where they differ", function()
    local l = link(probe(machines.bridge()), machines.uuid(0), machines.uuid(1))
    assert.same({ "nvlink", 4, "phb" }, { l.kind, l.nvlinks, l.pcie })
    assert.same({ read = "ok", write = "ok" }, l.p2p)
    assert.same({ read = "cns", write = "ok" }, l.p2p_ba)
  end)

  it("says no to a lost GPU and goes on with the others", function()
    local want = machines.reference()
    want.devices[2].nvml = { lost = true }
    local got = gpus(probe(want))
    assert.equal(4, #got)
    assert.is_false(got[2].usable)
    assert.same({ "lost" }, codes(got[2].why_not))
    assert.equal(machines.uuid(1), got[2].uuid)
    assert.is_nil(got[1].usable) -- left to finish
    want.devices[2].nvml = { open = 15 } -- NVML_ERROR_GPU_IS_LOST when it is opened
    got = gpus(probe(want))
    assert.same({ "GPU1", false, "lost" }, { got[2].uid, got[2].usable, got[2].why_not[1].code })
  end)

  it("leaves out a GPU that it may not open, and says so", function()
    for _, code in ipairs { 4, 17 } do -- NO_PERMISSION, and OPERATING_SYSTEM: the device cgroup
      local want = machines.dgx()
      want.devices[1].nvml = { open = code }
      local got = probe(want)
      assert.equal(7, #gpus(got))
      assert.equal(1, gpus(got)[1].index)
      assert.same({ "gpu_hidden" }, codes(got.doubts))
    end
  end)

  it("reads an old library as far as it goes, and names what is unknown", function()
    local got = probe(machines.dgx(), { library = "nvml_standin_old" })
    assert.equal(8, #gpus(got))
    assert.same({ "nvml_old" }, codes(got.doubts))
    assert.matches("nvmlDeviceGetP2PStatus", got.doubts[1].message, 1, true)
    local g = gpus(got)[1]
    assert.equal(80 * 2 ^ 30, g.mem_bytes) -- by the first form of the call
    assert.equal("12.4", got.hosts[1].cuda)
    assert.is_nil(g.fabric)
    local l = link(got, machines.uuid(0), machines.uuid(1))
    assert.is_nil(l.p2p)
    assert.equal("node", l.pcie)
  end)

  it("has no GPU but a doubt where the driver is not loaded", function()
    for code, word in pairs { [9] = "DRIVER_NOT_LOADED", [18] = "LIB_RM_VERSION_MISMATCH" } do
      local want = machines.reference()
      want.nvml = { init = code }
      local got = probe(want)
      assert.equal(0, #gpus(got))
      assert.same({ "nvml_init" }, codes(got.doubts))
      assert.matches(word, got.doubts[1].message, 1, true)
      assert.equal("cpu", got.devices[1].kind)
    end
  end)

  it("says so when the library that TPL_NVML names is none", function()
    local got = probe(machines.bridge(), { env = { TPL_NVML = "/nowhere/libnvidia-ml.so.1" } })
    assert.same({ "nvml_missing" }, codes(got.doubts))
    assert.matches("/nowhere/", got.doubts[1].message, 1, true)
  end)

  it("plans with the widest link generation and the lanes in use", function()
    local want = machines.bridge()
    want.devices[1].nvml = { width_now = 8 }
    local got = probe(want)
    assert.same({ gen = 5, width = 8 }, gpus(got)[1].pcie)
    assert.same({ "pcie_width" }, codes(got.doubts))
  end)

  it("links a GPU to the CPU that it is soldered to", function()
    local want = machines.bridge()
    want.devices[1].numa = 0
    want.devices[1].nvml = { c2c = { 45000, 45000, 45000, 45000, 45000, 45000, 45000, 45000, 45000, 45000 } }
    local l = link(probe(want), machines.uuid(0), "cpu0")
    assert.same({ "c2c", 450, "stated" }, { l.kind, l.gb_s, l.source }) -- facts section 9: NVLink-C2C of Grace, one way
  end)
end)

describe("CUDA_VISIBLE_DEVICES", function()
  local function visible(record, text, order)
    local got = probe(record, { env = { CUDA_VISIBLE_DEVICES = text, CUDA_DEVICE_ORDER = order or false } })
    local out = {}
    for _, d in ipairs(got.devices) do
      if d.kind == "gpu" or d.kind == "mig" then
        local hidden = false
        for _, why in ipairs(d.why_not or {}) do hidden = hidden or why.code == "not_visible" end
        if not hidden then out[#out + 1] = d.kind == "gpu" and d.index or d.uuid end
      end
    end
    return out
  end

  -- The rules are those of the CUDA C++ Programming Guide, "CUDA Environment Variables".
  local cases = {
    { "0", { 0 } }, { "3,1", { 1, 3 } }, { "", {} }, { "-1", {} }, { "0,-1,2", { 0 } }, { "0,99,2", { 0 } }, { "1,x,2", { 1 } }, { "0,0", {} },
    { machines.uuid(2), { 2 } }, { "GPU-a0000005", { 5 } }, { "GPU-a", {} }, { "GPU-a0000005,nonsense,GPU-a0000006", { 5 } }, { " 4 , 5 ", { 4, 5 } },
    { "GPU-A0000007", { 7 } }, { "0,GPU-a0000003", { 0, 3 } },
  }
  for _, case in ipairs(cases) do
    it(("shows %d GPUs for '%s'"):format(#case[2], case[1]), function() assert.same(case[2], visible(machines.dgx(), case[1])) end)
  end

  it("hides nothing when it is not set, and never a CPU", function()
    assert.equal(8, #visible(machines.dgx(), false))
    local got = probe(machines.dgx(), { env = { CUDA_VISIBLE_DEVICES = "" } })
    assert.is_nil(got.devices[9].usable)
    assert.equal("not_visible", got.devices[1].why_not[1].code)
  end)

  it("shows one slice for a MIG UUID, and the first slice for the index of its card", function()
    local want = machines.reference()
    assert.same({ want.devices[5].uuid }, visible(want, want.devices[5].uuid))
    assert.same({ want.devices[5].uuid }, visible(want, want.devices[5].uuid .. "," .. want.devices[4].uuid))
    assert.same({ 2, want.devices[4].uuid }, visible(want, "2"))
  end)

  it("refuses indices on mixed models unless their order is set", function()
    local got, e = nvml.probe(machines.mixed(), { env = { CUDA_VISIBLE_DEVICES = "1" } })
    assert.is_nil(got)
    assert.same({ "cuda_order", 2, "CUDA_VISIBLE_DEVICES" }, { e.code, e.exit, e.where })
    assert.matches("CUDA_DEVICE_ORDER=PCI_BUS_ID", e.hint, 1, true)
    assert.same({ 1 }, visible(machines.mixed(), "1", "PCI_BUS_ID"))
    assert.same({ 1 }, visible(machines.mixed(), machines.uuid(1)))
  end)

  it("asks CUDA's driver about mixed models where there is one", function()
    local module = require("tpl.topo.visible")
    local before = module.driver
    module.driver = function() return { "00000000:20:00.0" } end
    local ok, seen = pcall(visible, machines.mixed(), "0") -- the fastest first: NVML's GPU 1
    module.driver = function() return { "00000000:99:00.0" } end
    local other, e = nvml.probe(machines.mixed(), { env = { CUDA_VISIBLE_DEVICES = "0" } })
    module.driver = before
    assert.same({ true, { 1 } }, { ok, seen })
    assert.is_nil(other) -- a driver that shows GPUs which NVML does not
    assert.equal("cuda_order", e.code)
  end)

  it("numbers by the bus, not by NVML's index", function()
    local want = machines.dgx()
    want.devices[1].pci, want.devices[8].pci = want.devices[8].pci, want.devices[1].pci
    assert.same({ 7 }, visible(want, "0"))
  end)
end)
