-- SPDX-License-Identifier: Apache-2.0
--- Make a failing machine smaller: take hosts, devices, links and odd facts away one at a time, as long as the policy still breaks the same property.
local guard = require("tpl.policy.guard")
local models = require("tpl.policy.models")
local permute = require("tpl.policy.permute")
local properties = require("tpl.policy.properties")
local util = require("tpl.util")

local M = {}

local MOST_TRIES = 2000

local function keep_hosts(record)
  local used = {}
  for _, d in ipairs(record.devices) do used[d.host or ""] = true end
  local hosts = {}
  for _, h in ipairs(record.hosts or {}) do if used[h.id] then hosts[#hosts + 1] = h end end
  record.hosts = hosts
  if #hosts < 2 then record.networks = {} end
end

local function drop(case, from, to)
  local gone = {}
  for i = from, to do
    if case.record.devices[i] then gone[case.record.devices[i].uid] = true end
  end
  case.record = permute.without(case.record, gone)
  keep_hosts(case.record)
end

-- What a device looks like when nothing is odd about it: each is one step. Gives true where it changed something.
local plainer = {
  function(d) if d.labels and #d.labels > 0 then d.labels = {} return true end end,
  function(d) if d.health and next(d.health) then d.health = {} return true end end,
  function(d) if d.fabric then d.fabric = nil return true end end,
  function(d)
    if d.busy and (d.busy.used_bytes or 0) > 0 then
      d.busy, d.free_bytes = nil, d.mem_bytes
      return true
    end
  end,
  function(d) if d.busy then d.busy = nil return true end end,
  function(d) if d.pcie or d.vbios then d.pcie, d.vbios = nil, nil return true end end,
  function(d) if d.mig and d.mig.mode == "off" then d.mig = nil return true end end,
  function(d) if d.cpus then d.cpus = nil return true end end,
  function(d) if d.numa and d.numa ~= 0 then d.numa = 0 return true end end,
}

local function add_device_steps(case, add)
  local n = #case.record.devices
  local size = math.floor(n / 2)
  while size >= 1 do
    local piece = size
    for from = 1, n, piece do
      add(function(c) drop(c, from, from + piece - 1) end)
    end
    size = math.floor(size / 2)
  end
end

local function add_host_steps(case, add)
  for _, h in ipairs(#case.record.hosts > 1 and case.record.hosts or {}) do
    add(function(c)
      local gone = {}
      for _, d in ipairs(c.record.devices) do if d.host == h.id then gone[d.uid] = true end end
      c.record = permute.without(c.record, gone)
      keep_hosts(c.record)
    end)
  end
end

local function add_fact_steps(case, add)
  local record = case.record
  if #(record.nics or {}) > 0 then add(function(c) c.record.nics = {} end) end
  if #(record.networks or {}) > 0 then add(function(c) c.record.networks = {} end) end
  for _, h in ipairs(record.hosts) do
    if h.cpu or h.numa or h.driver then add(function(c) c.record.hosts = util.map(c.record.hosts, function(x) return { id = x.id } end) end) break end
  end
  for _, plain in ipairs(plainer) do -- of all devices, then of each
    local many = 0
    for i, d in ipairs(record.devices) do
      if plain(guard.copy(d)) then
        many = many + 1
        if many == 1 then add(function(c) for _, x in ipairs(c.record.devices) do plain(x) end end) end
        add(function(c) plain(c.record.devices[i]) end)
      end
    end
  end
  if #record.links > 0 then add(function(c) c.record.links = {} end) end
  if #record.devices <= 8 then
    for i in ipairs(record.links) do add(function(c) table.remove(c.record.links, i) end) end
  end
  for _, l in ipairs(record.links) do
    if l.p2p then add(function(c) for _, x in ipairs(c.record.links) do x.p2p = nil end end) break end
  end
end

-- Every way to make a case one step smaller: functions that change a copy.
local function steps(case)
  local out = {}
  local function add(f) out[#out + 1] = f end
  for _, name in ipairs(models.names) do
    if name == case.model then break end
    add(function(c) c.model = name end)
  end
  local plain = { context = 2048, concurrency = 1, goal = "throughput" }
  for key, value in util.pairs(plain) do if case.want[key] ~= value then add(function(c) c.want[key] = value end) end end
  if next(case.want.devices or {}) then add(function(c) c.want.devices = {} end) end
  add_host_steps(case, add)
  add_device_steps(case, add)
  add_fact_steps(case, add)
  return out
end

local function copy_of(case)
  local c = util.copy(case)
  c.record, c.want = guard.copy(case.record), guard.copy(case.want)
  return c
end

--- Find a case on which the policy breaks the property and no smaller step does.
---@param p tpl.Policy
---@param case tpl.policy.Case
---@param failure tpl.policy.Failure
---@return tpl.policy.Case smallest
---@return tpl.policy.Failure failure   of the smallest
function M.smallest(p, case, failure)
  local tries, again = 0, true
  local function fails(c)
    tries = tries + 1
    local found = properties.check(p, c, { thorough = true, only = failure.property })
    return found and found.property == failure.property and found.rule == failure.rule and not found.record and found or nil
  end
  while again and tries < MOST_TRIES do
    again = false
    for _, step in ipairs(steps(case)) do
      local smaller = copy_of(case)
      step(smaller)
      local found = tries < MOST_TRIES and fails(smaller)
      if found then
        case, failure, again = smaller, found, true
        break
      end
    end
  end
  return case, failure
end

return M
