-- SPDX-License-Identifier: Apache-2.0
--- Several files of one machine: matching by UUID, address and index, facts that add up, contradictions that never end well.
local hwloc = require("tpl.topo.import.hwloc_xml")
local merge = require("tpl.topo.merge").merge
local nccl = require("tpl.topo.import.nccl_xml")
local record = require("tpl.topo.import.record")
local s = require("spec.topo.import.xml_support")

-- Partial records as the importers of nvidia-smi text make them.
local function matrix(cells, extra)
  local r = { source = { kind = "matrix", files = { "m.txt" } }, hosts = { { id = "host0" } }, devices = {}, links = {}, nics = {}, doubts = {} }
  local n = 0
  for key in pairs(cells) do n = math.max(n, tonumber(key:match("%d+$")) + 1) end
  for i = 0, n - 1 do r.devices[i + 1] = { uid = "GPU" .. i, kind = "gpu", host = "host0", index = i } end
  for key, word in pairs(cells) do
    local a, b = key:match("(%d+)-(%d+)")
    local count = tonumber(word:match("^NV(%d+)"))
    r.links[#r.links + 1] = { a = "GPU" .. a, b = "GPU" .. b, kind = count and "nvlink" or word, nvlinks = count, pcie = not count and word or nil, source = "stated" }
  end
  for key, v in pairs(extra or {}) do r[key] = v end
  return r
end

local function list(uuids)
  local r = { source = { kind = "smi-list", files = { "L.txt" } }, hosts = { { id = "host0" } }, devices = {}, links = {}, nics = {}, doubts = {} }
  for i, uuid in ipairs(uuids) do r.devices[i] = { uid = uuid, kind = "gpu", host = "host0", index = i - 1, uuid = uuid, name = "NVIDIA A40" } end
  return r
end

local function p2p(cells)
  local r = { source = { kind = "matrix", files = { "p2p.txt" } }, hosts = { { id = "host0" } }, devices = {}, links = {}, nics = {}, doubts = {} }
  for i = 0, 1 do r.devices[i + 1] = { uid = "GPU" .. i, kind = "gpu", host = "host0", index = i } end
  r.links[1] = { a = "GPU0", b = "GPU1", p2p = cells }
  return r
end

local function link(r, a, b)
  for _, l in ipairs(r.links) do if l.a == a and l.b == b then return l end end
end

describe("tpl.topo.merge", function()
  it("adds a -L list and a P2P table to a matrix; devices get their UUID as name", function()
    local m = matrix { ["0-1"] = "NV4" }
    local r = merge { m, list { "GPU-a", "GPU-b" }, p2p { read = "ok", write = "ok" } }
    assert.same({ "GPU-a", "GPU-b" }, s.each(r, "uid"))
    assert.same({ "NVIDIA A40", "NVIDIA A40" }, s.each(r, "name"))
    local l = link(r, "GPU-a", "GPU-b")
    assert.equal(4, l.nvlinks)
    assert.same({ read = "ok", write = "ok" }, l.p2p)
    assert.equal("merged", r.source.kind)
    assert.same({ "m.txt", "L.txt", "p2p.txt" }, r.source.files)
    assert.same({}, r.doubts)
    assert.equal("GPU0", m.devices[1].uid) -- the inputs stay
    assert.equal(1, #m.links)
  end)
  it("matches by UUID before anything else, MIG slices with their parent", function()
    local l = list { "GPU-a", "GPU-b" }
    l.devices[3] = { uid = "MIG-1", uuid = "MIG-1", kind = "mig", host = "host0", index = 0, mig = { parent = "GPU-b", profile = "1g.10gb" } }
    local q = { source = { kind = "smi-query", files = { "q.txt" } }, devices = { { uid = "GPU-b", uuid = "GPU-b", index = 0, mem_bytes = 100, kind = "gpu" } } }
    local r = merge { matrix { ["0-1"] = "pix" }, l, q }
    assert.equal(3, #r.devices)
    assert.equal("GPU-b", r.devices[2].uid)
    assert.equal(100, r.devices[2].mem_bytes)
    assert.is_nil(r.devices[1].mem_bytes)
    assert.equal("GPU-b", r.devices[3].mig.parent)
  end)

  it("matches by PCI address: a matrix with addresses and an XML in another order", function()
    local x = nccl.read(s.fixture("bridges-crossed-4.nccl.xml"), "x.xml")
    local m = matrix { ["0-1"] = "node", ["0-2"] = "sys", ["0-3"] = "NV4", ["1-2"] = "NV4", ["1-3"] = "sys", ["2-3"] = "node" }
    for i, address in ipairs { "0000:02:00.0", "0000:01:00.0", "0000:41:00.0", "0000:42:00.0" } do m.devices[i].pci = address end
    local r = merge { m, x }
    assert.equal("0 0 1 1", s.numa(r))
    assert.equal("nvlink 4 sys", s.links(r)["0-3"])
    assert.same({}, r.doubts)
  end)
  it("counts by PCI address where a file has only an order of its own", function()
    -- 02 of the corpus in small: the file lists 0003, 0004 first, nvidia-smi counts by address.
    local x = nccl.read([[<system version="1">
      <cpu numaid="0"><pci busid="0003:00:00.0" class="0x030200"/></cpu><cpu numaid="1"><pci busid="0001:00:00.0" class="0x030200"/></cpu></system>]], "x.xml")
    for _, order in ipairs { { 1, 2 }, { 2, 1 } } do
      local parts = { x, list { "GPU-a", "GPU-b" } }
      local r = merge { parts[order[1]], parts[order[2]] }
      assert.same({ "GPU-a", "GPU-b" }, s.each(r, "uid"))
      assert.same({ "0001:00:00.0", "0003:00:00.0" }, s.each(r, "pci"))
      assert.equal("1 0", s.numa(r))
      assert.equal("sys", link(r, "GPU-a", "GPU-b").kind)
      assert.truthy(s.doubt(r, "matched_by_pci_order"))
      assert.is_nil(s.doubt(r, "index_by_order"))
    end
  end)

  it("lets NVLink of one file stand beside another that is silent about it", function()
    local x = nccl.read([[<system version="1"><cpu numaid="0"><pci busid="0001:00:00.0" class="0x030200"><gpu dev="0" sm="80"/></pci>
      <pci busid="0002:00:00.0" class="0x030200"><gpu dev="1" sm="80"/></pci></cpu></system>]], "x.xml")
    for _, parts in ipairs { { x, matrix { ["0-1"] = "NV12" } }, { matrix { ["0-1"] = "NV12" }, x } } do
      local r = merge(parts)
      assert.equal("nvlink 12 node", s.links(r)["0-1"])
      assert.same({}, r.doubts) -- nvlink_unstated is answered
    end
    local mp = matrix({ ["0-1"] = "node" }, { doubts = { { code = "mp_hides_nvlink", message = "-mp" } } })
    assert.equal("nvlink 12 node", s.links(merge { mp, matrix { ["0-1"] = "NV12" } })["0-1"])
  end)
  it("does not count NVLink that another file denies", function()
    local a, b = matrix { ["0-1"] = "NV12" }, matrix { ["0-1"] = "node" }
    for _, parts in ipairs { { a, b }, { b, a } } do
      local r = merge(parts)
      assert.equal("node", s.links(r)["0-1"])
      assert.is_nil(r.links[1].nvlinks)
      assert.matches("NVLink", s.doubt(r, "contradiction").message)
    end
  end)

  it("keeps the worse of two values, whichever comes first", function()
    local function pair(l, d)
      local r = matrix { ["0-1"] = "pix" }
      for key, v in pairs(l or {}) do r.links[1][key] = v end
      for key, v in pairs(d or {}) do r.devices[1][key] = v end
      return r
    end
    local function both(x, y, look)
      for _, parts in ipairs { { x, y }, { y, x } } do
        local r = merge(parts)
        look(r)
        assert.truthy(s.doubt(r, "contradiction"))
      end
    end
    both(pair { kind = "nvlink", nvlinks = 4 }, pair { kind = "nvlink", nvlinks = 2 }, function(r) assert.equal(2, r.links[1].nvlinks) end)
    both(pair { kind = "pix", pcie = "pix" }, pair { kind = "sys", pcie = "sys" }, function(r) assert.equal("sys", r.links[1].kind) end)
    both(pair { p2p = { read = "ok" } }, pair { p2p = { read = "ns" } }, function(r) assert.equal("ns", r.links[1].p2p.read) end)
    both(pair { gb_s = 20, source = "measured" }, pair { gb_s = 5, source = "measured" }, function(r) assert.equal(5, r.links[1].gb_s) end)
    both(pair(nil, { mig = { mode = "off" } }), pair(nil, { mig = { mode = "on" } }), function(r) assert.equal("on", r.devices[1].mig.mode) end)
    both(pair(nil, { numa = 0 }), pair(nil, { numa = 1 }), function(r) assert.is_nil(r.devices[1].numa) end)
    both(pair(nil, { mem_bytes = 80e9 }), pair(nil, { mem_bytes = 40e9 }), function(r) assert.equal(40e9, r.devices[1].mem_bytes) end)
    both(pair(nil, { fabric = { state = "Completed" } }), pair(nil, { fabric = { state = "In Progress" } }), function(r) assert.equal("In Progress", r.devices[1].fabric.state) end)
    local r = merge { pair(nil, { usable = true }), pair(nil, { usable = false, why_not = { { code = "busy", message = "x" } } }), pair(nil, { numa = 0 }) }
    assert.is_false(r.devices[1].usable)
    assert.equal("busy", r.devices[1].why_not[1].code)
  end)
  it("keeps a disputed NUMA node unknown, also when a third file speaks", function()
    local parts = { matrix { ["0-1"] = "pix" }, matrix { ["0-1"] = "pix" }, matrix { ["0-1"] = "pix" } }
    for i, p in ipairs(parts) do p.devices[1].numa = i % 2 end
    assert.is_nil(merge(parts).devices[1].numa)
  end)
  it("prefers measured figures to stated ones, turned the right way round", function()
    local m = matrix { ["0-1"] = "pix" }
    m.links[1].gb_s = 30
    local measured = record.read("devices: [{uid: y, uuid: GPU-b, index: 1}, {uid: x, uuid: GPU-a, index: 0}]\n"
      .. "links: [{a: y, b: x, kind: pix, gb_s: 10, gb_s_ba: 12, source: measured}]\n", "m.yaml")
    local r = merge { m, list { "GPU-a", "GPU-b" }, measured }
    local l = link(r, "GPU-a", "GPU-b")
    assert.equal(12, l.gb_s)
    assert.equal(10, l.gb_s_ba)
    assert.equal("measured", l.source)
  end)

  it("joins NICs by device name, whatever the file calls them", function()
    local m = matrix({ ["0-1"] = "node", ["0-2"] = "sys", ["0-3"] = "sys", ["1-2"] = "sys", ["1-3"] = "sys", ["2-3"] = "node" },
      { nics = { { name = "NIC0", device = "mlx5_0", to = { GPU0 = "pix", GPU1 = "node", GPU2 = "sys", GPU3 = "sys" } }, { name = "NIC1", to = { GPU0 = "sys" } } } })
    local r = merge { m, hwloc.read(s.fixture("nvswitch-4.hwloc.xml"), "h.xml") }
    assert.equal(2, #r.nics)
    assert.equal("0000:05:00.0", r.nics[1].pci)
    assert.equal("pix node sys sys", s.nic(r, "NIC0")) -- the XML says pix to GPU1: the longer one is kept
    assert.truthy(s.doubt(r, "contradiction"))
    assert.equal("0 0 1 1", s.numa(r))
  end)
  it("keeps hosts apart that have names of their own, and gives the only one its name", function()
    local a = record.read("hosts: [{id: left}]\ndevices: [{uid: a}]", "a.yaml")
    local b = record.read("hosts: [{id: right}]\ndevices: [{uid: b}]", "b.yaml")
    local r = merge { a, b }
    assert.equal(2, #r.hosts)
    assert.same({ "left", "right" }, s.each(r, "host"))
    r = merge { matrix { ["0-1"] = "pix" }, a }
    assert.equal(1, #r.hosts)
    assert.same({ "left", "left" }, s.each(r, "host"))
    assert.same({ "GPU0", "GPU1" }, s.each(r, "uid"))
  end)
  it("adds devices that only a later file has, and says so", function()
    local r = merge { matrix { ["0-1"] = "pix" }, list { "GPU-a", "GPU-b", "GPU-c" } }
    assert.same({ "GPU-a", "GPU-b", "GPU-c" }, s.each(r, "uid"))
    assert.matches("GPU%-c", s.doubt(r, "only_in_one").message)
  end)
  it("matches by a name that somebody gave, and MIG slices without UUID by theirs", function()
    local a = record.read("devices: [{uid: left}, {uid: right}, {uid: slice, kind: mig, mig: {parent: right}}]", "a.yaml")
    local b = record.read("devices: [{uid: right, name: N}, {uid: left, vbios: v}, {uid: slice, kind: mig, mig: {parent: right}}]", "b.yaml")
    local r = merge { a, b }
    assert.same({ "left", "right", "slice" }, s.each(r, "uid"))
    assert.same({ "v", "-", "-" }, s.each(r, "vbios"))
    assert.same({ "-", "N", "-" }, s.each(r, "name"))
  end)
  it("takes the smaller of two CPU lists where one has all of the other", function()
    for _, case in ipairs { { "0-19", "0-19,40-59", "0-19" }, { "4", "0-3,4-7", "4" }, { "0-3", "0,1,2,3", "0-3" } } do
      for _, turn in ipairs { { 1, 2 }, { 2, 1 } } do
        local parts = { matrix { ["0-1"] = "pix" }, matrix { ["0-1"] = "pix" } }
        for i = 1, 2 do parts[i].devices[1].cpus = case[turn[i]] end
        local r = merge(parts)
        assert.is_nil(s.doubt(r, "contradiction"))
        assert.truthy(r.devices[1].cpus == case[3] or case[1] == "0-3") -- equal sets: either text
      end
    end
    local parts = { matrix { ["0-1"] = "pix" }, matrix { ["0-1"] = "pix" } }
    parts[1].devices[1].cpus, parts[2].devices[1].cpus = "0-3", "2-5"
    assert.truthy(s.doubt(merge(parts), "contradiction"))
  end)
  it("names the file of every doubt", function()
    local r = merge { nccl.read(s.fixture("hidden-switch-vm-2.nccl.xml"), "vm.xml"), matrix { ["0-1"] = "NV17" } }
    assert.equal("vm.xml", s.doubt(r, "numa_unknown").file)
    assert.equal("m.txt", s.doubt(r, "contradiction").file)
  end)

  it("places MIG slices where their card is, whichever file says so", function()
    local m = matrix({ ["0-1"] = "sys" })
    m.devices[1].numa, m.devices[1].cpus = 0, "0-15"
    local l = list { "GPU-a", "GPU-b" }
    l.devices[1].mig = { mode = "on" }
    l.devices[3] = { uid = "MIG-1", uuid = "MIG-1", kind = "mig", host = "host0", index = 0, mig = { parent = "GPU-a", profile = "1g.6gb" } }
    local t = require("tpl.topo").finish(merge { m, l })
    assert.same({ 0, "0-15" }, { t:dev("MIG-1").numa, t:dev("MIG-1").cpus })
    l.devices[3].mig.parent = "GPU-gone"
    t = require("tpl.topo").finish(merge { l })
    assert.equal("mig_parent_unknown", t.doubts[#t.doubts].code)
  end)
end)
