-- SPDX-License-Identifier: Apache-2.0
--- Implements str.format: "{} {0} {name.attr[key]!r:spec}". Attributes inside fields go through the
--- sandbox of access.lua like any other attribute.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local repr = require("tpl.jinja.repr")
local values = require("tpl.jinja.values")
local format = require("tpl.jinja.format")

-- `access` is set by access.lua, which needs this module through the str methods.
local M = { access = nil }

local function positional(args, index)
  local v = args[index + 1]
  if v == nil then
    errors.raise("IndexError", "Replacement index %d out of range for positional args tuple", index)
  end
  return v
end

-- The value that the first part of a field name stands for. `auto` counts the unnumbered fields.
local function first_value(name, args, kwargs, auto)
  if name == "" then
    if auto.manual then
      errors.raise("ValueError", "cannot switch from manual field specification to automatic field numbering")
    end
    auto.n = auto.n + 1
    return positional(args, auto.n - 1)
  end
  if name:find("^%d+$") then
    if auto.n > 0 then
      errors.raise("ValueError", "cannot switch from automatic field numbering to manual field specification")
    end
    auto.manual = true
    return positional(args, tonumber(name))
  end
  local v
  if kwargs and values.is_dict(kwargs) then v = values.dict_get(kwargs, name) end
  if v == nil then errors.raise("KeyError", "%s", repr.quote(name)) end
  return v
end

local function field_value(field, args, kwargs, auto)
  local first, p = field:match("^([^.%[]*)()")
  local v = first_value(first, args, kwargs, auto)
  while p <= #field do
    local attr, after = field:match("^%.([^.%[]+)()", p)
    if attr then
      v = M.access.getattr(v, attr)
    else
      local key
      key, after = field:match("^%[([^%]]+)%]()", p)
      if not key then errors.raise("ValueError", "Empty attribute in format string") end
      v = M.access.getitem(v, key:find("^%d+$") and tonumber(key) or key)
    end
    p = after
  end
  return v
end

local expand

local function convert(v, how)
  if how == "" then return v end
  if how == "!s" then return repr.str(v) end
  if how == "!r" or how == "!a" then return repr.repr(v) end
  return errors.raise("ValueError", "Unknown conversion specifier %s", how:sub(2))
end

-- Text of one replacement field, given what is between its braces.
local function replace(inside, args, kwargs, auto, depth)
  local field, how, colon, spec = inside:match("^([^!:]*)(!?[^:]*)(:?)(.*)$")
  local v = convert(field_value(field, args, kwargs, auto), how)
  if colon == "" then spec = "" end
  if spec:find("{", 1, true) then spec = expand(spec, args, kwargs, auto, depth + 1) end
  return format.present(v, spec)
end

-- Position of the brace that closes the field opened just before p.
local function closing(s, p)
  local depth = 1
  while true do
    local q = s:find("[{}]", p)
    if not q then errors.raise("ValueError", "expected '}' before end of string") end
    depth = depth + (s:sub(q, q) == "{" and 1 or -1)
    if depth == 0 then return q end
    p = q + 1
  end
end

function expand(s, args, kwargs, auto, depth)
  if depth > 2 then errors.raise("ValueError", "Max string recursion exceeded") end
  local out, p, size = {}, 1, #s
  while true do
    local q = s:find("[{}]", p)
    out[#out + 1] = s:sub(p, (q or 0) - 1)
    if not q then break end
    local c = s:sub(q, q)
    if s:sub(q + 1, q + 1) == c then
      out[#out + 1] = c
      p = q + 2
    elseif c == "}" then
      errors.raise("ValueError", "Single '}' encountered in format string")
    else
      local stop = closing(s, q + 1)
      out[#out + 1] = replace(s:sub(q + 1, stop - 1), args, kwargs, auto, depth)
      p = stop + 1
    end
    size = size + #out[#out]
    state.grow(size, #out[#out])
  end
  return table.concat(out)
end

--- str.format(*args, **kwargs).
function M.format(s, args, kwargs)
  return expand(s, args, kwargs, { n = 0, manual = false }, 1)
end

return M
