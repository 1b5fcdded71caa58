-- SPDX-License-Identifier: Apache-2.0
--- Make small topologies by hand: the fields and the methods that the cost model asks for, all pairs alike unless told
--- otherwise (not a spec itself).
local M = {}

local Toy = {}

function Toy:dev(uid) return self.by_uid[uid] end

function Toy:link(a, b) return self.by_pair[a .. " " .. b] or self.by_pair[b .. " " .. a] end

function Toy:ids()
  local out = {}
  for i, d in ipairs(self.devices) do out[i] = d.uid end
  return out
end

-- A link as seen from either end.
function Toy:set(a, b, link)
  self.by_pair[b .. " " .. a] = nil
  self.by_pair[a .. " " .. b] = link
end

--- Make a topology.
---@param spec {n: integer, name: string?, names: string[]?, mem_bytes: number[]?, free_bytes: number[]?, kind: string?, link: table,
---   hosts: integer?, net: table?, cpu: table?, pcie: table?}   hosts: devices are dealt to them evenly, pairs across get `net`
function M.new(spec)
  local t = { devices = {}, by_uid = {}, by_pair = {}, hosts = {} }
  for k, f in pairs(Toy) do t[k] = f end
  local n_hosts = spec.hosts or 1
  for h = 1, n_hosts do t.hosts[h] = { id = "host" .. h - 1, cpu = spec.cpu } end
  for i = 1, spec.n do
    local d = { uid = (spec.kind == "cpu" and "cpu" or "GPU") .. i - 1, kind = spec.kind or "gpu", index = i - 1,
      host = "host" .. math.floor((i - 1) * n_hosts / spec.n), name = spec.names and spec.names[i] or spec.name,
      mem_bytes = spec.mem_bytes and spec.mem_bytes[i], free_bytes = spec.free_bytes and spec.free_bytes[i], pcie = spec.pcie }
    t.devices[i], t.by_uid[d.uid] = d, d
  end
  for i = 1, spec.n do
    for j = i + 1, spec.n do
      local a, b = t.devices[i], t.devices[j]
      t.by_pair[a.uid .. " " .. b.uid] = a.host == b.host and spec.link or spec.net or { kind = "net" }
    end
  end
  return t
end

M.NV18 = { kind = "nvlink", nvlinks = 18, via_switch = true }
M.H100 = "NVIDIA H100 80GB HBM3"

return M
