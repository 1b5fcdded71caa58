-- SPDX-License-Identifier: Apache-2.0
--- Gather what a start script says besides devices: model, limits, address, and shares of memory, from the report and the deployment.
local placement = require("tpl.emit.placement")

local M = {}

local known = placement.known

---@class tpl.emit.Facts
---@field model string        path or name, as the deployment has it
---@field name string         last part of it, in letters that host names and job names allow
---@field context integer?    tokens of the longest request
---@field concurrency integer? requests at once, per replica
---@field host string
---@field port integer        of replica 0; replica i listens on port + i
---@field plan_hash string?
---@field is_moe boolean

--- Give a name that Kubernetes and Slurm take: lower case letters, digits and dashes, at most 40.
function M.dns_name(text)
  local name = (text:gsub("/+$", ""):match("[^/]*$") or ""):gsub("%.gguf$", ""):lower()
  name = name:gsub("[^%l%d]+", "-"):sub(1, 40):gsub("^%-+", ""):gsub("%-+$", "")
  return name == "" and "model" or name
end

--- Gather the facts.
---@param report table   result of `tpl plan`
---@param deploy table?  the deployment; nil: defaults
---@return tpl.emit.Facts
function M.gather(report, deploy)
  local model, kv = known(report.model) or {}, known(report.kv) or {}
  deploy = deploy or {}
  local serve, want = deploy.serve or {}, deploy.want or {}
  local path = known(model.path) or known(deploy.model) or known(model.name) or known(model.arch) or "MODEL"
  local fits = known(kv.max_concurrency) and math.max(1, math.floor(kv.max_concurrency))
  return { model = path, name = M.dns_name(path), context = known(kv.max_len) or known(want.context),
    concurrency = known(want.concurrency) or fits, host = serve.host or "127.0.0.1", port = serve.port or 8000,
    plan_hash = known(report.plan_hash), is_moe = ((known(report.degrees) or {}).ep or 1) > 1, file = deploy.origin and deploy.origin.file }
end

-- -- Memory ----------------------------------------------------------------------------------------------------------

local function floor2(x) return math.floor(x * 100 + 1e-6) / 100 end

-- The least over a replica's ranks of f(bytes, device), kept in 0.05 .. `most`; nil where a rank has no bytes.
local function least(replica, most, f)
  local value
  for i, rank in ipairs(replica.ranks) do
    local bytes, d = known(rank.bytes), replica.devices[i]
    local x = bytes and known(bytes.capacity) and known(d.mem_bytes) and f(bytes, d)
    if not x then return nil end
    value = math.min(value or x, x)
  end
  return value and math.max(0.05, math.min(most, floor2(value)))
end

local function fixed(bytes) return (known(bytes.arena) or 0) + (known(bytes.comm) or 0) + (known(bytes.other) or 0) end

--- Give the share of a card's whole memory that the plan fills: what vLLM calls gpu_memory_utilization. The card with least decides.
function M.memory_share(replica)
  return least(replica, 0.99, function(bytes, d) return bytes.capacity / d.mem_bytes end) or 0.9
end

--- Give the share of memory for weights and KV cache, without activations and buffers: SGLang's mem_fraction_static. nil: unknown.
function M.static_share(replica)
  return least(replica, 0.95, function(bytes, d) return (bytes.capacity - fixed(bytes)) / d.mem_bytes end)
end

--- Give the share of memory that is free after weights and buffers which the KV cache may take (TensorRT-LLM). nil: unknown.
function M.kv_share(replica)
  return least(replica, 0.95, function(bytes, d)
    local taken = fixed(bytes) + (known(bytes.weights) or 0)
    local free = (known(d.free_bytes) or d.mem_bytes) - taken
    return free > 0 and (bytes.capacity - taken) / free or nil
  end)
end

return M
