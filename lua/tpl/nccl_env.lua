-- SPDX-License-Identifier: Apache-2.0
--- Say which NCCL variables a placement needs: only those with a cause, each with its reason, and none for a group that NCCL handles well by itself.
-- NCCL's defaults are those of 2.30.7's source (paths.cc, transport/p2p.cc): peers talk directly up to PXB, up to SYS between at most two GPUs under
-- an AMD CPU; two host bridges of one NUMA node are PHB to NCCL. A variable that is set without need hides the next problem.
local json = require("tpl.json")

local M = {}

---@class tpl.EnvEntry
---@field name string
---@field value string
---@field why string
---@field host string?   only for this host, where hosts differ

local function known(x) if x ~= nil and x ~= json.null then return x end end

-- NCCL's level for each of our PCIe words.
local level_of = { pix = "PIX", pxb = "PXB", phb = "PHB", node = "PHB", sys = "SYS" }
local level_rank = { PIX = 1, PXB = 2, PHB = 3, SYS = 4 }

-- One-way GB/s of x16 by PCIe generation, as NCCL counts it (topo.h); direct access is worth its name from half of that.
local x16_gb_s = { 3, 6, 12, 24, 48, 96 }
local GOOD_SHARE, GOOD_GB_S = 0.5, 10

--- Names that NCCL still reads but has renamed.
M.renamed = { NCCL_MIN_NCHANNELS = "NCCL_MIN_CTAS", NCCL_MAX_NCHANNELS = "NCCL_MAX_CTAS",
  NCCL_ASYNC_ERROR_HANDLING = "TORCH_NCCL_ASYNC_ERROR_HANDLING" }

--- Give the name that NCCL uses today for a variable.
---@param name string
---@return string name
---@return string? note  what changed, where it did
function M.canonical(name)
  local new = M.renamed[name]
  if not new then return name end
  return new, ("%s is the old name of %s"):format(name, new)
end

-- -- Facts of a group --------------------------------------------------------------------------------------------------

