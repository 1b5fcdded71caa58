-- SPDX-License-Identifier: Apache-2.0
--- lstopo XML: own fixtures (hwloc 1, 2 and 3) with answers counted by hand, the corpus with the answers of its INDEX.md, cuts.
local err = require("tpl.err")
local hwloc = require("tpl.topo.import.hwloc_xml")
local s = require("spec.topo.import.xml_support")

local function read(name) return hwloc.read(s.fixture(name), name) end

describe("tpl.topo.import.hwloc_xml", function()
  it("knows its files by the root element", function()
    assert.is_true(hwloc.detect(s.fixture("nvswitch-4.hwloc.xml")))
    assert.is_true(hwloc.detect(s.fixture("hwloc1-numa-parents-2.hwloc.xml")))
    assert.is_false(hwloc.detect(s.fixture("faults.nccl.xml")))
    assert.is_false(hwloc.detect("Machine (512GB total)\n  Package L#0\n"))
  end)

  it("closes NVLink over NVSwitches: the fewer links of a pair count, split values are joined", function()
    local r = read("nvswitch-4.hwloc.xml")
    -- To both switches: 150000 each for the first three (12 links of 25000), 150000 + 100000 for the last (10).
    assert.same({ ["0-1"] = "nvlink 12* pix", ["0-2"] = "nvlink 12* sys", ["0-3"] = "nvlink 10* sys", ["1-2"] = "nvlink 12* sys",
      ["1-3"] = "nvlink 10* sys", ["2-3"] = "nvlink 10* node" }, s.links(r))
    assert.equal(300, r.links[1].gb_s)
    assert.same({}, r.doubts)
  end)
  it("reads UUIDs, addresses, names, memory and NUMA nodes; the memory of a GPU is no node", function()
    local r = read("nvswitch-4.hwloc.xml")
    assert.equal("GPU-aaaaaaaa-0000-0000-0000-000000000001", r.devices[2].uid)
    assert.same({ "0000:03:00.0", "0000:04:00.0", "0000:81:00.0", "0000:c1:00.0" }, s.each(r, "pci"))
    assert.equal("NVIDIA A100-SXM4-80GB", r.devices[2].name) -- by its device id
    assert.equal(83073024 * 1024, r.devices[1].mem_bytes)
    assert.equal("0 0 1 1", s.numa(r))
    assert.same({ { id = 0, cpus = "0-7", package = 0, mem_bytes = 2 ^ 38 }, { id = 1, cpus = "8-15", package = 1, mem_bytes = 2 ^ 38 } }, r.hosts[1].numa)
    assert.same({ vendor = "AuthenticAMD", model = "AMD EPYC 7742 64-Core Processor" }, r.hosts[1].cpu)
  end)
  it("lists RDMA devices as NICs where there are some", function()
    local r = read("nvswitch-4.hwloc.xml")
    assert.equal(1, #r.nics)
    assert.equal("pix pix sys sys", s.nic(r, "mlx5_0"))
    assert.equal("0000:05:00.0", r.nics[1].pci)
  end)

  it("does not join GPUs through CPU packages", function()
    local r = read("cpu-nvlink-4.hwloc.xml")
    assert.same({ ["0-1"] = "nvlink 2 node", ["0-2"] = "sys", ["1-2"] = "sys" }, s.links(r)) -- 40000 MB/s = 2 links of 20000 (NVLink 1)
    assert.equal("0 0 8", s.numa(r))
    assert.equal(40, r.links[1].gb_s)
  end)

  it("reads hwloc 1, where NUMA nodes are parents", function()
    local r = read("hwloc1-numa-parents-2.hwloc.xml")
    assert.same({ "0000:02:00.0", "0000:82:00.0" }, s.each(r, "pci"))
    assert.equal("0 1", s.numa(r))
    assert.same({ ["0-1"] = "sys" }, s.links(r))
    assert.equal("phb sys", s.nic(r, "eth0"))
    assert.truthy(s.doubt(r, "nvlink_unstated"))
  end)

  it("says when there is no GPU in a valid file", function()
    local r = read("no-gpu.hwloc.xml")
    assert.equal(0, #r.devices)
    assert.matches("no GPU information", s.doubt(r, "no_gpu").message)
    assert.equal(1, #r.hosts[1].numa)
  end)

  it("leaves out a matrix that does not fit, and UUIDs that repeat", function()
    local text = s.fixture("nvswitch-4.hwloc.xml")
    local r = hwloc.read((text:gsub("PCIDev:20 PCIDev:21", "PCIDev:20")), "t.xml")
    assert.truthy(s.doubt(r, "bad_matrix"))
    for _, l in ipairs(r.links) do assert.not_equal("nvlink", l.kind) end
    r = hwloc.read((text:gsub("GPU%-aaaaaaaa%-0000%-0000%-0000%-00000000000%d", "GPU-x")), "t.xml")
    assert.truthy(s.doubt(r, "uuid_repeated"))
    assert.same({ "GPU0", "GPU1", "GPU2", "GPU3" }, s.each(r, "uid"))
  end)
  it("takes the less of two unequal ways", function()
    local text = s.fixture("cpu-nvlink-4.hwloc.xml"):gsub("40000 1000000 0 40000 0 ", "20000 1000000 0 40000 0 ")
    local r = hwloc.read(text, "t.xml")
    assert.equal("nvlink 1 node", s.links(r)["0-1"])
    assert.truthy(s.doubt(r, "nvlink_asymmetric"))
  end)
  it("gives a GPU without locality the longest paths, and says so", function()
    local r = hwloc.read([[<topology version="2.0"><object type="Machine" cpuset="0x3" nodeset="0x3">
      <object type="NUMANode" os_index="0" cpuset="0x1" nodeset="0x1"/><object type="NUMANode" os_index="1" cpuset="0x2" nodeset="0x2"/>
      <object type="Bridge" bridge_type="0-1"><object type="PCIDev" pci_busid="0000:01:00.0" pci_type="0302 [10de:2330] [0:0] 0"/></object>
      <object type="Bridge" bridge_type="0-1"><object type="PCIDev" pci_busid="0000:02:00.0" pci_type="0302 [10de:2330] [0:0] 0"/></object>
      </object></topology>]], "t.xml")
    assert.same({ ["0-1"] = "sys" }, s.links(r))
    assert.truthy(s.doubt(r, "numa_unknown"))
  end)

  it("takes the node with CPUs where the memory of GPUs makes nodes of its own (Grace)", function()
    local r = hwloc.read([[<topology version="2.0"><object type="Machine" cpuset="0xf" nodeset="0x3f">
      <object type="Package" os_index="0" cpuset="0x3" nodeset="0x7"><object type="NUMANode" os_index="0" cpuset="0x3" nodeset="0x1"/>
        <object type="NUMANode" os_index="1" subtype="GPUMemory" cpuset="0x0" nodeset="0x2"/><object type="NUMANode" os_index="2" cpuset="0x0" nodeset="0x4"/>
        <object type="Bridge" bridge_type="0-1"><object type="PCIDev" pci_busid="0008:01:00.0" pci_type="0302 [10de:2342] [0:0] 0"/></object></object>
      <object type="Package" os_index="1" cpuset="0xc" nodeset="0x38"><object type="NUMANode" os_index="3" cpuset="0xc" nodeset="0x8"/>
        <object type="Bridge" bridge_type="0-1"><object type="PCIDev" pci_busid="0018:01:00.0" pci_type="0302 [10de:2342] [0:0] 0"/></object></object>
      </object></topology>]], "t.xml")
    assert.equal("0 3", s.numa(r))
    assert.equal(2, #r.hosts[1].numa)
    assert.same({ ["0-1"] = "sys" }, s.links(r))
    assert.is_nil(s.doubt(r, "numa_unknown"))
  end)

  it("gives a record or a clean error for every cut", function()
    for _, name in ipairs { "nvswitch-4.hwloc.xml", "cpu-nvlink-4.hwloc.xml", "hwloc1-numa-parents-2.hwloc.xml" } do
      local text = s.fixture(name)
      s.cuts(text, 800, function(piece, at)
        local r, e = err.try(hwloc.read, piece, name)
        if not r then assert.equal(6, e.exit, tostring(e)) elseif at < #text - 20 then assert.truthy(s.doubt(r, "truncated"), name .. " at " .. at) end
      end)
    end
  end)
end)

describe("tpl.topo.import.hwloc_xml on the corpus", function()
  local function corpus(name)
    local text = s.corpus(name)
    if not text then pending(name .. " is not there (TPL_SHARED)") return end
    s.cuts(text, 60, function(piece)
      local r, e = err.try(hwloc.read, piece, name)
      if not r then assert.equal(6, e.exit, tostring(e)) end
    end)
    return hwloc.read(text, name)
  end

  it("joins all 16 GPUs of a DGX-2 through its switches (13)", function()
    local r = corpus("13-dgx2-16xV100.hwloc.xml")
    if not r then return end
    assert.equal(16, #r.devices)
    assert.equal("0 0 0 0 0 0 0 0 1 1 1 1 1 1 1 1", s.numa(r))
    local words, links = {}, s.links(r)
    for _, l in ipairs(r.links) do
      assert.equal("nvlink", l.kind)
      assert.is_true(l.via_switch)
      assert.equal(6, l.nvlinks)
      words[l.pcie] = (words[l.pcie] or 0) + 1
    end
    assert.equal(120, #r.links)
    -- Eight switches of two GPUs; two of them under one more in each of four quads; two quads a socket.
    assert.same({ pix = 8, pxb = 16, node = 32, sys = 64 }, words)
    for _, pair in ipairs { "0-1", "2-3", "4-5", "6-7" } do assert.equal("nvlink 6* pix", links[pair]) end
    assert.equal("nvlink 6* pxb", links["0-3"])
  end)
  it("keeps the pairs of a POWER8 apart (14)", function()
    local r = corpus("14-power8-minsky-4xP100.hwloc.xml")
    if not r then return end
    assert.same({ ["0-1"] = "nvlink 2 node", ["2-3"] = "nvlink 2 node", ["0-2"] = "sys", ["0-3"] = "sys", ["1-2"] = "sys", ["1-3"] = "sys" }, s.links(r))
    assert.equal("0 0 1 1", s.numa(r))
    assert.equal(40, r.links[1].gb_s)
  end)
  it("finds no GPU in a DGX Spark (15)", function()
    local r = corpus("15-dgx-spark-gb10.hwloc.xml")
    if not r then return end
    assert.equal(0, #r.devices)
    assert.equal(1, #r.hosts[1].numa)
    assert.truthy(s.doubt(r, "no_gpu"))
  end)
end)
