-- SPDX-License-Identifier: Apache-2.0
--- Plan a published model on an imagined or recorded machine and say the answer in short texts (not a spec itself).
local configs = require("spec.support.configs")
local machines = require("spec.support.machines")
local machine = require("tpl.plan.machine")
local make = require("tpl.plan.make")
local topos = require("tpl.topo")
local util = require("tpl.util")

local M = {}

M.IB = { gb_s = 50, us = 5, kind = "ib" }      -- one 400 Gbit/s port for each GPU
M.ETHERNET = { gb_s = 3, us = 30, kind = "eth" } -- 25 Gbit/s

--- Equal SXM GPUs behind NVSwitch, two sockets from 8 on.
function M.switched(gpus, n, more)
  local o = { gpus = gpus, n = n, link = "switch", nodes = n >= 8 and 2 or 1 }
  for k, v in pairs(more or {}) do o[k] = v end
  return machines.topo(o)
end

--- GPUs on PCIe, half of them on each socket.
function M.pcie(gpus, n, more)
  local o = { gpus = gpus, n = n, nodes = n >= 4 and 2 or 1 }
  for k, v in pairs(more or {}) do o[k] = v end
  return machines.topo(o)
end

--- A deployment of a configuration, as deploy.lua would say it.
---@param model string      name of a configuration
---@param fields table?     fields of tpl.deploy besides model
function M.deployment(model, fields)
  local d = util.copy(fields or {})
  d.model = configs.folder(model)
  return d
end

--- Plan a configuration on a machine.
---@return table? plan
---@return tpl.Err?
function M.plan(model, topo, fields) return make.make(M.deployment(model, fields), { topo = topo, outline = true }) end

--- The same where it must succeed.
function M.planned(model, topo, fields)
  local plan, e = M.plan(model, topo, fields)
  return plan or error(("%s: %s"):format(model, tostring(e)), 2)
end

--- "tp=2 pp=2 x2", or "dp=8 ep=8 pp=2" where ranks have requests and experts of their own.
function M.degrees(plan)
  local d, n = plan.report.degrees, #plan.report.replicas
  return ("%s pp=%d%s"):format(d.ep > 1 and ("dp=%d ep=%d"):format(d.dp, d.ep) or ("tp=%d"):format(d.tp), d.pp, n > 1 and (" x%d"):format(n) or "")
end

--- Number of a GPU of spec.support.machines: its uid begins with it.
function M.number(uid)
  local hex = uid:match("^GPU%-(%x+)")
  return hex and tonumber(hex, 16)
end

--- Numbers of the devices of each stage and replica: "0+1|2+3, 4+5|6+7".
function M.where(plan)
  return table.concat(util.map(plan.placed.replicas, function(replica)
    return table.concat(util.map(replica.stages, function(s) return table.concat(util.map(s.devices, M.number), "+") end), "|")
  end), ", ")
end

--- Shares of KV head groups of the first stage: "4/2/2".
function M.shares(plan)
  local out = {}
  for _, r in ipairs(plan.report.ranks) do
    if r.stage == 0 and r.replica == 0 then
      local n = 0
      for _, range in ipairs(r.shards.kvh) do n = n + range[2] end
      out[#out + 1] = n
    end
  end
  return table.concat(out, "/")
end

--- The alternative of a name, or nil.
function M.alternative(plan, name)
  for _, a in ipairs(plan.report.choice.alternatives) do if a.name == name then return a end end
end

--- All reasons as one text.
function M.reasons(plan) return table.concat(plan.report.choice.reasons, "\n") end

--- Why each excluded device is: {number or uid = why}.
function M.excluded(plan)
  local out = {}
  for _, x in ipairs(plan.report.choice.excluded) do out[M.number(x.uid) or x.uid] = x.why end
  return out
end

--- The same by the indices that the machine's record has.
function M.indices(plan)
  return table.concat(util.map(plan.placed.replicas, function(replica)
    return table.concat(util.map(replica.stages, function(s)
      return table.concat(util.map(s.devices, function(uid) return plan.topo:dev(uid).index end), "+")
    end), "|")
  end), ", ")
end

--- A machine of spec/fixtures/topologies.
---@param name string
---@param assume string?    "gpu=rtx-a6000", as --assume has it
function M.recorded(name, assume)
  return machine.complete(assert(topos.read { "spec/fixtures/topologies/" .. name }), assume and { assume } or nil)
end

--- A machine of a record, which a function may change before it is read.
function M.changed(o, change)
  local record = machines.record(o)
  change(record)
  return assert(topos.from_record(record))
end

return M
