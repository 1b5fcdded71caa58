-- SPDX-License-Identifier: Apache-2.0
--- Turns expression nodes into closures fn(f) -> value, where f is the run-time frame.
--- Nothing is ever loaded as Lua source, so a template cannot inject code. `c` is the compile-time
--- position: {scope, soft, ...}; see compile.lua.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local values = require("tpl.jinja.values")
local iter = require("tpl.jinja.iter")
local ops = require("tpl.jinja.ops")
local compare = require("tpl.jinja.compare")
local access = require("tpl.jinja.access")
local call = require("tpl.jinja.call")
local filters = require("tpl.jinja.filters")
local tests = require("tpl.jinja.tests")

local M = {}

local truth, undefined = values.truth, values.undefined
local compilers = {}

--- Compile one expression.
function M.expr(n, c)
  return compilers[n.t](n, c)
end
local expr = M.expr

local function expr_list(nodes, c)
  local out = {}
  for i = 1, #nodes do out[i] = expr(nodes[i], c) end
  return out
end

-- Variables ---------------------------------------------------------------------------------------

--- Number of frames between the code at c and a variable.
local function distance(var, c)
  local func, hops = c.scope.func, 0
  while func ~= var.func do func, hops = func.up, hops + 1 end
  return hops
end

--- Function that reads a variable's slot; nil where it holds nothing.
function M.reader(var, c)
  local slot, hops = var.slot, distance(var, c)
  if hops == 0 then return function(f) return f[slot] end end
  if hops == 1 then return function(f) return f.up[slot] end end
  return function(f)
    for _ = 1, hops do f = f.up end
    return f[slot]
  end
end

function compilers.Name(n, c)
  local name = n.name
  local var = c.scope:find(name)
  local read = M.reader(var, c)
  return function(f)
    local v = read(f)
    if v == nil then return undefined(name) end
    return v
  end
end

function compilers.Const(n)
  local v = n.value
  return function() return v end
end

-- Containers --------------------------------------------------------------------------------------

local function sequence(make)
  return function(n, c)
    local items = expr_list(n.items, c)
    local count = #items
    return function(f)
      local out = {}
      for i = 1, count do out[i] = items[i](f) end
      return make(out)
    end
  end
end

compilers.List = sequence(values.list)
compilers.Tuple = sequence(values.tuple)
compilers.Concat = sequence(ops.concat)

function compilers.Dict(n, c)
  local keys, vals = expr_list(n.keys, c), expr_list(n.vals, c)
  return function(f)
    local out = values.dict()
    for i = 1, #keys do
      local key = keys[i](f)
      values.dict_set(out, key, vals[i](f))
    end
    return out
  end
end

-- Operators ---------------------------------------------------------------------------------------

for name, fn in pairs({ Add = ops.add, Sub = ops.sub, Mul = ops.mul, Div = ops.div, Floordiv = ops.floordiv,
  Mod = ops.mod, Pow = ops.pow }) do
  compilers[name] = function(n, c)
    local left, right = expr(n.left, c), expr(n.right, c)
    return function(f)
      local a = left(f)
      return fn(a, right(f))
    end
  end
end

for name, fn in pairs({ Neg = ops.neg, Pos = ops.pos, Not = function(v) return not truth(v) end }) do
  compilers[name] = function(n, c)
    local value = expr(n.value, c)
    return function(f) return fn(value(f)) end
  end
end

function compilers.And(n, c)
  local left, right = expr(n.left, c), expr(n.right, c)
  return function(f)
    local v = left(f)
    if truth(v) then return right(f) end
    return v
  end
end

function compilers.Or(n, c)
  local left, right = expr(n.left, c), expr(n.right, c)
  return function(f)
    local v = left(f)
    if truth(v) then return v end
    return right(f)
  end
end

local comparisons = {
  ["=="] = compare.equal,
  ["!="] = function(a, b) return not compare.equal(a, b) end,
  ["in"] = function(a, b) return compare.contains(b, a) end,
  ["not in"] = function(a, b) return not compare.contains(b, a) end,
}
for _, op in ipairs({ "<", "<=", ">", ">=" }) do
  comparisons[op] = function(a, b) return compare.order(op, a, b) end
end

function compilers.Compare(n, c)
  local first = expr(n.first, c)
  local fns, operands = {}, {}
  for i, step in ipairs(n.ops) do
    fns[i], operands[i] = comparisons[step.op], expr(step.value, c)
  end
  if #fns == 1 then
    local fn, operand = fns[1], operands[1]
    return function(f)
      local a = first(f)
      return fn(a, operand(f))
    end
  end
  return function(f)
    local a = first(f)
    for i = 1, #fns do
      local b = operands[i](f)
      if not fns[i](a, b) then return false end
      a = b
    end
    return true
  end
end

--- A copy of the position whose unknown filters and tests are errors only when reached.
function M.soft(c)
  return setmetatable({ soft = true }, { __index = c })
end

