-- SPDX-License-Identifier: Apache-2.0
--- Place the activations of a stage: live ranges over the op list, values that take over another's place, and
--- offsets in one arena at the largest bucket, the same on all ranks. Also decides where the threads of a team
--- must meet: before an op that touches memory that another op since the last barrier wrote, or writes what one
--- read. Pure.
local M = {}

local ALIGN = 64

--- Bytes of a row on a rank: as tpl_row_bytes in kernels/ops.h.
function M.row_bytes(act, cols)
  if act == "f32" then return cols * 4 end
  local lines = math.ceil((act == "bf16" and 2 * cols or 2 * cols + cols / 32 * 8) / ALIGN)
  if act == "bf16" then lines = lines + (lines + 1) % 2 end -- odd
  return lines * ALIGN
end

local function bytes_on(v, caps, r)
  local rows = math.ceil((v.sym == "tok" and caps.tok or caps.out) / v.div)
  return math.ceil(rows * M.row_bytes(v.act, v.cols[r]) / ALIGN) * ALIGN
end

local function most_bytes(v, caps)
  local most = ALIGN
  for r = 1, #v.cols do most = math.max(most, bytes_on(v, caps, r)) end
  return most
end

-- Places: a value takes over the place of the operand it is computed in, when nothing reads that afterwards.
local function places(ops, caps)
  local list, of, last_use = {}, {}, {}
  for i, op in ipairs(ops) do for _, v in ipairs(op.ins) do last_use[v] = i end end
  for i, op in ipairs(ops) do
    for k, v in ipairs(op.outs) do
      local from = k == 1 and op.inplace and op.ins[op.inplace]
      local p = from and last_use[from] == i and of[from]
      if p and p.bytes >= most_bytes(v, caps) then
        p.last = math.max(p.last, last_use[v] or i)
      else
        p = { first = i, last = last_use[v] or i, bytes = most_bytes(v, caps), order = #list + 1 }
        list[#list + 1] = p
      end
      p.values = p.values or {}
      table.insert(p.values, v)
      of[v] = p
    end
  end
  return list, of
end

-- Greedy by size: each place goes to the lowest offset that is free during its life (as TFLite's and TVM's
-- planners do).
local function assign(list)
  local order, placed, arena = {}, {}, 0
  for i, p in ipairs(list) do order[i] = p end
  table.sort(order, function(a, b)
    if a.bytes ~= b.bytes then return a.bytes > b.bytes end
    return a.order < b.order
  end)
  for _, p in ipairs(order) do
    local at, busy = 0, {}
    for _, q in ipairs(placed) do
      if q.first <= p.last and p.first <= q.last then busy[#busy + 1] = q end
    end
    table.sort(busy, function(a, b) return a.offset < b.offset end)
    for _, q in ipairs(busy) do
      if at + p.bytes <= q.offset then break end
      at = math.max(at, q.offset + q.bytes)
    end
    p.offset = at
    placed[#placed + 1] = p
    arena = math.max(arena, at + p.bytes)
  end
  return arena
end

local meets_inside = { all_reduce = true, reduce_scatter = true, all_gather = true, all_to_all = true, gather = true }

local function overlaps(list, p)
  for _, q in ipairs(list) do
    if p.state or q.state then
      if p.state == q.state then return true end
    elseif p.offset < q.offset + q.bytes and q.offset < p.offset + p.bytes then
      return true
    end
  end
  return false
end

local function touches(op, of)
  local reads, writes = {}, {}
  for _, v in ipairs(op.ins) do reads[#reads + 1] = of[v] end
  for _, v in ipairs(op.outs) do writes[#writes + 1] = of[v] end
  if op.state then table.insert(op.kind == "attend" and reads or writes, { state = op.state }) end
  return reads, writes
end

local function any(list, others)
  for _, p in ipairs(list) do if overlaps(others, p) then return true end end
  return false
end

-- A collective has barriers of its own at both ends, so everything before it is settled.
local function barriers(ops, of)
  local reads, writes = {}, {}
  for _, op in ipairs(ops) do
    local r, w = touches(op, of)
    if meets_inside[op.kind] then
      reads, writes = {}, {}
    else
      op.barrier = op.kind == "send" or any(r, writes) or any(w, writes) or any(w, reads)
      if op.barrier then reads, writes = {}, {} end
      for _, p in ipairs(r) do reads[#reads + 1] = p end
      for _, p in ipairs(w) do writes[#writes + 1] = p end
    end
  end
end

---@class tpl.MemoryPlan
---@field arena integer            bytes, the same on all ranks
---@field offset table             value -> offset

--- Plan the arena of a stage and set op.barrier.
---@param ops tpl.LowOp[]
---@param caps {tok: integer, out: integer}
---@return tpl.MemoryPlan
function M.plan(ops, caps)
  local list, of = places(ops, caps)
  local arena = assign(list)
  barriers(ops, of)
  local offset = {}
  for v, p in pairs(of) do offset[v] = p.offset end
  return { arena = arena, offset = offset }
end

return M
