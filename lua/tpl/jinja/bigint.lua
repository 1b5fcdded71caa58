-- SPDX-License-Identifier: Apache-2.0
--- Computes with integers beyond 2^53, so that ints behave as Python's do.
--- A value is {sign, limbs...} in base 10^7, least limb first: products of two limbs stay exact in a
--- double, and printing, the usual end of such a number, is concatenation. Results that fit return
--- as plain Lua numbers (`norm`).
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")

local M = {}

local BASE, WIDTH = 10000000, 7
local EXACT = 2 ^ 53

local mt = { kind = "int", big = true }
M.mt = mt

local function is_big(v)
  return type(v) == "table" and getmetatable(v) == mt
end
M.is = is_big

-- Digits of an unsigned decimal text as limbs, least first.
local function limbs_of(digits, sign)
  local out = { sign = sign }
  for last = #digits, 1, -WIDTH do
    out[#out + 1] = tonumber(digits:sub(math.max(1, last - WIDTH + 1), last))
  end
  local n = #out
  while n > 0 and out[n] == 0 do
    out[n] = nil
    n = n - 1
  end
  return setmetatable(out, mt)
end

--- Widen a Lua number that holds a whole number of any size; "%.0f" prints those exactly.
function M.from_number(x)
  return limbs_of(("%.0f"):format(math.abs(x)), x < 0 and -1 or 1)
end

local function wide(v)
  return is_big(v) and v or M.from_number(v)
end

--- Drop leading zero limbs and return a Lua number if the value is exact as one.
local function norm(a)
  local n = #a
  while n > 0 and a[n] == 0 do
    a[n] = nil
    n = n - 1
  end
  if n <= 3 then
    local x = 0
    for i = n, 1, -1 do x = x * BASE + a[i] end
    if x < EXACT then return a.sign * x + 0 end
  end
  return setmetatable(a, mt)
end

--- Parse decimal digits (an optional sign in front).
function M.parse(s)
  local sign, digits = s:match("^([+-]?)(%d+)$")
  state.bytes(#digits)
  return norm(limbs_of(digits, sign == "-" and -1 or 1))
end

function M.tostring(a)
  local parts = { a.sign < 0 and "-" or "", ("%d"):format(a[#a]) }
  for i = #a - 1, 1, -1 do parts[#parts + 1] = ("%07d"):format(a[i]) end
  return table.concat(parts)
end

--- Nearest double, or infinity.
function M.to_number(a)
  return tonumber(M.tostring(a))
end

local function compare_abs(a, b)
  if #a ~= #b then return #a < #b and -1 or 1 end
  for i = #a, 1, -1 do
    if a[i] ~= b[i] then return a[i] < b[i] and -1 or 1 end
  end
  return 0
end

--- Three-way comparison; either side may be a Lua number that is a whole number.
function M.compare(a, b)
  a, b = wide(a), wide(b)
  if #a == 0 and #b == 0 then return 0 end
  if a.sign ~= b.sign then return a.sign end
  return a.sign * compare_abs(a, b)
end

local function add_abs(a, b, sign)
  local out, carry = { sign = sign }, 0
  for i = 1, math.max(#a, #b) do
    local x = (a[i] or 0) + (b[i] or 0) + carry
    carry = x >= BASE and 1 or 0
    out[i] = x - carry * BASE
  end
  if carry > 0 then out[#out + 1] = carry end
  return out
end

local function sub_abs(a, b, sign)
  local out, borrow = { sign = sign }, 0
  for i = 1, #a do
    local x = a[i] - (b[i] or 0) - borrow
    borrow = x < 0 and 1 or 0
    out[i] = x + borrow * BASE
  end
  return out
end

local function add_signed(a, b, sign_b)
  if a.sign == sign_b then return norm(add_abs(a, b, a.sign)) end
  if compare_abs(a, b) >= 0 then return norm(sub_abs(a, b, a.sign)) end
  return norm(sub_abs(b, a, sign_b))
end

function M.add(a, b)
  a, b = wide(a), wide(b)
  return add_signed(a, b, b.sign)
end

function M.sub(a, b)
  a, b = wide(a), wide(b)
  return add_signed(a, b, -b.sign)
end

function M.neg(a)
  a = wide(a)
  local out = { sign = -a.sign }
  for i = 1, #a do out[i] = a[i] end
  return norm(out)
end

function M.mul(a, b)
  a, b = wide(a), wide(b)
  state.spend(#a * #b / 64)
  state.bytes((#a + #b) * WIDTH)
  local out = { sign = a.sign * b.sign }
  for i = 1, #a + #b do out[i] = 0 end
  for i = 1, #a do
    local carry = 0
    for j = 1, #b do
      local x = out[i + j - 1] + a[i] * b[j] + carry
      carry = math.floor(x / BASE)
      out[i + j - 1] = x - carry * BASE
    end
    out[i + #b] = out[i + #b] + carry
  end
  return norm(out)
end

-- Long division by one limb.
local function div_small(a, d)
  local out, rest = { sign = 1 }, 0
  for i = #a, 1, -1 do
    local x = rest * BASE + a[i]
    out[i] = math.floor(x / d)
    rest = x - out[i] * d
  end
  return out, { sign = 1, rest }
end

-- Long division, one limb of the quotient at a time, each found by bisection: rare and short.
local function div_long(a, b)
  local quotient, rest = { sign = 1 }, 0
  for i = #a, 1, -1 do
    rest = M.add(M.mul(rest, BASE), a[i])
    local lo, hi = 0, BASE - 1
    while lo < hi do
      local mid = math.floor((lo + hi + 1) / 2)
      if M.compare(M.mul(b, mid), rest) <= 0 then lo = mid else hi = mid - 1 end
    end
    quotient[i] = lo
    rest = M.sub(rest, M.mul(b, lo))
  end
  return quotient, wide(rest)
end

--- Floor division and modulus with Python's signs.
function M.divmod(a, b)
  a, b = wide(a), wide(b)
  if #b == 0 then errors.raise("ZeroDivisionError", "integer division or modulo by zero") end
  local abs_b = setmetatable({ sign = 1, unpack(b) }, mt)
  local q, r
  if #b == 1 then q, r = div_small(a, b[1]) else q, r = div_long(a, abs_b) end
  q.sign, r.sign = a.sign * b.sign, a.sign
  q, r = norm(q), norm(r)
  if r ~= 0 and a.sign ~= b.sign then
    q, r = M.sub(q, 1), M.add(r, b)
  end
  return q, r
end

return M
