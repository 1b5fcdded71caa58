-- SPDX-License-Identifier: Apache-2.0
--- Turns statement nodes into closures fn(f, out) -> nil | "break" | "continue".
--- f is the run-time frame of the function the code belongs to: slots of variables, `up` (the frame
--- where the function was defined) and `ctx` (the context of the render). out collects text.
--- c is the compile-time position: {scope, soft, in_loop, toplevel, unit}.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local values = require("tpl.jinja.values")
local iter = require("tpl.jinja.iter")
local repr = require("tpl.jinja.repr")
local escape = require("tpl.jinja.escape")
local ast = require("tpl.jinja.ast")
local Scope = require("tpl.jinja.scope")
local ex = require("tpl.jinja.compile_expr")
local macro = require("tpl.jinja.macro")

local M = {}

local truth = values.truth
local compilers = {}

-- Statement compilers by node type; compile_loop.lua and compile_macro.lua add theirs.
M.statements = compilers

-- Output ------------------------------------------------------------------------------------------

local function new_buffer()
  return { n = 0, size = 0, limit = state.current().output }
end
M.new_buffer = new_buffer

--- Append text to a buffer.
local function emit(out, s)
  local n, size = out.n + 1, out.size + #s
  out.n, out.size, out[n] = n, size, s
  if size > out.limit then errors.raise("MemoryError", "template output exceeds %d bytes", out.limit) end
end

M.emit = emit

--- Text of a buffer as a template value.
local function contents(out)
  local s = table.concat(out, "", 1, out.n)
  return state.current().autoescape and values.markup(s) or s
end
M.contents = contents

-- Positions and bodies ----------------------------------------------------------------------------

--- Position in a scope of its own; `func` is given when the code runs in frames of its own.
function M.inner(c, func)
  return {
    scope = Scope.new(c.scope, func), unit = c.unit, soft = false, toplevel = false,
    in_loop = not func and c.in_loop,
  }
end

--- Compile a list of statements into one function.
function M.block(nodes, c)
  local code, lines, n = {}, {}, #nodes
  for i = 1, n do
    code[i], lines[i] = compilers[nodes[i].t](nodes[i], c), nodes[i].line
  end
  return function(f, out)
    local run = f.ctx.run
    for i = 1, n do
      run.line = lines[i]
      local jump = code[i](f, out)
      if jump then return jump end
    end
  end
end

