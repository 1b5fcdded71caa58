-- SPDX-License-Identifier: Apache-2.0
--- CPU ranks: what the probe says, shared among threads and ranks, and what a step of them takes. Expected values are worked out by hand from
--- round constants, which each test sets for itself; how well the fitted ones do is measured by spec/bench/predict.sh.
local cost = require("tpl.cost")
local configs = require("spec.support.configs")
local cpu = require("tpl.cost.cpu")
local pipeline = require("tpl.cost.pipeline")
local toy = require("spec.support.toy_topo")

local MB = 1e6

local function near(want, got, tolerance)
  assert.is_true(math.abs(got - want) <= (tolerance or 1e-6) * math.abs(want), ("expected %g, got %g"):format(want, got))
end

local function read(list)
  local out = {}
  for i, r in ipairs(list) do out[i] = { threads = r[1], bytes = r[2] * MB, gb_s = r[3] } end
  return out
end

local curve = read { { 1, 100, 20 }, { 1, 400, 10 }, { 2, 100, 40 }, { 2, 400, 12 } }

local function probe(more)
  local p = { cpu = "some CPU", isa = "amx", cores = 2, read_gb_s = 12, read = curve, matrix_gflop_s = { f32 = 200, bf16 = 4000, i8 = 8000 },
    core_gflop_s = { f32 = 100, bf16 = 2000, i8 = 4000 }, barrier_us = 0.2 }
  for k, v in pairs(more or {}) do p[k] = v end
  return p
end

local s = configs.shape("llama-3.1-8b")

local function estimate(stages, want, topo)
  local w = { concurrency = 1, context = 4096, depth = 64, prompt = 128, probe = probe() }
  for k, v in pairs(want or {}) do w[k] = v end
  local t = topo or toy.new { n = 4, kind = "cpu", link = { kind = "node" }, mem_bytes = { 64e9, 64e9, 64e9, 64e9 } }
  return assert(cost.estimate(t, s, { stages = stages }, w))
end

local one = { { devices = { "cpu0" } } }
local tp2 = { { devices = { "cpu0", "cpu1" } } }
local pp2 = { { devices = { "cpu0" }, layers = { 0, 15 } }, { devices = { "cpu1" }, layers = { 16, 31 } } }

