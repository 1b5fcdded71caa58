-- SPDX-License-Identifier: Apache-2.0
--- Price operations on one device: the larger of what their bytes and what their operations take, plus the launch. Pure.
local M = {}

local max = math.max

-- The unit that multiplies weights of a type.
local rate_of = { mxfp4 = "bf16", nvfp4 = "fp4", awq = "bf16", gptq = "bf16", int4 = "bf16", f16 = "f16" }

--- Give the FLOP/s of a device for weights of a type; a type it lacks runs in bf16, else in float32.
---@param d tpl.cost.Device
---@param dtype string
---@param act? string   "f32": products in float32 whatever the weights are
function M.peak(d, dtype, act)
  if act == "f32" then return d.flops.f32 end
  if d.kind == "cpu" then return d.flops[act == "bf16" and "bf16" or d.auto] end
  return d.flops[rate_of[dtype] or dtype] or d.flops[dtype] or d.flops.bf16 or d.flops.f32
end

--- Give the share of the bandwidth that reading weights of a type reaches.
function M.share(d, dtype) return d.efficiency.mem[dtype] or d.efficiency.mem.bf16 end

--- Give the time of one op without its launch, and the part that is bytes and the part that is operations.
---@param d tpl.cost.Device
---@param bytes number
---@param flops number
---@param dtype string   of the weights
---@param act? string
function M.time(d, bytes, flops, dtype, act)
  local mem = bytes / (1000 * d.mem_gb_s * M.share(d, dtype))
  local math_us = flops / (M.peak(d, dtype, act) * d.efficiency.flops) * 1e6
  return max(mem, math_us), mem, math_us
end

--- Give the time of a list of ops.
---@param list {kind: string?, bytes: number, flops: number?, dtype: string?}[]
---@param d tpl.cost.Device
---@return number us
function M.list(list, d)
  local us = 0
  for _, op in ipairs(list) do us = us + M.time(d, op.bytes, op.flops or 0, op.dtype or "bf16") + d.launch_us end
  return us
end

return M
