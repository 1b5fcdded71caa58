-- SPDX-License-Identifier: Apache-2.0
--- Know the common NVIDIA GPUs: peak rates by type, memory and its bandwidth, links. Data only, with a lookup by the
--- names that nvidia-smi prints and by the words of `--assume`.
-- Peaks are dense (no sparsity) in 1e12 operations a second, as the cited document gives them; tensor rates of GeForce
-- cards with float32 sums. mem_mib is the total that nvidia-smi prints for the card with a current driver and ECC as it is
-- shipped; gb_s is 1e9 bytes a second.
local M = {}

---@class tpl.cost.Gpu
---@field words string[]       each a set of tokens that a name must hold; the longest match over all rows wins
---@field sm string
---@field mem_mib integer?     nil: shared with the CPU
---@field gb_s number
---@field tflops table<string, number>
---@field nvlinks integer      0: none (or by a bridge that a machine may lack)
---@field pcie {gen: integer, width: integer}
---@field source string

local function row(words, sm, mem_mib, gb_s, tflops, nvlinks, pcie_gen, source)
  return { words = words, name = words[1], sm = sm, mem_mib = mem_mib, gb_s = gb_s, tflops = tflops, nvlinks = nvlinks,
    pcie = { gen = pcie_gen, width = 16 }, source = source }
end

