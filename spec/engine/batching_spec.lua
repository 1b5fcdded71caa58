-- SPDX-License-Identifier: Apache-2.0
--- Requests that share steps do not change each other: seven unequal prompts together, in any chunk, page size, page order and order of
--- arrival, give what each gives alone (engine.md 9: NMSE 1e-10 with float32), and the KV cache's limit is met one token exactly.
local find = require("tpl.find")
local models = require("spec.support.models")

local NMSE = 1e-10
local MODEL = models.own_fixture("bf16").target
local VOCAB = 97

local lengths = { 1, 2, 7, 16, 17, 33, 90 }
local prompts = {}
for i, n in ipairs(lengths) do prompts[i] = models.ids(100 + i, n, VOCAB) end
local n_new = { 12, 3, 9, 1, 20, 5, 7 }

local function words(extra)
  local out = { "act=f32", "want.context=128", "want.concurrency=8" }
  for w in extra:gmatch("%S+") do out[#out + 1] = w end
  return out
end

local function run(extra, order)
  return models.with(MODEL, words(extra), nil, function(engine)
    local p, n = {}, {}
    for k, i in ipairs(order) do p[k], n[k] = prompts[i], n_new[i] end
    local logits, ids = models.logits(engine, p, true), models.greedy(engine, p, n)
    local out = { logits = {}, ids = {}, allocs = engine:stats().allocs }
    for k, i in ipairs(order) do out.logits[i], out.ids[i] = logits[k], ids[k] end
    return out
  end)
end

describe("seven unequal prompts together", function()
  local alone
  lazy_setup(function()
    alone = models.with(MODEL, words "", nil, function(engine)
      local ids = {}
      for i, p in ipairs(prompts) do ids[i] = models.greedy(engine, { p }, n_new[i])[1] end
      return { logits = models.logits(engine, prompts, false), ids = ids }
    end)
  end)

  local env = find.env
  after_each(function() find.env = env end)

  local function same(got)
    local worst = models.worst_nmse(got.logits, alone.logits)
    assert.is_true(worst <= NMSE, ("NMSE %.3g"):format(worst))
    for i, ids in ipairs(alone.ids) do assert.same(ids, got.ids[i], "prompt " .. i) end
    assert.equal(0, got.allocs)
  end

  for _, chunk in ipairs { "step.chunk=1", "step.chunk=7", "step.chunk=64", "" } do
    for _, page in ipairs { 1, 16, 64 } do
      for _, shuffle in ipairs { false, true } do
        local extra = chunk .. " kv.page=" .. page
        it(("equal each alone, %s, page %d%s"):format(chunk == "" and "whole prompts" or chunk, page, shuffle and ", shuffled pages" or ""), function()
          find.env = function(name)
            if name == "TPL_PAGE_ORDER" then return shuffle and "shuffle" or nil end
            return env(name)
          end
          same(run(extra, { 1, 2, 3, 4, 5, 6, 7 }))
        end)
      end
    end
  end

  it("equal each alone in other orders of arrival", function()
    same(run("step.chunk=7", { 7, 6, 5, 4, 3, 2, 1 }))
    same(run("step.chunk=7", { 4, 7, 1, 6, 2, 5, 3 }))
  end)

  it("equal each alone when a step holds fewer tokens than there are requests", function()
    same(run("step.tokens=3", { 1, 2, 3, 4, 5, 6, 7 }))
  end)

  it("equal each alone over two ranks and two stages", function()
    same(run("tp=2 step.chunk=7", { 1, 2, 3, 4, 5, 6, 7 }))
    same(run("pp=2 step.chunk=7 kv.page=4", { 7, 6, 5, 4, 3, 2, 1 }))
  end)

  it("equal each alone when they arrive while others run", function()
    models.with(MODEL, words "step.chunk=7", nil, function(engine)
      local handles, box = {}, engine.box
      for i, ids in ipairs(prompts) do
        handles[i] = assert(box:add { ids = ids, max_tokens = 0, rows = "all", sink = { memory = true } })
        assert(box:pump())
      end
      while not box:idle() do assert(box:pump()) end
      for i, want in ipairs(alone.logits) do
        local got = models.copy_logits(assert(box:take_rows(handles[i])))
        assert.is_true(models.nmse(got.data, want.data, want.n) <= NMSE, "prompt " .. i)
      end
    end)
  end)

  it("equal each alone when the KV cache holds only two of them at a time", function()
    same(run("kv.tokens=130 kv.page=2", { 1, 2, 3, 4, 5, 6, 7 }))
  end)
end)

-- engine.md 9: --deterministic gives the bits of the solo run. Without it steps of few and of many rows may go other ways.
describe("with act=auto and --deterministic", function()
  for _, name in ipairs { "gguf-q4_1", "gguf-q8_0", "bf16", "f16-sharded" } do
    it("the logits of " .. name .. " have the same bits in any chunk and company", function()
      local target, rows = models.own_fixture(name).target, {}
      for i, n in ipairs(lengths) do rows[i] = models.ids(200 + i, n, 83) end -- the smallest vocabulary of the four
      local function logits(extra, together)
        local all = { "act=auto", "want.context=128", "want.concurrency=8" }
        for w in extra:gmatch("%S+") do all[#all + 1] = w end
        return models.with(target, all, { plan = { deterministic = true } }, function(engine) return models.logits(engine, rows, together) end)
      end
      local alone = logits("", false)
      for _, extra in ipairs { "step.chunk=1", "step.chunk=7 kv.page=4", "", "threads=1" } do
        for i, l in ipairs(logits(extra, true)) do
          for k = 0, l.n - 1 do
            if l.data[k] ~= alone[i].data[k] then error(("%s: prompt %d differs at %d"):format(extra, i, k)) end
          end
        end
      end
    end)
  end
end)

describe("the limit of the KV cache", function()
  local function generate(engine, rows)
    local results, e = engine:generate { rows = rows }
    return assert(results, tostring(e))
  end

  it("lets a request of exactly that many tokens run, and gives kv_full to one more, while other rows go on", function()
    models.with(MODEL, { "act=f32", "want.context=32", "kv.tokens=48", "kv.page=16" }, nil, function(engine)
      local long, short = models.ids(9, 40, VOCAB), models.ids(10, 5, VOCAB)
      local r = generate(engine, {
        { prompt_ids = short, max_tokens = 4, ignore_eos = true },
        { prompt_ids = long, max_tokens = 9, ignore_eos = true },
        { prompt_ids = long, max_tokens = 8, ignore_eos = true },
        { prompt_ids = short, max_tokens = 4, ignore_eos = true },
      })
      assert.equal("kv_full", r[2].error.code)
      assert.matches("48", r[2].error.message)
      assert.equal(8, #r[3].ids)
      assert.equal("length", r[3].finish)
      assert.equal(4, #r[1].ids)
      assert.same(r[1].ids, r[4].ids)
    end)
  end)

  it("gives context_length to a row that the model cannot hold", function()
    models.with(MODEL, { "act=f32", "want.context=256", "want.concurrency=2" }, nil, function(engine)
      local r = generate(engine, { { prompt_ids = models.ids(9, 250, VOCAB), max_tokens = 7 }, { prompt_ids = { 5 }, max_tokens = 2, ignore_eos = true } })
      assert.equal("context_length", r[1].error.code)
      assert.equal(2, #r[2].ids)
    end)
  end)

  it("leaves nothing behind: the same rows run again and again", function()
    models.with(MODEL, { "act=f32", "want.context=32", "kv.tokens=48", "kv.page=1" }, nil, function(engine)
      local row = { prompt_ids = models.ids(9, 40, VOCAB), max_tokens = 8, ignore_eos = true }
      local first = generate(engine, { row })[1].ids
      for _ = 1, 5 do assert.same(first, generate(engine, { row })[1].ids) end
    end)
  end)
end)

describe("a bad row", function()
  it("is told apart from the others, which go on", function()
    models.with(MODEL, { "act=f32", "want.context=64" }, nil, function(engine)
      local r = assert(engine:generate { rows = {
        { prompt_ids = { 5, VOCAB }, max_tokens = 2 }, -- an id past the vocabulary
        { prompt_ids = {}, max_tokens = 2 },
        { prompt_ids = { 5, 6 }, max_tokens = 2, ignore_eos = true },
      } })
      assert.equal("bad_request", r[1].error.code)
      assert.equal("bad_request", r[2].error.code)
      assert.equal(2, #r[3].ids)
    end)
  end)
end)
