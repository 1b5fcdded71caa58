-- SPDX-License-Identifier: Apache-2.0
--- Say what of a placement another engine cannot do, in sentences for people: nothing is dropped silently.
-- The engines' own rules, as of the versions that lua/tpl/emit/ENGINE.lua names: heads are cut evenly and must divide (vLLM:
-- "Total number of attention heads (X) must be divisible by tensor parallel size (Y)"; SGLang: assert; TensorRT-LLM: evenly
-- sharded), KV heads divide or are copied, and every stage has the same size.
local placement = require("tpl.emit.placement")

local M = {}

--- List the TP sizes that a model's heads allow.
---@param n_head integer?   attention heads; nil: KV heads decide
---@param n_kv integer?
---@return integer[] even    sizes that divide both
---@return integer[] copied  larger sizes at which each KV head is held by several ranks
function M.tp_sizes(n_head, n_kv)
  local even, copied = {}, {}
  local heads, kv = n_head or n_kv, n_kv or n_head
  for s = 1, heads or 0 do
    if heads % s == 0 and kv % s == 0 then
      even[#even + 1] = s
    elseif heads % s == 0 and s > kv and s % kv == 0 then
      copied[#copied + 1] = s
    end
  end
  return even, copied
end

local function sizes_text(p)
  local even, copied = M.tp_sizes(p.n_head, p.n_kv)
  if #even == 0 then return nil end
  local text = "possible sizes: " .. table.concat(even, ", ")
  if #copied > 0 then text = text .. " (and " .. table.concat(copied, ", ") .. " with KV heads copied)" end
  return text
end

local function is_allowed(p, tp)
  local even, copied = M.tp_sizes(p.n_head, p.n_kv)
  if #even == 0 then return true end -- heads unknown
  for _, sizes in ipairs { even, copied } do
    for _, s in ipairs(sizes) do if s == tp then return true end end
  end
  return false
end

local function add(out, format, ...)
  local text = format:format(...)
  for _, seen in ipairs(out) do if seen == text then return end end
  out[#out + 1] = text
end

local function with_sizes(text, p)
  local sizes = sizes_text(p)
  return sizes and text .. "; " .. sizes or text
end

local function check_heads(out, p, stage, engine)
  if not is_allowed(p, stage.tp) then
    local heads = p.n_head and ("%d attention and %s KV heads"):format(p.n_head, tostring(p.n_kv or p.n_head)) or p.n_kv .. " KV heads"
    add(out, "%s", with_sizes(("tp=%d: %s cuts %s evenly, which %d ranks do not divide"):format(stage.tp, engine, heads, stage.tp), p))
  elseif placement.is_uneven(stage.shares) then
    add(out, "%s", with_sizes(("uneven TP: the plan gives the ranks of a stage %s KV heads, %s cuts evenly"):format(
      table.concat(stage.shares, "/"), engine), p))
  end
end

local function check_stages(out, replica, engine)
  local first = replica.stages[1]
  for _, stage in ipairs(replica.stages) do
    if stage.tp ~= first.tp or stage.dp ~= first.dp then
      local sizes = {}
      for i, s in ipairs(replica.stages) do sizes[i] = s.dp > 1 and s.tp .. "x" .. s.dp or s.tp end
      add(out, "another TP per stage (%s): %s has one TP size for all stages", table.concat(sizes, ", "), engine)
      return
    end
  end
end

local function check_kinds(out, replica, engine)
  local mig, cpu = 0, 0
  for _, d in ipairs(replica.devices) do
    if d.kind == "mig" then mig = mig + 1 elseif d.kind == "cpu" then cpu = cpu + 1 end
  end
  if cpu > 0 then
    add(out, "CPU ranks: the plan's devices are NUMA nodes and %s is started on GPUs here; plan with --topo of a GPU machine", engine)
  end
  if mig > 0 and #replica.devices > 1 then
    add(out, "a group with MIG slices: slices have no peer access and NCCL takes no two of one GPU, so %s can run one rank per slice", engine)
  end
end

-- An engine numbers ranks host by host and wants as many on each.
local function check_hosts(out, replica, engine, devices)
  if #replica.hosts < 2 then return end
  local count, last, runs = {}, nil, 0
  for _, d in ipairs(devices) do
    count[d.host] = (count[d.host] or 0) + 1
    if d.host ~= last then runs = runs + 1 end
    last = d.host
  end
  local per = {}
  for i, host in ipairs(replica.hosts) do per[i] = count[host] end
  for _, n in ipairs(per) do
    if n ~= per[1] then
      add(out, "unequal numbers of devices on the hosts (%s): %s wants as many on each", table.concat(per, ", "), engine)
      return
    end
  end
  if runs > #replica.hosts then add(out, "ranks that go back and forth between hosts: %s numbers ranks host by host", engine) end
end

local function differs(stage, field)
  local first = stage.devices[1] and placement.known(stage.devices[1][field])
  for _, d in ipairs(stage.devices) do
    local v = placement.known(d[field])
    if v and first and v ~= first then return tostring(first), tostring(v) end
  end
end

-- `same` of an engine: "name" = refuses different GPUs in a group; a number = refuses less memory than this share of the largest.
local function check_same(out, stage, engine, same)
  if same == "name" then
    local a, b = differs(stage, "name")
    if a then add(out, "different GPUs in a TP group (%s, %s): %s runs a group on one model only", a, b, engine) end
  elseif type(same) == "number" and #stage.devices > 1 then
    local low, high
    for _, d in ipairs(stage.devices) do
      local bytes = placement.known(d.free_bytes) or placement.known(d.mem_bytes)
      if not bytes then return end
      low, high = math.min(low or bytes, bytes), math.max(high or bytes, bytes)
    end
    if low < same * high then
      add(out, "unequal memory in a TP group (%.1f and %.1f GiB): %s refuses less than %g of the largest", low / 2 ^ 30, high / 2 ^ 30, engine, same)
    end
  end
end

--- List what an engine cannot do; empty when it can do all of it.
---@param p tpl.emit.Placement
---@param engine {title: string, same?: "name"|number, dp_first?: boolean}
---@return string[]
function M.check(p, engine)
  local out = {}
  for _, replica in ipairs(p.replicas) do
    check_kinds(out, replica, engine.title)
    check_stages(out, replica, engine.title)
    check_hosts(out, replica, engine.title, placement.order(replica, engine.dp_first))
    for _, stage in ipairs(replica.stages) do
      check_heads(out, p, stage, engine.title)
      check_same(out, stage, engine.title, engine.same)
    end
  end
  return out
end

return M
