-- SPDX-License-Identifier: Apache-2.0
--- Formats text: `template % values` and the presentation of one value by a format specification
--- (Python's str.__mod__ and format()). str.format itself is in methods_format.lua.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local text = require("tpl.jinja.text")
local repr = require("tpl.jinja.repr")
local values = require("tpl.jinja.values")
local number = require("tpl.jinja.number")
local compare = require("tpl.jinja.compare")

local M = {}

--- Pad to a width; align is "<", ">", "^" or "=" (after the sign, and after "0x" if `prefixed`).
function M.pad(s, width, align, fill, prefixed)
  local missing = width - text.len(s)
  if missing <= 0 then return s end
  state.bytes(#s + missing * #fill)
  if align == "<" then return s .. fill:rep(missing) end
  if align == "^" then
    local left = math.floor(missing / 2)
    return fill:rep(left) .. s .. fill:rep(missing - left)
  end
  if align == "=" then
    local sign, rest = s:match(prefixed and "^([+ -]?0[xXob])(.*)$" or "^([+ -]?)(.*)$")
    return sign .. fill:rep(missing) .. rest
  end
  return fill:rep(missing) .. s
end

local function with_sign(s, plus)
  if s:sub(1, 1) == "-" or plus == "" or plus == "-" then return s end
  return plus .. s
end

-- Digits of a whole number in a base, without sign.
local function in_base(v, base)
  if base == 10 then return (repr.int(v):gsub("^-", "")) end
  local out, n = {}, number.abs(v)
  repeat
    local digit
    digit = number.mod(n, base)
    n = number.floordiv(n, base)
    out[#out + 1] = ("0123456789abcdef"):sub(digit + 1, digit + 1)
  until compare.number(n) == 0
  return table.concat(out):reverse()
end

local bases = { d = 10, i = 10, u = 10, n = 10, b = 2, o = 8, x = 16, X = 16 }
local base_prefix = { b = "0b", o = "0o", x = "0x", X = "0X" }

-- Text of an int in a presentation, with sign and prefix.
local function int_text(v, kind, alternate, plus)
  v = type(v) == "boolean" and (v and 1 or 0) or v
  local digits = in_base(v, bases[kind])
  if kind == "X" then digits = digits:upper() end
  if alternate then digits = (base_prefix[kind] or "") .. digits end
  return with_sign((compare.number(v) < 0 and "-" or "") .. digits, plus)
end

-- Text of a double; precision is capped where doubles have no digits left to show.
local function float_text(x, kind, precision, alternate, plus)
  if x ~= x or x == math.huge or x == -math.huge then
    local s = repr.float(x)
    return with_sign(kind:find("%u") and s:upper() or s, plus)
  end
  local flags = alternate and "#" or ""
  local digits = math.min(precision or 6, 99)
  local s
  if kind:lower() == "f" and not alternate then
    s = repr.fixed(x, digits)
  else
    s = ("%%%s.%d%s"):format(flags, digits, kind == "F" and "f" or kind):format(x)
  end
  if precision and precision > 99 and kind:lower() == "f" then
    state.bytes(precision)
    s = s .. ("0"):rep(precision - 99)
  end
  return with_sign(s, plus)
end

-- Thousands separators in the integer part.
local function group(s, mark)
  local head, digits, tail = s:match("^(%D*)(%d+)(.*)$")
  if not digits then return s end
  digits = digits:reverse():gsub("(%d%d%d)", "%1" .. mark):reverse()
  if digits:sub(1, 1) == mark then digits = digits:sub(2) end
  return head .. digits .. tail
end

local function bad_code(code, v)
  errors.raise("ValueError", "Unknown format code '%s' for object of type '%s'", code, values.kind(v))
end

local function parse_spec(spec)
  local fill, align, rest
  local first = spec:match("^[%z\1-\127\192-\255][\128-\191]*")
  if first and spec:find("^[<>=^]", #first + 1) then
    fill, align, rest = first, spec:sub(#first + 1, #first + 1), spec:sub(#first + 2)
  else
    align, rest = spec:match("^([<>=^]?)(.*)$")
  end
  local plus, alt, zero, width, mark, dot, kind = rest:match("^([ +-]?)(#?)(0?)(%d*)([,_]?)(%.?%d*)(%a?)$")
  if not plus or dot == "." then errors.raise("ValueError", "Invalid format specifier") end
  if zero ~= "" and align == "" then fill, align = fill or "0", "=" end
  return {
    fill = fill or " ", align = align, plus = plus, alternate = alt ~= "", mark = mark, kind = kind,
    width = tonumber(width) or 0, precision = tonumber(dot:match("%d+")),
  }
end

local function present_float(x, spec, v)
  local kind = spec.kind
  local s
  if kind == "" and not spec.precision then
    s = with_sign(repr.float(x), spec.plus)
  elseif kind == "%" then
    s = float_text(x * 100, "f", spec.precision, spec.alternate, spec.plus) .. "%"
  elseif kind == "" or kind:find("^[eEfFgGn]$") then
    s = float_text(x, (kind == "" or kind == "n") and "g" or kind, spec.precision, spec.alternate, spec.plus)
  else
    bad_code(kind, v)
  end
  return spec.mark ~= "" and group(s, spec.mark) or s
end

local function present_int(v, spec)
  local kind = spec.kind == "" and "d" or spec.kind
  if kind == "c" then return text.char(compare.number(v)) end
  if kind:find("^[eEfFgG%%]$") then return present_float(compare.number(v), spec, v) end
  if not bases[kind] then bad_code(kind, v) end
  local s = int_text(v, kind, spec.alternate, spec.plus)
  return spec.mark ~= "" and group(s, spec.mark) or s
end

--- Python's format(v, spec).
function M.present(v, spec_text)
  if spec_text == "" then return repr.str(v) end
  -- "%" is no letter: take it off before the pattern sees it.
  local percent = spec_text:sub(-1) == "%"
  local spec = parse_spec(percent and spec_text:sub(1, -2) or spec_text)
  if percent then spec.kind = "%" end
  local s = values.text(v)
  if s then
    if spec.kind ~= "" and spec.kind ~= "s" then bad_code(spec.kind, v) end
    if spec.precision then s = text.slice(s, 0, math.min(spec.precision, text.len(s))) end
    return M.pad(s, spec.width, spec.align == "" and "<" or spec.align, spec.fill)
  end
  if values.is_float(v) then
    s = present_float(v.value, spec, v)
  elseif values.is_int(v) or type(v) == "boolean" then
    s = present_int(v, spec)
  else
    errors.raise("TypeError", "unsupported format string passed to %s.__format__", values.kind(v))
  end
  return M.pad(s, spec.width, spec.align == "" and ">" or spec.align, spec.fill, s:find("^[+ -]?0[xXob]"))
end

-- One conversion of `%`: returns the text before padding and whether zeros may pad it.
local function convert(kind, v, precision, alternate, plus)
  if kind == "s" or kind == "r" or kind == "a" then
    local s = kind == "s" and repr.str(v) or repr.repr(v)
    if precision then s = text.slice(s, 0, math.min(precision, text.len(s))) end
    return s, false
  elseif kind == "c" then
    local s = values.text(v)
    if s and text.len(s) == 1 then return s, false end
    if not values.is_int(v) then errors.raise("TypeError", "%%c requires int or char") end
    return text.char(compare.number(v)), false
  end
  local x = compare.number(v)
  if not x then
    if values.is_undefined(v) then values.fail_undefined(v) end
    local need = kind:find("[eEfFgG]") and "must be real number, not %s"
      or "%%" .. kind .. " format: a real number is required, not %s"
    errors.raise("TypeError", need, values.kind(v))
  end
  if bases[kind] then
    if values.is_float(v) then
      if kind:find("[xXo]") then
        errors.raise("TypeError", "%%%s format: an integer is required, not float", kind)
      end
      v = number.from_double(x)
    end
    local s = int_text(v, kind, alternate, plus)
    if precision then
      local sign, digits = s:match("^([+ -]?)(.*)$")
      s = sign .. M.pad(digits, precision, ">", "0")
    end
    return s, true
  end
  return float_text(x, kind, precision, alternate, plus), x == x and math.abs(x) ~= math.huge
end

-- Where the values of a `%` come from: a tuple in turn, a dict by name, or a single value.
local function source_of(args)
  local is_tuple = values.is_tuple(args)
  local mapping = values.is_dict(args) and args
  local at = 0
  local src = {}
  function src.next()
    at = at + 1
    local v = args
    if is_tuple then v = args[at] elseif at > 1 then v = nil end
    if v == nil then errors.raise("TypeError", "not enough arguments for format string") end
    return v
  end
  function src.named(name)
    if not mapping then errors.raise("TypeError", "format requires a mapping") end
    local v = values.dict_get(mapping, name)
    if v == nil then errors.raise("KeyError", "%s", repr.quote(name)) end
    return v
  end
  function src.finish()
    local left = is_tuple and at < #args or not is_tuple and at == 0 and not mapping
      and not values.is_list(args) and not values.is_undefined(args)
    if left then errors.raise("TypeError", "not all arguments converted during string formatting") end
  end
  return src
end

-- Width or precision: digits, or "*" for the next value.
local function size(word, src)
  if word == "*" then return src.next() end
  return tonumber(word)
end

--- Python's `template % args`.
function M.percent(template, args)
  local src = source_of(args)
  local out, p, grown = {}, 1, #template
  while true do
    local q = template:find("%", p, true)
    out[#out + 1] = template:sub(p, (q or 0) - 1)
    if not q then break end
    local name, after = template:match("^%((.-)%)()", q + 1)
    local flags, width, dot, kind, stop = template:match("^([#0 +-]*)([%d*]*)(%.?[%d*]*)[hlL]?(.)()", after or q + 1)
    if not kind then errors.raise("ValueError", "incomplete format") end
    p = stop
    if kind == "%" then
      out[#out + 1] = "%"
    else
      width = size(width, src)
      local precision
      if dot ~= "" then precision = size(dot:sub(2), src) or 0 end
      if not kind:find("[diuoxXeEfFgGcrsa]") then
        errors.raise("ValueError", "unsupported format character '%s' (0x%x) at index %d", kind, kind:byte(),
          stop - 2)
      end
      local v
      if name then v = src.named(name) else v = src.next() end
      local plus = flags:find("+", 1, true) and "+" or flags:find(" ", 1, true) and " " or ""
      local s, zeros = convert(kind, v, precision, flags:find("#", 1, true) ~= nil, plus)
      if width then
        local left = flags:find("-", 1, true) or width < 0
        local zero = zeros and flags:find("0", 1, true)
        s = M.pad(s, math.abs(width), left and "<" or zero and "=" or ">", not left and zero and "0" or " ",
          s:find("^[+ -]?0[xXob]"))
      end
      out[#out + 1] = s
      grown = grown + #s
      state.grow(grown, #s + 32)
    end
  end
  src.finish()
  return table.concat(out)
end

return M
