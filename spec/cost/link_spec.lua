-- SPDX-License-Identifier: Apache-2.0
--- What a path between two devices is worth. Expected: NCCL's constants in facts/topology.md section 4, by hand.
local cost = require("tpl.cost")
local toy = require("spec.support.toy_topo")

local function link(gpu, l, more)
  local spec = { n = 2, name = gpu, link = l }
  for k, v in pairs(more or {}) do spec[k] = v end
  return cost.link(toy.new(spec), "GPU0", "GPU1")
end

local AMD, INTEL = { vendor = "AuthenticAMD" }, { vendor = "GenuineIntel" }

describe("tpl.cost.link", function()
  it("multiplies NVLinks by what NCCL counts for one", function()
    for _, row in ipairs { { "Tesla P100-SXM2-16GB", 1, 18 }, { "Tesla V100-SXM2-32GB", 2, 40 }, { "NVIDIA A100-SXM4-80GB", 12, 240 }, { "NVIDIA GeForce RTX 3090", 4, 48 },
      { toy.H100, 18, 370.8 }, { "NVIDIA B200", 18, 721.8 } } do
      local l = link(row[1], { kind = "nvlink", nvlinks = row[2] })
      assert.is_true(math.abs(l.gb_s - row[3]) < 1e-6, row[1])
      assert.same({ "nvlink", "assumed", "p2p" }, { l.class, l.source, l.transport })
    end
  end)

  it("knows PCIe by generation and width", function()
    assert.equal(12, link("Tesla V100-PCIE-16GB", { kind = "pix" }).gb_s)
    assert.equal(24, link("NVIDIA L40S", { kind = "pxb" }).gb_s)
    assert.equal(48, link("NVIDIA H100 PCIe", { kind = "pix" }).gb_s)
    assert.equal(12, link("NVIDIA L40S", { kind = "pix" }, { pcie = { gen = 4, width = 8 } }).gb_s)
  end)

  it("goes through host memory beyond PXB, but for two GPUs on AMD", function()
    local l = link("NVIDIA L40S", { kind = "phb" }, { cpu = INTEL })
    assert.same({ "phb", "shm", 24 * 5 / 6 / 2 }, { l.class, l.transport, l.gb_s }) -- 6/5 dearer through an Intel CPU, two crossings
    l = link("NVIDIA L40S", { kind = "phb" }, { cpu = AMD })
    assert.same({ "phb", "p2p", 24 }, { l.class, l.transport, l.gb_s })
    l = link("NVIDIA L40S", { kind = "sys" }, { cpu = AMD })
    assert.equal(16, l.gb_s) -- the link between sockets
    assert.equal("shm", link("NVIDIA L40S", { kind = "phb" }, { cpu = AMD, n = 4 }).transport)
  end)

  it("is shm where peer access is refused, either way", function()
    for _, p2p in ipairs { { read = "gns", write = "gns" }, { read = "ok", write = "ns" } } do
      local l = link("NVIDIA GeForce RTX 5090", { kind = "phb", p2p = p2p })
      assert.same({ "shm", "shm" }, { l.class, l.transport })
    end
    -- case 88 of the corpus: four NVLinks, peer access refused
    assert.equal("shm", link("NVIDIA GeForce RTX 3090", { kind = "nvlink", nvlinks = 4, p2p = { read = "ns", write = "ns" } }).class)
    assert.equal("nvlink", link("NVIDIA GeForce RTX 3090", { kind = "nvlink", nvlinks = 4, p2p = { read = "ok", write = "ok" } }).class)
  end)

  it("prefers what was measured, then what was stated and is no more than the plan", function()
    local l = link(toy.H100, { kind = "nvlink", nvlinks = 18, gb_s = 396, us = 2.5, source = "measured" })
    assert.same({ 396, 2.5, "measured" }, { l.gb_s, l.us, l.source })
    l = link(toy.H100, { kind = "nvlink", nvlinks = 18, gb_s = 450, source = "stated" })
    assert.same({ "stated", true }, { l.source, math.abs(l.gb_s - 370.8) < 1e-6 })
    assert.equal(100, link(toy.H100, { kind = "nvlink", nvlinks = 18, gb_s = 100, source = "stated" }).gb_s)
  end)

  it("is the network between hosts", function()
    local l = link(toy.H100, toy.NV18, { hosts = 2, net = { kind = "net", gb_s = 50, us = 5 } })
    assert.same({ "net", "net", 40 }, { l.class, l.transport, l.gb_s }) -- 0.8 of the rate on paper
    assert.equal(12, link(toy.H100, toy.NV18, { hosts = 2 }).gb_s) -- NCCL's default
  end)

  it("takes a pair of which nothing is known for the worst one of its host", function()
    local t = toy.new { n = 2, name = "NVIDIA L40S", link = { kind = "pix" } }
    t.by_pair = {}
    assert.equal("sys", cost.link(t, "GPU0", "GPU1").class)
  end)

  it("gives no worse class more than a better one", function()
    for _, gpu in ipairs { "NVIDIA L40S", "NVIDIA H100 PCIe", "Tesla V100-PCIE-16GB", "NVIDIA GeForce RTX 4090" } do
      for _, cpu in ipairs { AMD, INTEL, {} } do
        local last = math.huge
        for _, kind in ipairs { "pix", "pxb", "phb", "node", "sys", "shm" } do
          local l = link(gpu, { kind = kind, pcie = kind == "shm" and "sys" or nil }, { cpu = cpu })
          assert.is_true(l.gb_s <= last, kind)
          last = l.gb_s
        end
      end
    end
  end)

  it("takes CPU ranks of one host through shared memory", function()
    local l = cost.link(toy.new { n = 2, kind = "cpu", link = { kind = "node" } }, "cpu0", "cpu1")
    assert.same({ "shm", true }, { l.class, l.cpu })
  end)
end)

