-- SPDX-License-Identifier: Apache-2.0
--- tpl.core.sampler. Expected values: the shared fixtures (logits processors of transformers 5.24.0, OpenAI's formula for the penalties),
--- and small cases worked by hand. That draws follow these probabilities is shown in spec/c/kernels_sample_test.c.
local json = require("tpl.json")
local sampler = require("tpl.core").sampler

local cases = (os.getenv("TPL_SHARED") or "../shared") .. "/fixtures/text/sampling/cases.jsonl"
local log, huge = math.log, math.huge

-- Probabilities of four tokens that are easy to add up.
local plain = { log(0.1), log(0.4), log(0.3), log(0.2) }

local function apply(logits, params, order, prior, n_prompt)
  return assert(sampler.apply { logits = logits, params = params, order = order, prior = prior, n_prompt = n_prompt })
end

local function assert_near(expected, actual, tolerance)
  assert.equal(#expected, #actual)
  for i = 1, #expected do
    if math.abs(expected[i] - actual[i]) > tolerance then error(string.format("entry %d is %.9g, expected %.9g", i, actual[i], expected[i])) end
  end
end

local function check(result, kept, probs)
  assert.same(kept, result.kept)
  assert_near(probs, result.probs, 1e-6)
end

describe("tpl.core.sampler", function()
  it("keeps everything without parameters, best first", function()
    check(apply(plain, {}), { 1, 2, 3, 0 }, { 0.4, 0.3, 0.2, 0.1 })
    check(apply({ 1, 1, -huge, 1 }), { 0, 1, 3 }, { 1 / 3, 1 / 3, 1 / 3 })
  end)

  it("top-k keeps all that equal the k-th", function()
    check(apply(plain, { top_k = 2 }), { 1, 2 }, { 4 / 7, 3 / 7 })
    check(apply({ 0, 0, 0, 0 }, { top_k = 1 }), { 0, 1, 2, 3 }, { 0.25, 0.25, 0.25, 0.25 })
    assert.same({ 0, 2, 1, 3, 4 }, apply({ 2, 1, 2, 1, 1, 0 }, { top_k = 3 }).kept)
    assert.equal(4, #apply(plain, { top_k = 0 }).kept)
    assert.equal(4, #apply(plain, { top_k = -1 }).kept)
  end)

  it("top-p keeps the token that crosses p, and at least one", function()
    check(apply(plain, { top_p = 0.65 }), { 1, 2 }, { 4 / 7, 3 / 7 })
    check(apply(plain, { top_p = 0.75 }), { 1, 2, 3 }, { 4 / 9, 3 / 9, 2 / 9 })
    check(apply(plain, { top_p = 0.01 }), { 1 }, { 1 })
    check(apply(plain, { top_p = 0 }), { 1 }, { 1 })
    assert.same({ 0, 1, 2 }, apply({ 5, 5, 5, 5 }, { top_p = 0.6 }).kept) -- equal ones by id: 0.25, 0.5, then the one that crosses
  end)

  it("min-p is relative to the best token", function()
    check(apply(plain, { min_p = 0.6 }), { 1, 2 }, { 4 / 7, 3 / 7 })
    check(apply(plain, { min_p = 1 }), { 1 }, { 1 })
  end)

  it("temperature scales before the cuts, and 0 takes the lowest of the best ids", function()
    check(apply(plain, { temperature = 0.5 }), { 1, 2, 3, 0 }, { 16 / 30, 9 / 30, 4 / 30, 1 / 30 })
    check(apply(plain, { temperature = 0.5, top_p = 0.8 }), { 1, 2 }, { 16 / 25, 9 / 25 })
    check(apply({ 1, 3, 3 }, { temperature = 0 }), { 1 }, { 1 })
  end)

  it("penalties: repetition once per id, frequency per occurrence, presence once", function()
    local e = math.exp
    local logits = { 2, 1, -1 }
    check(apply(logits, { repetition_penalty = 2 }, nil, { 0, 0, 2 }), { 0, 1, 2 }, -- 1, 1, -2
      { e(1) / (2 * e(1) + e(-2)), e(1) / (2 * e(1) + e(-2)), e(-2) / (2 * e(1) + e(-2)) })
    local sum = e(1) + e(1) + e(-1.5) -- 2 - 2 * .5; 1; -1 - .5
    check(apply(logits, { frequency_penalty = 0.5 }, nil, { 0, 0, 2 }), { 0, 1, 2 }, { e(1) / sum, e(1) / sum, e(-1.5) / sum })
    sum = e(1.25) + e(1) + e(-1.75)
    check(apply(logits, { presence_penalty = 0.75 }, nil, { 0, 0, 2 }), { 0, 1, 2 }, { e(1.25) / sum, e(1) / sum, e(-1.75) / sum })
  end)

  it("frequency and presence do not count the prompt", function()
    local a = apply(plain, { frequency_penalty = 0.5, presence_penalty = 0.25 }, nil, { 3, 3, 1 }, 2)
    local b = apply(plain, { frequency_penalty = 0.5, presence_penalty = 0.25 }, nil, { 1 })
    assert.same(b, a)
    assert.are_not.same(b, apply(plain, { frequency_penalty = 0.5, presence_penalty = 0.25 }, nil, { 3, 3, 1 }))
  end)

  it("adds logit biases, with numbers or digits as keys", function()
    check(apply(plain, { logit_bias = { [0] = log(9), ["3"] = log(2) } }), { 0, 1, 3, 2 }, { 9 / 20, 4 / 20, 4 / 20, 3 / 20 })
  end)

  it("follows the given order", function()
    -- min-p first keeps 0.4, 0.3 and 0.2; the rest then has 4/9, 3/9, 2/9, and top-p 0.42 keeps one token, not two
    assert.same({ 1 }, apply(plain, { min_p = 0.5, top_p = 0.42 }, { "min_p", "top_p" }).kept)
    assert.same({ 1, 2 }, apply(plain, { min_p = 0.5, top_p = 0.42 }, { "top_p", "min_p" }).kept)
    assert.equal(4, #apply(plain, { top_k = 2 }, {}).kept)
    assert.same({ "repetition_penalty", "frequency_penalty", "presence_penalty", "logit_bias", "temperature", "top_k", "top_p", "min_p" },
      sampler.steps())
  end)

  it("has nothing left when everything is masked", function()
    assert.same({ kept = {}, probs = {} }, apply({ -huge, -huge }, { top_k = 1, top_p = 0.5, min_p = 0.1, temperature = 0.7 }))
  end)

  it("refuses what is wrong with nil, message, code", function()
    local function refused(pattern, options)
      local value, message, code = sampler.apply(options)
      assert.is_nil(value)
      assert.matches(pattern, message)
      assert.equal("arg", code)
    end
    refused("logits%[1%] is no number", { logits = { 1, "x" } })
    refused("logits%[0%] is not finite", { logits = { 0 / 0 } })
    refused("0 logits", { logits = {} })
    refused("prior%[0%] is no id below 1", { logits = { 1 }, prior = { 1 } })
    refused("unknown parameter 'topk'", { logits = { 1 }, params = { topk = 1 } })
    refused("top_p is 1.5", { logits = { 1 }, params = { top_p = 1.5 } })
    refused("repetition_penalty is 0", { logits = { 1 }, params = { repetition_penalty = 0 } })
    refused("order%[0%]", { logits = { 1 }, order = { "best" } })
    refused("logit_bias has a key", { logits = { 1 }, params = { logit_bias = { [7] = 1 } } })
    assert.has_error(function() sampler.apply { logit = {} } end)
  end)

  it("agrees with the shared fixtures", function()
    local file = io.open(cases)
    if not file then pending("no shared fixtures") return end
    local n = 0
    for line in file:lines() do
      local row = assert(json.decode(line))
      local logits = {}
      for i = 1, #row.logits do logits[i] = row.logits[i] == json.null and -huge or row.logits[i] end
      local got = apply(logits, row.params, row.order, row.prior)
      n = n + 1
      if not row.edge then
        local where = "case " .. n
        assert.same({ unpack(row.kept) }, got.kept, where)
        assert_near(row.probs, got.probs, 1e-5)
      end
    end
    file:close()
    assert.equal(180, n)
  end)
end)
