-- SPDX-License-Identifier: Apache-2.0
--- Write the variables of a plan as `export` lines, each with its reason, for people who start their program themselves.
-- CUDA itself takes UUIDs, so none are turned into indices; a program that reads CUDA_VISIBLE_DEVICES as numbers needs one of the engine targets.
local facts = require("tpl.emit.facts")
local names = require("tpl.emit.names")
local placement = require("tpl.emit.placement")
local shell = require("tpl.emit.shell")

local M = { target = "env", title = "a shell", version = "posix" }

local function visible(devices)
  local list = {}
  for i, d in ipairs(devices) do list[i] = placement.known(d.uuid) or tostring(placement.known(d.index) or d.uid) end
  return table.concat(list, ",")
end

local function lines_of(replica, how)
  local list = {}
  for i, d in ipairs(replica.devices) do list[i] = names.text(d) end
  local why = ("replica %d: %s"):format(replica.i, table.concat(list, ", "))
  if how ~= "uuid" then why = why .. "; the topology has no UUIDs, and indices may change with a reboot" end
  return { name = "CUDA_VISIBLE_DEVICES", value = visible(replica.devices), why = why }
end

--- Write the text.
function M.write(s)
  local out = { shell.comment(("Variables for %s as `tpl plan --emit env` placed it; read with: . ./THIS_FILE"):format(s.facts.model)) }
  if s.facts.plan_hash then out[#out + 1] = shell.comment("Plan " .. s.facts.plan_hash) end
  for _, line in ipairs(shell.exports(s.env)) do out[#out + 1] = line end
  local first = s.p.replicas[1]
  if first.devices[1].kind ~= "cpu" then
    local how = names.naming(s.p)
    for i, replica in ipairs(s.p.replicas) do
      for k, line in ipairs(shell.exports { lines_of(replica, how) }) do
        out[#out + 1] = (i > 1 and k > 1) and "# " .. line or line -- one process has one replica; the others' lines are for the others
      end
    end
  end
  local nodes, is_one = placement.numa(first.devices)
  if nodes and is_one then
    out[#out + 1] = shell.comment(("NUMA: start it with numactl --cpunodebind=%d --membind=%d"):format(nodes[1], nodes[1]))
  end
  out[#out + 1] = shell.comment(("Share of memory that the plan fills: %.2f"):format(facts.memory_share(first)))
  return table.concat(out, "\n") .. "\n"
end

return M
