-- SPDX-License-Identifier: Apache-2.0
--- Give what the model families share: sizes that most config.json files state alike, and the usual attention and MLP as
--- lists of modules. Pure.
local parts = require "tpl.shape.parts"
local reader = require "tpl.config.reader"

local M = {}

local matrix, vector, limits = parts.matrix, parts.vector, reader.limits

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

--- Read the attention heads of a configuration into its facts.
function M.heads(r, c, defaults)
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

--- Read what most families state alike.
---@param r tpl.config.Reader
---@param defaults? table   of the family's configuration class
---@return tpl.shape.Facts
function M.common(r, defaults)
  local d = defaults or {}
  local c = { prefix = "model.layers.%d.", n_expert = 0, n_expert_used = 0 }
  c.hidden = r:int("hidden_size", 1, limits.hidden, d.hidden)
  c.n_layer = r:int("num_hidden_layers", 1, limits.layers, d.n_layer)
  c.vocab = r:int("vocab_size", 1, limits.vocab, d.vocab)
  c.context = r:int("max_position_embeddings", 1, limits.context, d.context or 2048)
  c.ffn = r:int("intermediate_size", 1, limits.ffn, d.ffn)
  c.tied = r:bool("tie_word_embeddings", d.tied)
  M.heads(r, c, d.heads)
  c.kv_elements = 2 * c.n_kv * c.head_dim
  c.pos_flops = 4 * c.n_head * c.head_dim
  c.embed = { matrix("embed", "model.embed_tokens", c.vocab, c.hidden, { plain = true }) }
  c.head = { vector("rep", "model.norm", c.hidden) }
  if not c.tied then c.head[2] = matrix("head", "lm_head", c.vocab, c.hidden) end
  c.window = function() return nil end
  return c
end

--- Append q, k, v and o.
function M.attention(c, out, more)
  more = more or {}
  local q, kv = c.n_head * c.head_dim, c.n_kv * c.head_dim
  local names = more.names or { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj" }
  out[#out + 1] = matrix("attn", names[1], q, c.hidden, { bias = more.bias })
  out[#out + 1] = matrix("kv", names[2], kv, c.hidden, { bias = more.bias })
  out[#out + 1] = matrix("kv", names[3], kv, c.hidden, { bias = more.bias })
  out[#out + 1] = matrix("attn", names[4], c.hidden, q, { bias = more.o_bias })
  return out
end

--- Append n vectors of hidden size.
function M.norms(c, out, n)
  for _ = 1, n or 2 do out[#out + 1] = vector("rep", "layernorm", c.hidden) end
end

--- Append the norms over each head's query and key.
function M.head_norms(c, out)
  out[#out + 1] = vector("rep", "self_attn.q_norm", c.head_dim)
  out[#out + 1] = vector("rep", "self_attn.k_norm", c.head_dim)
end

--- Append gate, up and down of an MLP.
function M.gated(c, out, prefix, ffn, more)
  out[#out + 1] = matrix("mlp", prefix .. "gate_proj", ffn, c.hidden, more)
  out[#out + 1] = matrix("mlp", prefix .. "up_proj", ffn, c.hidden, more)
  out[#out + 1] = matrix("mlp", prefix .. "down_proj", c.hidden, ffn, more)
end

--- Append gate, up and down of every expert; names as of expert 0.
function M.experts(c, out, names)
  local more = { n = c.n_expert, used = c.n_expert_used / c.n_expert }
  out[#out + 1] = matrix("expert", names[1], c.expert_ffn, c.hidden, more)
  out[#out + 1] = matrix("expert", names[2], c.expert_ffn, c.hidden, more)
  out[#out + 1] = matrix("expert", names[3], c.hidden, c.expert_ffn, more)
end

--- Read how many experts there are, how many a token uses and how wide they are.
function M.read_experts(r, c, n_key, used_key, ffn_key, least)
  c.n_expert = r:int(n_key, least or 0, 65536)
  if c.n_expert > 0 then
    c.n_expert_used = r:int(used_key, 1, c.n_expert)
    c.expert_ffn = ffn_key and r:int(ffn_key, 1, limits.ffn) or c.ffn
  end
end

--- Give the windows of a list of layer types, which wins over any pattern; nil where the file has none.
function M.sliding_list(r, c, window)
  local list = r:table("layer_types")
  if not list then return nil end
  if #list < c.n_layer then r:bad("layer_types", ("has %d entries for %d layers"):format(#list, c.n_layer)) end
  return function(i) return list[i + 1] ~= "full_attention" and window or nil end
end

return M
