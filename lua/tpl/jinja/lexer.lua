-- SPDX-License-Identifier: Apache-2.0
--- Splits a template into tokens, with Jinja's white space rules for trim_blocks and lstrip_blocks:
---   a block or comment tag that begins its line loses the blanks before it,
---   one newline right after a block or comment tag is dropped,
---   "-" in a tag strips all white space on that side, "+" keeps it.
--- Tokens are {type, value, line}. Types: data, name, string, integer, float, the operator names
--- below, variable_begin/end, block_begin/end, eof, and `error`, which the parser raises on reaching
--- it, because Jinja lexes lazily and a parse error before it wins.
local errors = require("tpl.jinja.errors")
local text = require("tpl.jinja.text")
local unicode = require("tpl.jinja.unicode")
local values = require("tpl.jinja.values")
local number = require("tpl.jinja.number")
local string_literal = require("tpl.jinja.string_literal")

local M = {}

local operators = {
  ["+"] = "add", ["-"] = "sub", ["/"] = "div", ["//"] = "floordiv", ["*"] = "mul", ["%"] = "mod",
  ["**"] = "pow", ["~"] = "tilde", ["["] = "lbracket", ["]"] = "rbracket", ["("] = "lparen",
  [")"] = "rparen", ["{"] = "lbrace", ["}"] = "rbrace", ["=="] = "eq", ["!="] = "ne", [">"] = "gt",
  [">="] = "gteq", ["<"] = "lt", ["<="] = "lteq", ["="] = "assign", ["."] = "dot", [":"] = "colon",
  ["|"] = "pipe", [","] = "comma", [";"] = "semicolon",
}
local closes = { ["("] = ")", ["["] = "]", ["{"] = "}" }

--- Spelling of a token type in messages.
M.spelling = { begin = "begin of template", eof = "end of template", variable_begin = "begin of print statement",
  variable_end = "end of print statement", block_begin = "begin of statement block",
  block_end = "end of statement block", data = "template data / text" }
for spelling, name in pairs(operators) do M.spelling[name] = spelling end

local function count_lines(s)
  local _, n = s:gsub("\n", "")
  return n
end

-- The lexer's state: source, position, line, tokens so far.
local Lexer = {}
Lexer.__index = Lexer

function Lexer:fail(message, ...)
  errors.raise_at(self.line, "TemplateSyntaxError", message, ...)
end

