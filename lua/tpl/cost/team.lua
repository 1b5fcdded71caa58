-- SPDX-License-Identifier: Apache-2.0
--- Share a CPU among the ranks that run on it: cores by their threads, memory bandwidth by how many threads read at a time and by how much
--- all ranks read over and over, since that is what stays in the last cache or does not. A GPU has its own of both and is left alone. Pure.
local cpu = require "tpl.cost.cpu"
local cpuset = require "tpl.topo.cpuset"
local memory = require "tpl.cost.memory"

local M = {}

local max, min, floor = math.max, math.min, math.floor

-- What is known of a host: its NUMA nodes that have cores, and the cores that its devices name.
local function host_of(t, id)
  local nodes, n, cores = {}, 0, 0
  for _, dev in ipairs(t and t.devices or {}) do
    if dev.kind == "cpu" and (dev.host or 0) == id then
      local key = dev.numa or 0
      if not nodes[key] then nodes[key], n = true, n + 1 end
      cores = cores + #(cpuset.parse(dev.cpus or "") or {})
    end
  end
  return { nodes = max(n, 1), named = cores > 0 and cores or nil, ranks = 0 }
end

local function each_rank(stages, visit)
  for _, stage in ipairs(stages) do
    for _, r in ipairs(stage.ranks) do
      if r.whole or r.device.kind == "cpu" then visit(r, stage) end
    end
  end
end

--- Note for each rank on a CPU how many threads it has and on which cores.
---@param stages table[]
---@param threads integer?   of a rank; nil: the cores are dealt out evenly
---@param t table?           topology
function M.deal(stages, threads, t)
  local hosts = {}
  each_rank(stages, function(r)
    local id = r.dev.host or 0
    hosts[id] = hosts[id] or host_of(t, id)
    hosts[id].ranks = hosts[id].ranks + 1
  end)
  each_rank(stages, function(r)
    local h = hosts[r.dev.host or 0]
    r.whole = r.device
    r.cores = r.whole.cores or h.named or h.ranks -- of the host
    r.threads = threads or max(1, floor(r.cores / h.ranks))
    r.nodes, r.node = min(h.nodes, r.cores), ("%s/%s"):format(tostring(r.dev.host), tostring(r.dev.numa or 0))
  end)
end

local function copy(d)
  local out = {}
  for k, v in pairs(d) do out[k] = v end
  out.flops = {}
  return out
end

-- What the ranks of a node read in a step, each its weights and its cache.
local function footprint(r, stage, work, opts)
  local shape = stage.shape
  local bytes = memory.weights(shape, stage.sums, r.part, stage.is_first, stage.is_last)
  if stage.is_first and not shape.tied then bytes = bytes - shape.embed_bytes * (opts.cut_vocab and r.part.vocab or 1) end
  local kv = memory.kv(shape, stage.sums, r.part, opts.kv_element)
  return bytes + kv.per_token * work.kv_pos * work.seqs * r.part.seqs
end

-- The machine as one rank sees it: its threads' part of the arithmetic and of what all busy threads of its node read together.
local function seen_by(r, active, bytes)
  local d = copy(r.whole)
  local cores = r.cores / r.nodes
  local running = r.threads * min(1, cores / active) -- threads share cores where there are more of them
  for k, v in pairs(r.whole.flops) do d.flops[k] = v * running / r.cores end
  local busy = min(max(active, r.threads), cores)
  d.mem_gb_s = cpu.bandwidth(r.whole, busy * r.nodes, bytes * r.nodes) / r.nodes * min(1, running / busy)
  d.threads = r.threads
  return d
end

--- Set the devices for work in which `in_flight` stages are busy at a time.
---@param stages table[]
---@param in_flight integer
---@param work tpl.cost.Work
---@param opts table
function M.set(stages, in_flight, work, opts)
  local threads, bytes, made = {}, {}, {}
  each_rank(stages, function(r, stage)
    threads[r.node] = (threads[r.node] or 0) + r.threads
    bytes[r.node] = (bytes[r.node] or 0) + footprint(r, stage, work, opts)
  end)
  local share = min(1, in_flight / #stages)
  each_rank(stages, function(r)
    local active = max(threads[r.node] * share, r.threads)
    local key = ("%s/%d"):format(r.node, r.threads)
    made[key] = made[key] or seen_by(r, active, bytes[r.node])
    r.device = made[key]
  end)
end

return M
