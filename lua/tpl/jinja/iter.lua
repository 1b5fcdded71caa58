-- SPDX-License-Identifier: Apache-2.0
--- Iterates over values: Python's iter(), len(), list() and unpacking.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local text = require("tpl.jinja.text")
local values = require("tpl.jinja.values")

local M = {}

local function sequence(list)
  local i = 0
  return function()
    i = i + 1
    return list[i]
  end
end

local function range_items(r)
  local i = -1
  return function()
    i = i + 1
    if i < r.n then return r.start + i * r.step end
  end
end

local function view_items(view)
  local d, i = view.dict, 0
  if view.what == "items" then
    return function()
      i = i + 1
      if i <= d.n then return values.tuple({ d.keys[i], d.vals[i] }) end
    end
  end
  return sequence(view.what == "keys" and d.keys or d.vals)
end

local by_mt = {
  [values.list_mt] = sequence,
  [values.tuple_mt] = sequence,
  [values.dict_mt] = function(d) return sequence(d.keys) end,
  [values.view_mt] = view_items,
  [values.range_mt] = range_items,
  [values.iterator_mt] = function(it) return it.next end,
  [values.undefined_mt] = function() return function() end end,
  [values.markup_mt] = function(m) return text.each(m.value) end,
}

local function maker(v)
  if type(v) == "table" then return by_mt[getmetatable(v)] end
  if type(v) == "string" then return text.each end
  return nil
end

function M.is_iterable(v)
  return maker(v) ~= nil
end

--- Function that returns the next item, nil at the end.
function M.iter(v)
  local make = maker(v)
  if not make then errors.raise("TypeError", "'%s' object is not iterable", values.kind(v)) end
  return make(v)
end

--- Number of items, nil for values without a length.
function M.try_len(v)
  local s = values.text(v)
  if s then
    state.bytes(#s)
    return text.len(s)
  end
  local mt = type(v) == "table" and getmetatable(v)
  if mt == values.list_mt or mt == values.tuple_mt then return #v end
  if mt == values.dict_mt or mt == values.range_mt then return v.n end
  if mt == values.view_mt then return v.dict.n end
  if mt == values.undefined_mt then return 0 end
  if mt == values.object_mt and v.len then return v.len(v) end
  return nil
end

--- Python's len().
function M.len(v)
  local n = M.try_len(v)
  if not n then errors.raise("TypeError", "object of type '%s' has no len()", values.kind(v)) end
  return n
end

--- All items as a plain Lua sequence (not shared with the value).
function M.collect(v)
  local out, n = {}, 0
  for item in M.iter(v) do
    n = n + 1
    out[n] = item
    -- Lazy iterators have no length that could be paid for beforehand.
    if n % 1024 == 0 then state.more_items(n, 1024) end
  end
  state.more_items(n, n % 1024)
  return out
end

--- Exactly n items for an assignment to n targets.
function M.unpack(v, n)
  local make = maker(v)
  if not make then errors.raise("TypeError", "cannot unpack non-iterable %s object", values.kind(v)) end
  local next, out = make(v), {}
  for i = 1, n do
    out[i] = next()
    if out[i] == nil then
      errors.raise("ValueError", "not enough values to unpack (expected %d, got %d)", n, i - 1)
    end
  end
  if next() ~= nil then errors.raise("ValueError", "too many values to unpack (expected %d)", n) end
  return out
end

--- Items in reverse order, as Python's reversed(); nil if the type has no reverse.
function M.reversed(v)
  local n = M.try_len(v)
  if not n then return nil end
  local items = M.collect(v)
  local i = #items + 1
  return function()
    i = i - 1
    return items[i]
  end
end

return M
