-- SPDX-License-Identifier: Apache-2.0
--- Find the NICs nearest to each device: `nics[].near`, and how far a device's nearest NIC is.
-- A NIC that is across sockets (SYS) from a device is near to nobody: such NICs serve storage or a front end.
local pair = require("tpl.topo.pair")

local M = {}

--- Rank the way from a NIC to a device, less is nearer: by the word in the input, else by the NUMA node; nil when unknown.
---@param nic table
---@param device table
---@param one_host boolean?  there is only one host, so that a NIC without a host belongs to it
---@return integer?
function M.rank(nic, device, one_host)
  local word = type(nic.to) == "table" and nic.to[device.uid]
  if word then return pair.rank_of[word] end
  if nic.host ~= device.host and not (nic.host == nil and one_host) then return nil end
  if nic.numa and device.numa then return nic.numa == device.numa and pair.rank_of.node or pair.rank_of.sys end
end

--- Give the NICs nearest to a device and their rank; an empty list when none is nearer than SYS or nothing is known.
---@param record table
---@param device table
---@return table[] nics
---@return integer? rank
function M.nearest(record, device)
  local best, found = pair.rank_of.sys, {}
  local one_host = #(record.hosts or {}) <= 1
  for _, nic in ipairs(record.nics or {}) do
    local rank = M.rank(nic, device, one_host)
    if rank and rank < best then
      best, found = rank, { nic }
    elseif rank and rank == best and found[1] then
      found[#found + 1] = nic
    end
  end
  return found, found[1] and best or nil
end

--- Fill `near` of every NIC: the GPUs to which it is among the closest.
---@param record table
function M.fill(record)
  local nics = record.nics or {}
  for _, nic in ipairs(nics) do nic.near = {} end
  if not nics[1] then return end
  for _, device in ipairs(record.devices) do
    if device.kind ~= "mig" then
      for _, nic in ipairs((M.nearest(record, device))) do nic.near[#nic.near + 1] = device.uid end
    end
  end
end

return M
