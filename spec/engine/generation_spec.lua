-- SPDX-License-Identifier: Apache-2.0
--- Sampling inside the engine: seeds, biases, ends, log probabilities; and that values tapped from ranks are those of one rank.
--- Expected values: the fixture's reference logits (float64 numpy), from which probabilities are computed here.
local ffi = require("ffi")
local models = require("spec.support.models")

local fixture = models.own_fixture("bf16")
local EOS, VOCAB = 2, 97
local prompts = fixture.expected.prompts

local function one(engine, row)
  local results, e = engine:generate { rows = { row } }
  assert(results, tostring(e))
  assert.is_nil(results[1].error)
  return results[1]
end

-- log softmax of one row of the reference
local function logprobs(prompt, row)
  local l = fixture:logits(prompt) + row * VOCAB
  local top, sum, out = -math.huge, 0, {}
  for i = 0, VOCAB - 1 do top = math.max(top, l[i]) end
  for i = 0, VOCAB - 1 do sum = sum + math.exp(l[i] - top) end
  for i = 0, VOCAB - 1 do out[i] = l[i] - top - math.log(sum) end
  return out
end

describe("the engine", function()
  local engine
  lazy_setup(function() engine = models.engine(fixture.target, { "act=f32", "want.context=128" }) end)
  lazy_teardown(function() engine:close() end)

  it("gives the same ids for the same seed, alone and beside others, and other ids for other seeds", function()
    local function row(seed) return { prompt_ids = { 7, 61, 12 }, max_tokens = 24, temperature = 1.5, seed = seed, ignore_eos = true } end
    local first = one(engine, row(1)).ids
    assert.same(first, one(engine, row(1)).ids)
    local together = assert(engine:generate { rows = { row(2), row(1), row(3) } })
    assert.same(first, together[2].ids)
    assert.are_not.same(first, together[1].ids)
    assert.are_not.same(together[1].ids, together[3].ids)
  end)

  it("gives the same ids for the same seed however the model is cut", function()
    local row = { prompt_ids = { 7, 61, 12 }, max_tokens = 12, temperature = 0.7, seed = 5, ignore_eos = true }
    local want = one(engine, row).ids
    for _, words in ipairs { { "tp=2" }, { "tp=3" }, { "pp=2" } } do
      models.with(fixture.target, { "act=f32", "want.context=128", words[1] }, nil, function(other) assert.same(want, one(other, row).ids) end)
    end
  end)

  it("draws as often as the reference's probabilities say", function()
    local p, n, rows = logprobs(prompts[2], #prompts[2].ids - 1), 400, {}
    for i = 1, n do rows[i] = { prompt_ids = prompts[2].ids, max_tokens = 1, temperature = 1, seed = i, ignore_eos = true } end
    local count = {}
    for _, r in ipairs(assert(engine:generate { rows = rows })) do count[r.ids[1]] = (count[r.ids[1]] or 0) + 1 end
    -- Chi squared over the ids that are expected at least 5 times; the rest in one class. 99.9 % of it is below k + 3.1 * sqrt(2 k) + 4.
    local chi2, k, rest, rest_want = 0, 0, n, n
    for id = 0, VOCAB - 1 do
      local want = n * math.exp(p[id])
      if want >= 5 then
        chi2, k = chi2 + ((count[id] or 0) - want) ^ 2 / want, k + 1
        rest, rest_want = rest - (count[id] or 0), rest_want - want
      end
    end
    chi2 = chi2 + (rest - rest_want) ^ 2 / rest_want
    assert.is_true(chi2 < k + 3.1 * math.sqrt(2 * k) + 4, ("chi squared %.1f over %d classes"):format(chi2, k + 1))
  end)

  it("takes what logit_bias makes likely, and never what it forbids", function()
    assert.same({ 42, 42, 42 }, { unpack(one(engine, { prompt_ids = { 5 }, max_tokens = 3, logit_bias = { ["42"] = 100 } }).ids) })
    local best = prompts[1].greedy[1]
    assert.are_not.equal(best, one(engine, { prompt_ids = { 5 }, max_tokens = 1, logit_bias = { [tostring(best)] = -100 } }).ids[1])
  end)

  it("stops at the end of text, unless told to ignore it", function()
    local row = { prompt_ids = { 5 }, max_tokens = 4, logit_bias = { [tostring(EOS)] = 100 } }
    local r = one(engine, row)
    assert.equal("stop", r.finish)
    assert.equal(1, #r.ids)
    row.ignore_eos = true
    r = one(engine, row)
    assert.equal("length", r.finish)
    assert.equal(4, #r.ids)
  end)

  it("reports the reference's log probabilities", function()
    local r = one(engine, { prompt_ids = prompts[3].ids, max_tokens = 1, logprobs = 5, ignore_eos = true })
    local want = logprobs(prompts[3], #prompts[3].ids - 1)
    local entry = r.logprobs[1]
    assert.equal(prompts[3].greedy[1], entry.id)
    assert.is_true(math.abs(entry.logprob - want[entry.id]) < 2e-4)
    assert.equal(5, #entry.top)
    for i, t in ipairs(entry.top) do
      assert.is_true(math.abs(t.logprob - want[t.id]) < 2e-4)
      assert.is_true(i == 1 or t.logprob <= entry.top[i - 1].logprob)
    end
  end)

  it("scores ids with the reference's log probabilities", function()
    local ids = prompts[3].ids
    local s = assert(engine:score { rows = { { ids = ids }, { ids = { 5 } } }, top = 2 })
    local sum = 0
    for k = 2, #ids do
      local want = logprobs(prompts[3], k - 2)
      assert.is_true(math.abs(s[1].logprobs[k] - want[ids[k]]) < 2e-4)
      local best = 0
      for j = 1, VOCAB - 1 do
        if want[j] > want[best] then best = j end
      end
      assert.equal(best == ids[k], s[1].greedy[k])
      assert.equal(best, s[1].top[k][1].id)
      sum = sum + want[ids[k]]
    end
    assert.is_true(math.abs(s[1].sum - sum) < 1e-3)
    assert.equal(0, s[2].sum)
  end)

  it("taps the same values from two ranks as from one", function()
    local function tap(e)
      local out = {}
      for _, v in ipairs(assert(e:tap { ids = prompts[2].ids, at = "*" })) do out[v.name] = v end
      return out
    end
    local want, n = tap(engine), 0
    models.with(fixture.target, { "act=f32", "want.context=128", "tp=2" }, nil, function(other)
      for name, v in pairs(tap(other)) do
        local w = want[name]
        if w then -- collectives exist on two ranks only
          assert.same({ w.rows, w.cols }, { v.rows, v.cols }, name)
          assert.is_true(models.nmse(ffi.cast("double *", v.data), ffi.cast("double *", w.data), v.rows * v.cols) <= 1e-10, name)
          n = n + 1
        end
      end
    end)
    assert.is_true(n > 20, n .. " values in common")
  end)

  it("reads each rank's part of the file once, and little else", function()
    models.with(fixture.target, { "act=f32", "want.context=128", "tp=3" }, nil, function(other)
      local size, stats = 0, other:stats()
      for _, t in ipairs(require("tpl.core").checkpoint.open(fixture.target):tensors()) do
        size = size + t.bytes * (#t.dims == 1 and 3 or 1) -- vectors are read by every rank
      end
      assert.is_true(stats.read_bytes <= 1.02 * size, stats.read_bytes .. " of " .. size)
      assert.equal(3, #stats.ranks)
    end)
  end)
end)
