-- SPDX-License-Identifier: Apache-2.0
--- List the weights of each model family from its config.json: which matrices a layer has, how large, which layers
--- slide and what a token leaves in the KV cache. Facts: facts/models.md section 1 (names and dims as published
--- checkpoints have them). Each family is one function from a checked reader to a tpl.shape.Facts. Pure.
local parts = require "tpl.shape.parts"
local reader = require "tpl.config.reader"

local M = {}

local matrix, vector, limits = parts.matrix, parts.vector, reader.limits
local floor = math.floor

---@class tpl.shape.Facts
---@field arch string
---@field n_layer integer
---@field hidden integer
---@field n_head integer
---@field n_kv integer
---@field head_dim integer
---@field vocab integer
---@field context integer
---@field tied boolean
---@field ffn integer              columns that a dense MLP is cut along
---@field expert_ffn integer?      columns of one expert
---@field n_expert integer         0: dense
---@field n_expert_used integer
---@field prefix string            of a layer's tensors, "model.layers.%d."
---@field layer fun(i: integer): tpl.shape.Module[]   0-based
---@field embed tpl.shape.Module[]
---@field head tpl.shape.Module[]
---@field kv_elements integer      values per token and layer
---@field kv_whole boolean?        every rank keeps all of it (MLA)
---@field pos_flops integer        per token, layer and cached position
---@field window fun(i: integer): integer?

local function heads(r, c, defaults)
  c.n_head = r:int("num_attention_heads", 1, limits.heads, defaults and defaults.n_head)
  c.n_kv = r:int("num_key_value_heads", 1, limits.heads, defaults and defaults.n_kv or c.n_head)
  if c.n_head % c.n_kv ~= 0 then
    r:bad("num_key_value_heads", ("is %d, which does not divide num_attention_heads %d"):format(c.n_kv, c.n_head))
  end
  local given = defaults and defaults.head_dim
  if not given and r.get("head_dim") == nil and c.hidden % c.n_head ~= 0 then
    r:bad("num_attention_heads", ("is %d, which does not divide hidden_size %d"):format(c.n_head, c.hidden))
  end
  c.head_dim = r:int("head_dim", 1, limits.head_dim, given or c.hidden / c.n_head)
end

local function common(r, defaults)
  local d = defaults or {}
  local c = { prefix = "model.layers.%d.", n_expert = 0, n_expert_used = 0 }
  c.hidden = r:int("hidden_size", 1, limits.hidden, d.hidden)
  c.n_layer = r:int("num_hidden_layers", 1, limits.layers, d.n_layer)
  c.vocab = r:int("vocab_size", 1, limits.vocab, d.vocab)
  c.context = r:int("max_position_embeddings", 1, limits.context, d.context or 2048)
  c.ffn = r:int("intermediate_size", 1, limits.ffn, d.ffn)
  c.tied = r:bool("tie_word_embeddings", d.tied)
  heads(r, c, d.heads)
  c.kv_elements = 2 * c.n_kv * c.head_dim
  c.pos_flops = 4 * c.n_head * c.head_dim
  c.embed = { matrix("embed", "model.embed_tokens", c.vocab, c.hidden, { plain = true }) }
  c.head = { vector("rep", "model.norm", c.hidden) }
  if not c.tied then c.head[2] = matrix("head", "lm_head", c.vocab, c.hidden) end
  c.window = function() return nil end
  return c
end

