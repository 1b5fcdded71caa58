-- SPDX-License-Identifier: Apache-2.0
--- Bytes of quantised checkpoints. Expected: hand arithmetic over the layouts in facts/models.md section 2, and the exact sizes of
--- the reference models in ../shared, which other programs wrote.
local configs = require("spec.support.configs")
local json = require("tpl.json")
local models = require("spec.support.models")
local pattern = require("tpl.shape.pattern")
local read_file = require("spec.support.files").read
local shape = require("tpl.shape")

-- Linear parameters of Llama 70B: 80 x (q, o 8192 x 8192; k, v 1024 x 8192; three of 28672 x 8192).
local LINEAR_70B = 80 * (2 * 8192 * 8192 + 2 * 1024 * 8192 + 3 * 28672 * 8192)
local REST_70B = 2 * (2 * 128256 * 8192 + 161 * 8192) -- embedding, head, norms

describe("tpl.shape of quantised models", function()
  it("adds one scale a row for fp8 by channel", function()
    local rows = 80 * (8192 + 1024 + 1024 + 8192 + 28672 + 28672 + 8192)
    assert.equal(LINEAR_70B + 2 * rows + REST_70B, configs.shape("llama-3.3-70b-fp8").weight_bytes)
    assert.equal("fp8", configs.shape("llama-3.3-70b-fp8").weight_dtype)
  end)

  it("adds two scales a matrix for fp8 of ModelOpt", function()
    assert.equal(LINEAR_70B + 80 * 7 * 8 + REST_70B, configs.shape("llama-3.3-70b-fp8-modelopt").weight_bytes)
  end)

  it("leaves alone what a list names: attention and two layers of the 405B", function()
    local s = configs.shape("llama-3.1-405b-fp8")
    local mlp = 3 * 53248 * 16384
    assert.equal(2 * mlp, s.layers[1].mlp_bytes)
    assert.equal(mlp + 4 * (2 * 53248 + 16384), s.layers[2].mlp_bytes)
    assert.equal(2 * (2 * 16384 * 16384 + 2 * 1024 * 16384), s.layers[2].attn_bytes)
    assert.equal(s.layers[1], s.layers[126])
  end)

  it("packs the experts of gpt-oss alone", function()
    -- 24 883 200 weights an expert (7.1 of the fact sheet: 13.2 MB), 4.25 bits each, and 5760 + 2880 biases in bf16
    local s = configs.shape("gpt-oss-120b")
    assert.equal(128 * (24883200 * 4.25 / 8 + 2 * (5760 + 2880)), s.layers[1].expert_bytes)
    assert.equal(90, s.units.expert) -- 2880 / 32
  end)

  it("counts scales and zeros of int4 groups", function()
    -- 2880 = 90 groups of 32: half a byte a weight, half a byte a zero, two bytes a scale
    local l = configs.shape("gpt-oss-120b-awq").layers[1]
    local weights = 24883200
    assert.equal(128 * (weights / 2 + weights / 32 / 2 + weights / 32 * 2 + 2 * (5760 + 2880)), l.expert_bytes)
    assert.equal(2 * (2 * 4096 * 2880 + 2 * 512 * 2880 + 4096 + 2 * 512 + 2880 + 64), l.attn_bytes)
  end)

  it("refuses a method whose layout it does not know", function()
    local config = configs.config("llama-3.1-8b")
    config.quantization_config = { quant_method = "quip" }
    local s, e = shape.of(config)
    assert.is_nil(s)
    assert.same({ "unsupported", 6 }, { e.code, e.exit })
    assert.matches("awq", e.hint)
  end)
end)

