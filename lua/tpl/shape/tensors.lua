-- SPDX-License-Identifier: Apache-2.0
--- Put the exact bytes of a checkpoint's tensors into a shape that was made from config.json. Knows the names of
--- Hugging Face checkpoints and of GGUF files. Pure.
local storage = require "tpl.plan.storage"

local M = {}

-- Tried in this order; the rest of a name, behind its layer.
local rules = {
  { "experts%.", "expert" }, { "_exps", "expert" }, -- shared experts are asked for before
  { "k_proj", "kv_proj" }, { "v_proj", "kv_proj" }, { "attn_k%.", "kv_proj" }, { "attn_v%.", "kv_proj" },
  { "norm", "norm" }, { "layernorm", "norm" }, { "ln_%d", "norm" },
  { "q_a_proj", "norm" }, { "kv_a_proj", "norm" }, { "attn_q_a", "norm" }, { "attn_kv_a", "norm" },
  { "router", "norm" }, { "mlp%.gate%.", "norm" }, { "block_sparse_moe%.gate%.", "norm" }, { "shared_expert_gate", "norm" },
  { "ffn_gate_inp", "norm" }, { "exp_probs", "norm" },
  { "attn", "attn" }, { "mlp", "mlp" }, { "ffn", "mlp" }, { "fc%d", "mlp" }, { "feed_forward", "mlp" },
}

local function part_of(rest)
  if rest:find("shared_expert[s]?%.") or rest:find("shexp") then return "mlp" end
  for _, rule in ipairs(rules) do
    if rest:find(rule[1]) then return rule[2] end
  end
  return "norm"
end

local function layer_of(name)
  local i, rest = name:match("layers%.(%d+)%.(.*)$")
  if not i then i, rest = name:match("^blk%.(%d+)%.(.*)$") end
  if not i then i, rest = name:match("%f[%w]h%.(%d+)%.(.*)$") end
  return i and tonumber(i) + 1, rest
end

local function outside_of(name)
  if name:find("embed_tokens") or name:find("token_embd") or name:find("wte") then return "embed_bytes" end
  if name:find("lm_head") or name:find("^output%.") then return "head_bytes" end
  return "norm_bytes"
end

local words = { f8_e4m3 = "fp8" }

-- The type that most bytes of a list are in; ties by name.
local function largest(by_type)
  local best
  for name, bytes in pairs(by_type) do
    if not best or bytes > by_type[best] or bytes == by_type[best] and name < best then best = name end
  end
  return best
end

local function count(by_part, part, t)
  local word = t.dtype and (words[t.dtype:lower()] or t.dtype:lower())
  if not word then return end
  by_part[part] = by_part[part] or {}
  by_part[part][word] = (by_part[part][word] or 0) + t.bytes
end

local names = { "attn_bytes", "kv_proj_bytes", "mlp_bytes", "expert_bytes", "norm_bytes" }

local function group_by_layer(s, tensors)
  local layers, out, dtypes, all = {}, { embed_bytes = 0, head_bytes = 0, norm_bytes = 0 }, {}, 0
  for i = 1, s.n_layer do layers[i] = { attn_bytes = 0, kv_proj_bytes = 0, mlp_bytes = 0, expert_bytes = 0, norm_bytes = 0 } end
  for _, t in ipairs(tensors) do
    local i, rest = layer_of(t.name)
    if i and layers[i] then
      local part = part_of(rest) .. "_bytes"
      count(dtypes, (part:gsub("kv_proj", "attn")), t)
      layers[i][part] = layers[i][part] + t.bytes
      if part == "kv_proj_bytes" then layers[i].attn_bytes = layers[i].attn_bytes + t.bytes end
      all = all + t.bytes
    elseif not i then
      local key = outside_of(t.name)
      if not (key == "head_bytes" and s.tied) then
        out[key], all = out[key] + t.bytes, all + t.bytes
      end
    end
    count(dtypes, "all", t)
  end
  return layers, out, dtypes, all
end

--- Replace the bytes of a shape by those of a list of tensors. Layers beyond the last are left out, as when loading.
---@param s tpl.Shape
---@param tensors {name: string, dtype: string, dims: integer[], bytes: number}[]
function M.apply(s, tensors)
  local layers, out, dtypes, all = group_by_layer(s, tensors)
  local seen, seen_layers = {}, {}
  for i, exact in ipairs(layers) do
    local old = s.layers[i]
    local key = { tostring(old) }
    for _, name in ipairs(names) do key[#key + 1] = exact[name] end
    key = table.concat(key, ";")
    if not seen[key] then
      local layer = {}
      for k, v in pairs(old) do layer[k] = v end
      layer.weight_bytes, layer.active_bytes = 0, 0
      for _, name in ipairs(names) do
        layer[name] = exact[name]
        if name ~= "kv_proj_bytes" then
          layer.weight_bytes = layer.weight_bytes + exact[name]
          local used = name == "expert_bytes" and s.n_expert > 0 and s.n_expert_used / s.n_expert or 1
          layer.active_bytes = layer.active_bytes + exact[name] * used
        end
      end
      seen[key], seen_layers[layer] = layer, true
    end
    s.layers[i] = seen[key]
  end
  s.embed_bytes, s.norm_bytes = out.embed_bytes, out.norm_bytes
  s.head_bytes = s.tied and out.embed_bytes or out.head_bytes
  s.weight_bytes, s.exact = all, true
  -- What is quantised as config.json says is stored in integers, whose type tells nothing.
  if s.weight_dtype == s.dtype then
    s.weight_dtype = dtypes.all and largest(dtypes.all) or s.weight_dtype
    for layer in pairs(seen_layers) do
      for _, part in ipairs { "attn", "mlp", "expert" } do
        local by_type = dtypes[part .. "_bytes"]
        if layer[part .. "_dtype"] and by_type then layer[part .. "_dtype"] = largest(by_type) end
      end
    end
    local ffn, expert = dtypes.mlp_bytes, dtypes.expert_bytes
    if ffn then s.units.ffn = math.ceil(s.ffn / storage.elements(largest(ffn))) end
    if expert and s.expert_ffn then s.units.expert = math.ceil(s.expert_ffn / storage.elements(largest(expert))) end
  end
end

return M
