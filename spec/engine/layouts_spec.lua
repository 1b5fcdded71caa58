-- SPDX-License-Identifier: Apache-2.0
--- However a model is cut, the logits are those of one rank: tensor parallel with even and uneven cuts and repeated KV heads, pipelines,
--- both, stages with different meshes, sequence parallel, uneven shares. Sums are added in another order, so NMSE 1e-10 (engine.md 9).
local models = require("spec.support.models")

local NMSE = 1e-10
local prompts = { models.ids(3, 23, 80), models.ids(4, 1, 80), models.ids(5, 9, 80) }

-- Layouts as words, or as deploy fields; each needs the model to have at least two layers when `pp`.
local cuts = {
  { "tp=2" }, { "tp=3" }, { "tp=4" }, { "tp=6" }, { "tp=9" }, { "threads=2" }, { "tp=2", "threads=2" },
  { "tp=2", "shares=2,1" }, { "tp=2", "shares=1,2" }, { "tp=2", "layout=megatron_sp" }, { "tp=3", "layout=megatron_sp" },
  { "pp=2", pp = true }, { "tp=2", "pp=2", pp = true }, { "tp=3", "pp=2", pp = true }, { "tp=9", "pp=2", pp = true },
  { "tp=2", "pp=2", "layout=megatron_sp", pp = true }, { "tp=2", "step.chunk=5", "kv.page=4" },
}

local function words_of(cut)
  local out = { "act=f32", "want.context=64" }
  for _, w in ipairs(cut) do out[#out + 1] = w end
  return out
end

-- Greedy ids may differ only behind a near tie, and these models have none in reach: checked against one rank.
local function run(target, words)
  return models.with(target, words, nil, function(engine)
    return { logits = models.logits(engine, prompts, true), ids = models.greedy(engine, prompts, 8), allocs = engine:stats().allocs }
  end)
end

local function check(target_of, n_layers, refused)
  local target, missing, want
  lazy_setup(function()
    target, missing = target_of()
    if target then want = run(target, words_of {}) end
  end)

  local function same(got)
    local worst = models.worst_nmse(got.logits, want.logits)
    assert.is_true(worst <= NMSE, ("NMSE %.3g"):format(worst))
    assert.same(want.ids, got.ids)
    assert.equal(0, got.allocs)
  end

  for _, cut in ipairs(cuts) do
    local name = table.concat(cut, " ")
    if not refused[cut[1]] and not (cut.pp and n_layers < 2) then
      it("are those of one rank with " .. name, function()
        if not target then return pending(missing) end
        same(run(target, words_of(cut)))
      end)
    end
  end

  for word in pairs(refused) do
    it("are not to be had with " .. word .. ", which the planner refuses with a fix", function()
      if not target then return pending(missing) end
      local plan, e = require("tpl.plan.make").make(target, words_of { word })
      assert.is_nil(plan)
      assert.equal(3, e.exit)
    end)
  end

  if n_layers >= 2 then
    for _, ways in ipairs { { 2, 1 }, { 1, 3 } } do
      it(("are those of one rank with stages {tp=%d} and {tp=%d}"):format(ways[1], ways[2]), function()
        if not target then return pending(missing) end
        same(run({
          model = target, act = "f32", want = { context = 64 },
          stages = { { layers = { 0, 0 }, mesh = { tp = ways[1] } }, { layers = { 1, n_layers - 1 }, mesh = { tp = ways[2] } } },
        }))
      end)
    end
  end
end

local function own(name) return function() return models.own_fixture(name).target end end

describe("logits of own bf16 (6 heads, 3 KV heads)", function() check(own "bf16", 2, { ["tp=9"] = true }) end)
describe("logits of own f16-sharded (9 heads, 3 KV heads, biases)", function() check(own "f16-sharded", 1, {}) end)
describe("logits of own gguf-q4_1 (blocks of 32 over rows of 96)", function() check(own "gguf-q4_1", 2, { ["tp=9"] = true, ["tp=4"] = true, ["tp=6"] = true }) end)
describe("logits of shared llama-9x3", function()
  check(function()
    local f, missing = models.shared_fixture("llama-9x3")
    return f and f.target, missing
  end, 2, {})
end)
