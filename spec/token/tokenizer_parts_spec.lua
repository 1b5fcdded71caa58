-- SPDX-License-Identifier: Apache-2.0
--- Single parts of tokenizer.json: Unigram, normalizers, tokens of tokenizer_config.json, and the budget of regexes. Expected values are
--- worked out by hand from the format, or are those of the documentation that a test names.
local json = require("tpl.json")
local tokenizer = require("tpl.tokenizer")
local slurp = require("spec.support.files").slurp
local tmpdir = require("spec.support.tmpdir")

-- Characters and nothing to merge, so that ids show what became of a text.
local function chars(list, change)
  local d = { decoder = { type = "Fuse" }, model = { type = "BPE", vocab = {}, merges = json.array {} } }
  for i, c in ipairs(list) do d.model.vocab[c] = i - 1 end
  if change then change(d) end
  return json.encode(d)
end

local function unigram(vocab, change)
  local d = { decoder = { type = "Fuse" }, model = { type = "Unigram", unk_id = 0, vocab = json.array {} } }
  for i = 1, #vocab, 2 do d.model.vocab[#d.model.vocab + 1] = json.array { vocab[i], vocab[i + 1] } end
  if change then change(d) end
  return json.encode(d)
end

describe("tpl.tokenizer's parts:", function()
  local dir
  setup(function() dir = tmpdir.new() end)
  teardown(function() dir:close() end)
  after_each(function() dir:sh("rm -f *.json") end)

  local function open(text) return tokenizer.open(dir:write("tokenizer.json", text)) end

  local function refused(text, status, part)
    local t, message, code = open(text)
    assert.is_nil(t)
    assert.equal(status, code)
    assert.truthy(message:find(part, 1, true), message)
  end

  describe("Unigram", function()
    local abc = { "<unk>", 0, "a", 0, "b", 0, "c", 0, "d", 0, "cd", 1, "ab", 2, "abc", 5, "abcd", 10 }

    it("takes the path of the best sum", function()
      -- the example in the documentation of Hugging Face's Unigram::encode: abcd a cd xx
      assert.same({ 8, 1, 5, 0 }, assert(open(unigram(abc))):encode("abcdacdxx"))
    end)

    it("takes the path found first of equal ones, which ends with the longest token", function()
      local t = assert(open(unigram { "<unk>", 0, "a", -1, "b", -1, "ab", -2, "aa", -2 }))
      assert.same({ 3 }, t:encode("ab"))
      assert.same({ 1, 4 }, t:encode("aaa")) -- a aa and aa a: of those that end here, aa began first
    end)

    it("gives one unknown token for a stretch, its bytes where all exist, or the token that it is", function()
      local vocab = { "<unk>", 0, "a", -1, "<0xC3>", 0, "<0xA9>", 0, "xy", -500 }
      local t = assert(open(unigram(vocab, function(d) d.model.byte_fallback = true end)))
      assert.same({ 1, 2, 3, 1 }, t:encode("aéa"))
      assert.same({ 1, 0, 1 }, t:encode("aéza")) -- z has no byte token, so that the stretch has none
      assert.same({ 4 }, t:encode("xy")) -- x y as two unknown ones is better than -500, and is looked up together
      assert.same({ 0 }, assert(open(unigram(vocab))):encode("é"))
    end)

    it("sees the spelling of a control token in plain text", function()
      -- as Hugging Face tokenizers do: all tokens of the model take part
      local t = assert(open(unigram({ "<unk>", 0, "<s>", 0, "a", -1 }, function(d)
        d.added_tokens = { { id = 1, content = "<s>", special = true } }
      end)))
      assert.same({ 2, 1 }, t:encode("a<s>", { special = false }))
    end)

    it("is refused where it is not sound", function()
      refused(unigram(abc, function(d) d.model.unk_id = nil end), "unsupported", "unk_id")
      refused(unigram(abc, function(d) d.model.unk_id = 9 end), "format", "unk_id")
      refused(unigram(abc, function(d) d.model.unk_id = -1 end), "format", "unk_id")
      refused(unigram(abc, function(d) d.model.vocab = json.array {} end), "format", "0 tokens")
      refused(unigram(abc, function(d) d.model.vocab[3] = json.array { "b" } end), "format", "token 2 is not [text, score]")
      refused(unigram(abc, function(d) d.model.vocab[3] = json.array { "a", 1 } end), "format", "two ids")
      refused(unigram(abc, function(d) d.model.vocab[3] = json.array { ("x"):rep(1025), 1 } end), "unsupported", "1025 bytes")
      refused(unigram(abc, function(d) d.pre_tokenizer = { type = "ByteLevel", add_prefix_space = false } end), "unsupported", "ByteLevel")
    end)
  end)

  describe("normalizer", function()
    local function ids(normalizer, text)
      local t = assert(open(chars({ "a", "b", " ", "i", "\204\135", "\226\150\129" }, function(d) d.normalizer = normalizer end)))
      return t:encode(text)
    end

    it("Strip takes White_Space from either end", function()
      local text = "\194\133 a b \227\128\128"
      assert.same({ 0, 2, 1, 2 }, ids({ type = "Strip", strip_left = true, strip_right = false }, text))
      assert.same({ 2, 0, 2, 1 }, ids({ type = "Strip", strip_left = false, strip_right = true }, text))
      assert.same({}, ids({ type = "Strip", strip_left = true, strip_right = true }, " \n "))
    end)

    it("Strip of a text that another step wrote leaves that text whole", function()
      local steps = json.array { { type = "Lowercase" }, { type = "Strip", strip_left = true, strip_right = true }, { type = "Prepend", prepend = "ab" },
        { type = "Strip", strip_left = true, strip_right = false } }
      assert.same({ 0, 1, 0, 2, 1 }, ids({ type = "Sequence", normalizers = steps }, "  A B "))
    end)

    it("Lowercase writes U+0130 as two characters", function() assert.same({ 3, 4, 0 }, ids({ type = "Lowercase" }, "\196\176A")) end)

    it("Precompiled without a map changes nothing", function()
      assert.same({ 0, 2, 1 }, ids({ type = "Precompiled", precompiled_charsmap = json.null }, "a b"))
      assert.same({ 0, 2, 1 }, ids({ type = "Precompiled", precompiled_charsmap = "" }, "a b"))
    end)

    for name, case in pairs {
      ["is no base64"] = { "AAA*", "base64" }, ["is base64 cut short"] = { "AAAAA", "base64" }, ["is shorter than its size"] = { "AAA=", "trie of 0 bytes" },
      ["has a trie of no bytes"] = { "AAAAAA==", "trie of 0 bytes" }, ["has a trie beyond its end"] = { "/////wAAAAA=", "4294967295" },
      ["has a trie of odd size"] = { "BQAAAAAAAAAA", "trie of 5 bytes" }, ["holds what is not UTF-8"] = { "BAAAAAAAAAD//w==", "not UTF-8" },
    } do
      it("Precompiled refuses a map that " .. name, function()
        refused(chars({ "a" }, function(d) d.normalizer = { type = "Precompiled", precompiled_charsmap = case[1] } end), "format", case[2])
      end)
    end

    it("Precompiled survives any unit of its trie changed", function()
      local d = json.decode(slurp("spec/fixtures/tokenizer/precompiled.json"))
      local step = d.normalizer.normalizers[1]
      local map, core = step.precompiled_charsmap, require("tpl.core").tokenizer
      for i = 9, #map - 8, 29 do
        step.precompiled_charsmap = map:sub(1, i - 1) .. (i % 2 == 0 and "/" or "A") .. map:sub(i + 1)
        local t = core.from_json(json.encode(d), "changed.json")
        if t then
          t:encode("a\t e\204\129 \239\172\129 \225\132\128\225\133\161 x\204\129 \194\178", true, true)
          t:close()
        end
      end
    end)
  end)

  describe("tokenizer_config.json", function()
    local function with(decoder, config_text)
      dir:write("tokenizer_config.json", config_text or json.encode { added_tokens_decoder = decoder })
      return open(chars({ "a", "b", "<", ">", "s" }, function(d) d.added_tokens = { { id = 5, content = "<s>", special = true } } end))
    end

    it("adds tokens that tokenizer.json does not have", function()
      local t = assert(with { ["7"] = { content = "<new>", special = true }, ["4"] = { content = "s", special = false }, ["6"] = { content = "ab", lstrip = true } })
      assert.equal(8, t.n_vocab)
      assert.same({ 0, 7, 6, 4 }, t:encode("a<new> abs"))
      assert.is_true(t:is_special(7))
      assert.equal("<new>", t:decode { 7 })
      assert.equal("", t:decode({ 7 }, { skip_special = true }))
    end)

    it("leaves those alone that it has", function()
      local t = assert(with { ["5"] = { content = "<s>", special = false, lstrip = true } })
      assert.is_true(t:is_special(5))
      assert.same({ 0, 5 }, t:encode("a<s>"))
    end)

    for name, case in pairs {
      ["another id of a token"] = { { ["9"] = { content = "a" } }, "id 9, but 0" }, ["a taken id"] = { { ["1"] = { content = "new" } }, "same id" },
      ["a key that is no id"] = { { ["1x"] = { content = "new" } }, "'1x' is not an id" }, ["a huge id"] = { { ["99999999999999999999"] = { content = "new" } }, "id" },
      ["a negative id"] = { { ["-1"] = { content = "new" } }, "'-1' is not an id" }, ["no content"] = { { ["9"] = { special = true } }, "content" },
    } do
      it("is refused with " .. name, function()
        local t, message, code, where = with(case[1])
        assert.is_nil(t)
        assert.equal("format", code)
        assert.truthy(message:find(case[2], 1, true), message)
        assert.truthy(where:find("tokenizer_config.json", 1, true))
      end)
    end
  end)

  describe("a hostile Split regex", function()
    local function encode(regex, text)
      local t = assert(open(chars({ "a", "b", " " }, function(d)
        d.pre_tokenizer = { type = "Split", pattern = { Regex = regex }, behavior = "Isolated", invert = false }
      end)))
      return t:encode(text)
    end

    -- each takes time at least quadratic in the text (in a short one PCRE2 sees that the last letter is missing, and none is refused)
    for _, regex in ipairs { "(?=.*x)a", "(a*)*b", "(a|aa)+$x", "a*a*a*a*b", "(?:.*.*.*)x", "[^b]*b", "a(?!.*b)", "(?>a+)b", "a(?=(.|\\s)*z)", "(.)\\1+b" } do
      it("ends within its steps: " .. regex, function()
        local start = os.clock()
        local ids, message, code = encode(regex, ("a"):rep(1000000))
        assert.is_true(ids == nil) -- is_nil would print a million ids
        assert.equal("unsupported", code)
        assert.truthy(message:find("gave up", 1, true), message)
        assert.is_true(os.clock() - start < 5)
      end)
    end

    it("is told from an honest one on a long text", function()
      local text = ("a b  "):rep(60000) .. (" "):rep(200000)
      assert.equal(#text, #assert(encode("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+|[^\\s]+", text)))
    end)
  end)
end)
