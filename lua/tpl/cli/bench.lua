-- SPDX-License-Identifier: Apache-2.0
--- The command `tpl bench`: the machine's limits (probe), or prefill and decode speed of a model beside them.
local deployment = require("tpl.cli.deployment")
local engine_rows = require("tpl.cli.engine_rows")
local err = require("tpl.err")
local fill = require("tpl.cli.fill")
local machine = require("tpl.cli.machine")
local rates = require("tpl.rates")

local M = {}

local function sys() return require("tpl.core").sys end

local function is_number(x) return type(x) == "number" end

local function number_text(x, format) return is_number(x) and string.format(format, x) or "-" end

-- -- Probe -----------------------------------------------------------------------------------------------------------

local function probe(ctx)
  local m, message = rates.probe()
  if not m then err.throw { code = "device", message = tostring(message) } end
  if ctx.json then
    ctx:finish(fill.bench { machine = m })
    return 0
  end
  local g = m.matrix_gflop_s
  ctx.out:text("%s, %d cores, isa %s\n", tostring(m.cpu), m.cores, m.isa)
  ctx.out:text("read bandwidth %s GB/s\n", number_text(m.read_gb_s, "%.1f"))
  ctx.out:text("matrix peak    f32 %s, bf16 %s, i8 %s GFLOP/s\n", number_text(g.f32, "%.0f"), number_text(g.bf16, "%.0f"), number_text(g.i8, "%.0f"))
  ctx.out:text("team barrier   %s us\n", number_text(m.barrier_us, "%.2f"))
  return 0
end

-- -- A model ---------------------------------------------------------------------------------------------------------

--- Make prompts of ids that differ by row and run, from a fixed sequence.
local function prompts(p, opts, run)
  local list, n = {}, opts.depth + opts.prompt
  local low, high = 3, p.config.vocab - 1
  for row = 1, opts.batch do
    local ids, x = {}, row * 7919 + run * 104729
    for i = 1, n do
      x = (x * 1103515245 + 12345) % 2147483648
      ids[i] = low + x % math.max(1, high - low)
    end
    list[row] = { prompt_ids = ids, max_tokens = opts.new, ignore_eos = true, temperature = 0 }
  end
  return list
end

