-- SPDX-License-Identifier: Apache-2.0
--- Checks of the network side: GPUDirect RDMA, the way from NIC to GPU, and which interface NCCL would take.
local finding = require("tpl.doctor.finding")
local pci_of = require("tpl.doctor.pci")

local ok, skip, warn, fail, some = finding.ok, finding.skip, finding.warn, finding.fail, finding.some

local function names_of(list)
  local out = {}
  for i, d in ipairs(list) do out[i] = d.name end
  return out
end

--- dma-buf needs the open kernel module and Linux 5.12 (NCCL user guide, GPUDirect RDMA).
local function has_dmabuf(f)
  local text = f.host:read("proc/driver/nvidia/version") or ""
  if not text:find("Open Kernel Module", 1, true) then return false end
  local release = f.host:word("proc/sys/kernel/osrelease") or (f.host:word("proc/version") or ""):match("Linux version (%S+)") or ""
  local major, minor = release:match("^(%d+)%.(%d+)")
  return major ~= nil and (tonumber(major) > 5 or (tonumber(major) == 5 and tonumber(minor) >= 12))
end

local function gpudirect(f)
  local rdma = f:rdma()
  if #rdma == 0 then return skip("no RDMA device in /sys/class/infiniband or in the topology") end
  if #f.gpus == 0 and not f.host:exists("proc/driver/nvidia/version") then return skip("no GPU is known") end
  for _, name in ipairs { "nvidia_peermem", "nv_peer_mem" } do
    if f.host:is_module(name) then return ok("module %s is loaded", name) end
  end
  if has_dmabuf(f) and f:setting("NCCL_DMABUF_ENABLE") ~= "0" then return ok("open kernel module and Linux 5.12 or newer: dma-buf") end
  if f.host:is_module("nvidia_peermem") == nil then return skip("/proc/modules and /sys/module are absent") end
  return fail(string.format("%s present, nvidia_peermem not in /proc/modules, and no dma-buf (it needs the open kernel module)",
    some(names_of(rdma))),
    "modprobe nvidia-peermem; echo nvidia-peermem > /etc/modules-load.d/nvidia-peermem.conf")
end

local function near_word(f, nic, gpu)
  local record = nic.nic
  if not record then
    for _, other in ipairs(f.topo and f.topo.nics or {}) do
      if other.device == nic.name or other.name == nic.name then record = other end
    end
  end
  local word = record and type(record.to) == "table" and record.to[gpu.uid]
  if word then return word end
  if nic.sysfs and gpu.sysfs then return pci_of.distance(nic.sysfs, gpu.sysfs) end
end

local BETTER = { pix = 1, pxb = 2, phb = 3, node = 4, sys = 5 }