local list = {
  -- Pascal, Volta, Turing
  row({ "p100 sxm 16gb", "p100 sxm" }, "6.0", 16384, 732, { f32 = 10.6, f16 = 21.2 }, 4, 3, "Tesla P100 whitepaper WP-08019, table 1"),
  row({ "p100 pcie 16gb", "p100 pcie", "p100" }, "6.0", 16384, 732, { f32 = 9.3, f16 = 18.7 }, 0, 3, "Tesla P100 PCIe datasheet"),
  row({ "v100 sxm 16gb", "v100 sxm", "v100 sxm3 16gb" }, "7.0", 16384, 900, { f32 = 15.7, f16 = 125 }, 6, 3, "V100 datasheet (Jan 2020)"),
  row({ "v100 sxm 32gb", "v100 dgxs 32gb", "v100 32gb" }, "7.0", 32768, 900, { f32 = 15.7, f16 = 125 }, 6, 3, "V100 datasheet (Jan 2020)"),
  row({ "v100 pcie 16gb", "v100 pcie", "v100" }, "7.0", 16384, 900, { f32 = 14, f16 = 112 }, 0, 3, "V100 datasheet (Jan 2020)"),
  row({ "v100 pcie 32gb" }, "7.0", 32768, 900, { f32 = 14, f16 = 112 }, 0, 3, "V100 datasheet (Jan 2020)"),
  row({ "t4" }, "7.5", 15360, 320, { f32 = 8.1, f16 = 65, i8 = 130 }, 0, 3, "T4 datasheet"),
  -- Ampere
  row({ "a2" }, "8.6", 15356, 200, { f32 = 4.5, bf16 = 18, i8 = 36 }, 0, 4, "A2 datasheet"),
  row({ "a10" }, "8.6", 23028, 600, { f32 = 31.2, bf16 = 125, i8 = 250 }, 0, 4, "A10 datasheet"),
  row({ "a10g" }, "8.6", 23028, 600, { f32 = 35, bf16 = 70, i8 = 140 }, 0, 4, "A10G datasheet (AWS G5)"),
  row({ "a16" }, "8.6", 15356, 200, { f32 = 4.5, bf16 = 17.9, i8 = 35.9 }, 0, 4, "A16 datasheet, one of four GPUs"),
  row({ "a30" }, "8.0", 24576, 933, { f32 = 10.3, bf16 = 165, i8 = 330 }, 4, 4, "A30 datasheet"),
  row({ "a40" }, "8.6", 46068, 696, { f32 = 37.4, bf16 = 149.7, i8 = 299.3 }, 4, 4, "A40 datasheet"),
  row({ "a100 sxm 40gb" }, "8.0", 40960, 1555, { f32 = 19.5, bf16 = 312, i8 = 624 }, 12, 4, "A100 datasheet (May 2020)"),
  row({ "a100 sxm 80gb", "a100 80gb", "a100 sxm", "a100" }, "8.0", 81920, 2039, { f32 = 19.5, bf16 = 312, i8 = 624 }, 12, 4,
    "A100 80GB datasheet (Jun 2021)"),
  row({ "a100 pcie 40gb", "a100 40gb" }, "8.0", 40960, 1555, { f32 = 19.5, bf16 = 312, i8 = 624 }, 12, 4, "A100 datasheet (May 2020)"),
  row({ "a100 pcie 80gb", "a100 pcie", "a100x" }, "8.0", 81920, 1935, { f32 = 19.5, bf16 = 312, i8 = 624 }, 12, 4,
    "A100 80GB datasheet (Jun 2021)"),
  row({ "a800 sxm 80gb", "a800 sxm", "a800" }, "8.0", 81920, 2039, { f32 = 19.5, bf16 = 312, i8 = 624 }, 8, 4,
    "A100 datasheet, NVLink of 400 GB/s: facts/topology.md section 9"),
  row({ "a800 pcie 80gb", "a800 80gb pcie" }, "8.0", 81920, 1935, { f32 = 19.5, bf16 = 312, i8 = 624 }, 8, 4, "A100 80GB datasheet"),
  row({ "a800 40gb", "a800 40gb active" }, "8.0", 40960, 1555, { f32 = 19.5, bf16 = 312, i8 = 624 }, 8, 4, "A800 40GB Active datasheet"),
  row({ "rtx 3090" }, "8.6", 24576, 936, { f32 = 35.6, bf16 = 71, i8 = 284 }, 4, 4, "GA102 whitepaper V2.1, table 3"),
  row({ "rtx a4000", "a4000" }, "8.6", 16376, 448, { f32 = 19.2, bf16 = 76.7, i8 = 153.4 }, 0, 4, "RTX A4000 datasheet"),
  row({ "rtx a5000", "a5000" }, "8.6", 24564, 768, { f32 = 27.8, bf16 = 111.1, i8 = 222.2 }, 4, 4, "RTX A5000 datasheet"),
  row({ "rtx a5500", "a5500" }, "8.6", 24564, 768, { f32 = 34.1, bf16 = 136.4, i8 = 272.8 }, 4, 4, "RTX A5500 datasheet"),
  row({ "rtx a6000", "a6000" }, "8.6", 49140, 768, { f32 = 38.7, bf16 = 154.8, i8 = 309.7 }, 4, 4, "RTX A6000 datasheet"),
  -- Ada
  row({ "l4" }, "8.9", 23034, 300, { f32 = 30.3, bf16 = 121, fp8 = 242, i8 = 242 }, 0, 4, "L4 datasheet"),
  row({ "l40" }, "8.9", 46068, 864, { f32 = 90.5, bf16 = 181, fp8 = 362, i8 = 362 }, 0, 4, "L40 datasheet"),
  row({ "l40s" }, "8.9", 46068, 864, { f32 = 91.6, bf16 = 362, fp8 = 733, i8 = 733 }, 0, 4, "L40S datasheet"),
  row({ "rtx 4090" }, "8.9", 24564, 1008, { f32 = 82.6, bf16 = 165.2, fp8 = 330.3, i8 = 660.6 }, 0, 4, "Ada whitepaper V2.1, table 2"),
  row({ "rtx 6000 ada", "rtx 6000 ada generation" }, "8.9", 49140, 960, { f32 = 91.1, bf16 = 364.2, fp8 = 728.5, i8 = 728.5 }, 0, 4,
    "RTX 6000 Ada datasheet"),
  -- Hopper
  row({ "h100 sxm 80gb", "h100 80gb hbm3", "h100 sxm", "h100 hbm3", "h100" }, "9.0", 81559, 3352,
    { f32 = 66.9, bf16 = 989.4, fp8 = 1978.9, i8 = 1978.9 }, 18, 5, "H100 whitepaper V1.04, table 2"),
  row({ "h100 pcie 80gb", "h100 pcie" }, "9.0", 81559, 2039, { f32 = 51.2, bf16 = 756, fp8 = 1513, i8 = 1513 }, 12, 5,
    "H100 whitepaper V1.04, table 2"),
  row({ "h100 nvl 94gb", "h100 nvl" }, "9.0", 95830, 3938, { f32 = 60, bf16 = 835, fp8 = 1671, i8 = 1671 }, 12, 5, "H100 datasheet (NVL)"),
  row({ "h800 sxm 80gb", "h800 80gb hbm3", "h800" }, "9.0", 81559, 3352, { f32 = 66.9, bf16 = 989.4, fp8 = 1978.9, i8 = 1978.9 }, 8, 5,
    "H100 whitepaper, NVLink of 400 GB/s: facts/topology.md section 9"),
  row({ "h800 pcie 80gb", "h800 pcie" }, "9.0", 81559, 2039, { f32 = 51.2, bf16 = 756, fp8 = 1513, i8 = 1513 }, 8, 5, "H100 whitepaper"),
  row({ "h20 96gb", "h20 sxm", "h20" }, "9.0", 97871, 4000, { f32 = 44, bf16 = 148, fp8 = 296, i8 = 296 }, 18, 5, "H20 figures as vendors list them"),
  row({ "h20 3e", "h20 141gb" }, "9.0", 143771, 4800, { f32 = 44, bf16 = 148, fp8 = 296, i8 = 296 }, 18, 5, "H20-3e figures as vendors list them"),
  row({ "h200 sxm 141gb", "h200 sxm", "h200" }, "9.0", 143771, 4800, { f32 = 66.9, bf16 = 989.4, fp8 = 1978.9, i8 = 1978.9 }, 18, 5,
    "H200 datasheet"),
  row({ "h200 nvl 141gb", "h200 nvl" }, "9.0", 143771, 4800, { f32 = 60, bf16 = 835, fp8 = 1671, i8 = 1671 }, 12, 5, "H200 datasheet (NVL)"),
  row({ "gh200 480gb", "gh200 96gb", "gh200" }, "9.0", 97871, 4000, { f32 = 66.9, bf16 = 989.4, fp8 = 1978.9, i8 = 1978.9 }, 18, 5,
    "GH200 datasheet"),
  row({ "gh200 144g hbm3e", "gh200 144gb" }, "9.0", 146831, 4900, { f32 = 66.9, bf16 = 989.4, fp8 = 1978.9, i8 = 1978.9 }, 18, 5,
    "GH200 datasheet (HBM3e)"),
  -- Blackwell
  row({ "b200 sxm 180gb", "b200" }, "10.0", 183359, 8000, { f32 = 75, bf16 = 2250, fp8 = 4500, i8 = 4500, fp4 = 9000 }, 18, 5,
    "Blackwell architecture brief, HGX B200"),
  row({ "b300 sxm 288gb", "b300" }, "10.3", 275040, 8000, { f32 = 75, bf16 = 2250, fp8 = 4500, i8 = 150, fp4 = 13500 }, 18, 6,
    "HGX B300 datasheet"),
  row({ "gb200" }, "10.0", 189471, 8000, { f32 = 80, bf16 = 2500, fp8 = 5000, i8 = 5000, fp4 = 10000 }, 18, 5, "GB200 NVL72 datasheet"),
  row({ "gb300" }, "10.3", 284208, 8000, { f32 = 80, bf16 = 2500, fp8 = 5000, i8 = 165, fp4 = 15000 }, 18, 6, "GB300 NVL72 datasheet"),
  row({ "rtx 5090" }, "12.0", 32607, 1792, { f32 = 104.8, bf16 = 209.5, fp8 = 419, i8 = 838, fp4 = 1676 }, 0, 5,
    "RTX Blackwell whitepaper V1.1, table 3"),
  row({ "rtx pro 6000 blackwell", "rtx pro 6000", "rtx pro 6000 96gb" }, "12.0", 97887, 1792,
    { f32 = 125, bf16 = 503.8, fp8 = 1007.6, i8 = 1007.6, fp4 = 2015.2 }, 0, 5, "RTX PRO 6000 Workstation datasheet"),
  row({ "rtx pro 6000 blackwell server", "rtx pro 6000 server", "rtx pro 6000 blackwell server edition" }, "12.0", 97887, 1597,
    { f32 = 117, bf16 = 468, fp8 = 937, i8 = 937, fp4 = 1874 }, 0, 5, "RTX PRO 6000 Server datasheet"),
  row({ "gb10" }, "12.1", nil, 273, { f32 = 31, bf16 = 125, fp8 = 250, i8 = 250, fp4 = 500 }, 0, 5, "DGX Spark datasheet (128 GB shared)"),
}
M.list = list

