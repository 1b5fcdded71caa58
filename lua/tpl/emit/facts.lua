-- SPDX-License-Identifier: Apache-2.0
--- Gather what a start script says besides devices: model, limits, address, and shares of memory, from the report and the deployment.
local placement = require("tpl.emit.placement")
local util = require("tpl.util")

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
---@field file string?       the deploy.lua it came from

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
    plan_hash = known(report.plan_hash), file = deploy.origin and deploy.origin.file }
end

-- -- The deployment again ------------------------------------------------------------------------------------------------

local function word(key, value)
  if type(value) == "table" then value = table.concat(value, ",") end
  return key .. "=" .. (type(value) == "number" and ("%.14g"):format(value) or tostring(value))
end

--- List the `key=value` words with which `tpl run` plans the same again: those that a FILE was given, or the plan's own sizes for a MODEL.
---@param f tpl.emit.Facts
---@param p tpl.emit.Placement
---@param deploy table?
---@return string[]
function M.words(f, p, deploy)
  local out, origin = {}, deploy and deploy.origin
  if f.file then
    for key, value in util.pairs(origin.args or {}) do out[#out + 1] = word(key, value) end
    return out
  end
  local stages = p.replicas[1].stages
  if stages[1].dp == 1 then out[#out + 1] = word("tp", stages[1].tp) end
  out[#out + 1] = word("pp", #stages)
  if #stages == 1 and placement.is_uneven(stages[1].shares) then out[#out + 1] = word("shares", stages[1].shares) end
  if f.context then out[#out + 1] = word("want.context", f.context) end
  if f.concurrency then out[#out + 1] = word("want.concurrency", f.concurrency) end
  return out
end

--- Write the deploy.lua of a MODEL: what its words say.
---@return string
function M.deploy_text(f, p)
  local stages = p.replicas[1].stages
  local lines = { ("  model = %q,"):format(f.model) }
  if stages[1].dp == 1 then lines[#lines + 1] = ("  mesh = \"tp=%d\","):format(stages[1].tp) end
  lines[#lines + 1] = ("  pp = %d,"):format(#stages)
  if #stages == 1 and placement.is_uneven(stages[1].shares) then
    lines[#lines + 1] = ("  shares = { tp = { %s } },"):format(table.concat(stages[1].shares, ", "))
  end
  if f.context and f.concurrency then lines[#lines + 1] = ("  want = { context = %d, concurrency = %d },"):format(f.context, f.concurrency) end
  lines[#lines + 1] = ("  serve = { host = \"0.0.0.0\", port = %d },"):format(f.port)
  return "return tpl.deploy {\n" .. table.concat(lines, "\n") .. "\n}\n"
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
