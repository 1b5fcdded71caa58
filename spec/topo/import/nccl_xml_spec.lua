-- SPDX-License-Identifier: Apache-2.0
--- NCCL topology files: own fixtures with answers counted by hand, the corpus with the answers of its INDEX.md, damage of every kind.
local err = require("tpl.err")
local nccl = require("tpl.topo.import.nccl_xml")
local s = require("spec.topo.import.xml_support")

local function read(name) return nccl.read(s.fixture(name), name) end

local function refusal(text, name)
  local record, e = err.try(nccl.read, text, name or "t.xml")
  assert.is_nil(record)
  assert.equal(6, e.exit)
  return e
end

describe("tpl.topo.import.nccl_xml on own fixtures", function()
  it("knows its files by the root element", function()
    assert.is_true(nccl.detect(s.fixture("h200-nvswitch-4.nccl.xml")))
    assert.is_true(nccl.detect("<!-- x --><graphs version='1'/>"))
    assert.is_true(nccl.detect("$ cat topo.xml\n<system version=1>"))
    assert.is_false(nccl.detect(s.fixture("no-gpu.hwloc.xml")))
    assert.is_false(nccl.detect("\tGPU0\tGPU1\n"))
    assert.is_false(nccl.detect("<!-- <system> -->"))
    assert.is_false(nccl.detect(""))
  end)

  it("joins GPUs through NVSwitches, the fewer links of a pair counting", function()
    local r = read("h200-nvswitch-4.nccl.xml")
    assert.same({ ["0-1"] = "nvlink 18* node", ["0-2"] = "nvlink 18* sys", ["0-3"] = "nvlink 17* sys", ["1-2"] = "nvlink 18* sys",
      ["1-3"] = "nvlink 17* sys", ["2-3"] = "nvlink 17* node" }, s.links(r))
    assert.equal("0 0 1 1", s.numa(r))
    assert.same({ "NVIDIA H200", "NVIDIA H200", "NVIDIA H200", "NVIDIA H200" }, s.each(r, "name"))
    assert.same({ "9.0", "9.0", "9.0", "9.0" }, s.each(r, "sm"))
    assert.equal("0000:24:00.0", r.devices[2].pci)
    assert.same({ gen = 5, width = 16 }, r.devices[1].pcie)
  end)
  it("reads CPU masks, most significant group first", function()
    local r = read("h200-nvswitch-4.nccl.xml")
    assert.equal("0-15,48-63", r.hosts[1].numa[1].cpus)
    assert.equal("16-47", r.devices[3].cpus)
  end)
  it("gives the words from NICs to GPUs: one switch, two, the host bridges, the sockets", function()
    local r = read("h200-nvswitch-4.nccl.xml")
    assert.equal("pix node sys sys", s.nic(r, "mlx5_0"))
    assert.equal("node pxb sys sys", s.nic(r, "mlx5_1"))
    assert.equal("sys sys node node", s.nic(r, "eth0"))
    assert.equal(50, r.nics[1].gb_s) -- 400000 Mbit/s
  end)
  it("says which port is slower than the device below it", function()
    assert.matches("12 GB/s", s.doubt(read("h200-nvswitch-4.nccl.xml"), "pcie_slow_port", 18).message) -- x8 of 16 GT/s: 8 x 1.5
  end)

  it("follows NCCL's own numbers, and pairs bridges whatever the place in the file", function()
    local r = read("bridges-crossed-4.nccl.xml")
    assert.same({ "0000:02:00.0", "0000:01:00.0", "0000:41:00.0", "0000:42:00.0" }, s.each(r, "pci"))
    assert.same({ ["0-1"] = "node", ["0-2"] = "sys", ["0-3"] = "nvlink 4 sys", ["1-2"] = "nvlink 4 sys", ["1-3"] = "sys", ["2-3"] = "node" }, s.links(r))
    assert.same({}, r.doubts)
  end)

  it("takes a hidden peer for a NVSwitch and a VM's -1 for an unknown node", function()
    local r = read("hidden-switch-vm-2.nccl.xml")
    assert.same({ ["0-1"] = "nvlink 18* phb" }, s.links(r))
    assert.same({ "-", "-" }, s.each(r, "numa"))
    assert.truthy(s.doubt(r, "numa_unknown", 3))
  end)

  it("guesses the kind of devices that are addresses only, and says so", function()
    local r = read("busid-only-5.nccl.xml")
    assert.equal("0 0 1 1", s.numa(r))
    assert.equal("sys sys phb phb", s.nic(r, "0000:00:1a.0"))
    assert.truthy(s.doubt(r, "class_unknown", 4))
    assert.truthy(s.doubt(r, "class_unknown", 10))
    assert.truthy(s.doubt(r, "nvlink_unstated"))
    assert.truthy(s.doubt(r, "index_by_order"))
  end)

  it("tells hosts apart by host_hash", function()
    local r = read("two-trays-mnnvl.nccl.xml")
    assert.same({ "host0/GPU0", "host0/GPU1", "host1/GPU0" }, s.each(r, "uid"))
    assert.equal(2, #r.hosts)
    for _, l in ipairs(r.links) do
      assert.equal("nvlink", l.kind)
      assert.equal(l.b == "host1/GPU0" and "-" or "node", l.pcie or "-")
    end
  end)

  it("reports every fault with its line and keeps what is not touched by it", function()
    local r = read("faults.nccl.xml")
    assert.equal("nvlink 6 node", s.links(r)["1-3"]) -- 8 there, 6 back
    for pair, text in pairs(s.links(r)) do if pair ~= "1-3" then assert.equal("node", text, pair) end end
    assert.equal("0-3,32-39", r.hosts[1].numa[1].cpus)
    for code, line in pairs { repaired = 3, bad_affinity = 3, pcie_speed = 4, self_link = 5, nvlink_target = 14, bad_nvlink = 19, bad_busid = 22 } do
      assert.truthy(s.doubt(r, code, line), code)
    end
    assert.truthy(s.doubt(r, "nvlink_asymmetric", 9)) -- none back
    assert.truthy(s.doubt(r, "nvlink_asymmetric", 10)) -- fewer back
    assert.truthy(s.doubt(r, "repaired", 25)) -- the prompt at the end
    assert.is_nil(s.doubt(r, "truncated"))
    assert.equal(5, #r.devices) -- the display adapter of another maker is none
  end)

  it("refuses graph files, AMD's files and invented ones by name", function()
    assert.matches("graph file", refusal(s.fixture("graph.negative.nccl-graph.xml")).message)
    assert.matches("AMD", refusal(s.fixture("amd.negative.nccl.xml")).message)
    assert.matches("AMD", refusal('<system version="2"><cpu numaid="0"/></system>').message)
    local e = refusal(s.fixture("invented.negative.nccl.xml"), "i.xml")
    assert.matches("<pci busid>", e.message)
    assert.equal("i.xml:2", e.where)
    assert.matches("version 7", refusal('<system version="7"/>').message)
    assert.matches("entities", refusal('<!DOCTYPE system [<!ENTITY a "b">]><system version="1">&a;</system>').message)
  end)

  it("is not led astray by numbers that make no sense", function()
    local text = [[<system version="1"><cpu numaid="99999999999" affinity="zz"><pci busid="0:1:2.3" class="0x030200" link_width="1e9" link_speed="x">
      <gpu dev="-1" sm="1e300"><nvlink target="" count="1"/><nvlink count="-5" target="a"/><nvlink target="b" count="1e18"/></gpu></pci></cpu></system>]]
    local r = nccl.read(text, "t.xml")
    assert.same({ "-" }, s.each(r, "sm"))
    assert.same({ "-" }, s.each(r, "numa"))
    assert.same({ "-" }, s.each(r, "pcie"))
    assert.equal("0000:01:02.3", r.devices[1].pci)
    assert.truthy(s.doubt(r, "bad_nvlink"))
    local many = { '<system version="1"><cpu numaid="0">' }
    for i = 1, 300 do many[#many + 1] = ('<pci busid="%04x:00:00.0" class="0x030200"/>'):format(i) end
    many[#many + 1] = "</cpu></system>"
    assert.matches("256 GPUs", refusal(table.concat(many)).message)
  end)

  it("believes one side of a NVLink where the other was cut off, and reads addresses without function", function()
    local text = [[<system version="1"><cpu numaid="0"><pci busid="0000:01:00" class="0x030200"><gpu dev="1" sm="80">
      <nvlink target="0000:02:00.0" count="3" tclass="0x030200"/></gpu></pci>
      <pci busid="0000:02:00" class="0x030200"><gpu dev="0" sm="80">]]
    local r = nccl.read(text, "t.xml")
    assert.equal("nvlink 3 node", s.links(r)["0-1"])
    assert.truthy(s.doubt(r, "nvlink_one_way", 2))
    r = nccl.read(text .. "</gpu></pci></cpu></system>", "t.xml")
    assert.equal("node", s.links(r)["0-1"])
    assert.truthy(s.doubt(r, "nvlink_asymmetric", 2))
  end)
  it("takes time in proportion to a file, whatever is repeated in it", function()
    local repeated = { "<!", "<!--", "<", "<a>", "<a b=c/>", "<a b=c ", "</system>", "&lt;", '<pci busid="0:1:0.0" class="0x03"/>', "a=", "f,", "\n" }
    for _, piece in ipairs(repeated) do
      for _, around in ipairs { { "", "<system/>" }, { '<system version="1"><cpu numaid="0">', "</cpu></system>" }, { '<system version=1><cpu affinity="', '"/></system>' } } do
        local from = os.clock()
        err.try(nccl.read, around[1] .. piece:rep(math.floor(1e6 / #piece)) .. around[2], "t.xml")
        assert.is_true(os.clock() - from < 3, piece) -- 0.3 s where this was written
      end
    end
  end)
  it("reads a file that lost its head, as far as it goes", function()
    local text = s.fixture("h200-nvswitch-4.nccl.xml")
    local r = nccl.read(text:sub((text:find("<cpu numaid=\"1\""))), "tail.xml")
    assert.equal(2, #r.devices)
    assert.truthy(s.doubt(r, "headless"))
  end)

  it("gives a record or a clean error for every cut", function()
    for _, name in ipairs { "h200-nvswitch-4.nccl.xml", "faults.nccl.xml", "two-trays-mnnvl.nccl.xml" } do
      local text = s.fixture(name)
      s.cuts(text, 1200, function(piece, at)
        local r, e = err.try(nccl.read, piece, name)
        if r then
          assert.is_true(#r.devices <= 5)
          if at < #text - 20 then assert.truthy(s.doubt(r, "truncated") or s.doubt(r, "headless"), name .. " at " .. at) end
        else
          assert.equal(6, e.exit, tostring(e))
        end
      end)
    end
  end)
end)

-- Answers of INDEX.md: NUMA split, how many links of which kind, some links, NICs, doubts.
local quads = "0 0 0 0 1 1 1 1"
local corpus = {
  ["01-azure-ndv2-8xV100.nccl.xml"] = { numa = quads, nvlinks = 0, doubts = { "nvlink_unstated" }, nics = { ["0101:00:00.0"] = "node node node node sys sys sys sys" } },
  ["02-azure-ndv4-8xA100.nccl.xml"] = { numa = "0 0 1 1 2 2 3 3", nvlinks = 0, links = { ["0-1"] = "pix", ["2-3"] = "pix", ["4-5"] = "pix", ["6-7"] = "pix", ["1-2"] = "sys" },
    nics = { ["0103:00:00.0"] = "pix pix sys sys sys sys sys sys" }, pci = { "0003:00:00.0", "0004:00:00.0", "0001:00:00.0" } },
  ["03-azure-ndv5-8xH100.nccl.xml"] = { numa = quads, nvlinks = 0, nics = { ["0104:00:00.0"] = "node node node pix sys sys sys sys" } },
  ["04-azure-ncv4-4xA100pcie-selflink.nccl.xml"] = { numa = "0 1 2 3", nvlinks = 0, links = { ["0-1"] = "sys", ["2-3"] = "sys" }, doubts = { "self_link", "nvlink_unstated" } },
  ["06-azure-nc48v4-2xA100.nccl.xml"] = { numa = "0 1", nvlinks = 1, links = { ["0-1"] = "nvlink 12 sys" } },
  ["07-aws-p4d-8xA100.nccl.xml"] = { numa = quads, nvlinks = 0,
    links = { ["0-1"] = "pix", ["2-3"] = "pix", ["4-5"] = "pix", ["6-7"] = "pix", ["0-2"] = "node", ["0-4"] = "sys" },
    nics = { ["0000:10:1b.0"] = "pix pix node node sys sys sys sys" }, doubts = { "nvlink_unstated" } },
  ["08-aws-p4de-8xA100-80.nccl.xml"] = { numa = quads, nvlinks = 0, links = { ["6-7"] = "pix" } },
  ["09-aws-g5.48xl-8xA10G-busid-only.nccl.xml"] = { numa = quads, nvlinks = 0, nics = { ["0000:00:15.0"] = "sys sys sys sys phb phb phb phb" }, doubts = { "class_unknown" } },
  ["10-oci-bm-h100-8.nccl.xml"] = { numa = quads, nvlinks = 28, links = { ["0-1"] = "nvlink 18* node", ["3-4"] = "nvlink 18* sys" }, doubts = { "pcie_slow_port" },
    nics = { mlx5_0 = "pxb node node node sys sys sys sys", mlx5_17 = "sys sys sys sys node node node pxb", mlx5_12 = "sys sys sys sys node pxb node node" } },
  ["11-oci-bm-a100-flattened.nccl.xml"] = { numa = "3 3 1 1 7 7 5 5", nvlinks = 0, links = { ["0-1"] = "pix", ["2-3"] = "pix", ["1-2"] = "sys" } },
  ["12-oci-bm-a100-b4-bad-affinity.nccl.xml"] = { numa = "3 3 1 1 7 7 5 5", nvlinks = 0, links = { ["4-5"] = "pix" }, doubts = { "bad_affinity" } },
  ["91-baremetal-h200-3gpu-unclosed.nccl.xml"] = { numa = "0 0 0", nvlinks = 3, links = { ["0-1"] = "nvlink 18* node" }, doubts = { "truncated" },
    nics = { mlx5_0 = "pix node node", mlx5_1 = "node pix node", mlx5_2 = "node node pix" } },
  ["92-aws-p5-autogen-first-gpu.nccl.xml"] = { numa = "0", nvlinks = 0, nics = { rdmap82s0 = "pix" }, doubts = { "truncated", "pcie_slow_port" } },
  ["93-2xa100-direct-12-links-nic-other-socket.nccl.xml"] = { numa = "0 0", nvlinks = 1, links = { ["0-1"] = "nvlink 12 pix" }, nics = { bnxt_re0 = "sys sys" },
    doubts = { "repaired", "pcie_speed", "nic_no_gdr" } },
  ["113-vm-4xa800-no-nvlink-numa-minus1.nccl.xml"] = { numa = "- - - -", nvlinks = 0, links = { ["0-1"] = "phb", ["2-3"] = "phb" },
    doubts = { "numa_unknown", "nvlink_unstated" } },
}

local refused = {
  ["05-azure-ncv4-graph.nccl-graph.xml"] = "graph file", ["94-invented-schema-gpu-under-system.negative.nccl.xml"] = "no PCI device",
  ["103-rccl-8xMI200-xgmi.negative.nccl.xml"] = "AMD", ["104-rccl-8xMI60-pcie-switch-2nic.negative.nccl.xml"] = "AMD",
}

describe("tpl.topo.import.nccl_xml on the corpus", function()
  for name, want in pairs(corpus) do
    it("answers as INDEX.md for " .. name, function()
      local text = s.corpus(name)
      if not text then pending(name .. " is not there (TPL_SHARED)") return end
      local r = nccl.read(text, name)
      assert.equal(want.numa, s.numa(r))
      local n, links = 0, s.links(r)
      for _, l in ipairs(r.links) do n = n + (l.kind == "nvlink" and 1 or 0) end
      assert.equal(want.nvlinks, n)
      for pair, word in pairs(want.links or {}) do assert.equal(word, links[pair], pair) end
      for nic, words in pairs(want.nics or {}) do assert.equal(words, s.nic(r, nic), nic) end
      for _, code in ipairs(want.doubts or {}) do assert.truthy(s.doubt(r, code), code) end
      for i, address in ipairs(want.pci or {}) do assert.equal(address, r.devices[i].pci) end
      s.cuts(text, 150, function(piece)
        local cut, e = err.try(nccl.read, piece, name)
        if cut then assert.is_true(#cut.devices <= #r.devices + 1) else assert.equal(6, e.exit, tostring(e)) end
      end)
    end)
  end
  for name, word in pairs(refused) do
    it("refuses " .. name, function()
      local text = s.corpus(name)
      if not text then pending(name .. " is not there (TPL_SHARED)") return end
      assert.is_true(nccl.detect(text))
      assert.matches(word, refusal(text, name).message)
    end)
  end
  it("reads the mask of 12 with its short group right-aligned", function()
    local text = s.corpus("12-oci-bm-a100-b4-bad-affinity.nccl.xml")
    if not text then pending("the corpus is not there (TPL_SHARED)") return end
    for _, n in ipairs(nccl.read(text, "12").hosts[1].numa) do
      if n.id == 7 then assert.equal("112-127,240-251", n.cpus) end -- 0x0fff0000 of group 7: bits 16 to 27
    end
  end)
end)
