-- SPDX-License-Identifier: Apache-2.0
-- Models as folders and files. Expected values: the configs of ../shared/fixtures/models, read by eye; facts/reliability.md A12.
local config = require("tpl.config")
local find = require("tpl.find")
local helper = require("cli.helper")

local LLAMA = [[{
 "architectures": ["LlamaForCausalLM"],
 "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
 "num_attention_heads": 4,
 "max_position_embeddings": 512
}]]

describe("tpl.config", function()
  local folder
  setup(function() folder = helper.folder() end)
  teardown(function() helper.remove(folder) end)

  local function open(path) return config.open(assert(find.model(path))) end

  it("opens a folder that holds config.json alone, with a warning", function()
    helper.write(folder .. "/bare/config.json", LLAMA)
    local m = assert(open(folder .. "/bare"))
    assert.equal(320, m.config.vocab)
    assert.is_nil(m.checkpoint)
    assert.is_nil(m.tokenizer)
    assert.equal("no_weights", m.warnings[1].code)
  end)

  it("gives file:line of a key that is refused", function()
    helper.write(folder .. "/bad/config.json", (LLAMA:gsub("4,", "0,")))
    local m, e = open(folder .. "/bad")
    assert.is_nil(m)
    assert.equal(6, e.exit)
    assert.equal(folder .. "/bad/config.json:4", e.where)
    assert.matches("num_attention_heads", e.message)
  end)

  it("refuses 2^63 and 1e30 written in the file", function()
    for _, text in ipairs { "9223372036854775808", "1e30", "1.5", '"8"', "null", "-1" } do
      helper.write(folder .. "/big/config.json", (LLAMA:gsub(": 320", ": " .. text)))
      local m, e = open(folder .. "/big")
      assert.is_nil(m)
      assert.equal(6, e.exit)
      assert.matches("vocab_size", e.message)
    end
  end)

  it("refuses JSON that is none, with duplicate keys, or no object", function()
    for _, text in ipairs { "{", "", "[]", "5", '{"a":1,"a":2}', ("["):rep(100000) } do
      helper.write(folder .. "/json/config.json", text)
      local m, e = open(folder .. "/json")
      assert.is_nil(m)
      assert.equal(6, e.exit, text:sub(1, 20))
    end
  end)

  it("refuses a folder without anything, and a file that is no model", function()
    helper.write(folder .. "/empty/readme.txt", "x")
    assert.equal(6, select(2, open(folder .. "/empty")).exit)
    helper.write(folder .. "/foreign.gguf", "this is no model at all, only text that goes on for a while")
    assert.equal(6, select(2, open(folder .. "/foreign.gguf")).exit)
  end)

  it("reads the shared fixtures", function()
    if not helper.shared() then return pending("no ../shared") end
    local expected = {
      ["llama-9x3"] = { 331, 144, 9, 3, 16, false, "default", 10000 }, ["llama-5x5"] = { 320, 80, 5, 5, 16, false, "default", 50000 },
      ["llama-rope-llama3"] = { 320, 64, 2, 1, 32, true, "llama3", 10000 }, ["llama-rope-linear"] = { 320, 64, 4, 2, 16, false, "linear", 10000 },
      ["llama-headdim"] = { 320, 64, 4, 2, 24, false, "default", 10000 }, ["llama-tied"] = { 320, 64, 4, 4, 16, true, "default", 10000 },
      ["llama-gguf-q4_k"] = { 320, 256, 8, 2, 64, true, "default", 10000 },
      ["llama-gguf-rope-freqs"] = { 320, 64, 2, 1, 32, true, "divisors", 10000 },
    }
    for name, e in pairs(expected) do
      local c = assert(open(helper.model(name))).config
      assert.same(e, { c.vocab, c.hidden, c.n_head, c.n_kv, c.head_dim, c.tied, c.rope.type, c.rope.theta }, name)
    end
  end)

  it("gives the same frequencies from rope_freqs.weight as from rope_scaling", function()
    if not helper.shared() then return pending("no ../shared") end
    local json = require("tpl.json")
    local m = assert(open(helper.model("llama-gguf-rope-freqs")))
    local reference = json.decode(helper.read(helper.model("llama-gguf-rope-freqs") .. "/expected.json")).reference_config
    local path = folder .. "/reference"
    helper.write(path .. "/config.json", json.encode(reference))
    local want = assert(open(path)).config.rope.freqs
    assert.equal(#want, #m.config.rope.freqs)
    for i, f in ipairs(want) do assert.is_true(math.abs(m.config.rope.freqs[i] / f - 1) < 1e-6) end -- divisors are float32
  end)

  it("refuses every other family by name", function()
    if not helper.shared() then return pending("no ../shared") end
    for _, name in ipairs { "opt-pre-ln", "gpt2-plain", "mixtral-4e", "mistral-window", "gemma3-text", "qwen2-gguf-f16", "mixtral-gguf-q8_0", "llama-awq-g128" } do
      local m, e = open(helper.model(name))
      assert.is_nil(m)
      assert.same({ 6, "unsupported" }, { e.exit, e.code }, name)
    end
  end)

  it("finds tokenizers, and ignores code beside the weights", function()
    if not helper.shared() then return pending("no ../shared") end
    assert.matches("tokenizer.json$", assert(open(helper.model("llama-gqa-untied"))).tokenizer)
    assert.matches("model.gguf$", assert(open(helper.model("llama-gguf-q4_0"))).tokenizer)
    assert.is_nil(assert(open(helper.model("llama-9x3"))).tokenizer)
    local path = folder .. "/code"
    helper.write(path .. "/config.json", helper.read(helper.model("llama-tied") .. "/config.json"))
    helper.write(path .. "/model.safetensors", helper.read(helper.model("llama-tied") .. "/model.safetensors"))
    for _, name in ipairs { "modeling.py", "policy.lua", "pytorch_model.bin" } do helper.write(path .. "/" .. name, "error('ran')") end
    local m = assert(open(path))
    assert.equal(1, #m.warnings)
    assert.equal("ignored_files", m.warnings[1].code)
  end)
end)
