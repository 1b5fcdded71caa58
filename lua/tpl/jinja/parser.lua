-- SPDX-License-Identifier: Apache-2.0
--- Parses a template into statement nodes {t = type, line, ...}; expressions are in parse_expr.lua.
local errors = require("tpl.jinja.errors")
local ast = require("tpl.jinja.ast")
local lexer = require("tpl.jinja.lexer")
local Stream = require("tpl.jinja.stream")
local expr = require("tpl.jinja.parse_expr")

local M = {}

local node = ast.node

-- Nested tags; each level is a few Lua calls when parsed and when run.
local MAX_NESTING = 100

-- The parser's state: token stream, open tags, and the end tags each open block waits for.
local Parser = {}
Parser.__index = Parser

-- Errors about tags -------------------------------------------------------------------------------

local function describe_all(expected)
  local out = {}
  for i, e in ipairs(expected) do out[i] = "'" .. Stream.describe_type(e) .. "'" end
  return table.concat(out, " or ")
end

-- Whether any open block waits for this tag.
function Parser:awaited(tag)
  for _, ends in ipairs(self.ends) do
    for _, e in ipairs(ends) do
      if Stream.describe_type(e) == tag then return true end
    end
  end
  return false
end

function Parser:fail_tag(tag, line)
  local message = { tag and ("Encountered unknown tag '%s'."):format(tag) or "Unexpected end of template." }
  local looking = self.ends[#self.ends]
  if looking then
    local text = describe_all(looking)
    if tag and self:awaited(tag) then
      message[#message + 1] = "You probably made a nesting mistake. Jinja is expecting this tag, but currently" ..
        " looking for " .. text .. "."
    else
      message[#message + 1] = "Jinja was looking for the following tags: " .. text .. "."
    end
  end
  local open = self.tags[#self.tags]
  if open then
    message[#message + 1] = ("The innermost block that needs to be closed is '%s'."):format(open)
  end
  errors.raise_at(line, "TemplateSyntaxError", "%s", table.concat(message, " "))
end

-- Bodies ------------------------------------------------------------------------------------------

-- Parse nodes until one of the end tags is current; nil ends at the end of the template.
function Parser:body(ends)
  local s, out = self.s, {}
  if ends then self.ends[#self.ends + 1] = ends end
  while not s:is("eof") do
    local token = s.current
    if token.type == "data" then
      out[#out + 1] = node("Data", token.line, { text = token.value })
      s:next()
    elseif token.type == "variable_begin" then
      s:next()
      out[#out + 1] = node("Print", token.line, { value = expr.tuple(s) })
      s:expect("variable_end")
    else
      s:expect("block_begin")
      if ends and s:is_any(ends) then break end
      out[#out + 1] = self:statement()
      s:expect("block_end")
    end
  end
  if ends then
    if s:is("eof") then self:fail_tag(nil, s.current.line) end
    self.ends[#self.ends] = nil
  end
  return out
end

-- Parse the body of a block tag, up to and with (drop) its end tag's name.
function Parser:block(ends, drop)
  self.s:skip_if("colon")
  self.s:expect("block_end")
  local out = self:body(ends)
  if drop then self.s:next() end
  return out
end

-- Targets and signatures --------------------------------------------------------------------------

local reserved = { ["true"] = true, ["false"] = true, ["none"] = true, ["True"] = true, ["False"] = true,
  ["None"] = true }

-- Mark a node as an assignment target; nil if it cannot be one.
local function as_target(n)
  if n.t == "Name" then
    if reserved[n.name] then return nil end
    n.ctx = "store"
    return n
  end
  if n.t == "Tuple" then
    for _, item in ipairs(n.items) do
      if not as_target(item) then return nil end
    end
    return n
  end
  return n.t == "NSRef" and n or nil
end

local function fail_target(n)
  errors.raise_at(n.line, "TemplateSyntaxError", "can't assign to '%s'", n.t:lower())
end

function Parser:target(opts)
  opts = opts or {}
  local n = expr.tuple(self.s, {
    parse = function(s) return expr.primary(s, opts.namespace) end,
    ends = opts.ends,
  })
  return as_target(n) or fail_target(n)
end

function Parser:name_target()
  local token = self.s:expect("name")
  local n = node("Name", token.line, { name = token.value })
  return as_target(n) or errors.raise_at(token.line, "TemplateSyntaxError", "can't assign to 'name'")
end

-- "(a, b=1)" of a macro or call block.
function Parser:signature()
  local s, params = self.s, {}
  local with_default = false
  s:expect("lparen")
  while not s:is("rparen") do
    if #params > 0 then s:expect("comma") end
    local param = { name = self:name_target().name }
    if s:skip_if("assign") then
      param.default = expr.expression(s)
      with_default = true
    elseif with_default then
      s:fail("non-default argument follows default argument")
    end
    params[#params + 1] = param
  end
  s:expect("rparen")
  return params
end

-- Statements --------------------------------------------------------------------------------------

local statements = {}

statements["if"] = function(self, line)
  local s = self.s
  local branches, otherwise = {}, nil
  repeat
    s:next()
    local test = expr.tuple(s, { no_if = true })
    branches[#branches + 1] = { test = test, body = self:block({ "name:elif", "name:else", "name:endif" }) }
  until not s:is("name:elif")
  if s:next().value == "else" then otherwise = self:block({ "name:endif" }, true) end
  return node("If", line, { branches = branches, otherwise = otherwise })
end

statements["for"] = function(self, line)
  local s = self.s
  s:next()
  local target = self:target({ ends = { "name:in" } })
  s:expect("name:in")
  local iter = expr.tuple(s, { no_if = true, ends = { "name:recursive" } })
  local test
  if s:skip_if("name:if") then test = expr.expression(s) end
  local recursive = s:skip_if("name:recursive")
  local body, otherwise = self:block({ "name:endfor", "name:else" }), nil
  if s:next().value == "else" then otherwise = self:block({ "name:endfor" }, true) end
  return node("For", line, { target = target, iter = iter, test = test, recursive = recursive, body = body,
    otherwise = otherwise })
end

statements.set = function(self, line)
  local s = self.s
  s:next()
  local target = self:target({ namespace = true })
  if s:skip_if("assign") then
    return node("Set", line, { target = target, value = expr.tuple(s) })
  end
  local filter = expr.filters(s, nil)
  return node("SetBlock", line, { target = target, filter = filter, body = self:block({ "name:endset" }, true) })
end

statements.macro = function(self, line)
  self.s:next()
  local name = self:name_target().name
  local params = self:signature()
  return node("Macro", line, { name = name, params = params, body = self:block({ "name:endmacro" }, true) })
end

statements.call = function(self, line)
  local s = self.s
  s:next()
  local params = s:is("lparen") and self:signature() or {}
  local call = expr.expression(s)
  if call.t ~= "Call" then errors.raise_at(line, "TemplateSyntaxError", "expected call") end
  return node("CallBlock", line, { params = params, call = call, body = self:block({ "name:endcall" }, true) })
end

statements.filter = function(self, line)
  self.s:next()
  local filter = expr.filters(self.s, nil, true)
  return node("FilterBlock", line, { filter = filter, body = self:block({ "name:endfilter" }, true) })
end

statements.with = function(self, line)
  local s = self.s
  s:next()
  local targets, exprs = {}, {}
  while not s:is("block_end") do
    if #targets > 0 then s:expect("comma") end
    targets[#targets + 1] = self:target()
    s:expect("assign")
    exprs[#exprs + 1] = expr.expression(s)
  end
  return node("With", line, { targets = targets, values = exprs, body = self:block({ "name:endwith" }, true) })
end

statements.print = function(self, line)
  local s, out = self.s, {}
  s:next()
  while not s:is("block_end") do
    if #out > 0 then s:expect("comma") end
    out[#out + 1] = node("Print", line, { value = expr.expression(s) })
  end
  return node("Group", line, { body = out })
end

statements.autoescape = function(self, line)
  self.s:next()
  local value = expr.expression(self.s)
  return node("Autoescape", line, { value = value, body = self:block({ "name:endautoescape" }, true) })
end

statements.block = function(self, line)
  local s = self.s
  s:next()
  local name = s:expect("name").value
  s:skip_if("name:scoped")
  s:skip_if("name:required")
  if s:is("sub") then
    s:fail("Block names in Jinja have to be valid Python identifiers and may not contain hyphens, use an" ..
      " underscore instead.")
  end
  local body = self:block({ "name:endblock" }, true)
  s:skip_if("name:" .. name)
  if self.blocks[name] then
    self.late = self.late or errors.new("TemplateAssertionError", ("block '%s' defined twice"):format(name), line)
  end
  self.blocks[name] = true
  return node("Block", line, { name = name, body = body })
end

-- The tag of transformers that marks what the assistant wrote; its body is rendered as it is.
statements.generation = function(self, line)
  self.s:next()
  return node("Generation", line, { body = self:block({ "name:endgeneration" }, true) })
end

for _, word in ipairs({ "break", "continue" }) do
  statements[word] = function(self, line)
    self.s:next()
    return node("Jump", line, { word = word })
  end
end

-- Tags that reach for other templates: parsed, and refused when they run, as there is no loader.
statements.extends = function(self, line)
  self.s:next()
  return node("Load", line, { value = expr.expression(self.s) })
end

function Parser:import_context()
  local s = self.s
  if s:is_any({ "name:with", "name:without" }) and Stream.matches(s:look(), "name:context") then
    s:next()
    s:next()
    return true
  end
  return false
end

statements.include = function(self, line)
  local s = self.s
  s:next()
  local value = expr.expression(s)
  if s:is("name:ignore") and Stream.matches(s:look(), "name:missing") then
    s:next()
    s:next()
  end
  self:import_context()
  return node("Load", line, { value = value })
end

statements.import = function(self, line)
  local s = self.s
  s:next()
  local value = expr.expression(s)
  s:expect("name:as")
  self:name_target()
  self:import_context()
  return node("Load", line, { value = value })
end

statements.from = function(self, line)
  local s = self.s
  s:next()
  local value = expr.expression(s)
  s:expect("name:import")
  local first = true
  repeat
    if not first then s:expect("comma") end
    if self:import_context() then break end
    local target = self:name_target()
    if target.name:sub(1, 1) == "_" then
      errors.raise_at(target.line, "TemplateAssertionError",
        "names starting with an underline can not be imported")
    end
    if s:skip_if("name:as") then self:name_target() end
    first = false
  until self:import_context() or not s:is("comma")
  return node("Load", line, { value = value })
end

function Parser:statement()
  local token = self.s.current
  if token.type ~= "name" then self.s:fail("tag name expected") end
  local parse = statements[token.value]
  if not parse then self:fail_tag(token.value, token.line) end
  if #self.tags >= MAX_NESTING then self.s:fail("tags nest more than %d levels", MAX_NESTING) end
  self.tags[#self.tags + 1] = token.value
  local out = parse(self, token.line)
  self.tags[#self.tags] = nil
  return out
end

--- Parse a template; raises a template error.
---@return table body, tpl.TemplateError? late   an error that Jinja finds after parsing
function M.parse(source)
  local p = setmetatable({ s = Stream.new(lexer.tokens(source)), tags = {}, ends = {}, blocks = {} }, Parser)
  local body = p:body(nil)
  return body, p.late
end

return M
