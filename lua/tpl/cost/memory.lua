-- SPDX-License-Identifier: Apache-2.0
--- Price a rank in bytes: weights, arena of a step, buffers, what the driver and NCCL keep, and how many tokens of KV
--- cache the rest holds. Layers with a window keep no more than the window of each sequence. Pure.
local M = {}

local MIB = 2 ^ 20

-- A CUDA context with the kernels of an engine loaded: 0.5 to 0.6 GB on recent cards (nvidia-smi of an idle process).
local CONTEXT = 600 * MIB
-- NCCL keeps for each channel and peer a Simple buffer (NCCL_BUFFSIZE, 4 MiB), an LL buffer (512 lines of 16 B in 8 lines
-- a thread and 8 steps: 0.5 MiB) and an LL128 buffer (640 x 120 x 8 x 8 B: 4.7 MiB); a ring has one peer to receive from.
local NCCL_CHANNEL = 9.2 * MIB
local CHANNELS = { nvlink = 24, net = 8, other = 4 }
local SEND_CHANNELS = 2
local CPU_OTHER = 8 * MIB -- as plan/budget.lua
local PAGE = 16

--- Give what a process on a device needs besides the model: context and NCCL buffers of its communicators.
---@param kind string          of the device
---@param tp_class string?     link class of its TP group; nil: alone
---@param has_pipeline boolean
function M.other(kind, tp_class, has_pipeline)
  if kind == "cpu" then return CPU_OTHER end
  local bytes = CONTEXT
  if tp_class then bytes = bytes + (CHANNELS[tp_class] or CHANNELS.other) * NCCL_CHANNEL end
  if has_pipeline then bytes = bytes + SEND_CHANNELS * NCCL_CHANNEL end
  return bytes
end

--- Give what may be used of a device: `usable` of its memory, and no more than is free. nil: unknown.
---@param dev table
---@param d tpl.cost.Device?
---@param usable number
function M.capacity(dev, d, usable)
  local total = dev.mem_bytes or d and d.mem_bytes
  local used = dev.busy and dev.busy.used_bytes
  local free = dev.free_bytes or total and used and total - used
  if not total then return free end
  return free and math.min(usable * total, free) or usable * total
end

--- Add up what a stage's layers weigh and keep, once per stage.
---@param shape tpl.Shape
---@param first integer   0-based
---@param last integer
---@return table sums
function M.sums(shape, first, last)
  local s = { attn = 0, kv = 0, mlp = 0, expert = 0, norm = 0, kv_full = 0, windows = {}, classes = {}, n_layer = last - first + 1 }
  local count, by_window = {}, {}
  for i = first + 1, last + 1 do
    local l = shape.layers[i]
    if not count[l] then s.classes[#s.classes + 1] = l end
    count[l] = (count[l] or 0) + 1
  end
  for _, l in ipairs(s.classes) do
    local n = count[l]
    s.attn, s.kv = s.attn + n * (l.attn_bytes - l.kv_proj_bytes), s.kv + n * l.kv_proj_bytes
    s.mlp, s.expert, s.norm = s.mlp + n * l.mlp_bytes, s.expert + n * l.expert_bytes, s.norm + n * l.norm_bytes
    if l.window then by_window[l.window] = (by_window[l.window] or 0) + n * l.kv_bytes
    else s.kv_full = s.kv_full + n * l.kv_bytes end
  end
  for w, bytes in pairs(by_window) do s.windows[#s.windows + 1] = { positions = w, bytes = bytes } end
  table.sort(s.windows, function(a, b) return a.positions < b.positions end)
  s.count = count
  return s
end

--- Give the bytes of weights that a rank of a stage holds.
---@param shape tpl.Shape
---@param sums table
---@param part tpl.cost.Part
---@param is_first boolean   holds the embedding
---@param is_last boolean    holds the head
function M.weights(shape, sums, part, is_first, is_last)
  local bytes = sums.attn * part.attn + sums.kv * part.kv + sums.mlp * part.ffn + sums.expert * part.expert + sums.norm
  if is_first then bytes = bytes + shape.embed_bytes * part.vocab end
  if is_last then bytes = bytes + shape.norm_bytes end
  if is_last and not (shape.tied and is_first) then bytes = bytes + shape.head_bytes * part.vocab end
  return bytes
end

--- Give the bytes of activations that a step of `tokens` needs at its widest: facts/models.md 7.2, "Activation peak".
function M.arena(shape, part, tokens, rows, act_bytes)
  local widest = (shape.n_head + 2 * shape.n_kv) * shape.head_dim * part.attn
  local mlp = 2 * shape.ffn * part.ffn
  if shape.is_moe then mlp = math.max(mlp, 2 * shape.expert_ffn * shape.n_expert_used * part.ffn) end
  return tokens * (2 * shape.hidden + math.max(widest, mlp)) * act_bytes + rows * shape.vocab * part.vocab * 4
end

---@class tpl.cost.KvRank
---@field full number       bytes of one token in layers that keep all
---@field windows {positions: integer, bytes: number}[]
---@field seqs number       share of the sequences

--- Give what one token leaves on a rank.
---@param shape tpl.Shape
---@param sums table
---@param part tpl.cost.Part
---@param element number   bytes of an element
---@return tpl.cost.KvRank
function M.kv(shape, sums, part, element)
  local share = (shape.kv_whole and 1 or part.kv) * element / 2
  local out = { full = sums.kv_full * share, windows = {}, seqs = part.seqs, per_token = sums.kv_full * share }
  for i, w in ipairs(sums.windows) do
    out.windows[i] = { positions = w.positions, bytes = w.bytes * share }
    out.per_token = out.per_token + w.bytes * share
  end
  return out
end

--- Give the bytes that `tokens` of `n` sequences of one length take on a rank.
---@param kv tpl.cost.KvRank
---@param tokens number
---@param n integer
function M.kv_bytes(kv, tokens, n)
  local bytes = kv.full * tokens
  for _, w in ipairs(kv.windows) do bytes = bytes + w.bytes * math.min(w.positions, tokens / n) * n end
  return bytes * kv.seqs
end

--- Give the bytes that the layers with a window take for `n` sequences of up to `context` tokens; they do not grow any more.
---@param kv tpl.cost.KvRank
---@param context integer
---@param n integer
function M.window_bytes(kv, context, n)
  local bytes = 0
  for _, w in ipairs(kv.windows) do bytes = bytes + w.bytes * math.min(w.positions, context) * n end
  return bytes * kv.seqs
end

--- Give the tokens of `n` sequences that fit in `room` bytes, in whole pages of 16.
---@param kv tpl.cost.KvRank
---@param room number
---@param n integer
---@param most number        no more than this is asked for
function M.kv_tokens(kv, room, n, most)
  if room <= 0 then return 0 end
  if M.kv_bytes(kv, most, n) <= room then return most end
  local low, high = 0, most
  for _ = 1, 60 do -- kv_bytes rises with tokens
    local mid = (low + high) / 2
    if M.kv_bytes(kv, mid, n) <= room then low = mid else high = mid end
  end
  local tokens = math.floor(low / PAGE) * PAGE
  return M.kv_bytes(kv, tokens + PAGE, n) <= room and tokens + PAGE or tokens -- low is a hair short of a whole page
end

return M
