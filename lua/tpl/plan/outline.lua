-- SPDX-License-Identifier: Apache-2.0
--- Plan the memory of a model that has no definition here: stages and ranks from its shape, no programs and no price.
local budget = require "tpl.plan.budget"
local cores = require "tpl.plan.cores"
local cost = require "tpl.cost"
local err = require "tpl.err"
local mesh_of = require "tpl.plan.mesh"
local place = require "tpl.place"
local candidates = require "tpl.place.candidates"

local M = {}

-- Shares over the axis tp, as a list.
local function tp_shares(shares) return shares and (shares[1] and shares or shares.tp) end

local function stage(s, i, first_rank)
  return { i = i - 1, first = s.first, last = s.last, devices = s.devices, layout = s.layout, shares = tp_shares(s.shares),
    mesh = s.mesh or mesh_of.new { { "tp", #s.devices } }, first_rank = first_rank, hash = nil }
end

--- Bytes of each layer's weights (1-based), and those that come with the head.
---@param shape tpl.Shape
---@return number[] cost
---@return number head
function M.layer_costs(shape)
  local out = {}
  for i, layer in ipairs(shape.layers) do out[i] = layer.weight_bytes end
  return out, shape.head_bytes
end

-- Ranges of KV heads, the one dim whose cut the estimate says.
local function shards_of(plan, s, r)
  local n = #s.devices
  if n == 1 or plan.shape.kv_whole or s.mesh.kind[s.mesh.axes[1]] == "batch" then return {} end
  local shares = s.shares or candidates.even_shares(plan.shape, n)
  local at = 0
  for i = 1, r - 1 do at = at + shares[i] end
  return { kvh = { { at, shares[r] } } }
end

local function ranks_of(plan, estimate, replica, list, index)
  local at = 0
  for k, s in ipairs(plan.stages) do
    for r, uid in ipairs(replica.stages[k].devices) do
      at = at + 1
      local e = estimate.ranks[at]
      list[#list + 1] = { rank = index * plan.n_ranks + at - 1, local_rank = r - 1, replica = index, stage = s, device = plan.topo:dev(uid),
        weights = math.ceil(e.weights), arena = math.ceil(e.arena), comm = math.ceil(e.comm), io = 0, other = math.ceil(e.other),
        kv_per_token = e.kv_full_per_token, window_bytes = e.kv_window_bytes,
        shards = shards_of(plan, s, r) }
    end
  end
end

-- A replica in the form of cost.estimate: layers and shares of the stages, which all replicas have in common.
local function as_estimated(plan, replica)
  local stages = {}
  for i, s in ipairs(plan.stages) do
    stages[i] = { devices = replica.stages[i].devices, layers = { s.first, s.last }, shares = s.shares, mesh = tostring(s.mesh) }
  end
  return { stages = stages }
end

--- Fill in the stages and ranks of a plan that was placed.
---@param plan table
---@param specs tpl.StageSpec[]
function M.fill(plan, specs)
  local first_rank = 0
  plan.stages = {}
  for i, s in ipairs(specs) do
    plan.stages[i] = stage(s, i, first_rank)
    first_rank = first_rank + #s.devices
  end
  plan.n_ranks, plan.ranks = first_rank, {}
  local mesh = plan.stages[1].mesh
  if plan.shape.is_moe and mesh.kind[mesh.axes[1]] == "batch" then plan.ep = mesh.n end -- experts are dealt out over all ranks of a stage
  local want = candidates.want(plan.topo, plan.shape, place.wish(plan.deploy))
  for i, replica in ipairs(plan.placed.replicas) do
    local estimate, e = cost.estimate(plan.topo, plan.shape, as_estimated(plan, replica), want)
    if not estimate then err.throw(e) end
    ranks_of(plan, estimate, replica, plan.ranks, i - 1)
  end
  plan.threads, plan.is_pinned = cores.assign(plan.ranks, plan.deploy.threads)
  plan.pools = budget.pools(plan.ranks, plan.deploy.devices.usable)
  for _, pool in ipairs(plan.pools) do -- layers with a window keep that many positions of each request, however long it is
    for _, b in ipairs(pool.ranks) do pool.fixed = pool.fixed + b.window_bytes end
  end
  plan.wish = { tokens = plan.deploy.kv.tokens, page = plan.deploy.kv.page, context = plan.context, concurrency = plan.deploy.want.concurrency,
    least = plan.deploy.require.kv_tokens }
  plan.kv.tokens, plan.kv.pages = budget.kv(plan.wish, plan.pools)
  plan.limiting = budget.limiting(plan.ranks, plan.pools, plan.kv.page)
  budget.strand(plan.pools, plan.kv.page)
  for _, b in ipairs(plan.ranks) do
    b.kv = math.ceil(b.kv_per_token * plan.kv.pages * plan.kv.page + b.window_bytes)
    b.total = b.weights + b.arena + b.comm + b.kv + b.other
  end
end

return M
