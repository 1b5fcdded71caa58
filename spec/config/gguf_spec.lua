-- SPDX-License-Identifier: Apache-2.0
-- Expected values: facts/models.md 3.3 (keys, defaults) and 0.3 (rope of arch llama is stored interleaved).
local err = require("tpl.err")
local gguf = require("tpl.config.gguf")

local function keys()
  return {
    ["general.architecture"] = "llama", ["llama.context_length"] = 512, ["llama.embedding_length"] = 96, ["llama.block_count"] = 2,
    ["llama.feed_forward_length"] = 160, ["llama.attention.head_count"] = 6, ["llama.attention.head_count_kv"] = 3,
    ["llama.attention.layer_norm_rms_epsilon"] = 1e-5, ["llama.rope.dimension_count"] = 16, ["llama.rope.freq_base"] = 10000,
    ["llama.vocab_size"] = 320, ["tokenizer.ggml.bos_token_id"] = 1, ["tokenizer.ggml.eos_token_id"] = 2,
  }
end

local function source(changes)
  local dims = { ["token_embd.weight"] = { 320, 96 } }
  for name, value in pairs(changes and changes.dims or {}) do dims[name] = value or nil end
  return {
    n_tensors = changes and changes.n_tensors or 5,
    n_tokens = function() return changes and changes.n_tokens end,
    dims = function(name) return dims[name] end,
    floats = function() return changes.floats end,
    token_id = function(text) return (changes and changes.tokens or {})[text] end,
  }
end

local function normalise(changes, source_changes)
  local k = keys()
  for key, value in pairs(changes or {}) do k[key] = value ~= "nil" and value or nil end
  return err.try(gguf.normalise, function(key) return k[key] end, function(key) return "m.gguf:" .. key end, source(source_changes))
end

local function refused(changes, source_changes)
  local c, e = normalise(changes, source_changes)
  assert.is_nil(c)
  assert.equal(6, e.exit)
  return e
end

describe("tpl.config.gguf", function()
  it("reads the keys of arch llama", function()
    local c = assert(normalise())
    assert.same({ 320, 96, 160, 2, 6, 3, 16, 512 }, { c.vocab, c.hidden, c.ffn, c.n_layer, c.n_head, c.n_kv, c.head_dim, c.context })
    assert.same({ "interleaved", 16, 8 }, { c.rope.mode, c.rope.dim, #c.rope.freqs })
    assert.same({ 2 }, c.eos)
    assert.is_true(c.tied)
    assert.same({ "gguf", "gguf" }, { c.names, c.format })
  end)

  it("ties the head when output.weight is absent", function()
    assert.is_false(assert(normalise(nil, { dims = { ["output.weight"] = { 320, 96 } } })).tied)
  end)

  it("takes the vocabulary from the embedding, the key or the tokens", function()
    assert.equal(320, assert(normalise({ ["llama.vocab_size"] = "nil" })).vocab)
    assert.equal(320, assert(normalise(nil, { dims = { ["token_embd.weight"] = false }, n_tensors = 0 })).vocab)
    assert.equal(300, assert(normalise({ ["llama.vocab_size"] = "nil" }, { dims = { ["token_embd.weight"] = false }, n_tokens = 300 })).vocab)
    assert.matches("vocab_size", refused({ ["llama.vocab_size"] = 321 }).message)
    assert.matches("tokens", refused(nil, { n_tokens = 321 }).message)
    assert.equal(320, assert(normalise(nil, { n_tokens = 300 })).vocab) -- padded rows
  end)

  it("divides frequencies by rope_freqs.weight", function()
    local c = assert(normalise(nil, { dims = { ["rope_freqs.weight"] = { 8 } }, floats = { 1, 1, 1, 1, 2, 4, 8, 8 } }))
    assert.equal(1, c.rope.freqs[1])
    assert.is_true(math.abs(c.rope.freqs[8] - 10000 ^ (-14 / 16) / 8) < 1e-15)
    refused(nil, { dims = { ["rope_freqs.weight"] = { 4 } }, floats = { 1, 1, 1, 1 } })
    refused(nil, { dims = { ["rope_freqs.weight"] = { 8 } }, floats = { 1, 1, 1, 1, 0, 1, 1, 1 } })
  end)

  it("reads linear scaling, also from the old key", function()
    assert.equal(0.5, assert(normalise({ ["llama.rope.scaling.type"] = "linear", ["llama.rope.scaling.factor"] = 2 })).rope.freqs[1])
    assert.equal(0.25, assert(normalise({ ["llama.rope.scale_linear"] = 4 })).rope.freqs[1])
    assert.equal(1, assert(normalise({ ["llama.rope.scaling.type"] = "none", ["llama.rope.scaling.factor"] = 2 })).rope.freqs[1])
    assert.matches("yarn", refused({ ["llama.rope.scaling.type"] = "yarn" }).message)
  end)

  it("unites eos, eot, eom and the pieces that end a turn", function()
    local c = assert(normalise({ ["tokenizer.ggml.eot_token_id"] = 7 }, { tokens = { ["<|im_end|>"] = 9, ["<|eot_id|>"] = 7 } }))
    assert.same({ 2, 7, 9 }, c.eos)
  end)

  it("takes a value for each layer when all are equal", function()
    assert.equal(160, assert(normalise({ ["llama.feed_forward_length"] = { 160, 160 } })).ffn)
    assert.matches("layer 1", refused({ ["llama.feed_forward_length"] = { 160, 80 } }).message)
  end)

  local ints = { "context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count", "attention.head_count_kv",
    "rope.dimension_count", "vocab_size" }
  for _, name in ipairs(ints) do
    it("refuses " .. name .. " out of range, naming the key", function()
      for _, value in ipairs { 0, -1, 1e30, 2 ^ 31, 2 ^ 63, "8", 1.5, math.huge } do
        assert.matches("llama." .. name, refused({ ["llama." .. name] = value }).message, 1, true)
      end
    end)
  end

  it("refuses other architectures, experts and windows", function()
    assert.matches("qwen2", refused({ ["general.architecture"] = "qwen2" }).message)
    assert.matches("architecture", refused({ ["general.architecture"] = "nil" }).message)
    assert.matches("expert", refused({ ["llama.expert_count"] = 8 }).message)
    assert.matches("sliding_window", refused({ ["llama.attention.sliding_window"] = 16 }).message)
  end)
end)
