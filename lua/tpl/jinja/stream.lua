-- SPDX-License-Identifier: Apache-2.0
--- Walks the token list for the parser and names tokens in messages.
local errors = require("tpl.jinja.errors")
local lexer = require("tpl.jinja.lexer")

local Stream = {}
Stream.__index = Stream

-- Expressions nest no deeper than this: each level is a few Lua calls when parsed and when run.
local MAX_NESTING = 300

local EOF = { type = "eof", line = 1 }

--- What a token is called in a message: a name by its text, others by their spelling.
function Stream.describe(token)
  if token.type == "name" then return token.value end
  return Stream.describe_type(token.type)
end

--- The same for an expected type such as "rparen" or "name:endif".
function Stream.describe_type(expected)
  local name = expected:match("^name:(.*)$")
  return name or lexer.spelling[expected] or expected
end

function Stream.new(tokens)
  local s = setmetatable({ tokens = tokens, at = 0 }, Stream)
  s:next()
  return s
end

--- Return the current token and move on. A lexer error is raised when it becomes current.
function Stream:next()
  local before = self.current
  if before and before.type == "eof" then return before end
  self.at = self.at + 1
  local token = self.tokens[self.at] or EOF
  if token.type == "error" then error(token.value, 0) end
  self.current = token
  return before
end

function Stream:look()
  local token = self.tokens[self.at + 1] or EOF
  if token.type == "error" then error(token.value, 0) end
  return token
end

--- Whether a token is of a type, or the name X for "name:X".
function Stream.matches(token, expected)
  if token.type == expected then return true end
  return token.type == "name" and expected == "name:" .. token.value
end

function Stream:is(expected)
  return Stream.matches(self.current, expected)
end

function Stream:is_any(list)
  for i = 1, #list do
    if self:is(list[i]) then return true end
  end
  return false
end

function Stream:skip_if(expected)
  if not self:is(expected) then return false end
  self:next()
  return true
end

function Stream:expect(expected)
  local token = self.current
  if Stream.matches(token, expected) then return self:next() end
  if token.type == "eof" then
    self:fail("unexpected end of template, expected '%s'.", Stream.describe_type(expected))
  end
  return self:fail("expected token '%s', got '%s'", Stream.describe_type(expected), Stream.describe(token))
end

function Stream:fail(message, ...)
  errors.raise_at(self.current.line, "TemplateSyntaxError", message, ...)
end

--- Count a level of nesting; pair with leave().
function Stream:enter()
  self.nesting = (self.nesting or 0) + 1
  if self.nesting > MAX_NESTING then self:fail("expression nests more than %d levels", MAX_NESTING) end
end

function Stream:leave()
  self.nesting = self.nesting - 1
end

return Stream
