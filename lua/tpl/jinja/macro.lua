-- SPDX-License-Identifier: Apache-2.0
--- Makes macro values and namespaces: what `macro`, `call` and `set ns.x` work on at run time.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local values = require("tpl.jinja.values")

local M = {}

--- Store into a namespace; transformers forbids names that begin with an underscore.
function M.set_namespace(ns, name, value)
  if type(name) == "string" and name:sub(1, 1) == "_" then
    errors.raise("SecurityError", "Chat templates cannot store underscore-prefixed attributes on a namespace, but" ..
      " got %s. Please rename the attribute.", values.repr(name))
  end
  values.dict_set(ns.attrs, name, value)
end

function M.template_reference()
  return setmetatable({
    type = "TemplateReference",
    attr = function() return nil end,
    text = function() return "<TemplateReference None>" end,
  }, values.object_mt)
end

-- Keywords as a copy from which each is taken once.
local function take_from(kwargs)
  local left = {}
  if kwargs then
    for i = 1, kwargs.n do left[kwargs.keys[i]] = kwargs.vals[i] end
  end
  return left
end

-- Keywords not taken, in their order.
local function rest_of(kwargs, left)
  local out = values.dict()
  if kwargs then
    for i = 1, kwargs.n do
      local key = kwargs.keys[i]
      if left[key] ~= nil then values.dict_set(out, key, left[key]) end
    end
  end
  return out
end

local function check_keywords(spec, rest)
  if rest.n == 0 then return end
  if values.dict_get(rest, "caller") ~= nil then
    errors.raise("TypeError", "macro %s was invoked with two values for the special caller argument. This is" ..
      " most likely a bug.", values.repr(spec.name or values.none))
  end
  errors.raise("TypeError", "macro %s takes no keyword argument %s", values.repr(spec.name or values.none),
    values.repr(rest.keys[1]))
end

-- Put positional arguments and keywords into the slots of the frame.
local function bind(spec, f, args, kwargs)
  local params = spec.params
  local left = take_from(kwargs)
  for i = 1, #params do
    local name = params[i].name
    local v = args[i]
    if v == nil then
      v = left[name]
      left[name] = nil
    end
    f[params[i].slot] = v
  end
  if spec.slots.caller then
    f[spec.slots.caller] = left.caller or values.undefined("caller", nil, "No caller defined")
    left.caller = nil
  end
  local rest = rest_of(kwargs, left)
  if spec.slots.kwargs then f[spec.slots.kwargs] = rest else check_keywords(spec, rest) end
  if spec.slots.varargs then
    f[spec.slots.varargs] = values.tuple({ unpack(args, #params + 1) })
  elseif #args > #params then
    errors.raise("TypeError", "macro %s takes not more than %d argument(s)", values.repr(spec.name or values.none),
      #params)
  end
end

-- Give parameters that got nothing their default, one after the other.
local function fill_defaults(spec, f)
  for i = 1, #spec.params do
    local p = spec.params[i]
    if f[p.slot] == nil then
      if p.default then
        f[p.slot] = p.default(f)
      else
        f[p.slot] = values.undefined(p.name, nil, ("parameter '%s' was not provided"):format(p.name))
      end
    end
  end
end

--- Macro value over the frame where it was defined.
---@param spec table   made by compile.lua
function M.new(spec, definer)
  local names = {}
  for i, p in ipairs(spec.params) do names[i] = p.name end
  return setmetatable({
    name = spec.name or values.none,
    arguments = values.tuple(names),
    caller = spec.catches_caller == true,
    catch_kwargs = spec.slots.kwargs ~= nil,
    catch_varargs = spec.slots.varargs ~= nil,
    call = function(args, kwargs)
      state.enter()
      local line = state.current().line
      local f = { up = definer, ctx = definer.ctx }
      bind(spec, f, args, kwargs)
      spec.enter(f)
      fill_defaults(spec, f)
      local out = spec.render(f)
      state.leave()
      state.current().line = line
      return out
    end,
  }, values.macro_mt)
end

return M
