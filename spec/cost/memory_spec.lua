-- SPDX-License-Identifier: Apache-2.0
--- What a rank holds and how many tokens fit. Expected: hand arithmetic over the shapes, and the sizing statements of sites
--- (the issue "Topology and placement": want = {concurrency = 20} on H100 80 GB).
local configs = require("spec.support.configs")
local cost = require("tpl.cost")
local memory = require("tpl.cost.memory")
local toy = require("spec.support.toy_topo")

local H100_BYTES = 81559 * 2 ^ 20 -- as nvidia-smi prints it

local function tp(n, t, shape, want, more)
  local uids = {}
  for i = 1, n do uids[i] = "GPU" .. i - 1 end
  local stage = { devices = uids }
  for k, v in pairs(more or {}) do stage[k] = v end
  return assert(cost.estimate(t, shape, { stages = { stage } }, want))
end

local h100 = toy.new { n = 8, name = toy.H100, link = toy.NV18 }

describe("tpl.cost.memory", function()
  it("may use nine tenths of a device, or another share, and no more than is free", function()
    local d = { mem_bytes = 100 }
    assert.equal(90, memory.capacity({}, d, 0.9))
    assert.equal(60, memory.capacity({ free_bytes = 60 }, d, 0.9))
    assert.equal(45, memory.capacity({ mem_bytes = 50 }, d, 0.9))
    assert.equal(30, memory.capacity({ mem_bytes = 50, busy = { used_bytes = 20 } }, d, 0.9))
    assert.is_nil(memory.capacity({}, {}, 0.9))
    assert.equal(math.floor(0.9 * H100_BYTES), tp(1, h100, configs.shape("llama-3.1-8b"), {}).ranks[1].capacity)
    assert.equal(math.floor(0.8 * H100_BYTES), tp(1, h100, configs.shape("llama-3.1-8b"), { usable = 0.8 }).ranks[1].capacity)
  end)

  it("cuts weights by heads, columns and vocabulary, and repeats norms", function()
    local s = configs.shape("llama-3.1-8b")
    local norms = 2 * 65 * 4096
    assert.equal(s.weight_bytes, tp(1, h100, s, {}).ranks[1].weights)
    for _, n in ipairs { 2, 4, 8 } do
      for _, r in ipairs(tp(n, h100, s, {}).ranks) do
        assert.is_true(math.abs(r.weights - ((s.weight_bytes - norms) / n + norms)) < 1)
      end
    end
    local whole = tp(2, h100, s, { tp_cut_vocab = false }).ranks[1].weights
    assert.is_true(math.abs(whole - ((s.weight_bytes - norms - 4 * 128256 * 4096) / 2 + norms + 4 * 128256 * 4096)) < 1)
  end)

  it("gives a tied table to both ends of a pipeline and once to one stage", function()
    local config = configs.config("llama-3.1-8b")
    config.tie_word_embeddings = true
    local s = assert(require("tpl.shape").of(config))
    local table_bytes = 2 * 128256 * 4096
    assert.equal(s.weight_bytes, tp(1, h100, s, {}).ranks[1].weights)
    local e = assert(cost.estimate(h100, s, { stages = { { devices = { "GPU0" }, layers = { 0, 15 } }, { devices = { "GPU1" }, layers = { 16, 31 } } } }, {}))
    assert.equal(s.weight_bytes + table_bytes, e.ranks[1].weights + e.ranks[2].weights)
  end)

  it("shares unevenly in whole KV heads", function()
    local s = configs.shape("llama-3.3-70b")
    local e = tp(3, h100, s, {}, { shares = { 4, 2, 2 } })
    assert.same({ 163840, 81920, 81920 }, { e.ranks[1].kv_per_token, e.ranks[2].kv_per_token, e.ranks[3].kv_per_token }) -- of 327680
    e = tp(3, h100, s, {}) -- 3, 3 and 2 heads of 8
    assert.same({ 122880, 122880, 81920 }, { e.ranks[1].kv_per_token, e.ranks[2].kv_per_token, e.ranks[3].kv_per_token })
  end)

  it("repeats KV heads where there are more ranks than heads, and the whole latent of MLA", function()
    local s = configs.shape("qwen3-30b-a3b") -- 4 KV heads, 98304 bytes a token
    assert.equal(98304 / 4, tp(4, h100, s, {}).ranks[1].kv_per_token)
    assert.equal(98304 / 4, tp(8, h100, s, {}).ranks[1].kv_per_token)
    assert.equal(31104, tp(4, h100, configs.shape("deepseek-v2-lite"), {}).ranks[1].kv_per_token)
  end)

  it("halves the cache with fp8 and doubles it with float32", function()
    local s = configs.shape("llama-3.1-8b")
    assert.equal(131072, tp(1, h100, s, {}).ranks[1].kv_per_token)
    assert.equal(65536, tp(1, h100, s, { kv_dtype = "fp8" }).ranks[1].kv_per_token)
    assert.equal(262144, tp(1, h100, s, { kv_dtype = "f32" }).ranks[1].kv_per_token)
  end)

  it("charges a window its positions and no more", function()
    local kv = { full = 1000, windows = { { positions = 128, bytes = 500 } }, seqs = 1 }
    assert.equal(100 * 1500, memory.kv_bytes(kv, 100, 1))
    assert.equal(1000 * 1000 + 128 * 500, memory.kv_bytes(kv, 1000, 1))
    assert.equal(1000 * 1000 + 10 * 100 * 500, memory.kv_bytes(kv, 1000, 10))
    local room = 1000 * 4096 + 20 * 128 * 500
    assert.equal(4096, memory.kv_tokens(kv, room, 20, 1e9))
    assert.equal(4080, memory.kv_tokens(kv, room - 1, 20, 1e9)) -- whole pages of 16
    assert.equal(0, memory.kv_tokens(kv, -1, 20, 1e9))
    assert.equal(512, memory.kv_tokens(kv, 1e12, 20, 512))
  end)

  it("adds up to the capacity on the rank that limits", function()
    local e = tp(2, h100, configs.shape("llama-3.3-70b-fp8"), {})
    local r = e.ranks[e.limiting]
    assert.is_true(r.weights + r.arena + r.comm + r.other + r.kv <= r.capacity)
    assert.is_true(r.stranded < 16 * r.kv_per_token + 1)
    for _, x in ipairs(e.ranks) do
      assert.equal(x.capacity, x.weights + x.arena + x.comm + x.other + x.kv + x.stranded)
      for _, key in ipairs { "weights", "arena", "comm", "other", "kv", "capacity" } do assert.equal(0, x[key] % 1) end
    end
  end)

  it("counts a CUDA context, and NCCL's buffers where there is a communicator", function()
    local alone, group = memory.other("gpu", nil, false), memory.other("gpu", "nvlink", false)
    assert.is_true(alone >= 0.5e9 and alone <= 0.7e9)
    assert.is_true(group > alone and group < alone + 0.5e9)
    assert.is_true(memory.other("gpu", "phb", false) < group)
    assert.is_true(memory.other("gpu", nil, true) > alone)
    assert.is_true(memory.other("cpu", "shm", false) < 1e8)
  end)
end)

