-- SPDX-License-Identifier: Apache-2.0
--- Read a Hugging Face config.json, in the published spelling and in the one transformers 5 writes (`rope_parameters`, `dtype`).
-- Pure: takes decoded JSON, gives the normalised configuration that model definitions and the planner read, or throws a structured error.
local reader = require("tpl.config.reader")
local rope = require("tpl.config.rope")

local M = {}

--- Architectures this version runs; `architectures[0]` of the file, else its `model_type`.
local architectures = { LlamaForCausalLM = "llama" }
local model_types = { llama = "llama" }
M.supported = { "LlamaForCausalLM" }

local limits = reader.limits

--- Name what the file says it is, and refuse what is not in the table.
local function architecture(r)
  local list = r:table("architectures")
  local name = list and list[1]
  if name == nil then
    local model_type = r:str("model_type")
    if model_type == nil then
      r:bad("architectures", "is missing, and so is model_type")
    end
    if not model_types[model_type] then
      r:unsupported("model_type", string.format("is %q, which is not supported", model_type),
        "supported: " .. table.concat(M.supported, ", "))
    end
    return model_types[model_type]
  end
  if type(name) ~= "string" then r:bad("architectures", "must hold a name") end
  if not architectures[name] then
    r:unsupported("architectures", string.format("names %s, which is not supported", name),
      "supported: " .. table.concat(M.supported, ", "))
  end
  return architectures[name]
end

--- Give the object that describes rope, its reader and its type: `rope_parameters` wins over `rope_scaling`.
local function rope_object(r)
  local key = r.get("rope_parameters") ~= nil and "rope_parameters" or "rope_scaling"
  local object = r:object(key)
  if object == nil then return r, "default", "rope_scaling" end
  if reader.member(object, "full_attention") ~= nil then -- keyed by layer type; all layers of a Llama are full
    r = r:inside(key, object)
    key, object = "full_attention", r:object("full_attention")
  end
  local inside = r:inside(key, object)
  return inside, inside:str("rope_type") or inside:str("type") or "default", key
end

local scalings = {}

function scalings.default(freqs) return freqs end

function scalings.linear(freqs, r)
  return rope.linear(freqs, r:num("factor", 1, 1e6))
end

function scalings.llama3(freqs, r, top)
  local s = {
    factor = r:num("factor", 1, 1e6),
    low = r:num("low_freq_factor", 1e-6, 1e6),
    high = r:num("high_freq_factor", 1e-6, 1e6),
  }
  if s.high <= s.low then r:bad("high_freq_factor", string.format("is %g, not above low_freq_factor %g", s.high, s.low)) end
  local holder = r.get("original_max_position_embeddings") == nil
    and top.get("original_max_position_embeddings") ~= nil and top or r
  s.original = holder:int("original_max_position_embeddings", 1, limits.context)
  return rope.llama3(freqs, s)
end

local function read_rope(r, head_dim)
  local inside, kind = rope_object(r)
  if not scalings[kind] then
    inside:unsupported(inside.get("rope_type") and "rope_type" or "type",
      string.format("is %q, which is not supported", kind), "supported: default, linear, llama3")
  end
  local theta_at = inside.get("rope_theta") ~= nil and inside or r
  local theta = theta_at:num("rope_theta", 1, 1e15, 10000)
  local part_at = inside.get("partial_rotary_factor") ~= nil and inside or r
  local part = part_at:num("partial_rotary_factor", 0, 1, 1)
  local dim = math.floor(head_dim * part)
  if dim < 2 or dim % 2 ~= 0 then
    part_at:bad(part == 1 and "head_dim" or "partial_rotary_factor",
      string.format("leaves %d dims to rotate, an even number of at least 2 is needed", dim))
  end
  return {
    type = kind, theta = theta, dim = dim, mode = "half", mscale = 1,
    freqs = scalings[kind](rope.plain(theta, dim), inside, r),
  }
end