function Lexer:emit(type, value)
  self.tokens[#self.tokens + 1] = { type = type, value = value, line = self.line }
end

--- Move to position p, counting the lines passed.
function Lexer:advance(p)
  self.line = self.line + count_lines(self.src:sub(self.pos, p - 1))
  self.line_starting = self.src:sub(p - 1, p - 1) == "\n"
  self.pos = p
end

-- The text before a tag after the tag's white space control.
function Lexer:data_before(data, sign, is_variable)
  if sign == "-" then return data:sub(1, text.skip_space_back(data, #data)) end
  if sign == "+" or is_variable then return data end
  local start = data:match("^.*\n()") or 1
  if (start > 1 or self.line_starting) and text.skip_space(data, start) > #data then
    return data:sub(1, start - 1)
  end
  return data
end

function Lexer:emit_data(data)
  if data ~= "" then self:emit("data", data) end
end

-- End of a tag at p: position after it and what it strips, nil if the tag does not end here.
local function tag_end(src, p, close, trims)
  local sign = src:sub(p, p)
  if sign == "-" and src:sub(p + 1, p + #close) == close then return text.skip_space(src, p + 1 + #close) end
  if trims and sign == "+" and src:sub(p + 1, p + #close) == close then return p + 1 + #close end
  if src:sub(p, p + #close - 1) ~= close then return nil end
  p = p + #close
  if trims and src:sub(p, p) == "\n" then p = p + 1 end
  return p
end

function Lexer:comment(p)
  local from = p
  while true do
    local q = self.src:find("#}", from, true)
    if not q then self:fail("Missing end of comment tag") end
    local sign = q > p and self.src:sub(q - 1, q - 1) or ""
    local start = (sign == "-" or sign == "+") and q - 1 or q
    local after = tag_end(self.src, start, "#}", true)
    if after then return self:advance(after) end
    from = q + 1
  end
end

-- Body of {% raw %}: everything up to {% endraw %}.
function Lexer:raw(p)
  self:advance(p)
  local from = p
  while true do
    local q = self.src:find("{%", from, true)
    if not q then self:fail("Missing end of raw directive") end
    local sign, after = self.src:match("^{%%([-+]?)()", q)
    after = text.skip_space(self.src, after)
    if self.src:sub(after, after + 5) == "endraw" then
      local stop = tag_end(self.src, text.skip_space(self.src, after + 6), "%}", true)
      if stop then
        self:emit_data(self:data_before(self.src:sub(p, q - 1), sign, false))
        return self:advance(stop)
      end
    end
    from = q + 2
  end
end

-- Position after "{% raw %}" if the block tag at q is one. No newline is trimmed after it.
function Lexer:raw_begin(q)
  local p = text.skip_space(self.src, self.src:match("^{%%[-+]?()", q))
  if self.src:sub(p, p + 2) ~= "raw" then return nil end
  p = text.skip_space(self.src, p + 3)
  return tag_end(self.src, p, "%}", false)
end

local function read_number(s, p)
  local function digits(from)
    local q = s:match("^%d+()", from)
    while q and s:find("^_%d", q) do q = s:match("^%d+()", q + 1) end
    return q
  end
  local q = digits(p)
  if not q then return nil end
  if s:sub(p - 1, p - 1) ~= "." then
    local fraction = s:sub(q, q) == "." and digits(q + 1)
    local exponent = s:match("^[eE][+-]?()%d", fraction or q)
    local stop = exponent and digits(exponent) or fraction
    if stop then return "float", stop end
  end
  for _, pattern in ipairs({ "^0[bB]()[01_]+()", "^0[oO]()[0-7_]+()", "^0[xX]()[%x_]+()" }) do
    local from, stop = s:match(pattern, p)
    if from and not s:sub(from, stop - 1):find("__", 1, true) and s:sub(stop - 1, stop - 1) ~= "_" then
      return "integer", stop
    end
  end
  if s:sub(p, p) == "0" then return "integer", s:match("^0[0_]*()", p) end
  return "integer", q
end

local bases = { b = 2, o = 8, x = 16 }

local function literal(kind, s)
  s = s:gsub("_", "")
  if kind == "float" then return values.float(tonumber(s)) end
  local base = s:match("^0(%a)")
  if base then return number.parse_int(s, bases[base:lower()]) end
  return number.parse_int(s, 10)
end

-- A string literal that begins at p: position after it, or nil.
local function string_end(s, p)
  local quote = s:sub(p, p)
  local q = p + 1
  while true do
    q = s:find("[\\" .. quote .. "]", q)
    if not q then return nil end
    if s:sub(q, q) == quote then return q + 1 end
    q = q + 2
    if q > #s + 1 then return nil end
  end
end

local function name_end(s, p)
  local q, first = p, true
  while true do
    local c = s:match("^[\192-\255][\128-\191]*", q) or s:sub(q, q)
    if c == "" or not unicode.is_word(c, first) then break end
    q, first = q + #c, false
  end
  return q > p and q or nil
end

function Lexer:balance(op)
  if closes[op] then
    self.stack[#self.stack + 1] = closes[op]
  elseif op == ")" or op == "]" or op == "}" then
    local expected = table.remove(self.stack)
    if not expected then self:fail("unexpected '%s'", op) end
    if expected ~= op then self:fail("unexpected '%s', expected '%s'", op, expected) end
  end
end

-- One token inside a tag.
function Lexer:inner(p)
  local s = self.src
  local kind, stop = read_number(s, p)
  if kind then
    self:emit(kind, literal(kind, s:sub(p, stop - 1)))
    return self:advance(stop)
  end
  stop = name_end(s, p)
  if stop then
    self:emit("name", s:sub(p, stop - 1))
    return self:advance(stop)
  end
  local c = s:sub(p, p)
  if c == "'" or c == '"' then
    stop = string_end(s, p)
    if stop then
      self:emit("string", string_literal.decode(s:sub(p + 1, stop - 2), self.line))
      return self:advance(stop)
    end
  end
  local op = s:sub(p, p + 1)
  if not operators[op] then op = c end
  if not operators[op] then
    local char = s:match("^[\192-\255][\128-\191]*", p) or c
    self:fail("unexpected char %s at %d", values.repr(char), text.index_of(s, p))
  end
  self:balance(op)
  self:emit(operators[op])
  self:advance(p + #op)
end

-- The tokens of one tag up to its end.
function Lexer:tag(kind, close, trims)
  self.stack = {}
  while true do
    local after = #self.stack == 0 and tag_end(self.src, self.pos, close, trims)
    if after then
      self:emit(kind .. "_end")
      return self:advance(after)
    end
    local p = text.skip_space(self.src, self.pos)
    if p > self.pos then
      self:advance(p)
    elseif p > #self.src then
      return
    else
      self:inner(p)
    end
  end
end

-- One stretch of data and the tag that ends it.
function Lexer:root()
  local s = self.src
  local q = s:find("{[{%%#]", self.pos)
  if not q then
    self:emit_data(s:sub(self.pos))
    return self:advance(#s + 1)
  end
  local kind = s:sub(q + 1, q + 1)
  local sign = s:match("^[-+]", q + 2) or ""
  self:emit_data(self:data_before(s:sub(self.pos, q - 1), sign, kind == "{"))
  self:advance(q)
  local p = q + 2 + #sign
  if kind == "#" then return self:comment(p) end
  if kind == "{" then
    self:emit("variable_begin")
    self:advance(p)
    return self:tag("variable", "}}", false)
  end
  local raw = self:raw_begin(q)
  if raw then return self:raw(raw) end
  self:emit("block_begin")
  self:advance(p)
  return self:tag("block", "%}", true)
end

-- Larger than any real template by far; lexing and compiling take about a microsecond a byte.
-- A tree of a source takes some 400 times its bytes. Published templates have up to about 30,000.
local MAX_SOURCE = 131072

--- Tokens of a template source.
---@param source string
---@return table[] tokens
function M.tokens(source)
  if #source > MAX_SOURCE then
    errors.raise_at(1, "TemplateSyntaxError", "template has %d bytes, at most %d are read", #source, MAX_SOURCE)
  end
  source = source:gsub("\r\n", "\n"):gsub("\r", "\n")
  if source:sub(-1) == "\n" then source = source:sub(1, -2) end
  local lexer = setmetatable({ src = source, pos = 1, line = 1, tokens = {}, stack = {}, line_starting = true }, Lexer)
  local ok, err = pcall(function()
    while lexer.pos <= #source do lexer:root() end
  end)
  if ok then
    lexer:emit("eof")
  else
    lexer:emit("error", errors.from(err, lexer.line))
  end
  return lexer.tokens
end

return M
