-- SPDX-License-Identifier: Apache-2.0
--- tpl.core.kernels: exact expansion of GGUF blocks, packed sizes, lists, the probe. Expected values of the expansion: d*.f32 beside the
--- model fixtures in ../shared, made by the numpy reference reader of the `gguf` package; sizes: by hand from the block layouts.
local ffi = require("ffi")
local core = require("tpl.core")
local json = require("tpl.json")

local kernels = core.kernels
local shared = os.getenv("TPL_SHARED") or "../shared"
local models = shared .. "/fixtures/models/"

local read_file = require("spec.support.files").read

--- Every bit of the expansion of a tensor's first rows against the stored floats (zeros by value: references differ in their sign).
local function check_tensor(folder, cp, entry)
  local rows, cols = entry.rows[1], entry.rows[2]
  local info = assert(cp:tensor(entry.tensor))
  local total = 1
  for _, d in ipairs(info.dims) do total = total * d end
  local row_bytes = info.bytes / (total / cols)
  local bytes = assert(read_file(folder .. "/model.gguf", info.offset, row_bytes * rows))
  local got = kernels.dequant(info.dtype, bytes, rows * cols)
  local want = assert(read_file(folder .. "/" .. entry.file))
  local p = ffi.cast("const float *", want)
  assert.equal(#want, 4 * #got)
  local wrong = 0
  for i = 1, #got do
    if got[i] ~= p[i - 1] then wrong = wrong + 1 end
  end
  assert.equal(0, wrong, entry.tensor .. " of " .. folder)
end

local fixtures = {
  "llama-gguf-f16", "llama-gguf-bf16", "llama-gguf-q4_0", "llama-gguf-q4_1", "llama-gguf-q5_0", "llama-gguf-q5_1", "llama-gguf-q8_0",
  "llama-gguf-q4_k", "llama-gguf-q5_k", "llama-gguf-q6_k",
}

describe("tpl.core.kernels.dequant", function()
  for _, name in ipairs(fixtures) do
    it("expands the tensors of " .. name .. " exactly", function()
      local text = read_file(models .. name .. "/dequant.json")
      if not text then return pending("no " .. models .. name) end
      local cp = assert(core.checkpoint.open(models .. name .. "/model.gguf"))
      local checked = 0
      for _, entry in ipairs(assert(json.decode(text)).tensors) do
        local info = cp:tensor(entry.tensor)
        if info and kernels.pack_bytes(info.dtype, 1, 256) then
          check_tensor(models .. name, cp, entry)
          checked = checked + 1
        end
      end
      cp:close()
      assert.is_true(checked > 0)
    end)
  end

  it("raises when bytes and count do not fit, or the type is no weight", function()
    assert.has_error(function() kernels.dequant("q4_0", ("x"):rep(18), 33) end)
    assert.has_error(function() kernels.dequant("q4_0", ("x"):rep(17), 32) end)
    assert.has_error(function() kernels.dequant("i32", ("x"):rep(4), 1) end)
    assert.has_error(function() kernels.dequant("q9", "", 0) end)
  end)
end)

describe("tpl.core.kernels sizes", function()
  it("packs rows in sixteens, to a multiple of 64 bytes", function()
    assert.equal(576 * 18 * 20, kernels.pack_bytes("q4_1", 576, 576))
    assert.equal(16 * 96 * 4, kernels.pack_bytes("f32", 1, 96))
    assert.equal(320, kernels.pack_bytes("q4_0", 16, 32)) -- 16 x 18 = 288
    assert.equal(32 * 210, kernels.pack_bytes("q6_k", 17, 256))
    assert.equal(0, kernels.pack_bytes("q8_0", 0, 32))
  end)
  it("has none for partial blocks, other types and impossible sizes", function()
    assert.is_nil(kernels.pack_bytes("q4_0", 16, 40))
    assert.is_nil(kernels.pack_bytes("i32", 16, 32))
    assert.is_nil(kernels.pack_bytes("f32", 2 ^ 53, 2 ^ 53))
    assert.has_error(function() kernels.pack_bytes("f32", -1, 32) end)
    assert.has_error(function() kernels.pack_bytes("f32", 1.5, 32) end)
  end)
  it("gives the bytes of rows: 32 quants twice, a scale and a scaled sum per block, to 64; bf16 to odd lines of 64", function()
    assert.equal(128, kernels.row_bytes("q8", 32)) -- 2 * 32 + 8 = 72
    assert.equal(1344, kernels.row_bytes("q8_bf16", 576)) -- 2 * 576 + 18 * 8 = 1296
    assert.equal(1216, kernels.row_bytes("bf16", 576)) -- 1152 = 18 lines, one more
    assert.equal(20, kernels.row_bytes("f32", 5))
    assert.has_error(function() kernels.row_bytes("q8", 33) end)
    assert.has_error(function() kernels.row_bytes("i4", 32) end)
  end)
  it("rounds activations to q8 or bf16 for types with blocks, to bf16 for 16-bit floats, not for f32", function()
    for _, t in ipairs { "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k" } do assert.equal("q8_bf16", kernels.wants(t), t) end
    for _, t in ipairs { "f16", "bf16" } do assert.equal("bf16", kernels.wants(t), t) end
    assert.equal("f32", kernels.wants "f32")
  end)
end)

describe("tpl.core.kernels lists", function()
  it("name every instruction set; the best is usable, the portable one always", function()
    local usable = {}
    for _, isa in ipairs(kernels.isas()) do
      usable[isa.name] = isa.usable
      assert.equal(isa.usable, kernels.isa_usable(isa.name))
    end
    assert.is_true(usable.portable)
    assert.is_true(usable[kernels.isa_best()])
    assert.equal("boolean", type(usable.amx))
    assert.is_false(kernels.isa_usable("mmx"))
  end)
  it("name each op once, with types and instruction sets", function()
    local seen = {}
    for _, op in ipairs(kernels.ops()) do
      assert.is_nil(seen[op.name])
      seen[op.name] = op
      assert.equal("cpu", op.backend)
      assert.is_true(#op.dtypes > 0 and op.isa[1] == "portable")
    end
    assert.equal(11, #seen.linear.dtypes)
    assert.is_nil(seen.all_reduce)
  end)
end)

describe("tpl.core.kernels.probe", function()
  it("measures with two threads within its budget", function()
    local start = core.sys.now_us and core.sys.now_us()
    local r = assert(kernels.probe { threads = 2, seconds = 0.02, bytes = 8 * 2 ^ 20 })
    assert.equal(8 * 2 ^ 20, r.read_bytes)
    assert.is_true(r.read_gb_s > 0 and r.f32_gflop_s > 0 and r.barrier_us > 0)
    assert.equal(kernels.isa_best(), r.isa)
    if start then assert.is_true(core.sys.now_us() - start < 10 * 1000 * 1000) end
  end)
  it("refuses what is no crew", function()
    local r, message = kernels.probe { threads = 100000, seconds = 0.01 }
    assert.is_nil(r)
    assert.matches("100000 threads", message)
    assert.has_error(function() kernels.probe { thread = 1 } end)
  end)
end)
