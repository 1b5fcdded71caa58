-- SPDX-License-Identifier: Apache-2.0
--- Price a plan in bytes, per rank, and decide how many tokens the KV cache holds. Ranks that share memory form a pool: CPU
--- ranks share the machine's, a GPU is a pool of its own. Refuses with numbers and a hint what does not fit. Pure.
local err = require "tpl.err"
local partition = require "tpl.plan.partition"

local M = {}

local USABLE = 0.9       -- of what the system says is available, or a GPU's tool prints
local KV_ALIGN = 4096    -- of each layer's keys and values (core/exec/rank.c)
local OTHER = 8 * 2 ^ 20 -- of a CPU rank: stacks, the runtime, one read buffer while loading

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

--- Bytes of the KV cache of rank r: each layer's keys and values lie in pages of their own, aligned as exec maps them.
---@param pages integer
---@param page integer    positions of one
function M.kv_bytes(lowered, r, element_bytes, pages, page)
  local n, seen = 0, {}
  for _, op in ipairs(lowered.ops) do
    local s = op.state
    if s and not seen[s] then
      seen[s] = true
      n = n + 2 * math.ceil(s.kvh[r] * s.hd * element_bytes * pages * page / KV_ALIGN) * KV_ALIGN
    end
  end
  return n
end

--- Bytes of a rank that are neither weights, activations nor KV: on a GPU the driver's context and a communicator's buffers.
---@param device table
---@param group_class string?   how the ranks of its group are linked; nil: it is alone
---@param has_next boolean      talks to other stages
function M.other_bytes(device, group_class, has_next)
  if device.kind == "cpu" then return OTHER end
  return math.ceil(require("tpl.cost.memory").other(device.kind, group_class, has_next))
end

-- -- Pools ------------------------------------------------------------------------------------------------------------

---@class tpl.Pool
---@field name string
---@field room number?         bytes that ranks may fill; nil unknown: nothing is refused
---@field fixed number         bytes of everything but KV, and what its alignment may take
---@field per_token number     KV bytes of one position
---@field ranks table[]

-- What ranks on a device may fill: part of what it has, never more than what is free now.
local function device_room(device, usable)
  local room = device.mem_bytes and device.mem_bytes * usable
  if device.free_bytes then room = math.min(room or device.free_bytes, device.free_bytes) end
  return room and math.floor(room)
end

-- What is free of a host's memory is shared by the ranks on its CPUs, whatever node they run on.
local function host_room(devices, usable)
  local sum, seen = 0, {}
  for _, device in ipairs(devices) do
    if not seen[device] then
      seen[device] = true
      local free = device.free_bytes or device.mem_bytes
      if not free then return nil end
      sum = sum + free
    end
  end
  return math.floor(sum * usable)
end

