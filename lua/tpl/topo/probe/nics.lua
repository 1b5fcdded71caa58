-- SPDX-License-Identifier: Apache-2.0
--- Network cards, and how far each is from every device. Where there are RDMA devices only these count, as in `nvidia-smi topo -m`: a management port
--- says nothing about placement.
local paths = require("tpl.topo.probe.paths")

local M = {}

local function place(facts, pci)
  local p = pci and facts.by_pci[pci]
  return { path = p and p.path, numa = p and p.numa }
end

local function cpu_word(nic, device)
  if not nic.numa or not device.numa then return nil end
  return nic.numa == device.numa and "phb" or "sys"
end

local function distances(record, facts, nic)
  local to, mine = {}, place(facts, nic.pci)
  mine.numa = nic.numa
  for _, d in ipairs(record.devices) do
    if d.kind == "cpu" then
      to[d.uid] = cpu_word(nic, d)
    elseif d.pci then
      local other = place(facts, d.pci)
      other.numa = d.numa
      to[d.uid] = paths.word(mine, other)
    end
  end
  return to
end

--- Add the NICs of the facts.
function M.add(record, facts)
  local any_ib = false
  for _, n in ipairs(facts.nics) do any_ib = any_ib or n.is_ib end
  for _, n in ipairs(facts.nics) do
    if n.is_ib == any_ib and (n.is_ib or n.pci) then
      local at = n.pci and facts.by_pci[n.pci]
      local numa = at and at.numa
      if not numa and n.pci and #facts.nodes == 1 then numa = facts.nodes[1].id end
      local nic = { name = n.name, device = n.name, pci = n.pci, numa = numa }
      nic.to = distances(record, facts, nic)
      record.nics[#record.nics + 1] = nic
    end
  end
end

return M
