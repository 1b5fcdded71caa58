-- SPDX-License-Identifier: Apache-2.0
--- Parses expressions into nodes {t = type, line, ...}. Precedence, from loose to tight: inline if,
--- or, and, not, comparison, + -, ~, * / // %, ** (left to right), unary, then postfixes and filters.
local values = require("tpl.jinja.values")
local Stream = require("tpl.jinja.stream")

local M = {}

-- Expressions nest no deeper than this: each level is a few Lua calls when parsed and when run.
local MAX_NESTING = 300

local constants = { ["true"] = true, ["True"] = true, ["false"] = false, ["False"] = false,
    ["none"] = values.none, ["None"] = values.none }

local parse_expression, parse_unary

local function node(t, line, fields)
    fields.t, fields.line = t, line
    return fields
end

local function guard(s)
    s.nesting = (s.nesting or 0) + 1
    if s.nesting > MAX_NESTING then s:fail("expression nests more than %d levels", MAX_NESTING) end
end

local function release(s)
    s.nesting = s.nesting - 1
end

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
    local parse = opts.parse or parse_expression
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
        items[#items + 1] = parse_expression(s)
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
        keys[#keys + 1] = parse_expression(s)
        s:expect("colon")
        vals[#vals + 1] = parse_expression(s)
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
    guard(s)
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
    release(s)
    return out
end

-- Calls and postfixes -----------------------------------------------------------------------------

local function parse_argument(s, call, ensure)
    if s:is("mul") then
        ensure(not call.star and not call.star_star)
        s:next()
        call.star = parse_expression(s)
    elseif s:is("pow") then
        ensure(not call.star_star)
        s:next()
        call.star_star = parse_expression(s)
    elseif s:is("name") and s:look().type == "assign" then
        ensure(not call.star_star)
        local name = s:next().value
        s:next()
        call.kwargs[#call.kwargs + 1] = { name = name, value = parse_expression(s) }
    else
        ensure(not call.star and not call.star_star and #call.kwargs == 0)
        call.args[#call.args + 1] = parse_expression(s)
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

local function parse_call(s, callee)
    local line = s.current.line
    local call = M.call_args(s)
    return node("Call", line, { callee = callee, call = call })
end

local function parse_subscript_item(s)
    local line = s.current.line
    local parts, n = {}, 1
    if not s:is("colon") then
        local value = parse_expression(s)
        if not s:is("colon") then return value end
        parts[1] = value
    end
    while n < 3 and s:is("colon") do
        s:next()
        n = n + 1
        if not s:is("colon") and not s:is("rbracket") and not s:is("comma") then parts[n] = parse_expression(s) end
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

local function parse_postfix(s, target)
    while true do
        if s:is("dot") or s:is("lbracket") then
            target = parse_subscript(s, target)
        elseif s:is("lparen") then
            target = parse_call(s, target)
        else
            return target
        end
    end
end

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
        local call = s:is("lparen") and M.call_args(s) or { args = {}, kwargs = {} }
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
        call = M.call_args(s)
    elseif s:is_any(argument_starts) and not s:is_any(not_arguments) then
        if s:is("name:is") then s:fail("You cannot chain multiple tests with is") end
        call.args[1] = parse_postfix(s, M.primary(s))
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
            target = parse_call(s, target)
        else
            return target
        end
    end
end

-- Operators ---------------------------------------------------------------------------------------

function parse_unary(s, without_filters)
    guard(s)
    local line = s.current.line
    local out
    if s:skip_if("sub") then
        out = node("Neg", line, { value = parse_unary(s, true) })
    elseif s:skip_if("add") then
        out = node("Pos", line, { value = parse_unary(s, true) })
    else
        out = M.primary(s)
    end
    out = parse_postfix(s, out)
    if not without_filters then out = parse_filter_chain(s, out) end
    release(s)
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
    guard(s)
    local line = s:next().line
    local out = node("Not", line, { value = parse_not(s) })
    release(s)
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
    guard(s)
    local out = parse_or(s)
    while s:is("name:if") do
        local line = s:next().line
        local test = parse_or(s)
        local otherwise
        if s:skip_if("name:else") then otherwise = parse_expression(s) end
        out = node("Cond", line, { test = test, yes = out, no = otherwise })
    end
    release(s)
    return out
end
M.expression = parse_expression

return M
