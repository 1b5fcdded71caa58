-- SPDX-License-Identifier: Apache-2.0
--- Make small machines and reports by hand for the specs of emit and manifest, without the probe, an importer or the planner.
-- The topology has what those modules use of the real object: fields of `tpl topo`, dev, link and ids.
local M = {}

--- Give the UUID of GPU n.
function M.uuid(n) return ("GPU-%08x-1111-2222-3333-%012x"):format(0xa0 + n, n) end

--- Give the UUID of slice k of GPU n.
function M.mig_uuid(n, k) return ("MIG-%08x-4444-5555-6666-%012x"):format(0xa0 + n, k) end

local Topo = {}
Topo.__index = Topo

function Topo:dev(uid)
  for _, d in ipairs(self.devices) do if d.uid == uid then return d end end
end

function Topo:link(a, b)
  for _, l in ipairs(self.links) do
    if (l.a == a and l.b == b) or (l.a == b and l.b == a) then return l end
  end
end

function Topo:ids(want)
  local out = {}
  for _, d in ipairs(self.devices) do
    if (not want.host or d.host == want.host) and (not want.kind or d.kind == want.kind) then out[#out + 1] = d.uid end
  end
  return out
end

--- Give an object the methods that the modules call.
function M.topo(record)
  record.hosts = record.hosts or { { id = "host0", driver = "570.86.15" } }
  record.links, record.nics = record.links or {}, record.nics or {}
  return setmetatable(record, Topo)
end

--- Make one GPU. n counts from 0; it is index, PCI bus and UUID at once unless told otherwise.
function M.gpu(n, fields)
  local d = { uid = M.uuid(n), uuid = M.uuid(n), kind = "gpu", host = "host0", index = n, pci = ("0000:%02x:00.0"):format(0x18 + n),
    name = "NVIDIA H100 80GB HBM3", sm = "9.0", vbios = "96.00.74.00.01", numa = math.floor(n / 2), cpus = n < 2 and "0-23" or "24-47",
    mem_bytes = 80 * 2 ^ 30, mig = { mode = "off" },
    usable = true }
  for k, v in pairs(fields or {}) do d[k] = v end
  return d
end

--- Join all GPUs of a machine by one kind of link.
function M.mesh(devices, fields)
  local links = {}
  for i = 1, #devices do
    for k = i + 1, #devices do
      local l = { a = devices[i].uid, b = devices[k].uid, kind = "nvlink", nvlinks = 18, via_switch = true, p2p = { read = "ok", write = "ok" },
        source = "stated" }
      for name, v in pairs(fields or {}) do l[name] = v end
      links[#links + 1] = l
    end
  end
  return links
end

--- Make a machine of n whole GPUs on NVLink, two per NUMA node.
function M.machine(n, fields)
  local devices = {}
  for i = 0, n - 1 do devices[#devices + 1] = M.gpu(i, fields) end
  return M.topo { source = { kind = "record", files = { "box.yaml" } }, devices = devices, links = M.mesh(devices) }
end

--- Make the reference host: 4 x H100, GPU 2 and 3 cut into two 3g.40gb slices each for services.
function M.reference_host()
  local t = M.machine(4)
  for n = 2, 3 do
    t.devices[n + 1].mig = { mode = "on" }
    t.devices[n + 1].usable = false
    for k = 0, 1 do
      table.insert(t.devices, { uid = M.mig_uuid(n, k), uuid = M.mig_uuid(n, k), kind = "mig", host = "host0", name = "MIG 3g.40gb", numa = 1,
        mem_bytes = 40 * 2 ^ 30, mig = { mode = "on", parent = M.uuid(n), profile = "3g.40gb" } })
    end
  end
  return t
end

--- Make a report of replicas x stages x devices, as `tpl plan` would say it.
---@param replicas string[][][]  uids by replica and stage
---@param opts {tp: integer?, layers: integer[][]?, kvh: integer[]?, n_head: integer?, n_kv: integer?, ep: integer?, dp: integer?}?
function M.report(replicas, opts)
  opts = opts or {}
  local ranks, stages = {}, {}
  for r, list in ipairs(replicas) do
    for s, uids in ipairs(list) do
      local first = 0
      for k, uid in ipairs(uids) do
        local shards = {}
        if opts.kvh then
          shards.kvh = { { first, opts.kvh[k] } }
          first = first + opts.kvh[k]
        end
        ranks[#ranks + 1] = { rank = #ranks, replica = r - 1, stage = s - 1, uid = uid, coord = { tp = k - 1 }, shards = shards,
          bytes = { weights = 20 * 2 ^ 30, arena = 2 ^ 30, comm = 2 ^ 28, kv = 40 * 2 ^ 30, other = 2 ^ 30, total = 62 * 2 ^ 30,
            capacity = 72 * 2 ^ 30 } }
      end
      stages[s] = { i = s - 1, layers = opts.layers and opts.layers[s] or { (s - 1) * 40, s * 40 - 1 } }
    end
  end
  return { plan_hash = ("ab"):rep(32), program_hash = ("cd"):rep(32), ranks = ranks, stages = stages,
    degrees = { tp = opts.tp or #replicas[1][1], pp = #replicas[1], ep = opts.ep or 1, dp = opts.dp or #replicas },
    model = { arch = "llama", path = opts.path or "meta-llama/Llama-3.3-70B-Instruct", weight_bytes = 141107412992, n_head = opts.n_head,
      n_kv = opts.n_kv },
    kv = { tokens = 131072, max_len = 8192, max_concurrency = 16 }, replicas = {}, env = {} }
end

return M
