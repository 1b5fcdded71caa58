-- SPDX-License-Identifier: Apache-2.0
-- Expected values: interface.md section 1 and 4 (run, its events), with a fake engine and the tokenizer of a shared fixture.
local helper = require("cli.helper")
local rates = require("tpl.rates")

describe("tpl run", function()
  local known
  setup(function()
    known = rates.known
    rates.known = function() return { read_gb_s = 10, matrix_gflop_s = { f32 = 100 } } end
  end)
  teardown(function() rates.known = known end)

  it("exits 2 with a hint when there is no prompt and no terminal", function()
    local r = helper.run { "run", "m" }
    assert.equal(2, r.code)
    assert.matches('%-%- "prompt"', r.stderr)
  end)

  it("says that serving comes later", function()
    local folder = helper.folder()
    helper.write(folder .. "/deploy.lua", "return tpl.deploy { model = 'm', serve = {} }")
    local r = helper.run { "run", folder .. "/deploy.lua" }
    assert.equal(2, r.code)
    assert.matches("not in this version", r.stderr)
    helper.remove(folder)
  end)

  it("prints the report, the answer, and last what limited it", function()
    local model = helper.model("llama-gqa-untied")
    if not model then return pending("no ../shared") end
    local engine = helper.engine()
    local r = helper.run({ "run", "m", "--", "hello", "there" }, { engine = engine, plan = { tokenizer_path = model .. "/tokenizer.json" } })
    assert.equal(0, r.code, r.stderr)
    assert.matches("KV cache size: 1,234,567 tokens", r.stdout)
    assert.matches("\nt%d+\n", r.stdout)
    assert.matches("limited by: [^\n]+ %%; [^\n]*first token after %d+ ms\n$", r.stdout)
    assert.matches("loading 100 %%", r.stderr)
    assert.equal(1, engine.closed)
  end)

  it("prints events with --json and nothing else on stdout", function()
    local model = helper.model("llama-gqa-untied")
    if not model then return pending("no ../shared") end
    local r = helper.run({ "run", "m", "--json", "--", "hello" }, { plan = { tokenizer_path = model .. "/tokenizer.json" } })
    local events = {}
    for i, line in ipairs(r.lines) do events[i] = line.event end
    assert.same({ "plan", "load", "load", "token", "done" }, events)
    assert.equal("p1", r.lines[1].plan_hash)
    assert.same({ 0, 10, 10 }, { r.lines[2].rank, r.lines[2].bytes, r.lines[2].total })
    assert.same({ 0, -0.5 }, { r.lines[4].seq, r.lines[4].logprob })
    local done = r.lines[5]
    assert.same({ 0, "length", 1, 5, 1 }, { done.seq, done.reason, done.usage.completion_tokens, done.timings.ttft_us, done.timings.itl_us.p50 })
    assert.is_number(done.timings.load_us)
  end)

  it("reports a failure as an event that is an envelope", function()
    local r = helper.run({ "run", "m", "--json", "--", "x" }, { make = function()
      return nil, require("tpl.err").new { code = "format", message = "broken" }
    end })
    assert.same({ 6, "error", "tpl.run/1", "format" }, { r.code, r.lines[1].event, r.lines[1].schema, r.lines[1].error.code })
  end)

  it("names the share of the read bandwidth that decoding reached", function()
    local run = require("tpl.cli.run")
    local plan = helper.plan { act = "f32" }
    plan.report.ranks = {}
    local watch = { started = 0, first = 1000, last = 1001000, n = 1001, decode_tok_s = function() return 1000 end }
    plan.report.model.weight_bytes = 5e6 -- 1000 tokens/s of 5 MB are 5 GB/s, half of 10
    assert.equal("limited by: read bandwidth 50 %; 1000.0 tokens/s, first token after 1 ms", run.limit_line(plan, { prompt_ids = { 1 } }, watch))
  end)
end)
