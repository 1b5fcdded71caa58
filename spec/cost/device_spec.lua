-- SPDX-License-Identifier: Apache-2.0
--- The table of GPUs and what is made of it. Expected: NVIDIA's datasheets as each row cites them; names as nvidia-smi prints them.
local cost = require("tpl.cost")
local gpus = require("tpl.cost.gpus")

local function gpu(name) return { uid = "GPU0", kind = "gpu", name = name } end

-- printed name, MiB, GB/s, dense bf16 (f16 before Ampere) TFLOP/s
local printed = {
  { "Tesla P100-SXM2-16GB", 16384, 732, 21.2 }, { "Tesla V100-SXM2-16GB", 16384, 900, 125 }, { "Tesla V100-SXM2-32GB", 32768, 900, 125 },
  { "Tesla V100-PCIE-32GB", 32768, 900, 112 }, { "Tesla T4", 15360, 320, 65 }, { "NVIDIA A10", 23028, 600, 125 },
  { "NVIDIA A10G", 23028, 600, 70 }, { "NVIDIA A16", 15356, 200, 17.9 }, { "NVIDIA A2", 15356, 200, 18 }, { "NVIDIA A30", 24576, 933, 165 },
  { "NVIDIA A40", 46068, 696, 149.7 }, { "NVIDIA A100-SXM4-40GB", 40960, 1555, 312 }, { "NVIDIA A100-SXM4-80GB", 81920, 2039, 312 },
  { "NVIDIA A100-PCIE-40GB", 40960, 1555, 312 }, { "NVIDIA A100 80GB PCIe", 81920, 1935, 312 }, { "NVIDIA A800-SXM4-80GB", 81920, 2039, 312 },
  { "NVIDIA L4", 23034, 300, 121 }, { "NVIDIA L40", 46068, 864, 181 }, { "NVIDIA L40S", 46068, 864, 362 },
  { "NVIDIA GeForce RTX 3090", 24576, 936, 71 }, { "NVIDIA GeForce RTX 4090", 24564, 1008, 165.2 }, { "NVIDIA GeForce RTX 5090", 32607, 1792, 209.5 },
  { "NVIDIA RTX A4000", 16376, 448, 76.7 }, { "NVIDIA RTX A5000", 24564, 768, 111.1 }, { "NVIDIA RTX A5500", 24564, 768, 136.4 },
  { "NVIDIA RTX A6000", 49140, 768, 154.8 }, { "NVIDIA RTX 6000 Ada Generation", 49140, 960, 364.2 },
  { "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97887, 1792, 503.8 }, { "NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, 1597, 468 },
  { "NVIDIA H100 PCIe", 81559, 2039, 756 }, { "NVIDIA H100 80GB HBM3", 81559, 3352, 989.4 }, { "NVIDIA H100 NVL", 95830, 3938, 835 },
  { "NVIDIA H800", 81559, 3352, 989.4 }, { "NVIDIA H20", 97871, 4000, 148 }, { "NVIDIA H200", 143771, 4800, 989.4 }, { "NVIDIA H200 NVL", 143771, 4800, 835 },
  { "NVIDIA GH200 480GB", 97871, 4000, 989.4 }, { "NVIDIA B200", 183359, 8000, 2250 }, { "NVIDIA GB200", 189471, 8000, 2500 },
}