-- What sites rely on. `other` and arena are below 1.5 GB on each rank, so weights and KV decide.
local statements = {
  -- model, context, TP that fits, TP that does not
  { "gpt-oss-120b", 131072, { 3, 4 }, { 1, 2 } },
  { "gpt-oss-120b", 65536, { 2 }, { 1 } },
  { "gpt-oss-120b", 32768, { 2 }, { 1 } },
  { "llama-3.3-70b-fp8", 8192, { 2 }, { 1 } },
  { "llama-3.3-70b-fp8", 32768, { 4 }, { 1, 2 } },
}

describe("sizing on H100 80 GB with 20 requests at a time", function()
  for _, row in ipairs(statements) do
    local name, context, fitting, refused = unpack(row)
    it(("%s at %d tokens: TP=%s, not TP=%s"):format(name, context, table.concat(fitting, ", "), table.concat(refused, ", ")), function()
      for _, n in ipairs(fitting) do
        local e = tp(n, h100, configs.shape(name), { concurrency = 20, context = context })
        assert.is_true(e.fits)
        assert.is_nil(e.why)
        assert.is_true(e.kv_tokens >= 20 * context)
      end
      for _, n in ipairs(refused) do
        local e = tp(n, h100, configs.shape(name), { concurrency = 20, context = context })
        assert.is_false(e.fits)
        assert.matches(("%d tokens"):format(20 * context), e.why)
        assert.matches("%d%d%d%d%d%d%d%d%d%d bytes", e.why)
        assert.is_true(e.kv_tokens < 20 * context)
      end
    end)
  end

  it("agrees with arithmetic by hand for gpt-oss-120b", function()
    -- half of 36 layers keep all: 18 * 2 * 8 * 64 * 2 bytes a token; the others 128 positions of each request
    local e = tp(2, h100, configs.shape("gpt-oss-120b"), { concurrency = 20, context = 65536 })
    local tokens = e.kv_tokens
    local kv = (18 * 2048 * tokens + 18 * 2048 * 128 * 20) / 2
    assert.is_true(math.abs(e.ranks[1].kv - kv) < 1)
    assert.is_true(e.ranks[1].weights > 65.25e9 / 2 and e.ranks[1].weights < 65.25e9 / 2 * 1.01)
  end)

  it("says what the third and the fourth L40S buy for gpt-oss-120b in int4", function()
    local l40s = toy.new { n = 4, name = "NVIDIA L40S", link = { kind = "node" } }
    local tokens = {}
    for n = 1, 4 do tokens[n] = tp(n, l40s, configs.shape("gpt-oss-120b-awq"), { concurrency = 20, context = 32768 }).kv_tokens end
    assert.equal(0, tokens[1]) -- 70.6 GB of weights on one card of 43.5
    assert.is_true(tokens[2] > 0 and tokens[3] > 1.5 * tokens[2] and tokens[4] > 1.3 * tokens[3])
  end)
end)
