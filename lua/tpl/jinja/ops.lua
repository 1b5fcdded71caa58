-- SPDX-License-Identifier: Apache-2.0
--- Applies Python's binary and unary operators to values of any type.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local repr = require("tpl.jinja.repr")
local values = require("tpl.jinja.values")
local number = require("tpl.jinja.number")
local compare = require("tpl.jinja.compare")
local format = require("tpl.jinja.format")
local escape = require("tpl.jinja.escape")

local M = {}

local kind, is_undefined = values.kind, values.is_undefined

local function unsupported(op, a, b)
  if is_undefined(a) then values.fail_undefined(a) end
  if is_undefined(b) then values.fail_undefined(b) end
  errors.raise("TypeError", "unsupported operand type(s) for %s: '%s' and '%s'", op, kind(a), kind(b))
end

local function arithmetic(op, fn)
  return function(a, b)
    if compare.number(a) and compare.number(b) then return fn(a, b) end
    return unsupported(op, a, b)
  end
end

M.sub = arithmetic("-", number.sub)
M.div = arithmetic("/", number.div)
M.floordiv = arithmetic("//", number.floordiv)
M.pow = arithmetic("** or pow()", number.pow)
local add_numbers = arithmetic("+", number.add)
local mul_numbers = arithmetic("*", number.mul)
local mod_numbers = arithmetic("%", number.mod)

local function concat_items(a, b, make)
  state.items(#a + #b)
  local out = {}
  for i = 1, #a do out[i] = a[i] end
  for i = 1, #b do out[#out + 1] = b[i] end
  return make(out)
end

local function cannot_concat(name, b)
  if is_undefined(b) then values.fail_undefined(b) end
  errors.raise("TypeError", 'can only concatenate %s (not "%s") to %s', name, kind(b), name)
end

local function add_text(a, b)
  local s = values.text(b)
  if not s then cannot_concat("str", b) end
  local t = values.text(a)
  state.bytes(#t + #s)
  if type(a) == "string" and type(b) == "string" then return t .. s end
  return values.markup(escape.text(a) .. escape.text(b))
end

function M.add(a, b)
  if type(a) == "number" and type(b) == "number" then return number.add(a, b) end
  if values.is_str(a) then return add_text(a, b) end
  if values.is_list(a) then
    if not values.is_list(b) then cannot_concat("list", b) end
    return concat_items(a, b, values.list)
  end
  if values.is_tuple(a) then
    if not values.is_tuple(b) then cannot_concat("tuple", b) end
    return concat_items(a, b, values.tuple)
  end
  return add_numbers(a, b)
end

local function times(n)
  if type(n) == "boolean" then return n and 1 or 0 end
  return values.is_int(n) and math.max(0, compare.number(n)) or nil
end

local function repeat_value(v, n)
  local s = values.text(v)
  if s then
    state.bytes(#s * n)
    local out = s:rep(n)
    return type(v) == "string" and out or values.markup(out)
  end
  state.items(#v * n)
  local out = {}
  for _ = 1, n do
    for i = 1, #v do out[#out + 1] = v[i] end
  end
  return setmetatable(out, getmetatable(v))
end

local function repeatable(v)
  return values.is_str(v) or values.is_list(v) or values.is_tuple(v)
end

function M.mul(a, b)
  if type(a) == "number" and type(b) == "number" then return number.mul(a, b) end
  if repeatable(b) and times(a) then a, b = b, a end
  if repeatable(a) then
    local n = times(b)
    if n then return repeat_value(a, n) end
    if is_undefined(b) then values.fail_undefined(b) end
    errors.raise("TypeError", "can't multiply sequence by non-int of type '%s'", kind(b))
  end
  return mul_numbers(a, b)
end

function M.mod(a, b)
  if type(a) == "string" then return format.percent(a, b) end
  if values.is_markup(a) then return values.markup(format.percent(a.value, escape.deep(b))) end
  return mod_numbers(a, b)
end

local function unary(op, fn)
  return function(v)
    if compare.number(v) then return fn(v) end
    if is_undefined(v) then values.fail_undefined(v) end
    return errors.raise("TypeError", "bad operand type for unary %s: '%s'", op, kind(v))
  end
end

M.neg = unary("-", number.neg)
M.pos = unary("+", number.pos)

--- The `~` operator on a list of values.
function M.concat(parts)
  local n = 0
  local auto = state.current().autoescape
  for i = 1, #parts do
    parts[i] = auto and escape.text(parts[i]) or repr.str(parts[i])
    n = n + #parts[i]
  end
  state.bytes(n)
  local s = table.concat(parts)
  return auto and values.markup(s) or s
end

return M
