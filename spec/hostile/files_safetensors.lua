-- SPDX-License-Identifier: Apache-2.0
--- Hostile safetensors files and indexes, a case each (see files_gguf.lua).
local safetensors = require("spec.support.safetensors_writer")

local function entry(name, dtype, shape, from, to)
  return string.format('"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%s,%s]}', name, dtype, shape, from, to)
end

local function st(header, data, len) return safetensors.raw(header, data, len) end

local function object(...) return "{" .. table.concat({ ... }, ",") .. "}" end

local w = entry("w", "U8", 1, 0, 1)

local function w_with(shape, offsets) return '{"w":{"dtype":"U8","shape":' .. shape .. ',"data_offsets":' .. offsets .. "}}" end

local cases = {
  { "A1", "an offset of 2^63", st(object(entry("w", "U8", 1, "9223372036854775808", "9223372036854775809")), "1"), "size overflow" },
  { "A1", "an offset of 2^63 - 1", st(object(entry("w", "U8", 1, "9223372036854775806", "9223372036854775807")), "1"), "short" },
  { "A2", "75 bytes: a shape of a million in four bytes", st(object(entry("weights", "F32", "1000000", 0, 4)), "\0\0\0\0"), "'weights'.*4000000 bytes.*4" },
  { "A2", "data behind the end of the file", st(object(entry("w", "F32", "4", 0, 16)), "\0\0\0\0"), "'w'.*12 bytes short" },
  { "A2", "a range that ends before it begins", st(object(entry("w", "F32", "1", 4, 0)), "\0\0\0\0"), "no range" },
  { "A2", "overlapping ranges", st(object(entry("a", "U8", 4, 0, 4), entry("b", "U8", 4, 2, 6)), "123456"), "'b' overlaps 'a'" },
  { "A2", "a gap", st(object(entry("a", "U8", 2, 0, 2), entry("b", "U8", 2, 4, 6)), "123456"), "2 unused bytes between 'a'.*'b'" },
  { "A2", "leftover bytes", st(object(entry("a", "U8", 2, 0, 2)), "123456"), "4 unused bytes after 'a'" },
  { "A2", "bytes before the first tensor", st(object(entry("a", "U8", 2, 2, 4)), "1234"), "2 unused bytes" },
  { "A2", "a range of more bytes than the shape", st(object(entry("a", "F32", 1, 0, 8)), "12345678"), "4 bytes, its offsets give 8" },
  { "A3", "three factors whose product wraps to the length", st(object(entry("w", "U8", "4194305,4194305,211106198978564", 0, 16)), ("x"):rep(16)), "size overflow" },
  { "A3", "nine dims", st(object(entry("w", "U8", "1,1,1,1,1,1,1,1,1", 0, 1)), "x"), "more than 8" },
  { "A3", "2^48 + 1 elements times none", st(object(entry("w", "U8", "281474976710657,0", 0, 0)), ""), "size overflow" },
  { "A3", "a dim of 2^63", st(w_with("[9223372036854775808]", "[0,1]"), "1"), "size overflow" },
  { "A4", "a header longer than the file", st("{}", "", 1000), "998 bytes short" },
  { "A4", "a header of 2^64 - 1 bytes", st("{}", "", 0xffffffffffffffffULL), "at most 100000000" },
  { "A4", "a header of 100,000,001 bytes", st("{}", "", 100000001), "at most 100000000" },
  { "A4", "five bytes", "short", "neither GGUF nor safetensors" },
  { "A4", "no bytes", "", "neither GGUF nor safetensors" },
  { "A4", "a header of no bytes", st("", ""), "no JSON object" },
  { "A5", "an unknown dtype", st(object(entry("w", "F33", 1, 0, 4)), "1234"), "'w' has dtype 'F33'" },
  { "A5", "a dtype that is a number", st('{"w":{"dtype":8,"shape":[1],"data_offsets":[0,1]}}', "1"), "expected '\"'" },
  { "A5", "a negative dim", st(w_with("[-1]", "[0,1]"), "1"), "integer of 0 or more" },
  { "A5", "a dim of 1.0", st(w_with("[1.0]", "[0,1]"), "1"), "integer of 0 or more" },
  { "A5", "a dim of 1e0", st(w_with("[1e0]", "[0,1]"), "1"), "integer of 0 or more" },
  { "A5", "a dim of 01", st(w_with("[01]", "[0,1]"), "1"), "integer of 0 or more" },
  { "A5", "a shape that is a number", st(w_with("1", "[0,1]"), "1"), "expected '%['" },
  { "A5", "three offsets", st(w_with("[1]", "[0,1,2]"), "1"), "more than 2 numbers" },
  { "A5", "one offset", st(w_with("[1]", "[0]"), "1"), "no range" },
  { "A7", "two entries of one name, U8[4] and F32[1]", st(object(entry("w", "U8", 4, 0, 4), entry("w", "F32", 1, 0, 4)), "1234"), "duplicate key w" },
  { "A7", "two entries of one name, one with an escape", st(object(entry("w", "U8", 4, 0, 4), entry("\\u0077", "F32", 1, 0, 4)), "1234"), "duplicate key w" },
  { "A7", "two dtypes", st('{"w":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}', "1"), "duplicate key dtype" },
  { "A7", "two keys of metadata", st('{"__metadata__":{"a":"1","a":"2"}}', ""), "duplicate key a" },
  { "A7", "metadata twice", st('{"__metadata__":{},"__metadata__":{}}', ""), "duplicate key __metadata__" },
  { "A11", "100,000 levels of nesting", st(("["):rep(100000), "1"), "." },
  { "A11", "100,000 levels inside an entry", st('{"a":' .. ("["):rep(100000), "1"), "." },
  { "A11", "65,537 keys of metadata", function()
    local keys = {}
    for i = 1, 65537 do keys[i] = '"' .. i .. '":""' end
    return st('{"__metadata__":{' .. table.concat(keys, ",") .. "}}", "")
  end, "more than 65536 keys" },
  { "form", "a header that is a list", st("[]", ""), "no JSON object" },
  { "form", "a header that does not end", st("{" .. w, "1"), "expected" },
  { "form", "text after the header's object", st("{" .. w .. "}x", "1"), "text after" },
  { "form", "a NUL after the header's object", st("{" .. w .. "}\0", "1"), "text after" },
  { "form", "a comma too many", st("{" .. w .. ",}", "1"), "no valid JSON" },
  { "form", "a field that is not known", st('{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}}', "1"), "field 'x'" },
  { "form", "an entry without offsets", st('{"w":{"dtype":"U8","shape":[1]}}', "1"), "lacks dtype, shape or data_offsets" },
  { "form", "an empty name", st(object(entry("", "U8", 1, 0, 1)), "1"), "name of 0 bytes" },
  { "form", "a name with an escaped NUL", st(object(entry("a\\u0000", "U8", 1, 0, 1)), "1"), "control characters" },
  { "form", "a name with an escaped line break", st(object(entry("a\\nb", "U8", 1, 0, 1)), "1"), "control characters" },
  { "form", "a name that is not UTF-8", st(object(entry("\255", "U8", 1, 0, 1)), "1"), "not UTF%-8" },
  { "form", "half a surrogate pair", st(object(entry("\\ud800", "U8", 1, 0, 1)), "1"), "bad escape" },
  { "form", "an escape that JSON has not", st(object(entry("\\q", "U8", 1, 0, 1)), "1"), "bad escape" },
  { "form", "metadata that is a number", st('{"__metadata__":{"a":1}}', ""), "is not a string" },
}
for _, c in ipairs(cases) do c.kind, c.command, c.file = "safetensors", "plan", "m.safetensors" end