local function median(values)
  local list = {}
  for _, x in ipairs(values) do if is_number(x) then list[#list + 1] = x end end
  if #list == 0 then return nil end
  table.sort(list)
  local half = math.floor(#list / 2)
  return #list % 2 == 1 and list[half + 1] or (list[half] + list[half + 1]) / 2
end

--- Run once; gives speeds. Decoding is counted from the moment when every row has its first token.
local function run_once(eng, p, opts, run)
  local seen, n_seen, all_first, after, last = {}, 0, nil, 0, nil
  local started = sys().now_us()
  local results = engine_rows.check(eng:generate {
    rows = prompts(p, opts, run),
    on_token = function(row, token)
      if not token.id then return end
      last = sys().now_us()
      if all_first then after = after + 1 end
      if not seen[row] then
        seen[row], n_seen = true, n_seen + 1
        if n_seen == opts.batch then all_first = last end
      end
    end,
  })
  for _, r in ipairs(results) do
    if r.error then err.throw { code = r.error.code, exit = 1, message = r.error.message } end
  end
  local function of(get)
    local values = {}
    for i, r in ipairs(results) do values[i] = get(r) end
    return median(values)
  end
  return {
    prefill = all_first and opts.batch * (opts.depth + opts.prompt) * 1e6 / (all_first - started) or nil,
    decode = after > 0 and last > all_first and after * 1e6 / (last - all_first) or nil,
    ttft = of(function(r) return r.ttft_us end), p50 = of(function(r) return r.itl_us and r.itl_us.p50 end),
    p99 = of(function(r) return r.itl_us and r.itl_us.p99 end),
  }
end

local function per(a, b) return is_number(a) and is_number(b) and b > 0 and a / b or nil end

--- Put the figures of all runs together.
local function case(p, eng, opts, runs, before)
  local function of(name)
    local values = {}
    for i, r in ipairs(runs) do values[i] = r[name] end
    return median(values)
  end
  local stats = eng:stats()
  local steps = stats.steps and stats.steps - (before.steps or 0)
  local known = rates.known()
  local decode, prefill = of("decode"), of("prefill")
  local bandwidth, matrix
  if known then
    bandwidth, matrix = machine.shares(known, p, {
      tok_s = decode, batch = opts.batch, position = opts.depth + opts.prompt + opts.new / 2, prefill_tok_s = prefill,
    })
  end
  return known, {
    name = p.deploy and p.deploy.model or "model", plan_hash = p.report.plan_hash, isa = eng.isa, prompt_tokens = opts.prompt,
    new_tokens = opts.new, batch = opts.batch, depth = opts.depth, prefill_tok_s = prefill, decode_tok_s = decode, ttft_us = fill.whole(of("ttft")),
    itl_us = { p50 = fill.whole(of("p50")), p99 = fill.whole(of("p99")) }, share_bandwidth = bandwidth, share_matrix = matrix,
    allocs_per_step = per(stats.allocs and stats.allocs - (before.allocs or 0), steps),
    syncs_per_layer = per(per(stats.barriers and stats.barriers - (before.barriers or 0), steps), p.config and p.config.n_layer),
    rss_peak_bytes = stats.rss_peak_bytes, load_us = stats.load_us, read_bytes = stats.read_bytes,
  }
end

local function print_case(ctx, c)
  local function share(x, what) return is_number(x) and string.format(" (%.0f %% of %s)", 100 * x, what) or "" end
  ctx.out:text("%s: prompt %d, new %d, batch %d, depth %d, isa %s\n", c.name, c.prompt_tokens, c.new_tokens, c.batch, c.depth, tostring(c.isa))
  ctx.out:text("prefill %s tokens/s%s\n", number_text(c.prefill_tok_s, "%.1f"), share(c.share_matrix, "matrix peak"))
  ctx.out:text("decode  %s tokens/s%s\n", number_text(c.decode_tok_s, "%.1f"), share(c.share_bandwidth, "read bandwidth"))
  ctx.out:text("ttft %s ms, itl p50 %s ms, p99 %s ms\n", number_text(c.ttft_us and c.ttft_us / 1000, "%.1f"),
    number_text(c.itl_us.p50 and c.itl_us.p50 / 1000, "%.2f"), number_text(c.itl_us.p99 and c.itl_us.p99 / 1000, "%.2f"))
  ctx.out:text("allocs per step %s, syncs per layer %s, load %s ms, peak memory %s MiB\n", number_text(c.allocs_per_step, "%.3g"),
    number_text(c.syncs_per_layer, "%.2f"), number_text(c.load_us and c.load_us / 1000, "%.0f"),
    number_text(c.rss_peak_bytes and c.rss_peak_bytes / 2 ^ 20, "%.0f"))
end

local function model(ctx)
  local opts = ctx.args.opts
  local d = deployment.read(ctx)
  d.want.concurrency = math.max(d.want.concurrency, opts.batch)
  local p = deployment.plan(ctx, d)
  local eng = deployment.load(ctx, p)
  return deployment.with(eng, function()
    run_once(eng, p, { prompt = math.min(opts.prompt, 8), new = 2, batch = 1, depth = 0 }, 0) -- touches every page of the weights
    local before, runs = eng:stats(), {}
    for i = 1, opts.runs do runs[i] = run_once(eng, p, opts, i) end
    local known, c = case(p, eng, opts, runs, before)
    if ctx.json then
      ctx:finish(fill.bench { machine = known, cases = { c } })
    else
      print_case(ctx, c)
    end
    return 0
  end)
end

local later = { comm = true, serve = true }

function M.run(ctx)
  local target = ctx.args.target
  if later[target] then
    err.throw { code = "not_in_version", where = "tpl bench " .. target, message = "not in this version" }
  end
  if target == nil or target == "probe" then return probe(ctx) end
  return model(ctx)
end

return M
