-- SPDX-License-Identifier: Apache-2.0
--- Say what a policy and the cost model need to know of a model: bytes, operations and KV bytes per layer and by what
--- cuts them, from config.json alone or exact with the list of tensors. Works for families that this version cannot
--- run, so that their memory can be planned. Pure.
local err = require "tpl.err"
local families = require "tpl.shape.families"
local parts = require "tpl.shape.parts"
local quant = require "tpl.shape.quant"
local reader = require "tpl.config.reader"
local tensors_of = require "tpl.shape.tensors"

local M = {}

---@class tpl.shape.Layer
---@field weight_bytes number    all of the layer
---@field attn_bytes number      cut by heads; with the K and V projections
---@field kv_proj_bytes number   of those: K and V projections, cut by KV heads
---@field mlp_bytes number       dense and shared MLP, cut along their columns
---@field expert_bytes number    routed experts, all of them
---@field norm_bytes number      on every rank: norms, router, down-projections of MLA
---@field active_bytes number    read for one token
---@field flops number           per token, 2 per active parameter; attn_flops, kv_proj_flops, mlp_flops, expert_flops, norm_flops are its parts
---@field pos_flops number       per token and cached position
---@field kv_bytes number        per token, with elements of 2 bytes
---@field window integer?        positions that stay in the cache; nil: all
---@field n_expert integer       0: dense
---@field params number
---@field active_params number

---@class tpl.Shape
---@field arch string
---@field name string?
---@field n_layer integer
---@field hidden integer
---@field n_head integer
---@field n_kv integer
---@field head_dim integer
---@field vocab integer
---@field context integer
---@field n_expert integer
---@field n_expert_used integer
---@field is_moe boolean
---@field has_definition boolean?   set by the caller
---@field weight_bytes number       whole model
---@field params number
---@field active_params number      embedding and head included
---@field layers tpl.shape.Layer[]  1-based; equal layers are one table
---@field embed_bytes number
---@field head_bytes number         of the head's own copy; the table's when tied
---@field norm_bytes number         final norm and other small tensors outside layers
---@field tied boolean
---@field head_flops number         per output row
---@field weight_dtype string       that most bytes are in
---@field units {kvh: integer, ffn: integer, expert: integer, heads: integer}
---@field kv_whole boolean          every rank keeps the whole cache (MLA)
---@field exact boolean             made from a list of tensors

local fields = { attn = "attn", kv = "kv_proj", mlp = "mlp", expert = "expert", rep = "norm" }

local function add(t, key, n) t[key] = (t[key] or 0) + n end

-- Bytes of one layer from its modules; `formats` collects bytes by type.
local function layer_of(c, i, format_of, plain, formats)
  local out = { n_expert = 0, weight_bytes = 0, active_bytes = 0, params = 0, active_params = 0, flops = 0,
    attn_bytes = 0, kv_proj_bytes = 0, mlp_bytes = 0, expert_bytes = 0, norm_bytes = 0,
    attn_flops = 0, kv_proj_flops = 0, mlp_flops = 0, expert_flops = 0, norm_flops = 0 }
  local units = { ffn = 1, expert = 1 }
  for _, m in ipairs(c.layer(i)) do
    local format = format_of(m, c.prefix:format(i) .. m.name)
    local bytes, n, key = quant.bytes(m, format, plain), parts.elements(m), fields[m.part]
    add(out, key .. "_bytes", bytes)
    if key == "kv_proj" then add(out, "attn_bytes", bytes) end
    add(out, "weight_bytes", bytes)
    add(out, "active_bytes", bytes * m.used)
    add(out, "params", n)
    add(out, "active_params", n * m.used)
    if m.is_matrix then
      add(out, key .. "_flops", 2 * n * m.used)
      add(formats, format.dtype, bytes)
      if m.part == "expert" then out.n_expert = m.n end
      local unit = m.part == "mlp" and "ffn" or m.part == "expert" and "expert" or nil
      if unit then units[unit] = math.max(units[unit], format.unit) end
      out[key .. "_dtype"] = format.dtype
    end
  end
  for _, key in pairs(fields) do add(out, "flops", out[key .. "_flops"]) end
  out.attn_flops = out.attn_flops + out.kv_proj_flops
  out.kv_bytes, out.window, out.pos_flops = 2 * c.kv_elements, c.window(i), c.pos_flops
  return out, units
end

