-- SPDX-License-Identifier: Apache-2.0
--- Compiles `macro`, `call` and `generation`: bodies that are functions of their own. Adds to compile.lua.
local errors = require("tpl.jinja.errors")
local repr = require("tpl.jinja.repr")
local ast = require("tpl.jinja.ast")
local Scope = require("tpl.jinja.scope")
local ex = require("tpl.jinja.compile_expr")
local macro = require("tpl.jinja.macro")

-- compile.lua, known once install() ran.
local C

--- Compile parameters and body of a macro into fn(f) -> macro value.
local function macro_maker(n, c, name)
  local func = Scope.func(c.scope.func)
  local mc = C.inner(c, func)
  local special = ast.undeclared(n.body, { "caller", "kwargs", "varargs" })
  local params, explicit = {}, {}
  for i, p in ipairs(n.params) do
    params[i] = { name = p.name, slot = mc.scope:param(p.name).slot }
    explicit[p.name] = true
  end
  for i, p in ipairs(n.params) do
    if p.name == "caller" and special.caller and not p.default then
      errors.raise_at(n.line, "TemplateAssertionError", 'When defining macros or call blocks the special' ..
        ' "caller" argument must be omitted or be given a default.')
    end
    if p.default then mc.scope:visit(n.params[i].default) end
  end
  local slots = {}
  for _, word in ipairs({ "caller", "kwargs", "varargs" }) do
    if special[word] and not explicit[word] then slots[word] = mc.scope:param(word).slot end
  end
  mc.scope:visit_all(n.body)
  local enter = C.entry(mc)
  for i, p in ipairs(n.params) do
    params[i].default = p.default and ex.expr(p.default, mc)
  end
  local body = C.block(n.body, mc)
  local spec = {
    name = name, params = params, slots = slots, catches_caller = special.caller, enter = enter,
    render = function(f)
      local out = C.new_buffer()
      body(f, out)
      return C.contents(out)
    end,
  }
  return function(f) return macro.new(spec, f) end
end

local function compile_macro(n, c)
  local make = macro_maker(n, c, n.name)
  local assign = C.target({ t = "Name", name = n.name }, c)
  return function(f) assign(f, make(f)) end
end

local function compile_call_block(n, c)
  local caller = macro_maker(n, c, nil)
  local call = ex.call(n.call, c, caller)
  return function(f, out) C.emit(out, repr.str(call(f))) end
end

-- The body of {% generation %} is a function of its own in transformers: its `set`s stay inside.
local function compile_generation(n, c)
  local make = macro_maker({ params = {}, body = n.body, line = n.line }, c, nil)
  return function(f, out) C.emit(out, repr.str(make(f).call({}))) end
end

--- Add the statements to compile.lua.
return function(compile)
  C = compile
  C.statements.Macro = compile_macro
  C.statements.CallBlock = compile_call_block
  C.statements.Generation = compile_generation
end
