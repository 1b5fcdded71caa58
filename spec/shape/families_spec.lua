-- SPDX-License-Identifier: Apache-2.0
--- What models weigh and keep, from config.json alone. Expected: parameters, active parameters and KV bytes as published and
--- tabled in facts/models.md section 7.2 (embedding and head count as active); checkpoint sizes where a model card states one.
local configs = require("spec.support.configs")
local shape = require("tpl.shape")

local function kv_bytes(s)
  local n = 0
  for _, l in ipairs(s.layers) do n = n + l.kv_bytes end
  return n
end

-- name, parameters, active parameters, KV bytes per token at 2 bytes an element
local published = {
  { "llama-3.1-8b", 8030261248, 8030261248, 131072 },
  { "llama-3.3-70b", 70553706496, 70553706496, 327680 },
  { "llama-3.1-405b-fp8", 405853388800, 405853388800, 516096 },
  { "gpt-oss-20b", 20914757184, 4.187e9, 49152 },
  { "gpt-oss-120b", 116829156672, 5.712e9, 73728 },
  { "mixtral-8x7b", 46702792704, 12.880e9, 131072 },
  { "qwen1.5-moe-a2.7b", 14315784192, 2.689e9, 196608 },
  { "qwen3-30b-a3b", 30532122624, 3.353e9, 98304 },
  { "qwen3-235b-a22b", 235093634560, 22.191e9, 192512 },
  { "deepseek-v2-lite", 15706484224, 2.661e9, 31104 },
  { "deepseek-v3", 671026419200, 37.55e9, 70272 },
}

describe("tpl.shape of published models", function()
  for _, row in ipairs(published) do
    it("counts " .. row[1], function()
      local s = configs.shape(row[1])
      assert.equal(row[2], s.params)
      assert.is_true(math.abs(s.active_params / row[3] - 1) < 5e-4, s.active_params)
      assert.equal(row[4], kv_bytes(s))
    end)
  end

  it("weighs gpt-oss as its card says: 60.8 and 12.8 GiB", function()
    assert.equal("60.8", ("%.1f"):format(configs.shape("gpt-oss-120b").weight_bytes / 2 ^ 30))
    assert.equal("12.8", ("%.1f"):format(configs.shape("gpt-oss-20b").weight_bytes / 2 ^ 30))
  end)

  it("weighs bf16 models at two bytes a parameter", function()
    for _, name in ipairs { "llama-3.1-8b", "llama-3.3-70b", "mixtral-8x7b", "qwen3-30b-a3b", "qwen3-235b-a22b", "deepseek-v2-lite" } do
      local s = configs.shape(name)
      assert.equal(2 * s.params, s.weight_bytes)
      assert.equal("bf16", s.weight_dtype)
    end
  end)

  it("weighs a layer of the 8B model as its matrices", function()
    -- q and o 4096 x 4096, k and v 1024 x 4096, three of 14336 x 4096, two norms; 2 bytes each
    local l = configs.shape("llama-3.1-8b").layers[7]
    assert.equal(2 * (2 * 4096 * 4096 + 2 * 1024 * 4096), l.attn_bytes)
    assert.equal(2 * 2 * 1024 * 4096, l.kv_proj_bytes)
    assert.equal(2 * 3 * 14336 * 4096, l.mlp_bytes)
    assert.equal(2 * 2 * 4096, l.norm_bytes)
    assert.equal(l.attn_bytes + l.mlp_bytes + l.norm_bytes, l.weight_bytes)
    assert.equal(2 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096), l.flops)
    assert.equal(4 * 32 * 128, l.pos_flops) -- a product with K and one with V
  end)

  it("knows what of a mixture one token reads", function()
    local s = configs.shape("mixtral-8x7b")
    local l = s.layers[1]
    assert.equal(8 * 3 * 2 * 14336 * 4096, l.expert_bytes)
    assert.equal(l.weight_bytes - l.expert_bytes * 6 / 8, l.active_bytes)
    assert.same({ true, 8, 2 }, { s.is_moe, l.n_expert, s.n_expert_used })
  end)

  it("slides every other layer of gpt-oss, from the first", function()
    local s = configs.shape("gpt-oss-120b")
    assert.same({ 128, 128 }, { s.layers[1].window, s.layers[35].window })
    assert.is_nil(s.layers[2].window)
    assert.equal(2 * 8 * 64 * 2, s.layers[2].kv_bytes)
  end)

  it("keeps the latent of DeepSeek whole on every rank, and its router and down-projections too", function()
    local s = configs.shape("deepseek-v3")
    assert.is_true(s.kv_whole)
    assert.equal(2 * (512 + 64), s.layers[1].kv_bytes)
    assert.equal(0, s.layers[3].n_expert)
    assert.equal(256, s.layers[4].n_expert)
    -- fp8 with a float32 scale for each 128 x 128: 1536 x 7168 and 576 x 7168 (4.5 blocks of rows); router bf16, correction float32
    local down = 1536 * 7168 + 12 * 56 * 4 + 576 * 7168 + 5 * 56 * 4
    local norms = 2 * (2 * 7168 + 1536 + 512)
    assert.equal(down + norms + 2 * 256 * 7168 + 4 * 256, s.layers[4].norm_bytes)
  end)

  it("shares one table among equal layers", function()
    local s = configs.shape("llama-3.3-70b")
    assert.equal(s.layers[1], s.layers[80])
    assert.are_not.equal(configs.shape("gpt-oss-20b").layers[1], configs.shape("gpt-oss-20b").layers[2])
  end)
