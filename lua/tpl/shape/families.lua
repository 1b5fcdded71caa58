-- SPDX-License-Identifier: Apache-2.0
--- Choose the family of a model from its config.json and read its facts: which matrices a layer has, how large, which layers
--- slide and what a token leaves in the KV cache. Pure.
local dense = require "tpl.shape.dense"
local moe = require "tpl.shape.moe"

local M = {}

local by_architecture = {
  LlamaForCausalLM = "llama", MistralForCausalLM = "mistral", Qwen2ForCausalLM = "qwen2", Qwen3ForCausalLM = "qwen3",
  Phi3ForCausalLM = "phi3", Gemma3ForCausalLM = "gemma3", Gemma3ForConditionalGeneration = "gemma3", OPTForCausalLM = "opt",
  GPT2LMHeadModel = "gpt2", MixtralForCausalLM = "mixtral", Qwen2MoeForCausalLM = "qwen2_moe", Qwen3MoeForCausalLM = "qwen3_moe",
  Mistral3ForConditionalGeneration = "mistral", Llama4ForCausalLM = "llama4", Llama4ForConditionalGeneration = "llama4",
  GptOssForCausalLM = "gpt_oss", DeepseekV2ForCausalLM = "deepseek_v2", DeepseekV3ForCausalLM = "deepseek_v3",
}
local by_type = {
  llama = "llama", mistral = "mistral", qwen2 = "qwen2", qwen3 = "qwen3", phi3 = "phi3", gemma3 = "gemma3", gemma3_text = "gemma3",
  opt = "opt", gpt2 = "gpt2", mixtral = "mixtral", qwen2_moe = "qwen2_moe", qwen3_moe = "qwen3_moe", gpt_oss = "gpt_oss",
  mistral3 = "mistral", llama4 = "llama4", llama4_text = "llama4", deepseek_v2 = "deepseek_v2", deepseek_v3 = "deepseek_v3",
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
  local c = (moe[arch] or dense[arch])(inner)
  c.arch = arch
  return c
end

return M
