-- SPDX-License-Identifier: Apache-2.0
--- The price of a replica: what the issue "Topology and placement" says must hold, both sides of each warning, and that
--- worse machines are never cheaper. Measured anchors: gpt-fast's published tokens/s (facts/perf.md 1a and 1d).
local configs = require("spec.support.configs")
local cost = require("tpl.cost")
local toy = require("spec.support.toy_topo")

local function uids(n, from)
  local out = {}
  for i = 1, n do out[i] = "GPU" .. (from or 0) + i - 1 end
  return out
end

local function tp(n, t, name, want) return assert(cost.estimate(t, configs.shape(name), { stages = { { devices = uids(n) } } }, want or {})) end

local function pp(n, t, name, want)
  local groups, stages = {}, {}
  for i = 1, n do groups[i] = { "GPU" .. i - 1 } end
  for i, r in ipairs(assert(cost.cut(configs.shape(name), t, groups, want or {}))) do stages[i] = { devices = groups[i], layers = r } end
  return assert(cost.estimate(t, configs.shape(name), { stages = stages }, want or {}))
end

local function has(e, code)
  for _, w in ipairs(e.warnings) do if w.code == code then return true end end
  return false
end

local function machine(link, more)
  local spec = { n = 8, name = toy.H100, link = link }
  for k, v in pairs(more or {}) do spec[k] = v end
  return toy.new(spec)
end

local nvlink, pcie = machine(toy.NV18), machine { kind = "phb" }
local l40s = machine({ kind = "node" }, { name = "NVIDIA L40S" })
-- one GPU imagined large enough
local large = machine(toy.NV18, { mem_bytes = { 4e11, 4e11, 4e11, 4e11, 4e11, 4e11, 4e11, 4e11 } })