end)

-- Small models, spelt out: only what changes a byte. Expected as above.
local small = {
  { "Llama-2-7B", 6738415616, 524288, { architectures = { "LlamaForCausalLM" }, hidden_size = 4096, intermediate_size = 11008,
    num_hidden_layers = 32, num_attention_heads = 32, vocab_size = 32000, max_position_embeddings = 4096 } },
  { "Llama-3.2-1B", 1235814400, 32768, { architectures = { "LlamaForCausalLM" }, hidden_size = 2048, intermediate_size = 8192,
    num_hidden_layers = 16, num_attention_heads = 32, num_key_value_heads = 8, head_dim = 64, vocab_size = 128256, tie_word_embeddings = true } },
  { "Mistral-7B-v0.1", 7241732096, 131072, { architectures = { "MistralForCausalLM" }, hidden_size = 4096, intermediate_size = 14336,
    num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = 8, vocab_size = 32000, sliding_window = 4096 } },
  { "Qwen2.5-0.5B", 494032768, 12288, { architectures = { "Qwen2ForCausalLM" }, hidden_size = 896, intermediate_size = 4864,
    num_hidden_layers = 24, num_attention_heads = 14, num_key_value_heads = 2, vocab_size = 151936, tie_word_embeddings = true } },
  { "Qwen2.5-7B", 7615616512, 57344, { architectures = { "Qwen2ForCausalLM" }, hidden_size = 3584, intermediate_size = 18944,
    num_hidden_layers = 28, num_attention_heads = 28, num_key_value_heads = 4, vocab_size = 152064 } },
  { "Qwen3-0.6B", 596049920, 114688, { architectures = { "Qwen3ForCausalLM" }, hidden_size = 1024, intermediate_size = 3072,
    num_hidden_layers = 28, num_attention_heads = 16, num_key_value_heads = 8, head_dim = 128, vocab_size = 151936, tie_word_embeddings = true } },
  { "Qwen3-8B", 8190735360, 147456, { architectures = { "Qwen3ForCausalLM" }, hidden_size = 4096, intermediate_size = 12288,
    num_hidden_layers = 36, num_attention_heads = 32, num_key_value_heads = 8, head_dim = 128, vocab_size = 151936 } },
  { "Mixtral-8x22B", 140620634112, 229376, { architectures = { "MixtralForCausalLM" }, hidden_size = 6144, intermediate_size = 16384,
    num_hidden_layers = 56, num_attention_heads = 48, num_key_value_heads = 8, num_local_experts = 8, num_experts_per_tok = 2, vocab_size = 32000 } },
  { "OPT-125m", 125239296, 36864, { architectures = { "OPTForCausalLM" } } },
  { "OPT-13b", 12853473280, 819200, { architectures = { "OPTForCausalLM" }, hidden_size = 5120, ffn_dim = 20480, num_hidden_layers = 40,
    num_attention_heads = 40, word_embed_proj_dim = 5120 } },
  { "GPT-2", 124439808, 36864, { architectures = { "GPT2LMHeadModel" } } },
  { "Gemma3-270m", 268098176, 18432, { architectures = { "Gemma3ForCausalLM" }, hidden_size = 640, intermediate_size = 2048,
    num_hidden_layers = 18, num_attention_heads = 4, num_key_value_heads = 1, head_dim = 256, vocab_size = 262144, sliding_window = 512 } },
  { "Gemma3-1b", 999885952, 26624, { architectures = { "Gemma3ForCausalLM" }, hidden_size = 1152, intermediate_size = 6912,
    num_hidden_layers = 26, num_attention_heads = 4, num_key_value_heads = 1, head_dim = 256, vocab_size = 262144, sliding_window = 512 } },
  { "Phi-3-mini", 3821079552, 393216, { architectures = { "Phi3ForCausalLM" }, hidden_size = 3072, intermediate_size = 8192,
    num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = 32, vocab_size = 32064, sliding_window = 2047 } },
  { "DeepSeek-V2", 235741434880, 69120, { architectures = { "DeepseekV2ForCausalLM" }, hidden_size = 5120, intermediate_size = 12288,
    moe_intermediate_size = 1536, num_hidden_layers = 60, num_attention_heads = 128, n_routed_experts = 160, n_shared_experts = 2,
    num_experts_per_tok = 6, first_k_dense_replace = 1, q_lora_rank = 1536, kv_lora_rank = 512, qk_nope_head_dim = 128,
    qk_rope_head_dim = 64, v_head_dim = 128, vocab_size = 102400 } },
}

