-- SPDX-License-Identifier: Apache-2.0
--- tpl.core.checkpoint on well-formed files. Expected values: spec/fixtures/checkpoint/expected.json, written by Python's struct and json.
local json = require("tpl.json")
local checkpoint = require("tpl.core").checkpoint
local gguf = require("spec.support.gguf_writer")
local safetensors = require("spec.support.safetensors_writer")
local tmpdir = require("spec.support.tmpdir")

local here = "spec/fixtures/checkpoint/"

local slurp = require("spec.support.files").slurp

local expected = json.decode(slurp(here .. "expected.json"))

local function plain(list)
  local out = {}
  for i, v in ipairs(list) do out[i] = v end
  return out
end

describe("tpl.core.checkpoint", function()
  for name, want in pairs(expected) do
    describe("opening " .. name, function()
      local cp
      before_each(function() cp = assert(checkpoint.open(here .. name)) end)
      after_each(function() cp:close() end)

      it("lists every tensor with type, dims in C order, file and absolute offset", function()
        assert.equal(want.kind, cp:kind())
        local got = cp:tensors()
        assert.equal(#want.tensors, #got)
        for i, t in ipairs(want.tensors) do
          local w = { name = t.name, dtype = t.dtype, dims = plain(t.dims), bytes = t.bytes, offset = t.offset, file = t.file or 0 }
          assert.same(w, got[i])
          assert.same(w, cp:tensor(t.name))
        end
      end)

      it("gives every key as a Lua value", function()
        for key, value in pairs(want.kv or {}) do
          local got = cp:kv(key)
          assert.same(type(value) == "table" and plain(value) or value, got)
        end
      end)

      it("knows its files and their sizes", function()
        for _, f in ipairs(cp:files()) do assert.equal(#slurp(f.path), f.size) end
      end)
    end)
  end

  it("reads small plain tensors as numbers", function()
    local cp = assert(checkpoint.open(here .. "v3.gguf"))
    local f = cp:read_f32("output_norm.weight")
    assert.same({ 1, -2.5, 0, 3 }, { f[1], f[2], f[3], f[5] })
    assert.near(1e30, f[4], 1e23)
    assert.same({ 1, -0.5, 65504 }, cp:read_f32("half.weight"))
    assert.same({ 1, -2 }, cp:read_f32("brain.weight"))
    assert.same({ 7 }, assert(checkpoint.open(here .. "single.safetensors")):read_f32("scalar"))
    assert.has_error(function() cp:read_f32("token_embd.weight") end, "tensor 'token_embd.weight' has type q8_0, expected f32, f16 or bf16")
  end)

  it("refuses a type it does not compute with only when it is needed, naming tensor and type", function()
    local cp = assert(checkpoint.open(here .. "v3.gguf"))
    local v, msg, code = cp:read_f32("odd.weight")
    assert.is_nil(v)
    assert.equal("unsupported", code)
    assert.matches("odd.weight.*iq4_nl", msg)
  end)

  it("says too large for integers that a double cannot hold", function()
    local cp = assert(checkpoint.open(here .. "v3.gguf"))
    assert.same({ nil, "too large" }, { cp:kv("t.big") })
    assert.same({ nil, "too large" }, { cp:kv("t.huge") })
    assert.is_nil(cp:kv("t.absent"))
  end)

  it("sorts keys", function()
    local keys = assert(checkpoint.open(here .. "vocab-only.gguf")):keys()
    assert.same({ "general.architecture", "t.i8", "t.u8" }, keys)
  end)

  it("opens a split set from any of its parts", function()
    local cp = assert(checkpoint.open(here .. "split/m-00002-of-00002.gguf"))
    assert.equal(6, #cp:tensors())
    assert.equal("llama", cp:kv("general.architecture"))
    assert.equal(2, #cp:files())
  end)

  it("opens an index by its own path", function()
    assert.equal(6, #assert(checkpoint.open(here .. "sharded/model.safetensors.index.json")):tensors())
  end)

  it("closes twice, raises after close, and cannot be taken for another object", function()
    local cp = assert(checkpoint.open(here .. "v3.gguf"))
    assert.matches("^tpl.checkpoint: ", tostring(cp))
    cp:close()
    cp:close()
    assert.equal("tpl.checkpoint (closed)", tostring(cp))
    assert.has_error(function() cp:kind() end, "tpl.checkpoint is closed")
    assert.has_error(function() cp.kind(io.stdout) end)
    assert.equal("locked", getmetatable(cp))
  end)

  it("survives many opens and collections", function()
    for i = 1, 300 do
      local cp = assert(checkpoint.open(here .. (i % 2 == 0 and "sharded" or "split")))
      if i % 3 == 0 then cp:close() end
    end
    collectgarbage()
    collectgarbage()
    assert.truthy(checkpoint.open(here .. "split"))
  end)

  describe("finding files in a folder", function()
    local dir
    before_each(function() dir = tmpdir.new() end)
    after_each(function() dir:close() end)
    local tensor = { name = "w", dtype = "F32", dims = { 1 } }

    it("takes model.safetensors, then every model-*.safetensors without an index", function()
      dir:write("model-00001-of-00002.safetensors", safetensors.build({ tensor }))
      dir:write("model-00002-of-00002.safetensors", safetensors.build({ { name = "v", dtype = "F32", dims = { 1 } } }))
      dir:write("consolidated.safetensors", "not looked at")
      assert.equal(2, #assert(checkpoint.open(dir.path)):tensors())
      dir:write("model.safetensors", safetensors.build({ tensor }))
      assert.equal(1, #assert(checkpoint.open(dir.path)):tensors())
    end)

    it("takes the only GGUF file, and asks when there are two", function()
      dir:write("a.gguf", gguf.build({ tensors = { { name = "w", dtype = "f32", dims = { 1 } } } }))
      dir:write("mmproj-a.gguf", "not looked at")
      assert.equal("gguf", assert(checkpoint.open(dir.path)):kind())
      dir:write("b.gguf", gguf.build({}))
      local cp, msg, code, where, hint = checkpoint.open(dir.path)
      assert.is_nil(cp)
      assert.equal("arg", code)
      assert.matches("2 GGUF models", msg)
      assert.equal(dir.path, where)
      assert.matches("name the file", hint)
    end)

    it("gives nil, message, io for a missing path and for a folder without weights", function()
      local cp, msg, code = checkpoint.open(dir.path .. "/none")
      assert.same({ nil, "cannot be opened: No such file or directory", "io" }, { cp, msg, code })
      cp, msg, code = checkpoint.open(dir.path)
      assert.is_nil(cp)
      assert.equal("io", code)
      assert.matches("no weights", msg)
    end)

    it("refuses a split set with a missing, foreign or repeated part", function()
      local function part(no, count, total, name)
        return gguf.build({ kv = { { "split.no", "u16", no }, { "split.count", "u16", count }, { "split.tensors.count", "i32", total } },
          tensors = { { name = name, dtype = "f32", dims = { 1 } } } })
      end
      local first = dir:write("m-00001-of-00002.gguf", part(0, 2, 2, "a"))
      assert.equal("io", (select(3, checkpoint.open(first))))
      dir:write("m-00002-of-00002.gguf", part(0, 2, 2, "b"))
      assert.matches("says it is part 0 of 2, expected part 1 of 2", (select(2, checkpoint.open(first))))
      dir:write("m-00002-of-00002.gguf", part(1, 2, 2, "a"))
      assert.matches("duplicate key a", (select(2, checkpoint.open(first))))
      dir:write("m-00002-of-00002.gguf", part(1, 2, 3, "b"))
      assert.matches("split.tensors.count differs", (select(2, checkpoint.open(first))))
      dir:write("m-00001-of-00002.gguf", part(0, 2, 3, "a"))
      assert.matches("hold 2 tensors", (select(2, checkpoint.open(first))))
      local other = dir:write("other.gguf", part(0, 2, 2, "a"))
      assert.matches("not named", (select(2, checkpoint.open(other))))
    end)
  end)

  describe("on the shared reference models", function()
    local shared = os.getenv("TPL_SHARED") or "../shared"
    local probe = io.open(shared .. "/fixtures/models/README.md")
    if probe then probe:close() end

    it("finds every tensor that a folder's expected types and index name", function()
      if not probe then
        pending("../shared is absent")
        return
      end
      local n = 0
      local list = assert(io.popen("ls -d '" .. shared .. "'/fixtures/models/llama-*/"))
      for folder in list:lines() do
        local cp = checkpoint.open(folder)
        if cp then
          n = n + 1
          local index = io.open(folder .. "model.safetensors.index.json")
          if index then
            local map = json.decode(index:read("*a")).weight_map
            index:close()
            for name, file in pairs(map) do
              local t = assert(cp:tensor(name), name)
              assert.equal(file, cp:files()[t.file + 1].path:match("[^/]+$"))
            end
          end
          cp:close()
        else
          assert.matches("smollm2", folder) -- its GGUF is not stored
        end
      end
      list:close()
      assert.equal(38, n)
    end)
  end)
end)
