-- SPDX-License-Identifier: Apache-2.0
--- What a site requires of a placement is kept, or planning ends with exit 4 and names what is unmet. A fact that nobody knows is unmet.
local machines = require("spec.support.machines")
local S = require("spec.place.support")

local MODEL = "llama-3.1-8b"

local function pair(change) return machines.topo { gpus = "a100_pcie", n = 2, nodes = 2, link = "pairs", change = change } end

-- TP=2 on a pair, so that there is one group to hold against the requirement.
local function plan(required, topo, more)
  local fields = { mesh = "tp=2", require = required }
  for k, v in pairs(more or {}) do fields[k] = v end
  return S.plan(MODEL, topo, fields)
end

local function kept(required, topo, more)
  local p, e = plan(required, topo, more)
  assert.is_truthy(p, tostring(e))
  return p
end

local function unmet(required, topo, message, more)
  local p, e = plan(required, topo, more)
  assert.is_nil(p)
  assert.equal(4, e.exit)
  assert.equal("require", e.code)
  assert.matches(message, e.message)
  return e
end

describe("require.link", function()
  it("is met by the kind or a nearer one", function()
    kept({ link = "nvlink" }, pair())
    kept({ link = "sys" }, pair())
    kept({ link = "phb" }, S.pcie("l40s", 2))
  end)

  it("is unmet by a farther one", function()
    local e = unmet({ link = "nvlink" }, S.pcie("l40s", 2), "are linked by phb")
    assert.equal("require.link", e.where)
    unmet({ link = "pix" }, S.pcie("l40s", 2), "are linked by phb")
  end)

  it("is unmet where P2P is refused or the link is not known", function()
    unmet({ link = "nvlink" }, pair(function(_, links) links[1].p2p = { read = "ns", write = "ok" } end), "P2P between .* is refused")
    unmet({ link = "nvlink" }, pair(function(_, links) links[1] = nil end), "is not known")
  end)

  it("is asked of neighbours in a pipeline of single devices", function()
    local topo = machines.topo { gpus = "a100_pcie", n = 2, link = "pairs" }
    assert.is_truthy(S.plan(MODEL, topo, { pp = 2, require = { link = "nvlink" } }))
    local p, e = S.plan(MODEL, S.pcie("l40s", 2), { pp = 2, require = { link = "nvlink" } })
    assert.is_nil(p)
    assert.equal(4, e.exit)
  end)

  it("refuses a word that is no kind of link", function() unmet({ link = "fast" }, pair(), "'fast' is no kind of link") end)

  it("moves the choice to devices that keep it", function()
    -- The bridge is between the last two.
    local topo = machines.topo { gpus = "a100_pcie", n = 4, link = { { 2, 3, 12 } } }
    assert.equal("2+3", S.where(kept({ link = "nvlink" }, topo, { replicas = 1 })))
  end)
end)

describe("require.same_numa", function()
  it("is met in one node, unmet across, unmet where the node is not known", function()
    kept({ same_numa = true }, S.pcie("l40s", 2))
    unmet({ same_numa = true }, pair(), "is on NUMA node 0, .* on 1")
    unmet({ same_numa = true }, S.pcie("l40s", 2, { change = function(d) d[2].numa = nil end }), "NUMA node of .* is not known")
  end)

  it("false asks for nothing", function() kept({ same_numa = false }, pair()) end)
end)

describe("require.same_gpu", function()
  it("wants one name, memory and VBIOS", function()
    kept({ same_gpu = true }, S.pcie("l40s", 2))
    unmet({ same_gpu = true }, machines.topo { gpus = { "a100", "a100_40" } }, "has name")
    unmet({ same_gpu = true }, S.pcie("l40s", 2, { change = function(d) d[2].mem_bytes = d[2].mem_bytes - 2 ^ 30 end }), "has mem_bytes")
    unmet({ same_gpu = true }, S.pcie("l40s", 2, { change = function(d) d[2].vbios = "95.02.66.00.02" end }), "has vbios")
    unmet({ same_gpu = true }, S.pcie("l40s", 2, { change = function(d) d[1].vbios, d[2].vbios = nil, nil end }), "vbios of .* is not known")
  end)
end)

describe("require.kv_tokens and require.itl_ms", function()
  it("hold the plan's figures against the wish", function()
    local tokens = S.planned(MODEL, pair(), { mesh = "tp=2" }).kv.tokens
    kept({ kv_tokens = tokens }, pair())
    kept({ kv_tokens = 2 * tokens }, pair()) -- the cache grows to what is required, where there is room
    unmet({ kv_tokens = 1e9 }, pair(), "tokens, 1000000000 are required")
    local itl_ms = S.planned(MODEL, pair(), { mesh = "tp=2" }).report.cost.itl_us / 1e3
    kept({ itl_ms = itl_ms * 1.01 }, pair())
    unmet({ itl_ms = itl_ms * 0.5 }, pair(), "ms between tokens, at most")
  end)

  it("a time that is not known is unmet", function()
    local p, e = S.plan("gpt-oss-120b", S.switched("h100", 2), { require = { itl_ms = 1000 } })
    assert.is_nil(p)
    assert.equal(4, e.exit)
    assert.matches("time between tokens is not known", e.message)
  end)
end)

describe("require", function()
  it("refuses a name that it does not know, and says which one was meant", function()
    local e = unmet({ same_nume = true }, pair(), "no known requirement")
    assert.matches("same_numa", e.message)
    assert.equal("require.same_nume", e.where)
  end)

  it("names everything that is unmet", function()
    local e = unmet({ link = "nvlink", same_numa = true }, machines.topo { gpus = "l40s", n = 2, nodes = 2 }, "link: .*same_numa: ")
    assert.equal(2, #e.unmet)
  end)

  it("passes a candidate over that breaks it, and says so among the alternatives", function()
    local topo = machines.topo { gpus = "h100", n = 2, link = "switch" }
    local p = assert(S.plan(MODEL, topo, { require = { itl_ms = 8 } }))
    assert.equal("tp=2 pp=1", S.degrees(p))
    assert.matches("require.itl_ms", S.alternative(p, "tp=1 pp=1 x2").why)
  end)
end)
