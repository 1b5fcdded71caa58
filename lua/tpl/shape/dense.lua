-- SPDX-License-Identifier: Apache-2.0
--- List the weights of the dense families. Names and dims: facts/models.md section 1. Each is a function from a checked
--- reader of config.json to a tpl.shape.Facts. Pure.
local blocks = require "tpl.shape.blocks"
local parts = require "tpl.shape.parts"
local reader = require "tpl.config.reader"

local families = {}

local matrix, vector, limits = parts.matrix, parts.vector, reader.limits
local common, attention, norms, gated = blocks.common, blocks.attention, blocks.norms, blocks.gated
local head_norms, sliding_list, heads = blocks.head_norms, blocks.sliding_list, blocks.heads

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

families.qwen_window = qwen_window
return families