--- Function that gives the variables of a scope their first values, and one that clears them.
function M.entry(c)
  local resolves, aliases, clears = {}, {}, {}
  for var, load in pairs(c.scope.loads) do
    if load.how == "resolve" then
      resolves[#resolves + 1] = { var.slot, var.name }
    elseif load.how == "alias" then
      aliases[#aliases + 1] = { var.slot, ex.reader(load.from, c) }
    end
    clears[#clears + 1] = var.slot
  end
  local undefined = {}
  for var, load in pairs(c.scope.loads) do
    if load.how == "undefined" then undefined[#undefined + 1] = var.slot end
  end
  local function enter(f)
    for i = 1, #undefined do f[undefined[i]] = nil end
    for i = 1, #aliases do f[aliases[i][1]] = aliases[i][2](f) end
    for i = 1, #resolves do f[resolves[i][1]] = f.ctx.resolve(resolves[i][2]) end
  end
  local function leave(f)
    for i = 1, #clears do f[clears[i]] = nil end
  end
  return enter, leave
end

local inner, block, entry = M.inner, M.block, M.entry

-- Assignment --------------------------------------------------------------------------------------

local function require_namespace(read)
  return function(f)
    local ns = read(f)
    if type(ns) ~= "table" or getmetatable(ns) ~= values.namespace_mt then
      errors.raise("TemplateRuntimeError", "cannot assign attribute on non-namespace object")
    end
    return ns
  end
end

--- Compile a target into fn(f, value); `checks` collects the namespace checks made before.
local function target(n, c, checks)
  if n.t == "Name" then
    local slot, name = c.scope:find(n.name).slot, n.name
    if c.toplevel then
      return function(f, v)
        f[slot] = v
        f.ctx.vars[name] = v
      end
    end
    return function(f, v) f[slot] = v end
  elseif n.t == "NSRef" then
    local get, attr = require_namespace(ex.reader(c.scope:find(n.name), c)), n.attr
    if checks then checks[#checks + 1] = get end
    return function(f, v) macro.set_namespace(get(f), attr, v) end
  end
  local parts, count = {}, #n.items
  for i = 1, count do parts[i] = target(n.items[i], c, checks) end
  return function(f, v)
    local items = iter.unpack(v, count)
    for i = 1, count do parts[i](f, items[i]) end
  end
end

M.target = target

function compilers.Set(n, c)
  local checks = {}
  local assign, value = target(n.target, c, checks), ex.expr(n.value, c)
  return function(f)
    for i = 1, #checks do checks[i](f) end
    assign(f, value(f))
  end
end

--- Run a body into a buffer of its own; gives its value, or a jump.
local function capture(body)
  return function(f)
    local out = new_buffer()
    local jump = body(f, out)
    if jump then return nil, jump end
    return contents(out)
  end
end

-- Filters over captured text: the text is handed to the innermost filter through the frame.
local function captured_filter(n, c)
  return ex.filter(n, c, function(f) return f.captured end)
end

function compilers.SetBlock(n, c)
  local ic = inner(c)
  ic.scope:visit_all(n.body)
  if n.filter then ic.scope:visit(n.filter) end
  local enter, leave = entry(ic)
  local body = capture(block(n.body, ic))
  local filter = n.filter and captured_filter(n.filter, ic)
  local assign = target(n.target, c, {})
  return function(f)
    enter(f)
    local v, jump = body(f)
    if jump then return jump end
    if filter then
      f.captured = v
      v = filter(f)
    end
    assign(f, v)
    leave(f)
  end
end

function compilers.FilterBlock(n, c)
  local ic = inner(c)
  ic.scope:visit_all(n.body)
  ic.scope:visit(n.filter)
  local enter, leave = entry(ic)
  local body, filter = capture(block(n.body, ic)), captured_filter(n.filter, ic)
  return function(f, out)
    enter(f)
    local v, jump = body(f)
    if jump then return jump end
    f.captured = v
    emit(out, repr.str(filter(f)))
    leave(f)
  end
end

function compilers.With(n, c)
  local ic = inner(c)
  for _, t in ipairs(n.targets) do ic.scope:params_of(t) end
  ic.scope:visit_all(n.body)
  local enter, leave = entry(ic)
  local assigns, vals = {}, {}
  for i = 1, #n.targets do
    assigns[i], vals[i] = target(n.targets[i], ic), ex.expr(n.values[i], c)
  end
  local body = block(n.body, ic)
  return function(f, out)
    enter(f)
    for i = 1, #assigns do assigns[i](f, vals[i](f)) end
    local jump = body(f, out)
    leave(f)
    return jump
  end
end

-- Output and branches -----------------------------------------------------------------------------

function compilers.Data(n)
  local s = n.text
  return function(_, out) emit(out, s) end
end

function compilers.Print(n, c)
  local value, str = ex.expr(n.value, c), repr.str
  return function(f, out)
    local v = value(f)
    if f.ctx.run.autoescape then v = escape.text(v) end
    emit(out, str(v))
  end
end

function compilers.Group(n, c)
  return block(n.body, c)
end

compilers["If"] = function(n, c)
  c = ex.soft(c)
  local tests, bodies = {}, {}
  for i, branch in ipairs(n.branches) do
    tests[i], bodies[i] = ex.expr(branch.test, c), block(branch.body, c)
  end
  local otherwise = n.otherwise and block(n.otherwise, c)
  return function(f, out)
    for i = 1, #tests do
      if truth(tests[i](f)) then return bodies[i](f, out) end
    end
    if otherwise then return otherwise(f, out) end
  end
end

function compilers.Jump(n, c)
  local word = n.word
  if not c.in_loop and not c.unit.late then
    local message = word == "break" and "'break' outside loop" or "'continue' not properly in loop"
    c.unit.late = errors.new("SyntaxError", message, n.line)
  end
  return function() return word end
end

-- Others ------------------------------------------------------------------------------------------

function compilers.Autoescape(n, c)
  local ic = inner(c)
  ic.scope:visit(n.value)
  ic.scope:visit_all(n.body)
  local enter, leave = entry(ic)
  local value, body = ex.expr(n.value, ic), block(n.body, ic)
  return function(f, out)
    enter(f)
    local run = f.ctx.run
    local before = run.autoescape
    run.autoescape = truth(value(f))
    local jump = body(f, out)
    run.autoescape = before
    leave(f)
    return jump
  end
end

-- Blocks see the context, not the variables around them.
function compilers.Block(n, c)
  local bc = inner({ unit = c.unit }, Scope.func(nil))
  bc.scope:visit_all(n.body)
  local enter = entry(bc)
  local body = block(n.body, bc)
  return function(f, out)
    local bf = { ctx = f.ctx }
    enter(bf)
    body(bf, out)
  end
end

function compilers.Load(n, c)
  local value = ex.expr(n.value, c)
  return function(f)
    value(f)
    errors.raise("TypeError", "no loader for this environment specified")
  end
end

require("tpl.jinja.compile_loop")(M)
require("tpl.jinja.compile_macro")(M)

--- Compile a parsed template into fn(ctx, out).
---@param body table[]
---@param late tpl.TemplateError?
function M.template(body, late)
  local unit = { late = late }
  local c = { scope = Scope.new(nil, Scope.func(nil)), unit = unit, toplevel = true, in_loop = false }
  local self_slot = ast.undeclared(body, { "self" })["self"] and c.scope:param("self").slot
  c.scope:visit_all(body)
  local enter = entry(c)
  local main = block(body, c)
  if unit.late then error(unit.late, 0) end
  return function(ctx, out)
    local f = { ctx = ctx }
    if self_slot then f[self_slot] = macro.template_reference() end
    enter(f)
    main(f, out)
  end
end

return M
