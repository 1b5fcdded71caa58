-- SPDX-License-Identifier: Apache-2.0
--- Implements the methods of Python's str: name -> fn(self, args, kwargs); self is a Lua string.
--- Case, classes, stripping, splitting and joining are here, the others in methods_str_find.lua.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local text = require("tpl.jinja.text")
local unicode = require("tpl.jinja.unicode")
local values = require("tpl.jinja.values")
local iter = require("tpl.jinja.iter")
local call = require("tpl.jinja.call")
local str_format = require("tpl.jinja.str_format")

local M = {}

--- Define a method; fn gets self and the bound parameters.
local function method(name, params, fn)
  local bound = call.bind("str." .. name, "self " .. params, fn)
  M[name] = function(self, args, kwargs)
    return bound({ self, unpack(args) }, kwargs)
  end
end

local function simple(name, fn)
  method(name, "", function(s)
    state.chars(#s)
    return fn(s)
  end)
end

simple("upper", unicode.upper)
simple("lower", unicode.lower)
simple("title", unicode.title)
simple("capitalize", unicode.capitalize)
simple("swapcase", unicode.swapcase)
simple("casefold", unicode.casefold)
simple("isalpha", unicode.is_alpha)
simple("isalnum", unicode.is_alnum)
simple("isdigit", unicode.is_digit)
simple("isdecimal", unicode.is_decimal)
simple("isnumeric", unicode.is_numeric)
simple("isspace", unicode.is_space)
simple("islower", unicode.is_lower)
simple("isupper", unicode.is_upper)
simple("istitle", unicode.is_title)
simple("isprintable", unicode.is_all_printable)
simple("isascii", text.is_ascii)
simple("isidentifier", function(s)
  local first = true
  for c in text.each(s) do
    if not unicode.is_word(c, first) then return false end
    first = false
  end
  return not first
end)

-- Stripping ---------------------------------------------------------------------------------------

local function stripper(name, left, right)
  method(name, "chars?", function(s, chars)
    state.bytes(#s)
    chars = call.opt(chars)
    return text.strip(s, chars and call.need_str(chars, "strip arg"), left, right)
  end)
end

stripper("strip", true, true)
stripper("lstrip", true, false)
stripper("rstrip", false, true)
method("removeprefix", "prefix", function(s, p)
  p = call.need_str(p, "removeprefix() argument")
  return s:sub(1, #p) == p and s:sub(#p + 1) or s
end)
method("removesuffix", "suffix", function(s, p)
  p = call.need_str(p, "removesuffix() argument")
  return p ~= "" and s:sub(-#p) == p and s:sub(1, -#p - 1) or s
end)

-- Splitting and joining ---------------------------------------------------------------------------

-- Byte position of the first white space at or after byte p, or the end of the string.
local function find_space(s, p, ascii)
  if ascii then return s:find("[\t-\r\28-\31 ]", p) or #s + 1 end
  while p <= #s do
    local c = s:match("^[%z\1-\127\192-\255][\128-\191]*", p) or s:sub(p, p)
    if text.is_space(c) then return p end
    p = p + #c
  end
  return p
end

local function split_space(s, max)
  local out, p = {}, text.skip_space(s, 1)
  local ascii = text.is_ascii(s)
  if not ascii then state.chars(#s) end
  while p <= #s do
    if #out == max then
      out[#out + 1] = s:sub(p)
      break
    end
    local q = find_space(s, p, ascii)
    out[#out + 1] = s:sub(p, q - 1)
    p = text.skip_space(s, q)
  end
  return out
end

local function reverse_list(list)
  local i, j = 1, #list
  while i < j do
    list[i], list[j] = list[j], list[i]
    i, j = i + 1, j - 1
  end
  return list
end

-- Splitting from the right is splitting the reversed bytes from the left: separators are whole
-- strings, so byte order does not matter once each part is turned back.
local function split_at_right(s, sep, max)
  local out = text.split(s:reverse(), sep:reverse(), max)
  for i = 1, #out do out[i] = out[i]:reverse() end
  return reverse_list(out)
end

local function split_space_right(s, max)
  local words = split_space(s, -1)
  if max < 0 or #words <= max + 1 then return words end
  -- The first part keeps its inner white space: cut the text before the words that split off.
  local out, last = {}, #s
  for i = #words, #words - max + 1, -1 do
    local word = words[i]
    last = text.skip_space_back(s, last)
    out[#out + 1] = word
    last = last - #word
  end
  out[#out + 1] = text.strip(s:sub(1, last), nil, false, true)
  return reverse_list(out)
end

local function splitter(name, at_space, at_sep)
  method(name, "sep? maxsplit?", function(s, sep, max)
    state.bytes(#s)
    max = call.opt_int(max, -1)
    if max < 0 then max = -1 end
    sep = call.opt(sep)
    local parts
    if not sep then
      parts = at_space(s, max)
    else
      sep = call.need_str(sep, "separator")
      if sep == "" then errors.raise("ValueError", "empty separator") end
      parts = at_sep(s, sep, max)
    end
    state.items(#parts)
    return values.list(parts)
  end)
end

splitter("split", split_space, text.split)
splitter("rsplit", split_space_right, split_at_right)

method("splitlines", "keepends?", function(s, keep)
  state.bytes(#s)
  return values.list(text.lines(s, keep ~= nil and values.truth(keep)))
end)

method("partition", "sep", function(s, sep)
  sep = call.need_str(sep, "separator")
  if sep == "" then errors.raise("ValueError", "empty separator") end
  local p = s:find(sep, 1, true)
  if not p then return values.tuple({ s, "", "" }) end
  return values.tuple({ s:sub(1, p - 1), sep, s:sub(p + #sep) })
end)

method("rpartition", "sep", function(s, sep)
  sep = call.need_str(sep, "separator")
  if sep == "" then errors.raise("ValueError", "empty separator") end
  local parts = split_at_right(s, sep, 1)
  if #parts == 1 then return values.tuple({ "", "", s }) end
  return values.tuple({ parts[1], sep, parts[2] })
end)

method("join", "iterable", function(s, items)
  local parts, n = {}, 0
  if not iter.is_iterable(items) then errors.raise("TypeError", "can only join an iterable") end
  for item in iter.iter(items) do
    local part = values.text(item)
    if not part then
      errors.raise("TypeError", "sequence item %d: expected str instance, %s found", #parts, values.kind(item))
    end
    parts[#parts + 1] = part
    n = n + #part + #s
  end
  state.bytes(n)
  return table.concat(parts, s)
end)

for name, fn in pairs(require("tpl.jinja.methods_str_find")) do M[name] = fn end

M.format = str_format.format
M.format_map = function(s, args, kwargs)
  if kwargs then errors.raise("TypeError", "format_map() takes no keyword arguments") end
  if #args ~= 1 then errors.raise("TypeError", "format_map() takes exactly one argument (%d given)", #args) end
  return str_format.format(s, {}, args[1])
end

return M
