-- SPDX-License-Identifier: Apache-2.0
--- Make NVLink facts of the <nvlink> tags in NCCL's topology files: which pairs, how many links, through switches or not.
-- NCCL joins all NVSwitches into one and neither notices a link to oneself nor asks for the way back (topo.cc, 2.30); here both are doubts,
-- and a pair counts only what both ends state.
local pci = require("tpl.topo.import.pci")
local xml = require("tpl.xml")

local M = {}

local function is_switch_class(class) return class:find("^0x0680") ~= nil and not class:find("^0x068001") end

-- NCCL's word for a peer that cannot be seen: "fffffff:ffff:ff", as in virtual machines.
local function is_hidden(target) return target:find("^fffffff") ~= nil end

--- Sum up the tags of one GPU: per target address {count, class, line, node}.
local function tags_of(g, max, doubt)
  local out, order = {}, {}
  for link in xml.each(g.gpu, "nvlink") do
    local target, count = link.attr.target or "", tonumber(link.attr.count or "")
    local key = pci.address(target) or target:lower()
    if not count or count ~= math.floor(count) or count < 1 or count > max then
      doubt(link, "bad_nvlink", ("NVLink count '%s' of %s: left out"):format(tostring(link.attr.count):sub(1, 20), g.device.uid))
    elseif key ~= "" and key == g.device.pci then
      doubt(link, "self_link", ("%s names itself as its NVLink peer (a known fault of published files): left out, so its real peers are unknown"):format(g.device.uid))
    elseif not out[key] then
      out[key] = { count = count, class = (link.attr.tclass or ""):lower(), node = link }
      order[#order + 1] = key
    else
      out[key].count = out[key].count + count
    end
  end
  return out, order
end

--- Decide for every target: a GPU of the file, a switch, the CPU's own bridge, or nothing that is known.
---@param gpus table[]      {device={uid, pci, host}, gpu=<gpu> node or nil, order=place in the file}
---@param whole boolean     false: the file breaks off, so a missing way back says nothing
---@param max integer       most links of one tag that are believed
---@param doubt fun(node: table?, code: string, message: string)
---@return fun(i: integer, j: integer): table?   {nvlinks=, via_switch=} or nil
---@return {any: boolean}
function M.read(gpus, whole, max, doubt)
  local by_address, direct, switched, named = {}, {}, {}, {}
  for i, g in ipairs(gpus) do if g.device.pci then by_address[g.device.host .. "/" .. g.device.pci] = i end end
  local tags = {}
  for i, g in ipairs(gpus) do
    tags[i] = {}
    if g.gpu then
      local list, order = tags_of(g, max, doubt)
      tags[i] = { list = list, order = order }
      for _, key in ipairs(order) do named[key] = (named[key] or 0) + 1 end
    end
  end
  local any = false
  for i, g in ipairs(gpus) do
    direct[i], switched[i] = {}, 0
    for _, key in ipairs(tags[i].order or {}) do
      local tag = tags[i].list[key]
      local peer = by_address[g.device.host .. "/" .. key]
      if is_hidden(key) or is_switch_class(tag.class) and not peer then
        switched[i] = switched[i] + tag.count
      elseif tag.class:find("^0x068001") then
        any = true -- towards the CPU (POWER): no link between devices
      elseif peer then
        direct[i][peer] = tag.count
      elseif tag.class == "" and (named[key] or 0) > 1 then
        switched[i] = switched[i] + tag.count
        doubt(tag.node, "nvlink_target", ("%s has no class and several GPUs name it: taken for a NVSwitch"):format(key))
      else
        doubt(tag.node, "nvlink_target", ("%s has %d NVLinks to %s, which is not in the file"):format(g.device.uid, tag.count, key:sub(1, 40)))
      end
    end
  end
  local function pair(i, j)
    local there, back = direct[i][j], direct[j][i]
    if not there and not back then return 0 end
    if there and back then
      if there ~= back then
        doubt(tags[i].list[gpus[j].device.pci].node, "nvlink_asymmetric",
          ("%s counts %d NVLinks to %s, which counts %d: the fewer are taken"):format(gpus[i].device.uid, there, gpus[j].device.uid, back))
      end
      return math.min(there, back)
    end
    local from, to = there and i or j, there and j or i
    local node = tags[from].list[gpus[to].device.pci].node
    if gpus[to].gpu and (whole or gpus[to].order ~= #gpus) then
      doubt(node, "nvlink_asymmetric", ("%s has NVLinks to %s, which states none back: left out"):format(gpus[from].device.uid, gpus[to].device.uid))
      return 0
    end
    doubt(node, "nvlink_one_way", ("only %s states the NVLinks to %s"):format(gpus[from].device.uid, gpus[to].device.uid))
    return there or back
  end
  local joined = {}
  for i = 1, #gpus do
    for j = i + 1, #gpus do
      local n, through = pair(i, j), math.min(switched[i], switched[j])
      if n + through > 0 then
        joined[i * 4096 + j] = { nvlinks = n + through, via_switch = through > 0 or nil }
        any = true
      end
    end
    any = any or switched[i] > 0
  end
  return function(i, j) return joined[i * 4096 + j] end, { any = any }
end

return M
