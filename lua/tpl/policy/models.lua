-- SPDX-License-Identifier: Apache-2.0
--- Imagine a few models for `tpl test-policy`: from one that fits any card to one that needs a whole host, dense and mixture of experts.
-- Sizes are round numbers near what people serve; no real model is meant.
local shape = require("tpl.shape")

local M = {}

local function llama(hidden, layers, heads, kv, ffn, vocab, more)
  local config = { architectures = { "LlamaForCausalLM" }, hidden_size = hidden, num_hidden_layers = layers, num_attention_heads = heads,
    num_key_value_heads = kv, head_dim = hidden / heads, intermediate_size = ffn, vocab_size = vocab, max_position_embeddings = 32768,
    torch_dtype = "bfloat16", tie_word_embeddings = false }
  for k, v in pairs(more or {}) do config[k] = v end
  return config
end

-- Smallest first: shrinking tries them in this order. Weights in bfloat16: 0.1, 2, 16, 28, 67, 94, 141 GB.
local configs = {
  { "tiny", llama(1024, 4, 8, 4, 2816, 8192) },
  { "1b", llama(2048, 16, 32, 8, 5632, 32768) },
  { "8b", llama(4096, 32, 32, 8, 14336, 128256) },
  { "14b", llama(5120, 40, 40, 8, 13824, 131072) },
  { "34b", llama(8192, 40, 64, 8, 28672, 32000) },
  { "8x7b", llama(4096, 32, 32, 8, 14336, 32000,
    { architectures = { "MixtralForCausalLM" }, num_local_experts = 8, num_experts_per_tok = 2 }) },
  { "70b", llama(8192, 80, 64, 8, 28672, 128256) },
}

--- Names, smallest first.
M.names = {}
for i, c in ipairs(configs) do M.names[i] = c[1] end

local made = {}

--- Give the Shape of an imagined model; always the same table, which nobody changes.
---@param name string
---@return tpl.Shape
function M.get(name)
  if not made[name] then
    for _, c in ipairs(configs) do
      if c[1] == name then
        made[name] = assert(shape.of(c[2]))
        made[name].name, made[name].has_definition = name, name ~= "8x7b"
      end
    end
  end
  return made[name]
end

return M
