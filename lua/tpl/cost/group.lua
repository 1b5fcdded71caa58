-- SPDX-License-Identifier: Apache-2.0
--- Gather what the collective model needs to know of a group of devices: the weakest pair, hosts, switches, the lowest
--- compute capability. Pure.
local device = require "tpl.cost.device"
local link = require "tpl.cost.link"

local M = {}

local function is_weaker(l, than)
  local a, b = link.order[l.class] or 9, link.order[than.class] or 9
  if a ~= b then return a > b end
  return l.gb_s < than.gb_s
end

local MOST_VISITS = 20000

-- A ring over all devices whose edges are NVLinks of at least `least` GB/s, as NCCL's search would take before it falls back to PCIe.
local function has_ring(edge, n, least)
  local used, visits = { [1] = true }, 0
  local function walk(at, depth)
    visits = visits + 1
    if depth == n then return (edge[at][1] or 0) >= least end
    for j = 2, n do
      if not used[j] and (edge[at][j] or 0) >= least and visits < MOST_VISITS then
        used[j] = true
        if walk(j, depth + 1) then return true end
        used[j] = nil
      end
    end
    return false
  end
  return walk(1, 1)
end

-- Cube meshes: not every pair has NVLink, a ring has. Gives the best weakest edge, nil without a ring.
local function nvlink_ring(edge, n)
  local speeds, seen = {}, {}
  for i = 1, n do
    local degree = 0
    for _, gb_s in pairs(edge[i]) do
      degree = degree + 1
      if not seen[gb_s] then seen[gb_s], speeds[#speeds + 1] = true, gb_s end
    end
    if degree < 2 then return nil end
  end
  table.sort(speeds, function(a, b) return a > b end)
  for _, gb_s in ipairs(speeds) do if has_ring(edge, n, gb_s) then return gb_s end end
end

--- Give the facts of a group.
---@param t table        topology
---@param uids string[]
---@return tpl.cost.Group
function M.of(t, uids)
  local g = { n = #uids, class = "nvlink", gb_s = math.huge, hosts = 1, nvswitch = true, mesh = true, cpu = true }
  local weakest, inner, hosts, edge = nil, nil, {}, {}
  for i = 1, #uids do edge[i] = {} end
  for i, uid in ipairs(uids) do
    local dev = t:dev(uid) or {}
    if dev.host and not hosts[dev.host] then
      hosts[dev.host], hosts.n = true, (hosts.n or 0) + 1
    end
    local d = device.of(dev)
    local sm = dev.sm or d and d.sm
    if sm and (not g.sm or tonumber(sm) < tonumber(g.sm)) then g.sm = sm end
    g.cpu = g.cpu and dev.kind == "cpu"
    for j = i + 1, #uids do
      local l = link.of(t, uid, uids[j])
      local raw = t:link(uid, uids[j])
      if l.class ~= "nvlink" or not (raw and raw.via_switch) then g.nvswitch = false end
      if l.class ~= "nvlink" or raw and raw.via_switch then g.mesh = false end
      if l.class == "nvlink" then edge[i][j], edge[j][i] = l.gb_s, l.gb_s end
      if not weakest or is_weaker(l, weakest) then weakest = l end
      if l.class ~= "net" and (not inner or is_weaker(l, inner)) then inner = l end
    end
  end
  g.hosts = math.max(hosts.n or 1, 1)
  if weakest then
    g.class, g.gb_s, g.us, g.source, g.measured = weakest.class, weakest.gb_s, weakest.us, weakest.source, weakest.source == "measured"
  end
  if g.hosts > 1 and inner then
    g.inter_gb_s, g.gb_s, g.inner_class, g.us = g.gb_s, inner.gb_s, inner.class, nil
  end
  if g.n < 2 then g.nvswitch, g.mesh = false, false end
  if g.n >= 4 and g.n <= 16 and g.hosts == 1 and g.class ~= "nvlink" then
    local gb_s = nvlink_ring(edge, g.n)
    if gb_s then g.class, g.gb_s, g.us, g.measured = "nvlink", gb_s, nil, false end
  end
  g.cpu = g.cpu and g.hosts == 1
  return g
end

return M
