-- SPDX-License-Identifier: Apache-2.0
--- Does Python's arithmetic on ints, bools and floats: exact ints of any size, / always a float,
--- // and % rounded towards minus infinity.
local errors = require("tpl.jinja.errors")
local text = require("tpl.jinja.text")
local bigint = require("tpl.jinja.bigint")
local values = require("tpl.jinja.values")
local repr = require("tpl.jinja.repr")
local compare = require("tpl.jinja.compare")

local M = {}

local EXACT = 2 ^ 53
-- Digits of the largest power computed: Python would go on until memory ends.
local MAX_DIGITS = 10000

local float, number, is_float = values.float, compare.number, values.is_float

--- An int operand: bools become 0 and 1.
local function int(v)
  if type(v) == "boolean" then return v and 1 or 0 end
  return v
end

--- Whole double as an int value of any size.
function M.from_double(x)
  if x ~= x then errors.raise("ValueError", "cannot convert float NaN to integer") end
  if x == math.huge or x == -math.huge then
    errors.raise("OverflowError", "cannot convert float infinity to integer")
  end
  x = x < 0 and math.ceil(x) or math.floor(x)
  if math.abs(x) < EXACT then return x + 0 end
  return bigint.add(bigint.from_number(x), 0)
end

-- For each operator: the fast form on doubles, exact while the result stays below 2^53, and the wide form.
local function exact(fast, wide)
  return function(a, b)
    if is_float(a) or is_float(b) then return float(fast(number(a), number(b))) end
    a, b = int(a), int(b)
    if type(a) == "number" and type(b) == "number" then
      local r = fast(a, b)
      if r < EXACT and r > -EXACT then return r + 0 end
    end
    return wide(a, b)
  end
end

M.add = exact(function(a, b) return a + b end, bigint.add)
M.sub = exact(function(a, b) return a - b end, bigint.sub)
M.mul = exact(function(a, b) return a * b end, bigint.mul)

function M.div(a, b)
  local x, y = number(a), number(b)
  if y == 0 then
    errors.raise("ZeroDivisionError", (is_float(a) or is_float(b)) and "float division by zero" or "division by zero")
  end
  return float(x / y)
end

-- Floor division of doubles through the exact remainder, as CPython's float_divmod does.
local function float_divmod(x, y)
  if y == 0 then errors.raise("ZeroDivisionError", "float floor division by zero") end
  local mod = math.fmod(x, y)
  local div = (x - mod) / y
  if mod ~= 0 then
    if (y < 0) ~= (mod < 0) then
      mod = mod + y
      div = div - 1
    end
  else
    mod = y < 0 and -0.0 or 0.0
  end
  if div ~= 0 then
    local whole = math.floor(div)
    if div - whole > 0.5 then whole = whole + 1 end
    return whole, mod
  end
  return x / y < 0 and -0.0 or 0.0, mod
end

--- Quotient and remainder of Python's divmod().
local function divmod(a, b)
  if is_float(a) or is_float(b) then
    local q, r = float_divmod(number(a), number(b))
    return float(q), float(r)
  end
  a, b = int(a), int(b)
  if type(a) ~= "number" or type(b) ~= "number" then return bigint.divmod(a, b) end
  if b == 0 then errors.raise("ZeroDivisionError", "integer division or modulo by zero") end
  local r = math.fmod(a, b)
  if r ~= 0 and (r < 0) ~= (b < 0) then r = r + b end
  return (a - r) / b + 0, r + 0
end

function M.floordiv(a, b)
  return (divmod(a, b))
end

function M.mod(a, b)
  local _, r = divmod(a, b)
  return r
end

local function float_pow(x, y)
  if x == 0 and y < 0 then errors.raise("ZeroDivisionError", "0.0 cannot be raised to a negative power") end
  local r = x ^ y
  if r ~= r and x == x and y == y then errors.raise("ValueError", "complex numbers are not supported") end
  if (r == math.huge or r == -math.huge) and math.abs(x) ~= math.huge and math.abs(y) ~= math.huge then
    errors.raise("OverflowError", "(34, 'Numerical result out of range')")
  end
  return float(r)