local function nic_distance(f)
  local rdma = f:rdma()
  if #rdma == 0 then return skip("no RDMA device in /sys/class/infiniband or in the topology") end
  if #f.group == 0 then return skip("no GPU is known") end
  local far, known = {}, 0
  for _, gpu in ipairs(f.group) do
    local best
    for _, nic in ipairs(rdma) do
      local word = near_word(f, nic, gpu)
      if word and (not best or BETTER[word] < BETTER[best]) then best = word end
    end
    if best then known = known + 1 end
    if best and BETTER[best] >= 3 then far[#far + 1] = string.format("GPU %d: %s", gpu.index, best:upper()) end
  end
  if known == 0 then return skip("the way from NIC to GPU is unknown") end
  if #far > 0 then
    return warn("the nearest NIC is beyond the host bridge: " .. some(far),
      "use GPUs and NICs on one switch; if the platform allows it NCCL_NET_GDR_LEVEL=SYS; in a VM give NCCL_TOPO_FILE")
  end
  return ok("each of %d GPUs has a NIC at PIX or PXB", known)
end

-- -- Interfaces -------------------------------------------------------------------------------------------------------

local VIRTUAL = { "^docker", "^br%-", "^virbr", "^veth", "^cni", "^flannel", "^cali", "^vxlan", "^tunl", "^lxc", "^lxd", "^podman", "^kube%-",
  "^weave", "^cilium" }

local function is_virtual(name)
  for _, pattern in ipairs(VIRTUAL) do if name:find(pattern) then return true end end
  return false
end

--- Interfaces but the loopback: from sysfs, else from proc/net/dev.
local function interfaces(f)
  local names = f.host:list("sys/class/net")
  if not names then
    local text = f.host:read("proc/net/dev")
    if not text then return nil end
    names = {}
    for name in text:gmatch("\n%s*([^%s:|]+):") do names[#names + 1] = name end
  end
  local out = {}
  for _, name in ipairs(names) do
    local state = f.host:word("sys/class/net/" .. name .. "/operstate")
    if name ~= "lo" and name ~= "bonding_masters" and state ~= "down" then out[#out + 1] = name end
  end
  return out
end

--- NCCL's list: prefixes, "=" for exact names, "^" to exclude.
local function parse_ifname(text)
  local list = { exclude = text:find("^%^") ~= nil, exact = false, words = {} }
  text = text:gsub("^%^", "")
  if text:find("^=") then
    list.exact = true
    text = text:sub(2)
  end
  for word in text:gmatch("[^,]+") do list.words[#list.words + 1] = (word:match("^%s*(.-)%s*$"):gsub(":%d+$", "")) end
  return list
end

local function takes(list, name)
  local hit = false
  for _, word in ipairs(list.words) do
    hit = hit or name == word or (not list.exact and name:sub(1, #word) == word)
  end
  return hit ~= list.exclude
end

local function socket_ifname(f)
  local names = interfaces(f)
  local text, where = f:setting("NCCL_SOCKET_IFNAME")
  if not names then return skip("neither /sys/class/net nor /proc/net/dev is there") end
  local real, virtual = {}, {}
  for _, name in ipairs(names) do table.insert(is_virtual(name) and virtual or real, name) end
  local fix = string.format("NCCL_SOCKET_IFNAME=%s on every rank (prefix; '=' exact, '^docker,virbr,lo' excludes)", real[1] or "eth")
  if text then
    local list, taken = parse_ifname(text), {}
    for _, name in ipairs(names) do if takes(list, name) then taken[#taken + 1] = name end end
    if takes(list, "lo") and not list.exclude then taken[#taken + 1] = "lo" end
    if #taken == 0 then return fail(string.format("NCCL_SOCKET_IFNAME=%s (%s) names no interface that is up; there are %s", text, where,
      some(names, 8)), fix) end
    if is_virtual(taken[1]) or taken[1] == "lo" then
      return warn(string.format("NCCL_SOCKET_IFNAME=%s (%s) takes %s, which no other host reaches", text, where, taken[1]), fix)
    end
    return ok("NCCL_SOCKET_IFNAME=%s takes %s", text, some(taken))
  end
  if #virtual > 0 then
    return warn(string.format("NCCL_SOCKET_IFNAME is not set and the host has %s beside %s", some(virtual), #real > 0 and some(real)
      or "no real interface"), fix)
  end
  return ok("interfaces: %s", #names > 0 and some(names, 8) or "none but lo")
end

local function ib_hca(f)
  local text, where = f:setting("NCCL_IB_HCA")
  if not text then return ok("NCCL_IB_HCA is not set: all are used") end
  local rdma = f:rdma()
  if #rdma == 0 then return skip("NCCL_IB_HCA=%s, and no RDMA device is visible", text) end
  local list, all = parse_ifname(text), names_of(rdma)
  local surprise, none = {}, {}
  for _, word in ipairs(list.words) do
    local n = 0
    for _, name in ipairs(all) do
      if name == word or (not list.exact and name:sub(1, #word) == word) then
        n = n + 1
        if name ~= word and name:sub(#word + 1):find("^%d") and word:find("%d$") then surprise[#surprise + 1] = word .. " also takes " .. name end
      end
    end
    if n == 0 and not list.exclude then none[#none + 1] = word end
  end
  if #none > 0 then return fail(string.format("NCCL_IB_HCA=%s (%s): no device %s; there are %s", text, where, some(none), some(all, 12)),
    "NCCL_IB_HCA==" .. table.concat(all, ",")) end
  if #surprise > 0 then return warn(string.format("NCCL_IB_HCA=%s (%s) matches by prefix: %s", text, where, some(surprise)),
    "write it exactly: NCCL_IB_HCA==" .. text) end
  return ok("NCCL_IB_HCA=%s", text)
end

local function ib_disable(f)
  local text, where = f:setting("NCCL_IB_DISABLE")
  local net, net_where = f:setting("NCCL_NET")
  local rdma = f:rdma()
  if #rdma == 0 then return skip("no RDMA device in /sys/class/infiniband or in the topology") end
  if text == "1" then return fail(string.format("NCCL_IB_DISABLE=1 (%s) on a host with %s", where, some(names_of(rdma))), "unset NCCL_IB_DISABLE") end
  if net and net:lower() == "socket" then return fail(string.format("NCCL_NET=%s (%s) on a host with %s", net, net_where, some(names_of(rdma))),
    "unset NCCL_NET, or NCCL_NET=IB") end
  return ok("%s may be used", some(names_of(rdma)))
end

local function ib_state(f)
  local down, known = {}, 0
  for _, d in ipairs(f:rdma()) do
    if d.state then known = known + 1 end
    if d.state and not d.state:find("ACTIVE") then down[#down + 1] = string.format("%s: %s (%s/ports/1/state)", d.name, d.state, d.where) end
  end
  if known == 0 then return skip("no port state in /sys/class/infiniband") end
  if #down > 0 then return warn("ports not active: " .. some(down),
    "check cable, switch and subnet manager: ibstat; or leave it out: NCCL_IB_HCA=^NAME") end
  return ok("%d ports are active", known)
end

return {
  { code = "gpudirect_rdma", group = "Network", what = "GPUDirect RDMA (nvidia-peermem or dma-buf)", run = gpudirect,
    why = "without it every byte between hosts is staged through the CPU's memory (IB lines without /GDRDMA)" },
  { code = "nic_distance", group = "Network", what = "NIC next to each GPU", run = nic_distance,
    why = "beyond the host bridge NCCL does not use GPUDirect RDMA by default" },
  { code = "socket_ifname", group = "Network", what = "interface for NCCL's bootstrap", run = socket_ifname,
    why = "a bridge such as docker0 or virbr0 has an address that other hosts cannot reach: init hangs" },
  { code = "ib_hca", group = "Network", what = "NCCL_IB_HCA", run = ib_hca,
    why = "names are prefixes: mlx5_1 is also mlx5_10, and a name that is not there leaves sockets" },
  { code = "ib_disable", group = "Network", what = "InfiniBand switched off by a variable", run = ib_disable,
    why = "traffic between hosts then goes over sockets at a tenth of the speed" },
  { code = "ib_state", group = "Network", what = "state of the RDMA ports", run = ib_state,
    why = "a port that is down leaves its GPUs to a farther NIC, or NCCL to sockets" },
}
