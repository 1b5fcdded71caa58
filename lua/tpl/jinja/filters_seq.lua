-- SPDX-License-Identifier: Apache-2.0
--- Implements the filters on sequences and mappings: name -> fn(args, kwargs); args[1] is the value.
--- Filters that Python writes as generators are lazy here too.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local repr = require("tpl.jinja.repr")
local values = require("tpl.jinja.values")
local iter = require("tpl.jinja.iter")
local ops = require("tpl.jinja.ops")
local compare = require("tpl.jinja.compare")
local access = require("tpl.jinja.access")
local call = require("tpl.jinja.call")
local escape = require("tpl.jinja.escape")
local path = require("tpl.jinja.attribute_path")
local tests = require("tpl.jinja.tests")

local M = {}

local opt, opt_int, truth, undefined = call.opt, call.opt_int, values.truth, values.undefined

local function filter(names, params, fn)
  local first = names:match("%S+")
  for name in names:gmatch("%S+") do
    M[name] = call.bind("do_" .. first, params, fn)
  end
end

local function flag(v)
  return v ~= nil and truth(v)
end

--- Iterator that starts its work at the first item.
local function lazy(start)
  local next
  return values.iterator(function()
    next = next or start()
    local item = next()
    if item ~= nil then state.spend(1) end
    return item
  end)
end

local function nothing() return nil end

filter("list", "value", function(v) return values.list(iter.collect(v)) end)
filter("length count", "obj", iter.len)

filter("items", "value", function(v)
  return lazy(function()
    if values.is_undefined(v) then return nothing end
    if not values.is_dict(v) then errors.raise("TypeError", "Can only get item pairs from a mapping.") end
    return iter.iter(setmetatable({ dict = v, what = "items" }, values.view_mt))
  end)
end)

filter("first", "seq", function(v)
  local item = iter.iter(v)()
  if item == nil then return undefined(nil, nil, "No first item, sequence was empty.") end
  return item
end)

filter("last", "seq", function(v)
  local next = iter.reversed(v)
  if not next then errors.raise("TypeError", "'%s' object is not reversible", values.kind(v)) end
  local item = next()
  if item == nil then return undefined(nil, nil, "No last item, sequence was empty.") end
  return item
end)

