-- SPDX-License-Identifier: Apache-2.0
--- The command `tpl run`: plan, load, answer a prompt or chat, and say what limited the speed.
local deployment = require("tpl.cli.deployment")
local engine_rows = require("tpl.cli.engine_rows")
local err = require("tpl.err")
local fill = require("tpl.cli.fill")
local machine = require("tpl.cli.machine")
local rates = require("tpl.rates")
local out = require("tpl.cli.out")
local params = require("tpl.params")
local plan = require("tpl.cli.plan")
local util = require("tpl.util")

local M = {}

local function sys() return require("tpl.core").sys end

-- -- One answer ------------------------------------------------------------------------------------------------------

local function sampling(ctx)
  local opts = ctx.args.opts
  return {
    max_tokens = opts.max_tokens, temperature = opts.temperature, top_p = opts.top_p, top_k = opts.top_k,
    seed = opts.seed or tonumber(ctx.knobs.TPL_SEED),
  }
end

--- Follow when tokens come, to know the speed.
local function stopwatch()
  local watch = { started = sys().now_us(), n = 0 }
  function watch.token()
    local now = sys().now_us()
    watch.n = watch.n + 1
    watch.first = watch.first or now
    watch.last = now
  end
  --- Tokens after the first, per second.
  function watch.decode_tok_s()
    if watch.n < 2 or watch.last <= watch.first then return nil end
    return (watch.n - 1) * 1e6 / (watch.last - watch.first)
  end
  return watch
end

--- Answer one conversation. Gives the result of the engine and the stopwatch.
---@param session {ctx: table, plan: table, engine: table, text: tpl.Text, tokenizer: table}
local function answer(session, messages, on_text)
  local ctx, p = session.ctx, session.plan
  local limits = { vocab = p.config and p.config.vocab, context = deployment.context(p) }
  local prompt_ids = session.text:prompt(messages)
  if limits.context and #prompt_ids >= limits.context then
    err.throw { code = "context_length", where = "prompt", message = string.format("the prompt has %d tokens, want.context is %d", #prompt_ids,
      limits.context), hint = "give want.context=N, or a shorter prompt" }
  end
  local request = params.request(sampling(ctx), prompt_ids, limits)
  local watch = stopwatch()
  local results = engine_rows.check(session.engine:generate {
    rows = { request }, tokenizer = session.tokenizer,
    on_token = function(_, token)
      if token.id then watch.token() end
      on_text(token)
    end,
  })
  local result = results[1]
  if result.error then err.throw { code = result.error.code, exit = 1, message = result.error.message } end
  result.prompt_ids = result.prompt_ids or request.prompt_ids
  return result, watch
end

-- -- What limited it -------------------------------------------------------------------------------------------------

--- Give the last line of a run.
---@return string
function M.limit_line(p, result, watch)
  local decode_us = watch.n >= 2 and watch.last - watch.first or 0
  local prefill_us = watch.first and watch.first - watch.started or 0
  local n_prompt = #result.prompt_ids
  local prefill_tok_s = prefill_us > 0 and n_prompt * 1e6 / prefill_us or nil
  local speed = string.format("first token after %.0f ms", prefill_us / 1000)
  if watch.decode_tok_s() then speed = string.format("%.1f tokens/s, ", watch.decode_tok_s()) .. speed end
  local known = rates.known()
  if not known then return "limited by: unknown, this machine was not probed (tpl bench probe); " .. speed end
  local bandwidth, matrix = machine.shares(known, p, {
    tok_s = watch.decode_tok_s(), position = n_prompt + watch.n / 2, prefill_tok_s = prefill_tok_s,
  })
  local what, share = "read bandwidth", bandwidth
  if not bandwidth or (matrix and prefill_us > decode_us) then what, share = "matrix peak", matrix end
  if not share then return "limited by: unknown; " .. speed end
  return string.format("limited by: %s %.0f %%; %s", what, 100 * share, speed)
end

-- -- Text and events -------------------------------------------------------------------------------------------------