local function pairs_of(t, group)
  local out = {}
  for i = 1, #group do
    for k = i + 1, #group do
      local link = t:link(group[i], group[k])
      if link then out[#out + 1] = { a = group[i], b = group[k], link = link } end
    end
  end
  return out
end

local function hosts_of(t, group)
  local out, seen = {}, {}
  for _, uid in ipairs(group) do
    local d = t:dev(uid)
    local host = d and known(d.host) or "host0"
    if not seen[host] then
      seen[host] = true
      out[#out + 1] = host
    end
  end
  return out, seen
end

local function gpus_only(t, group)
  local out = {}
  for _, uid in ipairs(group) do
    local d = t:dev(uid)
    if d and d.kind == "gpu" then out[#out + 1] = uid end
  end
  return out
end

local function default_level(t, group)
  local d = t:dev(group[1])
  local host
  for _, h in ipairs(t.hosts or {}) do if h.id == (d and d.host) then host = h end end
  local vendor = host and known(host.cpu) and known(host.cpu.vendor)
  if vendor and vendor:find("AMD") and #t:ids { host = host.id, kind = "gpu" } <= 2 then return "SYS" end
  return "PXB"
end

local function is_p2p_ok(link)
  local p2p = known(link.p2p)
  return p2p ~= nil and p2p.read == "ok" and p2p.write == "ok"
end

local function good_gb_s(t, pair)
  local pcie = known((t:dev(pair.a) or {}).pcie)
  local x16 = pcie and known(pcie.gen) and x16_gb_s[pcie.gen]
  return x16 and GOOD_SHARE * x16 * (known(pcie.width) or 16) / 16 or GOOD_GB_S
end

-- -- The variables -----------------------------------------------------------------------------------------------------

-- A path that NCCL leaves alone by default although it was measured to be good, and none of this level that is bad.
local function p2p_level(t, group, out)
  local default, wanted, best = default_level(t, group), nil, nil
  local all = pairs_of(t, group)
  for _, pair in ipairs(all) do
    local level = level_of[known(pair.link.kind)]
    if level and level_rank[level] > level_rank[default] then
      local gb_s = known(pair.link.gb_s)
      local is_good = pair.link.source == "measured" and is_p2p_ok(pair.link) and known(pair.link.data_ok) ~= false
        and gb_s and gb_s >= good_gb_s(t, pair)
      if not is_good then return end
      if not wanted or level_rank[level] > level_rank[wanted] then wanted, best = level, pair end
    end
  end
  if not wanted then return end
  out[#out + 1] = { name = "NCCL_P2P_LEVEL", value = wanted,
    why = ("%s and %s talk directly at %.1f GB/s (measured, data checked both ways) over a %s path; NCCL stops at %s by default and would go through "
      .. "shared memory"):format(best.a, best.b, best.link.gb_s, best.link.kind:upper(), default) }
end

-- Peer access that answers and delivers wrong bytes is worse than none; NCCL does not check data.
local function p2p_off(t, group, out)
  for _, pair in ipairs(pairs_of(t, group)) do
    if known(pair.link.data_ok) == false then
      out[#out + 1] = { name = "NCCL_P2P_DISABLE", value = "1",
        why = ("direct access between %s and %s delivered wrong data when measured (ACS, IOMMU or driver); shared memory is slower and right"):format(
          pair.a, pair.b) }
      return true
    end
  end
end

local function is_rdma(name) return name:find("^mlx") or name:find("^bnxt_re") or name:find("^irdma") or name:find("^ib") or name:find("^hfi") end

-- Near adapters of the group on one host, and those that are near to none of it.
local function adapters(t, host, group)
  local near, far, in_group = {}, {}, {}
  for _, uid in ipairs(group) do in_group[uid] = true end
  for _, nic in ipairs(t.nics or {}) do
    local device = known(nic.device)
    local nic_host = known(nic.host)
    if device and is_rdma(device) and (nic_host == nil or nic_host == host) then
      local is_near, is_here = false, nic_host == host or #(t.hosts or {}) < 2
      for _, uid in ipairs(known(nic.near) or {}) do
        local d = t:dev(uid)
        if d and (known(d.host) or "host0") == host then is_here = true end
        if in_group[uid] and d and (known(d.host) or "host0") == host then is_near = true end
      end
      if is_here then table.insert(is_near and near or far, device) end
    end
  end
  return near, far
end

local function ib_hca(t, group, hosts, out)
  local entries, is_same = {}, true
  for _, host in ipairs(hosts) do
    local near, far = adapters(t, host, group)
    if #near > 0 and #far > 0 then
      table.sort(near)
      entries[#entries + 1] = { host = host, value = "=" .. table.concat(near, ","), far = far }
    else
      is_same = is_same and #entries == 0
    end
  end
  for _, e in ipairs(entries) do is_same = is_same and e.value == entries[1].value end
  is_same = is_same and #entries == #hosts
  for i, e in ipairs(entries) do
    if i == 1 or not is_same then
      out[#out + 1] = { name = "NCCL_IB_HCA", value = e.value, host = not is_same and e.host or nil,
        why = ("between hosts only the adapters beside the chosen GPUs; %s %s near to none of them "
          .. "('=' because a name also matches longer ones)"):format(
          table.concat(e.far, ", "), #e.far > 1 and "are" or "is") }
    end
  end
end

local virtual = { "docker", "virbr", "veth", "cni", "flannel", "br-", "lxc", "podman" }

local function is_virtual(name)
  for _, prefix in ipairs(virtual) do if name:sub(1, #prefix) == prefix then return prefix end end
end

-- The interfaces that are known: of the caller's machine, of the hosts, or adapters that are named like one.
local function interfaces(t, opts, is_host)
  local out = {}
  for _, name in ipairs(opts.interfaces or {}) do out[#out + 1] = name end
  for _, host in ipairs(t.hosts or {}) do
    if is_host[host.id] then
      for _, name in ipairs(known(host.interfaces) or {}) do out[#out + 1] = name end
    end
  end
  for _, nic in ipairs(t.nics or {}) do
    for _, name in ipairs { known(nic.device), known(nic.name) } do out[#out + 1] = name end
  end
  return out
end

local function socket_ifname(t, hosts, is_host, opts, out)
  local prefixes, seen, names = {}, {}, {}
  for _, name in ipairs(interfaces(t, opts, is_host)) do
    local prefix = is_virtual(name)
    if prefix and not seen[name] then
      seen[name] = true
      names[#names + 1] = name
      if not seen[prefix] then
        seen[prefix] = true
        prefixes[#prefixes + 1] = prefix
      end
    end
  end
  if #prefixes == 0 then return end
  table.sort(prefixes)
  prefixes[#prefixes + 1] = "lo"
  out[#out + 1] = { name = "NCCL_SOCKET_IFNAME", value = "^" .. table.concat(prefixes, ","),
    why = ("%s %s an address that the other host%s cannot reach; taken for the bootstrap, NCCL hangs at start"):format(table.concat(names, ", "),
      #names > 1 and "have" or "has", #hosts > 2 and "s" or "") }
end

-- "2.26.4" < "2.26.5": numbers, not letters.
local function is_before(version, limit)
  local a, b = {}, {}
  for n in version:gmatch("%d+") do a[#a + 1] = tonumber(n) end
  for n in limit:gmatch("%d+") do b[#b + 1] = tonumber(n) end
  for i = 1, #b do
    if (a[i] or 0) ~= b[i] then return (a[i] or 0) < b[i] end
  end
  return false
end

local function cumem_host(opts, out)
  if opts.sys_nice ~= false then return end
  if opts.nccl and not is_before(opts.nccl, "2.26.5") then return end
  out[#out + 1] = { name = "NCCL_CUMEM_HOST_ENABLE", value = "0",
    why = "this container may not set NUMA policies (no SYS_NICE) and NCCL before 2.26.5 fails in init when it tries; "
      .. "or add the capability SYS_NICE" }
end

-- Variables that are already set: old names, and a level that was left behind.
local function check_set(environment, out)
  local names = {}
  for name in pairs(environment) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local new, note = M.canonical(name)
    if note and environment[new] == nil then
      out[#out + 1] = { name = new, value = tostring(environment[name]), why = note .. ", which is set here" }
    end
  end
end

--- Say which variables a placement needs. CUDA_DEVICE_ORDER comes first wherever GPUs are used; NCCL_* only for a cause.
---@param t table            topology
---@param groups string[][]  uids that communicate with each other: one list per replica
---@param opts {interfaces: string[]?, sys_nice: boolean?, nccl: string?, environment: table<string, string>?}?
---  interfaces: names of network interfaces; sys_nice: false = set_mempolicy is refused here; nccl: version; environment: what is set already
---@return tpl.EnvEntry[]
function M.make(t, groups, opts)
  opts = opts or {}
  local out, seen, has_gpu = {}, {}, false
  local found = {}
  for _, all in ipairs(groups) do
    local group = gpus_only(t, all)
    has_gpu = has_gpu or #group > 0
    if #group > 1 then
      local hosts, is_host = hosts_of(t, group)
      if not p2p_off(t, group, found) then p2p_level(t, group, found) end
      if #hosts > 1 then
        ib_hca(t, group, hosts, found)
        socket_ifname(t, hosts, is_host, opts, found)
      end
      cumem_host(opts, found)
    end
  end
  check_set(opts.environment or {}, found)
  if has_gpu then
    out[1] = { name = "CUDA_DEVICE_ORDER", value = "PCI_BUS_ID",
      why = "CUDA numbers the fastest GPU first unless told; nvidia-smi, this plan and people count in PCI order" }
  end
  local is_off = false
  for _, e in ipairs(found) do is_off = is_off or e.name == "NCCL_P2P_DISABLE" end
  for _, e in ipairs(found) do
    local key = e.name .. "@" .. (e.host or "")
    if not seen[key] and not (is_off and e.name == "NCCL_P2P_LEVEL") then
      seen[key] = true
      out[#out + 1] = e
    end
  end
  return out
end

return M