filter("random", "seq", function(v)
  local items = iter.collect(v)
  if #items == 0 then return undefined(nil, nil, "No random item, sequence was empty.") end
  return items[math.random(#items)]
end)

filter("reverse", "value", function(v)
  local s = values.text(v)
  if s then
    local out = access.slice(s, nil, nil, -1)
    return values.is_markup(v) and values.markup(out) or out
  end
  if not iter.is_iterable(v) then errors.raise("FilterArgumentError", "argument must be iterable") end
  local next = iter.reversed(v)
  if next then return values.iterator(next) end
  return values.list(compare.reverse(iter.collect(v)))
end)

filter("join", "value d? attribute?", function(v, separator, attribute)
  local get = attribute ~= nil and path.getter(attribute)
  local auto = state.current().autoescape
  local str = auto and escape.text or repr.str
  separator = str(separator == nil and "" or separator)
  local parts, size = {}, 0
  for item in iter.iter(v) do
    if get then item = get(item) end
    local s = str(item)
    parts[#parts + 1] = s
    size = size + #s + #separator
    if size > state.current().output then state.bytes(size) end
  end
  state.bytes(size)
  local out = table.concat(parts, separator)
  return auto and values.markup(out) or out
end)

-- Sorting -----------------------------------------------------------------------------------------

local function case_rule(case_sensitive)
  if flag(case_sensitive) then return nil end
  return path.ignore_case
end

filter("sort", "value reverse? case_sensitive? attribute?", function(v, reverse, case_sensitive, attribute)
  local key = path.multi_getter(attribute, case_rule(case_sensitive))
  return values.list(compare.sorted(iter.collect(v), key, flag(reverse)))
end)

filter("dictsort", "value case_sensitive? by? reverse?", function(v, case_sensitive, by, reverse)
  by = by == nil and "key" or values.text(by)
  if by ~= "key" and by ~= "value" then
    errors.raise("FilterArgumentError", 'You can only sort by either "key" or "value"')
  end
  if not values.is_dict(v) then
    if values.is_undefined(v) then values.fail_undefined(v) end
    errors.raise("AttributeError", "'%s' object has no attribute 'items'", values.kind(v))
  end
  local post, at = case_rule(case_sensitive), by == "key" and 1 or 2
  local items = iter.collect(setmetatable({ dict = v, what = "items" }, values.view_mt))
  return values.list(compare.sorted(items, function(item)
    if post then return post(item[at]) end
    return item[at]
  end, flag(reverse)))
end)

filter("unique", "value case_sensitive? attribute?", function(v, case_sensitive, attribute)
  return lazy(function()
    local get, seen, next = path.getter(attribute, case_rule(case_sensitive)), {}, iter.iter(v)
    return function()
      for item in next do
        local key = values.hash(get(item))
        if not seen[key] then
          seen[key] = true
          return item
        end
      end
    end
  end)
end)

local function extreme(better)
  return function(v, case_sensitive, attribute)
    local get = path.getter(attribute, case_rule(case_sensitive))
    local best, best_key
    for item in iter.iter(v) do
      local key = get(item)
      if best == nil or better(key, best_key) then best, best_key = item, key end
    end
    if best == nil then return undefined(nil, nil, "No aggregated item, sequence was empty.") end
    return best
  end
end

filter("min", "value case_sensitive? attribute?", extreme(compare.less))
filter("max", "value case_sensitive? attribute?", extreme(function(a, b) return compare.order(">", a, b) end))

filter("sum", "iterable attribute? start?", function(v, attribute, start)
  local get = opt(attribute) ~= nil and path.getter(attribute)
  local total = start == nil and 0 or start
  if values.is_str(total) then errors.raise("TypeError", "sum() can't sum strings [use ''.join(seq) instead]") end
  for item in iter.iter(v) do
    if get then item = get(item) end
    total = ops.add(total, item)
  end
  return total
end)

filter("groupby", "value attribute default? case_sensitive?", function(v, attribute, default, case_sensitive)
  local key = path.getter(attribute, case_rule(case_sensitive), default)
  local shown = path.getter(attribute, nil, default)
  local out, last_key = {}, nil
  for _, item in ipairs(compare.sorted(iter.collect(v), key)) do
    local k = key(item)
    if last_key == nil or not compare.equal(k, last_key) then
      out[#out + 1] = values.tuple({ shown(item), values.list({}) })
      out[#out].fields = { grouper = 1, list = 2 }
      last_key = k
    end
    local group = out[#out][2]
    group[#group + 1] = item
  end
  return values.list(out)
end)

-- Cutting -----------------------------------------------------------------------------------------

filter("batch", "value linecount fill_with?", function(v, size, fill)
  size, fill = opt_int(size), opt(fill)
  return lazy(function()
    local next = iter.iter(v)
    return function()
      local out = {}
      repeat
        local item = next()
        if item ~= nil then out[#out + 1] = item end
      until item == nil or #out >= math.max(1, size)
      if #out == 0 then return nil end
      if fill ~= nil then
        state.items(size)
        while #out < size do out[#out + 1] = fill end
      end
      return values.list(out)
    end
  end)
end)

filter("slice", "value slices fill_with?", function(v, slices, fill)
  slices, fill = opt_int(slices), opt(fill)
  return lazy(function()
    local items, i, from = iter.collect(v), -1, 0
    if slices == 0 then errors.raise("ZeroDivisionError", "integer division or modulo by zero") end
    local size, extra = math.floor(#items / slices), #items % slices
    return function()
      i = i + 1
      if i >= slices then return nil end
      local out = {}
      for k = from + 1, from + size + (i < extra and 1 or 0) do out[#out + 1] = items[k] end
      from = from + #out
      if fill ~= nil and i >= extra then out[#out + 1] = fill end
      return values.list(out)
    end
  end)
end)

-- Mapping and selecting ---------------------------------------------------------------------------

-- A list of the arguments from the n-th on.
local function rest_from(args, n)
  local out = {}
  for i = n, #args do out[#out + 1] = args[i] end
  return out
end

local function with_first(first, rest)
  local out = { first }
  for i = 1, #rest do out[i + 1] = rest[i] end
  return out
end

local function map_by_attribute(kwargs)
  for i = 1, kwargs.n do
    local key = kwargs.keys[i]
    if key ~= "attribute" and key ~= "default" then
      errors.raise("FilterArgumentError", "Unexpected keyword argument %s", repr.repr(key))
    end
  end
  return path.getter(values.dict_get(kwargs, "attribute"), nil, values.dict_get(kwargs, "default"))
end

local function map_by_filter(args, kwargs)
  if #args < 2 then errors.raise("FilterArgumentError", "map requires a filter argument") end
  local name = values.text(args[2])
  local fn = name and M.all[name]
  if not fn then errors.raise("TemplateRuntimeError", "No filter named %s.", repr.repr(args[2])) end
  local rest = rest_from(args, 3)
  return function(item) return fn(with_first(item, rest), kwargs) end
end

function M.map(args, kwargs)
  local v = args[1]
  return lazy(function()
    if not truth(v) then return nothing end
    local by_attribute = #args == 1 and kwargs and values.dict_get(kwargs, "attribute") ~= nil
    local fn = by_attribute and map_by_attribute(kwargs) or map_by_filter(args, kwargs)
    local next = iter.iter(v)
    return function()
      local item = next()
      if item == nil then return nil end
      return fn(item)
    end
  end)
end

-- fn(item) -> boolean for select and its kin: the arguments from `at` on name a test.
local function predicate(args, at, kwargs, get)
  local name, rest = args[at], rest_from(args, at + 1)
  return function(item)
    if get then item = get(item) end
    if name == nil then return truth(item) end
    return tests(name, with_first(item, rest), kwargs)
  end
end

local function selector(by_attribute, wanted)
  return function(args, kwargs)
    local v = args[1]
    return lazy(function()
      if not truth(v) then return nothing end
      local get
      if by_attribute then
        if args[2] == nil then
          errors.raise("FilterArgumentError", "Missing parameter for attribute name")
        end
        get = path.getter(args[2])
      end
      local test, next = predicate(args, by_attribute and 3 or 2, kwargs, get), iter.iter(v)
      return function()
        for item in next do
          state.spend(1)
          if test(item) == wanted then return item end
        end
      end
    end)
  end
end

M.select = selector(false, true)
M.reject = selector(false, false)
M.selectattr = selector(true, true)
M.rejectattr = selector(true, false)

filter("attr", "obj name", function(v, name)
  return access.attribute(v, call.need_str(name, "attribute name"))
end)

return M
