-- SPDX-License-Identifier: Apache-2.0
--- Implements Jinja's tests: name -> fn(args, kwargs) -> boolean; args[1] is the value tested.
local errors = require("tpl.jinja.errors")
local unicode = require("tpl.jinja.unicode")
local repr = require("tpl.jinja.repr")
local values = require("tpl.jinja.values")
local iter = require("tpl.jinja.iter")
local ops = require("tpl.jinja.ops")
local compare = require("tpl.jinja.compare")
local call = require("tpl.jinja.call")

local M = {}

local function test(names, params, fn)
  for name in names:gmatch("%S+") do
    M[name] = call.bind("test_" .. name, "value " .. params, fn)
  end
end

local function modulo(v, n)
  return compare.number(ops.mod(v, n))
end

test("odd", "", function(v) return modulo(v, 2) == 1 end)
test("even", "", function(v) return modulo(v, 2) == 0 end)
test("divisibleby", "num", function(v, n) return modulo(v, n) == 0 end)

test("defined", "", function(v) return not values.is_undefined(v) end)
test("undefined", "", values.is_undefined)
test("none", "", function(v) return v == values.none end)
test("boolean", "", function(v) return type(v) == "boolean" end)
test("true", "", function(v) return v == true end)
test("false", "", function(v) return v == false end)
test("integer", "", values.is_int)
test("float", "", values.is_float)
test("number", "", function(v) return compare.number(v) ~= nil end)
test("string", "", values.is_str)
test("mapping", "", values.is_dict)
test("iterable", "", iter.is_iterable)
test("callable", "", function(v) return call.is_callable(v) or values.is_undefined(v) end)
test("escaped", "", values.is_markup)
test("lower", "", function(v) return unicode.is_lower(repr.str(v)) end)
test("upper", "", function(v) return unicode.is_upper(repr.str(v)) end)

-- len() and indexing: views have a length but no items by index; Undefined has both.
test("sequence", "", function(v)
  return iter.try_len(v) ~= nil and getmetatable(v) ~= values.view_mt and getmetatable(v) ~= values.object_mt
end)

-- Python's `is`: small ints and equal literals are one object there.
test("sameas", "other", function(v, other)
  if type(v) ~= "table" or values.is_float(v) then return v == other end
  return rawequal(v, other)
end)

test("in", "seq", function(v, seq) return compare.contains(seq, v) end)
test("eq == equalto", "other", compare.equal)
test("ne !=", "other", function(a, b) return not compare.equal(a, b) end)
test("lt < lessthan", "other", function(a, b) return compare.order("<", a, b) end)
test("le <=", "other", function(a, b) return compare.order("<=", a, b) end)
test("gt > greaterthan", "other", function(a, b) return compare.order(">", a, b) end)
test("ge >=", "other", function(a, b) return compare.order(">=", a, b) end)

-- `filter` is set by filters.lua, which needs this module.
M.test = call.bind("test_test", "value", function(v)
  local name = values.text(v)
  return name ~= nil and M[name] ~= nil
end)

--- Apply a test by name, as select and its kin do.
return setmetatable({}, {
  __index = M, __newindex = M,
  __call = function(_, name, args, kwargs)
    local fn = values.text(name) and M[values.text(name)]
    if not fn then
      errors.raise("TemplateRuntimeError", "No test named %s.", values.repr(name))
    end
    return fn(args, kwargs)
  end,
})
