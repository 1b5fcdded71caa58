-- SPDX-License-Identifier: Apache-2.0
--- Price a plan in bytes, per rank, and decide how many tokens the KV cache holds. CPU ranks share the
--- machine's memory: a rank's capacity is its part of nine tenths of what is available now. Refuses with
--- numbers and a hint what does not fit. Pure: the facts of the machine are arguments.
local err = require "tpl.err"
local memory = require "tpl.plan.memory"
local partition = require "tpl.plan.partition"

local M = {}

local USABLE = 0.9       -- of what the system says is available
local OTHER = 8 * 2 ^ 20 -- stacks, the runtime, one read buffer while loading

local function index_count(w, r)
  local rows, cols = partition.count(w.row_index[r]), partition.count(w.col_index[r])
  if w.kind == "vector" then return 1, cols end
  return rows, cols
end

--- Packed bytes of the weights of rank r (1-based in the stage), and the file bytes they are read from.
function M.weight_bytes(lowered, r, pack_bytes, type_bytes)
  local packed, file = 0, 0
  for _, w in ipairs(lowered.weights) do
    local rows, cols = index_count(w, r)
    packed = packed + (w.kind == "vector" and math.ceil(cols * 4 / 64) * 64 or pack_bytes(w.dtype, rows, cols))
    file = file + type_bytes(w.dtype, rows * cols)
  end
  return packed, file
end

--- Bytes one position takes in the KV cache of rank r: keys and values of every layer of the stage.
function M.kv_bytes_per_token(lowered, r, element_bytes)
  local n, seen = 0, {}
  for _, op in ipairs(lowered.ops) do
    local s = op.state
    if s and not seen[s] then
      seen[s] = true
      n = n + 2 * s.kvh[r] * s.hd * element_bytes
    end
  end
  return n
end

--- Arena bytes that rank r itself fills (offsets are common, its values may be smaller).
function M.arena_bytes(lowered, plan, caps, r)
  local most = 0
  for _, op in ipairs(lowered.ops) do
    for _, v in ipairs(op.outs) do
      local rows = math.ceil((v.sym == "tok" and caps.tok or caps.out) / v.div)
      most = math.max(most, plan.offset[v] + rows * memory.row_bytes(v.act, v.cols[r]))
    end
  end
  return most
end

local function gib(n) return ("%.2f GiB"):format(n / 2 ^ 30) end

local function refuse(message, hint, where)
  err.throw { code = "no_fit", exit = 4, where = where, message = message, hint = hint }
end

---@class tpl.KvWish
---@field tokens integer?      asked for
---@field page integer
---@field context integer
---@field concurrency integer

--- Decide the tokens of the KV cache.
---@param wish tpl.KvWish
---@param fixed integer          bytes of everything else, all ranks
---@param per_token integer      KV bytes of one position, all ranks
---@param available integer?     bytes the machine has left; nil or 0: unknown, nothing is refused
---@return integer tokens        what requests may use
---@return integer pages
function M.kv(wish, fixed, per_token, available)
  local room = available and available > 0 and available * USABLE - fixed or nil
  if room and room < 0 then
    refuse(("weights and buffers need %s, %s are free"):format(gib(fixed), gib(available * USABLE)),
      "fewer layers per machine, a smaller format, or a smaller step.tokens", "memory")
  end
  local most = room and math.floor(room / (per_token * wish.page)) * wish.page
  if wish.tokens then
    if most and wish.tokens > most then
      refuse(("%d tokens of KV cache need %s, there is room for %d tokens"):format(wish.tokens,
        gib(wish.tokens * per_token), most),
        "a smaller kv.tokens, or kv.dtype f16", "kv.tokens")
    end
    return wish.tokens, math.ceil(wish.tokens / wish.page)
  end
  local tokens = math.ceil(wish.context * wish.concurrency / wish.page) * wish.page
  if most and tokens > most then tokens = most end
  if tokens < wish.context then
    refuse(("the KV cache has room for %d tokens, one request may need %d"):format(tokens, wish.context),
      ("want.context = %d, or kv.dtype f16"):format(tokens), "want.context")
  end
  return tokens, tokens / wish.page
end

M.USABLE, M.OTHER = USABLE, OTHER
return M
