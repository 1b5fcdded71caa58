-- SPDX-License-Identifier: Apache-2.0
--- Give the machine that a plan is made for: a recorded one, or this one. A record that does not say what its GPUs are is
--- completed from --assume, or refused with both ways out.
local err = require "tpl.err"
local topos = require "tpl.topo"
local util = require "tpl.util"

local M = {}

-- One device of all cores: `cpus` and `available_bytes` of the options stand for another machine's; also what is left where probing fails.
local function plain(options)
  local device = { uid = "cpu0", kind = "cpu", index = 0, host = "host0", numa = 0, usable = true,
    cpus = ("0-%d"):format((options.cpus or require("tpl.core").sys.cpus()) - 1),
    free_bytes = options.available_bytes or require("tpl.core").sys.mem_available() }
  device.mem_bytes = device.free_bytes
  return assert(topos.from_record { source = { kind = "probe", files = {} }, hosts = { { id = "host0" } }, devices = { device }, links = {} })
end

local live

--- Give the machine of a plan.
---@param options tpl.PlanOptions
---@return tpl.Topo
function M.of(options)
  if options.topo then return options.topo end
  if options.cpus or options.available_bytes then return plain(options) end
  live = live or topos.probe() or plain(options)
  return live
end

-- -- What the record leaves open --------------------------------------------------------------------------------------

local function is_gpu(d) return d.kind == "gpu" or d.kind == "mig" end

local function known_names(gpus)
  return table.concat(util.map(gpus.list, function(gpu) return (gpu.words[1]:gsub(" ", "-")) end), ", ")
end

--- Fill in what GPUs are from the words of --assume ("gpu=h100-sxm-80gb"), and memory from the model's name.
---@param topo tpl.Topo
---@param assume string[]?
---@return tpl.Topo
function M.complete(topo, assume)
  local gpus = require "tpl.cost.gpus"
  local name
  for _, word in ipairs(assume or {}) do
    local key, value = word:match("^(%w+)=(.+)$")
    if key ~= "gpu" then
      err.throw { code = "usage", where = "--assume", message = ("'%s' is not of the form gpu=NAME"):format(word) }
    end
    name = value
  end
  local assumed = name and gpus.find(name)
  if name and not assumed then
    err.throw { code = "usage", where = "--assume", message = ("no GPU is called '%s'"):format(name), hint = "known: " .. known_names(gpus) }
  end
  local record = util.copy(topo)
  record.devices = util.map(topo.devices, function(d)
    if not is_gpu(d) then return d end
    local known = assumed and not (d.name and gpus.find(d.name)) and assumed or d.name and gpus.find(d.name)
    if not known then return d end
    d = util.copy(d)
    d.name, d.sm = d.name or known.name, d.sm or known.sm
    if d.kind == "gpu" then d.mem_bytes = d.mem_bytes or known.mem_mib and known.mem_mib * 2 ^ 20 end
    return d
  end)
  return topos.new(record)
end

--- Refuse a machine whose GPUs' model or memory is not known.
function M.check(topo, uids)
  for _, uid in ipairs(uids) do
    local d = topo:dev(uid)
    if is_gpu(d) and (not d.mem_bytes or not d.name) then
      err.throw { code = "format", where = (topo.source and topo.source.files or {})[1] or uid,
        message = ("the topology does not say %s"):format(not d.name and ("what GPU %s is"):format(uid) or ("how much memory %s has"):format(uid)),
        hint = "add --assume gpu=h100-sxm-80gb (or another name), or a second --topo with `nvidia-smi -L`, or a record of tpl topo --record" }
    end
  end
end

return M
