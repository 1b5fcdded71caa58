-- SPDX-License-Identifier: Apache-2.0
--- Implements str methods that search, replace and pad: name -> fn(self, args, kwargs).
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local text = require("tpl.jinja.text")
local values = require("tpl.jinja.values")
local call = require("tpl.jinja.call")
local format = require("tpl.jinja.format")
local str_edit = require("tpl.jinja.str_edit")

local M = {}

--- Define a method; fn gets self and the bound parameters.
local function method(name, params, fn)
  local bound = call.bind("str." .. name, "self " .. params, fn)
  M[name] = function(self, args, kwargs)
    return bound({ self, unpack(args) }, kwargs)
  end
end

-- Searching ---------------------------------------------------------------------------------------

-- Byte range of Python indices start and stop.
local function window(s, first, last)
  local n = text.len(s)
  first, last = call.opt_int(first, 0), call.opt_int(last, n)
  if first < 0 then first = math.max(0, first + n) end
  if last < 0 then last = math.max(0, last + n) end
  last = math.min(last, n)
  if first > last then return nil end
  local head = text.slice(s, 0, first)
  return #head + 1, #head + #text.slice(s, first, last)
end

local function find_first(s, part, from, to)
  local p, q = s:find(part, from, true)
  return p and q <= to and p or nil
end

local function find_last(s, part, from, to)
  for p = to - #part + 1, from, -1 do
    if s:sub(p, p + #part - 1) == part then return p end
  end
  return nil
end

local function finder(name, search, on_missing)
  method(name, "sub start? end?", function(s, part, first, last)
    part = call.need_str(part, name .. "() argument")
    state.bytes(#s)
    local from, to = window(s, first, last)
    local p = from and search(s, part, from, to)
    return p and text.index_of(s, p) or on_missing()
  end)
end

local function minus_one() return -1 end
local function not_found() return errors.raise("ValueError", "substring not found") end

finder("find", find_first, minus_one)
finder("rfind", find_last, minus_one)
finder("index", find_first, not_found)
finder("rindex", find_last, not_found)

method("count", "sub start? end?", function(s, part, first, last)
  part = call.need_str(part, "count() argument")
  state.bytes(#s)
  local from, to = window(s, first, last)
  if not from then return 0 end
  if part == "" then return text.len(s:sub(from, to)) + 1 end
  local n = 0
  while true do
    local p, q = s:find(part, from, true)
    if not p or q > to then return n end
    n, from = n + 1, q + 1
  end
end)

local function affix(name, matches)
  method(name, "prefix start? end?", function(s, part, first, last)
    local from, to = window(s, first, last)
    local options = values.is_tuple(part) and part or { part }
    for i = 1, #options do
      local p = values.text(options[i])
      if not p then
        errors.raise("TypeError", "%s first arg must be str or a tuple of str, not %s", name,
          values.kind(options[i]))
      end
      if from and matches(s:sub(from, to), p) then return true end
    end
    return false
  end)
end

affix("startswith", function(s, p) return s:sub(1, #p) == p end)
affix("endswith", function(s, p) return p == "" or s:sub(-#p) == p and #s >= #p end)

method("replace", "old new count?", function(s, old, new, max)
  old = call.need_str(old, "replace() argument 1")
  new = call.need_str(new, "replace() argument 2")
  return str_edit.replace(s, old, new, call.opt_int(max, -1))
end)

-- Layout ------------------------------------------------------------------------------------------

local function padder(name, align)
  method(name, "width fillchar?", function(s, width, fill)
    fill = call.opt(fill, " ")
    if not values.text(fill) or text.len(values.text(fill)) ~= 1 then
      errors.raise("TypeError", "The fill character must be exactly one character long")
    end
    return format.pad(s, call.opt_int(width, 0), align, values.text(fill))
  end)
end

padder("ljust", "<")
padder("rjust", ">")

method("center", "width fillchar?", function(s, width, fill)
  return str_edit.center(s, call.opt_int(width, 0), call.need_str(call.opt(fill, " "), "fill character"))
end)

method("zfill", "width", function(s, width)
  return format.pad(s, call.opt_int(width, 0), "=", "0")
end)

method("expandtabs", "tabsize?", function(s, size)
  size = call.opt_int(size, 8)
  state.chars(#s)
  local out, column = {}, 0
  for c in text.each(s) do
    if c == "\t" then
      local n = size > 0 and size - column % size or 0
      state.bytes(n)
      out[#out + 1] = (" "):rep(n)
      column = column + n
    else
      column = (c == "\n" or c == "\r") and 0 or column + 1
      out[#out + 1] = c
    end
  end
  return table.concat(out)
end)

return M