--- Give heads, KV heads and the size of a head; they must divide each other where the model needs it.
local function read_heads(r, hidden)
  local n_head = r:int("num_attention_heads", 1, limits.heads)
  local n_kv = r:int("num_key_value_heads", 1, limits.heads, n_head)
  if n_head % n_kv ~= 0 then
    r:bad("num_key_value_heads", string.format("is %d, which does not divide num_attention_heads %d", n_kv, n_head))
  end
  if r.get("head_dim") == nil and hidden % n_head ~= 0 then
    r:bad("num_attention_heads", string.format("is %d, which does not divide hidden_size %d", n_head, hidden),
      "a model with another head size states head_dim")
  end
  return n_head, n_kv, r:int("head_dim", 1, limits.head_dim, hidden / n_head)
end

--- Refuse what would change the numbers and is not computed here.
local function refuse_unsupported(r)
  if r.get("quantization_config") ~= nil then
    local q = r:object("quantization_config")
    r:unsupported("quantization_config", string.format("(quant_method %s) is not supported in this version",
      tostring(reader.member(q, "quant_method"))), "use the unquantised checkpoint or a GGUF file")
  end
  local act = r:str("hidden_act") or "silu"
  if act ~= "silu" and act ~= "swish" then
    r:unsupported("hidden_act", string.format("is %q, which is not supported", act), "supported: silu")
  end
end

--- Give the union of the end ids of config.json and generation_config.json, in that order.
local function read_eos(r, generation, vocab)
  local out, seen = {}, {}
  local function take(list)
    for _, id in ipairs(list) do
      if not seen[id] then out[#out + 1] = id end
      seen[id] = true
    end
  end
  take(r:ids("eos_token_id", vocab))
  for _, id in ipairs(generation and generation:ids("eos_token_id", limits.vocab) or {}) do
    if id < vocab then take { id } end -- one outside can never be chosen
  end
  return out
end

---@class tpl.ModelConfig
---@field arch string            "llama"
---@field vocab integer
---@field hidden integer
---@field n_layer integer
---@field n_head integer
---@field n_kv integer
---@field head_dim integer
---@field ffn integer
---@field eps number
---@field tied boolean           the head uses the embedding table
---@field attention_bias boolean
---@field mlp_bias boolean
---@field context integer        most positions the model was made for
---@field rope {type: string, theta: number, dim: integer, mode: "half"|"interleaved", freqs: number[], mscale: number}
---@field bos? integer
---@field eos integer[]          may be empty
---@field names "hf"|"gguf"      how its tensors are called
---@field dtype? string          what the file says its weights are; each tensor carries its own
---@field format "safetensors"|"gguf"

--- Normalise a config.json.
---@param get fun(key: string): any         top-level members, null as nil
---@param locate fun(key: string): string
---@param more? {generation?: tpl.config.Reader, has?: fun(tensor: string): boolean}   `has`: nil when there are no weights to ask
---@return tpl.ModelConfig
function M.normalise(get, locate, more)
  more = more or {}
  local r = reader.new(get, locate)
  local arch = architecture(r)
  refuse_unsupported(r)
  local c = { arch = arch, names = "hf", format = "safetensors" }
  c.vocab = r:int("vocab_size", 1, limits.vocab)
  c.hidden = r:int("hidden_size", 1, limits.hidden)
  c.ffn = r:int("intermediate_size", 1, limits.ffn)
  c.n_layer = r:int("num_hidden_layers", 1, limits.layers)
  c.n_head, c.n_kv, c.head_dim = read_heads(r, c.hidden)
  c.context = r:int("max_position_embeddings", 1, limits.context)
  c.eps = r:num("rms_norm_eps", 0, 1, 1e-6)
  c.attention_bias = r:bool("attention_bias")
  c.mlp_bias = r:bool("mlp_bias")
  c.tied = r:bool("tie_word_embeddings") or (more.has ~= nil and not more.has("lm_head.weight"))
  c.rope = read_rope(r, c.head_dim)
  c.bos = r:ids("bos_token_id", c.vocab)[1]
  c.eos = read_eos(r, more.generation, c.vocab)
  c.dtype = r:str("dtype") or r:str("torch_dtype")
  return c
end

return M
