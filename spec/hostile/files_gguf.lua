-- SPDX-License-Identifier: Apache-2.0
--- Hostile GGUF files, a case each: {rule of facts/reliability.md 2.A, name, bytes, what the refusal says}. Run by cases.lua.
local gguf = require("spec.support.gguf_writer")

local function one(t, o)
  o = o or {}
  o.tensors = { t }
  return gguf.build(o)
end

local function f32(dims, more)
  local t = { name = "w", dtype = "f32", dims = dims }
  for key, value in pairs(more or {}) do t[key] = value end
  return t
end

local function kv(...) return gguf.build { kv = { ... } } end

local function raw(bytes) return kv({ "k", "raw", bytes }) end

local int = gguf.int
local huge = 0x7fffffffffffffc0ULL

local cases = {
  { "A1", "a dim of SIZE_MAX/4", one(f32({ 1, 1, 1, 0x3fffffffffffffffULL }, { data = "" })), "'w'.*size overflow" },
  { "A1", "two tensors of 0x7FFFFFFFFFFFFFC0 bytes", gguf.build { tensors = {
    { name = "a", dtype = "i8", dims = { huge }, data = "" }, { name = "b", dtype = "i8", dims = { huge }, data = "" } } }, "size overflow" },
  { "A1", "a product of dims that is 2^64 + 16", one { name = "w", dtype = "i8", dims = { 16, 1152921504606846977ULL }, data = "" }, "size overflow" },
  { "A1", "an offset that wraps with the size", one(f32({ 8 }, { offset = 0xffffffffffffffe0ULL })), "size overflow" },
  { "A1", "an offset at the end of the numbers", one(f32({ 8 }, { offset = 0xffffffffffffffffULL })), "not a multiple of 32" },
  { "A1", "bytes per block times blocks over 2^64", one { name = "w", dtype = "f32", dims = { 0x4000000000000000ULL, 4 }, data = "" }, "size overflow" },
  { "A2", "data behind the end of the file", gguf.build { tensors = { f32({ 8 }, { offset = 32, data = ("x"):rep(32) }) }, pad = false }, "'w'.*32 bytes short" },
  { "A2", "a tensor without any data", one(f32({ 4 }, { data = "" }), { pad = false }), "'w'.*16 bytes short" },
  { "A2", "a large tensor in a small file", one(f32({ 1000, 1000 }, { data = ("x"):rep(64) })), "'w'.*short" },
  { "A2", "overlapping tensors", gguf.build { tensors = { { name = "a", dtype = "f32", dims = { 16 } }, { name = "b", dtype = "f32", dims = { 8 }, offset = 32 } } },
    "'b' overlaps 'a'" },
  { "A2", "two tensors on the same bytes", gguf.build { tensors = { { name = "a", dtype = "f32", dims = { 8 } }, { name = "b", dtype = "f32", dims = { 8 }, offset = 0 } } },
    "overlaps" },
  { "A2", "an offset that is not aligned", one(f32({ 8 }, { offset = 4 })), "not a multiple of 32" },
  { "A3", "five dims", one(f32({ 1 }, { n_dims = 5 })), "5 dims, at most 4" },
  { "A3", "2^32 - 1 dims", one(f32({ 1 }, { n_dims = 0xffffffff })), "dims, at most 4" },
  { "A3", "more than 2^48 elements", one { name = "w", dtype = "i8", dims = { 0x100000000ULL, 0x10001 }, data = "" }, "size overflow" },
  { "A4", "24 bytes with 2^62 keys", gguf.build { n_kv = 0x4000000000000000ULL }, "4611686018427387904 keys do not fit" },
  { "A4", "24 bytes with 2^62 tensors", gguf.build { n_tensors = 0x4000000000000000ULL }, "tensors do not fit" },
  { "A4", "counts of 2^64 - 1", gguf.build { n_kv = 0xffffffffffffffffULL, n_tensors = 0xffffffffffffffffULL }, "do not fit" },
  { "A4", "one key more than there are", gguf.build { kv = { { "a", "u8", 1 } }, n_kv = 2 }, "do not fit" },
  { "A4", "one tensor more than there are", gguf.build { tensors = { f32({ 8 }) }, n_tensors = 2 }, "." },
  { "A4", "a string of 2^63 bytes", raw(int(8, 4) .. int(0x8000000000000000ULL, 8) .. ("x"):rep(64)), "string of 9223372036854775808 bytes" },
  { "A4", "a string of 2^64 - 1 bytes", raw(int(8, 4) .. int(0xffffffffffffffffULL, 8)), "string of 18446744073709551615 bytes" },
  { "A4", "a string one byte longer than the file", raw(int(8, 4) .. int(1, 8)), "string of 1 bytes, only 0 are left" },
  { "A4", "an array of 2^30 strings", raw(int(9, 4) .. int(8, 4) .. int(0x40000000, 8)), "array of 1073741824" },
  { "A4", "an array of 2^30 f64", raw(int(9, 4) .. int(12, 4) .. int(0x40000000, 8)), "array of 1073741824" },
  { "A4", "an array of 2^61 u64, whose bytes wrap to 0", raw(int(9, 4) .. int(10, 4) .. int(0x2000000000000000ULL, 8)), "array of" },
  { "A4", "an array of 2^62 bytes", raw(int(9, 4) .. int(0, 4) .. int(0x4000000000000000ULL, 8)), "array of" },
  { "A4", "a key of 2^40 bytes", gguf.build { n_kv = 1 } .. int(0x10000000000ULL, 8) .. ("x"):rep(64), "key of 1099511627776 bytes" },
  { "A4", "a tensor name of 2^40 bytes", gguf.build { n_tensors = 1 } .. int(0x10000000000ULL, 8) .. ("x"):rep(64), "tensor name of 1099511627776 bytes" },
  { "A4", "an empty file", "", "neither GGUF nor safetensors" , file = "m.gguf", also = "no GGUF|magic of 4 bytes" },
  { "A4", "four bytes", "GGUF", "version of 4 bytes, only 0 are left" },
  { "A4", "eight bytes", "GGUF" .. int(3, 4), "number of tensors of 8 bytes" },
  { "A5", "a dim of 0", one(f32({ 4, 0 }, { data = "" })), "a dim is 0" },
  { "A5", "rows that are not whole blocks of 32", one { name = "w", dtype = "q4_0", dims = { 32, 33 }, data = ("x"):rep(640) }, "not whole blocks of 32" },
  { "A5", "rows that are not whole blocks of 256", one { name = "w", dtype = "q4_k", dims = { 8, 32 }, data = ("x"):rep(256) }, "not whole blocks of 256" },
  { "A5", "a type that was removed", one(f32({ 1 }, { type_id = 4 })), "type 4, which was removed" },
  { "A5", "a type that is not known", one(f32({ 1 }, { type_id = 1000 })), "type 1000, which is not known" },
  { "A5", "a type of 2^32 - 1", one(f32({ 1 }, { type_id = 0xffffffff })), "which is not known" },
  { "A6", "alignment 0x80000000", kv { "general.alignment", "u32", 0x80000000 }, "general.alignment' is 2147483648" },
  { "A6", "alignment 0", kv { "general.alignment", "u32", 0 }, "general.alignment' is 0" },
  { "A6", "alignment 3", kv { "general.alignment", "u32", 3 }, "power of two" },
  { "A6", "alignment 131072", kv { "general.alignment", "u32", 131072 }, "power of two" },
  { "A6", "alignment as u64", kv { "general.alignment", "u64", 32 }, "is u64, expected u32" },
  { "A6", "alignment as a string", kv { "general.alignment", "str", "32" }, "is str, expected u32" },
  { "A6", "alignment as an array", kv { "general.alignment", "array", "u32", { 32 } }, "expected u32" },
  { "A7", "two tensors of one name", gguf.build { tensors = { f32({ 8 }), f32({ 8 }) } }, "duplicate key w" },
  { "A7", "a key twice, with two types", kv({ "k", "u8", 1 }, { "k", "u32", 2 }), "duplicate key k" },
  { "A7", "the alignment twice", kv({ "general.alignment", "u32", 32 }, { "general.alignment", "u32", 64 }), "duplicate key general.alignment" },
  { "A8", "part 1 of 2 by another name", kv({ "split.no", "u16", 0 }, { "split.count", "u16", 2 }, { "split.tensors.count", "i32", 1 }), "not named NAME%-00001%-of%-00002" },
  { "A8", "part 1 of 65535", kv({ "split.no", "u16", 0 }, { "split.count", "u16", 65535 }), "65535 parts, at most 4096", file = "m-00001-of-65535.gguf" },
  { "A8", "a number of parts that is a string", kv { "split.count", "str", "2" }, "'split.count' is str, expected an unsigned integer" },
  { "A8", "a part number of -1", kv({ "split.no", "i32", -1 }, { "split.count", "u16", 2 }), "'split.no' is i32, expected an unsigned integer" },
  { "A8", "the second part by the name of the first", kv({ "split.no", "u16", 1 }, { "split.count", "u16", 2 }), "says it is part 1 of 2", file = "m-00001-of-00002.gguf" },
  { "A11", "1,000,001 tensors", gguf.build { n_tensors = 1000001 } .. ("\0"):rep(1000001 * 24), "at most 1000000" },
  { "A11", "65,537 keys", gguf.build { n_kv = 65537 } .. ("\0"):rep(65537 * 13), "at most" },
  { "form", "another magic", gguf.build { magic = "GGML" }, "no GGUF file" },
  { "form", "version 1", gguf.build { version = 1 }, "version 1, expected 2 or 3" },
  { "form", "the other byte order", gguf.build { version = 0x03000000 }, "other byte order" },
  { "form", "an empty key", kv { "", "u8", 1 }, "empty key" },
  { "form", "a key with a line break", kv { "k\nx", "u8", 1 }, "not printable ASCII" },
  { "form", "a value type that is not defined", raw(int(13, 4) .. ("x"):rep(8)), "value type 13" },
  { "form", "an array of arrays", raw(int(9, 4) .. int(9, 4) .. int(0, 8)), "array of arrays" },
  { "form", "a bool of 2", kv { "k", "bool", 2 }, "neither 0 nor 1" },
  { "form", "a tensor name of 64 bytes", one(f32({ 1 }, { name = ("n"):rep(64) })), "64 bytes, at most 63" },
  { "form", "a tensor name with a NUL", one(f32({ 1 }, { name = "a\0b" })), "control characters" },
  { "form", "a tensor name that is not UTF-8", one(f32({ 1 }, { name = "a\255" })), "not UTF%-8" },
}

