-- SPDX-License-Identifier: Apache-2.0
--- Lay out what the ranking needs of some devices in plain arrays, so that thousands of groups can be weighed quickly.
-- Devices stand in their stable order (tpl.topo.order); positions count from 1.
local near = require("tpl.topo.near")
local order = require("tpl.topo.order")
local pair = require("tpl.topo.pair")

local M = {}

---@class tpl.topo.View
---@field n integer
---@field uid string[]
---@field links integer[][]   usable NVLinks by pair
---@field rank integer[][]    PCIe rank by pair, less is nearer
---@field speed integer[][]   measured bandwidth in steps, 0 where it was not measured
---@field model integer[]     equal numbers are equal models
---@field socket integer[]    as the input tells it
---@field guess integer[]     socket, guessed from the numbers of NUMA nodes too
---@field node integer[]      NUMA node; a device whose node is unknown has one of its own
---@field nics boolean       near NICs count
---@field nic integer[]       rank of the nearest NIC
---@field host integer[]

local GIB = 2 ^ 30

local function model_key(d)
  return ("%s|%s|%s"):format(d.kind, d.name or "?", d.mem_bytes and math.floor(d.mem_bytes / GIB + 0.5) or "?")
end

local function numbered()
  local seen, n = {}, 0
  return function(key)
    if key ~= nil and seen[key] then return seen[key] end
    n = n + 1
    if key ~= nil then seen[key] = n end
    return n
  end
end

--- Make the view of some devices.
---@param t tpl.Topo
---@param uids string[]
---@param nics boolean?  the nearest NICs matter
---@return tpl.topo.View
function M.new(t, uids, nics)
  local sorted = {}
  for i, uid in ipairs(uids) do sorted[i] = uid end
  order.sort(t, sorted)
  local v = { n = #sorted, nics = nics or false, uid = sorted, links = {}, rank = {}, speed = {}, model = {}, socket = {}, guess = {}, node = {}, nic = {}, host = {} }
  local model, socket, guess, node, host = numbered(), numbered(), numbered(), numbered(), numbered()
  for i, uid in ipairs(sorted) do
    local d = t:dev(uid)
    v.links[i], v.rank[i], v.speed[i] = {}, {}, {}
    v.model[i], v.host[i] = model(model_key(d)), host(d.host)
    v.socket[i], v.guess[i], v.node[i] = socket(t:firm_socket(uid)), guess(t:socket(uid)), node(t:numa_node(uid))
    local _, rank = nil, nil
    if nics then _, rank = near.nearest(t, d) end
    v.nic[i] = nics and (rank or pair.rank_of.sys) or 0
  end
  for i = 1, v.n do
    for j = i + 1, v.n do
      local link = t:either(sorted[i], sorted[j])
      local n, rank, speed = pair.nvlinks(link), pair.rank(link), pair.speed(link)
      v.links[i][j], v.links[j][i], v.rank[i][j], v.rank[j][i] = n, n, rank, rank
      v.speed[i][j], v.speed[j][i] = speed, speed
    end
  end
  return v
end

return M
