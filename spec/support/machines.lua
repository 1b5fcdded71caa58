-- SPDX-License-Identifier: Apache-2.0
--- Make imagined machines for specs, as records: equal or unequal GPUs, how they are linked, hosts and their network.
local topos = require("tpl.topo")

local M = {}

local GIB, MIB = 2 ^ 30, 2 ^ 20

--- GPUs as nvidia-smi names them, with the memory it prints (MiB) and their compute capability (NVIDIA data sheets).
M.gpus = {
  h100 = { name = "NVIDIA H100 80GB HBM3", mib = 81559, sm = "9.0" },
  a100 = { name = "NVIDIA A100-SXM4-80GB", mib = 81920, sm = "8.0" },
  a100_40 = { name = "NVIDIA A100-PCIE-40GB", mib = 40960, sm = "8.0" },
  a100_pcie = { name = "NVIDIA A100 80GB PCIe", mib = 81920, sm = "8.0" },
  l40s = { name = "NVIDIA L40S", mib = 46068, sm = "8.9" },
  v100 = { name = "Tesla V100-SXM2-32GB", mib = 32768, sm = "7.0" },
  rtx4090 = { name = "NVIDIA GeForce RTX 4090", mib = 24564, sm = "8.9" },
}

local function uuid(n) return ("GPU-%08x-0000-4000-8000-%012x"):format(n, n) end

local function device(i, kind, host, o)
  local gpu = M.gpus[kind]
  return { uid = uuid(o.first + i), uuid = uuid(o.first + i), kind = "gpu", host = host, index = i, pci = ("0000:%02x:00.0"):format(0x10 + 8 * i),
    name = gpu.name, sm = gpu.sm, vbios = "96.00.00.00.01", numa = math.floor(i * (o.nodes or 1) / o.n), mem_bytes = gpu.mib * MIB, free_bytes = gpu.mib * MIB,
    mig = { mode = "off" }, labels = {} }
end

local NVLINKS = { h100 = 18, a100 = 12, v100 = 6 }

-- link(i, j) -> fields of the link; nil: PCIe by NUMA node
local function links_of(devices, link)
  local out = {}
  for i = 1, #devices do
    for j = i + 1, #devices do
      local a, b = devices[i], devices[j]
      local l = link and link(i - 1, j - 1) or { kind = a.numa == b.numa and "phb" or "sys" }
      l.a, l.b, l.source = a.uid, b.uid, "stated"
      out[#out + 1] = l
    end
  end
  return out
end

--- Links by name: "switch" (all by NVSwitch), "pairs" (0-1, 2-3, .. by NVLink, the rest PCIe), or a list of {i, j, nvlinks}.
local function linker(how, kind)
  if how == "switch" then
    return function() return { kind = "nvlink", nvlinks = NVLINKS[kind] or 12, via_switch = true, p2p = { read = "ok", write = "ok" } } end
  elseif how == "pairs" then
    return function(i, j)
      if j == i + 1 and i % 2 == 0 then return { kind = "nvlink", nvlinks = 12, pcie = "node", p2p = { read = "ok", write = "ok" } } end
    end
  elseif type(how) == "table" then
    return function(i, j)
      for _, x in ipairs(how) do
        if x[1] == i and x[2] == j or x[1] == j and x[2] == i then return { kind = "nvlink", nvlinks = x[3], p2p = { read = "ok", write = "ok" } } end
      end
    end
  end
end

---@class tpl.spec.Machine
---@field gpus string|string[]   kind, or one for each GPU
---@field n integer?             how many of one kind
---@field link string|table|nil  "switch", "pairs", {{i, j, nvlinks}, ..}; nil: PCIe
---@field nodes integer?         NUMA nodes (1)
---@field hosts integer?         equal hosts (1)
---@field network table?         {gb_s, us, kind} between hosts
---@field change fun(devices: table[], links: table[])?   last word on each host

--- Make the record of a machine.
---@param o tpl.spec.Machine
function M.record(o)
  local record = { source = { kind = "record", files = {} }, hosts = {}, devices = {}, links = {}, networks = {} }
  local kinds = type(o.gpus) == "table" and o.gpus or nil
  local n = kinds and #kinds or o.n
  for h = 0, (o.hosts or 1) - 1 do
    local host, devices = "host" .. h, {}
    record.hosts[h + 1] = { id = host, cpu = { vendor = "GenuineIntel" } }
    for i = 0, n - 1 do devices[i + 1] = device(i, kinds and kinds[i + 1] or o.gpus, host, { n = n, nodes = o.nodes, first = h * n }) end
    local links = links_of(devices, linker(o.link, kinds and kinds[1] or o.gpus))
    if o.change then o.change(devices, links) end
    for _, d in ipairs(devices) do record.devices[#record.devices + 1] = d end
    for _, l in ipairs(links) do record.links[#record.links + 1] = l end
  end
  if o.network then
    local ids = {}
    for i, h in ipairs(record.hosts) do ids[i] = h.id end
    record.networks[1] = { hosts = ids, gb_s = o.network.gb_s, us = o.network.us, kind = o.network.kind }
  end
  return record
end

--- Make the topology object of a machine.
---@param o tpl.spec.Machine
function M.topo(o) return assert(topos.from_record(M.record(o))) end

M.GIB = GIB
return M