local function key_of(layer)
  local keys, out = {}, {}
  for k in pairs(layer) do keys[#keys + 1] = k end
  table.sort(keys)
  for i, k in ipairs(keys) do out[i] = k .. "=" .. tostring(layer[k]) end
  return table.concat(out, ";")
end

local function largest(formats)
  local best
  for name, bytes in pairs(formats) do
    if not best or bytes > formats[best] or bytes == formats[best] and name < best then best = name end
  end
  return best
end

local dtypes = { bfloat16 = "bf16", float16 = "f16", float32 = "f32", bf16 = "bf16", f16 = "f16", f32 = "f32" }

-- What stands outside the layers.
local function outside(s, c, format_of, plain, formats)
  s.embed_bytes, s.head_bytes, s.norm_bytes, s.head_flops = 0, 0, 0, 0
  for _, list in ipairs { c.embed, c.head } do
    for _, m in ipairs(list) do
      local format = format_of(m, m.name)
      local bytes, n = quant.bytes(m, format, plain), parts.elements(m)
      local key = m.part == "embed" and "embed_bytes" or m.part == "head" and "head_bytes" or "norm_bytes"
      s[key], s.params = s[key] + bytes, s.params + n
      s.active_params = s.active_params + n
      if m.is_matrix then add(formats, format.dtype, bytes) end
      if m.part == "head" then s.head_flops, s.head_dtype = 2 * n, format.dtype end
    end
  end
  s.weight_bytes = s.weight_bytes + s.embed_bytes + s.head_bytes + s.norm_bytes
  if c.tied then s.head_bytes, s.head_flops = s.embed_bytes, 2 * c.vocab * c.hidden end
end

local function from_config(r)
  local c = families.read(r)
  local inner = r.get("text_config") ~= nil and r:inside("text_config", r:object("text_config")) or r
  local word = inner:str("dtype") or inner:str("torch_dtype") or r:str("dtype") or r:str("torch_dtype")
  local plain = dtypes[word or "bfloat16"] or "bf16"
  local format_of, formats = quant.read(r, plain), {}
  local s = { arch = c.arch, n_layer = c.n_layer, hidden = c.hidden, n_head = c.n_head, n_kv = c.n_kv, head_dim = c.head_dim,
    vocab = c.vocab, context = c.context, n_expert = c.n_expert, n_expert_used = c.n_expert_used, is_moe = c.n_expert > 0,
    tied = c.tied, kv_whole = c.kv_whole or false, ffn = c.ffn, expert_ffn = c.expert_ffn, layers = {}, params = 0, active_params = 0,
    weight_bytes = 0, exact = false }
  local seen, ffn_unit, expert_unit = {}, 1, 1
  for i = 0, c.n_layer - 1 do
    local layer, units = layer_of(c, i, format_of, plain, formats)
    local key = key_of(layer)
    seen[key] = seen[key] or layer
    s.layers[i + 1] = seen[key]
    ffn_unit, expert_unit = math.max(ffn_unit, units.ffn), math.max(expert_unit, units.expert)
    s.weight_bytes, s.params = s.weight_bytes + layer.weight_bytes, s.params + layer.params
    s.active_params = s.active_params + layer.active_params
  end
  outside(s, c, format_of, plain, formats)
  s.weight_dtype, s.dtype = largest(formats), plain
  s.units = { kvh = c.kv_whole and c.n_head or c.n_kv, heads = c.n_head, ffn = math.ceil(c.ffn / ffn_unit),
    expert = c.expert_ffn and math.ceil(c.expert_ffn / expert_unit) or 0 }
  return s
end

-- The normalised configuration of tpl.config has the same facts under other names.
local function from_normalised(c)
  return { architectures = { "LlamaForCausalLM" }, vocab_size = c.vocab, hidden_size = c.hidden, intermediate_size = c.ffn,
    num_hidden_layers = c.n_layer, num_attention_heads = c.n_head, num_key_value_heads = c.n_kv, head_dim = c.head_dim,
    max_position_embeddings = c.context, attention_bias = c.attention_bias, mlp_bias = c.mlp_bias, tie_word_embeddings = c.tied,
    torch_dtype = c.dtype }
end

--- Give the shape of a model.
---@param config table      decoded config.json, or what tpl.config made of one
---@param tensors? {name: string, dtype: string, dims: integer[], bytes: number}[]   makes the bytes exact
---@param where? string     of the config, for errors
---@return tpl.Shape?
---@return tpl.Err?         code "unsupported" or "format"
function M.of(config, tensors, where)
  return err.try(function()
    if type(config) ~= "table" then err.throw { code = "format", where = where, message = "holds no model configuration" } end
    local raw = config.n_layer and config.arch and from_normalised(config) or config
    local r = reader.new(function(key) return reader.member(raw, key) end, function() return where or "config.json" end)
    local s = from_config(r)
    if tensors then tensors_of.apply(s, tensors) end
    return s
  end)
end

return M