function compilers.Cond(n, c)
  c = M.soft(c)
  local test, yes = expr(n.test, c), expr(n.yes, c)
  local no = n.no and expr(n.no, c)
  return function(f)
    if truth(test(f)) then return yes(f) end
    if no then return no(f) end
    return undefined(nil, nil, "the inline if-expression evaluated to false and no else section was defined.")
  end
end

-- Access ------------------------------------------------------------------------------------------

function compilers.Getattr(n, c)
  local target, name, getattr = expr(n.target, c), n.name, access.getattr
  return function(f) return getattr(target(f), name) end
end

local function no_bound() return nil end

local function compile_slice(n, c)
  local target, key = expr(n.target, c), n.key
  local first = key.first and expr(key.first, c) or no_bound
  local last = key.last and expr(key.last, c) or no_bound
  local step = key.step and expr(key.step, c) or no_bound
  return function(f)
    local v = target(f)
    return access.slice(v, first(f), last(f), step(f))
  end
end

function compilers.Getitem(n, c)
  if n.key.t == "Slice" then return compile_slice(n, c) end
  local target, key, getitem = expr(n.target, c), expr(n.key, c), access.getitem
  return function(f)
    local v = target(f)
    return getitem(v, key(f))
  end
end

-- A slice inside a tuple subscript, as in x[1:2, 3]: no value of ours can be indexed that way.
function compilers.Slice()
  return function() return errors.raise("TypeError", "unsupported subscript") end
end

-- Calls -------------------------------------------------------------------------------------------

local function add_star(f, args, star)
  local v = star(f)
  if not iter.is_iterable(v) then
    errors.raise("TypeError", "Value after * must be an iterable, not %s", values.kind(v))
  end
  for item in iter.iter(v) do args[#args + 1] = item end
  state.items(#args)
end

local function add_star_star(f, kwargs, star_star)
  local v = star_star(f)
  if not values.is_dict(v) then
    errors.raise("TypeError", "argument after ** must be a mapping, not %s", values.kind(v))
  end
  for i = 1, v.n do values.dict_set(kwargs, v.keys[i], v.vals[i]) end
end

--- Compile call arguments into fn(f, first) -> args, kwargs; `first` (may be nil) goes before the others.
function M.arguments(parts, c)
  local args = expr_list(parts.args, c)
  local n_args, n_kwargs = #args, #parts.kwargs
  local names, vals = {}, {}
  for i, kw in ipairs(parts.kwargs) do names[i], vals[i] = kw.name, expr(kw.value, c) end
  local star = parts.star and expr(parts.star, c)
  local star_star = parts.star_star and expr(parts.star_star, c)
  return function(f, first)
    local out, n = {}, 0
    if first ~= nil then out[1], n = first, 1 end
    for i = 1, n_args do out[n + i] = args[i](f) end
    if star then add_star(f, out, star) end
    if n_kwargs == 0 and not star_star then return out, nil end
    local kwargs = values.dict()
    for i = 1, n_kwargs do values.dict_set(kwargs, names[i], vals[i](f)) end
    if star_star then add_star_star(f, kwargs, star_star) end
    return out, kwargs
  end
end

--- Compile a call; `caller` (may be nil) gives the value of the extra keyword of call blocks.
function M.call(n, c, caller)
  local callee, arguments = expr(n.callee, c), M.arguments(n.call, c)
  return function(f)
    local fn = callee(f)
    local args, kwargs = arguments(f)
    if caller then
      kwargs = kwargs or values.dict()
      values.dict_set(kwargs, "caller", caller(f))
    end
    state.spend(1)
    return call.invoke(fn, args, kwargs)
  end
end

function compilers.Call(n, c)
  return M.call(n, c)
end

-- The function behind a filter or test name. An unknown one is an error now, or when it is reached.
local function named(kind, table_of, n, c)
  local fn = table_of[n.name]
  if fn then return fn end
  if not c.soft then
    errors.raise_at(n.line, "TemplateAssertionError", "No %s named '%s'.", kind, n.name)
  end
  return function() return errors.raise("TemplateRuntimeError", "No %s named '%s' found.", kind, n.name) end
end

--- Compile a filter; `input` replaces the target of filter blocks.
function M.filter(n, c, input)
  local fn = named("filter", filters, n, c)
  local target
  if not n.target then
    target = input
  elseif n.target.t == "Filter" then
    target = M.filter(n.target, c, input)
  else
    target = expr(n.target, c)
  end
  local arguments = M.arguments(n.call, c)
  return function(f)
    local args, kwargs = arguments(f, target(f))
    return fn(args, kwargs)
  end
end

function compilers.Filter(n, c)
  return M.filter(n, c)
end

function compilers.Test(n, c)
  local fn = named("test", tests, n, c)
  local target, arguments = expr(n.target, c), M.arguments(n.call, c)
  return function(f)
    local args, kwargs = arguments(f, target(f))
    return fn(args, kwargs)
  end
end

function compilers.NSRef(n)
  return errors.raise_at(n.line, "TemplateSyntaxError", "namespace attribute outside of an assignment")
end

return M