describe("tpl.cost.device", function()
  for _, row in ipairs(printed) do
    it("knows " .. row[1], function()
      local d = assert(cost.device(gpu(row[1])))
      assert.equal(row[2] * 2 ^ 20, d.mem_bytes)
      assert.equal(row[3], d.mem_gb_s)
      assert.is_true(math.abs(d.flops.bf16 / (row[4] * 1e12) - 1) < 1e-9, tostring(d.flops.bf16))
      assert.equal("table", d.source)
    end)
  end

  it("knows the words of --assume", function()
    for word, name in pairs { ["h100-sxm-80gb"] = "NVIDIA H100 80GB HBM3", ["h100-pcie-80gb"] = "NVIDIA H100 PCIe", ["a100-sxm-40gb"] = "NVIDIA A100-SXM4-40GB",
      ["a100-80gb"] = "NVIDIA A100-SXM4-80GB", ["l40s"] = "NVIDIA L40S", ["rtx-4090"] = "NVIDIA GeForce RTX 4090", ["v100-sxm-32gb"] = "Tesla V100-SXM2-32GB",
      ["b200"] = "NVIDIA B200", ["h200"] = "NVIDIA H200", ["rtx-6000-ada"] = "NVIDIA RTX 6000 Ada Generation" } do
      assert.equal(assert(cost.device(gpu(name))), assert(cost.device(gpu(word))), word)
    end
  end)

  it("takes no card for one with a like name", function()
    for _, name in ipairs { "NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "Quadro RTX 6000",
      "NVIDIA GeForce RTX 2080 Ti", "AMD Instinct MI300X", "NVIDIA H1000", "" } do
      local d, e = cost.device(gpu(name))
      assert.is_nil(d, name)
      assert.matches("%-%-assume", e.hint)
      assert.equal(6, e.exit)
    end
    assert.matches("does not say", select(2, cost.device(gpu())).message)
  end)

  it("has rows with a source, and words that find the row they stand in", function()
    for _, row in ipairs(gpus.list) do
      assert.is_true(#row.source > 5)
      for _, words in ipairs(row.words) do assert.equal(row, gpus.find(words), words) end
    end
  end)

  it("gives a slice its parts of a card", function()
    local whole = assert(cost.device(gpu("NVIDIA H100 80GB HBM3")))
    local d = assert(cost.device { uid = "MIG-1", kind = "mig", name = "NVIDIA H100 80GB HBM3", mig = { profile = "3g.40gb" } })
    assert.equal(whole.mem_gb_s / 2, d.mem_gb_s) -- 4 of 8 slices of memory
    assert.is_true(math.abs(d.flops.bf16 / whole.flops.bf16 - 3 / 7) < 1e-9)
    assert.equal("mig", d.kind)
  end)

  it("makes CPU ranks of what a probe measured", function()
    local probe = { cpu = "some CPU", read_gb_s = 34, matrix_gflop_s = { f32 = 460, bf16 = 6700, i8 = 13000 }, barrier_us = 0.09 }
    local d = assert(cost.device({ uid = "cpu0", kind = "cpu" }, { probe = probe }))
    assert.same({ "cpu", "probe", 34, 6700e9, 460e9 }, { d.kind, d.source, d.mem_gb_s, d.flops.bf16, d.flops.f32 })
    assert.equal("table", assert(cost.device { uid = "cpu0", kind = "cpu" }).source)
  end)
end)

describe("tpl.cost.ops", function()
  local d = { mem_gb_s = 1000, flops = { bf16 = 1e14, f32 = 1e13 }, efficiency = { mem = { bf16 = 0.5 }, flops = 0.5 }, launch_us = 2 }

  it("takes the larger of bytes and operations, and the launch", function()
    -- 1 MB at 500 GB/s: 2 us; 1e9 operations at 5e13 a second: 20 us
    assert.is_true(math.abs(cost.ops({ { kind = "read", bytes = 1e6, flops = 0, dtype = "bf16" } }, d) - 4) < 1e-9)
    assert.is_true(math.abs(cost.ops({ { kind = "matmul", bytes = 1e6, flops = 1e9, dtype = "bf16" } }, d) - 22) < 1e-9)
    assert.is_true(math.abs(cost.ops({ { bytes = 1e6 }, { bytes = 1e6 } }, d) - 8) < 1e-9)
  end)

  it("falls back to a type the device has", function()
    assert.equal(cost.ops({ { bytes = 0, flops = 1e12, dtype = "bf16" } }, d), cost.ops({ { bytes = 0, flops = 1e12, dtype = "awq" } }, d))
    assert.equal(cost.ops({ { bytes = 0, flops = 1e12, dtype = "bf16" } }, d), cost.ops({ { bytes = 0, flops = 1e12, dtype = "fp8" } }, d))
  end)
end)
