-- SPDX-License-Identifier: Apache-2.0
--- Resolves names to variables before a template runs, by Jinja's scoping rules.
--- A scope (template, loop body, macro, with, ...) knows for each name it reads or sets a variable and
--- what the variable holds when the scope is entered:
---   "param"      given by the construct (loop target, macro parameter)
---   "resolve"    looked up in the context, as the name is read but not known outside
---   "alias"      copied from the enclosing scope's variable, as the name is set here: an inner `set`
---                never changes the outer variable
---   "undefined"  nothing yet
--- Branches of an `if` share their scope; a name that only some of them set begins as alias or resolve.
--- Variables live in slots of the function (template, macro, block, recursive loop) they belong to.
local ast = require("tpl.jinja.ast")

local Scope = {}
Scope.__index = Scope

---@class tpl.jinja.Func   one run-time frame table per call: slots 1..n
---@field n integer
---@field up tpl.jinja.Func?

function Scope.func(up)
  return { n = 0, up = up }
end

--- New scope inside `parent` (nil: a root), with its variables in `func`.
function Scope.new(parent, func)
  return setmetatable({
    parent = parent, func = func or parent.func, vars = {}, refs = {}, loads = {}, stores = {},
  }, Scope)
end

local function copy_map(t)
  local out = {}
  for k, v in pairs(t) do out[k] = v end
  return out
end

-- A branch: same variables, its own view of what was read and set.
function Scope:branch()
  return setmetatable({
    parent = self.parent, func = self.func, vars = self.vars, refs = copy_map(self.refs),
    loads = copy_map(self.loads), stores = copy_map(self.stores),
  }, Scope)
end

function Scope:define(name, load)
  local var = self.vars[name]
  if not var then
    local func = self.func
    func.n = func.n + 1
    var = { slot = func.n, func = func, name = name }
    self.vars[name] = var
  end
  self.refs[name] = var
  self.loads[var] = load
  return var
end

--- The variable of a name, here or in an enclosing scope.
function Scope:find(name)
  local s = self
  while s do
    local var = s.refs[name]
    if var then return var end
    s = s.parent
  end
  return nil
end

function Scope:find_outer(name)
  return self.parent and self.parent:find(name)
end

function Scope:param(name)
  self.stores[name] = true
  return self:define(name, { how = "param" })
end

function Scope:load(name)
  if not self:find(name) then self:define(name, { how = "resolve" }) end
end

function Scope:store(name)
  self.stores[name] = true
  if self.refs[name] then return end
  local outer = self:find_outer(name)
  self:define(name, outer and { how = "alias", from = outer } or { how = "undefined" })
end

-- Join the branches of an if into the scope.
function Scope:merge(branches)
  local fresh = {}
  for _, b in ipairs(branches) do
    for name in pairs(b.stores) do
      if not self.stores[name] then fresh[name] = true end
    end
  end
  for _, b in ipairs(branches) do
    for name, var in pairs(b.refs) do self.refs[name] = var end
    for var, load in pairs(b.loads) do self.loads[var] = load end
    for name in pairs(b.stores) do self.stores[name] = true end
  end
  for name in pairs(fresh) do
    local outer = self:find_outer(name)
    self.loads[self.refs[name]] = outer and { how = "alias", from = outer } or { how = "resolve" }
  end
end

-- Visiting ----------------------------------------------------------------------------------------

local visit = {}

--- Record what a node reads and sets in this scope; constructs with a scope of their own are only
--- visited where they touch this one.
function Scope:visit(n)
  local fn = visit[n.t]
  if fn then return fn(self, n) end
  ast.each_child(n, function(child) self:visit(child) end)
end

function Scope:visit_all(nodes)
  for _, n in ipairs(nodes) do self:visit(n) end
end

function visit.Name(self, n)
  if n.ctx == "load" then self:load(n.name)
  elseif n.ctx == "param" then self:param(n.name)
  else self:store(n.name) end
end

function visit.NSRef(self, n) self:load(n.name) end

-- One test and body whose effects are joined into `self`.
local function visit_branch(self, branch)
  self:visit(branch.test)
  local inner = self:branch()
  inner:visit_all(branch.body)
  return inner
end

visit["If"] = function(self, n)
  local first = visit_branch(self, n.branches[1])
  local elifs, otherwise = self:branch(), self:branch()
  for i = 2, #n.branches do
    local inner = visit_branch(elifs, n.branches[i])
    elifs:merge({ inner, elifs:branch() })
  end
  if n.otherwise then otherwise:visit_all(n.otherwise) end
  self:merge({ first, elifs, otherwise })
end

visit["For"] = function(self, n) self:visit(n.iter) end
function visit.Macro(self, n) self:store(n.name) end
function visit.CallBlock(self, n) self:visit(n.call) end
function visit.FilterBlock(self, n) self:visit(n.filter) end
function visit.With(self, n) self:visit_all(n.values) end
function visit.SetBlock(self, n) self:visit(n.target) end
function visit.Block() end
function visit.Generation() end
function visit.Autoescape() end

function visit.Set(self, n)
  self:visit(n.value)
  self:visit(n.target)
end

--- Declare the names of a loop or with target as parameters.
function Scope:params_of(target)
  if target.t == "Name" then
    self:param(target.name)
  else
    ast.each_child(target, function(child) self:params_of(child) end)
  end
end

return Scope
