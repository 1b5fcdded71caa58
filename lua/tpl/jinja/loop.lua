-- SPDX-License-Identifier: Apache-2.0
--- Implements the `loop` variable: a cursor over an iterator that can look one item ahead.
local errors = require("tpl.jinja.errors")
local values = require("tpl.jinja.values")
local iter = require("tpl.jinja.iter")
local compare = require("tpl.jinja.compare")

local M = {}

local undefined = values.undefined

local function peek(self)
  if self.after == nil then self.after = self.next() end
  return self.after
end

-- Length without disturbing the iteration: what is left of a lazy iterator is collected.
local function length(self)
  if self.n then return self.n end
  local n = self.iterable and iter.try_len(self.iterable)
  if not n then
    local rest = {}
    for item in self.next do rest[#rest + 1] = item end
    n = #rest + self.index0 + 1 + (self.after ~= nil and 1 or 0)
    local i = 0
    self.next = function()
      i = i + 1
      return rest[i]
    end
  end
  self.n = n
  return n
end

local function cycle(self, args)
  if #args == 0 then errors.raise("TypeError", "no items for cycling given") end
  return args[self.index0 % #args + 1]
end

local function changed(self, args)
  local now = values.tuple({ unpack(args) })
  if self.last_changed and compare.equal(self.last_changed, now) then return false end
  self.last_changed = now
  return true
end

local function method(name, fn)
  return function(self)
    return values.func(name, function(args) return fn(self, args) end)
  end
end

local attributes = {
  index0 = function(self) return self.index0 end,
  index = function(self) return self.index0 + 1 end,
  revindex0 = function(self) return length(self) - self.index0 - 1 end,
  revindex = function(self) return length(self) - self.index0 end,
  first = function(self) return self.index0 == 0 end,
  last = function(self) return peek(self) == nil end,
  length = length,
  depth0 = function(self) return self.depth0 end,
  depth = function(self) return self.depth0 + 1 end,
  cycle = method("cycle", cycle),
  changed = method("changed", changed),
  previtem = function(self)
    if self.index0 == 0 then return undefined(nil, nil, "there is no previous item") end
    return self.before
  end,
  nextitem = function(self)
    local item = peek(self)
    if item == nil then return undefined(nil, nil, "there is no next item") end
    return item
  end,
}

local function attr(self, name)
  local get = attributes[name]
  if not get then return nil end
  return get(self)
end

local function describe(self)
  return ("<LoopContext %d/%d>"):format(self.index0 + 1, length(self))
end

--- Loop over `next`; `iterable` tells the length when it has one (nil: filtered).
---@param recurse fun(iterable, depth: integer): any   renders the body again, for recursive loops
function M.new(next, iterable, recurse, depth)
  local self = {
    type = "LoopContext", attr = attr, text = describe, len = length,
    next = next, iterable = iterable, index0 = -1, depth0 = depth or 0,
  }
  function self.call(args)
    if not recurse then
      errors.raise("TypeError", "The loop must have the 'recursive' marker to be called recursively.")
    end
    if #args ~= 1 then errors.raise("TypeError", "loop() takes one argument (%d given)", #args) end
    return recurse(args[1], self.depth0 + 1)
  end
  return setmetatable(self, values.object_mt)
end

--- Move to the next item; nil at the end.
function M.advance(self)
  local item = self.after
  if item == nil then item = self.next() else self.after = nil end
  if item == nil then return nil end
  self.index0 = self.index0 + 1
  self.before, self.current = self.current, item
  return item
end

return M