local function messages_of(ctx, prompt)
  local list = {}
  if ctx.args.opts.system then list[1] = { role = "system", content = ctx.args.opts.system } end
  list[#list + 1] = { role = "user", content = prompt }
  return list
end

local function one_text(session, prompt)
  local ctx = session.ctx
  ctx.out.stdout("\n")
  local result, watch = answer(session, messages_of(ctx, prompt), function(token) ctx.out.stdout(token.text or "") end)
  ctx.out:text("\n\n%s\n", M.limit_line(session.plan, result, watch))
end

local function event(ctx, name, keys, values)
  values.event = name
  ctx.out:line(out.ordered({ "event", unpack(keys) }, values))
end

local reasons = { stop = "stop", length = "length" }

local function one_json(session, prompt)
  local ctx = session.ctx
  local result, watch = answer(session, messages_of(ctx, prompt), function(token)
    event(ctx, "token", { "seq", "id", "text", "logprob" }, { seq = 0, id = token.id, text = token.text, logprob = token.logprob })
  end)
  local n_prompt, n_new = #result.prompt_ids, #result.ids
  local itl = result.itl_us or {}
  event(ctx, "done", { "seq", "reason", "usage", "timings", "limit" }, {
    seq = 0, reason = reasons[result.finish] or "abort",
    usage = { prompt_tokens = n_prompt, completion_tokens = n_new },
    timings = { load_us = math.floor(session.load_us), ttft_us = fill.whole(result.ttft_us), itl_us = out.ordered({ "p50", "p99" }, itl) },
    limit = M.limit_line(session.plan, result, watch),
  })
end

--- Chat on a terminal until the end of the input; errors of one turn do not end it.
local function chat(session)
  local ctx = session.ctx
  ctx.out:text("\nType a message; an empty line or Ctrl-D ends.\n")
  local history = {}
  if ctx.args.opts.system then history[1] = { role = "system", content = ctx.args.opts.system } end
  while true do
    ctx.out.stdout("\n> ")
    local text = io.read("*l")
    if text == nil or text == "" then return end
    history[#history + 1] = { role = "user", content = text }
    local parts = {}
    local result, e = err.try(answer, session, history, function(token)
      parts[#parts + 1] = token.text or ""
      ctx.out.stdout(token.text or "")
    end)
    if result then
      history[#history + 1] = { role = "assistant", content = table.concat(parts) }
      ctx.out.stdout("\n")
    else
      ctx.out:error(e)
      history[#history] = nil
      if e.code ~= "context_length" and e.code ~= "kv_full" then err.throw(e) end
    end
  end
end

-- -- The command -----------------------------------------------------------------------------------------------------

local function check_mode(ctx, d)
  if ctx.args.prompt then return end
  if d.serve then
    err.throw { code = "not_in_version", where = "serve", message = "serving is not in this version", hint = 'give a prompt: tpl run FILE -- "prompt"' }
  end
  local is_terminal = ctx.stdin_tty
  if is_terminal == nil then is_terminal = sys().isatty(0) end
  if ctx.json or not is_terminal then
    err.throw { code = "usage", where = "tpl run", message = "no prompt, and this is no terminal to chat on",
      hint = 'give one: tpl run FILE -- "prompt"' }
  end
end

local function plan_event(ctx, p)
  local value = fill.plan(p.report)
  event(ctx, "plan", util.keys(value), value)
end

--- Tell each tenth of each rank's bytes.
local function load_event(ctx)
  local told = {}
  return function(rank, bytes, total)
    local tenth = total > 0 and math.floor(10 * bytes / total) or 10
    if tenth <= (told[rank] or 0) then return end
    told[rank] = tenth
    event(ctx, "load", { "rank", "bytes", "total" }, { rank = rank, bytes = bytes, total = total })
  end
end

-- A record of what runs where, for a later --manifest; a cache that cannot be written costs that, no more.
local function note_manifest(ctx, p)
  local manifest = require("tpl.cli.manifest")
  local path = manifest.default_path(p.deploy)
  sys().mkdir_p((path:gsub("/[^/]*$", "")))
  if err.try(function() manifest.write(ctx, p, path, 0) return true end) then p.report.manifest = path end
end

local function open_session(ctx, d)
  local p = deployment.plan(ctx, d)
  if p.topo and not ctx.args.opts.manifest then note_manifest(ctx, p) end
  if ctx.json then plan_event(ctx, p) else plan.print(ctx, p) end
  local session = { ctx = ctx, plan = p, text = deployment.text(p) }
  if not p.tokenizer_path then
    err.throw { code = "no_tokenizer", exit = 6, where = d.model, message = "the model has no tokenizer to read a prompt with",
      hint = "tpl generate takes ids" }
  end
  session.tokenizer = session.text:need()
  local started = sys().now_us()
  session.engine = deployment.load(ctx, p, { event = ctx.json and load_event(ctx) or nil, tokenizer = session.tokenizer })
  session.load_us = sys().now_us() - started
  return session
end

function M.run(ctx)
  local d = deployment.read(ctx)
  check_mode(ctx, d)
  local session = open_session(ctx, d)
  return deployment.with(session.engine, function()
    if not ctx.args.prompt then
      chat(session)
    elseif ctx.json then
      one_json(session, ctx.args.prompt)
    else
      one_text(session, ctx.args.prompt)
    end
    return 0
  end)
end

return M
