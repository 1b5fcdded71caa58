-- SPDX-License-Identifier: Apache-2.0
--- Looks up attributes and items as Jinja's immutable sandbox does.
--- Only what the tables below list can be reached: there is no way from a value to Lua's or Python's
--- internals. What Python would refuse becomes an undefined value that raises SecurityError when used.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local text = require("tpl.jinja.text")
local values = require("tpl.jinja.values")
local iter = require("tpl.jinja.iter")
local methods_str = require("tpl.jinja.methods_str")
local methods_data = require("tpl.jinja.methods_data")
local str_format = require("tpl.jinja.str_format")
local escape = require("tpl.jinja.escape")

local M = {}
str_format.access = M

local undefined, kind = values.undefined, values.kind

local function unsafe(v, name)
  return undefined(name, v, ("access to attribute '%s' of '%s' object is unsafe."):format(name, kind(v)),
    "SecurityError")
end

-- Attributes that every Python object has: known to exist, never handed out.
local object_attributes = {}
for name in ("class delattr dir doc eq format ge getattribute getstate gt hash init init_subclass le lt ne new " ..
  "reduce reduce_ex repr setattr sizeof str subclasshook"):gmatch("%S+") do
  object_attributes["__" .. name .. "__"] = true
end
local sized = { __len__ = true, __iter__ = true, __getitem__ = true, __contains__ = true }

local function has_internal(v, name)
  return object_attributes[name] or sized[name] and iter.try_len(v) ~= nil
end

local function bound(self, name, fn)
  return setmetatable({ name = name, call = function(args, kwargs) return fn(self, args, kwargs) end },
    values.method_mt)
end

-- Methods of Markup escape their arguments and give Markup again.
local function bound_markup(self, name, fn)
  return setmetatable({
    name = name,
    call = function(args, kwargs)
      local escaped = {}
      for i = 1, #args do escaped[i] = escape.deep(args[i]) end
      local out = fn(self.value, escaped, kwargs and escape.deep(kwargs))
      return type(out) == "string" and values.markup(out) or out
    end,
  }, values.method_mt)
end

local function data_attribute(v, type_name, name)
  local field = methods_data.fields[type_name] and methods_data.fields[type_name][name]
  if field then return field(v) end
  local fn = methods_data[type_name][name]
  if fn then return bound(v, name, fn) end
  if methods_data.unsafe[type_name] and methods_data.unsafe[type_name][name] then return unsafe(v, name) end
  return nil
end

local macro_fields = { name = true, arguments = true, caller = true, catch_kwargs = true, catch_varargs = true }

local by_mt = {
  [values.markup_mt] = function(v, name)
    if name == "__html__" then return unsafe(v, name) end
    local fn = methods_str[name]
    return fn and bound_markup(v, name, fn)
  end,
  [values.list_mt] = function(v, name) return data_attribute(v, "list", name) end,
  [values.tuple_mt] = function(v, name)
    if v.fields and v.fields[name] then return v[v.fields[name]] end
    return data_attribute(v, "tuple", name)
  end,
  [values.dict_mt] = function(v, name) return data_attribute(v, "dict", name) end,
  [values.range_mt] = function(v, name) return data_attribute(v, "range", name) end,
  [values.float_mt] = function(v, name) return data_attribute(v, "float", name) end,
  [values.namespace_mt] = function(v, name) return values.dict_get(v.attrs, name) end,
  [values.macro_mt] = function(v, name)
    if not macro_fields[name] then return nil end
    return v[name]
  end,
  [values.object_mt] = function(v, name) return v.attr(v, name) end,
  [values.undefined_mt] = function(v, name)
    if name:find("^__.*__$") then return nil end
    return values.fail_undefined(v)
  end,
}

-- The attribute, an unsafe undefined, or nil where Python raises AttributeError.
local function attribute(v, name)
  local t = type(v)
  local found
  if t == "string" then
    local fn = methods_str[name]
    if fn then return bound(v, name, fn) end
  elseif t == "table" then
    local get = by_mt[getmetatable(v)]
    if get then found = get(v, name) end
    if found == nil and values.is_int(v) then found = data_attribute(v, "int", name) end
  else
    found = data_attribute(type(v) == "boolean" and (v and 1 or 0) or v, "int", name)
  end
  if found ~= nil then return found end
  if name:byte(1) == 95 and has_internal(v, name) then return unsafe(v, name) end
  return nil
end

local function as_index(key)
  if type(key) == "number" then return key end
  if type(key) == "boolean" then return key and 1 or 0 end
  return nil
end

local function sequence_item(v, key, n, get)
  local i = as_index(key)
  if not i then return nil end
  if i < 0 then i = i + n end
  if i < 0 or i >= n then return nil end
  return get(v, i)
