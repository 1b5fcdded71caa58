-- SPDX-License-Identifier: Apache-2.0
--- List what each op may meet on one mesh axis, and what comes out (layout.md 2.4 and 2.5). What is not here is refused.
--- A line reads: placements of the operands -> placement of the result, then notes.
---   R, S(class), P (partial sum), L (attention partial with its log-sum-exp). S(d2) is another dim of class d than S(d).
---   cut N: operand N, which is R here, is cut for free like the other one.
---   if WORD: holds only on axes where WORD does: batch (the axis cuts between requests), stats (layout.norm_stats),
---   pos (the KV cache is cut by position on this axis).
--- Classes: c contracted, o output, v looked up, e embedding, n normalised, b any other; else the dim's own name.
local M = {}

local text = {}

text.linear = [[ x, weight
  R     R     -> R
  R     S(o)  -> S(o)
  S(b)  R     -> S(b)
  S(c)  S(c)  -> P
  R     S(c)  -> P       cut 1
  P     R     -> P
]]
text.bias = [[ y, bias: on P it is added on index 0 of the axis only
  R     R     -> R
  S(o)  S(o)  -> S(o)
  S(o)  R     -> S(o)    cut 2
  S(b)  R     -> S(b)
  P     R     -> P
]]
text.embed = [[ ids, table: on S(v) a rank gives zeros for ids it does not hold
  R       R     -> R
  R       S(v)  -> P
  R       S(e)  -> S(e)
  S(tok)  R     -> S(tok)
]]
text.add = [[ left, right
  R     R     -> R
  S(d)  S(d)  -> S(d)
  P     P     -> P
  R     S(d)  -> S(d)    cut 1
  S(d)  R     -> S(d)    cut 2
]]
text.silu_mul = [[ left, right
  R     R     -> R
  S(d)  S(d)  -> S(d)
  R     S(d)  -> S(d)    cut 1
  S(d)  R     -> S(d)    cut 2
]]
text.act = [[ x: any function of one operand that is not linear
  R     -> R
  S(d)  -> S(d)
]]
text.norm = [[ x, weight: with stats the sums over a token are reduced over the axis
  R     R     -> R
  S(b)  R     -> S(b)
  S(n)  S(n)  -> S(n)    if stats
  S(n)  R     -> S(n)    cut 2  if stats
]]
text.rope = [[ x
  R       -> R
  S(tok)  -> S(tok)
  S(kvh)  -> S(kvh)
  S(grp)  -> S(grp)
]]
text.attend = [[ q, k, v
  R       R       R       -> R
  S(kvh)  S(kvh)  S(kvh)  -> S(kvh)
  S(grp)  R       R       -> S(grp)
  S(tok)  R       R       -> S(tok)
  S(tok)  S(tok)  S(tok)  -> S(tok)   if batch
  R       R       R       -> L        if pos
]]
text.rows = [[ x: a row that a rank does not own is zero there
  R        -> R
  S(tok)   -> S(out)     if batch
  S(tok)   -> P
  S(embd)  -> S(embd)
  P        -> P
]]
text.sample = [[ logits
  R         -> R
  S(vocab)  -> R         gather
  S(out)    -> S(out)
]]
-- A mark: what x is, what the layout wants -> the way there.
text.mark = [[ has, wants
  R     R      -> none
  S(d)  S(d)   -> none
  R     S(d)   -> slice
  S(d)  R      -> all_gather
  S(d)  S(d2)  -> all_to_all
  P     R      -> all_reduce
  P     S(d)   -> reduce_scatter
]]
-- The same where x is L, over the dims' own names: merged or cut by heads, nothing else.
text.mark_lse = [[ has, wants
  L  R       -> all_reduce
  L  S(kvh)  -> reduce_scatter
  L  S(grp)  -> reduce_scatter
]]

-- The conditions of an op's axis are tried in this order, the unconditional rows last.
local function parse(body)
  local rows = {}
  local first, rest = body:match("^%s*(.-)\n(.*)$")
  local operands = {}
  for name in first:gsub(":.*", ""):gmatch("[%w_]+") do operands[#operands + 1] = name end
  for line in rest:gmatch("[^\n]+") do
    local left, right = line:match("^%s*(.-)%s*%->%s*(.-)%s*$")
    if left then
      local ins = {}
      for w in left:gmatch("%S+") do ins[#ins + 1] = w end
      local row = { out = right:match("^(%S+)"), cut = tonumber(right:match("cut (%d)")), when = right:match("if (%w+)"),
        gather = right:find(" gather", 1, true) ~= nil, key = table.concat(ins, ",") }
      rows[row.key .. (row.when and " " .. row.when or "")] = row
    end
  end
  return { operands = operands, rows = rows }
end

for op, body in pairs(text) do M[op] = parse(body) end

--- The class letter of a dim in an op; nil stands for the dim's own name.
local class = {
  linear = function(op, d) return op.con_set[d] and "c" or op.out_set[d] and "o" or "b" end,
  bias = function(op, d) return op.out_set[d] and "o" or "b" end,
  embed = function(op, d) return d == op.attrs.vocab and "v" or d == "embd" and "e" or d end,
  norm = function(op, d) return op.over_set[d] and "n" or "b" end,
  add = function() return "d" end,
}
class.silu_mul, class.act, class.mark = class.add, class.add, class.add
local function itself(_, d) return d end
M.class = setmetatable({}, { __index = function(_, op) return class[op] or itself end })

--- Find the row for the placements of the operands on one axis.
---@param op string
---@param words string[]   "R", "S(c)", ..
---@param conds string[]   conditions that hold, tried in order; "" for the plain rows
---@return table? row
---@return string key
function M.find(op, words, conds)
  local key = table.concat(words, ",")
  for _, c in ipairs(conds) do
    local row = M[op].rows[c == "" and key or key .. " " .. c]
    if row then return row, key end
  end
  return nil, key
end

return M
