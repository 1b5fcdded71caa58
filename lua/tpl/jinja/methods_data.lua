-- SPDX-License-Identifier: Apache-2.0
--- Implements the methods of list, tuple, dict, range, int and float that a sandboxed template may
--- call. Methods that change their object are listed in `unsafe`: the immutable sandbox knows them,
--- but refuses them.
local errors = require("tpl.jinja.errors")
local values = require("tpl.jinja.values")
local iter = require("tpl.jinja.iter")
local call = require("tpl.jinja.call")
local compare = require("tpl.jinja.compare")
local repr = require("tpl.jinja.repr")

local M = { list = {}, tuple = {}, dict = {}, range = {}, int = {}, float = {}, unsafe = {} }

local function method(type, name, params, fn)
  local bound = call.bind(type .. "." .. name, "self " .. params, fn)
  M[type][name] = function(self, args, kwargs)
    return bound({ self, unpack(args) }, kwargs)
  end
end

local function set(words)
  local out = {}
  for word in words:gmatch("%S+") do out[word] = true end
  return out
end

M.unsafe.list = set("append clear pop reverse insert sort extend remove")
M.unsafe.dict = set("clear pop popitem setdefault update")

-- Sequences ---------------------------------------------------------------------------------------

local function index_of(self, item, first, last)
  local n = iter.len(self)
  first, last = call.opt_int(first, 0), call.opt_int(last, n)
  if first < 0 then first = math.max(0, first + n) end
  if last < 0 then last = last + n end
  local i = 0
  for v in iter.iter(self) do
    if i >= first and i < last and compare.equal(v, item) then return i end
    i = i + 1
  end
  return errors.raise("ValueError", "%s is not in %s", repr.repr(item), values.kind(self))
end

local function count_of(self, item)
  local n = 0
  for v in iter.iter(self) do
    if compare.equal(v, item) then n = n + 1 end
  end
  return n
end

for _, type in ipairs({ "list", "tuple", "range" }) do
  method(type, "index", "value start? stop?", index_of)
  method(type, "count", "value", count_of)
end
method("list", "copy", "", function(self) return values.list(iter.collect(self)) end)

-- Dicts -------------------------------------------------------------------------------------------

method("dict", "get", "key default?", function(self, key, default)
  local v = values.dict_get(self, key)
  if v ~= nil then return v end
  if default == nil then return values.none end
  return default
end)

for _, what in ipairs({ "keys", "values", "items" }) do
  method("dict", what, "", function(self)
    return setmetatable({ dict = self, what = what }, values.view_mt)
  end)
end

method("dict", "copy", "", values.dict_copy)

local function fromkeys(_, keys, value)
  local out = values.dict()
  for key in iter.iter(keys) do
    if value == nil then value = values.none end
    values.dict_set(out, key, value)
  end
  return out
end
M.fromkeys = call.bind("fromkeys", "type iterable value?", fromkeys)
method("dict", "fromkeys", "iterable value?", fromkeys)

-- Numbers -----------------------------------------------------------------------------------------

method("int", "bit_length", "", function(self)
  local x, n = math.abs(compare.number(self)), 0
  while x >= 1 do x, n = math.floor(x / 2), n + 1 end
  return n
end)
method("int", "conjugate", "", function(self) return self end)
method("float", "conjugate", "", function(self) return self end)
method("float", "is_integer", "", function(self)
  return self.value == math.floor(self.value) and math.abs(self.value) ~= math.huge
end)

--- Plain attributes of numbers.
M.fields = {
  int = {
    real = function(v) return v end, numerator = function(v) return v end,
    imag = function() return 0 end, denominator = function() return 1 end,
  },
  float = { real = function(v) return v end, imag = function() return values.float(0) end },
  range = {
    start = function(v) return v.start end, stop = function(v) return v.stop end,
    step = function(v) return v.step end,
  },
}

return M