local function attention(c, out, more)
  more = more or {}
  local q, kv = c.n_head * c.head_dim, c.n_kv * c.head_dim
  local names = more.names or { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj" }
  out[#out + 1] = matrix("attn", names[1], q, c.hidden, { bias = more.bias })
  out[#out + 1] = matrix("kv", names[2], kv, c.hidden, { bias = more.bias })
  out[#out + 1] = matrix("kv", names[3], kv, c.hidden, { bias = more.bias })
  out[#out + 1] = matrix("attn", names[4], c.hidden, q, { bias = more.o_bias })
  return out
end

local function norms(c, out, n)
  for _ = 1, n or 2 do out[#out + 1] = vector("rep", "layernorm", c.hidden) end
end

local function head_norms(c, out)
  out[#out + 1] = vector("rep", "self_attn.q_norm", c.head_dim)
  out[#out + 1] = vector("rep", "self_attn.k_norm", c.head_dim)
end

local function gated(c, out, prefix, ffn, more)
  out[#out + 1] = matrix("mlp", prefix .. "gate_proj", ffn, c.hidden, more)
  out[#out + 1] = matrix("mlp", prefix .. "up_proj", ffn, c.hidden, more)
  out[#out + 1] = matrix("mlp", prefix .. "down_proj", c.hidden, ffn, more)
end

-- gate, up and down of every expert; names as of expert 0
local function experts(c, out, names)
  local more = { n = c.n_expert, used = c.n_expert_used / c.n_expert }
  out[#out + 1] = matrix("expert", names[1], c.expert_ffn, c.hidden, more)
  out[#out + 1] = matrix("expert", names[2], c.expert_ffn, c.hidden, more)
  out[#out + 1] = matrix("expert", names[3], c.hidden, c.expert_ffn, more)
end

local function read_experts(r, c, n_key, used_key, ffn_key)
  c.n_expert = r:int(n_key, 0, 65536)
  if c.n_expert > 0 then
    c.n_expert_used = r:int(used_key, 1, c.n_expert)
    c.expert_ffn = ffn_key and r:int(ffn_key, 1, limits.ffn) or c.ffn
  end
end

-- A list of layer types, by layer, wins over any pattern; nil where the file has none.
local function sliding_list(r, c, window)
  local list = r:table("layer_types")
  if not list then return nil end
  if #list < c.n_layer then r:bad("layer_types", ("has %d entries for %d layers"):format(#list, c.n_layer)) end
  return function(i) return list[i + 1] ~= "full_attention" and window or nil end
end

-- -- Dense -------------------------------------------------------------------------------------------------------------

local families = {}

function families.llama(r)
  local c = common(r)
  local bias, mlp = r:bool("attention_bias"), { bias = r:bool("mlp_bias") }
  c.layer = function()
    local out = attention(c, {}, { bias = bias, o_bias = bias })
    gated(c, out, "mlp.", c.ffn, mlp)
    norms(c, out)
    return out
  end
  return c
end

function families.mistral(r)
  local c = families.llama(r)
  local window = r.get("sliding_window") ~= nil and r:int("sliding_window", 1, limits.context) or nil
  c.window = sliding_list(r, c, window) or function() return window end
  return c
end

-- Layers from max_window_layers on slide, when the file switches windows on.
local function qwen_window(r, c)
  if not r:bool("use_sliding_window") or r.get("sliding_window") == nil then return end
  local window, from = r:int("sliding_window", 1, limits.context), r:int("max_window_layers", 0, limits.layers, c.n_layer)
  c.window = sliding_list(r, c, window) or function(i) return i >= from and window or nil end
end

function families.qwen2(r)
  local c = common(r)
  qwen_window(r, c)
  c.layer = function()
    local out = attention(c, {}, { bias = true })
    gated(c, out, "mlp.", c.ffn)
    norms(c, out)
    return out
  end
  return c
end

function families.qwen3(r)
  local c = common(r, { heads = { head_dim = 128 } })
  local bias = r:bool("attention_bias")
  qwen_window(r, c)
  c.layer = function()
    local out = attention(c, {}, { bias = bias, o_bias = bias })
    head_norms(c, out)
    gated(c, out, "mlp.", c.ffn)
    norms(c, out)
    return out
  end
  return c
end

function families.phi3(r)
  local c = common(r)
  local window = r.get("sliding_window") ~= nil and r:int("sliding_window", 1, limits.context) or nil
  c.window = function() return window end
  c.layer = function()
    local qkv = "self_attn.qkv_proj"
    local out = attention(c, {}, { names = { qkv, qkv, qkv, "self_attn.o_proj" } })
    out[#out + 1] = matrix("mlp", "mlp.gate_up_proj", 2 * c.ffn, c.hidden)
    out[#out + 1] = matrix("mlp", "mlp.down_proj", c.hidden, c.ffn)
    norms(c, out)
    return out
  end
  return c
end

-- Defaults of the configuration class: files leave out what equals them.
local gemma3 = { hidden = 2304, n_layer = 26, vocab = 262208, context = 131072, ffn = 9216, tied = true,
  heads = { n_head = 8, n_kv = 4, head_dim = 256 } }

function families.gemma3(r)
  local c = common(r, gemma3)
  local window = r:int("sliding_window", 1, limits.context, 4096)
  local key = r.get("sliding_window_pattern") ~= nil and "sliding_window_pattern" or "_sliding_window_pattern"
  local pattern = r:int(key, 1, limits.layers, 6)
  c.window = sliding_list(r, c, window) or function(i) return (i + 1) % pattern ~= 0 and window or nil end
  c.layer = function()
    local out = attention(c, {})
    head_norms(c, out)
    gated(c, out, "mlp.", c.ffn)
    norms(c, out, 4)
    return out
  end
  return c
end

function families.opt(r)
  local c = { prefix = "model.decoder.layers.%d.", n_expert = 0, n_expert_used = 0 }
  c.hidden = r:int("hidden_size", 1, limits.hidden, 768)
  c.n_layer = r:int("num_hidden_layers", 1, limits.layers, 12)
  c.vocab = r:int("vocab_size", 1, limits.vocab, 50272)
  c.context = r:int("max_position_embeddings", 1, limits.context, 2048)
  c.ffn = r:int("ffn_dim", 1, limits.ffn, 3072)
  c.tied = r:bool("tie_word_embeddings", true)
  heads(r, c, { n_head = 12 })
  c.kv_elements, c.pos_flops = 2 * c.hidden, 4 * c.hidden
  local bias = r:bool("enable_bias", true)
  local width = r:int("word_embed_proj_dim", 1, limits.hidden, c.hidden)
  c.embed = { matrix("embed", "model.decoder.embed_tokens", c.vocab, width, { plain = true }),
    matrix("rep", "model.decoder.embed_positions", c.context + 2, c.hidden, { plain = true, used = 1 / (c.context + 2) }) }
  c.head = {}
  if width ~= c.hidden then
    table.insert(c.embed, matrix("rep", "model.decoder.project_in", c.hidden, width, { plain = true }))
    table.insert(c.head, matrix("rep", "model.decoder.project_out", width, c.hidden, { plain = true }))
  end
  if r:bool("do_layer_norm_before", true) and not r:bool("_remove_final_layer_norm") then
    table.insert(c.head, vector("rep", "model.decoder.final_layer_norm", 2 * c.hidden))
  end
  if not c.tied then table.insert(c.head, matrix("head", "lm_head", c.vocab, width)) end
  c.window = function() return nil end
  c.layer = function()
    local names = { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj" }
    local out = attention(c, {}, { names = names, bias = bias, o_bias = bias })
    out[#out + 1] = matrix("mlp", "fc1", c.ffn, c.hidden, { bias = bias })
    out[#out + 1] = matrix("mlp", "fc2", c.hidden, c.ffn, { bias = bias })
    norms(c, out, 4) -- weights and biases of two
    return out
  end
  return c
end

function families.gpt2(r)
  local c = { prefix = "transformer.h.%d.", n_expert = 0, n_expert_used = 0 }
  c.hidden = r:int("n_embd", 1, limits.hidden, 768)
  c.n_layer = r:int("n_layer", 1, limits.layers, 12)
  c.vocab = r:int("vocab_size", 1, limits.vocab, 50257)
  c.context = r:int("n_positions", 1, limits.context, 1024)
  c.ffn = r:int("n_inner", 1, limits.ffn, 4 * c.hidden)
  c.n_head = r:int("n_head", 1, limits.heads, 12)
  c.n_kv, c.head_dim, c.tied = c.n_head, c.hidden / c.n_head, r:bool("tie_word_embeddings", true)
  c.kv_elements, c.pos_flops = 2 * c.hidden, 4 * c.hidden
  c.embed = { matrix("embed", "transformer.wte", c.vocab, c.hidden, { plain = true }),
    matrix("rep", "transformer.wpe", c.context, c.hidden, { plain = true, used = 1 / c.context }) }
  c.head = { vector("rep", "transformer.ln_f", 2 * c.hidden) }
  if not c.tied then c.head[2] = matrix("head", "lm_head", c.vocab, c.hidden) end
  c.window = function() return nil end
  c.layer = function()
    local qkv = "attn.c_attn"
    local out = attention(c, {}, { names = { qkv, qkv, qkv, "attn.c_proj" }, bias = true, o_bias = true })
    out[#out + 1] = matrix("mlp", "mlp.c_fc", c.ffn, c.hidden, { bias = true })
    out[#out + 1] = matrix("mlp", "mlp.c_proj", c.hidden, c.ffn, { bias = true })
    norms(c, out, 4)
    return out
  end
  return c
end

-- -- Experts -----------------------------------------------------------------------------------------------------------

function families.mixtral(r)
  local c = families.mistral(r)
  read_experts(r, c, "num_local_experts", "num_experts_per_tok")
  c.layer = function()
    local out = attention(c, {})
    local moe = "block_sparse_moe."
    out[#out + 1] = matrix("rep", moe .. "gate", c.n_expert, c.hidden)
    experts(c, out, { moe .. "experts.0.w1", moe .. "experts.0.w3", moe .. "experts.0.w2" })
    norms(c, out)
    return out
  end
  return c
end

local function qwen_moe(r, c, attend, has_shared)
  read_experts(r, c, "num_experts", "num_experts_per_tok", "moe_intermediate_size")
  local step, only, dense = r:int("decoder_sparse_step", 1, limits.layers, 1), r:table("mlp_only_layers") or {}, {}
  for _, i in ipairs(only) do dense[i] = true end
  local shared = has_shared and r.get("shared_expert_intermediate_size") ~= nil
    and r:int("shared_expert_intermediate_size", 0, limits.ffn) or 0
  c.layer = function(i)
    local out = attend({})
    if c.n_expert > 0 and not dense[i] and (i + 1) % step == 0 then
      out[#out + 1] = matrix("rep", "mlp.gate", c.n_expert, c.hidden)
      local e = "mlp.experts.0."
      experts(c, out, { e .. "gate_proj", e .. "up_proj", e .. "down_proj" })
      if shared > 0 then
        gated(c, out, "mlp.shared_expert.", shared)
        out[#out + 1] = matrix("rep", "mlp.shared_expert_gate", 1, c.hidden)
      end
    else
      gated(c, out, "mlp.", c.ffn)
    end
    norms(c, out)
    return out
  end
  return c
end

function families.qwen2_moe(r)
  local c = common(r)
  qwen_window(r, c)
  return qwen_moe(r, c, function(out) return attention(c, out, { bias = true }) end, true)
end

function families.qwen3_moe(r)
  local c = common(r, { heads = { head_dim = 128 } })
  local bias = r:bool("attention_bias")
  qwen_window(r, c)
  return qwen_moe(r, c, function(out)
    head_norms(c, out)
    return attention(c, out, { bias = bias, o_bias = bias })
  end)
end

function families.gpt_oss(r)
  local c = common(r, { context = 131072, heads = { head_dim = 64 } })
  c.n_expert = r:int("num_local_experts", 1, 65536)
  local used = r.get("num_experts_per_tok") ~= nil and "num_experts_per_tok" or "experts_per_token"
  c.n_expert_used, c.expert_ffn = r:int(used, 1, c.n_expert, 4), c.ffn
  local window = r:int("sliding_window", 1, limits.context, 128)
  c.window = sliding_list(r, c, window) or function(i) return i % 2 == 0 and window or nil end
  local more = { n = c.n_expert, used = c.n_expert_used / c.n_expert, bias = true }
  c.layer = function()
    local out = attention(c, { vector("attn", "self_attn.sinks", c.n_head) }, { bias = true, o_bias = true })
    out[#out + 1] = matrix("rep", "mlp.router", c.n_expert, c.hidden, { bias = true })
    out[#out + 1] = matrix("expert", "mlp.experts.gate_up_proj", 2 * c.expert_ffn, c.hidden, more)
    out[#out + 1] = matrix("expert", "mlp.experts.down_proj", c.hidden, c.expert_ffn, more)
    norms(c, out)
    return out
  end
  return c
end

-- Attention over a compressed KV (MLA): the down-projections and the cache are on every rank.
local function mla(r, c)
  local nope, rope = r:int("qk_nope_head_dim", 1, limits.head_dim), r:int("qk_rope_head_dim", 1, limits.head_dim)
  local value, rank = r:int("v_head_dim", 1, limits.head_dim), r:int("kv_lora_rank", 1, limits.hidden)
  local q_rank = r.get("q_lora_rank") ~= nil and r:int("q_lora_rank", 1, limits.hidden) or nil
  local bias = r:bool("attention_bias")
  c.kv_elements, c.kv_whole = rank + rope, true
  c.pos_flops = 2 * c.n_head * (2 * rank + rope)
  return function(out)
    local q = c.n_head * (nope + rope)
    if q_rank then
      out[#out + 1] = matrix("rep", "self_attn.q_a_proj", q_rank, c.hidden, { bias = bias })
      out[#out + 1] = vector("rep", "self_attn.q_a_layernorm", q_rank)
      out[#out + 1] = matrix("attn", "self_attn.q_b_proj", q, q_rank)
    else
      out[#out + 1] = matrix("attn", "self_attn.q_proj", q, c.hidden)
    end
    out[#out + 1] = matrix("rep", "self_attn.kv_a_proj_with_mqa", rank + rope, c.hidden, { bias = bias })
    out[#out + 1] = vector("rep", "self_attn.kv_a_layernorm", rank)
    out[#out + 1] = matrix("attn", "self_attn.kv_b_proj", c.n_head * (nope + value), rank)
    out[#out + 1] = matrix("attn", "self_attn.o_proj", c.hidden, c.n_head * value, { bias = bias })
    return out
  end
end

local function deepseek(r, has_correction)
  local c = common(r, { heads = { head_dim = 1 } })
  c.head_dim = r:int("qk_nope_head_dim", 1, limits.head_dim) + r:int("qk_rope_head_dim", 1, limits.head_dim)
  local attend = mla(r, c)
  if r.get("n_routed_experts") ~= nil then
    read_experts(r, c, "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size")
  end
  local first, freq = r:int("first_k_dense_replace", 0, limits.layers, 0), r:int("moe_layer_freq", 1, limits.layers, 1)
  local shared = r.get("n_shared_experts") ~= nil and r:int("n_shared_experts", 0, 1024) or 0
  c.layer = function(i)
    local out = attend({})
    if c.n_expert > 0 and i >= first and i % freq == 0 then
      out[#out + 1] = matrix("rep", "mlp.gate", c.n_expert, c.hidden, { plain = true })
      if has_correction then out[#out + 1] = vector("rep", "mlp.gate.e_score_correction_bias", c.n_expert, { f32 = true }) end
      local e = "mlp.experts.0."
      experts(c, out, { e .. "gate_proj", e .. "up_proj", e .. "down_proj" })
      if shared > 0 then gated(c, out, "mlp.shared_experts.", shared * c.expert_ffn) end
    else
      gated(c, out, "mlp.", c.ffn)
    end
    norms(c, out)
    return out
  end
  return c
end

function families.deepseek_v2(r) return deepseek(r, false) end
function families.deepseek_v3(r) return deepseek(r, true) end

local by_architecture = {
  LlamaForCausalLM = "llama", MistralForCausalLM = "mistral", Qwen2ForCausalLM = "qwen2", Qwen3ForCausalLM = "qwen3",
  Phi3ForCausalLM = "phi3", Gemma3ForCausalLM = "gemma3", Gemma3ForConditionalGeneration = "gemma3", OPTForCausalLM = "opt",
  GPT2LMHeadModel = "gpt2", MixtralForCausalLM = "mixtral", Qwen2MoeForCausalLM = "qwen2_moe", Qwen3MoeForCausalLM = "qwen3_moe",
  GptOssForCausalLM = "gpt_oss", DeepseekV2ForCausalLM = "deepseek_v2", DeepseekV3ForCausalLM = "deepseek_v3",
}
local by_type = {
  llama = "llama", mistral = "mistral", qwen2 = "qwen2", qwen3 = "qwen3", phi3 = "phi3", gemma3 = "gemma3", gemma3_text = "gemma3",
  opt = "opt", gpt2 = "gpt2", mixtral = "mixtral", qwen2_moe = "qwen2_moe", qwen3_moe = "qwen3_moe", gpt_oss = "gpt_oss",
  deepseek_v2 = "deepseek_v2", deepseek_v3 = "deepseek_v3",
}

--- List the architectures whose memory can be worked out, sorted.
---@return string[]
function M.names()
  local out = {}
  for name in pairs(by_architecture) do out[#out + 1] = name end
  table.sort(out)
  return out
end

local function family(r)
  local list = r:table("architectures")
  local name = list and list[1]
  local known = name ~= nil and by_architecture[name] or name == nil and by_type[r:str("model_type") or ""]
  if known then return known end
  local key = name ~= nil and "architectures" or "model_type"
  r:unsupported(key, ("names %s, whose memory is not known here"):format(tostring(name or r:str("model_type"))),
    "known: " .. table.concat(M.names(), ", "))
end

--- Read the facts of a model, or throw.
---@param r tpl.config.Reader    of config.json
---@return tpl.shape.Facts
function M.read(r)
  local arch = family(r)
  local inner = r
  if r.get("text_config") ~= nil then inner = r:inside("text_config", r:object("text_config")) end
  local c = families[arch](inner)
  c.arch = arch
  c.context = floor(c.context)
  return c
end

return M
