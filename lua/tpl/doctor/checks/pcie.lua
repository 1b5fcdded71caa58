-- SPDX-License-Identifier: Apache-2.0
--- Checks of the PCIe side: what stands between two GPUs, or between a GPU and its NIC (facts/topology.md sections 3 and 8).
local bit = require("bit")
local finding = require("tpl.doctor.finding")
local pci_of = require("tpl.doctor.pci")

local ok, skip, warn, fail, some = finding.ok, finding.skip, finding.warn, finding.fail, finding.some

--- The bridges above GPUs and NICs; all of them where the tree keeps no links.
local function bridges_that_matter(f)
  local above, known = {}, false
  for _, d in ipairs(f.pci.list) do
    if d.path and (d.class:find("^0x030[02]") or d.class:find("^0x02")) then
      known = true
      for i = 1, #d.path - 1 do above[pci_of.address(d.path[i])] = true end
    end
  end
  local out = {}
  for _, d in ipairs(pci_of.bridges(f.pci)) do
    if not known or above[d.pci] then out[#out + 1] = d end
  end
  return out
end

local ACS_BITS = { { 0x01, "SrcValid" }, { 0x04, "ReqRedir" }, { 0x08, "CmpltRedir" }, { 0x10, "UpstreamFwd" } }

local function acs(f)
  if not f.pci then return skip("/sys/bus/pci/devices is absent") end
  local bridges = bridges_that_matter(f)
  if #bridges == 0 then return skip("no PCI bridge is visible (a virtual machine, or /sys is masked)") end
  local redirect, on, read, short = {}, {}, 0, 0
  for _, d in ipairs(bridges) do
    local control, known = pci_of.acs_control(f.host, d)
    if known then read = read + 1 else short = short + 1 end
    local words = {}
    for _, b in ipairs(ACS_BITS) do
      if control and bit.band(control, b[1]) ~= 0 then words[#words + 1] = b[2] .. "+" end
    end
    local text = string.format("%s ACSCtl %s (/%sconfig)", d.pci, table.concat(words, " "), d.dir)
    if control and bit.band(control, 0x0c) ~= 0 then redirect[#redirect + 1] = text elseif #words > 0 then on[#on + 1] = text end
  end
  local fix = string.format("turn ACS off in the BIOS, or at every boot as root: setpci -s %s ECAP_ACS+0x6.w=0000 (each bridge; bare metal only)",
    (redirect[1] or on[1] or "BRIDGE"):match("^%S+"))
  if #redirect > 0 then return fail("bridges send peer traffic up to the root: " .. some(redirect), fix) end
  if #on > 0 then return warn("ACS is on: " .. some(on), fix) end
  if read == 0 then return skip("the configuration space of %d bridges is readable by root only (/%sconfig)", short, bridges[1].dir) end
  return ok("ACS control is 0 or absent on %d bridges", read)
end

--- The translation of a device's IOMMU group: "DMA", "DMA-FQ" or "identity".
local function group_types(f)
  local by = {}
  for _, gpu in ipairs(f.gpus) do
    local real = gpu.sysfs and f.host:link(gpu.sysfs.dir .. "iommu_group")
    local group = real and real:match("([^/]+)$")
    local kind = group and f.host:word("sys/kernel/iommu_groups/" .. group .. "/type")
    if kind then by[kind] = by[kind] or gpu.title .. ", /sys/kernel/iommu_groups/" .. group .. "/type" end
  end
  if next(by) then return by end
  for _, group in ipairs(f.host:list("sys/kernel/iommu_groups") or {}) do
    local path = "sys/kernel/iommu_groups/" .. group
    local holds_gpu = false
    for _, name in ipairs(f.host:list(path .. "/devices") or {}) do
      for _, gpu in ipairs(f.gpus) do holds_gpu = holds_gpu or gpu.pci == pci_of.address(name) end
    end
    local kind = (holds_gpu or #f.gpus == 0) and f.host:word(path .. "/type")
    if kind then by[kind] = by[kind] or "/" .. path .. "/type" end
  end
  return by
end

local function iommu(f)
  local cmdline = f.host:word("proc/cmdline")
  local units = f.host:list("sys/class/iommu")
  if not cmdline and not units then return skip("neither /proc/cmdline nor /sys/class/iommu is there") end
  local words = " " .. (cmdline or "") .. " "
  local fix = "boot with iommu=pt (or intel_iommu=off, amd_iommu=off); to see whether it is the cause, NCCL_P2P_DISABLE=1 then works"
  local types = group_types(f)
  for kind, where in pairs(types) do
    if kind:find("^DMA") then
      return fail(string.format("the IOMMU translates the DMA of the GPUs: %s is %s, /proc/cmdline: %s", where, kind, cmdline or "unknown"), fix)
    end
  end
  if types.identity then return ok("the groups of the GPUs are identity mapped (%s)", types.identity) end
  if words:find(" iommu=pt ", 1, true) or words:find(" iommu.passthrough=1 ", 1, true) or words:find(" iommu=off ", 1, true) then
    return ok("/proc/cmdline: %s", words:match("%S*iommu%S*"))
  end
  local asked = words:match(" (intel_iommu=%S*on%S*) ") or words:match(" (amd_iommu=%S*on%S*) ") or words:match(" (amd_iommu=force_isolation) ")
    or words:match(" (iommu=force) ") or words:match(" (iommu=strict) ") or words:match(" (iommu=nopt) ") or words:match(" (iommu.passthrough=0) ")
  if asked then return fail(string.format("the IOMMU is on without pass-through: %s in /proc/cmdline", asked), fix) end
  if words:find(" intel_iommu=off ", 1, true) or words:find(" amd_iommu=off ", 1, true) then return ok("/proc/cmdline: %s",
    words:match("%S*iommu=off")) end
  if units and #units > 0 then
    return warn(string.format("IOMMU units are active (%s in /sys/class/iommu) and /proc/cmdline says nothing of pass-through", some(units)), fix)
  end
  if units then return ok("/sys/class/iommu is empty: no IOMMU is active") end
  return skip("/sys/class/iommu is absent, and /proc/cmdline names no IOMMU option: the default of the kernel is unknown")
end

local function width(f)
  local narrow, seen = {}, 0
  for _, gpu in ipairs(f.gpus) do
    local dir = gpu.sysfs and gpu.sysfs.dir
    local now, most = dir and f.host:number(dir .. "current_link_width"), dir and f.host:number(dir .. "max_link_width")
    if now and most and now > 0 then
      seen = seen + 1
      local parent = gpu.sysfs.path and gpu.sysfs.path[#gpu.sysfs.path - 1]
      local slot = parent and f.host:number("sys/bus/pci/devices/" .. parent .. "/max_link_width")
      if now < most then
        narrow[#narrow + 1] = string.format("%s runs x%d of x%d%s (/%scurrent_link_width)", gpu.title, now, most,
          slot and slot < most and string.format(", its slot %s gives x%d", parent, slot) or "", dir)
      end
    end
  end
  for _, doubt in ipairs(f.topo and f.topo.doubts or {}) do
    if doubt.code == "pcie_width" and #narrow == 0 then
      narrow[1] = doubt.message
      seen = seen + 1
    end
  end
  if seen == 0 then return skip("no GPU has current_link_width in sysfs") end
  if #narrow > 0 then
    return warn(some(narrow), "reseat the card, use an x16 slot and a riser of full width; check: nvidia-smi -q -d PCIE")
  end
  return ok("%d GPUs run at their full width", seen)
end

local function speed(f)
  local slow, seen = {}, 0
  for _, gpu in ipairs(f.gpus) do
    local path = gpu.sysfs and gpu.sysfs.path
    local parent = path and path[#path - 1]
    local own = gpu.sysfs and tonumber((f.host:word(gpu.sysfs.dir .. "max_link_speed") or ""):match("^[%d.]+"))
    local port = parent and tonumber((f.host:word("sys/bus/pci/devices/" .. parent .. "/max_link_speed") or ""):match("^[%d.]+"))
    if own and port then
      seen = seen + 1
      if port < own then slow[#slow + 1] = string.format("%s can do %g GT/s, its port %s %g GT/s", gpu.title, own, parent, port) end
    end
  end
  if seen == 0 then return skip("sysfs does not give max_link_speed of a GPU and of the port above it") end
  if #slow > 0 then return warn(some(slow), "move the card to a slot of its generation, or plan with the slower link: tpl topo --measure") end
  return ok("%d GPUs hang on ports of their own generation", seen)
end

local function sysfs(f)
  local mounts = "\n" .. (f.host:read("proc/mounts") or "")
  if f.pci and #f.pci.list > 0 then
    for at in mounts:gmatch("\ntmpfs (/sys%S*) tmpfs") do
      -- Containers always mask /sys/firmware and parts of /sys/devices/virtual; /sys/fs/cgroup is a tmpfs with cgroups of version 1.
      if at == "/sys" or at:find("^/sys/bus") or at:find("^/sys/class") or at:find("^/sys/devices/?[ps]") or at == "/sys/devices" then
        return warn("a tmpfs hides " .. at .. " (/proc/mounts)", "run the container with -v /sys:/sys:ro, without masked paths")
      end
    end
    return ok("%d PCI devices in /sys/bus/pci/devices", #f.pci.list)
  end
  local has_gpu = #f.gpus > 0 or f.host:exists("dev/nvidia0") or f.host:exists("proc/driver/nvidia/version")
  local why = f.pci and "/sys/bus/pci/devices is empty" or "/sys/bus/pci/devices is absent"
  if not has_gpu then return skip("%s, and no GPU is known", why) end
  if mounts == "\n" and not f.host:list("sys") then return skip("neither /sys nor /proc/mounts is recorded") end
  return fail(why .. ": NCCL cannot see the PCI tree (/sys not mounted, or masked)",
    "mount /sys read-only into the container: docker run -v /sys:/sys:ro, or give NCCL_TOPO_FILE")
end

local function wsl(f)
  local version = f.host:word("proc/version") or f.host:word("proc/sys/kernel/osrelease")
  if not version then return skip("/proc/version is absent") end
  if version:lower():find("microsoft", 1, true) then
    return warn("/proc/version: " .. version, "use a Linux host for several GPUs; under WSL2 plan on one GPU, or NCCL_P2P_DISABLE=1")
  end
  return ok("/proc/version: %s", version:sub(1, 60))
end

--- The pairs whose PCIe way goes through the CPU, without NVLink as far as known.
local function far_pairs(f)
  local out = {}
  for _, p in ipairs(f:pairs_of(f.group)) do
    local word = p.link.pcie
    if (word == "phb" or word == "node" or word == "sys") and p.link.kind ~= "nvlink" and p.link.kind ~= "c2c" then
      out[#out + 1] = string.format("GPU %d - GPU %d %s", p[1].index, p[2].index, word:upper())
    end
  end
  return out
end

local function p2p_intel(f)
  local level, where = f:setting("NCCL_P2P_LEVEL")
  local vendor = f:cpu_vendor()
  if not vendor then return skip("/proc/cpuinfo does not say who made the CPU") end
  if #f.group < 2 then return skip("fewer than two GPUs are known") end
  local word = tostring(level or ""):upper()
  local digit = tonumber(word)
  local far = word == "SYS" or word == "PHB" or word == "NODE" or (digit and digit >= 3)
  if not far then return ok(level and "NCCL_P2P_LEVEL=" .. level or "NCCL_P2P_LEVEL is not set: peers beyond PXB use shared memory") end
  local pairs_far = far_pairs(f)
  if vendor ~= "intel" or #pairs_far == 0 then return ok("NCCL_P2P_LEVEL=%s, the CPU is %s, %d pairs go through it", level, vendor, #pairs_far) end
  return warn(string.format("NCCL_P2P_LEVEL=%s (%s) sends peer writes through an Intel root complex: %s", level, where, some(pairs_far)),
    "unset NCCL_P2P_LEVEL, or measure both ways first: tpl topo --measure")
end

local function vm_topology(f)
  if not f.vm then return skip("no sign of a virtual machine") end
  if #f.gpus < 2 then return skip("fewer than two GPUs are known") end
  local file = f:setting("NCCL_TOPO_FILE")
  if f.host:exists("var/run/nvidia-topologyd/virtualTopology.xml") or f.host:exists("run/nvidia-topologyd/virtualTopology.xml") then
    return ok("virtualTopology.xml is there")
  end
  if file and f.host:exists((file:gsub("^/+", ""))) then return ok("NCCL_TOPO_FILE=%s", file) end
  local flat, known = 0, 0
  for _, p in ipairs(f:pairs_of(f.gpus)) do
    if p.link.pcie then
      known = known + 1
      if p.link.pcie == "phb" then flat = flat + 1 end
    end
  end
  local unknown_numa = 0
  for _, gpu in ipairs(f.gpus) do if gpu.sysfs and gpu.sysfs.numa_said == -1 then unknown_numa = unknown_numa + 1 end end
  local evidence
  if known > 0 and flat == known then evidence = string.format("all %d pairs are PHB", known)
  elseif unknown_numa == #f.gpus then evidence = "numa_node is -1 for every GPU" end
  if not evidence then return known > 0 and ok("%d of %d pairs are PHB", flat, known) or skip("the PCI paths of the GPUs are unknown") end
  return warn(string.format("the virtual machine (%s) shows a flat PCI tree: %s", f.vm, evidence),
    "give NCCL the real tree: NCCL_TOPO_FILE=/path/topology.xml from the provider, or /var/run/nvidia-topologyd/virtualTopology.xml")
end

return {
  { code = "acs", group = "PCIe", what = "ACS on the bridges above GPUs and NICs", run = acs,
    why = "with access control on, writes from GPU to GPU go up to the root: hangs, garbage, or a tenth of the bandwidth" },
  { code = "iommu", group = "PCIe", what = "IOMMU translation of GPU traffic", run = iommu,
    why = "a translating IOMMU makes peer traffic hang at the first collective, corrupt, or crawl" },
  { code = "pcie_width", group = "PCIe", what = "PCIe lanes in use", run = width,
    why = "half the lanes is half the bandwidth, and a group runs at its slowest member" },
  { code = "pcie_speed", group = "PCIe", what = "PCIe generation of the slots", run = speed,
    why = "a port of an older generation halves the bandwidth of its card" },
  { code = "sysfs", group = "PCIe", what = "PCI tree in /sys", run = sysfs,
    why = "NCCL reads distances there: without it every pair is taken for the worst, or init fails" },
  { code = "wsl", group = "PCIe", what = "WSL2", run = wsl, why = "the topology is not meaningful there, and NCCL misses sysfs paths it needs" },
  { code = "p2p_intel_cpu", group = "PCIe", what = "peer writes through an Intel root complex", run = p2p_intel,
    why = "there, peer access across the CPU is slower than shared memory" },
  { code = "vm_topology", group = "PCIe", what = "PCI tree of a virtual machine", run = vm_topology,
    why = "on a flat tree NCCL uses no GPUDirect RDMA and picks NICs blindly" },
}
