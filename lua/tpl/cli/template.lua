-- SPDX-License-Identifier: Apache-2.0
--- The row command `tpl template`: a model's chat template, a template file, or bare snippets in the rows.
local err = require("tpl.err")
local json = require("tpl.json")
local rows = require("tpl.cli.rows")
local script = require("tpl.script")
local text = require("tpl.text")
local template = require("tpl.template")

local M = {}

local function is_set(x) return x ~= nil and x ~= json.null end

--- Give a set member, nil for null.
local function member(row, name)
  if is_set(row[name]) then return row[name] end
end

--- Turn the result of a render into an answer, or throw the error of the row.
local function answer(prompt, e)
  if not prompt then err.throw { code = e.code, message = e.message } end
  return { "prompt" }, { prompt = prompt }
end

local function snippet(row)
  if type(row.template) ~= "string" then err.throw { code = "bad_row", message = "the row has no template, and neither --model nor --file is given" } end
  return answer(template.snippet(row.template, member(row, "vars"), { now = member(row, "now") }))
end

--- Give the source of the template and the special tokens that go with it.
local function source(opts)
  if opts.file then return script.read(opts.file), {} end
  local tokenizer = text.open_tokenizer(text.of_model(opts.model))
  if not tokenizer.chat_template then
    err.throw { code = "no_template", exit = 6, where = opts.model, message = "the model has no chat template" }
  end
  return tokenizer.chat_template, tokenizer
end

local function chat(opts)
  local text_of, tokens = source(opts)
  local compiled, e = template.compile(text_of)
  return function(row)
    if not compiled then err.throw { code = e.code, message = e.message } end
    if not is_set(row.messages) then err.throw { code = "bad_row", message = "the row has no messages" } end
    local more = { "tools", "documents", "add_generation_prompt", "continue_final_message", "kwargs", "now" }
    local args = {
      messages = row.messages, bos_token = member(row, "bos_token") or tokens.bos_token,
      eos_token = member(row, "eos_token") or tokens.eos_token,
    }
    for _, name in ipairs(more) do args[name] = member(row, name) end
    return answer(template.chat(compiled, args))
  end
end

function M.run(ctx)
  local opts = ctx.args.opts
  if opts.model and opts.file then
    err.throw { code = "usage", where = "tpl template", message = "takes one of --model M and --file x.jinja" }
  end
  rows.stream(ctx, (opts.model or opts.file) and chat(opts) or snippet, { typed = true })
  return 0
end

return M