--- Sort ranks into pools and give each rank its capacity.
---@param ranks table[]     with device, weights, arena, comm, other, kv_per_token
---@param usable number?    part of the memory that may be used
---@return tpl.Pool[]
function M.pools(ranks, usable)
  usable = usable or USABLE
  local pools, hosts = {}, {}
  for _, b in ipairs(ranks) do
    local device, pool = b.device, nil
    if device.kind == "cpu" then pool = hosts[device.host or ""] end
    if not pool then
      pool = { name = device.uid, ranks = {}, fixed = 0, per_token = 0, devices = {} }
      if device.kind == "cpu" then
        hosts[device.host or ""] = pool
        pool.name = "memory"
      else
        pool.room = device_room(device, usable)
      end
      pools[#pools + 1] = pool
    end
    pool.ranks[#pool.ranks + 1], pool.devices[#pool.devices + 1] = b, device
    pool.fixed = pool.fixed + b.weights + b.arena + b.comm + b.other + (b.kv_slack or 0)
    pool.per_token = pool.per_token + b.kv_per_token
  end
  for _, pool in pairs(hosts) do pool.room = host_room(pool.devices, usable) end
  for _, pool in ipairs(pools) do
    for _, b in ipairs(pool.ranks) do b.capacity = pool.room and math.floor(pool.room / #pool.ranks) or nil end
  end
  return pools
end

-- -- KV ---------------------------------------------------------------------------------------------------------------

local function gib(n) return ("%.2f GiB"):format(n / 2 ^ 30) end

local function refuse(message, hint, where)
  err.throw { code = "no_fit", exit = 4, where = where, message = message, hint = hint }
end

--- Tokens, in whole pages, that a pool has room for; nil unknown, negative when not even the weights fit.
function M.pool_tokens(pool, page)
  if not pool.room then return nil end
  if pool.room < pool.fixed then return -1 end
  if pool.per_token == 0 then return math.huge end
  return math.floor((pool.room - pool.fixed) / (pool.per_token * page)) * page
end

-- The pool with least room for tokens.
local function tightest(pools, page)
  local least, which
  for _, pool in ipairs(pools) do
    local n = M.pool_tokens(pool, page)
    if n and (not least or n < least) then least, which = n, pool end
  end
  return least, which
end

--- Give the rank that limits the KV cache: of the pool with least room, the rank with most bytes.
---@return table rank
function M.limiting(ranks, pools, page)
  local _, pool = tightest(pools, page)
  local most
  for _, b in ipairs(pool and pool.ranks or ranks) do
    local bytes = b.weights + b.arena + b.comm + b.kv_per_token * page
    if not most or bytes > most.bytes then most = { b = b, bytes = bytes } end
  end
  return most.b
end

---@class tpl.KvWish
---@field tokens integer?      asked for
---@field page integer
---@field context integer
---@field concurrency integer
---@field least number?        that `require` asks for

--- Say how many tokens a wish comes to when memory has no end.
function M.wanted(wish)
  return wish.tokens or math.ceil(math.max(wish.context * wish.concurrency, wish.least or 0) / wish.page) * wish.page
end

--- Decide the tokens of the KV cache, or throw no_fit.
---@param wish tpl.KvWish
---@param pools tpl.Pool[]
---@return integer tokens        what requests may use
---@return integer pages
function M.kv(wish, pools)
  local most, pool = tightest(pools, wish.page)
  local on = pool and pool.name ~= "memory" and " on " .. pool.name or ""
  if most and most < 0 then
    refuse(("weights and buffers need %s%s, %s are free"):format(gib(pool.fixed), on, gib(pool.room)),
      "more or larger devices, a smaller format, or a smaller step.tokens", pool.name)
  end
  if wish.tokens then
    if most and wish.tokens > most then
      refuse(("%d tokens of KV cache need %s%s, there is room for %d tokens"):format(wish.tokens,
        gib(wish.tokens * pool.per_token), on, most), "a smaller kv.tokens, or kv.dtype f16", "kv.tokens")
    end
    return wish.tokens, math.ceil(wish.tokens / wish.page)
  end
  local tokens = M.wanted(wish)
  if most and tokens > most then tokens = most end
  if tokens < wish.context then
    refuse(("the KV cache has room for %d tokens%s, one request may need %d"):format(tokens, on, wish.context),
      ("want.context = %d, or kv.dtype f16"):format(tokens), "want.context")
  end
  return tokens, tokens / wish.page
end

--- Bytes of each rank's device that no token can use, since another rank is full before: capacity less what it would hold then.
---@param pools tpl.Pool[]   their ranks get `stranded`; nil where memory is not known
function M.strand(pools, page)
  local least = tightest(pools, page)
  for _, pool in ipairs(pools) do
    local used = least and least >= 0 and least < math.huge and pool.fixed + pool.per_token * least
    local left = used and pool.room and math.max(0, math.floor(pool.room - used)) or nil
    if left and left < pool.per_token * page then left = 0 end -- less than a page is rounding
    for _, b in ipairs(pool.ranks) do b.stranded = left and math.floor(left / #pool.ranks) or nil end
  end
end

M.USABLE, M.OTHER, M.LAYER_SLACK = USABLE, OTHER, 2 * KV_ALIGN
return M
