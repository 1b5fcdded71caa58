-- SPDX-License-Identifier: Apache-2.0
--- Read the numbers of a model's configuration through one range table.
-- A value from a file is used for nothing before it went through one of these methods (reliability.md A5): each takes a key and
-- gives the checked value, or throws a `format` error that names the key, what it holds and what was expected.
local err = require("tpl.err")

local M = {}

---@class tpl.config.Reader
---@field get fun(key: string): any     the raw value, nil when absent; JSON null counts as absent
---@field locate fun(key: string): string   `where` of a key, "config.json:12"
---@field prefix string
local Reader = {}
Reader.__index = Reader

--- Largest value of each kind of number; a file that states more is lying or not meant for this program.
M.limits = {
  layers = 1024,
  vocab = 4194304,
  heads = 65536,
  head_dim = 65536,
  hidden = 2 ^ 24,
  ffn = 2 ^ 26,
  context = 2 ^ 30,
}

--- Spell a value for a message.
local function shown(value)
  if type(value) == "string" then
    return string.format("the string %q", #value > 40 and value:sub(1, 40) .. ".." or value)
  elseif type(value) == "number" then
    return string.format("%.17g", value)
  elseif type(value) == "table" then
    return "a list or table"
  end
  return tostring(value)
end

---@param get fun(key: string): any
---@param locate fun(key: string): string
---@param prefix? string   path of the enclosing object in messages
---@return tpl.config.Reader
function M.new(get, locate, prefix)
  return setmetatable({ get = get, locate = locate, prefix = prefix or "" }, Reader)
end

--- Refuse the value of a key.
function Reader:bad(key, message, hint)
  err.throw({ code = "format", where = self.locate(key), message = self.prefix .. key .. " " .. message, hint = hint })
end

--- Refuse something that is valid but that this version does not do.
function Reader:unsupported(key, message, hint)
  err.throw({ code = "unsupported", where = self.locate(key), message = self.prefix .. key .. " " .. message, hint = hint, key = self.prefix .. key })
end

--- Check an integer that is already in hand.
function Reader:as_int(key, value, min, max)
  if type(value) ~= "number" then
    self:bad(key, string.format("is %s, an integer is needed", shown(value)))
  end
  if value ~= math.floor(value) or value < min or value > max then
    self:bad(key, string.format("is %s, an integer from %d to %d is needed", shown(value), min, max))
  end
  return value
end

--- Give a checked integer. Absent: `default`, or an error when that is nil.
---@param key string
---@param min number
---@param max number
---@param default? number
---@return number
function Reader:int(key, min, max, default)
  local value = self.get(key)
  if value == nil then
    if default ~= nil then return default end
    self:bad(key, string.format("is missing, an integer from %d to %d is needed", min, max))
  end
  return self:as_int(key, value, min, max)
end

--- Give a checked finite number in [min, max].
function Reader:num(key, min, max, default)
  local value = self.get(key)
  if value == nil then
    if default ~= nil then return default end
    self:bad(key, "is missing, a number is needed")
  end
  if type(value) ~= "number" or value ~= value or value < min or value > max then
    self:bad(key, string.format("is %s, a number from %g to %g is needed", shown(value), min, max))
  end
  return value
end

--- Give a boolean; absent is false unless told otherwise.
function Reader:bool(key, default)
  local value = self.get(key)
  if value == nil then return default or false end
  if type(value) ~= "boolean" then
    self:bad(key, string.format("is %s, true or false is needed", shown(value)))
  end
  return value
end

--- Give a string or nil.
function Reader:str(key)
  local value = self.get(key)
  if value == nil then return nil end
  if type(value) ~= "string" then
    self:bad(key, string.format("is %s, a string is needed", shown(value)))
  end
  return value
end

--- Give a table (JSON object or array) or nil.
function Reader:table(key)
  local value = self.get(key)
  if value == nil then return nil end
  if type(value) ~= "table" then
    self:bad(key, string.format("is %s, an object is needed", shown(value)))
  end
  return value
end

--- Give a JSON object or nil; a list is refused.
function Reader:object(key)
  local value = self:table(key)
  if value and value[1] ~= nil then self:bad(key, "is a list, an object is needed") end
  return value
end

--- Give a list of token ids from a key that holds one id, a list of ids, or nothing.
function Reader:ids(key, vocab)
  local value = self.get(key)
  if value == nil then return {} end
  if type(value) ~= "table" then value = { value } end
  local out = {}
  for i = 1, #value do
    out[i] = self:as_int(key, value[i], 0, vocab - 1)
  end
  return out
end

--- Give a reader of an object inside this one; messages name the whole path.
---@param key string
---@param inner table
---@return tpl.config.Reader
function Reader:inside(key, inner)
  return M.new(function(k) return M.member(inner, k) end, self.locate, self.prefix .. key .. ".")
end

--- Give a member of a decoded JSON object; null is absent.
function M.member(object, key)
  local value = object[key]
  if type(value) == "userdata" then return nil end
  return value
end

M.shown = shown
return M
