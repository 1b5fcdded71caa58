-- SPDX-License-Identifier: Apache-2.0
--- Compiles and renders templates: lexer, parser, compiler and run state put together.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local globals = require("tpl.jinja.globals")
local parser = require("tpl.jinja.parser")
local compile = require("tpl.jinja.compile")
local text = require("tpl.jinja.text")

local M = {}

local function check_source(source)
  if not text.is_utf8(source) then errors.raise("UnicodeDecodeError", "template is not UTF-8") end
end

--- Compile a source into fn(ctx, out); raises nothing.
---@return function? code
---@return tpl.TemplateError? err
function M.compile(source)
  local before = state.swap(state.new())
  local ok, result = pcall(function()
    check_source(source)
    return compile.template(parser.parse(source))
  end)
  state.swap(before)
  if ok then return result end
  return nil, errors.from(result)
end

local function context(vars, run)
  local set = {}
  return {
    vars = set, run = run,
    resolve = function(name)
      local v = set[name]
      if v == nil then v = vars[name] end
      if v == nil then v = globals[name] end
      return v
    end,
  }
end

--- Render compiled code with variables (name -> template value).
---@param code function
---@param make_vars fun(): table   called inside the protected run, so that it may raise
---@param run table                state.new()
---@return string? text
---@return tpl.TemplateError? err
function M.render(code, make_vars, run)
  local before = state.swap(run)
  local ok, result = pcall(function()
    local out = compile.new_buffer()
    code(context(make_vars(), run), out)
    return table.concat(out, "", 1, out.n)
  end)
  state.swap(before)
  if ok then return result end
  return nil, errors.from(result, run.line > 0 and run.line or nil)
end

return M
