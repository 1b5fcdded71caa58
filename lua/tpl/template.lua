-- SPDX-License-Identifier: Apache-2.0
--- Renders chat templates as `apply_chat_template` of Hugging Face transformers does: Jinja2 in the
--- immutable sandbox with trim_blocks, lstrip_blocks, loop controls, its tojson, raise_exception,
--- strftime_now and the generation tag.
---
---     local template = require("tpl.template")
---     local prompt, err = template.chat(source, { messages = messages, add_generation_prompt = true })
---
--- Values are those of tpl.json (decode with typed = true to keep 1.0 apart from 1). Errors are
--- {code, message, line}; code is the Python exception class, or MemoryError, TimeoutError and
--- RecursionError for the budgets that keep a hostile template short.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local environment = require("tpl.jinja.environment")
local convert = require("tpl.jinja.convert")
local strftime = require("tpl.jinja.strftime")
local chat = require("tpl.jinja.chat")

local M = {}

---@class tpl.Template
---@field name string?
---@field source string
local Template = {}
Template.__index = Template

--- Compile a template source.
---@param source string
---@param opts {name: string?, limits: tpl.TemplateLimits?}?
---@return tpl.Template? template
---@return tpl.TemplateError? err
function M.compile(source, opts)
  local code, err = environment.compile(source)
  if not code then return nil, err end
  opts = opts or {}
  return setmetatable({ code = code, source = source, name = opts.name, limits = opts.limits }, Template)
end

-- Clock of a render: nil means the machine's.
local function clock(now)
  if now == nil or type(now) == "userdata" then return nil end
  local date, message = strftime.parse(tostring(now))
  if not date then return nil, errors.new("ValueError", message) end
  return date
end

--- Render with variables, a table of name -> value.
---@param vars table
---@param opts {now: string?, limits: tpl.TemplateLimits?}?
---@return string? text
---@return tpl.TemplateError? err
function Template:render(vars, opts)
  opts = opts or {}
  local now, err = clock(opts.now)
  if err then return nil, err end
  return environment.render(self.code, function()
    local out = {}
    for name, v in pairs(vars or {}) do out[name] = convert.value(v) end
    return out
  end, state.new(opts.limits or self.limits, now))
end

--- Render a conversation with an already compiled template; see M.chat.
---@return string? prompt
---@return tpl.TemplateError? err
function Template:chat(opts)
  local now, err = clock(opts.now)
  if err then return nil, err end
  local finish
  local text, fail = environment.render(self.code, function()
    local vars
    vars, finish = chat.prepare(self.source, opts)
    return vars
  end, state.new(opts.limits or self.limits, now))
  if not text then return nil, fail end
  return finish(text)
end

--- Render a conversation.
---@param source string | tpl.Template
---@param opts table
---   messages                 array of messages
---   tools, documents         arrays; nil or null: None
---   add_generation_prompt    default false
---   continue_final_message   true, or the name of the message field to continue
---   kwargs                   further variables of the template
---   now                      ISO 8601 local time for strftime_now; nil: the clock
---   bos_token, eos_token, pad_token, unk_token, ...   special tokens, strings
---   limits                   tpl.TemplateLimits
---@return string? prompt
---@return tpl.TemplateError? err
function M.chat(source, opts)
  local template = source
  if type(source) == "string" then
    local err
    template, err = M.compile(source)
    if not template then return nil, err end
  end
  return template:chat(opts)
end

--- Render a bare snippet with variables.
---@param source string
---@param vars table?
---@param opts {now: string?, limits: tpl.TemplateLimits?}?
---@return string? text
---@return tpl.TemplateError? err
function M.snippet(source, vars, opts)
  local template, err = M.compile(source)
  if not template then return nil, err end
  return template:render(vars, opts)
end

--- Templates for models that bring none.
M.builtin = {
  chatml = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + " ..
    "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
  plain = "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}{% endfor %}" ..
    "{% if add_generation_prompt %}assistant:{% endif %}",
}

return M
