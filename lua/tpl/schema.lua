-- SPDX-License-Identifier: Apache-2.0
--- Check tables against a description of their fields: types, ranges, defaults, nearest names for unknown fields.
-- A rule is a function(value) -> checked value, or nil and what was expected. `fields` makes a rule of a table of rules.
local suggest = require("tpl.suggest")
local util = require("tpl.util")

local M = {}

---@alias tpl.Rule fun(value: any): any, string?, string?, string?   checked; or nil, what is wrong, path of the field inside, hint

local function shown(value)
  if type(value) == "string" then return string.format("%q", value) end
  if type(value) == "number" then return string.format("%.14g", value) end
  return type(value) == "boolean" and tostring(value) or "a " .. type(value)
end

--- Accept a whole number in [min, max].
function M.int(min, max)
  return function(v)
    if type(v) == "number" and v == math.floor(v) and v >= min and v <= max then return v end
    return nil, string.format("is %s, a whole number from %.14g to %.14g is needed", shown(v), min, max)
  end
end

--- Accept a number in [min, max].
function M.num(min, max)
  return function(v)
    if type(v) == "number" and v >= min and v <= max then return v end
    return nil, string.format("is %s, a number from %.14g to %.14g is needed", shown(v), min, max)
  end
end

--- Accept values of some Lua types.
function M.type(...)
  local names = { ... }
  return function(v)
    if util.has(names, type(v)) then return v end
    return nil, string.format("is %s, a %s is needed", shown(v), table.concat(names, " or "))
  end
end

--- Accept a string that is not empty.
function M.text()
  return function(v)
    if type(v) == "string" and v ~= "" then return v end
    return nil, string.format("is %s, a text is needed", shown(v))
  end
end

--- Accept one of some words.
function M.oneof(...)
  local words = { ... }
  return function(v)
    if util.has(words, v) then return v end
    return nil, string.format("is %s, one of %s is needed", shown(v), table.concat(words, ", "))
  end
end

--- Accept a list whose items all pass.
function M.list(rule, least)
  return function(v)
    if type(v) ~= "table" then return nil, string.format("is %s, a list is needed", shown(v)) end
    local out = {}
    for k in pairs(v) do
      if type(k) ~= "number" then return nil, string.format("has the field '%s', a plain list is needed", tostring(k)) end
    end
    for i = 1, #v do
      local item, message, field, hint = rule(v[i])
      if message then return nil, message, field and string.format("[%d].%s", i, field) or string.format("[%d]", i), hint end
      out[i] = item
    end
    if #out < (least or 0) then return nil, string.format("holds %d items, at least %d are needed", #out, least) end
    return out
  end
end

--- Accept a table from names to values that all pass.
function M.map(rule)
  return function(v)
    if type(v) ~= "table" then return nil, string.format("is %s, a table is needed", shown(v)) end
    local out = {}
    for key, value in util.pairs(v) do
      if type(key) ~= "string" then return nil, "needs names as keys, such as { tp = .. }" end
      local item, message = rule(value)
      if message then return nil, message, key end
      out[key] = item
    end
    return out
  end
end

--- Accept what passes any of the rules; the message of the last one stands.
function M.any(...)
  local rules = { ... }
  return function(v)
    local out, message, field, hint
    for _, rule in ipairs(rules) do
      out, message, field, hint = rule(v)
      if not message then return out end
    end
    return nil, message, field, hint
  end
end

--- Accept a table whose fields are described; unknown fields are refused, absent ones take the default.
---@param rules table<string, tpl.Rule>
---@param defaults? table<string, any>
---@return tpl.Rule
function M.fields(rules, defaults)
  local known = util.keys(rules)
  return function(v)
    if type(v) ~= "table" then return nil, string.format("is %s, a table is needed", shown(v)) end
    local out = {}
    for key, value in util.pairs(v) do
      if not rules[key] then
        return nil, "is no known field", tostring(key), suggest.hint(tostring(key), known, "fields")
      end
      local checked, message, inner, hint = rules[key](value)
      if message then return nil, message, inner and key .. "." .. inner or key, hint end
      out[key] = checked
    end
    for key, value in pairs(defaults or {}) do
      if out[key] == nil then out[key] = value end
    end
    return out
  end
end

return M