-- -- The architecture's keys ------------------------------------------------------------------------------------------

local function llama(changes)
  local keys = {
    { "general.architecture", "str", "llama" }, { "llama.block_count", "u32", 1 }, { "llama.context_length", "u32", 64 },
    { "llama.embedding_length", "u32", 8 }, { "llama.feed_forward_length", "u32", 16 }, { "llama.attention.head_count", "u32", 2 },
    { "llama.attention.layer_norm_rms_epsilon", "f32", 1e-5 }, { "llama.vocab_size", "u32", 32 },
  }
  for i = #keys, 1, -1 do
    local change = changes[keys[i][1]]
    if change == false then table.remove(keys, i) elseif change then keys[i] = change end
  end
  for _, more in ipairs(changes) do keys[#keys + 1] = more end
  return gguf.build { kv = keys, tensors = { { name = "token_embd.weight", dtype = "f16", dims = { 32, 8 } } } }
end

local function key(name, kind, value) return llama { [name] = { name, kind, value } } end

for _, c in ipairs {
  { "no heads", key("llama.attention.head_count", "u32", 0), "attention.head_count is 0" },
  { "2^31 heads", key("llama.attention.head_count", "u32", 0x80000000), "attention.head_count is 2147483648" },
  { "heads as text", key("llama.attention.head_count", "str", "2"), "attention.head_count is the string \"2\"" },
  { "heads that do not divide the width", key("llama.attention.head_count", "u32", 3), "does not divide embedding_length 8" },
  { "a count of layers of -1", key("llama.block_count", "i32", -1), "block_count is %-1" },
  { "2^63 layers", key("llama.block_count", "u64", 0x8000000000000000ULL), "block_count is inf" },
  { "layers as a fraction", key("llama.block_count", "f32", 1.5), "block_count is 1.5" },
  { "no count of layers", llama { ["llama.block_count"] = false }, "block_count is missing" },
  { "an epsilon that is no number", key("llama.attention.layer_norm_rms_epsilon", "f32", 0 / 0), "epsilon is %-?nan" },
  { "KV heads that do not divide the heads", llama { { "llama.attention.head_count_kv", "u32", 3 } }, "head_count_kv is 3, which does not divide" },
  { "an empty list of KV heads", llama { { "llama.attention.head_count_kv", "array", "u32", {} } }, "head_count_kv" },
  { "an odd number of rotated dims", llama { { "llama.rope.dimension_count", "u32", 3 } }, "dimension_count is 3" },
  { "a width that the embedding has not", key("llama.embedding_length", "u32", 16), "embedding_length is 16, token_embd.weight is" },
  { "a vocabulary that the embedding has not", key("llama.vocab_size", "u32", 33), "vocab_size is 33, token_embd.weight has 32 rows" },
  { "an unknown architecture", key("general.architecture", "str", "no\nsuch"), "not supported" },
  { "an architecture that is a number", key("general.architecture", "u32", 1), "general.architecture" },
  { "an end id outside the vocabulary", llama { { "tokenizer.ggml.eos_token_id", "u32", 32 } }, "eos_token_id is 32" },
} do cases[#cases + 1] = { "A5", c[1], c[2], c[3] } end

for _, c in ipairs(cases) do c.kind, c.command, c.file = "gguf", "plan", c.file or "m.gguf" end

-- -- Vocabularies ----------------------------------------------------------------------------------------------------

local function vocab(changes)
  local keys = {
    ["tokenizer.ggml.model"] = { "str", "gpt2" }, ["tokenizer.ggml.pre"] = { "str", "smollm" }, ["tokenizer.ggml.tokens"] = { "array", "str", { "a", "b", "ab" } },
    ["tokenizer.ggml.merges"] = { "array", "str", { "a b" } },
  }
  for name, value in pairs(changes) do keys[name] = value or nil end
  local list = {}
  for name, value in pairs(keys) do list[#list + 1] = { name, value[1], value[2], value[3] } end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  return gguf.build { kv = list }
end

local function spm(tokens, more)
  local changes = {
    ["tokenizer.ggml.model"] = { "str", "llama" }, ["tokenizer.ggml.pre"] = false, ["tokenizer.ggml.merges"] = false,
    ["tokenizer.ggml.tokens"] = { "array", "str", tokens },
  }
  for name, value in pairs(more or {}) do changes[name] = value end
  return vocab(changes)
end

local function typed(tokens, types) return spm(tokens, { ["tokenizer.ggml.token_type"] = { "array", "i32", types }, ["tokenizer.ggml.scores"] = { "array", "f32", { 0, 0 } } }) end

for _, c in ipairs {
  { "A10", "a byte token <0x-1>", typed({ "<0x-1>", "a" }, { 6, 1 }), "byte token 0 '<0x%-1>' is malformed" },
  { "A10", "a byte token <0xGG>", typed({ "a", "<0xGG>" }, { 1, 6 }), "byte token 1 '<0xGG>' is malformed" },
  { "A10", "a byte token <0x0a>", typed({ "<0x0a>", "a" }, { 6, 1 }), "malformed" },
  { "A10", "a byte token that is empty", typed({ "", "a" }, { 6, 1 }), "malformed" },
  { "A10", "a token type of 99", typed({ "a", "b" }, { 1, 99 }), "token 1 has type 99" },
  { "A10", "a token type of -1", typed({ "a", "b" }, { -1, 1 }), "token 0 has type 0" },
  { "A10", "one type for two tokens", typed({ "a", "b" }, { 1 }), "1 token types for 2 tokens" },
  { "A10", "types that are strings", vocab { ["tokenizer.ggml.token_type"] = { "array", "str", { "1", "1", "1" } } }, "expected an array of integers" },
  { "A10", "one score for two tokens", spm({ "a", "b" }, { ["tokenizer.ggml.scores"] = { "array", "f32", { 0 } } }), "1 scores for 2 tokens" },
  { "A10", "a score that is no number", spm({ "a", "b" }, { ["tokenizer.ggml.scores"] = { "array", "f32", { 0, 0 / 0 } } }), "score of token 1 is not a number" },
  { "A10", "scores that are strings", spm({ "a" }, { ["tokenizer.ggml.scores"] = { "array", "str", { "1" } } }), "expected an array of numbers" },
  { "A10", "a merge to a token that is missing", vocab { ["tokenizer.ggml.merges"] = { "array", "str", { "a c" } } }, "merge 0 names 'c', which is not a token" },
  { "A10", "a merge whose result is missing", vocab { ["tokenizer.ggml.merges"] = { "array", "str", { "b a" } } }, "merge 0 gives 'ba', which is not a token" },
  { "A10", "a merge of one token", vocab { ["tokenizer.ggml.merges"] = { "array", "str", { "ab" } } }, "not two tokens and a space" },
  { "A10", "merges that are numbers", vocab { ["tokenizer.ggml.merges"] = { "array", "u32", { 1 } } }, "expected an array of strings" },
  { "A10", "tokens that are one string", vocab { ["tokenizer.ggml.tokens"] = { "str", "abc" } }, "expected an array of strings" },
  { "A10", "a token twice", vocab { ["tokenizer.ggml.tokens"] = { "array", "str", { "a", "b", "ab", "a" } } }, "'a' has two ids, 0 and 3" },
  { "A10", "a token that is not UTF-8", vocab { ["tokenizer.ggml.tokens"] = { "array", "str", { "a", "b", "ab", "\255" } } }, "token 3 is not UTF%-8" },
  { "A10", "a BOS id outside", vocab { ["tokenizer.ggml.bos_token_id"] = { "u32", 3 } }, "bos_token_id is 3, which has no token" },
  { "A10", "a BOS id of 2^32 + 1", vocab { ["tokenizer.ggml.bos_token_id"] = { "u64", 0x100000001ULL } }, "bos_token_id is 4294967297" },
  { "A10", "an EOS id of -1", vocab { ["tokenizer.ggml.eos_token_id"] = { "i32", -1 } }, "eos_token_id' is i32, expected a token id" },
  { "A10", "an EOS id that is a list", vocab { ["tokenizer.ggml.eos_token_id"] = { "array", "u32", { 0 } } }, "expected a token id" },
  { "A10", "a BOS wanted that is not stated", vocab { ["tokenizer.ggml.add_bos_token"] = { "bool", true } }, "bos_token_id is missing" },
  { "A10", "a flag that is a number", vocab { ["tokenizer.ggml.add_bos_token"] = { "u8", 1 } }, "expected a bool" },
  { "A10", "an unknown pre-tokenizer", vocab { ["tokenizer.ggml.pre"] = { "str", "x\255\ny" } }, "pre%-tokenizer .* is not supported" },
  { "A10", "an unknown kind of tokenizer", vocab { ["tokenizer.ggml.model"] = { "str", "bert" } }, "'bert' %(tokenizer.ggml.model%) is not supported" },
  { "A10", "a chat template that is a list", vocab { ["tokenizer.chat_template"] = { "array", "str", { "x" } } }, "expected a string" },
} do
  c.kind, c.command, c.file = "gguf vocabulary", "tokenize", "m.gguf"
  cases[#cases + 1] = c
end

return cases
