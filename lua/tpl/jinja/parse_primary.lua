-- SPDX-License-Identifier: Apache-2.0
--- Parses what expressions are made of: names, literals, containers, subscripts and calls.
--- Operators, filters and tests are in parse_expr.lua.
local values = require("tpl.jinja.values")
local ast = require("tpl.jinja.ast")
local Stream = require("tpl.jinja.stream")

-- `expression` is set by parse_expr.lua, which needs this module.
local M = { expression = nil }

local node = ast.node

local constants = { ["true"] = true, ["True"] = true, ["false"] = false, ["False"] = false,
  ["none"] = values.none, ["None"] = values.none }

-- Tuples, lists, dicts ----------------------------------------------------------------------------

local tuple_ends = { "variable_end", "block_end", "rparen" }

local function at_tuple_end(s, extra)
  return s:is_any(tuple_ends) or extra ~= nil and s:is_any(extra)
end

--- Parse one expression, or a tuple if commas follow.
---@param opts {parse: function?, no_if: boolean?, ends: string[]?, parenthesised: boolean?}?
function M.tuple(s, opts)
  opts = opts or {}
  local line = s.current.line
  local parse = opts.parse or M.expression
  local items, is_tuple = {}, false
  while true do
    if #items > 0 then s:expect("comma") end
    if at_tuple_end(s, opts.ends) then break end
    items[#items + 1] = parse(s, opts.no_if)
    if not s:is("comma") then break end
    is_tuple = true
  end
  if not is_tuple then
    if items[1] then return items[1] end
    if not opts.parenthesised then s:fail("Expected an expression, got '%s'", Stream.describe(s.current)) end
  end
  return node("Tuple", line, { items = items })
end

local function parse_list(s)
  local line = s:expect("lbracket").line
  local items = {}
  while not s:is("rbracket") do
    if #items > 0 then s:expect("comma") end
    if s:is("rbracket") then break end
    items[#items + 1] = M.expression(s)
  end
  s:expect("rbracket")
  return node("List", line, { items = items })
end

local function parse_dict(s)
  local line = s:expect("lbrace").line
  local keys, vals = {}, {}
  while not s:is("rbrace") do
    if #keys > 0 then s:expect("comma") end
    if s:is("rbrace") then break end
    keys[#keys + 1] = M.expression(s)
    s:expect("colon")
    vals[#vals + 1] = M.expression(s)
  end
  s:expect("rbrace")
  return node("Dict", line, { keys = keys, vals = vals })
end

-- Primaries ---------------------------------------------------------------------------------------

local function parse_name(s, with_namespace)
  local token = s:next()
  local constant = constants[token.value]
  if constant ~= nil then return node("Const", token.line, { value = constant }) end
  if with_namespace and s:is("dot") then
    s:next()
    local attr = s:expect("name")
    return node("NSRef", token.line, { name = token.value, attr = attr.value })
  end
  return node("Name", token.line, { name = token.value, ctx = "load" })
end

local function parse_string(s)
  local token = s:next()
  local parts = { token.value }
  while s:is("string") do parts[#parts + 1] = s:next().value end
  return node("Const", token.line, { value = table.concat(parts) })
end

--- Parse a name, literal or parenthesised expression. `with_namespace` allows `ns.attr` as a target.
function M.primary(s, with_namespace)
  local token = s.current
  local t = token.type
  if t == "name" then return parse_name(s, with_namespace) end
  if t == "string" then return parse_string(s) end
  if t == "integer" or t == "float" then
    s:next()
    return node("Const", token.line, { value = token.value })
  end
  s:enter()
  local out
  if t == "lparen" then
    s:next()
    out = M.tuple(s, { parenthesised = true })
    s:expect("rparen")
  elseif t == "lbracket" then
    out = parse_list(s)
  elseif t == "lbrace" then
    out = parse_dict(s)
  else
    s:fail("unexpected '%s'", Stream.describe(token))
  end
  s:leave()
  return out
end

-- Calls and postfixes -----------------------------------------------------------------------------

local function parse_argument(s, call, ensure)
  if s:is("mul") then
    ensure(not call.star and not call.star_star)
    s:next()
    call.star = M.expression(s)
  elseif s:is("pow") then
    ensure(not call.star_star)
    s:next()
    call.star_star = M.expression(s)
  elseif s:is("name") and s:look().type == "assign" then
    ensure(not call.star_star)
    local name = s:next().value
    s:next()
    call.kwargs[#call.kwargs + 1] = { name = name, value = M.expression(s) }
  else
    ensure(not call.star and not call.star_star and #call.kwargs == 0)
    call.args[#call.args + 1] = M.expression(s)
  end
end

--- Parse "(args, key=value, *more, **most)".
function M.call_args(s)
  local line = s:expect("lparen").line
  local call = { args = {}, kwargs = {} }
  local function ensure(ok)
    if not ok then
      s.current = { type = s.current.type, value = s.current.value, line = line }
      s:fail("invalid syntax for function call expression")
    end
  end
  local first = true
  while not s:is("rparen") do
    if not first then
      s:expect("comma")
      if s:is("rparen") then break end
    end
    parse_argument(s, call, ensure)
    first = false
  end
  s:expect("rparen")
  return call
end

function M.call(s, callee)
  local line = s.current.line
  local call = M.call_args(s)
  return node("Call", line, { callee = callee, call = call })
end

local function parse_subscript_item(s)
  local line = s.current.line
  local parts, n = {}, 1
  if not s:is("colon") then
    local value = M.expression(s)
    if not s:is("colon") then return value end
    parts[1] = value
  end
  while n < 3 and s:is("colon") do
    s:next()
    n = n + 1
    if not s:is("colon") and not s:is("rbracket") and not s:is("comma") then parts[n] = M.expression(s) end
  end
  return node("Slice", line, { first = parts[1], last = parts[2], step = parts[3] })
end

local function parse_subscript(s, target)
  local token = s:next()
  if token.type == "dot" then
    local attr = s:next()
    if attr.type == "name" then
      return node("Getattr", token.line, { target = target, name = attr.value })
    elseif attr.type ~= "integer" then
      s:fail("expected name or number")
    end
    return node("Getitem", token.line, { target = target, key = node("Const", attr.line, { value = attr.value }) })
  end
  local items = {}
  while not s:is("rbracket") do
    if #items > 0 then s:expect("comma") end
    items[#items + 1] = parse_subscript_item(s)
  end
  s:expect("rbracket")
  local key = #items == 1 and items[1] or node("Tuple", token.line, { items = items })
  return node("Getitem", token.line, { target = target, key = key })
end

--- Parse attributes, subscripts and calls after a primary.
function M.postfix(s, target)
  while true do
    if s:is("dot") or s:is("lbracket") then
      target = parse_subscript(s, target)
    elseif s:is("lparen") then
      target = M.call(s, target)
    else
      return target
    end
  end
end

return M
