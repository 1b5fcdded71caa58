-- SPDX-License-Identifier: Apache-2.0
--- Make recorded hosts for the specs of the doctor (not a spec itself): a table from path to text, and from link to target, written out
-- as a folder. The forms of the files are those of Linux (Documentation/filesystems/proc.rst, ABI/testing/sysfs-bus-pci), of the NVIDIA
-- driver's proc files (its README, "/proc interface") and of the PCI Express base specification (configuration space); the values are ours.
local M = {}

local function shallow(t)
  local out = {}
  for k, v in pairs(t or {}) do out[k] = v end
  return out
end

-- -- PCI --------------------------------------------------------------------------------------------------------------

local function u16(n) return string.char(n % 256, math.floor(n / 256) % 256) end

--- 4096 bytes of configuration space with AER at 0x100 and ACS at 0x148; acs = nil: no ACS.
function M.config(vendor, device, class, acs)
  local head = u16(vendor) .. u16(device) .. u16(0x0407) .. u16(0x0010) .. string.char(0x01, 0x00, class % 256, math.floor(class / 256))
  local bytes = head .. ("\0"):rep(0x100 - #head)
  bytes = bytes .. u16(0x0001) .. u16(acs and 0x1482 or 0x0002) .. ("\0"):rep(0x44) -- AER, version 2, next 0x148
  if acs then bytes = bytes .. u16(0x000d) .. u16(0x0001) .. u16(0x001f) .. u16(acs) end -- ACS, version 1: capability, control
  return bytes .. ("\0"):rep(4096 - #bytes)
end

--- Add one PCI device below a chain of bridges: "pci0000:17/0000:17:01.0/0000:18:00.0".
function M.pci(tree, place, address, d)
  local dir = "sys/devices/" .. place .. "/" .. address
  local f = tree.files
  f[dir .. "/class"] = string.format("0x%04x00\n", d.class)
  f[dir .. "/vendor"] = string.format("0x%04x\n", d.vendor)
  f[dir .. "/numa_node"] = d.numa .. "\n"
  if d.class == 0x0604 then f[dir .. "/config"] = M.config(d.vendor, d.device, d.class, d.acs or 0) end
  tree.links["sys/bus/pci/devices/" .. address] = "../../../devices/" .. place .. "/" .. address
  if tree.lean and d.class == 0x0604 then return dir end
  f[dir .. "/device"], f[dir .. "/local_cpulist"] = string.format("0x%04x\n", d.device), d.cpus .. "\n"
  f[dir .. "/current_link_width"], f[dir .. "/max_link_width"] = (d.width or 16) .. "\n", "16\n"
  f[dir .. "/current_link_speed"], f[dir .. "/max_link_speed"] = (d.speed or "32.0 GT/s PCIe") .. "\n", (d.speed or "32.0 GT/s PCIe") .. "\n"
  return dir
end

-- -- A host -----------------------------------------------------------------------------------------------------------

local function uuid(i) return string.format("GPU-%08x-5d1c-4c0e-9a31-0000c0ffee%02x", 0x3fa0b000 + 0x1111 * i, i) end

-- The kernel writes columns of fixed width (fs/proc/base.c, proc_pid_limits).
local function limit(name, soft, hard, unit) return ("%-25s %-20s %-20s %-10s\n"):format(name, soft, hard, unit) end

local LIMITS = limit("Limit", "Soft Limit", "Hard Limit", "Units") .. limit("Max cpu time", "unlimited", "unlimited", "seconds")
  .. limit("Max stack size", "8388608", "unlimited", "bytes") .. limit("Max open files", "1048576", "1048576", "files")
  .. limit("Max locked memory", "unlimited", "unlimited", "bytes") .. limit("Max processes", "4126953", "4126953", "processes")

local function information(gpu)
  return string.format("Model: \t\t %s\nIRQ:   \t\t 210\nGPU UUID: \t %s\nVideo BIOS: \t %s\nBus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\n"
    .. "Bus Location: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No\n", gpu.name, gpu.uuid, gpu.vbios, gpu.pci, gpu.index)
end

local function system(tree, o)
  local f = tree.files
  f["proc/cmdline"] = "BOOT_IMAGE=/vmlinuz-6.8.0-45-generic root=/dev/mapper/vg-root ro intel_iommu=on iommu=pt\n"
  f["proc/version"] = "Linux version 6.8.0-45-generic (buildd@lcy02-amd64-115) (x86_64-linux-gnu-gcc-13 (Ubuntu 13.2.0) 13.2.0) #45-Ubuntu SMP PREEMPT_DYNAMIC\n"
  f["proc/cpuinfo"] = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
    .. "model name\t: Intel(R) Xeon(R) Platinum 8480C\nflags\t\t: fpu vme avx512f amx_tile\n\n"
  f["proc/meminfo"] = "MemTotal:       2113415044 kB\nMemFree:        1968871284 kB\n"
  f["proc/mounts"] = "sysfs /sys sysfs rw,nosuid,nodev,noexec,relatime 0 0\nproc /proc proc rw,nosuid,nodev,noexec,relatime 0 0\n"
    .. "/dev/mapper/vg-root / ext4 rw,relatime 0 0\ntmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0\n"
  f["proc/modules"] = "nvidia_uvm 4943872 4 - Live 0x0000000000000000 (OE)\nnvidia_peermem 16384 0 - Live 0x0000000000000000 (OE)\n"
    .. "nvidia 54063104 120 nvidia_uvm,nvidia_peermem, Live 0x0000000000000000 (OE)\nmlx5_core 2203648 1 mlx5_ib, Live 0x0000000000000000 (OE)\n"
  f["proc/devices"] = "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n510 nvidia-uvm\n"
  f["proc/self/limits"] = LIMITS
  f["proc/self/status"] = "Name:\ttpl\nUmask:\t0022\nCapEff:\t000001ffffffffff\nSeccomp:\t0\nCpus_allowed:\tff,ffffffff\nCpus_allowed_list:\t0-63\nMems_allowed_list:\t0-1\n"
  f["proc/1/comm"], f["proc/2/comm"], f["proc/1204/comm"], f["proc/1311/comm"] = "systemd\n", "kthreadd\n", "nvidia-persiste\n", "nv-fabricmanage\n"
  f["proc/1/cgroup"] = "0::/init.scope\n"
  f["proc/driver/nvidia/version"] = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024\n"
    .. "GCC version:  gcc version 13.2.0 (Ubuntu 13.2.0-23ubuntu4)\n"
  f["sys/module/nvidia/version"] = "550.90.07\n"
  f["usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.90.07"], f["usr/lib/x86_64-linux-gnu/libcuda.so.550.90.07"] = "", ""
  f["usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5"] = ""
  f["etc/systemd/logind.conf"] = "# See logind.conf(5) for details.\n[Login]\n#KillUserProcesses=no\nRemoveIPC=no\n"
  f["etc/hostname"] = "gpu17.cluster.example\n"
  f["var/log/kern.log"] = "2026-11-02T08:01:17.120431+00:00 gpu17 kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07\n"
  f["sys/class/net/lo/operstate"], f["sys/class/net/eno1/operstate"] = "unknown\n", "up\n"
  f["sys/class/dmi/id/sys_vendor"] = "Supermicro\n"
  for node, cpus in pairs { [0] = "0-31", [1] = "32-63" } do f["sys/devices/system/node/node" .. node .. "/cpulist"] = cpus .. "\n" end
  f["sys/class/iommu/dmar0/intel-iommu/version"] = "5:0\n"
  f["dev/nvidiactl"], f["dev/nvidia-uvm"] = "", ""
  local env = { "PATH=/usr/bin:/bin", "HOME=/home/maria", "USER=maria", "HOSTNAME=gpu17.cluster.example", "CUDA_DEVICE_ORDER=PCI_BUS_ID" }
  for name, value in pairs(o.env or {}) do env[#env + 1] = name .. "=" .. value end
  table.sort(env)
  f["proc/self/environ"] = table.concat(env, "\0") .. "\0"
end

local function yaml_value(v)
  if type(v) == "string" then return '"' .. v .. '"' end
  if type(v) ~= "table" then return tostring(v) end
  local parts, keys = {}, {}
  if #v > 0 then
    for i, item in ipairs(v) do parts[i] = yaml_value(item) end
    return "[" .. table.concat(parts, ", ") .. "]"
  end
  for key in pairs(v) do keys[#keys + 1] = key end
  table.sort(keys)
  for i, key in ipairs(keys) do parts[i] = key .. ": " .. yaml_value(v[key]) end
  return "{" .. table.concat(parts, ", ") .. "}"
end

--- Write the topology of a tree as tpl YAML.
function M.topo_text(topo)
  local out = {}
  for _, name in ipairs { "hosts", "devices", "links", "nics" } do
    out[#out + 1] = name .. ":"
    for _, item in ipairs(topo[name] or {}) do out[#out + 1] = "  - " .. yaml_value(item) end
    if #(topo[name] or {}) == 0 then out[#out] = name .. ": []" end
  end
  return table.concat(out, "\n") .. "\n"
end

---@class spec.doctor.GpuOptions
---@field name string
---@field n integer              two to a switch, the first half on node 0
---@field nvlink boolean?        all pairs through a switch
---@field env table<string, string>?
---@field mem_bytes number?
---@field sm string?
---@field lean boolean?          bridges with the files that a check reads, no more

--- Make a host of two NUMA nodes; each switch carries two GPUs and, with ib, a NIC.
function M.host(o)
  local tree = { lean = o.lean, files = {}, links = {}, dirs = {}, topo = { hosts = { { id = "gpu17", driver = "550.90.07" } }, devices = {},
    links = {}, nics = {} } }
  system(tree, o)
  local buses = { "17", "3d", "97", "bd" }
  local per = 2
  for i = 0, o.n - 1 do
    local s = math.floor(i / per) + (i >= o.n / 2 and o.n <= 3 and 1 or 0)
    local numa = i < o.n / 2 and 0 or 1
    local bus = tonumber(buses[numa == 0 and 1 + s or 3 + (s - math.floor(o.n / 2 / per))] or buses[3], 16)
    local cpus = numa == 0 and "0-31" or "32-63"
    local root = string.format("pci0000:%02x", bus)
    local port, up, down = string.format("0000:%02x:01.0", bus), string.format("0000:%02x:00.0", bus + 1), string.format("0000:%02x:%02x.0",
      bus + 2, i % per)
    local bridge = { class = 0x0604, vendor = 0x8086, device = 0x352a, numa = numa, cpus = cpus, acs = o.acs }
    M.pci(tree, root, port, bridge)
    bridge = shallow(bridge)
    bridge.vendor, bridge.device = 0x1000, 0xc030
    M.pci(tree, root .. "/" .. port, up, bridge)
    M.pci(tree, root .. "/" .. port .. "/" .. up, down, bridge)
    local address = string.format("0000:%02x:00.0", bus + 3 + i % per)
    local dir = M.pci(tree, table.concat({ root, port, up, down }, "/"), address, { class = 0x0302, vendor = 0x10de, device = 0x2330, numa = numa,
      cpus = cpus })
    tree.links[dir .. "/iommu_group"] = ("../"):rep(6) .. "kernel/iommu_groups/" .. 40 + i
    tree.files["sys/kernel/iommu_groups/" .. 40 + i .. "/type"] = "identity\n"
    local gpu = { uid = uuid(i), uuid = uuid(i), kind = "gpu", index = i, pci = address, name = o.name, sm = o.sm or "9.0",
      vbios = "96.00.89.00.01", numa = numa, cpus = cpus,
      mem_bytes = o.mem_bytes or 85520809984, free_bytes = (o.mem_bytes or 85520809984) - 4194304, mig = { mode = "off", pending = "off" },
        busy = { used_bytes = 4194304, pids = {} },
      health = { ecc = 0, remapped = 0 } }
    if o.nvlink then gpu.fabric = { state = "completed", health = "healthy" } end
    tree.topo.devices[i + 1] = gpu
    tree.files["proc/driver/nvidia/gpus/" .. address .. "/information"] = information(gpu)
    tree.files["dev/nvidia" .. i] = ""
    if o.ib and i % per == 0 then
      local nic = string.format("mlx5_%d", #tree.topo.nics)
      local nic_down, nic_address = string.format("0000:%02x:08.0", bus + 2), string.format("0000:%02x:00.0", bus + 8)
      M.pci(tree, root .. "/" .. port .. "/" .. up, nic_down, bridge)
      local place = M.pci(tree, table.concat({ root, port, up, nic_down }, "/"), nic_address, { class = 0x0207, vendor = 0x15b3, device = 0x1021,
        numa = numa, cpus = cpus })
      tree.files[place .. "/infiniband/" .. nic .. "/ports/1/state"] = "4: ACTIVE\n"
      tree.files[place .. "/infiniband/" .. nic .. "/ports/1/link_layer"] = "InfiniBand\n"
      tree.links[place .. "/infiniband/" .. nic .. "/device"] = "../.."
      tree.links["sys/class/infiniband/" .. nic] = "../../" .. place:gsub("^sys/", "") .. "/infiniband/" .. nic
      tree.topo.nics[#tree.topo.nics + 1] = { name = "NIC" .. #tree.topo.nics, device = nic, pci = nic_address, numa = numa }
    end
  end
  for i = 1, o.n do
    for j = i + 1, o.n do
      local a, b = tree.topo.devices[i], tree.topo.devices[j]
      local pcie = a.numa ~= b.numa and "sys" or "pix"
      local link = { a = a.uid, b = b.uid, kind = pcie, p2p = { read = "ok", write = "ok" } }
      if o.nvlink then link.kind, link.pcie, link.nvlinks, link.via_switch = "nvlink", pcie, 18, true end
      tree.topo.links[#tree.topo.links + 1] = link
    end
  end
  if o.nvlink then
    M.pci(tree, "pci0000:00/0000:00:1c.0", "0000:05:00.0", { class = 0x0680, vendor = 0x10de, device = 0x22a3, numa = 0, cpus = "0-31" })
    tree.files["dev/nvidia-nvswitch0"] = ""
  end
  return tree
end

--- The clean host: bare metal, two sockets, four H100 behind NVSwitch, two NICs of InfiniBand.
function M.clean() return M.host { name = "NVIDIA H100 80GB HBM3", n = 4, nvlink = true, ib = true } end

-- -- Changing and writing ---------------------------------------------------------------------------------------------

--- Set variables in the recorded environment; false takes one away.
function M.env(tree, values)
  local env = {}
  for entry in tree.files["proc/self/environ"]:gmatch("[^%z]+") do
    local name, value = entry:match("^([^=]+)=(.*)$")
    env[name] = value
  end
  for name, value in pairs(values) do env[name] = value or nil end
  local list = {}
  for name, value in pairs(env) do list[#list + 1] = name .. "=" .. value end
  table.sort(list)
  tree.files["proc/self/environ"] = table.concat(list, "\0") .. "\0"
end

--- Replace plain text in a file; the text must be there.
function M.edit(tree, path, from, to)
  local text = assert(tree.files[path], path)
  local at, last = text:find(from, 1, true)
  assert(at, path .. " holds no " .. from)
  tree.files[path] = text:sub(1, at - 1) .. to .. text:sub(last + 1)
end

--- The sysfs folder behind a PCI address.
function M.dir_of(tree, address) return "sys/" .. assert(tree.links["sys/bus/pci/devices/" .. address], address):match("^%.%./%.%./%.%./(.*)$") end

local function quoted(text) return "'" .. text .. "'" end

local function sh(command) assert(os.execute(command) == 0 or os.execute(command) == true, command) end

--- Write a tree under a folder.
function M.write(tree, root)
  local folders = {}
  local function need(path) folders[root .. "/" .. (path:match("^(.*)/[^/]*$") or ".")] = true end
  for path in pairs(tree.files) do need(path) end
  for path in pairs(tree.links) do need(path) end
  for path in pairs(tree.dirs) do folders[root .. "/" .. path] = true end
  for path in pairs(folders) do assert(require("tpl.core").sys.mkdir_p(path)) end
  for path, text in pairs(tree.files) do
    local file = assert(io.open(root .. "/" .. path, "wb"))
    file:write(text)
    file:close()
  end
  local lines = {}
  for path, target in pairs(tree.links) do lines[#lines + 1] = string.format("ln -sfn %s %s", quoted(target), quoted(root .. "/" .. path)) end
  table.sort(lines)
  if #lines > 0 then sh(table.concat(lines, " && ")) end
  if tree.topo then
    local file = assert(io.open(root .. "/topo.yaml", "wb"))
    file:write(M.topo_text(tree.topo))
    file:close()
  end
end

return M
