-- SPDX-License-Identifier: Apache-2.0
--- Checks of NUMA: cores and memory of the process against the nodes of its GPUs, and pairs that cross nodes.
local cpuset = require("tpl.topo.cpuset")
local finding = require("tpl.doctor.finding")
local pci_of = require("tpl.doctor.pci")

local ok, skip, warn, fail, some = finding.ok, finding.skip, finding.warn, finding.fail, finding.some

local function no_group(f) return #f.group == 0 and skip("no GPU is known") end

--- The nodes that have cores; a GPU's own memory may be a node without.
local function cpu_nodes(f)
  local out = {}
  for _, name in ipairs(f.host:list("sys/devices/system/node") or {}) do
    local id = tonumber(name:match("^node(%d+)$"))
    local list = id and f.host:word("sys/devices/system/node/" .. name .. "/cpulist")
    if list then out[#out + 1] = { id = id, cpus = list } end
  end
  return out
end

local function cpuset_numa(f)
  local gone = no_group(f)
  if gone then return gone end
  local text, where = f:allowed_cpus()
  if not text then return skip("no Cpus_allowed_list in /proc/self/status and no cpuset in /sys/fs/cgroup") end
  local far, known = {}, 0
  for _, gpu in ipairs(f.group) do
    local near = f:cpus_of(gpu)
    if near then
      known = known + 1
      if not cpuset.both(text, near) then
        far[#far + 1] = string.format("GPU %d: cores %s%s", gpu.index, near, gpu.numa and " of node " .. gpu.numa or "")
      end
    end
  end
  if known == 0 then return skip("the cores next to the GPUs are unknown (local_cpulist, NUMA node)") end
  if #far > 0 then
    return fail(string.format("the process may use cores %s (%s), none of them near %s", text, where, some(far)),
      "Kubernetes: --topology-manager-policy=single-numa-node with --cpu-manager-policy=static; docker run --cpuset-cpus; slurm --gpu-bind=closest")
  end
  return ok("cores %s include some near each of %d GPUs", text, known)
end

local function mems_numa(f)
  local gone = no_group(f)
  if gone then return gone end
  local text = f.host:field("proc/self/status", "Mems_allowed_list")
  if not cpuset.normal(text) then return skip("no Mems_allowed_list in /proc/self/status") end
  local far, known = {}, 0
  for _, gpu in ipairs(f.group) do
    if gpu.numa then
      known = known + 1
      if not cpuset.contains(text, tostring(gpu.numa)) then far[#far + 1] = string.format("GPU %d: node %d", gpu.index, gpu.numa) end
    end
  end
  if known == 0 then return skip("the NUMA nodes of the GPUs are unknown") end
  if #far > 0 then
    return warn(string.format("memory may come from nodes %s only (Mems_allowed_list), not from %s", text, some(far)),
      "docker run --cpuset-mems, or a memory manager policy of Static in Kubernetes")
  end
  return ok("memory may come from nodes %s", text)
end

local function has_switch(f) return #pci_of.nvswitches(f.pci) > 0 or f.host:exists("dev/nvidia-nvswitch0") end

local function is_board(gpu)
  local name = gpu.name or ""
  return name:find("SXM", 1, true) or name:find("HBM3", 1, true) or name:find("NVL", 1, true) or name:find("B200", 1, true) or name:find("H200",
    1, true)
end

local function crossing(f)
  if #f.group < 2 then return skip("fewer than two GPUs would be used") end
  local far, known, unsure = {}, 0, 0
  for _, p in ipairs(f:pairs_of(f.group)) do
    local a, b = p[1], p[2]
    local cross = (p.link.pcie == "sys") or (a.numa and b.numa and a.numa ~= b.numa)
    if p.link.pcie or (a.numa and b.numa) then known = known + 1 end
    if cross and p.link.kind ~= "nvlink" and p.link.kind ~= "c2c" then
      if not p.link.nvlink_known and (has_switch(f) or is_board(a) or is_board(b)) then unsure = unsure + 1
      else
        far[#far + 1] = string.format("GPU %d - GPU %d SYS%s", a.index, b.index, a.numa and b.numa and string.format(" (node %d and %d)", a.numa,
          b.numa) or "")
      end
    end
  end
  if known == 0 then return skip("neither distances nor NUMA nodes of the GPUs are known") end
  if #far > 0 then
    return warn(string.format("%d pairs cross NUMA nodes over PCIe: %s", #far, some(far)),
      "keep tp inside a node (CUDA_VISIBLE_DEVICES with UUIDs of one node, require = { same_numa = true }) and put pp or replicas across")
  end
  if unsure > 0 then return skip("%d pairs cross NUMA nodes; whether they have NVLink is unknown (no NVML, no recorded topology)", unsure) end
  return ok("no pair crosses NUMA nodes without NVLink")
end

local function unknown(f)
  local gone = no_group(f)
  if gone then return gone end
  local nodes = cpu_nodes(f)
  if #nodes == 0 then return skip("/sys/devices/system/node is absent") end
  local none, known = {}, 0
  for _, gpu in ipairs(f.group) do
    if gpu.sysfs and gpu.sysfs.numa_said then
      known = known + 1
      if gpu.sysfs.numa_said < 0 then none[#none + 1] = string.format("%s (/%snuma_node)", gpu.title, gpu.sysfs.dir) end
    end
  end
  if known == 0 then return skip("no GPU has numa_node in sysfs") end
  if #none > 0 and #nodes > 1 then
    return warn(string.format("numa_node is -1 on a host of %d nodes: %s", #nodes, some(none)),
      "enable NUMA (SRAT) in the BIOS; in a VM give the guest the host's NUMA layout, or state it in topo.yaml")
  end
  return ok(#nodes == 1 and "one NUMA node" or "the node of each GPU is known")
end

return {
  { code = "cpuset_numa", group = "NUMA", what = "cores of the process against the GPUs' NUMA nodes", run = cpuset_numa,
    why = "when the threads that feed a GPU run on the other socket, launches and copies cross the link between sockets" },
  { code = "mems_numa", group = "NUMA", what = "memory nodes of the process against the GPUs'", run = mems_numa,
    why = "pinned buffers on the other node halve the copy speed" },
  { code = "numa_crossing", group = "NUMA", what = "pairs that cross NUMA nodes", run = crossing,
    why = "tensor parallel sends two all-reduces per layer over the slowest pair: across sockets that is most of the token's time" },
  { code = "numa_unknown", group = "NUMA", what = "NUMA node of each GPU", run = unknown,
    why = "NCCL and tpl then take the first node for every GPU" },
}
