-- SPDX-License-Identifier: Apache-2.0
--- Compares values as Python does: ==, <, `in`, and the stable sort built on <.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local bigint = require("tpl.jinja.bigint")
local values = require("tpl.jinja.values")

local M = {}

local list_mt, tuple_mt, dict_mt = values.list_mt, values.tuple_mt, values.dict_mt
local float_mt, undefined_mt = values.float_mt, values.undefined_mt
local kind, text = values.kind, values.text

--- The double of an int, bool or float (bigints: nearest), nil for other values.
local function number(v)
  local t = type(v)
  if t == "number" then return v end
  if t == "boolean" then return v and 1 or 0 end
  if t == "table" then
    local mt = getmetatable(v)
    if mt == float_mt then return v.value end
    if mt == bigint.mt then return bigint.to_number(v) end
  end
  return nil
end
M.number = number

-- -1, 0 or 1; nil when a NaN takes part.
local function compare_numbers(a, b, x, y)
  if bigint.is(a) and not values.is_float(b) or bigint.is(b) and not values.is_float(a) then
    return bigint.compare(bigint.is(a) and a or x, bigint.is(b) and b or y)
  end
  if x < y then return -1 elseif x > y then return 1 elseif x == y then return 0 end
  return nil
end

local equal

local function equal_items(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if not equal(a[i], b[i]) then return false end
  end
  return true
end

local function equal_dicts(a, b)
  if a.n ~= b.n then return false end
  for i = 1, a.n do
    local other = values.dict_get(b, a.keys[i])
    if other == nil or not equal(a.vals[i], other) then return false end
  end
  return true
end

--- Python's ==.
function equal(a, b)
  if a == b then return not (type(a) == "table" and getmetatable(a) == float_mt and a.value ~= a.value) end
  local ta, tb = type(a), type(b)
  if ta == "string" and tb == "string" then return false end
  local x = number(a)
  if x then
    local y = number(b)
    return y ~= nil and compare_numbers(a, b, x, y) == 0
  end
  local s = text(a)
  if s then return s == text(b) end
  if tb ~= "table" then return false end
  local mt = getmetatable(a)
  if mt ~= getmetatable(b) then return false end
  state.spend(0.5)
  if mt == list_mt or mt == tuple_mt then return equal_items(a, b) end
  if mt == dict_mt then return equal_dicts(a, b) end
  if mt == undefined_mt then return true end
  if mt == values.range_mt then
    return a.n == b.n and (a.n == 0 or a.start == b.start and (a.n == 1 or a.step == b.step))
  end
  return false
end
M.equal = equal

local function fail_order(op, a, b)
  if values.is_undefined(a) then values.fail_undefined(a) end
  if values.is_undefined(b) then values.fail_undefined(b) end
  errors.raise("TypeError", "'%s' not supported between instances of '%s' and '%s'", op, kind(a), kind(b))
end

local by_sign = {
  ["<"] = function(c) return c < 0 end,
  ["<="] = function(c) return c <= 0 end,
  [">"] = function(c) return c > 0 end,
  [">="] = function(c) return c >= 0 end,
}

--- Python's <, <=, > and >= (op is the operator's spelling).
local function order(op, a, b)
  local x = number(a)
  if x then
    local y = number(b)
    if not y then fail_order(op, a, b) end
    local c = compare_numbers(a, b, x, y)
    return c ~= nil and by_sign[op](c)
  end
  local s, t = text(a), text(b)
  if s and t then return by_sign[op](s < t and -1 or s > t and 1 or 0) end
  local mt = type(a) == "table" and getmetatable(a)
  if (mt == list_mt or mt == tuple_mt) and type(b) == "table" and getmetatable(b) == mt then
    state.spend(0.5)
    for i = 1, math.min(#a, #b) do
      if not equal(a[i], b[i]) then return order(op, a[i], b[i]) end
    end
    return by_sign[op](#a - #b)
  end
  return fail_order(op, a, b)
end
M.order = order

function M.less(a, b)
  return order("<", a, b)
end

local function find_item(list, item)
  for i = 1, #list do
    if equal(list[i], item) then return true end
  end
  return false
end

local function in_view(view, item)
  local d = view.dict
  if view.what == "keys" then return values.dict_get(d, item) ~= nil end
  for i = 1, d.n do
    local v = d.vals[i]
    if view.what == "items" then v = values.tuple({ d.keys[i], v }) end
    if equal(v, item) then return true end
  end
  return false
end

local function in_range(r, item)
  local x = number(item)
  if not x then return false end
  local k = (x - r.start) / r.step
  return k >= 0 and k < r.n and k == math.floor(k)
end

--- Python's `item in container`.
function M.contains(container, item)
  local s = text(container)
  if s then
    local part = text(item)
    if not part then
      errors.raise("TypeError", "'in <string>' requires string as left operand, not %s", kind(item))
    end
    state.bytes(#s / 16)
    return s:find(part, 1, true) ~= nil
  end
  local mt = type(container) == "table" and getmetatable(container)
  if mt == list_mt or mt == tuple_mt then
    state.spend(#container / 64)
    return find_item(container, item)
  elseif mt == dict_mt then
    return values.dict_get(container, item) ~= nil
  elseif mt == values.view_mt then
    return in_view(container, item)
  elseif mt == values.range_mt then
    return in_range(container, item)
  elseif mt == undefined_mt then
    return false
  elseif mt == values.iterator_mt then
    for v in container.next do
      if equal(v, item) then return true end
    end
    return false
  end
  return errors.raise("TypeError", "argument of type '%s' is not iterable", kind(container))
end

-- Merge sort: table.sort is not stable, and Python's order of equal items shows.
local function merge(from, to, keys_from, keys_to, lo, mid, hi)
  local i, j = lo, mid
  for k = lo, hi - 1 do
    if i < mid and (j >= hi or not M.less(keys_from[j], keys_from[i])) then
      to[k], keys_to[k] = from[i], keys_from[i]
      i = i + 1
    else
      to[k], keys_to[k] = from[j], keys_from[j]
      j = j + 1
    end
  end
end

local function reverse(t)
  local out = {}
  for i = #t, 1, -1 do out[#out + 1] = t[i] end
  return out
end
M.reverse = reverse

--- New sorted sequence; key maps an item to what is compared.
function M.sorted(items, key, descending)
  state.items(#items)
  -- Python sorts the reversed list and reverses again, so that equal items keep their order.
  if descending then items = reverse(items) end
  local a, ka, b, kb = {}, {}, {}, {}
  for i = 1, #items do a[i], ka[i] = items[i], key(items[i]) end
  local n, width = #a, 1
  while width < n do
    for lo = 1, n, 2 * width do
      merge(a, b, ka, kb, lo, math.min(lo + width, n + 1), math.min(lo + 2 * width, n + 1))
    end
    a, ka, b, kb = b, kb, a, ka
    width = width * 2
    state.spend(n / 16)
  end
  return descending and reverse(a) or a
end

return M
