-- SPDX-License-Identifier: Apache-2.0
--- List the weights of the families with experts. Names and dims: facts/models.md section 1. Each is a function from a
--- checked reader of config.json to a tpl.shape.Facts. Pure.
local blocks = require "tpl.shape.blocks"
local dense = require "tpl.shape.dense"
local parts = require "tpl.shape.parts"
local reader = require "tpl.config.reader"

local families = {}

local matrix, vector, limits = parts.matrix, parts.vector, reader.limits
local common, attention, norms, gated = blocks.common, blocks.attention, blocks.norms, blocks.gated
local head_norms, sliding_list, experts, read_experts = blocks.head_norms, blocks.sliding_list, blocks.experts, blocks.read_experts

function families.mixtral(r)
  local c = dense.mistral(r)
  read_experts(r, c, "num_local_experts", "num_experts_per_tok", nil, 1)
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
  local step, is_dense = r:int("decoder_sparse_step", 1, limits.layers, 1), {}
  for _, i in ipairs(r:table("mlp_only_layers") or {}) do is_dense[i] = true end
  local shared = has_shared and r.get("shared_expert_intermediate_size") ~= nil
    and r:int("shared_expert_intermediate_size", 0, limits.ffn) or 0
  c.layer = function(i)
    local out = attend({})
    if c.n_expert > 0 and not is_dense[i] and (i + 1) % step == 0 then
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
  dense.qwen_window(r, c)
  return qwen_moe(r, c, function(out) return attention(c, out, { bias = true }) end, true)
end

function families.qwen3_moe(r)
  local c = common(r, { heads = { head_dim = 128 } })
  local bias = r:bool("attention_bias")
  dense.qwen_window(r, c)
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

-- Every step-th layer has experts, and a shared one beside them; most layers see chunks of the past only.
function families.llama4(r)
  local c = common(r, { hidden = 5120, n_layer = 48, vocab = 202048, context = 131072, ffn = 8192,
    heads = { n_head = 40, n_kv = 8, head_dim = 128 } })
  local dense_ffn, step = r:int("intermediate_size_mlp", 1, limits.ffn, 16384), r:int("interleave_moe_layer_step", 1, limits.layers, 1)
  c.n_expert, c.expert_ffn = r:int("num_local_experts", 1, 65536, 16), c.ffn
  c.n_expert_used = r:int("num_experts_per_tok", 1, c.n_expert, 1)
  local bias, chunk = r:bool("attention_bias"), r:int("attention_chunk_size", 1, limits.context, 8192)
  c.window = sliding_list(r, c, chunk) or function(i) return (i + 1) % 4 ~= 0 and chunk or nil end
  c.layer = function(i)
    local out, mlp = attention(c, {}, { bias = bias, o_bias = bias }), "feed_forward."
    if (i + 1) % step == 0 then
      local more = { n = c.n_expert, used = c.n_expert_used / c.n_expert }
      out[#out + 1] = matrix("rep", mlp .. "router", c.n_expert, c.hidden)
      out[#out + 1] = matrix("expert", mlp .. "experts.gate_up_proj", 2 * c.expert_ffn, c.hidden, more)
      out[#out + 1] = matrix("expert", mlp .. "experts.down_proj", c.hidden, c.expert_ffn, more)
      gated(c, out, mlp .. "shared_expert.", c.ffn)
    else
      gated(c, out, mlp, dense_ffn)
    end
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

return families
