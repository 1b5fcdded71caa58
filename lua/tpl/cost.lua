-- SPDX-License-Identifier: Apache-2.0
--- Estimate, before anything is loaded, what a placement of a model on a machine holds and how fast it is. This is
--- tpl.cost: what policies decide by and what `tpl plan` prints. The parts are in cost/; all of it is pure.
local collective = require("tpl.cost.collective")
local cut = require("tpl.cost.cut")
local device = require("tpl.cost.device")
local estimate = require("tpl.cost.estimate")
local group = require("tpl.cost.group")
local link = require("tpl.cost.link")
local ops = require("tpl.cost.ops")
local shares = require("tpl.cost.shares")

local M = {}

--- Give what a device can do: peaks, bandwidth, memory, overheads.
---@param dev table             a device of a topology
---@param opts? {probe: table?} what was measured on this machine, for CPU devices
---@return tpl.cost.Device?
---@return tpl.Err?             names --assume when the GPU is not known
function M.device(dev, opts) return device.of(dev, opts) end

--- Price the path between two devices of a topology; a measured figure wins.
---@return tpl.cost.Link
function M.link(t, a, b) return link.of(t, a, b) end

--- Give the time of one collective in us.
---@param kind string       "all_reduce", "all_gather", "reduce_scatter", "gather", "broadcast", "reduce", "all_to_all"
---@param g tpl.cost.Group
---@param bytes number
---@param only? {algo: string?, proto: string?}
---@return number us
function M.collective(kind, g, bytes, only) return collective.time(kind, g, bytes, only) end

--- Give the facts of a group of devices that `collective` takes, from its weakest pair.
---@return tpl.cost.Group
function M.group(t, uids) return group.of(t, uids) end

--- Give the time of a list of ops on a device in us.
---@param list {kind: string?, bytes: number, flops: number?, dtype: string?}[]
---@param d tpl.cost.Device
---@return number us
function M.ops(list, d) return ops.list(list, d) end

--- Price one replica on a machine: memory, KV tokens, time, what limits it.
---@return tpl.cost.Estimate?
---@return tpl.Err?
function M.estimate(t, shape, replica, want) return estimate.of(t, shape, replica, want) end

--- Cut a model into one run of layers per group of devices, by time and memory.
---@param shape tpl.Shape
---@param t table             topology
---@param groups string[][]
---@param want table
---@return integer[][]?       {first, last} of each stage, 0-based
---@return tpl.Err?
function M.cut(shape, t, groups, want) return cut.of(shape, t, groups, want) end

--- Share a model among unequal devices in whole KV heads; nil where there are fewer heads than devices.
---@param shape tpl.Shape
---@param t table
---@param uids string[]
---@param how? {by: "memory"|"speed"?, usable: number?}
---@return integer[]?
function M.shares(shape, t, uids, how) return shares.of(shape, t, uids, how) end

return M