describe("tpl.shape of models spelt out here", function()
  for _, row in ipairs(small) do
    it("counts " .. row[1], function()
      local s = assert(shape.of(row[4]))
      assert.same({ row[2], row[3] }, { s.params, kv_bytes(s) })
    end)
  end

  it("lets one layer in six of Gemma 3 see everything", function()
    local s = assert(shape.of(small[13][4]))
    local full = 0
    for _, l in ipairs(s.layers) do full = full + (l.window and 0 or 1) end
    assert.same({ 4, 512 }, { full, s.layers[1].window }) -- 26 layers, facts/models.md 7.2: 4 global
  end)

  it("counts Llama 4 Scout and Maverick to within what their cards round", function()
    -- model cards: 17B of 109B and 17B of 400B active; both with a vision tower of about 0.9B, which is not counted here
    local scout = assert(shape.of { architectures = { "Llama4ForConditionalGeneration" }, text_config = { num_local_experts = 16 } })
    assert.is_true(math.abs(scout.params / 108.1e9 - 1) < 0.01, tostring(scout.params))
    assert.is_true(math.abs(scout.active_params / 17e9 - 1) < 0.02, tostring(scout.active_params))
    local maverick = assert(shape.of { architectures = { "Llama4ForConditionalGeneration" },
      text_config = { num_local_experts = 128, interleave_moe_layer_step = 2 } })
    assert.is_true(math.abs(maverick.params / 400e9 - 1) < 0.01, tostring(maverick.params))
    local full = 0
    for _, l in ipairs(scout.layers) do full = full + (l.window and 0 or 1) end
    assert.equal(12, full)
  end)

  it("reads the text part of a wrapped model", function()
    local text = small[3][4]
    local s = assert(shape.of { architectures = { "Mistral3ForConditionalGeneration" }, text_config = text })
    assert.equal(7241732096, s.params)
  end)

  it("names what it knows when a family is foreign", function()
    local s, e = shape.of({ architectures = { "MambaForCausalLM" } }, nil, "m/config.json:1")
    assert.is_nil(s)
    assert.same({ "unsupported", 6, "m/config.json:1" }, { e.code, e.exit, e.where })
    assert.matches("MambaForCausalLM", e.message)
    assert.matches("GptOssForCausalLM", e.hint)
  end)

  it("refuses numbers that cannot be", function()
    for key, value in pairs { hidden_size = -1, num_hidden_layers = 1e9, vocab_size = 1.5, num_key_value_heads = 5 } do
      local config = configs.config("llama-3.1-8b")
      config[key] = value
      local s, e = shape.of(config)
      assert.is_nil(s)
      assert.equal("format", e.code)
      assert.matches(key, e.message)
    end
    assert.equal("format", select(2, shape.of("text")).code)
  end)
end)
