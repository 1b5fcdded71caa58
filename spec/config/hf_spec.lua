-- SPDX-License-Identifier: Apache-2.0
-- Expected values: facts/models.md 0.1 and 1.1 (spellings, defaults), facts/reliability.md A5 (what is refused).
local err = require("tpl.err")
local hf = require("tpl.config.hf")
local json = require("tpl.json")
local reader = require("tpl.config.reader")

local function base()
  return {
    architectures = { "LlamaForCausalLM" }, model_type = "llama", vocab_size = 320, hidden_size = 72, intermediate_size = 96,
    num_hidden_layers = 2, num_attention_heads = 6, num_key_value_heads = 2, hidden_act = "silu", max_position_embeddings = 512,
    rms_norm_eps = 1e-5, rope_theta = 10000, tie_word_embeddings = false, bos_token_id = 1, eos_token_id = 2, torch_dtype = "bfloat16",
  }
end

local function normalise(config, more)
  return err.try(hf.normalise, function(key) return reader.member(config, key) end, function(key) return "config.json:" .. key end, more)
end

local function with(changes, more)
  local config = base()
  for key, value in pairs(changes) do config[key] = value end
  return normalise(config, more)
end

local MISSING = {}

local function refused(key, value)
  local config = base()
  if value == MISSING then config[key] = nil else config[key] = value end
  local c, e = normalise(config)
  return c == nil and e or nil
end

describe("tpl.config.hf", function()
  it("reads the published spelling", function()
    local c = assert(normalise(base()))
    assert.equal("llama", c.arch)
    assert.same({ 320, 72, 96, 2, 6, 2, 12 }, { c.vocab, c.hidden, c.ffn, c.n_layer, c.n_head, c.n_kv, c.head_dim })
    assert.equal(1e-5, c.eps)
    assert.equal(512, c.context)
    assert.is_false(c.tied)
    assert.is_false(c.attention_bias)
    assert.is_false(c.mlp_bias)
    assert.equal("bfloat16", c.dtype)
    assert.equal(1, c.bos)
    assert.same({ 2 }, c.eos)
    assert.same({ "half", 12, 1, 6 }, { c.rope.mode, c.rope.dim, c.rope.mscale, #c.rope.freqs })
    assert.same({ "hf", "safetensors" }, { c.names, c.format })
  end)

  it("reads the spelling of transformers 5", function()
    local c = assert(with { rope_parameters = { rope_type = "default", rope_theta = 50000 } })
    assert.equal(50000, c.rope.theta)
    assert.equal("float32", with({ dtype = "float32" }).dtype)
    local nested = assert(with { rope_parameters = { full_attention = { rope_type = "linear", factor = 2, rope_theta = 100 } } })
    assert.same({ 100, "linear", 0.5 }, { nested.rope.theta, nested.rope.type, nested.rope.freqs[1] })
  end)

  it("takes the defaults of the architecture for what may be absent", function()
    local config = base()
    for _, key in ipairs { "num_key_value_heads", "rope_theta", "rms_norm_eps", "tie_word_embeddings", "hidden_act", "bos_token_id", "eos_token_id" } do
      config[key] = nil
    end
    local c = assert(normalise(config))
    assert.same({ 6, 12, 10000, 1e-6 }, { c.n_kv, c.head_dim, c.rope.theta, c.eps })
    assert.is_nil(c.bos)
    assert.same({}, c.eos)
    config.num_key_value_heads, config.head_dim, config.rope_scaling = json.null, json.null, json.null
    assert.equal(6, assert(normalise(config)).n_kv)
  end)

  it("does not derive a head size that is given", function()
    local c = assert(with { head_dim = 24 })
    assert.equal(24, c.head_dim)
    assert.equal(12, #c.rope.freqs)
  end)

  it("knows both keys of the scaling type", function()
    assert.equal(0.25, assert(with { rope_scaling = { type = "linear", factor = 4 } }).rope.freqs[1])
    assert.equal(0.25, assert(with { rope_scaling = { rope_type = "linear", factor = 4 } }).rope.freqs[1])
  end)

  it("ties the head by the flag, or when there is no lm_head", function()
    assert.is_true(assert(with { tie_word_embeddings = true }).tied)
    assert.is_true(assert(with({}, { has = function() return false end })).tied)
    assert.is_false(assert(with({}, { has = function() return true end })).tied)
  end)

  it("unites the end ids of config.json and generation_config.json", function()
    local generation = reader.new(function(key) return ({ eos_token_id = { 5, 2, 100000 } })[key] end, tostring)
    assert.same({ 2, 3, 5 }, assert(with({ eos_token_id = { 2, 3 } }, { generation = generation })).eos)
  end)

  it("falls back to model_type", function()
    local config = base()
    config.architectures = nil
    assert.equal("llama", assert(normalise(config)).arch)
  end)

  local ints = { "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "max_position_embeddings", "head_dim" }
  local values = { ["0"] = 0, ["-1"] = -1, ["1e30"] = 1e30, ["2^31"] = 2 ^ 31, ["2^63"] = 2 ^ 63, ['"8"'] = "8", ["1.5"] = 1.5, ["true"] = true }
  for _, key in ipairs(ints) do
    for name, value in pairs(values) do
      it("refuses " .. key .. " = " .. name .. ", naming the key", function()
        local e = refused(key, value)
        assert.is_not_nil(e)
        assert.equal(6, e.exit)
        assert.matches(key, e.message, 1, true)
        assert.equal("config.json:" .. key, e.where)
      end)
    end
  end

  for _, key in ipairs { "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings" } do
    it("refuses a missing and a null " .. key, function()
      assert.matches(key, refused(key, MISSING).message, 1, true)
      assert.matches(key, refused(key, json.null).message, 1, true)
    end)
  end

  it("refuses sizes that do not divide, and ids outside the vocabulary", function()
    assert.matches("num_key_value_heads", refused("num_key_value_heads", 4).message)
    assert.matches("num_attention_heads", refused("num_attention_heads", 10).message) -- 72 / 10 is no whole number
    assert.matches("head_dim", refused("num_attention_heads", 8).message) -- 72 / 8 is odd, rope turns pairs
    assert.matches("eos_token_id", refused("eos_token_id", 320).message)
    assert.matches("bos_token_id", refused("bos_token_id", -1).message)
  end)

  it("refuses numbers that are none", function()
    for key, value in pairs { rms_norm_eps = "x", rope_theta = 0, tie_word_embeddings = 1, attention_bias = "no", rope_scaling = 5 } do
      assert.equal(6, refused(key, value).exit, key)
    end
    assert.equal(6, refused("rope_scaling", { type = "linear" }).exit)
    assert.equal(6, refused("rope_scaling", { type = "linear", factor = 0 / 0 }).exit)
    assert.equal(6, refused("rope_scaling", { rope_type = "llama3", factor = 8 }).exit)
  end)

  it("refuses what it does not support, naming it", function()
    local cases = {
      { "architectures", { "OPTForCausalLM" }, "OPTForCausalLM" }, { "hidden_act", "gelu", "gelu" },
      { "rope_scaling", { rope_type = "yarn", factor = 2 }, "yarn" }, { "rope_parameters", { rope_type = "spiral" }, "spiral" },
      { "quantization_config", { quant_method = "awq" }, "awq" },
    }
    for _, case in ipairs(cases) do
      local e = refused(case[1], case[2])
      assert.equal(6, e.exit)
      assert.equal("unsupported", e.code)
      assert.matches(case[3], e.message, 1, true)
    end
    assert.matches("LlamaForCausalLM", refused("architectures", { "X" }).hint)
  end)
end)
