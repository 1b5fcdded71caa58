-- SPDX-License-Identifier: Apache-2.0
--- Raises and recognises template errors.
--- `code` is the name of the Python exception class that Jinja2 in transformers gives for the same
--- template, so that callers and fixtures can compare it.
local M = {}

---@class tpl.TemplateError
---@field code string      Python exception class: "TemplateSyntaxError", "UndefinedError", ...
---@field message string   one line
---@field line integer?    line of the template, from 1

local mt = { __name = "tpl.template_error" }

function mt.__tostring(e)
  return e.code .. ": " .. e.message
end

--- Build an error value without raising it.
---@param code string
---@param message string
---@param line integer?
---@return tpl.TemplateError
function M.new(code, message, line)
  return setmetatable({ code = code, message = message, line = line }, mt)
end

--- Raise; further arguments are formatted into the message.
function M.raise(code, message, ...)
  if select("#", ...) > 0 then message = message:format(...) end
  error(M.new(code, message), 0)
end

--- Raise with a line number that is already known (lexer and parser).
function M.raise_at(line, code, message, ...)
  if select("#", ...) > 0 then message = message:format(...) end
  error(M.new(code, message, line), 0)
end

--- Turn whatever pcall caught into a template error.
--- A Lua stack overflow is what Python calls RecursionError; anything else is a defect of ours.
---@return tpl.TemplateError
function M.from(caught, line)
  if getmetatable(caught) == mt then
    caught.line = caught.line or line
    return caught
  end
  local text = tostring(caught)
  if text:find("stack overflow", 1, true) then
    return M.new("RecursionError", "maximum recursion depth exceeded", line)
  end
  if text:find("not enough memory", 1, true) then
    return M.new("MemoryError", "out of memory", line)
  end
  return M.new("InternalError", text, line)
end

return M