end

local function from_list(v, i) return v[i + 1] end

local function hashable(key)
  if type(key) ~= "table" then return true end
  local mt = getmetatable(key)
  if mt == values.tuple_mt then
    for i = 1, #key do
      if not hashable(key[i]) then return false end
    end
  end
  return mt ~= values.list_mt and mt ~= values.dict_mt and mt ~= values.view_mt
end

-- obj[key], or nil where Python raises TypeError or LookupError.
local function item(v, key)
  local s = values.text(v)
  if s then
    state.bytes(#s)
    return sequence_item(s, key, text.len(s), function(str, i) return text.slice(str, i, i + 1) end)
  end
  if type(v) ~= "table" then return nil end
  local mt = getmetatable(v)
  if mt == values.dict_mt then
    if not hashable(key) then return nil end
    return values.dict_get(v, key)
  elseif mt == values.list_mt or mt == values.tuple_mt then
    return sequence_item(v, key, #v, from_list)
  elseif mt == values.range_mt then
    return sequence_item(v, key, v.n, function(r, i) return r.start + i * r.step end)
  elseif mt == values.undefined_mt then
    values.fail_undefined(v)
  end
  return nil
end

--- v.name: the attribute, else the item, else undefined.
function M.getattr(v, name)
  local found = attribute(v, name)
  if found ~= nil then return found end
  found = item(v, name)
  if found ~= nil then return found end
  return undefined(name, v)
end

--- v[key]: the item, else for text keys the attribute, else undefined.
function M.getitem(v, key)
  local found = item(v, key)
  if found ~= nil then return found end
  local name = values.text(key)
  if name then
    found = attribute(v, name)
    if found ~= nil then return found end
    key = name
  end
  return undefined(key, v)
end

--- The attr filter: the attribute only.
function M.attribute(v, name)
  local found = attribute(v, name)
  if found ~= nil then return found end
  return undefined(name, v)
end

-- Slices ------------------------------------------------------------------------------------------

local function bound_of(v)
  if v == nil or v == values.none then return nil end
  local i = as_index(v)
  if i then return i end
  if values.is_int(v) then return v.sign * 2 ^ 53 end
  return errors.raise("TypeError", "slice indices must be integers or None or have an __index__ method")
end

local function clamp(i, n, low, high)
  if i < 0 then i = i + n end
  return math.max(low, math.min(i, high))
end

-- First index, last index (exclusive) and step for a sequence of n items, as slice.indices gives.
local function indices(n, first, last, step)
  first, last, step = bound_of(first), bound_of(last), bound_of(step) or 1
  if step == 0 then errors.raise("ValueError", "slice step cannot be zero") end
  if step > 0 then
    return first and clamp(first, n, 0, n) or 0, last and clamp(last, n, 0, n) or n, step
  end
  return first and clamp(first, n, -1, n - 1) or n - 1, last and clamp(last, n, -1, n - 1) or -1, step
end

local function slice_text(s, first, last, step)
  state.bytes(#s)
  local from, to, by = indices(text.len(s), first, last, step)
  if by == 1 then return text.slice(s, from, to) end
  local chars, out = text.chars(s), {}
  for i = from, to + (by > 0 and -1 or 1), by do out[#out + 1] = chars[i + 1] end
  return table.concat(out)
end

local function slice_range(r, first, last, step)
  local from, to, by = indices(r.n, first, last, step)
  local n = math.max(0, math.ceil((to - from) / by))
  return setmetatable({ start = r.start + from * r.step, stop = r.start + to * r.step, step = r.step * by, n = n },
    values.range_mt)
end

--- v[first:last:step]; slices bypass the sandbox lookup and raise Python's own errors.
function M.slice(v, first, last, step)
  local s = values.text(v)
  if s then
    local out = slice_text(s, first, last, step)
    return type(v) == "string" and out or values.markup(out)
  end
  local mt = type(v) == "table" and getmetatable(v)
  if mt == values.list_mt or mt == values.tuple_mt then
    local from, to, by = indices(#v, first, last, step)
    local out = {}
    for i = from, to + (by > 0 and -1 or 1), by do out[#out + 1] = v[i + 1] end
    state.items(#out)
    return setmetatable(out, mt)
  elseif mt == values.range_mt then
    return slice_range(v, first, last, step)
  elseif mt == values.undefined_mt then
    values.fail_undefined(v)
  elseif mt == values.dict_mt then
    errors.raise("TypeError", "unhashable type: 'slice'")
  end
  return errors.raise("TypeError", "'%s' object is not subscriptable", kind(v))
end

return M
