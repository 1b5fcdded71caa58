-- SPDX-License-Identifier: Apache-2.0
--- Read the architecture keys of a GGUF file into the same normalised configuration as config.json gives (tpl.config.hf).
-- Pure: takes functions that answer for keys and tensors, gives the configuration or throws a structured error.
local reader = require("tpl.config.reader")
local rope = require("tpl.config.rope")

local M = {}

M.supported = { "llama" }

local limits = reader.limits

-- general.file_type, the numbers of llama.cpp's llama_ftype; only for display, tensors carry their own type.
local file_types = {
  [0] = "f32", [1] = "f16", [2] = "q4_0", [3] = "q4_1", [7] = "q8_0", [8] = "q5_0", [9] = "q5_1", [10] = "q2_k", [11] = "q3_k",
  [12] = "q3_k", [13] = "q3_k", [14] = "q4_k", [15] = "q4_k", [16] = "q5_k", [17] = "q5_k", [18] = "q6_k", [32] = "bf16",
}

-- Pieces that end a turn in instruct models whose eos key names only the end of the text (facts/models.md 4.3).
local end_of_turn = {
  ["<|eot_id|>"] = true, ["<|im_end|>"] = true, ["<|end|>"] = true, ["<end_of_turn>"] = true,
  ["<|return|>"] = true, ["<|call|>"] = true, ["<|eom_id|>"] = true,
}

--- Give one integer of a key that may be a list with a value for each layer; unequal layers are not supported.
local function uniform(r, key, min, max, default)
  local value = r.get(key)
  if type(value) ~= "table" then return r:int(key, min, max, default) end
  local first = r:as_int(key, value[1], min, max)
  for i = 2, #value do
    if value[i] ~= first then
      r:unsupported(key, string.format("differs by layer (layer 0: %s, layer %d: %s), which is not supported",
        tostring(first), i - 1, tostring(value[i])))
    end
  end
  return first
end

--- The embedding decides the size of the vocabulary; what else speaks of it must agree.
local function read_vocab(r, prefix, source, hidden)
  local key = prefix .. "vocab_size"
  local stated = r.get(key) ~= nil and r:int(key, 1, limits.vocab) or nil
  local tokens = source.n_tokens()
  local dims = source.dims("token_embd.weight")
  if not dims then
    if not stated and not tokens then r:bad(key, "is missing, and the file has neither tokens nor token_embd.weight") end
    return stated or r:as_int("tokenizer.ggml.tokens", tokens, 1, limits.vocab)
  end
  local rows = r:as_int("token_embd.weight", dims[1] or 1, 1, limits.vocab)
  if #dims ~= 2 or dims[2] ~= hidden then
    r:bad(prefix .. "embedding_length", string.format("is %d, token_embd.weight is [%s]", hidden, table.concat(dims, ", ")))
  end
  if stated and stated ~= rows then
    r:bad(key, string.format("is %d, token_embd.weight has %d rows", stated, rows))
  end
  if tokens and tokens > rows then
    r:bad("tokenizer.ggml.tokens", string.format("holds %d tokens, token_embd.weight has %d rows", tokens, rows))
  end
  return rows
end

local function read_heads(r, prefix, hidden)
  local head_key, kv_key = prefix .. "attention.head_count", prefix .. "attention.head_count_kv"
  local n_head = uniform(r, head_key, 1, limits.heads)
  local n_kv = uniform(r, kv_key, 1, limits.heads, n_head)
  if n_head % n_kv ~= 0 then
    r:bad(kv_key, string.format("is %d, which does not divide head_count %d", n_kv, n_head))
  end
  local size_key = prefix .. "attention.key_length"
  if r.get(size_key) == nil and hidden % n_head ~= 0 then
    r:bad(head_key, string.format("is %d, which does not divide embedding_length %d", n_head, hidden))
  end
  local head_dim = r:int(size_key, 1, limits.head_dim, hidden / n_head)
  local value_dim = r:int(prefix .. "attention.value_length", 1, limits.head_dim, head_dim)
  if value_dim ~= head_dim then
    r:unsupported(prefix .. "attention.value_length", string.format("is %d beside key_length %d, which is not supported", value_dim, head_dim))
  end
  return n_head, n_kv, head_dim
end

--- Give the linear factor that the keys state, 1 if none.
local function linear_factor(r, prefix)
  local kind = r:str(prefix .. "rope.scaling.type")
  if kind == "none" then return 1, "default" end
  if kind ~= nil and kind ~= "linear" then
    r:unsupported(prefix .. "rope.scaling.type", string.format("is %q, which is not supported", kind),
      "supported: none, linear, and a rope_freqs.weight tensor")
  end
  local key = prefix .. "rope.scaling.factor"
  if r.get(key) == nil then key = prefix .. "rope.scale_linear" end
  local factor = r:num(key, 0, 1e6, 0)
  if factor == 0 then return 1, "default" end -- as llama.cpp reads it
  return factor, factor == 1 and "default" or "linear"