describe("tpl.cost.cpu", function()
  local kept

  -- Nothing but what a test sets.
  local function only(constants)
    for k in pairs(cpu.constants) do cpu.constants[k] = 0 end
    cpu.constants.overlap, cpu.constants.bandwidth, cpu.constants.matrix = 2, 1, 1e9
    for k, v in pairs(constants) do cpu.constants[k] = v end
  end

  before_each(function()
    kept = {}
    for k, v in pairs(cpu.constants) do kept[k] = v end
  end)
  after_each(function() for k, v in pairs(kept) do cpu.constants[k] = v end end)

  it("reads the bandwidth between measured sizes and threads", function()
    local d = cpu.device(probe())
    near(20, cpu.bandwidth(d, 1, 50 * MB))
    near(15, cpu.bandwidth(d, 1, 200 * MB)) -- halfway between 100 and 400 on a scale of powers
    near(10, cpu.bandwidth(d, 1, 0))        -- 0: from memory
    near(12, cpu.bandwidth(d, 2, 9000 * MB))
    near(26, cpu.bandwidth(d, 2, 200 * MB))
    near(20.5, cpu.bandwidth(d, 1.5, 200 * MB))
    near(12, cpu.bandwidth(d, 8, 400 * MB)) -- more threads than were measured read no more
  end)

  it("guesses where only all cores together were measured", function()
    local d = cpu.device { read_gb_s = 30, cores = 4, matrix_gflop_s = {} }
    near(30, cpu.bandwidth(d, 4, 0))
    near(1.4 * 30 / 2, cpu.bandwidth(d, 2, 0)) -- half the cores draw more than half
    near(30, cpu.bandwidth(d, 3, 0))           -- and never more than all
  end)

  it("takes what its bytes take when nothing else counts", function()
    only {}
    local bytes = s.weight_bytes - s.embed_bytes - s.norm_bytes + 64 * 131072 -- and 64 positions of 128 KiB
    near(bytes / 12e3, estimate(one).itl_us, 1e-3)
  end)

  it("takes what its operations take, each thread those of a core", function()
    only { row = 2, bandwidth = 1e9 }
    local weights = 0
    for _, l in ipairs(s.layers) do weights = weights + l.flops / 2 end
    weights = weights + s.head_flops / 2
    local argmax = 2 * s.vocab
    near((2 * weights + argmax) / 200e3, estimate(one).itl_us, 1e-6)
    near((2 * weights + argmax) / 100e3, estimate(one, { threads = 1 }).itl_us, 1e-6)
    near((2 * 4 * weights + 4 * argmax) / 200e3, estimate(one, { concurrency = 4 }).itl_us, 1e-6)
  end)

  it("counts meetings of a team, and none of a thread alone", function()
    only { sync = 5, bandwidth = 1e9 }
    local argmax = 2 * s.vocab
    near(32 * 8 * 5 * 0.2 + argmax / 200e3, estimate(one).itl_us, 1e-4)
    near(argmax / 100e3, estimate(one, { threads = 1 }).itl_us, 0.01)
  end)

  it("lets ranks of a node share what it reads, and a stage that is busy alone read as one does", function()
    only {}
    near(estimate(one).itl_us, estimate(tp2, { threads = 1 }).itl_us, 0.01) -- both read 12 GB/s together; collectives come on top
    local alone, filled = estimate(pp2, { threads = 1 }), estimate(pp2, { threads = 1, concurrency = 2 })
    near(12 / 10, alone.itl_us / estimate(one).itl_us, 0.01)  -- 10 GB/s, one stage after the other
    local layers, head = s.weight_bytes - 2 * s.embed_bytes, s.head_bytes
    near(2 * (layers / 2 + head) / 6e3, filled.itl_us, 0.01)  -- two micro-batches; the last stage reads its half and the head for each at half of 12 GB/s
  end)

  it("gives ranks on two nodes a memory each", function()
    only {}
    local t = toy.new { n = 2, kind = "cpu", link = { kind = "node" }, mem_bytes = { 64e9, 64e9 } }
    for i, d in ipairs(t.devices) do d.numa = i - 1 end
    -- One thread on each of two nodes: each reads half of what two threads of the machine read, as on one node; a team of one node alone reads no more.
    near(estimate(one).itl_us, estimate(tp2, { threads = 1 }, t).itl_us, 0.01)
    assert.is_true(estimate(one, { threads = 1 }, t).itl_us > 1.5 * estimate(tp2, { threads = 1 }, t).itl_us)
  end)

  it("reads a small model from the cache", function()
    only {}
    local function us_per_byte(bytes)
      local t = cpu.device(probe())
      return bytes / cpu.bandwidth(t, 2, bytes) / bytes
    end
    assert.is_true(us_per_byte(100 * MB) < us_per_byte(300 * MB))
    -- and a rank sees the working set of all ranks of its node, not its own part only
    local big = probe { read = read { { 1, 1, 100 }, { 1, 12000, 100 }, { 1, 14000, 1 }, { 2, 1, 100 }, { 2, 12000, 100 }, { 2, 14000, 1 } } }
    assert.is_true(estimate(tp2, { threads = 1, probe = big }).itl_us > 10 * (s.weight_bytes / 2 / 100e3))
  end)

  it("forms the steps of prompts that arrive together as the scheduler does", function()
    local list = pipeline.steps_of(128, 8, 512)
    -- 4 x 128; then 4 tokens of those and 508 of the next, which leaves 4 of the last; then 7 tokens and these 4
    local function words(w) return ("%d tokens, %d sequences, %d rows, at %.2f"):format(w.tokens, w.seqs, w.rows, w.pos) end
    assert.same({ "512 tokens, 4 sequences, 4 rows, at 64.00", ("512 tokens, 8 sequences, 7 rows, at %.2f"):format((4 * 128 + 384 * 64 + 124 * 62) / 512),
      ("11 tokens, 8 sequences, 8 rows, at %.2f"):format((7 * 128 + 4 * 126) / 11) }, { words(list[1]), words(list[2]), words(list[3]) })
    assert.equal(3, #list)
    assert.equal(2, #pipeline.steps_of(1024, 1, 512))
    local sum = 0
    for _, w in ipairs(pipeline.steps_of(1000, 5, 512)) do sum = sum + w.tokens end
    assert.is_true(sum >= 5000)
  end)

  it("never gets cheaper with more to do", function()
    local last = { 0, 0, 0 }
    for _, n in ipairs { 1, 2, 4, 7, 8, 12, 16, 64 } do
      if n == 8 then last[1] = 0 end -- from 8 rows on other products are taken, which can be cheaper
      local now = { estimate(one, { concurrency = n }).itl_us, estimate(one, { prompt = 64 * n }).ttft_us, estimate(one, { depth = 200 * n }).itl_us }
      for i = 1, 3 do assert.is_true(now[i] >= last[i], ("%d at %d"):format(i, n)) end
      last = now
    end
    local arrivals = 0
    for n = 1, 9 do
      local us = estimate(pp2, { prompts = n, prompt = 100, threads = 1 }).ttft_us
      assert.is_true(us >= arrivals, tostring(n))
      arrivals = us
    end
  end)

  it("never gets slower on a machine that is faster in one thing", function()
    for _, stages in ipairs { one, tp2, pp2 } do
      local base = estimate(stages, { threads = 1 })
      for _, more in ipairs { { core_gflop_s = { f32 = 200, bf16 = 2000, i8 = 4000 }, matrix_gflop_s = { f32 = 400, bf16 = 4000, i8 = 8000 } },
        { matrix_gflop_s = { f32 = 200, bf16 = 8000, i8 = 8000 } }, { barrier_us = 0.1 },
        { read = read { { 1, 100, 25 }, { 1, 400, 15 }, { 2, 100, 50 }, { 2, 400, 20 } } } } do
        local e = estimate(stages, { threads = 1, probe = probe(more) })
        assert.is_true(e.itl_us <= base.itl_us and e.ttft_us <= base.ttft_us)
      end
    end
  end)
end)
