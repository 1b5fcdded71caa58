-- SPDX-License-Identifier: Apache-2.0
--- Times of collectives. Expected: the worked figures of facts/topology.md section 5 (NCCL 2.30.7's tuning model) and hand
--- arithmetic over the constants there; shared memory: the probe in facts/perf.md section 0b.
local cost = require("tpl.cost")

local KIB, MIB = 1024, 2 ^ 20

-- 18 links of 20.6 GB/s; the search gives 12 channels of 30
local h100 = { n = 8, class = "nvlink", gb_s = 370.8, nvswitch = true, sm = "9.0" }
local pcie = { n = 2, class = "phb", gb_s = 24, sm = "8.9" }

local function near(expected, got, tolerance)
  assert.is_true(math.abs(got - expected) <= (tolerance or 0.1), ("%.3f, not %.3f"):format(got, expected))
end

local function with(g, changes)
  local out = {}
  for k, v in pairs(g) do out[k] = v end
  for k, v in pairs(changes) do out[k] = v end
  return out
end

describe("tpl.cost.collective", function()
  it("gives the worked figures on eight H100", function()
    near(15.2, cost.collective("all_reduce", h100, 16 * KIB))
    near(138, cost.collective("all_reduce", h100, 16 * MIB, { algo = "ring", proto = "simple" }), 0.5)
    near(25, cost.collective("all_reduce", h100, 64, { algo = "nvls" }))
  end)

  it("gives 7.8, 10.2 and 15.0 us for small messages on 2, 4 and 8", function()
    for n, us in pairs { [2] = 7.8, [4] = 10.2, [8] = 15.0 } do near(us, cost.collective("all_reduce", with(h100, { n = n }), 1)) end
  end)

  it("gives 8.6 us for a small message of two GPUs on PCIe", function()
    near(8.6, cost.collective("all_reduce", pcie, 1))
  end)

  it("is bound by half the bus in the low latency protocol", function()
    -- 256 KiB over two on 24 GB/s: 8.6 + 262144 / (12 * 2 / 2 * 1000) = 30.4 us; Simple: 8.4 + 2 * 5.7 + 262144 / 24000 = 30.7
    near(30.4, cost.collective("all_reduce", pcie, 256 * KIB, { proto = "ll" }))
    near(30.7, cost.collective("all_reduce", pcie, 256 * KIB, { algo = "ring", proto = "simple" }))
  end)

  it("takes one algorithm's time when it is the best of all", function()
    local best = math.huge
    for _, algo in ipairs { "ring", "tree", "nvls" } do best = math.min(best, cost.collective("all_reduce", h100, 16 * MIB, { algo = algo })) end
    assert.equal(best, cost.collective("all_reduce", h100, 16 * MIB))
    assert.is_true(best < 138)
  end)

  it("halves the steps of a reduce_scatter or an all_gather", function()
    for _, kind in ipairs { "reduce_scatter", "all_gather" } do
      near(6.6 + 7 * 0.6, cost.collective(kind, h100, 1), 0.01)
      -- ring Simple: 8.4 + 7 * 3.4 + bytes / (360 * 8 / 7)
      near(32.2 + 16 * MIB / (360e3 * 8 / 7), cost.collective(kind, h100, 16 * MIB, { proto = "simple" }), 0.01)
    end
  end)

  it("counts steps between hosts at the network's latency", function()
    -- 2 hosts of 8: 30 steps, 2 of them over the network; LL hop at least 1 us where a network is involved
    local g = with(h100, { n = 16, hosts = 2, inter_gb_s = 48 })
    near(6.6 + 28 * 1 + 2 * 2.7, cost.collective("all_reduce", g, 1, { algo = "ring", proto = "ll" }), 0.01)
    -- tree: 6.8 + 2 * (7 * 0.6 + 1 * 5) = 25.2
    near(25.2, cost.collective("all_reduce", g, 1, { algo = "tree", proto = "ll" }), 0.01)
  end)

  it("uses every link of a mesh", function()
    -- four GPUs, four links of 20 between each two: three rings
    local mesh = { n = 4, class = "nvlink", gb_s = 80, mesh = true, sm = "8.0" }
    local one = with(mesh, { mesh = false })
    assert.is_true(cost.collective("all_reduce", mesh, 16 * MIB) < cost.collective("all_reduce", one, 16 * MIB))
  end)

  it("costs nothing alone", function() assert.equal(0, cost.collective("all_reduce", { n = 1, class = "nvlink", gb_s = 1 }, MIB)) end)

  it("follows the probe in shared memory", function()
    -- facts/perf.md 0b, two ranks: 256 B 0.31 us, 4 KB 1.2, 16 KB 3.4, 64 KB 11.5
    local g = { n = 2, cpu = true, class = "shm", gb_s = 6, us = 0.3 }
    for bytes, us in pairs { [256] = 0.31, [4 * KIB] = 1.2, [16 * KIB] = 3.4, [64 * KIB] = 11.5 } do
      near(us, cost.collective("all_reduce", g, bytes), 0.25 * us)
    end
  end)

  it("never gets cheaper with more bytes or a slower link", function()
    local groups = { h100, with(h100, { n = 2 }), with(h100, { nvswitch = false }), pcie, with(pcie, { n = 4, class = "pix" }),
      with(h100, { n = 16, hosts = 2, inter_gb_s = 48 }), { n = 4, class = "nvlink", gb_s = 80, mesh = true, sm = "8.0" } }
    for _, g in ipairs(groups) do
      local last = 0
      for p = 6, 28 do
        local us = cost.collective("all_reduce", g, 2 ^ p, { algo = "ring" })
        assert.is_true(us >= last)
        last = us
        for _, slower in ipairs { 0.9, 0.5, 0.1 } do
          local change = g.inter_gb_s and { inter_gb_s = g.inter_gb_s * slower } or { gb_s = g.gb_s * slower }
          assert.is_true(cost.collective("all_reduce", with(g, change), 2 ^ p) >= cost.collective("all_reduce", g, 2 ^ p) - 1e-9,
            ("%d bytes at %g"):format(2 ^ p, slower))
        end
      end
    end
  end)
end)