end

local function int_pow(base, exponent)
  local size = math.log10(math.max(1, math.abs(number(base)))) * exponent
  if size > MAX_DIGITS then errors.raise("MemoryError", "power has more than %d digits", MAX_DIGITS) end
  local result = 1
  while exponent > 0 do
    if exponent % 2 == 1 then result = M.mul(result, base) end
    exponent = math.floor(exponent / 2)
    if exponent > 0 then base = M.mul(base, base) end
  end
  return result
end

function M.pow(a, b)
  if is_float(a) or is_float(b) or number(b) < 0 then return float_pow(number(a), number(b)) end
  a, b = int(a), int(b)
  if type(b) ~= "number" then errors.raise("MemoryError", "power has more than %d digits", MAX_DIGITS) end
  -- 0, 1 and -1 keep their size, so the exponent may be large; the loop is logarithmic.
  return int_pow(a, b)
end

function M.neg(v)
  if is_float(v) then return float(-v.value) end
  v = int(v)
  return type(v) == "number" and -v + 0 or bigint.neg(v)
end

function M.pos(v)
  return is_float(v) and v or int(v)
end

function M.abs(v)
  return number(v) < 0 and M.neg(v) or M.pos(v)
end

-- Python's round(): the exact binary value, halves to the even neighbour.
local function round_float(x, digits)
  if x ~= x or math.abs(x) == math.huge or digits > 300 then return x end
  if digits >= 0 then return tonumber(repr.fixed(x, math.min(digits, 99))) end
  local unit = 10 ^ -digits
  return tonumber(repr.fixed(x / unit, 0)) * unit
end

--- round(value, digits): an int stays an int.
function M.round(v, digits)
  if is_float(v) then return float(round_float(v.value, digits)) end
  v = int(v)
  if digits >= 0 then return v end
  if digits < -300 then return 0 end
  local unit = int_pow(10, -digits)
  local q, r = divmod(v, unit)
  local twice = compare.number(M.mul(r, 2))
  local whole = compare.number(unit)
  if twice > whole or twice == whole and M.mod(q, 2) == 1 then q = M.add(q, 1) end
  return M.mul(q, unit)
end

-- Digits with single underscores between them.
local function digits_of(s)
  if s:find("__", 1, true) or s:find("^_") or s:find("_$") then return nil end
  return (s:gsub("_", ""))
end

local prefixes = { [2] = "^0[bB]_?", [8] = "^0[oO]_?", [16] = "^0[xX]_?" }

--- int(text, base) of a stripped text; nil if it is not a number.
function M.parse_int(s, base)
  local sign, body = s:match("^([+-]?)(.+)$")
  if not body then return nil end
  if prefixes[base] then body = body:gsub(prefixes[base], "") end
  body = digits_of(body)
  if not body or not body:find("^%w+$") then return nil end
  local value
  if base == 10 then
    if not body:find("^%d+$") then return nil end
    value = bigint.parse(body)
  else
    value = 0
    for c in body:gmatch(".") do
      local d = tonumber(c, 36)
      if not d or d >= base then return nil end
      value = M.add(M.mul(value, base), d)
    end
  end
  return sign == "-" and M.neg(value) or value
end

local words = { inf = math.huge, infinity = math.huge, nan = 0 / 0 }

--- float(text) of a stripped text as a double; nil if it is not a number.
function M.parse_float(s)
  local sign, body = s:match("^([+-]?)(.+)$")
  if not body then return nil end
  local x = words[body:lower()]
  if not x then
    body = digits_of(body)
    if not body or body:find("[^%d.eE+-]") then return nil end
    x = tonumber(body)
    if not x then return nil end
  end
  return sign == "-" and -x or x
end

--- The double of a number or of a text that float() accepts; nil for others.
function M.to_double(v)
  local s = values.text(v)
  if s then return M.parse_float(text.strip(s, nil, true, true)) end
  return number(v)
end

return M