describe("tpl.cost.estimate", function()
  it("has the fields that plan prints", function()
    local e = pp(2, nvlink, "llama-3.1-8b", { context = 4096, concurrency = 8 })
    for _, key in ipairs { "itl_us", "ttft_us", "tok_s", "comm_share", "bubble", "min_concurrency", "stage_imbalance", "roofline_share", "kv_tokens" } do
      assert.is_true(type(e[key]) == "number" and e[key] == e[key] and e[key] >= 0, key)
    end
    assert.is_true(e.fits)
    assert.is_false(e.calibrated)
    assert.equal(2, #e.stages)
    assert.is_true(e.stages[1].us_decode > 0 and e.stages[1].us_prefill > 0)
    for _, key in ipairs { "weights", "arena", "comm", "kv", "kv_per_token", "other", "capacity", "stranded" } do assert.is_true(e.ranks[2][key] >= 0, key) end
    assert.same({ "GPU1", 1 }, { e.ranks[2].uid, e.ranks[2].stage })
    assert.same({ { a = "GPU0", b = "GPU1", bytes = 2 * 4096 } }, e.link_bytes_per_token)
    assert.is_true(({ memory = true, compute = true, comm = true, latency = true })[e.bound])
  end)

  for _, name in ipairs { "llama-3.3-70b", "llama-3.3-70b-fp8" } do
    for _, concurrency in ipairs { 1, 16 } do
      it(("cuts a token of %s by 30 to 45 %% with TP=2 over NVLink, at %d requests"):format(name, concurrency), function()
        local want = { concurrency = concurrency }
        local cut = 1 - tp(2, large, name, want).itl_us / tp(1, large, name, want).itl_us
        assert.is_true(cut >= 0.30 and cut <= 0.45, tostring(cut))
      end)
    end
    it("spends more than a fifth on communication with TP=2 over PCIe: " .. name, function()
      for _, t in ipairs { pcie, l40s } do
        local e = tp(2, t, name)
        assert.is_true(e.comm_share > 0.20, tostring(e.comm_share))
        assert.is_true(has(e, "comm_over_20pct"))
      end
      local e = tp(2, nvlink, name)
      assert.is_true(e.comm_share < 0.20)
      assert.is_false(has(e, "comm_over_20pct"))
    end)
  end

  it("is near what gpt-fast published for Llama 2 on A100", function()
    -- facts/perf.md: 7B at TP 1, 2, 4: 104.9, 168.8, 254 tokens/s; 70B at TP 2, 4, 8: 21.3, 38.0, 62.5
    local a100 = machine({ kind = "nvlink", nvlinks = 12, via_switch = true }, { name = "NVIDIA A100-SXM4-80GB" })
    local function llama2(hidden, ffn, layers, heads, kv)
      return assert(require("tpl.shape").of { architectures = { "LlamaForCausalLM" }, hidden_size = hidden, intermediate_size = ffn, num_hidden_layers = layers,
        num_attention_heads = heads, num_key_value_heads = kv, vocab_size = 32000, max_position_embeddings = 4096 })
    end
    local small, big = llama2(4096, 11008, 32, 32, 32), llama2(8192, 28672, 80, 64, 8)
    for _, row in ipairs { { small, 1, 104.9 }, { small, 2, 168.8 }, { small, 4, 254 }, { big, 2, 21.3 }, { big, 4, 38.0 }, { big, 8, 62.5 } } do
      local e = assert(cost.estimate(a100, row[1], { stages = { { devices = uids(row[2]) } } }, { concurrency = 1, depth = 128 }))
      assert.is_true(math.abs(e.tok_s / row[3] - 1) < 0.15, ("TP=%d: %.1f tokens/s, %.1f published"):format(row[2], e.tok_s, row[3]))
    end
  end)

  it("prices pipelines above TP for throughput on PCIe, and below on NVLink; TP answers sooner on both", function()
    assert.is_true(pp(4, l40s, "llama-3.3-70b-fp8").served_tok_s > 1.1 * tp(4, l40s, "llama-3.3-70b-fp8").served_tok_s)
    assert.is_true(pp(4, nvlink, "llama-3.3-70b-fp8").served_tok_s < tp(4, nvlink, "llama-3.3-70b-fp8").served_tok_s)
    assert.is_true(pp(4, l40s, "llama-3.3-70b-fp8").itl_us > tp(4, l40s, "llama-3.3-70b-fp8").itl_us)
    assert.is_true(pp(4, nvlink, "llama-3.3-70b-fp8").itl_us > tp(4, nvlink, "llama-3.3-70b-fp8").itl_us)
  end)

  it("prices what experts are reached: 1 token of gpt-oss reads 4 of 128, many read most", function()
    local step = require("tpl.cost.step")
    assert.is_true(math.abs(step.experts_hit(128, 4, 1) - 4 / 128) < 1e-12)
    assert.is_true(math.abs(step.experts_hit(8, 2, 2) - (1 - 0.75 ^ 2)) < 1e-12)
    assert.is_true(step.experts_hit(128, 4, 256) > 0.99)
    local one, many = tp(1, nvlink, "gpt-oss-120b", { concurrency = 1 }), tp(1, nvlink, "gpt-oss-120b", { concurrency = 64 })
    assert.is_true(many.itl_us > 4 * one.itl_us and many.itl_us < 64 * one.itl_us)
  end)

  it("lets tokens of window layers see no more than the window", function()
    local function slower(name) return tp(2, nvlink, name, { depth = 65536 }).itl_us - tp(2, nvlink, name, { depth = 1024 }).itl_us end
    -- 16 requests: half the layers read 64512 positions more, 2048 bytes each, on two ranks at 84 % of 3352 GB/s
    local us = 16 * 18 * 64512 * 2048 / 2 / (3352e3 * 0.84)
    assert.is_true(math.abs(slower("gpt-oss-120b") / us - 1) < 0.01)
  end)
end)

describe("experts", function()
  local h200 = machine(toy.NV18, { name = "NVIDIA H200" })

  local function with(mesh, name, want, n, t)
    return assert(cost.estimate(t or h200, configs.shape(name), { stages = { { devices = uids(n or 8), mesh = mesh } } }, want or {}))
  end

  it("put whole experts on ranks, attention whole, when requests are dealt out", function()
    local s = configs.shape("deepseek-v3")
    local expert, attn, rest = 0, 0, s.norm_bytes
    for _, l in ipairs(s.layers) do
      expert, attn, rest = expert + l.expert_bytes, attn + l.attn_bytes + l.mlp_bytes, rest + l.norm_bytes
    end
    local e = with("dp=8:batch", "deepseek-v3")
    assert.is_true(math.abs(e.ranks[3].weights - (expert / 8 + attn + rest + s.embed_bytes + s.head_bytes)) < 1)
    assert.equal(70272 / 8, e.ranks[3].kv_per_token) -- an eighth of the requests, whole
  end)

  it("hold eight times the requests of DeepSeek when attention is not repeated, and serve more", function()
    local tp8, dp8 = with("tp=8", "deepseek-v3"), with("dp=8:batch", "deepseek-v3")
    assert.is_true(dp8.kv_tokens > 5 * tp8.kv_tokens)
    assert.is_true(dp8.served_tok_s > 1.5 * tp8.served_tok_s)
    assert.is_true(dp8.itl_us > tp8.itl_us) -- a rank reads all of attention: no gain for few requests
  end)

  it("gain little by it where heads can be cut", function()
    local tp2, dp2 = with("tp=2", "mixtral-8x7b", {}, 2), with("dp=2:batch", "mixtral-8x7b", {}, 2)
    assert.is_true(dp2.served_tok_s / tp2.served_tok_s < 1.15)
    assert.is_true(dp2.kv_tokens < tp2.kv_tokens)
  end)

  it("cut in blocks of 32 columns, so four ranks of gpt-oss hold 23, 23, 22 and 22 of 90", function()
    local s = configs.shape("gpt-oss-120b")
    local e, even = with("tp=4", "gpt-oss-120b", {}, 4), 0
    for _, l in ipairs(s.layers) do even = even + l.expert_bytes end
    assert.is_true(math.abs(e.ranks[1].weights - e.ranks[4].weights - even / 90) < 1)
  end)
end)

describe("CPU ranks", function()
  local probe = { cpu = "some CPU", cores = 2, read_gb_s = 34, matrix_gflop_s = { f32 = 460, bf16 = 6700, i8 = 13000 }, barrier_us = 0.09 }
  local t = toy.new { n = 4, kind = "cpu", link = { kind = "node" }, mem_bytes = { 64e9, 64e9, 64e9, 64e9 } }
  local s = configs.shape("llama-3.1-8b")

  local function run(stages, more)
    local want = { concurrency = 1, context = 512, depth = 64, probe = probe }
    for k, v in pairs(more or {}) do want[k] = v end
    return assert(cost.estimate(t, s, { stages = stages }, want))
  end

  it("read at most what was probed, and say that it was", function()
    local e = run { { devices = { "cpu0" } } }
    assert.is_true(e.itl_us > (s.weight_bytes - s.embed_bytes) / 34e3)
    assert.is_true(e.calibrated)
    assert.equal("memory", e.bound)
  end)

  it("share the bandwidth: two ranks are hardly faster than one", function()
    local one, two = run { { devices = { "cpu0" } } }, run { { devices = { "cpu0", "cpu1" } } }
    assert.is_true(two.itl_us > 0.97 * one.itl_us and two.itl_us < 1.1 * one.itl_us)
    assert.is_true(two.decode_comm_share < 0.05)
  end)

  it("in a pipeline that one request keeps half busy, read with a part of the cores only", function()
    local one, two = run { { devices = { "cpu0" } } }, run { { devices = { "cpu0" }, layers = { 0, 15 } }, { devices = { "cpu1" }, layers = { 16, 31 } } }
    assert.is_true(two.itl_us > 1.2 * one.itl_us and two.itl_us < 2 * one.itl_us)
  end)

  it("multiply in the type that they are told, else in bytes, or in bf16 on AMX", function()
    local function ttft(act, isa)
      local machine_ = { cores = 2, read_gb_s = 1000, matrix_gflop_s = { f32 = 100, bf16 = 200, i8 = 400 }, barrier_us = 0.1, isa = isa }
      return run({ { devices = { "cpu0" } } }, { act = act, probe = machine_, prompt = 512 }).ttft_us
    end
    assert.is_true(ttft("f32") > 1.8 * ttft("bf16") and ttft("bf16") > 1.8 * ttft("auto"))
    assert.is_true(math.abs(ttft("auto", "amx") / ttft("bf16", "amx") - 1) < 0.01)
  end)

  it("compute with their own threads", function()
    local one, half = run({ { devices = { "cpu0" } } }, { threads = 2 }), run({ { devices = { "cpu0" } } }, { threads = 1 })
    assert.is_true(half.ttft_us > 1.5 * one.ttft_us)
    assert.is_true(run({ { devices = { "cpu0" } } }, { threads = 4 }).ttft_us >= one.ttft_us)
  end)
end)

describe("pipelines", function()
  it("cut Llama-3.1-8B into four within 10 %, fewer layers last", function()
    for _, t in ipairs { nvlink, l40s } do
      for _, concurrency in ipairs { 4, 16, 64 } do
        local groups = { { "GPU0" }, { "GPU1" }, { "GPU2" }, { "GPU3" } }
        local ranges = assert(cost.cut(configs.shape("llama-3.1-8b"), t, groups, { concurrency = concurrency }))
        local size = {}
        for i, r in ipairs(ranges) do size[i] = r[2] - r[1] + 1 end
        assert.same({ 0, 31 }, { ranges[1][1], ranges[4][2] })
        for i = 1, 3 do
          assert.equal(ranges[i][2] + 1, ranges[i + 1][1])
          assert.is_true(size[4] < size[i])
        end
        local e = pp(4, t, "llama-3.1-8b", { concurrency = concurrency })
        assert.is_true(e.stage_imbalance < 0.10)
        assert.is_false(has(e, "stage_over_10pct"))
      end
    end
  end)

  it("warn of a stage more than 10 % off, either way", function()
    local function cut(a, b, c)
      return assert(cost.estimate(nvlink, configs.shape("llama-3.3-70b"), { stages = { { devices = { "GPU0" }, layers = { 0, a - 1 } },
        { devices = { "GPU1" }, layers = { a, a + b - 1 } }, { devices = { "GPU2" }, layers = { a + b, a + b + c - 1 } } } }, {}))
    end
    assert.is_false(has(cut(27, 27, 26), "stage_over_10pct"))
    assert.is_true(has(cut(31, 25, 24), "stage_over_10pct"))
    assert.is_true(has(cut(29, 29, 22), "stage_over_10pct"))
  end)

  it("want as many requests as stages", function()
    for concurrency, fills in pairs { [1] = false, [3] = false, [4] = true, [16] = true } do
      local e = pp(4, nvlink, "llama-3.1-8b", { concurrency = concurrency })
      assert.equal(4, e.min_concurrency)
      assert.equal(not fills, has(e, "fill"))
    end
    assert.is_false(has(tp(4, nvlink, "llama-3.1-8b", { concurrency = 1 }), "fill"))
  end)

  it("idle while they are not full: three quarters with one request in four stages", function()
    assert.is_true(math.abs(pp(4, nvlink, "llama-3.3-70b", { concurrency = 1 }).bubble - 0.75) < 0.01)
    assert.is_true(pp(4, nvlink, "llama-3.3-70b", { concurrency = 16 }).bubble < 0.10)
    assert.is_true(tp(1, large, "llama-3.3-70b", { concurrency = 1 }).bubble < 0.01)
  end)

  it("follow memory and speed over unequal stages", function()
    local t = toy.new { n = 3, names = { "NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB" }, link = { kind = "phb" } }
    local groups = { { "GPU0" }, { "GPU1" }, { "GPU2" } }
    local ranges = assert(cost.cut(configs.shape("llama-3.3-70b"), t, groups, { context = 4096, concurrency = 1 }))
    assert.is_true(ranges[1][2] + 1 >= 38 and ranges[1][2] + 1 <= 44) -- half of 80 layers, on half of the memory
    local e = assert(cost.estimate(t, configs.shape("llama-3.3-70b"), { stages = { { devices = groups[1], layers = ranges[1] },
      { devices = groups[2], layers = ranges[2] }, { devices = groups[3], layers = ranges[3] } } }, { context = 4096, concurrency = 1 }))
    assert.is_true(e.fits)
    -- a small model fits everywhere: then the faster card gets more
    ranges = assert(cost.cut(configs.shape("llama-3.1-8b"), t, groups, {}))
    assert.is_true(ranges[1][2] + 1 > ranges[2][2] - ranges[2][1] + 1)
  end)

  it("refuse more stages than layers", function()
    local groups = {}
    for i = 1, 33 do groups[i] = { "GPU" .. (i - 1) % 8 } end
    local ranges, e = cost.cut(configs.shape("llama-3.1-8b"), nvlink, groups, {})
    assert.is_nil(ranges)
    assert.matches("33 stages", e.message)
  end)
end)

describe("tpl.cost.shares", function()
  local s = configs.shape("llama-3.3-70b")

  it("gives 4, 2 and 2 heads to 80, 40 and 40 GB", function()
    local t = toy.new { n = 3, names = { "NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB" }, link = { kind = "phb" } }
    assert.same({ 4, 2, 2 }, cost.shares(s, t, uids(3)))
    assert.same({ 2, 4, 2 }, cost.shares(s, t, { "GPU1", "GPU0", "GPU2" }))
  end)

  it("gives 3, 3 and 2 to three alike, and even ones to 2, 4 and 8", function()
    assert.same({ 3, 3, 2 }, cost.shares(s, nvlink, uids(3)))
    assert.same({ 4, 4 }, cost.shares(s, nvlink, uids(2)))
    assert.same({ 1, 1, 1, 1, 1, 1, 1, 1 }, cost.shares(s, nvlink, uids(8)))
  end)

  it("follows what is free", function()
    local t = toy.new { n = 2, name = toy.H100, link = toy.NV18, free_bytes = { 80e9, 60e9 } }
    assert.same({ 5, 3 }, cost.shares(s, t, uids(2)))
  end)

  it("starves nobody, and gives up where heads are fewer than devices", function()
    local t = toy.new { n = 3, name = toy.H100, link = toy.NV18, free_bytes = { 80e9, 80e9, 2e9 } }
    local counts = cost.shares(s, t, uids(3))
    assert.same({ 8, 1 }, { counts[1] + counts[2] + counts[3], counts[3] })
    assert.is_nil(cost.shares(configs.shape("qwen3-30b-a3b"), nvlink, uids(8)))
  end)

  it("buys KV tokens on unequal cards", function()
    local t = toy.new { n = 2, name = toy.H100, link = toy.NV18, free_bytes = { 80e9, 60e9 } }
    local function tokens(shares) return assert(cost.estimate(t, configs.shape("llama-3.3-70b-fp8"), { stages = { { devices = uids(2), shares = shares } } }, {})).kv_tokens end
    -- 5 of 8 heads: (76.97 - 45.4 - 0.9) GB at 204800 bytes a token; half: (60 - 36.3 - 0.9) GB at 163840
    assert.is_true(math.abs(tokens(cost.shares(s, t, uids(2))) / tokens(nil) - 30.7e9 / 204800 / (22.8e9 / 163840)) < 0.02)
  end)
end)

describe("warnings", function()
  it("name an estimate under 70 % of the roofline", function()
    local e = tp(1, large, "llama-3.3-70b", { concurrency = 1 })
    assert.is_true(e.roofline_share > 0.70 and e.roofline_share <= 1)
    assert.is_false(has(e, "under_70pct"))
    e = tp(8, large, "llama-3.3-70b", { concurrency = 1 })
    assert.is_true(e.roofline_share < 0.70)
    assert.is_true(has(e, "under_70pct"))
  end)
end)

describe("worse machines", function()
  it("are never cheaper: bandwidth of the link", function()
    for _, kind in ipairs { "nvlink", "pix", "phb", "sys" } do
      local last = 0
      for _, gb_s in ipairs { 400, 200, 100, 50, 25, 12, 6, 3, 1 } do
        local e = tp(4, machine { kind = kind, gb_s = gb_s, us = 10, source = "measured", nvlinks = 4 }, "llama-3.3-70b-fp8")
        assert.is_true(e.itl_us >= last and e.served_tok_s > 0)
        last = e.itl_us
      end
    end
  end)

  it("are never cheaper: class of the link", function()
    for _, n in ipairs { 2, 4, 8 } do
      local last_itl, last_ttft = 0, 0
      for _, link in ipairs { toy.NV18, { kind = "pix" }, { kind = "pxb" }, { kind = "phb" }, { kind = "node" }, { kind = "sys" }, { kind = "shm", pcie = "sys" } } do
        local e = tp(n, machine(link), "llama-3.3-70b-fp8")
        assert.is_true(e.itl_us >= last_itl and e.ttft_us >= last_ttft, link.kind)
        last_itl, last_ttft = e.itl_us, e.ttft_us
      end
    end
  end)

  it("hold no more with less memory, and longer contexts are no faster", function()
    local last = 0
    for gb = 60, 85, 5 do
      local t = toy.new { n = 2, name = toy.H100, link = toy.NV18, mem_bytes = { gb * 1e9, gb * 1e9 } }
      local e = tp(2, t, "llama-3.3-70b-fp8")
      assert.is_true(e.kv_tokens >= last)
      last = e.kv_tokens
    end
    last = 0
    for _, depth in ipairs { 1, 128, 1024, 8192, 65536 } do
      local us = tp(2, nvlink, "llama-3.3-70b-fp8", { depth = depth }).itl_us
      assert.is_true(us > last)
      last = us
    end
  end)

  it("are told when they are not known", function()
    local t = toy.new { n = 1, name = "NVIDIA Foo 9000", link = toy.NV18 }
    local e, problem = cost.estimate(t, configs.shape("llama-3.1-8b"), { stages = { { devices = { "GPU0" } } } }, {})
    assert.is_nil(e)
    assert.matches("%-%-assume", problem.hint)
    t = toy.new { n = 1, name = "NVIDIA GB10", link = toy.NV18 } -- shares the CPU's memory: nvidia-smi prints none
    e, problem = cost.estimate(t, configs.shape("llama-3.1-8b"), { stages = { { devices = { "GPU0" } } } }, {})
    assert.is_nil(e)
    assert.same({ 6, "GPU0" }, { problem.exit, problem.where })
    assert.matches("mem_bytes.*%-%-assume", problem.hint)
    e, problem = cost.estimate(t, configs.shape("llama-3.1-8b"), { stages = { { devices = { "GPU7" } } } }, {})
    assert.is_nil(e)
    assert.equal("GPU7", problem.where)
  end)
end)

describe("slices", function()
  it("are named by their parents", function()
    local t = toy.new { n = 1, name = toy.H100, link = toy.NV18 }
    t.by_uid["MIG-a"] = { uid = "MIG-a", kind = "mig", host = "host0", mem_bytes = 40e9, mig = { parent = "GPU0", profile = "3g.40gb" } }
    local whole = tp(1, t, "llama-3.1-8b", { concurrency = 1, depth = 64 })
    local e = assert(cost.estimate(t, configs.shape("llama-3.1-8b"), { stages = { { devices = { "MIG-a" } } } }, { concurrency = 1, depth = 64 }))
    assert.equal(36e9, e.ranks[1].capacity)
    assert.is_true(e.itl_us > 1.5 * whole.itl_us and e.itl_us < 2.1 * whole.itl_us)
  end)
end)

describe("time that an estimate takes", function()
  it("is well under 2 ms for 80 layers on 8 GPUs", function()
    local spec = { stages = {} }
    for i = 1, 8 do spec.stages[i] = { devices = { "GPU" .. i - 1 }, layers = { (i - 1) * 10, i * 10 - 1 } } end
    for _, replica in ipairs { spec, { stages = { { devices = uids(8) } } } } do
      local best = math.huge
      for _ = 1, 20 do
        local t0 = os.clock()
        for _ = 1, 10 do assert(cost.estimate(nvlink, configs.shape("llama-3.3-70b"), replica, {})) end
        best = math.min(best, (os.clock() - t0) / 10)
      end
      assert.is_true(best < 0.002, tostring(best))
    end
  end)
end)
