-- SPDX-License-Identifier: Apache-2.0
--- tpl.tokenizer on small tokenizers of our own. Expected values: Hugging Face tokenizers (spec/fixtures/tokenizer/README.md), or written
--- by hand from the format where a test says so.
local json = require("tpl.json")
local tokenizer = require("tpl.tokenizer")
local gguf = require("spec.support.gguf_writer")
local tmpdir = require("spec.support.tmpdir")

local here = "spec/fixtures/tokenizer/"

local slurp = require("spec.support.files").slurp

local function rows(kind)
  local list = {}
  for line in io.lines(here .. kind .. ".jsonl") do list[#list + 1] = json.decode(line) end
  return list
end

local function plain(list)
  local out = {}
  for i, v in ipairs(list) do out[i] = v end
  return out
end

--- The keys of a GGUF file with the vocabulary of a tokenizer.json of ours.
local function gguf_keys(kind, pre)
  local d = json.decode(slurp(here .. kind .. ".json"))
  local tokens, types, merges = {}, {}, {}
  for text, id in pairs(d.model.vocab) do tokens[id + 1], types[id + 1] = text, 1 end
  for _, a in ipairs(d.added_tokens) do tokens[a.id + 1], types[a.id + 1] = a.content, a.special and 3 or 4 end
  for i, m in ipairs(d.model.merges) do merges[i] = m[1] .. " " .. m[2] end
  return {
    { "tokenizer.ggml.model", "str", "gpt2" }, { "tokenizer.ggml.pre", "str", pre }, { "tokenizer.ggml.tokens", "array", "str", tokens },
    { "tokenizer.ggml.token_type", "array", "i32", types }, { "tokenizer.ggml.merges", "array", "str", merges },
  }
end

-- A byte-level BPE that can be read at a glance: h e l o, he, ll, hell, hello.
local function small(change)
  local d = {
    added_tokens = { { id = 8, content = "<|end|>", special = true } },
    pre_tokenizer = { type = "ByteLevel", add_prefix_space = false, use_regex = true }, decoder = { type = "ByteLevel" },
    model = {
      type = "BPE", vocab = { h = 0, e = 1, l = 2, o = 3, he = 4, ll = 5, hell = 6, hello = 7 },
      merges = { "h e", "l l", "he ll", "hell o" },
    },
  }
  if change then change(d) end
  return json.encode(d)
end

describe("tpl.tokenizer", function()
  local dir
  setup(function() dir = tmpdir.new() end)
  teardown(function() dir:close() end)

  local function open(text) return tokenizer.open(dir:write("tokenizer.json", text)) end

  for _, kind in ipairs { "gpt2", "llama3", "regex", "o200k", "deepseek", "unigram", "precompiled", "punctuation" } do
    describe("of " .. kind .. ".json", function()
      local t
      setup(function() t = assert(tokenizer.open(here .. kind .. ".json")) end)

      it("gives the ids of Hugging Face tokenizers for every row", function()
        for _, r in ipairs(rows(kind)) do
          if r.bos ~= nil then assert.same(plain(r.ids), t:encode(r.text, { special = r.special, bos = r.bos }), r.text) end
        end
      end)

      it("decodes every row, at once and token by token", function()
        for _, r in ipairs(rows(kind)) do
          if r.bos == nil then
            assert.equal(r.text, t:decode(r.ids, { skip_special = r.skip_special }))
            local s, parts = t:stream { skip_special = r.skip_special }, {}
            for i, id in ipairs(r.ids) do parts[i] = s:push(id) end
            parts[#parts + 1] = s:flush()
            assert.equal(r.text, table.concat(parts))
          end
        end
      end)
    end)
  end

  for pre, kind in pairs { smollm = "gpt2", ["gpt-4o"] = "o200k", llama4 = "o200k", ["deepseek-v3"] = "deepseek" } do
    it("gives the same ids from GGUF keys with pre " .. pre .. " as from tokenizer.json", function()
      local t = assert(tokenizer.open(dir:write("v.gguf", gguf.build { kv = gguf_keys(kind, pre) })))
      for _, r in ipairs(rows(kind)) do
        if r.bos ~= nil then assert.same(plain(r.ids), t:encode(r.text, { special = r.special, bos = r.bos }), r.text) end
      end
    end)
  end

  describe("streaming", function()
    it("holds the bytes of a character back until it is whole", function()
      local t = assert(tokenizer.open(here .. "gpt2.json"))
      local ids = { t:id("ð"), t:id("Ł"), t:id("ĺ"), t:id("Ģ"), t:id("h") } -- F0 9F 98 80 in GPT-2's alphabet
      local s, got = t:stream(), {}
      for i, id in ipairs(ids) do got[i] = s:push(id) end
      assert.same({ "", "", "", "😀", "h" }, got)
      assert.equal("", s:flush())
    end)

    it("writes one U+FFFD for a part that nothing completes", function()
      local t = assert(tokenizer.open(here .. "gpt2.json"))
      local s = t:stream()
      assert.equal("", s:push(t:id("ð")))
      assert.equal("", s:push(t:id("Ł")))
      assert.equal("\239\191\189h", s:push(t:id("h")))
      assert.equal("", s:push(t:id("ð")))
      assert.equal("\239\191\189", s:flush())
    end)

    it("shows nothing of the prompt", function()
      local t = assert(tokenizer.open(here .. "gpt2.json"))
      local s = t:stream { prompt = 2 }
      assert.same({ "", "", "l" }, { s:push(t:id("h")), s:push(t:id("e")), s:push(t:id("l")) })
    end)

    it("shows nothing for ids without a token, and goes on", function()
      local t = assert(open(small()))
      assert.equal("hello", t:decode { 6, 9, -1, 2 ^ 40, 0.5, 3 })
    end)

    it("raises when the tokenizer was closed", function()
      local t = assert(open(small()))
      local s = t:stream()
      t.core:close()
      assert.has_error(function() s:push(0) end, "tpl.tokenizer is closed")
    end)
  end)

  describe("by hand", function()
    it("merges by rank, leftmost first", function()
      local t = assert(open(small()))
      assert.same({ 7 }, t:encode("hello"))
      assert.same({ 6, 7 }, t:encode("hellhello"))
      assert.same({ 5, 2 }, t:encode("lll"))
    end)

    it("drops bytes without a token before merging, so that their neighbours merge", function()
      local t = assert(open(small()))
      assert.same({ 7 }, t:encode("hexllo"))
    end)

    it("reads control tokens only when asked to", function()
      local t = assert(open(small(function(d) d.model.vocab["<"], d.model.vocab["|"] = 9, 10 end)))
      assert.same({ 7, 8 }, t:encode("hello<|end|>"))
      assert.same({ 7, 9, 10, 1, 10 }, t:encode("hello<|end|>", { special = false }))
      assert.is_true(t:eog(8))
      assert.same({ 8 }, t:eog_ids())
      assert.is_false(t:eog(7))
      assert.equal("hello", t:decode({ 7, 8 }, { skip_special = true }))
      assert.equal("hello<|end|>", t:decode { 7, 8 })
    end)

    it("takes merges as pairs and as lines", function()
      local t = assert(open(small(function(d) d.model.merges = { { "h", "e" }, { "l", "l" }, { "he", "ll" }, { "hell", "o" } } end)))
      assert.same({ 7 }, t:encode("hello"))
    end)
  end)

  describe("beside other files", function()
    local function write(name, value) return dir:write(name, type(value) == "string" and value or json.encode(value)) end
    after_each(function() dir:sh("rm -f *.json *.jinja") end)

    it("takes bos, eos and the chat template from tokenizer_config.json", function()
      write("tokenizer.json", small())
      write("tokenizer_config.json", {
        bos_token = "hello", eos_token = { content = "<|end|>" }, add_bos_token = true,
        chat_template = { { name = "tool_use", template = "T" }, { name = "default", template = "D" } },
      })
      local t = assert(tokenizer.open(dir.path))
      assert.same({ "hello", 7, "<|end|>", 8, "D" }, { t.bos_token, t.bos_id, t.eos_token, t.eos_id, t.chat_template })
      assert.same({ 7, 0 }, t:encode("h"))
      assert.same({ 0 }, t:encode("h", { bos = false }))
      assert.is_true(t:adds_bos())
    end)

    it("prefers chat_template.jinja, and ends at every eos of generation_config.json", function()
      write("tokenizer.json", small())
      write("tokenizer_config.json", { chat_template = "C" })
      write("chat_template.jinja", "J")
      write("generation_config.json", { eos_token_id = { 3, 99 } })
      local t = assert(tokenizer.open(dir.path .. "/tokenizer.json"))
      assert.equal("J", t.chat_template)
      assert.is_true(t:eog(3))
    end)

    it("keeps a bos that is no token for the template only", function()
      write("tokenizer.json", small())
      write("tokenizer_config.json", { bos_token = "<none>", add_bos_token = true })
      local t = assert(tokenizer.open(dir.path))
      assert.equal("<none>", t.bos_token)
      assert.is_nil(t.bos_id)
      assert.same({ 0 }, t:encode("h"))
    end)

    it("names the file when tokenizer_config.json is broken", function()
      write("tokenizer.json", small())
      write("tokenizer_config.json", "{")
      local t, message, code, where = tokenizer.open(dir.path)
      assert.is_nil(t)
      assert.is_string(message)
      assert.equal("format", code)
      assert.truthy(where:find("tokenizer_config.json", 1, true))
    end)
  end)

  describe("from GGUF", function()
    local function open_keys(kv) return tokenizer.open(dir:write("v.gguf", gguf.build { kv = kv })) end

    local function with(...)
      local kv = gguf_keys("gpt2", "smollm")
      for _, x in ipairs { ... } do kv[#kv + 1] = x end
      return kv
    end

    it("reads ids, flags and the chat template", function()
      local t = assert(open_keys(with({ "tokenizer.ggml.bos_token_id", "u32", 5 }, { "tokenizer.ggml.eos_token_id", "u32", 6 },
        { "tokenizer.ggml.eot_token_id", "u32", 7 }, { "tokenizer.ggml.add_bos_token", "bool", true },
        { "tokenizer.chat_template", "str", "{{ x }}" })))
      assert.same({ 5, 6, "{{ x }}" }, { t.bos_id, t.eos_id, t.chat_template })
      assert.equal(5, t:encode("a")[1])
      assert.same({ true, true, false }, { t:eog(6), t:eog(7), t:eog(8) })
    end)

    it("merges SentencePiece vocabularies by score, with bytes for the rest", function()
      -- by hand: ▁he scores above ll, so ▁hell cannot come to be; é has no token and becomes its bytes
      local tokens = { "<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", "▁", "h", "e", "l", "he", "▁he", "ll" }
      local t = assert(open_keys {
        { "tokenizer.ggml.model", "str", "llama" }, { "tokenizer.ggml.tokens", "array", "str", tokens },
        { "tokenizer.ggml.token_type", "array", "i32", { 2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1, 1 } },
        { "tokenizer.ggml.scores", "array", "f32", { 0, 0, 0, 0, 0, -9, -9, -9, -9, -1, -2, -3 } },
        { "tokenizer.ggml.bos_token_id", "u32", 1 }, { "tokenizer.ggml.eos_token_id", "u32", 2 }, { "tokenizer.ggml.unknown_token_id", "u32", 0 },
      })
      assert.same({ 1, 10, 11, 3, 4 }, t:encode("hellé"))
      assert.same({ 10, 5, 8 }, t:encode("he l", { bos = false }))
      assert.equal("he l", t:decode { 10, 5, 8 })
      assert.equal("llé", t:decode { 11, 3, 4 })
    end)

    it("says no_vocab where there is none", function()
      local t, message, code, where = open_keys { { "general.architecture", "str", "llama" } }
      assert.is_nil(t)
      assert.equal("no_vocab", code)
      assert.truthy(message and where)
    end)

    for name, case in pairs {
      ["an unknown pre-tokenizer"] = { "unsupported", "'martian'", { 2, { "tokenizer.ggml.pre", "str", "martian" } } },
      ["an unknown model"] = { "unsupported", "'rwkv'", { 1, { "tokenizer.ggml.model", "str", "rwkv" } } },
      ["a merge with an unknown token"] = { "format", "not a token", { 5, { "tokenizer.ggml.merges", "array", "str", { "a nonsense" } } } },
      ["a merge that is no pair"] = { "format", "two tokens", { 5, { "tokenizer.ggml.merges", "array", "str", { "ab" } } } },
      ["too few types"] = { "format", "types", { 4, { "tokenizer.ggml.token_type", "array", "i32", { 1 } } } },
      ["the same token twice"] = { "format", "two ids", { 3, { "tokenizer.ggml.tokens", "array", "str", { "a", "a" } } }, 2 },
      ["a token that is not UTF-8"] = { "format", "not UTF-8", { 3, { "tokenizer.ggml.tokens", "array", "str", { "a", "\255" } } }, 2 },
      ["a malformed byte token"] = { "format", "malformed", { 3, { "tokenizer.ggml.tokens", "array", "str", { "a", "<0x-1>" } } }, 2, 6 },
      ["a bos that has no token"] = { "format", "no token", { 6, { "tokenizer.ggml.bos_token_id", "u32", 100000 } } },
      ["a bos to add without an id"] = { "format", "bos_token_id", { 6, { "tokenizer.ggml.add_bos_token", "bool", true } } },
    } do
      it("refuses " .. name, function()
        local kv = gguf_keys("gpt2", "smollm")
        kv[case[3][1]] = case[3][2]
        if case[4] then kv[4] = { "tokenizer.ggml.token_type", "array", "i32", { 1, case[5] or 1 } } end
        local t, message, code = open_keys(kv)
        assert.is_nil(t)
        assert.equal(case[1], code)
        assert.truthy(message:find(case[2], 1, true), message)
      end)
    end
  end)

  describe("refuses, naming it,", function()
    local cases = {
      ["an unknown normalizer"] = { "unsupported", "normalizer 'Nmt'", function(d) d.normalizer = { type = "Nmt" } end },
      ["an unknown pre_tokenizer"] = { "unsupported", "pre_tokenizer 'UnicodeScripts'", function(d)
        d.pre_tokenizer = { type = "Sequence", pretokenizers = json.array { { type = "UnicodeScripts" } } }
      end },
      ["a step after ByteLevel"] = { "unsupported", "not the last step", function(d)
        d.pre_tokenizer = { type = "Sequence", pretokenizers = json.array { d.pre_tokenizer, { type = "Digits", individual_digits = true } } }
      end },
      ["an unknown post_processor"] = { "unsupported", "post_processor 'X'", function(d) d.post_processor = { type = "X" } end },
      ["an unknown decoder"] = { "unsupported", "decoder 'CTC'", function(d) d.decoder = { type = "CTC" } end },
      ["an unknown model"] = { "unsupported", "model 'WordPiece'", function(d) d.model.type = "WordPiece" end },
      ["a word suffix"] = { "unsupported", "end_of_word_suffix", function(d) d.model.end_of_word_suffix = "</w>" end },
      ["a regex construct that PCRE2 reads otherwise"] = { "unsupported", "a class in a class", function(d)
        d.pre_tokenizer = { type = "Split", pattern = { Regex = "[a[bc]]+" }, behavior = "Isolated", invert = false }
      end },
      ["a regex that does not compile"] = { "unsupported", "does not compile", function(d)
        d.pre_tokenizer = { type = "Split", pattern = { Regex = "(a" }, behavior = "Isolated", invert = false }
      end },
      ["a negative id"] = { "format", "id -1", function(d) d.model.vocab.h = -1 end },
      ["an id of 2^31 - 1"] = { "format", "2147483647", function(d) d.model.vocab.h = 2147483647 end },
      ["an id of 5 million"] = { "format", "5000000", function(d) d.model.vocab.h = 5000000 end },
      ["two tokens of one id"] = { "format", "same id", function(d) d.model.vocab.h = 1 end },
      ["an id that is a string"] = { "format", "not an integer", function(d) d.model.vocab.h = "0" end },
      ["a merge of a missing token"] = { "format", "'x', which is not a token", function(d) d.model.merges[1] = "h x" end },
      ["a merge into a missing token"] = { "format", "'eh', which is not a token", function(d) d.model.merges[1] = "e h" end },
      ["a merge of three"] = { "format", "two tokens", function(d) d.model.merges[1] = "h e l" end },
      ["an added token at another id"] = { "format", "id 8, but 0", function(d) d.added_tokens[1].content = "h" end },
      ["an added token at a taken id"] = { "format", "same id", function(d) d.added_tokens[1].id = 0 end },
      ["an added token without text"] = { "format", "empty", function(d) d.added_tokens[1].content = "" end },
      ["a byte token <0x-1>"] = { "format", "malformed", function(d)
        d.pre_tokenizer, d.decoder, d.model.byte_fallback, d.model.vocab["<0x-1>"] = nil, nil, true, 9
      end },
      ["a byte token <0xGG>"] = { "format", "malformed", function(d)
        d.pre_tokenizer, d.decoder, d.model.byte_fallback, d.model.vocab["<0xGG>"] = nil, nil, true, 9
      end },
      ["a post-processor whose token is missing"] = { "format", "id 77", function(d)
        d.post_processor = { type = "BertProcessing", cls = json.array { "a", 77 }, sep = json.array { "b", 1 } }
      end },
      ["deep nesting of sequences"] = { "format", "nested", function(d)
        for _ = 1, 10 do d.normalizer = { type = "Sequence", normalizers = json.array { d.normalizer or { type = "NFC" } } } end
      end },
    }
    for name, case in pairs(cases) do
      it(name, function()
        local t, message, code, where = open(small(case[3]))
        assert.is_nil(t)
        assert.equal(case[1], code)
        assert.truthy(message:find(case[2], 1, true), message)
        assert.truthy(where:find("tokenizer.json", 1, true))
      end)
    end

    it("what is no JSON, cut anywhere", function()
      local text = small()
      for n = 0, #text - 1 do
        local t, message, code = require("tpl.core").tokenizer.from_json(text:sub(1, n), "cut.json")
        assert.is_nil(t)
        assert.equal("format", code)
        assert.is_string(message)
      end
    end)

    it("a missing file", function()
      local t, message, code = tokenizer.open(dir.path .. "/nothing/tokenizer.json")
      assert.is_nil(t)
      assert.equal("io", code)
      assert.is_string(message)
    end)

    it("a folder without a vocabulary", function()
      dir:sh("mkdir -p empty")
      local t, _, code = tokenizer.open(dir.path .. "/empty")
      assert.is_nil(t)
      assert.equal("no_vocab", code)
    end)
  end)

  it("survives any byte changed, without an undefined read", function()
    -- deterministic sweep over a valid file: each byte replaced by a few others; the result is a tokenizer or a failure, never a crash
    local text, core = small(), require("tpl.core").tokenizer
    for i = 1, #text do
      for _, c in ipairs { "\0", '"', "9", "\255", "{" } do
        local t = core.from_json(text:sub(1, i - 1) .. c .. text:sub(i + 1), "changed.json")
        if t then
          t:encode("hello <|end|> \255", true, true)
          t:close()
        end
      end
    end
  end)
end)