-- -- Indexes ---------------------------------------------------------------------------------------------------------

local shard = safetensors.build { { name = "w", dtype = "U8", dims = { 1 } } }

local function named(name) return safetensors.index { { "w", name } } end

local before = #cases
for _, c in ipairs {
  { "A7", "a tensor twice", '{"weight_map":{"w":"a.safetensors","w":"b.safetensors"}}', "duplicate key w" },
  { "A7", "weight_map twice", '{"weight_map":{"w":"a.safetensors"},"weight_map":{}}', "duplicate key weight_map" },
  { "A7", "a tensor that two shards hold", safetensors.index { { "w", "a.safetensors" }, { "v", "b.safetensors" } }, "duplicate key w: also in a.safetensors" },
  { "A8", "a shard ../../../etc/passwd", named("../../../etc/passwd"), "not a plain name" },
  { "A8", "a shard /etc/passwd", named("/etc/passwd"), "not a plain name" },
  { "A8", "a shard ..", named(".."), "not a plain name" },
  { "A8", "a shard without a name", named(""), "not a plain name" },
  { "A8", "a shard in a folder", named("a/b.safetensors"), "not a plain name" },
  { "A8", "a shard with an escaped slash", '{"weight_map":{"w":"..\\/a.safetensors"}}', "not a plain name" },
  { "A8", "a shard with a NUL in its name", '{"weight_map":{"w":"a.safetensors\\u0000x"}}', "not a plain name" },
  { "A8", "a shard name of 256 bytes", named(("x"):rep(256)), "not a plain name" },
  { "A8", "a tensor that is not in its shard", named("b.safetensors"), "'w' is not in b.safetensors",
    files = { ["b.safetensors"] = safetensors.build { { name = "v", dtype = "U8", dims = { 1 } } } } },
  { "A8", "a shard that is a symbolic link", named("link.safetensors"), "symbolic link", sh = "ln -s a.safetensors link.safetensors" },
  { "A8", "a shard that is a FIFO", named("fifo.safetensors"), "a FIFO, expected a regular file", sh = "mkfifo fifo.safetensors" },
  { "A8", "a shard that is a folder", named("dir.safetensors"), "a folder, expected a regular file", sh = "mkdir dir.safetensors" },
  { "A8", "a shard that is not there", named("gone.safetensors"), "No such file", exit = 2 },
  { "A11", "4097 shards", function()
    local map = {}
    for i = 1, 4097 do map[i] = { "t" .. i, i .. ".safetensors" } end
    return safetensors.index(map)
  end, "more than 4096 shards" },
  { "A11", "1000 levels of nesting in the metadata", '{"metadata":' .. ("["):rep(1000) .. ("]"):rep(1000) .. ',"weight_map":{"v":"a.safetensors"}}', "nested more than 64" },
  { "form", "an empty index", "", "expected" },
  { "form", "an index that is a list", "[]", "expected" },
  { "form", "no weight_map", "{}", "missing or empty" },
  { "form", "an empty weight_map", '{"weight_map":{}}', "missing or empty" },
  { "form", "a shard that is a number", '{"weight_map":{"w":1}}', "expected" },
  { "form", "text after the index", '{"weight_map":{"w":"a.safetensors"}} x', "text after" },
  { "form", "another member", '{"weight_map":{"w":"a.safetensors"},"other":1}', "also 'other'" },
} do
  c.files = c.files or {}
  c.files["a.safetensors"] = shard
  c.files["b.safetensors"] = c.files["b.safetensors"] or safetensors.build { { name = "w", dtype = "U8", dims = { 1 } }, { name = "v", dtype = "U8", dims = { 1 } } }
  c.kind, c.command, c.file = "index", "plan", "model.safetensors.index.json"
  cases[#cases + 1] = c
end
assert(#cases > before)

return cases