-- Tokens that make another card of it unless a row asks for them.
local other_card = { laptop = true, ti = true, super = true, d = true, max = true, mobile = true, se = true, vgpu = true, grid = true, quadro = true }
local noise = { nvidia = true, tesla = true, geforce = true, graphics = true, device = true }

local function tokens(name)
  local out = {}
  for w in name:lower():gsub("^grid%s+", "grid "):gmatch("[%w]+") do
    w = w:gsub("^sxm%d$", "sxm"):gsub("^(%d+)g$", "%1gb"):gsub("^edition$", ""):gsub("^workstation$", "")
    local number = w:match("^rtx(%w+)$") -- "rtx4090" is how people write it
    if number then out.rtx, w = true, number end
    if w ~= "" and not noise[w] then out[w] = true end
  end
  return out
end

local compiled = {}
for _, gpu in ipairs(list) do
  for _, words in ipairs(gpu.words) do
    local set, n = tokens(words), 0
    for _ in pairs(set) do n = n + 1 end
    compiled[#compiled + 1] = { set = set, n = n, gpu = gpu }
  end
end

local function holds(have, want)
  for w in pairs(want) do if not have[w] then return false end end
  for w in pairs(have) do if other_card[w] and not want[w] then return false end end
  return true
end

local found = {}

--- Find a GPU by a name that nvidia-smi prints ("NVIDIA H100 80GB HBM3") or by a word ("h100-sxm-80gb").
---@param name string
---@return tpl.cost.Gpu?
function M.find(name)
  if found[name] ~= nil then return found[name] or nil end
  local have, best = tokens(name), nil
  for _, c in ipairs(compiled) do
    if (not best or c.n > best.n) and holds(have, c.set) then best = c end
  end
  found[name] = best and best.gpu or false
  return best and best.gpu
end

return M
