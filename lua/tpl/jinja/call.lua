-- SPDX-License-Identifier: Apache-2.0
--- Calls values and binds arguments to parameters by Python's rules.
local errors = require("tpl.jinja.errors")
local values = require("tpl.jinja.values")

local M = {}

--- Call a value with positional arguments and keywords (a dict or nil).
function M.invoke(callee, args, kwargs)
  if type(callee) == "table" then
    local fn = callee.call
    if fn and getmetatable(callee) ~= values.dict_mt then return fn(args, kwargs) end
    if values.is_undefined(callee) then values.fail_undefined(callee) end
  end
  return errors.raise("TypeError", "'%s' object is not callable", values.kind(callee))
end

function M.is_callable(v)
  return type(v) == "table" and v.call ~= nil
end

local function quoted_list(names)
  local out = {}
  for i, name in ipairs(names) do out[i] = "'" .. name .. "'" end
  if #out < 3 then return table.concat(out, " and ") end
  local last = table.remove(out)
  return table.concat(out, ", ") .. ", and " .. last
end

local function bind_keywords(name, bound, index, kwargs)
  for i = 1, kwargs.n do
    local key = kwargs.keys[i]
    local at = index[key]
    if not at then errors.raise("TypeError", "%s() got an unexpected keyword argument '%s'", name, key) end
    if bound[at] ~= nil then errors.raise("TypeError", "%s() got multiple values for argument '%s'", name, key) end
    bound[at] = kwargs.vals[i]
  end
end

local function check_required(name, bound, names, required)
  local missing = {}
  for i = 1, required do
    if bound[i] == nil then missing[#missing + 1] = names[i] end
  end
  if #missing > 0 then
    errors.raise("TypeError", "%s() missing %d required positional argument%s: %s", name, #missing,
      #missing == 1 and "" or "s", quoted_list(missing))
  end
end

--- Wrap fn(a, b, ...) as a function of (args, kwargs).
--- `params` lists names; "name?" is optional and arrives as nil when not given.
---@param name string        as Python names it in messages
---@param params string      "s old new count?"
---@param fn function
function M.bind(name, params, fn)
  local names, index, required = {}, {}, 0
  for word in params:gmatch("%S+") do
    local plain = word:gsub("%?$", "")
    names[#names + 1] = plain
    index[plain] = #names
    if plain == word then required = #names end
  end
  local total = #names
  return function(args, kwargs)
    local given = #args
    if given > total then
      errors.raise("TypeError", "%s() takes %s%d positional arguments but %d were given", name,
        required < total and "at most " or "", total, given)
    end
    if not kwargs and given == total then return fn(unpack(args, 1, total)) end
    local bound = {}
    for i = 1, given do bound[i] = args[i] end
    if kwargs then bind_keywords(name, bound, index, kwargs) end
    check_required(name, bound, names, required)
    return fn(unpack(bound, 1, total))
  end
end

--- Value of an optional parameter: None counts as not given.
function M.opt(v, default)
  if v == nil or v == values.none then return default end
  return v
end

--- Optional int parameter as a Lua number.
function M.opt_int(v, default)
  if v == nil or v == values.none then return default end
  if type(v) == "boolean" then return v and 1 or 0 end
  if type(v) ~= "number" then
    if values.is_undefined(v) then values.fail_undefined(v) end
    errors.raise("TypeError", "'%s' object cannot be interpreted as an integer", values.kind(v))
  end
  return v
end

--- Parameter that must be a str.
function M.need_str(v, what)
  local s = values.text(v)
  if not s then
    errors.raise("TypeError", "%s must be str, not %s", what, values.kind(v))
  end
  return s
end

return M
