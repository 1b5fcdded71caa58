-- SPDX-License-Identifier: Apache-2.0
--- tpl.core.checkpoint on hostile files: one block per rule A1 to A12 of facts/reliability.md 2.A. Each case must end in nil and one
--- clear line (criterion C-FILE); memory, time under load, torn reads and allocation failure are in spec/c/checkpoint_test.c.
local checkpoint = require("tpl.core").checkpoint
local json = require("tpl.json")
local gguf = require("spec.support.gguf_writer")
local safetensors = require("spec.support.safetensors_writer")
local tmpdir = require("spec.support.tmpdir")

local function entry(name, dtype, shape, from, to)
  return string.format('"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%s,%s]}', name, dtype, shape, from, to)
end

local function one_tensor(t, o)
  o = o or {}
  o.tensors = { t }
  return gguf.build(o)
end

describe("a hostile checkpoint", function()
  local dir
  setup(function() dir = tmpdir.new() end)
  teardown(function() dir:close() end)

  --- Expect a refusal whose message matches, with a code that leads to exit 6; returns message and where.
  local function refused(bytes, pattern, name)
    local path = dir:write(name or "m.gguf", bytes)
    local cp, msg, code, where = checkpoint.open(path)
    assert.is_nil(cp)
    assert.matches(pattern, msg)
    assert.truthy(code == "format" or code == "unsupported", code)
    assert.truthy(where and where:find(path, 1, true), where)
    assert.is_nil(msg:find("\n"))
    return msg, where
  end

  local function st_refused(header, data, pattern)
    return refused(safetensors.raw(header, data), pattern, "m.safetensors")
  end

  describe("A1 size arithmetic", function()
    it("refuses a dim of SIZE_MAX/4", function()
      refused(one_tensor({ name = "w", dtype = "f32", dims = { 1, 1, 1, 0x3fffffffffffffffULL }, data = "" }), "'w'.*size overflow")
    end)
    it("refuses two tensors of 0x7FFFFFFFFFFFFFC0 bytes", function()
      local huge = { dtype = "i8", dims = { 0x7fffffffffffffc0ULL }, data = "" }
      local a, b = setmetatable({ name = "a" }, { __index = huge }), setmetatable({ name = "b" }, { __index = huge })
      refused(gguf.build({ tensors = { a, b } }), "size overflow")
    end)
    it("refuses a product of dims that is 2^64 + 16", function()
      -- 2^64 + 16 = 16 * 1152921504606846977
      refused(one_tensor({ name = "w", dtype = "i8", dims = { 16, 1152921504606846977ULL }, data = "" }), "size overflow")
    end)
    it("refuses an offset that wraps", function()
      refused(one_tensor({ name = "w", dtype = "f32", dims = { 8 }, offset = 0xffffffffffffffe0ULL }), "size overflow")
    end)
    it("keeps raw size arithmetic out of the readers' allocations", function()
      for file in io.popen("ls core/model/*.c core/model/*.h"):lines() do
        local n = 0
        for line in io.lines(file) do
          n = n + 1
          local arg = line:match("[%s%(=]malloc(%b())") or line:match("[%s%(=]realloc(%b())") or line:match("ckpt_alloc(%b())")
          assert.falsy(arg and not line:match("^%a") and arg:match("[%*%+]"), file .. ":" .. n .. ": " .. line)
          assert.falsy(line:match("[%w%)%]] [%*%+] sizeof") or line:match("sizeof [%w%*_>%-]+ [%*%+] "), file .. ":" .. n .. ": " .. line)
        end
      end
    end)
  end)

  describe("A2 ranges against the real file", function()
    it("refuses a shape larger than its data, naming the tensor", function()
      st_refused("{" .. entry("weights", "F32", "1000000", 0, 4) .. "}", "\0\0\0\0", "'weights'.*4000000 bytes.*4")
    end)
    it("refuses offsets behind the end of the file", function()
      st_refused("{" .. entry("w", "F32", "4", 0, 16) .. "}", "\0\0\0\0", "'w'.*12 bytes short")
      refused(one_tensor({ name = "w", dtype = "f32", dims = { 8 }, offset = 32, data = ("x"):rep(32) }, { pad = false }), "'w'.*32 bytes short")
    end)
    it("refuses a range that ends before it begins", function()
      st_refused("{" .. entry("w", "F32", "1", 4, 0) .. "}", "\0\0\0\0", "no range")
    end)
    it("refuses overlaps, gaps and leftovers", function()
      local two = "{" .. entry("a", "U8", 4, 0, 4) .. "," .. entry("b", "U8", 4, 2, 6) .. "}"
      st_refused(two, "123456", "'b' overlaps 'a'")
      st_refused("{" .. entry("a", "U8", 2, 0, 2) .. "," .. entry("b", "U8", 2, 4, 6) .. "}", "123456", "2 unused bytes between 'a'.*'b'")
      st_refused("{" .. entry("a", "U8", 2, 0, 2) .. "}", "123456", "4 unused bytes after 'a'")
      local t = { name = "a", dtype = "f32", dims = { 16 } }
      refused(gguf.build({ tensors = { t, { name = "b", dtype = "f32", dims = { 8 }, offset = 32 } } }), "'b' overlaps 'a'")
      refused(one_tensor({ name = "w", dtype = "f32", dims = { 8 }, offset = 4 }), "not a multiple of 32")
    end)
    it("accepts tensors listed in another order than their bytes", function()
      local path = dir:write("o.safetensors", safetensors.raw("{" .. entry("a", "U8", 2, 4, 6) .. "," .. entry("b", "U8", 4, 0, 4) .. "}", "123456"))
      assert.equal(2, #assert(checkpoint.open(path)):tensors())
    end)
  end)

  describe("A3 shape products", function()
    it("refuses three factors whose product wraps to the stated length", function()
      st_refused("{" .. entry("w", "U8", "4194305,4194305,211106198978564", 0, 16) .. "}", ("x"):rep(16), "size overflow")
    end)
    it("refuses more than 8 dims, and more than 4 in GGUF", function()
      st_refused("{" .. entry("w", "U8", "1,1,1,1,1,1,1,1,1", 0, 1) .. "}", "x", "more than 8")
      refused(one_tensor({ name = "w", dtype = "f32", dims = { 1 }, n_dims = 5 }), "5 dims, at most 4")
      refused(one_tensor({ name = "w", dtype = "f32", dims = { 1 }, n_dims = 0xffffffff }), "dims, at most 4")
    end)
    it("refuses more than 2^48 elements of nothing", function()
      st_refused("{" .. entry("w", "U8", "281474976710657,0", 0, 0) .. "}", "", "size overflow")
    end)
  end)

  describe("A4 counts and lengths", function()
    it("refuses a 24-byte file with 2^62 keys", function()
      local _, where = refused(gguf.build({ n_kv = 0x4000000000000000ULL }), "4611686018427387904 keys do not fit")
      assert.matches(":24$", where)
      refused(gguf.build({ n_tensors = 0x4000000000000000ULL }), "tensors do not fit")
    end)
    it("refuses a string of 2^63 bytes", function()
      local kv = { "k", "raw", gguf.int(8, 4) .. gguf.int(0x8000000000000000ULL, 8) }
      refused(gguf.build({ kv = { kv }, n_kv = 1 }) .. ("x"):rep(64), "string of 9223372036854775808 bytes")
      refused(gguf.build({ kv = { { "k", "raw", gguf.int(8, 4) .. gguf.int(100, 8) } } }), "string of 100 bytes, only 0 are left")
    end)
    it("refuses arrays of 2^30 and of 2^62", function()
      for _, n in ipairs({ 0x40000000ULL, 0x4000000000000000ULL }) do
        for _, elem in ipairs({ 0, 8, 12 }) do
          refused(gguf.build({ kv = { { "k", "raw", gguf.int(9, 4) .. gguf.int(elem, 4) .. gguf.int(n, 8) } } }), "array of %d+")
        end
      end
    end)
    it("refuses a header length beyond the file or the cap", function()
      refused(safetensors.raw("{}", "", 1000), "998 bytes short", "m.safetensors")
      refused(safetensors.raw("{}", "", 0xffffffffffffffffULL), "at most 100000000", "m.safetensors")
      refused("short", "neither GGUF nor safetensors", "m.safetensors")
      refused("", "neither GGUF nor safetensors", "m.safetensors")
    end)
    it("refuses a file that ends anywhere inside the header", function()
      local whole = gguf.build({ kv = { { "a", "str", "x" }, { "b", "array", "i32", { 1, 2 } } }, tensors = { { name = "w", dtype = "f32", dims = { 2, 2 } } } })
      for n = 0, #whole - 33 do
        local cp, msg, code = checkpoint.open(dir:write("cut.gguf", whole:sub(1, n)))
        assert.is_nil(cp, "opened with " .. n .. " bytes")
        assert.equal("format", code, msg)
      end
      local st = safetensors.build({ { name = "w", dtype = "F32", dims = { 2 } } }, { metadata = { a = "b" } })
      for n = 0, #st - 1 do assert.is_nil((checkpoint.open(dir:write("cut.safetensors", st:sub(1, n))))) end
    end)
  end)

  describe("A5 numbers that are divided by", function()
    it("refuses a GGUF dim of 0", function()
      refused(one_tensor({ name = "w", dtype = "f32", dims = { 4, 0 }, data = "" }), "a dim is 0")
    end)
    it("refuses rows that are not whole blocks", function()
      refused(one_tensor({ name = "w", dtype = "q4_0", dims = { 32, 33 }, data = ("x"):rep(640) }), "not whole blocks of 32")
      refused(one_tensor({ name = "w", dtype = "q4_k", dims = { 8, 32 }, data = ("x"):rep(256) }), "not whole blocks of 256")
    end)
    it("refuses removed and unknown types cleanly", function()
      for _, id in ipairs({ 4, 5, 31, 32, 33, 36, 37, 38 }) do
        refused(one_tensor({ name = "w", dtype = "f32", dims = { 1 }, type_id = id }), "type " .. id .. ", which was removed")
      end
      for _, id in ipairs({ 43, 1000, 0xffffffff }) do
        refused(one_tensor({ name = "w", dtype = "f32", dims = { 1 }, type_id = id }), "which is not known")
      end
      st_refused("{" .. entry("w", "F33", 1, 0, 4) .. "}", "1234", "'w' has dtype 'F33'")
    end)
    it("reads config integers of every bad kind without a crash (their ranges: lua/tpl/config)", function()
      for _, text in ipairs({ "0", "-1", "1e30", "2147483648", "9223372036854775808", '"8"', "null", "1.5" }) do
        assert.not_nil(json.decode('{"num_hidden_layers":' .. text .. "}").num_hidden_layers)
      end
      assert.is_nil(json.decode("{}").num_hidden_layers)
    end)
  end)

  describe("A6 alignment", function()
    it("refuses what is no power of two up to 65536", function()
      for _, a in ipairs({ 0, 3, 48, 0x20000, 0x80000000, 0xffffffff }) do
        refused(gguf.build({ kv = { { "general.alignment", "u32", a } } }), "general.alignment' is " .. string.format("%.0f", a))
      end
    end)
    it("refuses another type than u32", function()
      refused(gguf.build({ kv = { { "general.alignment", "u64", 32 } } }), "is u64, expected u32")
      refused(gguf.build({ kv = { { "general.alignment", "str", "32" } } }), "is str, expected u32")
      refused(gguf.build({ kv = { { "general.alignment", "array", "u32", { 32 } } } }), "expected u32")
    end)
    it("accepts 1 and 65536", function()
      for _, a in ipairs({ 1, 8, 65536 }) do
        local path = dir:write("a.gguf", one_tensor({ name = "w", dtype = "i8", dims = { 3 } }, { align = a }))
        assert.equal(0, assert(checkpoint.open(path)):tensor("w").offset % a)
      end
    end)
  end)

  describe("A7 duplicates", function()
    it("refuses two tensors of one name", function()
      st_refused("{" .. entry("w", "U8", 4, 0, 4) .. "," .. entry("w", "F32", 1, 0, 4) .. "}", "1234", "duplicate key w")
      local t = { name = "w", dtype = "f32", dims = { 8 } }
      refused(gguf.build({ tensors = { t, t } }), "duplicate key w")
    end)
    it("sees through escapes", function()
      st_refused("{" .. entry("w", "U8", 4, 0, 4) .. "," .. entry("\\u0077", "F32", 1, 0, 4) .. "}", "1234", "duplicate key w")
    end)
    it("refuses two fields, keys, metadata keys or shard entries of one name", function()
      st_refused('{"w":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}', "1", "duplicate key dtype")
      st_refused('{"__metadata__":{"a":"1","a":"2"}}', "", "duplicate key a")
      st_refused('{"__metadata__":{},"__metadata__":{}}', "", "duplicate key __metadata__")
      refused(gguf.build({ kv = { { "k", "u8", 1 }, { "k", "u32", 2 } } }), "duplicate key k")
      refused('{"weight_map":{"w":"a.safetensors","w":"b.safetensors"}}', "duplicate key w", "model.safetensors.index.json")
      refused('{"weight_map":{"w":"a.safetensors"},"weight_map":{}}', "duplicate key weight_map", "model.safetensors.index.json")
    end)
    it("refuses a tensor that two shards hold", function()
      dir:write("s1.safetensors", safetensors.build({ { name = "w", dtype = "U8", dims = { 1 } } }))
      dir:write("s2.safetensors", safetensors.build({ { name = "w", dtype = "U8", dims = { 1 } }, { name = "v", dtype = "U8", dims = { 1 } } }))
      local path = dir:write("two.json", safetensors.index({ { "w", "s1.safetensors" }, { "v", "s2.safetensors" } }))
      local cp, msg = checkpoint.open(path)
      assert.is_nil(cp)
      assert.matches("duplicate key w: also in s1.safetensors", msg)
    end)
  end)

  describe("A8 shard names", function()
    local function index_refused(shard, pattern)
      return refused(safetensors.index({ { "w", shard } }), pattern, "model.safetensors.index.json")
    end
    it("refuses anything but a plain name", function()
      for _, shard in ipairs({ "../../../etc/passwd", "/etc/passwd", "..", ".", "", "a/b.safetensors", "a b", "caf\195\169", "x\\y" }) do
        index_refused(shard, "not a plain name")
      end
    end)
    local function shard_refused(pattern)
      local path = dir:write("model.safetensors.index.json", safetensors.index({ { "w", "s.safetensors" } }))
      local cp, msg, code = checkpoint.open(path)
      assert.is_nil(cp)
      assert.matches(pattern, msg)
      assert.equal("format", code)
      dir:sh("rm -rf s.safetensors")
    end
    it("refuses a symbolic link, a FIFO, a folder and a device, without waiting", function()
      dir:write("real.safetensors", safetensors.build({ { name = "w", dtype = "U8", dims = { 1 } } }))
      dir:sh("ln -s real.safetensors s.safetensors")
      shard_refused("symbolic link")
      dir:sh("ln -s ../../blobs/zz s.safetensors")
      shard_refused("symbolic link")
      dir:sh("mkfifo s.safetensors")
      shard_refused("a FIFO")
      dir:sh("mkdir s.safetensors")
      shard_refused("a folder")
      for _, path in ipairs({ "/dev/zero", "/dev/null" }) do
        local cp, msg, code = checkpoint.open(path)
        assert.same({ nil, "is a character device, expected a regular file", "format" }, { cp, msg, code })
      end
      dir:sh("mkfifo pipe.gguf")
      assert.equal("is a FIFO, expected a regular file", (select(2, checkpoint.open(dir.path .. "/pipe.gguf"))))
    end)
    it("follows the links of a Hugging Face cache", function()
      local hex = ("0123456789abcdef"):rep(4)
      dir:sh("mkdir -p hub/blobs hub/snapshots/r1")
      dir:write("hub/blobs/" .. hex, safetensors.build({ { name = "w", dtype = "U8", dims = { 1 } } }))
      dir:write("hub/snapshots/r1/model.safetensors.index.json", safetensors.index({ { "w", "s.safetensors" } }))
      dir:sh("ln -s ../../blobs/" .. hex .. " hub/snapshots/r1/s.safetensors")
      assert.equal(1, #assert(checkpoint.open(dir.path .. "/hub/snapshots/r1")):tensors())
    end)
    it("names a missing shard and a tensor that is not where the index says", function()
      local path = dir:write("i.json", safetensors.index({ { "w", "gone.safetensors" } }))
      local _, msg, code, where = checkpoint.open(path)
      assert.equal("io", code)
      assert.matches("No such file", msg)
      assert.matches("gone.safetensors", where)
      dir:write("s3.safetensors", safetensors.build({ { name = "v", dtype = "U8", dims = { 1 } } }))
      refused(safetensors.index({ { "w", "s3.safetensors" } }), "'w' is not in s3.safetensors", "i.json")
    end)
    it("refuses an index that is no index", function()
      for _, text in ipairs({ "", "[]", "{}", '{"weight_map":{}}', '{"weight_map":{"w":1}}', '{"weight_map":{"w":"s3.safetensors"}} x',
        '{"weight_map":{"w":"s3.safetensors"},"other":1}', '{"metadata":{"a":1,"a":2},"weight_map":{"v":"s3.safetensors"}}',
        '{"metadata":' .. ("["):rep(1000) .. ("]"):rep(1000) .. ',"weight_map":{"v":"s3.safetensors"}}' }) do
        refused(text, ".", "i.json")
      end
    end)
  end)

  describe("A9 truncated files", function()
    it("names the tensor at every edge, one byte short and whole", function()
      local tensors = {}
      for i = 1, 4 do tensors[i] = { name = "t" .. i, dtype = "f32", dims = { 8 * i } } end
      local whole = gguf.build({ tensors = tensors })
      local cp = assert(checkpoint.open(dir:write("whole.gguf", whole)))
      for i, t in ipairs(cp:tensors()) do
        local last = t.offset + t.bytes
        refused(whole:sub(1, last - 1), "'t" .. i .. "'.*1 bytes short")
        if i < 4 then refused(whole:sub(1, last), "'t" .. i + 1 .. "'.*short") end
        refused(whole:sub(1, t.offset), "'t" .. i .. "'.*" .. t.bytes .. " bytes short")
      end
    end)
    it("ends a read of a file that shrank in an error, not in a signal", function()
      local path = dir:write("shrinks.gguf", one_tensor({ name = "w", dtype = "f32", dims = { 1000 } }))
      local cp = assert(checkpoint.open(path))
      dir:write("shrinks.gguf", "")
      local v, msg, code, where = cp:read_f32("w")
      assert.is_nil(v)
      assert.matches("tensor 'w': the file ends here, 4000 bytes short", msg)
      assert.equal("format", code)
      assert.matches("shrinks.gguf:%d+$", where)
    end)
  end)

  describe("A10 vocabulary entries", function()
    it("hands byte tokens over as text and never reads a meaning into them (rules: core/token)", function()
      local tokens = { "<0x-1>", "<0xGG>", "<0x0A>", "\255\254", "a\0b" }
      local path = dir:write("v.gguf", gguf.build({ kv = { { "tokenizer.ggml.tokens", "array", "str", tokens } } }))
      assert.same(tokens, assert(checkpoint.open(path)):kv("tokenizer.ggml.tokens"))
    end)
  end)

  describe("A11 very many entries", function()
    it("refuses more than 1,000,000 tensors or 65,536 keys by their count", function()
      local filler = ("\0"):rep(1000001 * 24)
      refused(gguf.build({ n_tensors = 1000001 }) .. filler, "at most 1000000")
      refused(gguf.build({ n_kv = 65537 }) .. filler, "at most")
    end)
    it("opens 100,000 empty tensors at once", function()
      local parts = {}
      for i = 1, 100000 do parts[i] = entry("t" .. i, "U8", 0, 0, 0) end
      local path = dir:write("many.safetensors", safetensors.raw("{" .. table.concat(parts, ",") .. "}", ""))
      local from = os.clock()
      local cp = assert(checkpoint.open(path))
      assert.equal("t100000", cp:tensor("t100000").name)
      assert.truthy(os.clock() - from < 1)
    end)
  end)

  describe("A12 code in the folder", function()
    it("ignores it with one warning", function()
      dir:sh("mkdir code")
      dir:write("code/model.safetensors", safetensors.build({ { name = "w", dtype = "U8", dims = { 1 } } }))
      assert.is_nil(assert(checkpoint.open(dir.path .. "/code")):warning())
      for _, name in ipairs({ "modeling.py", "policy.lua", "pytorch_model.bin" }) do dir:write("code/" .. name, "raise SystemExit") end
      local warning = assert(checkpoint.open(dir.path .. "/code")):warning()
      assert.matches("^ignored, never opened: ", warning)
      for _, name in ipairs({ "modeling.py", "policy.lua", "pytorch_model.bin" }) do assert.truthy(warning:find(name, 1, true)) end
    end)
    it("says that a pickle is not opened when there is nothing else", function()
      dir:sh("mkdir pickle")
      dir:write("pickle/pytorch_model.bin", "cos\nsystem\n")
      local cp, msg, code, _, hint = checkpoint.open(dir.path .. "/pickle")
      assert.is_nil(cp)
      assert.equal("unsupported", code)
      assert.matches("no weights", msg)
      assert.matches("pytorch_model.bin", hint)
    end)
  end)

  describe("of the wrong form", function()
    it("has the wrong magic, version or byte order", function()
      refused(gguf.build({ magic = "GGML" }), "no GGUF file")
      refused(gguf.build({ version = 1 }), "version 1, expected 2 or 3")
      refused(gguf.build({ version = 4 }), "version 4")
      refused(gguf.build({ version = 0x03000000 }), "other byte order")
    end)
    it("has keys or values that GGUF does not define", function()
      refused(gguf.build({ kv = { { "", "u8", 1 } } }), "empty key")
      refused(gguf.build({ kv = { { "k\n", "u8", 1 } } }), "not printable ASCII")
      refused(gguf.build({ kv = { { "k\195\169", "u8", 1 } } }), "not printable ASCII")
      refused(gguf.build({ kv = { { "k", "raw", gguf.int(13, 4) .. ("x"):rep(8) } } }), "value type 13")
      refused(gguf.build({ kv = { { "k", "raw", gguf.int(9, 4) .. gguf.int(9, 4) .. gguf.int(0, 8) } } }), "array of arrays")
      refused(gguf.build({ kv = { { "k", "bool", 2 } } }), "neither 0 nor 1")
      refused(gguf.build({ kv = { { "k", "array", "bool", { 1, 255 } } } }), "neither 0 nor 1")
    end)
    it("has bad tensor names", function()
      refused(one_tensor({ name = "", dtype = "f32", dims = { 1 } }), "name of 0 bytes")
      refused(one_tensor({ name = ("n"):rep(64), dtype = "f32", dims = { 1 } }), "64 bytes, at most 63")
      refused(one_tensor({ name = "a\0b", dtype = "f32", dims = { 1 } }), "control characters")
      refused(one_tensor({ name = "a\255", dtype = "f32", dims = { 1 } }), "not UTF%-8")
      st_refused("{" .. entry("", "U8", 1, 0, 1) .. "}", "1", "name of 0 bytes")
      st_refused("{" .. entry("a\\u0000", "U8", 1, 0, 1) .. "}", "1", "control characters")
    end)
    it("has a header that is no strict JSON object of entries", function()
      local good = entry("w", "U8", 1, 0, 1)
      for _, header in ipairs({ "[]", " {}", "{", "{" .. good, "{" .. good .. ",}", "{" .. good .. "}x", "{" .. good .. "}\0", "{,}", "{w:1}", '{"w":1}',
        '{"w":{}}', '{"w":[]}', '{"w":{"dtype":"U8","shape":[1]}}', '{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}}',
        '{"w":{"dtype":8,"shape":[1],"data_offsets":[0,1]}}', '{"w":{"dtype":"U8","shape":1,"data_offsets":[0,1]}}',
        "{" .. entry("w", "U8", "-1", 0, 1) .. "}", "{" .. entry("w", "U8", "1.0", 0, 1) .. "}", "{" .. entry("w", "U8", "1e0", 0, 1) .. "}",
        "{" .. entry("w", "U8", "01", 0, 1) .. "}", "{" .. entry("w", "U8", "9223372036854775808", 0, 1) .. "}", "{" .. entry("w", "U8", "1", 0, "1,2") .. "}",
        "{" .. entry("w", "U8", "1,", 0, 1) .. "}", "{" .. entry("\255", "U8", 1, 0, 1) .. "}", "{" .. entry("\\ud800", "U8", 1, 0, 1) .. "}",
        "{" .. entry("\\q", "U8", 1, 0, 1) .. "}", '{"__metadata__":{"a":1}}', '{"__metadata__":[]}', ("["):rep(100000), '{"a":' .. ("["):rep(100000) }) do
        st_refused(header, "1", ".")
      end
      assert.truthy(checkpoint.open(dir:write("g.safetensors", safetensors.raw('{\n "w" : {"data_offsets":[ 0 , 1 ],"shape":[1], "dtype":"U8"} } \n', "1"))))
    end)
  end)
end)