describe("tpl.cost.group", function()
  it("is as good as its weakest pair", function()
    local t = toy.new { n = 4, name = "NVIDIA A100 80GB PCIe", link = { kind = "nvlink", nvlinks = 12 } }
    t:set("GPU1", "GPU2", { kind = "node" })
    t:set("GPU0", "GPU3", { kind = "sys" })
    t:set("GPU1", "GPU3", { kind = "sys" })
    t:set("GPU0", "GPU2", { kind = "sys" })
    assert.equal("nvlink", cost.group(t, { "GPU0", "GPU1" }).class)
    assert.equal("sys", cost.group(t, { "GPU0", "GPU1", "GPU2", "GPU3" }).class)
    assert.same({ 4, 1, "8.0", false }, { cost.group(t, t:ids()).n, cost.group(t, t:ids()).hosts, cost.group(t, t:ids()).sm, cost.group(t, t:ids()).nvswitch })
  end)

  it("finds the rings of a cube mesh", function()
    -- DGX-1 V100, case 28 of the corpus: NV2 0-3 0-4 1-2 1-5 2-3 4-7 5-6 6-7, NV1 0-1 0-2 1-3 2-6 3-7 4-5 4-6 5-7, the rest SYS
    local t = toy.new { n = 8, name = "Tesla V100-SXM2-32GB", link = { kind = "sys" } }
    for a, b in ("03 04 12 15 23 47 56 67"):gmatch("(%d)(%d)") do t:set("GPU" .. a, "GPU" .. b, { kind = "nvlink", nvlinks = 2 }) end
    for a, b in ("01 02 13 26 37 45 46 57"):gmatch("(%d)(%d)") do t:set("GPU" .. a, "GPU" .. b, { kind = "nvlink", nvlinks = 1 }) end
    local g = cost.group(t, t:ids())
    assert.same({ "nvlink", 40, false }, { g.class, g.gb_s, g.nvswitch }) -- 0-3-2-1-5-6-7-4-0 is all NV2
    assert.same({ "sys" }, { cost.group(t, { "GPU0", "GPU5" }).class })
    assert.equal(20, cost.group(t, { "GPU0", "GPU1", "GPU2", "GPU3" }).gb_s) -- all pairs linked, the weakest by one
  end)

  it("knows switches, meshes and hosts", function()
    local g = cost.group(toy.new { n = 8, name = toy.H100, link = toy.NV18 }, { "GPU0", "GPU1", "GPU2" })
    assert.same({ true, false, 1, "9.0" }, { g.nvswitch, g.mesh, g.hosts, g.sm })
    g = cost.group(toy.new { n = 4, name = "NVIDIA A100-SXM4-40GB", link = { kind = "nvlink", nvlinks = 4 } }, { "GPU0", "GPU1", "GPU2", "GPU3" })
    assert.same({ false, true, 80 }, { g.nvswitch, g.mesh, g.gb_s })
    g = cost.group(toy.new { n = 4, name = toy.H100, link = toy.NV18, hosts = 2, net = { kind = "net", gb_s = 50 } }, { "GPU0", "GPU1", "GPU2", "GPU3" })
    assert.same({ 2, "net", 40, "nvlink" }, { g.hosts, g.class, g.inter_gb_s, g.inner_class })
  end)
end)
