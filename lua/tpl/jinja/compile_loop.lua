-- SPDX-License-Identifier: Apache-2.0
--- Compiles `for`: plain, filtered and recursive loops, with their `else`. Adds to compile.lua.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local values = require("tpl.jinja.values")
local iter = require("tpl.jinja.iter")
local repr = require("tpl.jinja.repr")
local ast = require("tpl.jinja.ast")
local Scope = require("tpl.jinja.scope")
local ex = require("tpl.jinja.compile_expr")
local loop = require("tpl.jinja.loop")

local truth = values.truth

-- compile.lua, known once install() ran.
local C

-- The value a target was given, rebuilt: a filtered loop yields tuples for tuple targets.
local function rebuild(n, c)
  if n.t == "Name" then return ex.reader(c.scope:find(n.name), c) end
  local parts = {}
  for i = 1, #n.items do parts[i] = rebuild(n.items[i], c) end
  return function(f)
    local out = {}
    for i = 1, #parts do out[i] = parts[i](f) end
    return values.tuple(out)
  end
end

--- Compile "if test" of a loop into fn(f, next) -> next; it runs lazily in a frame of its own.
local function loop_filter(n, c)
  local tc = C.inner(c, Scope.func(c.scope.func))
  tc.scope:params_of(n.target)
  tc.scope:visit(n.test)
  local enter = C.entry(tc)
  local assign, test, again = C.target(n.target, tc), ex.expr(n.test, tc), rebuild(n.target, tc)
  return function(f, next)
    local tf = { up = f, ctx = f.ctx }
    enter(tf)
    return function()
      for item in next do
        state.spend(1)
        assign(tf, item)
        if truth(test(tf)) then return again(tf) end
      end
    end
  end
end

local function check_loop_target(n)
  local function visit(child)
    if child.t == "Name" and child.name == "loop" and child.ctx == "store" then
      errors.raise_at(child.line, "TemplateAssertionError",
        "Can't assign to special loop variable in for-loop target")
    end
    ast.each_child(child, visit)
  end
  visit(n)
end

--- Compile the turns of a loop into fn(f, out, next, iterable, recurse, depth) -> jump.
local function loop_body(n, c, func, extended)
  local lc = C.inner(c, func)
  lc.in_loop = true
  local loop_slot = extended and lc.scope:param("loop").slot
  lc.scope:params_of(n.target)
  lc.scope:visit_all(n.body)
  local enter, leave = C.entry(lc)
  local assign, body = C.target(n.target, lc), C.block(n.body, lc)
  local spend = state.spend

  local oc, otherwise, enter_otherwise, leave_otherwise
  if n.otherwise then
    oc = C.inner(c, func)
    oc.in_loop = not func and c.in_loop
    oc.scope:visit_all(n.otherwise)
    enter_otherwise, leave_otherwise = C.entry(oc)
    otherwise = C.block(n.otherwise, oc)
  end

  return function(f, out, next, iterable, recurse, depth)
    local cursor = loop_slot and loop.new(next, iterable, recurse, depth)
    local empty = true
    while true do
      local item
      if cursor then item = loop.advance(cursor) else item = next() end
      if item == nil then break end
      spend(1)
      if cursor then f[loop_slot] = cursor end
      assign(f, item)
      enter(f)
      local jump = body(f, out)
      if jump == "break" then
        -- Python's flag is only cleared at the end of a turn.
        leave(f)
        if not empty or not otherwise then return end
        break
      end
      if not jump then empty = false end
    end
    leave(f)
    if empty and otherwise then
      enter_otherwise(f)
      local jump = otherwise(f, out)
      leave_otherwise(f)
      return jump
    end
  end
end

local function recursive_loop(n, c)
  local func = Scope.func(c.scope.func)
  local turns = loop_body(n, c, func, true)
  local filter = n.test and loop_filter(n, c)
  local iterable = ex.expr(n.iter, c)
  return function(f, out)
    local function recurse(v, depth)
      state.enter()
      local buffer = C.new_buffer()
      local rf = { up = f, ctx = f.ctx }
      local next = iter.iter(v)
      if filter then next, v = filter(f, next), nil end
      turns(rf, buffer, next, v, recurse, depth)
      state.leave()
      return C.contents(buffer)
    end
    C.emit(out, repr.str(recurse(iterable(f), 0)))
  end
end

local function compile_for(n, c)
  for _, child in ipairs(n.body) do check_loop_target(child) end
  check_loop_target(n.target)
  if n.recursive then return recursive_loop(n, c) end
  local turns = loop_body(n, c, nil, ast.undeclared(n.body, { "loop" }).loop)
  local filter = n.test and loop_filter(n, c)
  local iterable = ex.expr(n.iter, c)
  return function(f, out)
    local v = iterable(f)
    local next = iter.iter(v)
    if filter then next, v = filter(f, next), nil end
    return turns(f, out, next, v)
  end
end

--- Add the statement to compile.lua.
return function(compile)
  C = compile
  C.statements["For"] = compile_for
end
