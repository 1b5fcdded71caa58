-- SPDX-License-Identifier: Apache-2.0
--- Collects all filters, and holds those on numbers and defaults: name -> fn(args, kwargs).
local errors = require("tpl.jinja.errors")
local text = require("tpl.jinja.text")
local values = require("tpl.jinja.values")
local number = require("tpl.jinja.number")
local compare = require("tpl.jinja.compare")
local call = require("tpl.jinja.call")
local tests = require("tpl.jinja.tests")
local on_text = require("tpl.jinja.filters_text")
local on_sequences = require("tpl.jinja.filters_seq")

local M = {}

for _, group in ipairs({ on_text, on_sequences }) do
  for name, fn in pairs(group) do M[name] = fn end
end
on_sequences.all = M

local opt_int = call.opt_int

local function filter(names, params, fn)
  local first = names:match("%S+")
  for name in names:gmatch("%S+") do
    M[name] = call.bind("do_" .. first, params, fn)
  end
end

filter("default d", "value default_value? boolean?", function(v, default, boolean)
  if values.is_undefined(v) or boolean ~= nil and values.truth(boolean) and not values.truth(v) then
    if default == nil then return "" end
    return default
  end
  return v
end)

local function stripped(s)
  return text.strip(s, nil, true, true)
end

-- int(float(value)) for what int() refuses; nil if that fails too.
local function int_of_float(v)
  local s = values.text(v)
  local x = s and number.parse_float(stripped(s)) or not s and compare.number(v)
  if not x or x ~= x or math.abs(x) == math.huge then return nil end
  return number.from_double(x)
end

filter("int", "value default? base?", function(v, default, base)
  if values.is_undefined(v) then values.fail_undefined(v) end
  if default == nil then default = 0 end
  local s = values.text(v)
  if not s and (values.is_int(v) or type(v) == "boolean") then return number.pos(v) end
  local parsed = s and number.parse_int(stripped(s), opt_int(base, 10)) or int_of_float(v)
  if parsed == nil then return default end
  return parsed
end)

filter("float", "value default?", function(v, default)
  if values.is_undefined(v) then values.fail_undefined(v) end
  local x = number.to_double(v)
  if x then return values.float(x) end
  if default == nil then return values.float(0) end
  return default
end)

local function need_number(v, what)
  if not compare.number(v) then
    if values.is_undefined(v) then values.fail_undefined(v) end
    errors.raise("TypeError", what, values.kind(v))
  end
end

filter("abs", "x", function(v)
  need_number(v, "bad operand type for abs(): '%s'")
  return number.abs(v)
end)

local function round_towards(v, digits, fn)
  local scale = 10 ^ digits
  return values.float(fn(compare.number(v) * scale) / scale)
end

filter("round", "value precision? method?", function(v, digits, method)
  digits, method = opt_int(digits, 0), method == nil and "common" or values.text(method)
  if method ~= "common" and method ~= "ceil" and method ~= "floor" then
    errors.raise("FilterArgumentError", "method must be common, ceil or floor")
  end
  need_number(v, "type %s doesn't define __round__ method")
  if method == "common" then return number.round(v, digits) end
  return round_towards(v, digits, math[method])
end)

function M.urlize()
  return errors.raise("TemplateRuntimeError", "the urlize filter is not supported")
end

tests.filter = call.bind("test_filter", "value", function(v)
  local name = values.text(v)
  return name ~= nil and M[name] ~= nil
end)

return M
