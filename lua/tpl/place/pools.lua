-- SPDX-License-Identifier: Apache-2.0
--- Sort devices for placement policies: which are quiet, which are alike, which share a host. Pure.
local util = require "tpl.util"

local M = {}

local BUSY_BYTES = 512 * 2 ^ 20 -- what an idle desktop or a monitoring agent holds at most

--- Say why a device is somebody else's: it carries a label, or a process holds memory on it. nil when it is free.
---@param device table
---@return string?
function M.occupied(device)
  local labels = device.labels or {}
  if #labels > 0 then return ("labelled %s"):format(table.concat(labels, ", ")) end
  local busy = device.busy
  local pids = busy and busy.pids or {}
  local used = busy and busy.used_bytes or 0
  if #pids > 0 and (busy.used_bytes == nil or used > BUSY_BYTES) then
    return ("busy: process%s %s hold%s %.1f GiB"):format(#pids > 1 and "es" or "", table.concat(pids, ", "), #pids > 1 and "" or "s", used / 2 ^ 30)
  end
  return nil
end

--- Part devices into quiet ones and ones that somebody else uses.
---@param topo tpl.Topo
---@param uids string[]
---@param own table<string, boolean>?   devices that the deployment names itself: never somebody else's
---@return string[] quiet
---@return {uid: string, why: string}[] occupied
function M.quiet(topo, uids, own)
  local quiet, occupied = {}, {}
  for _, uid in ipairs(uids) do
    local why = not (own and own[uid]) and M.occupied(topo:dev(uid))
    if why then occupied[#occupied + 1] = { uid = uid, why = why } else quiet[#quiet + 1] = uid end
  end
  return quiet, occupied
end

local function kind_of(device)
  return table.concat({ device.kind, device.name or "?", tostring(device.mem_bytes), device.sm or "?", device.vbios or "?" }, "|")
end

--- Part devices into pools of the same model, memory and VBIOS, the pool with most memory first.
---@return {name: string, uids: string[], bytes: number}[]
function M.alike(topo, uids)
  local by_kind, list = {}, {}
  for _, uid in ipairs(uids) do
    local d = topo:dev(uid)
    local key = kind_of(d)
    local pool = by_kind[key]
    if not pool then
      pool = { key = key, name = d.name or d.kind, uids = {}, bytes = 0 }
      by_kind[key] = pool
      list[#list + 1] = pool
    end
    pool.uids[#pool.uids + 1] = uid
    pool.bytes = pool.bytes + (d.free_bytes or d.mem_bytes or 0)
  end
  table.sort(list, function(a, b)
    if a.bytes ~= b.bytes then return a.bytes > b.bytes end
    return a.key < b.key
  end)
  return list
end

--- Put groups in an order in which neighbours are close: by host, then by the first device's address.
---@param list string[][]
---@return string[][]
function M.in_line(topo, list)
  local at = {}
  for _, host in ipairs(topo.hosts or {}) do at[#at + 1] = host.id end
  local rank = {}
  for i, id in ipairs(at) do rank[id] = i end
  local function key(group)
    local d = topo:dev(group[1])
    return rank[d.host] or 0, tostring(d.pci or d.uuid or d.uid)
  end
  local out = util.copy(list)
  table.sort(out, function(a, b)
    local ha, ka = key(a)
    local hb, kb = key(b)
    if ha ~= hb then return ha < hb end
    return ka < kb
  end)
  return out
end

return M
