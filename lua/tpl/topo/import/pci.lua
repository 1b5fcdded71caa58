-- SPDX-License-Identifier: Apache-2.0
--- What the importers of PCI trees (NCCL XML, lstopo XML) share: addresses, CPU masks, names of GPUs by device id, and links
--- between devices from where they hang in the tree.
local M = {}

--- Write a PCI address as the record has it: "0000:0f:00.0", lower case; nil for a text that is none.
---@param text string?   "0F:00.0", "0000:0f:00.0", "00000000:0F:00.0", "0000:0f:00"
---@return string?
function M.address(text)
  local t = (text or ""):lower():gsub("^%s+", ""):gsub("%s+$", "")
  if t:find("^%x+:%x%x?:%x%x?$") then t = t .. ".0" end
  local domain, bus, dev, fn = t:match("^(%x+):(%x%x?):(%x%x?)%.(%x)$")
  if not domain then
    bus, dev, fn = t:match("^(%x%x?):(%x%x?)%.(%x)$")
    domain = "0"
  end
  if not bus or #domain > 8 then return nil end
  return ("%04x:%02x:%02x.%s"):format(tonumber(domain, 16), tonumber(bus, 16), tonumber(dev, 16), fn)
end

--- Write CPU numbers (sorted, without repeats) as "0-3,8".
local function as_ranges(cpus)
  local out, i = {}, 1
  while i <= #cpus do
    local j = i
    while cpus[j + 1] == cpus[j] + 1 do j = j + 1 end
    out[#out + 1] = i == j and tostring(cpus[i]) or cpus[i] .. "-" .. cpus[j]
    i = j + 1
  end
  return table.concat(out, ",")
end

local MAX_GROUPS = 512 -- of 32 CPUs each

--- Read a CPU mask: hex groups of 32 CPUs, most significant first, as NCCL ("000000ff,ffff0000") and hwloc ("0xff,,0x3") write
--- them. A group of fewer than 8 digits is right-aligned.
---@param text string?
---@return string? cpus       "0-3,8"; nil for no mask, a bad one, or one without CPUs
---@return string? complaint  what is odd about the text
function M.cpus_of_mask(text)
  if not text or text == "" then return nil end
  local groups, short, long = {}, false, #text > 16 * MAX_GROUPS
  if long then text = "" end
  for group in (text .. ","):gmatch("([^,]*),") do
    group = group:gsub("^%s*0x", ""):gsub("%s", "")
    if group:find("[^%x]") or #group > 8 then long = true end
    short = short or (#groups > 0 or text:find(",", 1, true)) and #group > 0 and #group < 8
    groups[#groups + 1] = group
  end
  if long or #groups > MAX_GROUPS then return nil, ("CPU mask '%s' is not groups of at most 8 hex digits"):format(text:sub(1, 80)) end
  local cpus = {}
  for i = #groups, 1, -1 do
    local bits, base = tonumber(groups[i], 16) or 0, (#groups - i) * 32
    for b = 0, 31 do
      if math.floor(bits / 2 ^ b) % 2 == 1 then cpus[#cpus + 1] = base + b end
    end
  end
  local complaint = short and ("CPU mask '%s' has a group of fewer than 8 digits: taken as its lowest bits"):format(text:sub(1, 80)) or nil
  if #cpus == 0 then return nil, complaint end
  return as_ranges(cpus), complaint
end

--- Say which numbers are set in a mask, such as the node set of an object.
function M.numbers_of_mask(text)
  local out = {}
  for part in (M.cpus_of_mask(text) or ""):gmatch("[^,]+") do
    local from, to = part:match("^(%d+)%-?(%d*)$")
    for i = tonumber(from), tonumber(to) or tonumber(from) do out[#out + 1] = i end
  end
  return out
end

-- Names that nvidia-smi prints, by PCI device id (pci-ids.ucw.cz, vendor 10de; NVIDIA's list of supported products). SXM boards
-- sit on NVLink by their make; the others may have bridges.
local names = {
  ["15f8"] = "Tesla P100-PCIE-16GB", ["15f9"] = "Tesla P100-SXM2-16GB", ["1db1"] = "Tesla V100-SXM2-16GB", ["1db4"] = "Tesla V100-PCIE-16GB",
  ["1db5"] = "Tesla V100-SXM2-32GB", ["1db6"] = "Tesla V100-PCIE-32GB", ["1db8"] = "Tesla V100-SXM3-32GB", ["1eb8"] = "Tesla T4",
  ["20b0"] = "NVIDIA A100-SXM4-40GB", ["20b2"] = "NVIDIA A100-SXM4-80GB", ["20b5"] = "NVIDIA A100 80GB PCIe", ["20b7"] = "NVIDIA A30",
  ["20f1"] = "NVIDIA A100-PCIE-40GB", ["20f3"] = "NVIDIA A800-SXM4-80GB", ["20f5"] = "NVIDIA A800 80GB PCIe",
  ["2204"] = "NVIDIA GeForce RTX 3090", ["2230"] = "NVIDIA RTX A6000", ["2235"] = "NVIDIA A40", ["2236"] = "NVIDIA A10", ["2237"] = "NVIDIA A10G",
  ["2322"] = "NVIDIA H800 PCIe", ["2324"] = "NVIDIA H800", ["2329"] = "NVIDIA H20", ["2330"] = "NVIDIA H100 80GB HBM3", ["2331"] = "NVIDIA H100 PCIe",
  ["2321"] = "NVIDIA H100 NVL", ["2335"] = "NVIDIA H200", ["233b"] = "NVIDIA H200 NVL", ["2342"] = "NVIDIA GH200 480GB",
  ["2684"] = "NVIDIA GeForce RTX 4090", ["26b5"] = "NVIDIA L40", ["26b9"] = "NVIDIA L40S", ["27b8"] = "NVIDIA L4",
  ["2901"] = "NVIDIA B200", ["2941"] = "NVIDIA GB200", ["2b85"] = "NVIDIA GeForce RTX 5090",
}
local sxm = { ["15f9"] = true, ["1db1"] = true, ["1db5"] = true, ["1db8"] = true, ["20b0"] = true, ["20b2"] = true, ["20f3"] = true, ["2324"] = true,
  ["2329"] = true, ["2330"] = true, ["2335"] = true, ["2901"] = true, ["2941"] = true }

--- Name a GPU by its PCI device id ("0x2330" or "2330"); nil for one that the table does not have.
function M.gpu_name(device) return names[(device or ""):lower():gsub("^0x", "")] end

--- Say whether the board of a device id is made for NVLink (SXM), so that a file without NVLink leaves something out.
function M.is_sxm(device) return sxm[((device or ""):lower():gsub("^0x", ""))] or false end

local generation = { ["2.5"] = 1, ["5"] = 2, ["5.0"] = 2, ["8"] = 3, ["8.0"] = 3, ["16"] = 4, ["16.0"] = 4, ["32"] = 5, ["32.0"] = 5, ["64"] = 6, ["64.0"] = 6 }

--- Give the PCIe generation of a speed text such as "16 GT/s" or "32.0 GT/s PCIe", nil for another.
function M.generation(speed) return generation[(speed or ""):match("^%s*([%d.]+)%s*GT/s") or ""] end

--- Give GB/s one way as NCCL counts them: lanes x 0.1875, 0.375, 0.75, 1.5, 3, 6 (16 lanes: 3, 6, 12, 24, 48, 96).
function M.nccl_gb_s(gen, width) return gen and width and width * 0.1875 * 2 ^ (gen - 1) end

-- The words of nvidia-smi, nearest first.
M.order = { pix = 1, pxb = 2, phb = 3, node = 4, sys = 5 }

--- Give the farther of two path words; nil counts as unknown and stays out.
function M.worse(a, b)
  if not a or not b then return a or b end
  return M.order[a] >= M.order[b] and a or b
end

--- Make the links of a record: every pair of devices once, `word(i, j)` gives the PCIe word, `nvlink(i, j)` nil or
--- {nvlinks=, via_switch=, gb_s=, kind=}.
---@param uids string[]
---@return table[]
function M.links(uids, word, nvlink)
  local out = {}
  for i = 1, #uids do
    for j = i + 1, #uids do
      local w, n = word(i, j), nvlink(i, j)
      if n then
        out[#out + 1] = { a = uids[i], b = uids[j], kind = "nvlink", pcie = w, nvlinks = n.nvlinks, via_switch = n.via_switch, gb_s = n.gb_s,
          source = "stated" }
      elseif w then
        out[#out + 1] = { a = uids[i], b = uids[j], kind = w, pcie = w, source = "stated" }
      end
    end
  end
  return out
end

return M