end

local function read_divisors(r, source, n)
  local dims = source.dims("rope_freqs.weight")
  if not dims then return nil end
  if #dims ~= 1 or dims[1] ~= n then
    r:bad("rope_freqs.weight", string.format("is [%s], [%d] is needed", table.concat(dims, ", "), n))
  end
  local list = source.floats("rope_freqs.weight")
  for i = 1, n do
    if not (list[i] > 0 and list[i] < 1e9) then
      r:bad("rope_freqs.weight", string.format("holds %g at %d, a positive number is needed", list[i], i - 1))
    end
  end
  return list
end

local function read_rope(r, prefix, source, head_dim)
  local dim = r:int(prefix .. "rope.dimension_count", 2, limits.head_dim, head_dim)
  if dim % 2 ~= 0 or dim > head_dim then
    r:bad(prefix .. "rope.dimension_count", string.format("is %d, an even number up to the head size %d is needed", dim, head_dim))
  end
  local theta = r:num(prefix .. "rope.freq_base", 1, 1e15, 10000)
  local factor, kind = linear_factor(r, prefix)
  local freqs = rope.linear(rope.plain(theta, dim), factor)
  local divisors = read_divisors(r, source, dim / 2)
  if divisors then freqs, kind = rope.divided(freqs, divisors), "divisors" end
  return {
    type = kind, theta = theta, dim = dim, mode = "interleaved", freqs = freqs,
    mscale = r:num(prefix .. "rope.scaling.attn_factor", 1e-6, 1e6, 1),
  }
end

local function read_eos(r, source, vocab)
  local out, seen = {}, {}
  local function take(id)
    if id and not seen[id] then
      out[#out + 1] = id
      seen[id] = true
    end
  end
  for _, name in ipairs { "eos", "eot", "eom" } do
    take(r:ids("tokenizer.ggml." .. name .. "_token_id", vocab)[1])
  end
  for text in pairs(end_of_turn) do
    local id = source.token_id and source.token_id(text)
    if id then take(id) end
  end
  table.sort(out)
  return out
end

--- Normalise the keys of a GGUF file.
---@param get fun(key: string): any          value of a key; lists of numbers as tables
---@param locate fun(key: string): string
---@param source {n_tokens: fun(): integer?, dims: fun(tensor: string): integer[]?, floats: fun(tensor: string): number[],
---               n_tensors: integer, token_id?: fun(text: string): integer?}
---@return tpl.ModelConfig
function M.normalise(get, locate, source)
  local r = reader.new(get, locate)
  local arch = r:str("general.architecture")
  if arch == nil then r:bad("general.architecture", "is missing") end
  if arch ~= "llama" then
    r:unsupported("general.architecture", string.format("is %q, which is not supported", arch),
      "supported: " .. table.concat(M.supported, ", "))
  end
  local prefix = arch .. "."
  if r:int(prefix .. "expert_count", 0, 65536, 0) > 0 then
    r:unsupported(prefix .. "expert_count", "is set: models with experts are not supported in this version")
  end
  if r:int(prefix .. "attention.sliding_window", 0, limits.context, 0) > 0 then
    r:unsupported(prefix .. "attention.sliding_window", "is set: sliding windows are not supported in this version")
  end
  local c = { arch = "llama", names = "gguf", format = "gguf", mlp_bias = false }
  c.hidden = r:int(prefix .. "embedding_length", 1, limits.hidden)
  c.vocab = read_vocab(r, prefix, source, c.hidden)
  c.ffn = uniform(r, prefix .. "feed_forward_length", 1, limits.ffn)
  c.n_layer = r:int(prefix .. "block_count", 1, limits.layers)
  c.n_head, c.n_kv, c.head_dim = read_heads(r, prefix, c.hidden)
  c.context = r:int(prefix .. "context_length", 1, limits.context)
  c.eps = r:num(prefix .. "attention.layer_norm_rms_epsilon", 0, 1)
  c.attention_bias = source.dims("blk.0.attn_q.bias") ~= nil
  c.mlp_bias = source.dims("blk.0.ffn_gate.bias") ~= nil
  c.tied = source.n_tensors > 0 and source.dims("output.weight") == nil
  c.rope = read_rope(r, prefix, source, c.head_dim)
  c.bos = r:ids("tokenizer.ggml.bos_token_id", c.vocab)[1]
  c.eos = read_eos(r, source, c.vocab)
  c.dtype = file_types[r.get("general.file_type")]
  return c
end

return M
