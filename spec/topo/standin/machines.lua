-- SPDX-License-Identifier: Apache-2.0
--- Machines that the NVML stand-in answers for, as records written by hand. Figures: NVIDIA's product pages (memory, links), `data/topologies/INDEX.md`
--- (NUMA of the kinds); UUIDs and addresses are made up.
local M = {}

local H100 = "NVIDIA H100 80GB HBM3"
local GIB = 2 ^ 30

local function uuid(n) return ("GPU-%08x-1111-2222-3333-%012x"):format(0xa0000000 + n, n) end

local function h100(i, numa)
  return { uid = uuid(i), kind = "gpu", index = i, uuid = uuid(i), pci = ("0000:%02x:00.0"):format(0x10 + 0x10 * i), name = H100, sm = "9.0",
    vbios = "96.00.74.00.01", numa = numa, cpus = numa == 0 and "0-47" or "48-95", mem_bytes = 80 * GIB, free_bytes = 79 * GIB,
    pcie = { gen = 5, width = 16 }, mig = { mode = "off", pending = "off" }, busy = { pids = {}, used_bytes = 0 },
    health = { remapped = { uncorrectable = 0, pending = false, failure = false }, ecc = 0 } }
end

local function record(devices)
  return { source = { kind = "record" }, hosts = { { id = "host0", driver = "550.54.15", cuda = "12.4" } }, devices = devices, links = {} }
end

local function join(r, a, b, fields)
  local l = { a = a.uid, b = b.uid, kind = "nvlink", p2p = { read = "ok", write = "ok" } }
  for k, v in pairs(fields) do l[k] = v end
  r.links[#r.links + 1] = l
end

local function each_pair(gpus, f)
  for i = 1, #gpus do for j = i + 1, #gpus do f(gpus[i], gpus[j]) end end
end

--- 4 x H100 joined directly (6 links a pair); GPUs 2 and 3 are cut into two 3g.40gb slices each, with a gap in the slices' numbers, and GPU 1 is busy.
function M.reference()
  local g = { h100(0, 0), h100(1, 0), h100(2, 1), h100(3, 1) }
  g[2].busy, g[2].free_bytes = { pids = { 4242, 4243 }, used_bytes = 10 * GIB }, 69 * GIB
  local r = record { g[1], g[2] }
  for i = 3, 4 do
    g[i].mig = { mode = "on", pending = "on" }
    r.devices[#r.devices + 1] = g[i]
    for k = 0, 1 do
      local id = ("MIG-%08x-4444-5555-6666-%012x"):format(0xb0000000 + 16 * i + k, k)
      r.devices[#r.devices + 1] = { uid = id, kind = "mig", uuid = id, mem_bytes = 40448 * 2 ^ 20, free_bytes = 40000 * 2 ^ 20,
        mig = { mode = "on", parent = g[i].uid, profile = "3g.40gb" }, nvml = { slot = 3 * k } }
    end
  end
  each_pair(g, function(a, b) join(r, a, b, { nvlinks = 6, pcie = a.numa == b.numa and "node" or "sys" }) end)
  return r
end

--- 8 x H100 on NVSwitches: 18 links of each GPU, all to switches; the fabric is ready and belongs to one host (a cluster of zeros).
function M.dgx()
  local g = {}
  for i = 0, 7 do
    g[i + 1] = h100(i, i < 4 and 0 or 1)
    g[i + 1].fabric = { state = "completed", status = "success", health = "healthy" }
  end
  local r = record(g)
  each_pair(g, function(a, b) join(r, a, b, { nvlinks = 18, via_switch = true, pcie = a.numa == b.numa and "node" or "sys" }) end)
  return r
end

--- 2 x RTX A6000 with a bridge of 4 links, peer access refused from the second to the first.
function M.bridge()
  local g = { h100(0, 0), h100(1, 0) }
  for _, d in ipairs(g) do d.name, d.sm, d.mig, d.mem_bytes, d.free_bytes = "NVIDIA RTX A6000", "8.6", nil, 48 * GIB, 47 * GIB end
  local r = record(g)
  join(r, g[1], g[2], { nvlinks = 4, pcie = "phb", p2p_ba = { read = "cns", write = "ok" } })
  return r
end

--- 2 GPUs of two models on PCIe.
function M.mixed()
  local r = M.bridge()
  r.devices[2].name, r.devices[2].mem_bytes, r.devices[2].free_bytes = H100, 80 * GIB, 80 * GIB
  r.links = { { a = r.devices[1].uid, b = r.devices[2].uid, kind = "phb", p2p = { read = "ns", write = "ns" } } }
  return r
end

M.uuid = uuid
return M