describe("tpl.shape.pattern", function()
  local function matches(entry, name) return pattern.compile(entry)(name) end

  it("reads globs, names and parts of names", function()
    assert.is_true(matches("model.layers.*.self_attn", "model.layers.3.self_attn.q_proj"))
    assert.is_false(matches("model.layers.*.self_attn", "model.layers.3.mlp.router"))
    assert.is_true(matches("lm_head", "lm_head"))
    assert.is_true(matches("gate", "model.layers.0.block_sparse_moe.gate"))
    assert.is_false(matches("gate", "model.layers.0.mlp.gate_proj"))
    assert.is_true(matches("model.layers.0.mlp.up_proj", "model.layers.0.mlp.up_proj"))
    assert.is_false(matches("model.layers.1.mlp.up_proj", "model.layers.11.mlp.up_proj"))
  end)

  it("reads the expressions of compressed-tensors, from the start of the name", function()
    assert.is_true(matches("re:.*mlp.gate$", "model.layers.9.mlp.gate"))
    assert.is_false(matches("re:.*mlp.gate$", "model.layers.9.mlp.gate_proj"))
    assert.is_true(matches("re:.*\\.(q|k|v)_proj", "model.layers.9.self_attn.k_proj"))
    assert.is_false(matches("re:.*\\.(q|k|v)_proj", "model.layers.9.self_attn.o_proj"))
    assert.is_true(matches("re:model\\.layers\\.\\d+\\.mlp\\.(gate|(up|down))_proj", "model.layers.12.mlp.down_proj"))
    assert.is_false(matches("re:layers", "model.layers.1.mlp"))
  end)

  it("matches nothing by an expression that is beyond it", function()
    for _, re in ipairs { "re:(a", "re:(ab)+c", "re:x{3}", "re:[a" } do assert.is_false(matches(re, "ab")) end
  end)
end)

-- -- Reference models --------------------------------------------------------------------------------------------------

-- What a folder holds beside the weights of the language model.
local extra = {
  ["deepseek-v3"] = "a layer for several tokens at a time, which is not loaded",
  ["gemma3-wrapped"] = "a vision tower, which is not loaded",
  ["llama-gptq-sym"] = "biases of zeros, which AutoGPTQ writes",
}

local function u64(text)
  local n = 0
  for i = 8, 1, -1 do n = n * 256 + text:byte(i) end
  return n
end

local function tensors_in(folder)
  local out = {}
  local list = assert(io.popen("ls '" .. folder .. "'/*.safetensors 2>/dev/null"))
  for path in list:lines() do
    local text = read_file(path)
    for name, t in pairs((assert(json.decode(text:sub(9, 8 + u64(text)))))) do
      if name ~= "__metadata__" then
        out[#out + 1] = { name = name, dtype = t.dtype, dims = t.shape, bytes = t.data_offsets[2] - t.data_offsets[1] }
      end
    end
  end
  list:close()
  return out
end

local function sum(tensors)
  local n = 0
  for _, t in ipairs(tensors) do n = n + t.bytes end
  return n
end

describe("tpl.shape of the reference models", function()
  local root = models.shared() .. "/fixtures/models"
  if not read_file(root .. "/README.md") then
    pending(root .. " is not there (TPL_SHARED names the shared folder)")
    return
  end
  local n, list = 0, assert(io.popen("ls -d '" .. root .. "'/*/"))
  for folder in list:lines() do
    local name = folder:match("([^/]+)/$")
    local text = read_file(folder .. "config.json")
    if text then
      n = n + 1
      it("is exact for " .. name .. (extra[name] and ", but for " .. extra[name] or ""), function()
        local config, tensors = assert(json.decode(text)), tensors_in(folder)
        local s = assert(shape.of(config))
        if not extra[name] then assert.equal(sum(tensors), s.weight_bytes) end
        assert.is_true(s.weight_bytes <= sum(tensors))
        local exact = assert(shape.of(config, tensors))
        assert.is_true(exact.exact)
        if name == "llama-gptq-sym" then return end -- the zeros count
        for i, l in ipairs(s.layers) do
          for _, key in ipairs { "attn_bytes", "kv_proj_bytes", "mlp_bytes", "expert_bytes", "norm_bytes", "weight_bytes" } do
            if not (name:find("^phi3") or name:find("^gpt2")) or key ~= "kv_proj_bytes" then
              assert.equal(l[key], exact.layers[i][key], i .. " " .. key)
            end
          end
        end
        if name ~= "gemma3-wrapped" then assert.equal(s.embed_bytes, exact.embed_bytes) end
        assert.equal(s.head_bytes, exact.head_bytes)
      end)
    end
  end
  list:close()
  it("are more than forty", function() assert.is_true(n > 40, tostring(n)) end)
end)
