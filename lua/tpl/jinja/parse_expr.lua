-- SPDX-License-Identifier: Apache-2.0
--- Parses expressions into nodes {t = type, line, ...}. Precedence, from loose to tight: inline if,
--- or, and, not, comparison, + -, ~, * / // %, ** (left to right), unary, then postfixes and filters.
local ast = require("tpl.jinja.ast")
local Stream = require("tpl.jinja.stream")
local primary = require("tpl.jinja.parse_primary")

local M = {}

local node = ast.node
local parse_expression, parse_unary

-- Filters and tests -------------------------------------------------------------------------------

local function dotted_name(s)
  local name = s:expect("name").value
  while s:skip_if("dot") do name = name .. "." .. s:expect("name").value end
  return name
end

--- Parse "| filter | filter"; with `inline` the first one has no bar before it.
function M.filters(s, target, inline)
  while inline or s:is("pipe") do
    if not inline then s:next() end
    local line = s.current.line
    local name = dotted_name(s)
    local call = s:is("lparen") and primary.call_args(s) or { args = {}, kwargs = {} }
    target = node("Filter", line, { target = target, name = name, call = call })
    inline = false
  end
  return target
end

local argument_starts = { "name", "string", "integer", "float", "lparen", "lbracket", "lbrace" }
local not_arguments = { "name:else", "name:or", "name:and" }

local function parse_test(s, target)
  local line = s:next().line
  local negated = s:skip_if("name:not")
  local name = dotted_name(s)
  local call = { args = {}, kwargs = {} }
  if s:is("lparen") then
    call = primary.call_args(s)
  elseif s:is_any(argument_starts) and not s:is_any(not_arguments) then
    if s:is("name:is") then s:fail("You cannot chain multiple tests with is") end
    call.args[1] = primary.postfix(s, primary.primary(s))
  end
  local test = node("Test", line, { target = target, name = name, call = call })
  return negated and node("Not", line, { value = test }) or test
end

local function parse_filter_chain(s, target)
  while true do
    if s:is("pipe") then
      target = M.filters(s, target)
    elseif s:is("name:is") then
      target = parse_test(s, target)
    elseif s:is("lparen") then
      target = primary.call(s, target)
    else
      return target
    end
  end
end

-- Operators ---------------------------------------------------------------------------------------

function parse_unary(s, without_filters)
  s:enter()
  local line = s.current.line
  local out
  if s:skip_if("sub") then
    out = node("Neg", line, { value = parse_unary(s, true) })
  elseif s:skip_if("add") then
    out = node("Pos", line, { value = parse_unary(s, true) })
  else
    out = primary.primary(s)
  end
  out = primary.postfix(s, out)
  if not without_filters then out = parse_filter_chain(s, out) end
  s:leave()
  return out
end

-- A level of left-associative binary operators: token type -> node type.
local function binary_level(next_level, ops)
  return function(s)
    local left = next_level(s)
    while ops[s.current.type] do
      local token = s:next()
      left = node(ops[token.type], token.line, { left = left, right = next_level(s) })
    end
    return left
  end
end

local parse_pow = binary_level(function(s) return parse_unary(s) end, { pow = "Pow" })
local parse_product = binary_level(parse_pow, { mul = "Mul", div = "Div", floordiv = "Floordiv", mod = "Mod" })

local function parse_concat(s)
  local line = s.current.line
  local parts = { parse_product(s) }
  while s:skip_if("tilde") do parts[#parts + 1] = parse_product(s) end
  return #parts == 1 and parts[1] or node("Concat", line, { items = parts })
end

local parse_sum = binary_level(parse_concat, { add = "Add", sub = "Sub" })

local comparisons = { eq = "==", ne = "!=", lt = "<", lteq = "<=", gt = ">", gteq = ">=" }

local function comparison(s)
  local op = comparisons[s.current.type]
  if op then
    s:next()
    return op
  end
  if s:skip_if("name:in") then return "in" end
  if s:is("name:not") and Stream.matches(s:look(), "name:in") then
    s:next()
    s:next()
    return "not in"
  end
  return nil
end

local function parse_compare(s)
  local line = s.current.line
  local first = parse_sum(s)
  local ops = {}
  local op = comparison(s)
  while op do
    ops[#ops + 1] = { op = op, value = parse_sum(s) }
    op = comparison(s)
  end
  return #ops == 0 and first or node("Compare", line, { first = first, ops = ops })
end

local function parse_not(s)
  if not s:is("name:not") then return parse_compare(s) end
  s:enter()
  local line = s:next().line
  local out = node("Not", line, { value = parse_not(s) })
  s:leave()
  return out
end

local function logic_level(next_level, word, t)
  return function(s)
    local left = next_level(s)
    while s:is(word) do
      local line = s:next().line
      left = node(t, line, { left = left, right = next_level(s) })
    end
    return left
  end
end

local parse_and = logic_level(parse_not, "name:and", "And")
local parse_or = logic_level(parse_and, "name:or", "Or")

--- Parse one expression; with `no_if` an inline if is left to the statement.
function parse_expression(s, no_if)
  if no_if then return parse_or(s) end
  s:enter()
  local out = parse_or(s)
  while s:is("name:if") do
    local line = s:next().line
    local test = parse_or(s)
    local otherwise
    if s:skip_if("name:else") then otherwise = parse_expression(s) end
    out = node("Cond", line, { test = test, yes = out, no = otherwise })
  end
  s:leave()
  return out
end
M.expression = parse_expression
primary.expression = parse_expression
M.tuple, M.primary = primary.tuple, primary.primary

return M
