-- SPDX-License-Identifier: Apache-2.0
--- tpl.core.checkpoint under the rules A1 to A12 of facts/reliability.md 2.A, as far as one bad file does not show them: what must be
--- accepted, every place of an edge, files that change, kinds of files. The named bad files are in spec/hostile/, torn reads and
--- allocation failure in spec/c/checkpoint_test.c.
local checkpoint = require("tpl.core").checkpoint
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
  local function refused(bytes, pattern)
    local path = dir:write("m.gguf", bytes)
    local cp, msg, code, where = checkpoint.open(path)
    assert.is_nil(cp)
    assert.matches(pattern, msg)
    assert.truthy(code == "format" or code == "unsupported", code)
    assert.truthy(where and where:find(path, 1, true), where)
    assert.is_nil(msg:find("\n"))
    return msg, where
  end

  describe("A1 size arithmetic", function()
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
    it("accepts tensors listed in another order than their bytes", function()
      local path = dir:write("o.safetensors", safetensors.raw("{" .. entry("a", "U8", 2, 4, 6) .. "," .. entry("b", "U8", 4, 0, 4) .. "}", "123456"))
      assert.equal(2, #assert(checkpoint.open(path)):tensors())
    end)
  end)

  describe("A4 counts and lengths", function()
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
    it("refuses removed and unknown types cleanly", function()
      for _, id in ipairs({ 4, 5, 31, 32, 33, 36, 37, 38 }) do
        refused(one_tensor({ name = "w", dtype = "f32", dims = { 1 }, type_id = id }), "type " .. id .. ", which was removed")
      end
      for _, id in ipairs({ 43, 1000, 0xffffffff }) do
        refused(one_tensor({ name = "w", dtype = "f32", dims = { 1 }, type_id = id }), "which is not known")
      end
    end)
  end)

  describe("A6 alignment", function()
    it("accepts 1 and 65536", function()
      for _, a in ipairs({ 1, 8, 65536 }) do
        local path = dir:write("a.gguf", one_tensor({ name = "w", dtype = "i8", dims = { 3 } }, { align = a }))
        assert.equal(0, assert(checkpoint.open(path)):tensor("w").offset % a)
      end
    end)
  end)

  describe("A8 shard names", function()
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

  it("is told from a good header with blanks and members in another order", function()
    assert.truthy(checkpoint.open(dir:write("g.safetensors", safetensors.raw('{\n "w" : {"data_offsets":[ 0 , 1 ],"shape":[1], "dtype":"U8"} } \n', "1"))))
  end)
end)
