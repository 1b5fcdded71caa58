-- SPDX-License-Identifier: Apache-2.0
--- Logits and greedy ids of every model fixture this version supports, with float32 activations on one rank.
--- Expected values: numpy in float64 (spec/fixtures/models) and transformers in float32 (../shared/fixtures/models); tolerance 1e-4 as
--- those fixtures' READMEs derive it.
local models = require("spec.support.models")

local TOLERANCE = 1e-4

local shared = {
  "llama-gqa-untied", "llama-tied", "llama-rope-llama3", "llama-rope-linear", "llama-bias", "llama-headdim", "llama-9x3", "llama-10x2",
  "llama-5x5", "llama-gguf-f16", "llama-gguf-bf16", "llama-gguf-q8_0", "llama-gguf-q4_0", "llama-gguf-q4_1", "llama-gguf-q5_0",
  "llama-gguf-q5_1", "llama-gguf-q4_k", "llama-gguf-q5_k", "llama-gguf-q6_k", "llama-gguf-rope-freqs",
}

local function check_logits(engine, fixture)
  for _, prompt in ipairs(fixture.expected.prompts) do
    local got, e = engine:logits(prompt.ids)
    assert(got, tostring(e))
    assert.same(prompt.shape, setmetatable({ got.rows, got.vocab }, getmetatable(prompt.shape)))
    local want, n = fixture:logits(prompt)
    local worst = models.max_abs(got.data, want, n)
    assert.is_true(worst <= TOLERANCE, ("%s: largest difference %.3g, tolerance %g"):format(prompt.logits, worst, TOLERANCE))
  end
end

local function check_greedy(engine, fixture)
  local prompts = {}
  for i, p in ipairs(fixture.expected.prompts) do prompts[i] = p.ids end
  local got = models.greedy(engine, prompts, #fixture.expected.prompts[1].greedy)
  for i, prompt in ipairs(fixture.expected.prompts) do
    for k = 1, models.comparable(prompt, TOLERANCE) do
      assert.equal(prompt.greedy[k], got[i][k], ("prompt %d, step %d"):format(i - 1, k - 1))
    end
  end
end

local function check(name, open)
  describe(name, function()
    local engine, fixture, missing
    lazy_setup(function()
      fixture, missing = open(name)
      if fixture then engine = models.engine(fixture.target, { "act=f32" }) end
    end)
    lazy_teardown(function()
      if engine then engine:close() end
    end)

    it("gives the reference's logits at every position", function()
      if not fixture then return pending(missing) end
      check_logits(engine, fixture)
    end)

    it("continues all prompts together with the reference's greedy ids, and allocates nothing in a step", function()
      if not fixture then return pending(missing) end
      check_greedy(engine, fixture)
      assert.equal(0, engine:stats().allocs)
    end)
  end)
end

describe("own fixture", function()
  for _, name in ipairs(models.own) do check(name, models.own_fixture) end
end)

describe("shared fixture", function()
  for _, name in ipairs(shared) do check(name, models.shared_fixture) end
end)
