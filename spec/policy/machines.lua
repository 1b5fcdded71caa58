-- SPDX-License-Identifier: Apache-2.0
--- Small machines and models for the specs of policies, as records with the field names of interface.md.
local M = {}

--- Make a GPU; `changes` overrides.
function M.gpu(i, changes)
  local d = { uid = "GPU" .. i, kind = "gpu", host = "host0", index = i, uuid = ("GPU-%08d"):format(i), pci = ("0000:%02x:00.0"):format(16 + i),
    name = "NVIDIA H100 80GB HBM3", sm = "9.0", numa = 0, mem_bytes = 80e9, free_bytes = 79e9, usable = true, why_not = {} }
  for k, v in pairs(changes or {}) do d[k] = v end
  return d
end

--- Make a machine of the devices, every pair joined by `kind`.
function M.machine(devices, kind)
  local links = {}
  for i, a in ipairs(devices) do
    for j = i + 1, #devices do links[#links + 1] = { a = a.uid, b = devices[j].uid, kind = kind or "phb" } end
  end
  return { source = { kind = "record", files = {} }, hosts = { { id = "host0" } }, networks = {}, devices = devices, links = links, nics = {},
    islands = {}, suggest = { tp2 = {}, tp4 = {} }, doubts = {} }
end

--- Make a model of n layers.
function M.model(n_layer) return { arch = "llama", n_layer = n_layer or 4, weight_bytes = 1e9, layers = {} } end

return M
