-- SPDX-License-Identifier: Apache-2.0
--- Prints values as Python's str() and repr() do.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local text = require("tpl.jinja.text")
local unicode = require("tpl.jinja.unicode")
local bigint = require("tpl.jinja.bigint")
local values = require("tpl.jinja.values")

local M = {}

-- Containers nest no deeper than the JSON they come from plus what a template builds around them.
local MAX_DEPTH = 200

--- Shortest decimal digits and exponent that read back as the same double.
local function shortest(x)
  for precision = 0, 16 do
    local s = ("%%.%de"):format(precision):format(x)
    if tonumber(s) == x then
      local sign, a, b, exponent = s:match("^(-?)(%d)%.?(%d*)e([+-]%d+)$")
      return sign, a .. b, tonumber(exponent)
    end
  end
end

--- repr() of a double: fixed notation for exponents -4 to 15, as float.__repr__ has it.
function M.float(x)
  if x ~= x then return "nan" end
  if x == math.huge then return "inf" end
  if x == -math.huge then return "-inf" end
  if x == 0 then return 1 / x < 0 and "-0.0" or "0.0" end
  local sign, digits, exponent = shortest(x)
  if exponent < -4 or exponent >= 16 then
    local mantissa = #digits > 1 and digits:sub(1, 1) .. "." .. digits:sub(2) or digits
    return ("%s%se%s%02d"):format(sign, mantissa, exponent < 0 and "-" or "+", math.abs(exponent))
  end
  if exponent < 0 then return sign .. "0." .. ("0"):rep(-exponent - 1) .. digits end
  if #digits <= exponent + 1 then return sign .. digits .. ("0"):rep(exponent + 1 - #digits) .. ".0" end
  return sign .. digits:sub(1, exponent + 1) .. "." .. digits:sub(exponent + 2)
end

--- A finite double with a fixed number of decimals. LuaJIT's "%.nf" rounds exact ties away from
--- zero where C and Python take the even neighbour: a tie shows as a 5 and nothing after it.
function M.fixed(x, decimals)
  local s = ("%%.%df"):format(decimals):format(x)
  if decimals > 60 then return s end
  local long = ("%%.%df"):format(decimals + 30):format(x)
  local head, rest = long:sub(1, -31), long:sub(-30)
  if not rest:find("^50+$") or not head:find("[02468]%.?$") then return s end
  return (head:gsub("%.$", ""))
end

--- Decimal text of an int.
function M.int(v)
  if type(v) == "number" then return ("%d"):format(v) end
  return bigint.tostring(v)
end

local named = { ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\\"] = "\\\\" }

local function escape_char(c)
  local code = text.code(c)
  if code < 256 then return ("\\x%02x"):format(code) end
  if code < 65536 then return ("\\u%04x"):format(code) end
  return ("\\U%08x"):format(code)
end

--- repr() of a str.
function M.quote(s)
  state.bytes(#s)
  local quote = s:find("'", 1, true) and not s:find('"', 1, true) and '"' or "'"
  local out = s:gsub("[%c\\\127]", function(c) return named[c] or escape_char(c) end)
  if quote == "'" then out = out:gsub("'", "\\'") end
  if not text.is_ascii(out) then
    out = out:gsub("[\192-\255][\128-\191]*", function(c)
      if not unicode.is_printable(c) then return escape_char(c) end
    end)
  end
  return quote .. out .. quote
end

local repr

local function join_items(v, n, depth)
  local parts = {}
  for i = 1, n do parts[i] = repr(v[i], depth) end
  return table.concat(parts, ", ")
end

local function pairs_of(d, depth)
  local parts = {}
  for i = 1, d.n do
    parts[i] = repr(d.keys[i], depth) .. ": " .. repr(d.vals[i], depth)
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

local function view_items(v, depth)
  local d, parts = v.dict, {}
  for i = 1, d.n do
    if v.what == "items" then
      parts[i] = "(" .. repr(d.keys[i], depth) .. ", " .. repr(d.vals[i], depth) .. ")"
    else
      parts[i] = repr(d[v.what == "keys" and "keys" or "vals"][i], depth)
    end
  end
  return "dict_" .. v.what .. "([" .. table.concat(parts, ", ") .. "])"
end

local function range_text(v)
  local ends = M.int(v.start) .. ", " .. M.int(v.stop)
  return v.step == 1 and "range(" .. ends .. ")" or "range(" .. ends .. ", " .. M.int(v.step) .. ")"
end

local by_mt = {
  [values.list_mt] = function(v, depth) return "[" .. join_items(v, #v, depth) .. "]" end,
  [values.tuple_mt] = function(v, depth)
    return "(" .. join_items(v, #v, depth) .. (#v == 1 and ",)" or ")")
  end,
  [values.dict_mt] = pairs_of,
  [values.float_mt] = function(v) return M.float(v.value) end,
  [bigint.mt] = M.int,
  [values.undefined_mt] = function() return "Undefined" end,
  [values.markup_mt] = function(v) return "Markup(" .. M.quote(v.value) .. ")" end,
  [values.namespace_mt] = function(v, depth) return "<Namespace " .. pairs_of(v.attrs, depth) .. ">" end,
  [values.macro_mt] = function(v) return "<Macro " .. (v.name and M.quote(v.name) or "anonymous") .. ">" end,
  [values.function_mt] = function(v) return "<function " .. v.name .. ">" end,
  [values.method_mt] = function(v) return "<built-in method " .. v.name .. ">" end,
  [values.iterator_mt] = function() return "<generator object>" end,
  [values.range_mt] = range_text,
  [values.view_mt] = view_items,
  [values.object_mt] = function(v) return v.text and v.text(v) or "<" .. v.type .. ">" end,
}

--- Python's repr().
function repr(v, depth)
  local t = type(v)
  if t == "string" then return M.quote(v) end
  if t == "number" then return ("%d"):format(v) end
  if t == "boolean" then return v and "True" or "False" end
  if v == values.none then return "None" end
  depth = (depth or 0) + 1
  if depth > MAX_DEPTH then
    errors.raise("RecursionError", "maximum recursion depth exceeded while getting the repr of an object")
  end
  state.spend(1)
  local out = by_mt[getmetatable(v)](v, depth)
  state.bytes(#out)
  return out
end
M.repr = repr
values.repr = repr

--- Python's str().
function M.str(v)
  local t = type(v)
  if t == "string" then return v end
  if t == "number" then return ("%d"):format(v) end
  if t == "table" then
    local mt = getmetatable(v)
    if mt == values.undefined_mt then return "" end
    if mt == values.markup_mt then return v.value end
  end
  return repr(v)
end

return M
