-- SPDX-License-Identifier: Apache-2.0
--- Work out which share of each kind of weight the ranks of a stage hold: heads in whole KV heads, FFN columns in whole
--- quantisation blocks, experts whole or cut, the vocabulary. Uneven shares and batch axes included. Pure.
local partition = require "tpl.plan.partition"

local M = {}

---@class tpl.cost.Part
---@field attn number     share of the query heads
---@field kv number       share of the KV heads; with more ranks than KV heads each holds one of them
---@field ffn number
---@field expert number
---@field vocab number
---@field seqs number     share of the sequences (batch axes)

local function fractions(units, n, shares)
  local out = partition.apportion(units, n, shares)
  for i = 1, n do out[i] = out[i] / units end
  return out
end

--- Read the degrees out of a mesh in text form: "dp=2:batch,tp=4".
---@param mesh string?
---@param n integer     devices of the stage
---@return {tp: integer, dp: integer, is_ep: boolean}
function M.degrees(mesh, n)
  local dp, is_ep = 1, false
  for name, size, kind in (type(mesh) == "string" and mesh or ""):gmatch("(%w+)=(%d+):?(%a*)") do
    if kind == "batch" or name == "dp" then dp = dp * tonumber(size) end
    if name == "ep" then is_ep = true end
  end
  if dp > n or n % dp ~= 0 then dp = 1 end
  return { tp = n / dp, dp = dp, is_ep = is_ep or dp > 1 }
end

--- Give the part of each rank of a stage.
---@param shape tpl.Shape
---@param n integer
---@param shares number[]?    in any unit; nil: even
---@param degrees {tp: integer, dp: integer, is_ep: boolean}
---@param cut_vocab boolean
---@return tpl.cost.Part[]
function M.of(shape, n, shares, degrees, cut_vocab)
  local tp, u, out = degrees.tp, shape.units, {}
  if degrees.dp > 1 then shares = nil end
  local by_heads = tp > u.kvh and u.heads > u.kvh
  local attn = fractions(by_heads and u.heads or u.kvh, tp, shares)
  local ffn = fractions(math.max(u.ffn, tp), tp, shares)
  local whole = degrees.is_ep and shape.n_expert >= n
  local expert = shape.is_moe and (whole and fractions(shape.n_expert, n, shares) or fractions(math.max(u.expert, tp), tp, shares))
  for i = 1, n do
    local k = (i - 1) % tp + 1
    out[i] = { attn = attn[k], kv = shape.kv_whole and attn[k] or by_heads and 1 / u.kvh or attn[k], ffn = ffn[k],
      expert = expert and (whole and expert[i] or expert[k]) or 0, vocab = cut_vocab and 1 / tp or 1, seqs = 1 / degrees.dp }
  end
  return out
end

return M
