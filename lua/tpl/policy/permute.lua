-- SPDX-License-Identifier: Apache-2.0
--- Change a machine's record the way an operator or a driver update does: other device indices, a device less. Pure; the record stays as it is.
local guard = require("tpl.policy.guard")
local util = require("tpl.util")

local M = {}

local swapped = { { "p2p", "p2p_ba" }, { "gb_s", "gb_s_ba" }, { "us", "us_ba" } }

-- Turn a link round; the way back is the same where it is not told apart.
local function turn(link)
  link.a, link.b = link.b, link.a
  for _, pair in ipairs(swapped) do
    if link[pair[2]] ~= nil then link[pair[1]], link[pair[2]] = link[pair[2]], link[pair[1]] end
  end
end

-- Put links into the order of the devices, each with its earlier device first.
local function sort_links(record)
  local at = {}
  for i, d in ipairs(record.devices) do at[d.uid] = i end
  local key = {}
  for _, l in ipairs(record.links or {}) do
    if at[l.a] > at[l.b] then turn(l) end
    key[l] = at[l.a] * 1e5 + at[l.b]
  end
  table.sort(record.links or {}, function(x, y) return key[x] < key[y] end)
end

local function rename(record, new)
  local function name(uid) return new[uid] or uid end
  for _, d in ipairs(record.devices) do
    d.uid = name(d.uid)
    if d.mig and d.mig.parent then d.mig.parent = name(d.mig.parent) end
  end
  for _, l in ipairs(record.links or {}) do l.a, l.b = name(l.a), name(l.b) end
  for _, nic in ipairs(record.nics or {}) do
    if nic.near then nic.near = util.map(nic.near, name) end
    if nic.to then
      local to = {}
      for uid, word in pairs(nic.to) do to[name(uid)] = word end
      nic.to = to
    end
  end
end

-- What `finish` derives is derived anew.
local function plain(record)
  local copy = guard.copy(record)
  copy.islands, copy.suggest, copy.doubts = nil, nil, nil
  return copy
end

--- Give the whole GPUs' indices another order, host by host. Names that hold an index ("GPU0") follow it.
---@param record table
---@param order fun(n: integer): integer[]   a permutation of 1..n
---@return table record
function M.indices(record, order)
  local copy = plain(record)
  local places = {} -- host -> positions of its GPUs
  for i, d in ipairs(copy.devices) do
    if d.kind == "gpu" then
      places[d.host] = places[d.host] or {}
      table.insert(places[d.host], i)
    end
  end
  local new = {}
  for _, at in util.pairs(places) do
    local perm = order(#at)
    local devices, indices = util.map(at, function(i) return copy.devices[i] end), util.map(at, function(i) return copy.devices[i].index end)
    for k, i in ipairs(at) do
      local d = devices[perm[k]]
      local prefix, number = d.uid:match("^(.-)GPU(%d+)$")
      if prefix and tonumber(number) == d.index and indices[k] then new[d.uid] = prefix .. "GPU" .. indices[k] end
      d.index, copy.devices[i] = indices[k], d
    end
  end
  rename(copy, new)
  sort_links(copy)
  return copy
end

--- Say whether a link can get worse: NVLink can become the PCIe way under it, any other way can become SYS.
function M.can_worsen(link) return link.kind ~= "sys" and link.kind ~= "net" and link.kind ~= "shm" end

--- Make a link worse.
---@param record table
---@param i integer   position in record.links
---@return table record
function M.worsened(record, i)
  local copy = plain(record)
  local link = copy.links[i]
  local word = (link.kind == "nvlink" or link.kind == "c2c") and link.pcie or "sys"
  for _, key in ipairs { "nvlinks", "via_switch", "gb_s", "gb_s_ba", "us", "us_ba" } do link[key] = nil end
  link.kind, link.pcie = word, word
  return copy
end

--- Take devices away, and the slices of cards that are among them.
---@param record table
---@param uids table<string, boolean>
---@return table record
function M.without(record, uids)
  local copy, gone = plain(record), {}
  for _, d in ipairs(copy.devices) do
    if uids[d.uid] or d.mig and d.mig.parent and uids[d.mig.parent] then gone[d.uid] = true end
  end
  local devices, links = {}, {}
  for _, d in ipairs(copy.devices) do if not gone[d.uid] then devices[#devices + 1] = d end end
  for _, l in ipairs(copy.links or {}) do if not gone[l.a] and not gone[l.b] then links[#links + 1] = l end end
  for _, nic in ipairs(copy.nics or {}) do
    for uid in pairs(gone) do if nic.to then nic.to[uid] = nil end end
    if nic.near then
      local near = {}
      for _, uid in ipairs(nic.near) do if not gone[uid] then near[#near + 1] = uid end end
      nic.near = near
    end
  end
  copy.devices, copy.links = devices, links
  return copy
end

return M
