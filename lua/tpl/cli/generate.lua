-- SPDX-License-Identifier: Apache-2.0
--- The row command `tpl generate`: continue many prompts together.
local deployment = require("tpl.cli.deployment")
local engine_rows = require("tpl.cli.engine_rows")
local err = require("tpl.err")
local fill = require("tpl.cli.fill")
local out = require("tpl.cli.out")
local params = require("tpl.params")

local M = {}

local keys = { "id", "prompt_ids", "ids", "text", "finish", "ttft_us", "itl_us" }
local keys_with_logprobs = { "id", "prompt_ids", "ids", "text", "finish", "ttft_us", "itl_us", "logprobs" }

--- Make the answer of one row.
local function line(result, row, request)
  local itl = result.itl_us or {}
  return out.ordered(request.logprobs and keys_with_logprobs or keys, {
    id = row.id, prompt_ids = out.array(request.prompt_ids), ids = out.array(result.ids), text = result.text, finish = result.finish,
    ttft_us = fill.whole(result.ttft_us), itl_us = out.ordered({ "p50", "p99" }, itl), logprobs = result.logprobs and out.array(result.logprobs),
  })
end

--- Open the model's tokenizer. Rows of ids go on without one, so a file that cannot be used is a warning.
local function open_tokenizer(ctx, text)
  local tokenizer, e = err.try(text.maybe, text)
  if e then ctx:warn { code = "no_tokenizer", where = e.where, message = e.message .. "; text is null" } end
  return tokenizer
end

function M.run(ctx)
  local list, p, text = engine_rows.open(ctx)
  local limits = { vocab = p.config and p.config.vocab, context = deployment.context(p), seed = tonumber(ctx.knobs.TPL_SEED) }
  local tokenizer = open_tokenizer(ctx, text)
  local requests, good = engine_rows.prepare(list, function(row)
    local request = params.request(row.value, text:ids(row.value, { "ids", "messages", "prompt" }), limits)
    if request.stop and not tokenizer then err.throw { code = "no_tokenizer", message = "without a tokenizer no stop text can be seen" } end
    return request
  end)
  local take, finish = engine_rows.answers(ctx, list, good, requests, line)
  if #requests > 0 then
    engine_rows.with_engine(ctx, p, { tokenizer = tokenizer }, function(eng)
      local results = engine_rows.check(eng:generate { rows = requests, tokenizer = tokenizer })
      for i, result in ipairs(results) do take(i, result) end
      return true
    end)
  end
  finish()
  return 0
end

return M
