-- SPDX-License-Identifier: Apache-2.0
--- Hostile config.json, generation_config.json, tokenizer.json and what lies beside it, a case each (see files_gguf.lua).
local cases = {}

local function add(kind, command, file, list)
  for _, c in ipairs(list) do
    c.kind, c.command, c.file = kind, c.command or command, c.file or file
    cases[#cases + 1] = c
  end
end

-- -- config.json -----------------------------------------------------------------------------------------------------

local good = {
  { "architectures", '["LlamaForCausalLM"]' }, { "vocab_size", "32" }, { "hidden_size", "8" }, { "intermediate_size", "16" }, { "num_hidden_layers", "2" },
  { "num_attention_heads", "2" }, { "num_key_value_heads", "1" }, { "max_position_embeddings", "64" }, { "rms_norm_eps", "1e-5" },
}

--- Write a config in which one member has another value; false leaves it out.
local function config(name, value)
  local parts, seen = {}, false
  for _, member in ipairs(good) do
    local v = member[2]
    if member[1] == name then v, seen = value, true end
    if v then parts[#parts + 1] = ('"%s":%s'):format(member[1], v) end
  end
  if name and not seen then parts[#parts + 1] = ('"%s":%s'):format(name, value) end
  return "{" .. table.concat(parts, ",") .. "}"
end

-- Rule A5: every number that sizes come from, with every bad kind of value.
local bad_values = {
  { "0", "is 0" }, { "-1", "is %-1" }, { "1e30", "is 1e%+30" }, { "2147483648", "is 2147483648" }, { "9223372036854775808", "is 9.22" }, { '"8"', 'is the string "8"' },
  { "null", "is missing" }, { "1.5", "is 1.5" }, { "[]", "is a list or table" }, { "true", "is true" },
}
for _, key in ipairs { "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings" } do
  for _, v in ipairs(bad_values) do
    add("config.json", "plan", "config.json", { { "A5", key .. " " .. v[1], config(key, v[1]), key .. " " .. v[2] } })
  end
  add("config.json", "plan", "config.json", { { "A5", key .. " left out", config(key, false), key .. " is missing" } })
end

add("config.json", "plan", "config.json", {
  { "A5", "KV heads of 0", config("num_key_value_heads", "0"), "num_key_value_heads is 0" },
  { "A5", "KV heads that do not divide the heads", config("num_key_value_heads", "3"), "does not divide num_attention_heads 2" },
  { "A5", "heads that do not divide the width", config("num_attention_heads", "3"), "does not divide" },
  { "A5", "a head of no size", config("head_dim", "0"), "head_dim is 0" },
  { "A5", "an odd head", config("head_dim", "3"), "head_dim leaves 3 dims to rotate" },
  { "A5", "1025 layers", config("num_hidden_layers", "1025"), "from 1 to 1024" },
  { "A5", "an epsilon of 1e400", config("rms_norm_eps", "1e400"), "." },
  { "A5", "a rope of base 0", config("rope_theta", "0"), "rope_theta is 0" },
  { "A5", "a rope scaling that is a list", config("rope_scaling", "[1]"), "." },
  { "A5", "a rope scaling by 0", config("rope_scaling", '{"rope_type":"linear","factor":0}'), "factor is 0" },
  { "A5", "llama3 with high below low", config("rope_scaling",
    '{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":1,"original_max_position_embeddings":8}'), "not above low_freq_factor" },
  { "A5", "an unknown rope", config("rope_scaling", '{"rope_type":"spiral\\n"}'), "not supported" },
  { "A5", "an end id outside the vocabulary", config("eos_token_id", "32"), "eos_token_id is 32" },
  { "A5", "an end id of -1", config("eos_token_id", "[2,-1]"), "eos_token_id is %-1" },
  { "A5", "architectures that are a number", config("architectures", "1"), "architectures is 1" },
  { "A5", "an architecture with a line break", config("architectures", '["a\\nb"]'), "not supported" },
  { "A7", "a key twice", '{"vocab_size":32,"vocab_size":64}', "duplicate object key" },
  { "A7", "a key twice, once with an escape", '{"vocab_size":32,"vocab\\u005fsize":64}', "duplicate object key" },
  { "A11", "100,000 levels of nesting", ("["):rep(100000), "nested more than 64" },
  { "A11", "100,000 levels of objects", ('{"a":'):rep(100000), "nested more than 64" },
  { "A11", "a million values in two megabytes", '{"a":[' .. ("0,"):rep(1000000) .. "0]}", "too many" },
  { "A11", "five megabytes", '{"a":"' .. ("x"):rep(5 * 2 ^ 20) .. '"}', "at most 4194304 are accepted" },
  { "A12", "a quantisation that needs code", config("quantization_config", '{"quant_method":"custom"}'), "not supported" },
  { "form", "no text", "", "no valid JSON" },
  { "form", "a list", "[1]", "no JSON object" },
  { "form", "a number", "1", "no JSON object" },
  { "form", "a NUL", "{\0}", "no valid JSON" },
  { "form", "not UTF-8", '{"a":"\255"}', "no valid JSON" },
  { "form", "half a surrogate pair", '{"a":"\\ud800"}', "no valid JSON" },
  { "form", "a comma too many", '{"a":1,}', "no valid JSON" },
  { "form", "two documents", config() .. config(), "no valid JSON" },
  { "form", "NaN", '{"a":NaN}', "no valid JSON" },
  { "A8", "a FIFO in its place", nil, "a FIFO, expected a regular file", sh = "mkfifo config.json" },
  { "A8", "/dev/zero in its place", nil, "a character device, expected a regular file", sh = "ln -s /dev/zero config.json" },
  { "A8", "a folder in its place", nil, "a folder, expected a regular file", sh = "mkdir config.json" },
  { "A12", "a folder with code and pickles only", nil, "pickled weights are never opened|neither config.json nor weights",
    sh = "echo 'error()' >policy.lua; echo x >pytorch_model.bin" },
})

local with_config = { ["config.json"] = config() }
add("generation_config.json", "plan", "generation_config.json", {
  { "A5", "an end id of 2^31", '{"eos_token_id":2147483648}', "eos_token_id is 2147483648", files = with_config },
  { "A5", "an end id that is text", '{"eos_token_id":"2"}', "eos_token_id is the string", files = with_config },
  { "A7", "a key twice", '{"eos_token_id":1,"eos_token_id":2}', "duplicate object key", files = with_config },
  { "A11", "1000 levels of nesting", ("["):rep(1000), "nested more than 64", files = with_config },
  { "A8", "a FIFO in its place", nil, "a FIFO", files = with_config, sh = "mkfifo generation_config.json" },
})

-- -- tokenizer.json --------------------------------------------------------------------------------------------------

local bpe = '{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}'

local function tokenizer(parts)
  local list = {}
  for _, name in ipairs { "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder" } do
    if parts[name] then list[#list + 1] = ('"%s":%s'):format(name, parts[name]) end
  end
  list[#list + 1] = '"model":' .. (parts.model or bpe)
  return "{" .. table.concat(list, ",") .. "}"
end

local function model(text) return tokenizer { model = text } end

local function added(...) return tokenizer { added_tokens = "[" .. table.concat({ ... }, ",") .. "]" } end

local function vocab(text) return model('{"type":"BPE","vocab":{' .. text .. '},"merges":[]}') end

local function fallback(text) return model('{"type":"BPE","byte_fallback":true,"vocab":{' .. text .. '},"merges":[]}') end

local function unigram(text, unk) return model('{"type":"Unigram","unk_id":' .. (unk or "0") .. ',"vocab":[' .. text .. "]}") end

local function pre(text) return tokenizer { pre_tokenizer = text } end

local function split(regex) return pre('{"type":"Split","pattern":{"Regex":"' .. regex .. '"},"behavior":"Isolated","invert":false}') end

local function norm(text) return tokenizer { normalizer = text } end

local function nested(kind, member, deep)
  return (('{"type":"Sequence","%s":['):format(member)):rep(deep) .. ('{"type":"%s"}'):format(kind) .. ("]}"):rep(deep)
end

add("tokenizer.json", "tokenize", "tokenizer.json", {
  { "A10", "a byte token <0x-1>", fallback('"a":0,"<0x-1>":1'), "'<0x%-1>' is malformed" },
  { "A10", "a byte token <0xGG>", fallback('"a":0,"<0xGG>":1'), "'<0xGG>' is malformed" },
  { "A10", "an id of 2^31 - 1", vocab('"a":0,"b":2147483647'), "id 2147483647, expected 0 to" },
  { "A10", "an id of 4,194,303 in a small file", vocab('"a":0,"b":4194303'), "id 4194303, expected 0 to" },
  { "A10", "an id of -1", vocab('"a":-1'), "id %-1, expected 0 to" },
  { "A10", "an id of 2^64", vocab('"a":18446744073709551616'), "id that is not an integer" },
  { "A10", "an id of 1.5", vocab('"a":1.5'), "not an integer" },
  { "A10", "one id for two tokens", vocab('"a":0,"b":0'), "have the same id 0" },
  { "A10", "a merge to a token that is missing", model('{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a c"]}'), "names 'c', which is not a token" },
  { "A10", "a merge whose result is missing", model('{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]}'), "gives 'ab', which is not a token" },
  { "A10", "a merge of three", model('{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b a"]}'), "not two tokens and a space" },
  { "A10", "a merge that is a number", model('{"type":"BPE","vocab":{"a":0},"merges":[1]}'), "not a pair of strings" },
  { "A10", "a vocabulary without tokens", vocab(""), "vocabulary is empty" },
  { "A10", "a vocabulary that is a list", model('{"type":"BPE","vocab":["a"],"merges":[]}'), "'vocab' is not an object" },
  { "A10", "an unknown token that is not there", model('{"type":"BPE","unk_token":"u","vocab":{"a":0},"merges":[]}'), "'unk_token' is not in the vocabulary" },
  { "A10", "an unknown id outside", unigram('["a",0]', "1"), "'unk_id'" },
  { "A10", "an unknown id of -1", unigram('["a",0]', "-1"), "'unk_id'" },
  { "A10", "a token without a score", unigram('["a"]'), "not %[text, score%]" },
  { "A10", "a token of 1025 bytes", unigram('["a",0],["' .. ("x"):rep(1025) .. '",0]'), "1025 bytes" },
  { "A10", "an added token with the id of another", added('{"content":"x","id":0}'), "have the same id 0" },
  { "A10", "an added token with another id than the vocabulary's", added('{"content":"a","id":7}'), "has id 7, but 0 in the vocabulary" },
  { "A10", "an added token without an id", added('{"content":"x"}'), "'id' is not an integer" },
  { "A10", "a control token without text", added('{"content":"","id":3,"special":true}'), "is empty" },
  { "A10", "an added token of 513 bytes", added('{"content":"' .. ("x"):rep(513) .. '","id":3}'), "513 bytes, at most 512" },
  { "A10", "an added token whose flag is a number", added('{"content":"x","id":3,"special":1}'), "'special' is not true or false" },
  { "A10", "added tokens that are an object", tokenizer { added_tokens = "{}" }, "'added_tokens' is not an array" },
  { "A10", "a post-processor with an id that has no token", tokenizer { post_processor = '{"type":"RobertaProcessing","sep":["x",3],"cls":["y",4]}' }, "has no token" },
  { "A10", "a post-processor with an id of 2^31", tokenizer { post_processor = '{"type":"RobertaProcessing","sep":["x",2147483648],"cls":["y",0]}' }, "." },
  { "A7", "a token twice", vocab('"a":0,"a":1'), "duplicate object key" },
  { "A7", "a token twice, once with an escape", vocab('"a":0,"\\u0061":1'), "duplicate object key" },
  { "A7", "the model twice", '{"model":' .. bpe .. ',"model":' .. bpe .. "}", "duplicate object key" },
  { "A11", "100,000 levels of nesting", ("["):rep(100000), "nested more than 64" },
  { "A11", "nine sequences of normalizers in each other", norm(nested("NFC", "normalizers", 9)), "nested more than 8 deep" },
  { "A11", "nine sequences of pre-tokenizers in each other", pre(nested("Digits", "pretokenizers", 9)), "nested more than 8 deep" },
  { "A11", "nine sequences of decoders in each other", tokenizer { decoder = nested("Fuse", "decoders", 9) }, "nested more than 8 deep" },
  { "A11", "17 normalizers", norm('{"type":"Sequence","normalizers":[' .. ('{"type":"NFC"},'):rep(16) .. '{"type":"NFC"}]}'), "more than 16 steps" },
  { "A11", "a replacement of 17 bytes in every token",
    tokenizer { decoder = '{"type":"Replace","pattern":{"String":"a"},"content":"12345678901234567"}' }, "17 bytes, at most 16" },
  { "A11", "a mark of 100 bytes", pre('{"type":"Metaspace","replacement":"' .. ("x"):rep(100) .. '","prepend_scheme":"always"}'), "not one character" },
  { "A11", "a regex of 70,000 bytes", split(("a"):rep(70000)), "70000 bytes, at most 65536" },
  { "A11", "a regex of 16,000 properties", split(("\\\\pL"):rep(16000)), "." },
  { "A11", "a regex of 300 nested groups", split(("("):rep(300) .. (")"):rep(300)), "does not compile" },
  { "A11", "a regex that repeats a repeat", split("(a{1,60000}){1,60000}"), "." },
  { "A11", "a regex that does not compile", split("(a"), "does not compile" },
  { "A11", "a regex with a verb of PCRE", split("(*LIMIT_MATCH=1)a"), "not supported" },
  { "A11", "a character map that is no base64", norm('{"type":"Precompiled","precompiled_charsmap":"!"}'), "not base64" },
  { "A11", "a character map whose trie is longer than it", norm('{"type":"Precompiled","precompiled_charsmap":"/////w=="}'), "has a trie of" },
  { "A5", "a strip of 2^40 characters",
    tokenizer { decoder = '{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Strip","content":" ","start":1099511627776,"stop":0}]}' }, "start is" },
  { "form", "no text", "", "no valid JSON" },
  { "form", "a list", "[]", "'model' is not an object" },
  { "form", "no model", "{}", "'model' is not an object" },
  { "form", "an unknown model", model('{"type":"WordPiece","vocab":{}}'), "'WordPiece' is not supported" },
  { "form", "an unknown normalizer", norm('{"type":"x\\ny"}'), "not supported" },
  { "form", "a pre-tokenizer without a type", pre("{}"), "no string 'type'" },
  { "form", "a pattern of both kinds", pre('{"type":"Split","pattern":{"Regex":"a","String":"b"},"behavior":"Isolated","invert":false}'), "'pattern' is not" },
  { "A8", "a FIFO in its place", nil, "a FIFO, expected a regular file", sh = "mkfifo tokenizer.json" },
  { "A8", "/dev/zero in its place", nil, "a character device", sh = "ln -s /dev/zero tokenizer.json" },
  -- these open, and fail on a text
  { "A11", "a normalizer that makes 8^16 of one letter", norm('{"type":"Sequence","normalizers":[' ..
    ('{"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaa"},'):rep(15) .. '{"type":"NFC"}]}'), "makes the text longer", row = "unsupported" },
  { "A11", "a regex that backtracks without end", split("(a+)+$"), "gave up", row = "unsupported" },
})

local beside = { ["tokenizer.json"] = tokenizer {} }
add("tokenizer_config.json", "tokenize", "tokenizer_config.json", {
  { "A10", "an added token with an id that is no number", '{"added_tokens_decoder":{"x":{"content":"y"}}}', "'x' is not an id", files = beside },
  { "A10", "an added token with an id of 10^30", '{"added_tokens_decoder":{"1000000000000000000000000000000":{"content":"y"}}}', "expected 0 to", files = beside },
  { "A7", "a key twice", '{"bos_token":"a","bos_token":"b"}', "duplicate object key", files = beside },
  { "A11", "1000 levels of nesting", ("["):rep(1000), "nested more than 64", files = beside },
  { "form", "a list", "[]", "no JSON object", files = beside },
  { "A8", "a FIFO in its place", nil, "a FIFO", files = beside, sh = "mkfifo tokenizer_config.json" },
  { "A8", "a chat template that is a FIFO", "{}", "a FIFO", files = beside, sh = "mkfifo chat_template.jinja" },
})

return cases
