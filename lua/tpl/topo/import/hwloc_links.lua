-- SPDX-License-Identifier: Apache-2.0
--- Make NVLink facts of hwloc's matrix "NVLinkBandwidth": MB/s one way, between GPUs, NVSwitch ports and CPU packages.
-- GPUs behind NVSwitch have zeros between them: all switches of a host are one fabric (hwloc_distances_transform MERGE_SWITCH_PORTS, NCCL's
-- topo.cc), and two GPUs have through it what the one with fewer links has. Packages (POWER8 and 9: NVLink to the CPU) join nothing.
local xml = require("tpl.xml")

local M = {}

local MAX_OBJECTS = 1024

-- hwloc writes versions times a constant (topology-nvml.c): 20000 for NVLink 1, 25000 for 2 to 4, 50000 for 5.
local function per_link(gpu)
  local name = gpu.device.name or ""
  if gpu.device_id == "15f9" or name:find("P100") then return 20000 end
  return (name:find("B[23]00") or name:find("GB[23]00")) and 50000 or 25000
end

-- Boards with GA102 bridges: hwloc's constant is not their speed (14.0625 GB/s a link).
local function is_slow_bridge(gpu)
  local name = gpu.device.name or ""
  return name:find("RTX") or name:find("A40$")
end

local function words_of(node, tag)
  local out = {}
  for part in xml.each(node, tag) do
    for word in (part.text or ""):gmatch("%S+") do
      out[#out + 1] = word
      if #out > MAX_OBJECTS * MAX_OBJECTS then return out end
    end
  end
  return out
end

local function find_matrix(root)
  for _, tag in ipairs { "distances2hetero", "distances2" } do
    for node in xml.each(root, tag) do
      if node.attr.name == "NVLinkBandwidth" then return node, tag end
    end
  end
end

--- Sum up what each GPU has to switches, in MB/s, and say whether some two GPUs have no switch in common.
local function to_switches(n, gpu_at, is_switch, cell)
  local sums, apart, first = {}, false, nil
  for i = 1, n do
    local g, own = gpu_at[i], {}
    for j = 1, n do
      if g and is_switch[j] and cell(i, j) > 0 then
        sums[g] = (sums[g] or 0) + cell(i, j)
        own[j] = true
      end
    end
    if sums[g or 0] then
      local meets = first == nil
      for j in pairs(first or {}) do meets = meets or own[j] or false end
      first, apart = first or own, apart or not meets
    end
  end
  return sums, apart
end

--- Read the matrix of a file.
---@param root tpl.XmlNode
---@param s table           gpus, by_id ("OSDev:802" -> place in gpus), switches ("PCIDev:381" -> true)
---@param whole boolean     false: the file breaks off
---@param doubt fun(node: table?, code: string, message: string)
---@return fun(i: integer, j: integer): table?   {nvlinks=, via_switch=, gb_s=} or nil
---@return boolean any
function M.read(root, s, whole, doubt)
  local function none() return nil end
  local node, tag = find_matrix(root)
  if not node then return none, false end
  local ids, values = words_of(node, "indexes"), words_of(node, "u64values")
  local n = #ids
  if n > MAX_OBJECTS or tonumber(node.attr.nbobjs or "") ~= n or #values > n * n or (#values < n * n and whole) then
    doubt(node, "bad_matrix", ("NVLinkBandwidth is for %s objects, but has %d names and %d values: left out"):format(tostring(node.attr.nbobjs):sub(1, 20), n, #values))
    return none, false
  end
  if #values < n * n then doubt(node, "bad_matrix", ("NVLinkBandwidth breaks off after %d of %d values: the rest is unknown"):format(#values, n * n)) end
  local gpu_at, is_switch, seen = {}, {}, {}
  for i, id in ipairs(ids) do
    local key = tag == "distances2" and (node.attr.type or "") .. ":" .. id or id
    if not seen[key] then gpu_at[i], is_switch[i] = s.by_id[key], not s.by_id[key] and key:find("^PCIDev:") ~= nil end
    seen[key] = true
  end
  local function cell(i, j)
    local v = tonumber(values[(i - 1) * n + j])
    return v and v > 0 and v < 1e9 and v or 0
  end
  local sums, apart = to_switches(n, gpu_at, is_switch, cell)
  if apart then
    doubt(node, "switches_merged", "GPUs are at different NVSwitches and the file does not say how these are joined: taken for one fabric, as NCCL and hwloc do")
  end
  local at_gpu = {}
  for i = 1, n do if gpu_at[i] then at_gpu[gpu_at[i]] = i end end
  local joined, any = {}, false
  for a = 1, #s.gpus do
    for b = a + 1, #s.gpus do
      local i, j = at_gpu[a], at_gpu[b]
      if i and j then
        local there, back = cell(i, j), cell(j, i)
        if there ~= back and #values == n * n then
          doubt(node, "nvlink_asymmetric", ("%s to %s has %d MB/s, the way back %d: the less is taken"):format(s.gpus[a].device.uid, s.gpus[b].device.uid, there, back))
        end
        local switched = math.min(sums[a] or 0, sums[b] or 0)
        local mb_s = math.min(there, back) + switched
        if mb_s > 0 then
          any = true
          local slow = is_slow_bridge(s.gpus[a])
          joined[a * 4096 + b] = { nvlinks = math.max(1, math.floor(mb_s / per_link(s.gpus[a]) + 0.5)), via_switch = switched > 0 or nil,
            gb_s = not slow and mb_s / 1000 or nil }
        end
      end
    end
  end
  return function(i, j) return joined[i * 4096 + j] end, any
end

return M
