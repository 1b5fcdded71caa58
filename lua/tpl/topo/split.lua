-- SPDX-License-Identifier: Apache-2.0
--- Cut the CPU devices of a machine into groups of cores, so that each rank has a device of its own. A node's cores and
--- memory are dealt out evenly; where there are more groups than cores, the groups of a node share all its cores.
local cpuset = require "tpl.topo.cpuset"
local topos = require "tpl.topo"
local util = require "tpl.util"

local M = {}

-- Runs of neighbouring cores: Linux numbers the second threads of cores in a run of their own.
local function runs(cores)
  local out = {}
  for i, c in ipairs(cores) do
    if i > 1 and c == cores[i - 1] + 1 then table.insert(out[#out], c) else out[#out + 1] = { c } end
  end
  return out
end

-- Deal cores out to n parts: each part gets its piece of every run, so that the threads of a core stay together; runs that do not come out
-- even are one list.
local function deal(cores, n)
  local list, is_even = runs(cores), true
  for _, run in ipairs(list) do is_even = is_even and #run % n == 0 end
  if not is_even then list = { cores } end
  local out = {}
  for i = 1, n do
    out[i] = {}
    for _, run in ipairs(list) do
      local each = math.floor(#run / n)
      for k = (i - 1) * each + 1, i * each do table.insert(out[i], run[k]) end
    end
  end
  return out
end

-- The parts of one device, "cpu0.0" and so on.
local function parts(device, n)
  if n == 1 then return { device } end
  local cores, out = cpuset.parse(device.cpus) or {}, {}
  local dealt = deal(cores, n)
  for i = 1, n do
    local part = util.copy(device)
    part.uid = ("%s.%d"):format(device.uid, i - 1)
    if #dealt[i] > 0 then part.cpus = cpuset.format(dealt[i]) end
    part.mem_bytes = device.mem_bytes and math.floor(device.mem_bytes / n)
    part.free_bytes = device.free_bytes and math.floor(device.free_bytes / n)
    out[i] = part
  end
  return out
end

-- Links of the parts: those of their devices, and shared memory between parts of one.
local function relink(links, made)
  local out = {}
  local function of(uid) return made[uid] or { { uid = uid } } end
  for _, l in ipairs(links or {}) do
    for _, a in ipairs(of(l.a)) do
      for _, b in ipairs(of(l.b)) do
        local copy = util.copy(l)
        copy.a, copy.b = a.uid, b.uid
        out[#out + 1] = copy
      end
    end
  end
  for _, uid in ipairs(util.keys(made)) do
    local list = made[uid]
    for i = 1, #list do
      for j = i + 1, #list do out[#out + 1] = { a = list[i].uid, b = list[j].uid, kind = "shm", source = "assumed" } end
    end
  end
  return out
end

--- Give a machine with at least n CPU devices: each NUMA node is cut into the same number of groups of cores.
---@param topo tpl.Topo
---@param n integer
---@return tpl.Topo   the same one when nothing is to be cut
function M.cpus(topo, n)
  local nodes = {}
  for _, d in ipairs(topo.devices) do if d.kind == "cpu" then nodes[#nodes + 1] = d end end
  if #nodes == 0 or n <= #nodes then return topo end
  local each, made, devices = math.ceil(n / #nodes), {}, {}
  for _, d in ipairs(topo.devices) do
    if d.kind == "cpu" and each > 1 then
      made[d.uid] = parts(d, each)
      for _, part in ipairs(made[d.uid]) do devices[#devices + 1] = part end
    else
      devices[#devices + 1] = d
    end
  end
  local record = util.copy(topo)
  record.devices, record.links = devices, relink(topo.links, made)
  return topos.new(record)
end

return M
