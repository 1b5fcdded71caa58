-- SPDX-License-Identifier: Apache-2.0
--- Suggest degrees of parallelism: the best pairs, the best groups of four, and one word of advice.
-- The word names the largest tensor-parallel group that the links carry, 2, 4, 8 or 16, and the pipeline across such groups.
local groups = require("tpl.topo.groups")
local pair = require("tpl.topo.pair")

local M = {}

local MOST_STAGES = 8 -- more groups than this are replicas, not stages

--- Say whether tensor parallelism inside a group is good advice. Where the devices have NVLink it must join every pair: a group that mixes NVLink
--- pairs with PCIe runs at PCIe speed. Without any NVLink the group must not cross sockets.
local function carries(t, group, has_nvlink)
  local f = groups.describe(t, group)
  if has_nvlink then return f.full end
  if f.worst <= pair.rank_of.node then return true end
  return f.worst < pair.UNKNOWN and f.sockets == 1 -- SYS in one socket: nodes that a socket is cut into, or a virtual machine
end

local function any_nvlink(t, uids)
  local wanted = {}
  for _, uid in ipairs(uids) do wanted[uid] = true end
  for _, link in ipairs(t.links) do
    if wanted[link.a] and wanted[link.b] and pair.nvlinks(link) > 0 then return true end
  end
  return false
end

local function largest_host(t, uids)
  local count, most = {}, 0
  for _, uid in ipairs(uids) do
    local host = t:dev(uid).host
    count[host] = (count[host] or 0) + 1
    most = math.max(most, count[host])
  end
  return most
end

--- Give the word of advice: "none", "single", "tp2", "tp4", "tp2xpp2", "tp8xpp2", ..
---@param t tpl.Topo
---@param uids string[]
---@return string
function M.advice(t, uids)
  if #uids == 0 then return "none" end
  if #uids == 1 then return "single" end
  local size, most, has_nvlink = 2, largest_host(t, uids), any_nvlink(t, uids)
  if most < 2 then return "pp" .. #uids end
  for _, n in ipairs { 4, 8, 16 } do
    local group = n <= most and groups.best(t, uids, n)
    if not group or not carries(t, group, has_nvlink) then break end
    size = n
  end
  local stages = math.floor(#uids / size)
  if stages < 2 or stages > MOST_STAGES then return "tp" .. size end
  return ("tp%dxpp%d"):format(size, stages)
end

--- Make `suggest`.
---@param t tpl.Topo
---@return {tp2: string[][], tp4: string[][], advice: string}
function M.make(t)
  local uids = groups.candidates(t)
  return { tp2 = groups.matching(t, uids), tp4 = groups.partition(t, uids, 4), advice = M.advice(t, uids) }
end

return M
