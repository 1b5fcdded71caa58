-- SPDX-License-Identifier: Apache-2.0
--- Defines the Python values that templates compute with.
---   str      Lua string (UTF-8)          int    Lua number, or bigint beyond 2^53
---   bool     Lua boolean                 float  {value}
---   None     the value `none`            list, tuple  sequence tables (never hold nil)
---   dict     ordered, see dict_* below   others small tables with a metatable of this module
--- Every metatable has `kind`, the name of the Python type.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local bigint = require("tpl.jinja.bigint")

local M = {}

local function class(kind, fields)
  fields = fields or {}
  fields.kind = kind
  return fields
end

M.float_mt = class("float")
M.list_mt = class("list")
M.tuple_mt = class("tuple")
M.dict_mt = class("dict")
M.undefined_mt = class("Undefined")
M.namespace_mt = class("Namespace")
M.function_mt = class("function")      -- {name, call = function(args, kwargs)}
M.method_mt = class("builtin_function_or_method")
M.macro_mt = class("Macro")
M.range_mt = class("range")            -- {start, stop, step, n}
M.iterator_mt = class("generator")     -- {next = function() -> value or nil}
M.view_mt = class("dict_view")         -- {dict, what = "keys" | "values" | "items"}
M.markup_mt = class("Markup")          -- {value}: text that is already escaped
M.object_mt = class("object")          -- {type, attrs, call?}: loop, cycler, joiner, ...

M.none = setmetatable({}, class("NoneType"))

local function float(x)
  return setmetatable({ value = x }, M.float_mt)
end
M.float = float

function M.list(t) return setmetatable(t, M.list_mt) end
function M.tuple(t) return setmetatable(t, M.tuple_mt) end
function M.iterator(next) return setmetatable({ next = next }, M.iterator_mt) end
function M.markup(s) return setmetatable({ value = s }, M.markup_mt) end

--- Make a callable; fn gets the positional arguments as a list and the keywords as a dict or nil.
function M.func(name, fn)
  return setmetatable({ name = name, call = fn }, M.function_mt)
end

--- Make an undefined value. `exc` is the class raised by its use.
function M.undefined(name, obj, hint, exc)
  return setmetatable({ name = name, obj = obj, hint = hint, exc = exc or "UndefinedError" }, M.undefined_mt)
end

--- Name of the Python type of a value.
local function kind(v)
  local t = type(v)
  if t == "string" then return "str" end
  if t == "number" then return "int" end
  if t == "boolean" then return "bool" end
  local mt = getmetatable(v)
  if mt == M.object_mt then return v.type end
  if mt == M.view_mt then return "dict_" .. v.what end
  return mt.kind
end
M.kind = kind

local function has_mt(v, mt)
  return type(v) == "table" and getmetatable(v) == mt
end

function M.is_undefined(v) return has_mt(v, M.undefined_mt) end
function M.is_float(v) return has_mt(v, M.float_mt) end
function M.is_list(v) return has_mt(v, M.list_mt) end
function M.is_tuple(v) return has_mt(v, M.tuple_mt) end
function M.is_dict(v) return has_mt(v, M.dict_mt) end
function M.is_markup(v) return has_mt(v, M.markup_mt) end
function M.is_str(v) return type(v) == "string" or has_mt(v, M.markup_mt) end
function M.is_int(v) return type(v) == "number" or bigint.is(v) end

--- The bytes of a str or Markup, nil for anything else.
function M.text(v)
  if type(v) == "string" then return v end
  if has_mt(v, M.markup_mt) then return v.value end
  return nil
end

--- How Python names an object in an UndefinedError.
local function object_name(v)
  if v == M.none then return "None" end
  return kind(v) .. " object"
end

--- Raise the error that using an undefined value gives.
function M.fail_undefined(u)
  local message = u.hint
  if not message then
    if u.obj == nil then
      message = ("'%s' is undefined"):format(u.name)
    elseif type(u.name) ~= "string" then
      message = ("%s has no element %s"):format(object_name(u.obj), M.repr(u.name))
    else
      message = ("'%s' has no attribute '%s'"):format(object_name(u.obj), u.name)
    end
  end
  errors.raise(u.exc, "%s", message)
end

-- Set by repr.lua, which needs this module.
M.repr = nil

-- Hashing -----------------------------------------------------------------------------------------

local UNDEFINED_KEY, NAN_KEY = {}, {}

--- The Lua table key that stands for a Python dict key: equal keys (1, 1.0, True) share it.
local function hash(v)
  local t = type(v)
  if t == "string" then
    if v:byte(1) == 0 then return "\0s" .. v end
    return v
  end
  if t == "number" then return v end
  if t == "boolean" then return v and 1 or 0 end
  local mt = getmetatable(v)
  if mt == M.float_mt then
    return v.value == v.value and v.value or NAN_KEY
  elseif mt == bigint.mt then
    return "\0b" .. bigint.tostring(v)
  elseif mt == M.markup_mt then
    return hash(v.value)
  elseif mt == M.tuple_mt then
    local parts = {}
    for i = 1, #v do
      local h = hash(v[i])
      parts[i] = type(h) .. #tostring(h) .. ":" .. tostring(h)
    end
    local key = "\0t" .. table.concat(parts, ",")
    state.bytes(#key)
    return key
  elseif mt == M.undefined_mt then
    return UNDEFINED_KEY
  elseif mt == M.list_mt or mt == M.dict_mt or mt == M.view_mt then
    errors.raise("TypeError", "unhashable type: '%s'", kind(v))
  end
  return v
end
M.hash = hash

-- Dicts -------------------------------------------------------------------------------------------

function M.dict()
  return setmetatable({ n = 0, keys = {}, vals = {}, pos = {} }, M.dict_mt)
end

--- Set a key; an existing key keeps its place and its spelling, as in Python.
function M.dict_set(d, key, value)
  local h = hash(key)
  local at = d.pos[h]
  if not at then
    at = d.n + 1
    d.n = at
    d.pos[h] = at
    d.keys[at] = key
  end
  d.vals[at] = value
end

--- Value of a key, or nil.
function M.dict_get(d, key)
  local at = d.pos[hash(key)]
  return at and d.vals[at]
end

function M.dict_copy(d)
  local out = M.dict()
  for i = 1, d.n do M.dict_set(out, d.keys[i], d.vals[i]) end
  return out
end

-- Truth -------------------------------------------------------------------------------------------

--- Python's bool().
function M.truth(v)
  local t = type(v)
  if t == "boolean" then return v end
  if t == "string" then return v ~= "" end
  if t == "number" then return v ~= 0 end
  local mt = getmetatable(v)
  if mt == M.list_mt or mt == M.tuple_mt then return v[1] ~= nil end
  if mt == M.dict_mt then return v.n > 0 end
  if mt == M.undefined_mt then return false end
  if mt == M.float_mt then return v.value ~= 0 end
  if mt == M.markup_mt then return v.value ~= "" end
  if mt == M.range_mt then return v.n > 0 end
  if mt == M.view_mt then return v.dict.n > 0 end
  return v ~= M.none
end

return M
