-- SPDX-License-Identifier: Apache-2.0
--- Defines the functions that every chat template can call: range, dict, namespace, joiner, cycler,
--- raise_exception, strftime_now.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local repr = require("tpl.jinja.repr")
local values = require("tpl.jinja.values")
local iter = require("tpl.jinja.iter")
local call = require("tpl.jinja.call")
local macro = require("tpl.jinja.macro")
local strftime = require("tpl.jinja.strftime")
local methods_data = require("tpl.jinja.methods_data")

local M = {}

-- The sandbox's MAX_RANGE.
local MAX_RANGE = 100000

local function global(name, fn)
  M[name] = values.func(name, fn)
end

local function range_argument(v)
  if type(v) == "boolean" then return v and 1 or 0 end
  if values.is_int(v) then
    if type(v) ~= "number" then errors.raise("OverflowError", "Python int too large to convert to C ssize_t") end
    return v
  end
  if values.is_undefined(v) then errors.raise("TypeError", "'Undefined' object cannot be interpreted as an integer") end
  return errors.raise("TypeError", "'%s' object cannot be interpreted as an integer", values.kind(v))
end

global("range", function(args, kwargs)
  if kwargs then errors.raise("TypeError", "range() takes no keyword arguments") end
  if #args == 0 then errors.raise("TypeError", "range expected at least 1 argument, got 0") end
  if #args > 3 then errors.raise("TypeError", "range expected at most 3 arguments, got %d", #args) end
  local start, stop, step = 0, range_argument(args[1]), 1
  if #args > 1 then start, stop = stop, range_argument(args[2]) end
  if #args > 2 then step = range_argument(args[3]) end
  if step == 0 then errors.raise("ValueError", "range() arg 3 must not be zero") end
  local n = math.max(0, math.ceil((stop - start) / step))
  if n > MAX_RANGE then
    errors.raise("OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", MAX_RANGE)
  end
  return setmetatable({ start = start, stop = stop, step = step, n = n }, values.range_mt)
end)

-- dict(mapping or pairs, **kwargs)
local function make_dict(args, kwargs)
  if #args > 1 then errors.raise("TypeError", "dict expected at most 1 argument, got %d", #args) end
  local out = values.dict()
  local from = args[1]
  if from ~= nil and values.is_dict(from) then
    out = values.dict_copy(from)
  elseif from ~= nil then
    for item in iter.iter(from) do
      local pair = iter.unpack(item, 2)
      values.dict_set(out, pair[1], pair[2])
    end
  end
  if kwargs then
    for i = 1, kwargs.n do values.dict_set(out, kwargs.keys[i], kwargs.vals[i]) end
  end
  return out
end

M.dict = setmetatable({
  type = "TemplateDict",
  call = make_dict,
  attr = function(self, name)
    if name ~= "fromkeys" then return nil end
    return values.func(name, function(args, kwargs)
      return methods_data.fromkeys({ self, unpack(args) }, kwargs)
    end)
  end,
}, values.object_mt)

global("namespace", function(args, kwargs)
  local ns = setmetatable({ attrs = values.dict() }, values.namespace_mt)
  local given = make_dict(args, kwargs)
  for i = 1, given.n do macro.set_namespace(ns, given.keys[i], given.vals[i]) end
  return ns
end)

global("joiner", call.bind("joiner", "sep?", function(separator)
  local used = false
  return setmetatable({
    type = "Joiner",
    attr = function() return nil end,
    call = function()
      if used then return separator == nil and ", " or separator end
      used = true
      return ""
    end,
  }, values.object_mt)
end))

global("cycler", function(args)
  if #args == 0 then errors.raise("RuntimeError", "at least one item has to be provided") end
  local items, at = { unpack(args) }, 0
  local attributes = {
    current = function() return items[at + 1] end,
    items = function() return values.tuple({ unpack(items) }) end,
    pos = function() return at end,
    next = function()
      return values.func("next", function()
        local item = items[at + 1]
        at = (at + 1) % #items
        return item
      end)
    end,
    reset = function()
      return values.func("reset", function()
        at = 0
        return values.none
      end)
    end,
  }
  return setmetatable({
    type = "Cycler",
    attr = function(_, name)
      local get = attributes[name]
      if not get then return nil end
      return get()
    end,
  }, values.object_mt)
end)

global("raise_exception", call.bind("raise_exception", "message", function(message)
  errors.raise("TemplateError", "%s", repr.str(message))
end))

global("strftime_now", call.bind("strftime_now", "format", function(format)
  local run = state.current()
  run.now = run.now or os.date("*t")
  return strftime.format(values.text(format), run.now)
end))

global("lipsum", function()
  return errors.raise("TemplateRuntimeError", "lipsum is not supported")
end)

return M
