-- SPDX-License-Identifier: Apache-2.0
-- Every check fires from a recorded tree that was changed in one place, and is silent on the clean one. The causes are the rows of
-- facts/topology.md section 8 and the list of issue 5, part 10; numbers (capability bits, ACS bits, tmpfs sizes) are those of the kernel's
-- headers and documents (linux/capability.h, linux/pci_regs.h, filesystems/tmpfs.rst).
local doctor = require("tpl.doctor")
local tmpdir = require("spec.support.tmpdir")
local tree_of = require("spec.doctor.tree")

local function examine(tree, opts)
  local dir = tmpdir.new()
  tree_of.write(tree, dir.path)
  local given = { root = dir.path }
  for name, text in pairs(opts or {}) do
    given[name] = type(text) == "string" and dir:write(name .. ".txt", text) or text
  end
  local report, e = doctor.examine(given)
  dir:close()
  return assert(report, e and tostring(e))
end

local function by_code(report)
  local out = {}
  for _, c in ipairs(report.checks) do out[c.code] = c end
  return out
end

local function env(values) return function(t) tree_of.env(t, values) end end
local function edit(path, from, to) return function(t) tree_of.edit(t, path, from, to) end end
local function file(path, text) return function(t) t.files[path] = text end end
local function gpu_dir(t, i) return tree_of.dir_of(t, t.topo.devices[i].pci) end

local function pcie_host(o)
  o = o or {}
  return function() return tree_of.host { name = o.name or "NVIDIA L40S", n = 4, sm = "8.9", mem_bytes = 48305799168 } end
end

--- Take every sign of one card off the tree but its place on the bus.
local function forget_links(t) for _, link in ipairs(t.topo.links) do link.kind, link.nvlinks, link.via_switch = link.pcie, nil, nil end end

local CONTAINER = "overlay / overlay rw,relatime 0 0\nsysfs /sys sysfs ro 0 0\nshm /dev/shm tmpfs rw,nosuid,nodev,noexec,relatime,size=%s 0 0\n"

local function log(...) return { nccl_log = table.concat({ "gpu17:4011:4011 [0] NCCL INFO NCCL version 2.21.5+cuda12.4", ... }, "\n") .. "\n" } end

local POD = [[
apiVersion: v1
kind: Pod
metadata: {name: serve}
spec:
  hostIPC: %s
  containers:
  - name: engine
    env: [{name: NUM_GPUS, value: "%s"}, {name: SHM_SIZE, value: %s}%s]
    resources:
      requests: {cpu: %s, memory: 64Gi, nvidia.com/gpu: 2}
      limits: {cpu: 16, memory: 64Gi, nvidia.com/gpu: 2}
    volumeMounts: [{name: %s, mountPath: /dev/shm}]
  volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: %s}}]
]]

local function pod(o)
  return { k8s = POD:format(o.ipc or "false", o.n or 2, o.shm or "8g", o.env or "", o.cpu or "16", o.volume or "shm", o.limit or "8Gi") }
end

-- code, status, what the evidence must name, change of the clean tree; `host`: another tree to begin with, `opts`: what is given beside it,
-- `more`: other codes that may fire with it.
local cases = {
  { "driver_loaded", "fail", "4 NVIDIA GPUs are on the bus", function(t)
    for path in pairs(t.files) do if path:find("^proc/driver/nvidia/") or path:find("^sys/module/nvidia/") then t.files[path] = nil end end
    t.files["proc/modules"] = "ext4 1 0 - Live 0x0\n"
  end, more = { "gpudirect_rdma" } },
  { "nouveau", "fail", "nouveau", function(t) t.files["proc/modules"] = "nouveau 2310144 0 - Live 0x0000000000000000\n"
    .. t.files["proc/modules"] end },
  { "nouveau", "fail", "nouveau", file("sys/module/nouveau/refcnt", "0\n") },
  { "driver_mismatch", "fail", "550.90.07.*565.57.01", function(t)
    for _, name in ipairs { "libcuda", "libnvidia-ml" } do
      t.files["usr/lib/x86_64-linux-gnu/" .. name .. ".so.550.90.07"] = nil
      t.files["usr/lib/x86_64-linux-gnu/" .. name .. ".so.565.57.01"] = ""
    end
  end },
  { "device_files", "fail", "/dev/nvidia2", function(t) t.files["dev/nvidia2"] = nil end },
  { "device_files", "fail", "/dev/nvidia%-uvm", function(t) t.files["dev/nvidia-uvm"] = nil end },
  { "persistence", "warn", "nvidia%-persistenced does not run", function(t) t.files["proc/1204/comm"] = "cron\n" end },
  { "xid", "fail", "Xid.*74", function(t)
    t.files["var/log/kern.log"] = t.files["var/log/kern.log"]
      .. "2026-11-02T09:14:02.551873+00:00 gpu17 kernel: NVRM: Xid (PCI:0000:9a:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 3\n"
  end },
  { "xid", "warn", "Xid.*31", file("var/log/dmesg", "[ 812.22] NVRM: Xid (PCI:0000:1a:00): 31, pid=4011, name=python, Ch 00000008\n") },
  { "gpu_health", "fail", "GPU 2.*ECC errors: 3", function(t) t.topo.devices[3].health.ecc = 3 end },
  { "gpu_health", "fail", "GPU 1.*fallen off", function(t) t.topo.devices[2].health.xid = 79 end },
  { "gpu_missing", "warn", "0000:9b:00.0", function(t)
    local gone = table.remove(t.topo.devices).uid
    for i = #t.topo.links, 1, -1 do if t.topo.links[i].a == gone or t.topo.links[i].b == gone then table.remove(t.topo.links, i) end end
  end },
  { "gpu_busy", "warn", "GPU 3.*1 processes, 20.0 GiB", function(t) t.topo.devices[4].busy = { pids = { 4711 }, used_bytes = 20 * 2 ^ 30 } end, more = { "gpu_unused" } },
  { "gpu_unused", "warn", "3 of 4 GPUs are at work, not GPU 1", function(t)
    for i, gpu in ipairs(t.topo.devices) do if i ~= 2 then gpu.busy = { pids = { 4000 + i }, used_bytes = 70 * 2 ^ 30 } end end
  end, more = { "gpu_busy" } },
  { "gpu_model", "warn", "H100.*A100", function(t) t.topo.devices[4].name = "NVIDIA A100-SXM4-80GB" end, more = { "cuda_device_order" } },
  { "gpu_memory", "warn", "GPU 0 1 2: 79.6 GiB; GPU 3: 39.6 GiB", function(t) t.topo.devices[4].mem_bytes,
    t.topo.devices[4].free_bytes = 42505273344, 42000000000 end },
  { "gpu_vbios", "warn", "96.00.99.00.05", function(t) t.topo.devices[1].vbios = "96.00.99.00.05" end },
  { "mig_mode", "fail", "GPU 3", function(t) t.topo.devices[4].mig = { mode = "on", pending = "on" } end },
  { "mig_mode", "fail", "GPU 1", function(t) -- told by the driver's proc files alone
    t.topo = nil
    t.files["proc/driver/nvidia/capabilities/gpu1/mig/gi1/access"] = "DeviceFileMinor: 30\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
  end },
  { "mig_mode", "fail", "next reset", function(t) t.topo.devices[4].mig = { mode = "off", pending = "on" } end },
  { "mig_slices", "fail", "2 slices", function(t)
    local parent = t.topo.devices[4]
    parent.mig = { mode = "on", pending = "on" }
    for i = 1, 2 do
      local id = ("MIG-%08d-1c4b-5a3d-8f22-77d1a0b1c2d3"):format(i)
      t.topo.devices[4 + i] = { uid = id, uuid = id, kind = "mig", index = i - 1, pci = parent.pci, name = parent.name, mig = { mode = "on",
        parent = parent.uid, profile = "3g.40gb" } }
    end
    tree_of.env(t, { CUDA_VISIBLE_DEVICES = t.topo.devices[5].uid .. "," .. t.topo.devices[6].uid })
  end, more = { "gpu_hidden" } },

  { "acs", "fail", "0000:19:00.0 ACSCtl SrcValid%+ ReqRedir%+ CmpltRedir%+ UpstreamFwd%+", function(t)
    t.files[tree_of.dir_of(t, "0000:19:00.0") .. "/config"] = tree_of.config(0x1000, 0xc030, 0x0604, 0x001d)
  end },
  { "acs", "warn", "SrcValid%+", function(t) t.files[tree_of.dir_of(t, "0000:97:01.0") .. "/config"] = tree_of.config(0x8086, 0x352a, 0x0604,
    0x0001) end },
  { "iommu", "fail", "DMA%-FQ", file("sys/kernel/iommu_groups/41/type", "DMA-FQ\n") },
  { "iommu", "fail", "intel_iommu=on", function(t)
    for path in pairs(t.files) do if path:find("^sys/kernel/iommu_groups/") then t.files[path] = nil end end
    t.files["proc/cmdline"] = "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro intel_iommu=on\n"
  end },
  { "pcie_width", "warn", "GPU 1.*x8 of x16", function(t) t.files[gpu_dir(t, 2) .. "/current_link_width"] = "8\n" end },
  { "pcie_speed", "warn", "16 GT/s", function(t) t.files[tree_of.dir_of(t, "0000:19:01.0") .. "/max_link_speed"] = "16.0 GT/s PCIe\n" end },
  { "sysfs", "fail", "/sys/bus/pci/devices is absent", function(t)
    for path in pairs(t.files) do if path:find("^sys/") and not path:find("^sys/module") then t.files[path] = nil end end
    t.links, t.dirs = {}, {}
  end },
  { "sysfs", "warn", "/sys/bus", function(t) t.files["proc/mounts"] = t.files["proc/mounts"] .. "tmpfs /sys/bus tmpfs ro,relatime 0 0\n" end },
  { "wsl", "warn", "microsoft", file("proc/version",
    "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@941d701f84f1) (gcc (GCC) 11.2.0) #1 SMP\n") },
  { "p2p_intel_cpu", "warn", "NCCL_P2P_LEVEL=SYS", env { NCCL_P2P_LEVEL = "SYS" }, host = pcie_host(), more = { "numa_crossing" } },
  { "vm_topology", "warn", "all 6 pairs are PHB", function(t)
    tree_of.edit(t, "proc/cpuinfo", "amx_tile", "amx_tile hypervisor")
    for _, link in ipairs(t.topo.links) do link.kind, link.pcie = "phb", "phb" end
  end, host = pcie_host(), more = { "numa_crossing" } },

  { "fabric_manager", "fail", "does not run", function(t)
    t.files["proc/1311/comm"] = "cron\n"
    for _, gpu in ipairs(t.topo.devices) do gpu.fabric = nil end
  end },
  { "fabric_state", "fail", "in progress", function(t) t.topo.devices[2].fabric.state = "in progress" end },
  { "fabric_state", "fail", "unhealthy", function(t) t.topo.devices[2].fabric.health = "unhealthy" end },
  { "imex_channel", "fail", "holds no channel", function(t)
    for _, gpu in ipairs(t.topo.devices) do gpu.fabric.cluster, gpu.fabric.clique = "5f0c6a3e-71d2-4c58-9d0b-0d7a2f1e4c11", 1 end
    tree_of.edit(t, "proc/devices", "510 nvidia-uvm", "510 nvidia-uvm\n506 nvidia-caps-imex-channels")
  end },
  { "nvlink_missing", "fail", "4 GPUs named 'NVIDIA H100 80GB HBM3', and no pair has NVLink in a virtual machine", function(t)
    forget_links(t)
    tree_of.edit(t, "proc/cpuinfo", "amx_tile", "amx_tile hypervisor")
  end, more = { "numa_crossing" } },
  { "nvlink_island", "warn", "without NVLink while others have it: GPU 2", function(t)
    local lone = t.topo.devices[3].uid
    for _, link in ipairs(t.topo.links) do if link.a == lone or link.b == lone then link.kind, link.nvlinks, link.via_switch = link.pcie, nil,
      nil end end
  end, more = { "numa_crossing" } },
  { "nvlink_p2p", "fail", "GPU 0 %- GPU 1 read NS", function(t) t.topo.links[1].p2p = { read = "ns", write = "ns" } end },
  { "p2p_pcie", "warn", "GPU 0 %- GPU 1 read GNS", function(t)
    for _, link in ipairs(t.topo.links) do link.p2p = { read = "gns", write = "gns" } end
  end, host = pcie_host { name = "NVIDIA GeForce RTX 4090" }, more = { "numa_crossing" } },
  { "p2p_data", "fail", "wrong data: GPU 0 %- GPU 1", function(t) t.topo.links[1].data_ok = false end },
  { "p2p_data", "warn", "patched driver", function() end, host = pcie_host { name = "NVIDIA GeForce RTX 4090" }, more = { "numa_crossing" } },

  { "gpudirect_rdma", "fail", "nvidia_peermem", edit("proc/modules", "nvidia_peermem 16384", "nvidia_modeset 16384") },
  { "nic_distance", "warn", "GPU 2: SYS", function(t)
    local kept = {}
    for path, target in pairs(t.links) do if not path:find("mlx5_1") and not target:find("mlx5_1") then kept[path] = target end end
    t.links = kept
    for path in pairs(t.files) do if path:find("mlx5_1", 1, true) then t.files[path] = nil end end
    table.remove(t.topo.nics)
  end },
  { "socket_ifname", "warn", "docker0", file("sys/class/net/docker0/operstate", "up\n") },
  { "socket_ifname", "warn", "takes docker0", function(t)
    t.files["sys/class/net/docker0/operstate"] = "up\n"
    tree_of.env(t, { NCCL_SOCKET_IFNAME = "docker0" })
  end },
  { "socket_ifname", "fail", "eth0", env { NCCL_SOCKET_IFNAME = "eth0" } },
  { "ib_hca", "fail", "mlx5_9", env { NCCL_IB_HCA = "mlx5_9" } },
  { "ib_disable", "fail", "NCCL_IB_DISABLE=1", env { NCCL_IB_DISABLE = "1" } },
  { "ib_state", "warn", "mlx5_0: 1: DOWN", function(t)
    for path in pairs(t.files) do if path:find("mlx5_0/ports/1/state") then t.files[path] = "1: DOWN\n" end end
  end },

  { "dev_shm", "fail", "64 MiB", file("proc/mounts", CONTAINER:format("65536k")) },
  { "dev_shm", "warn", "1000 MiB", edit("proc/mounts", "/dev/shm tmpfs rw", "/dev/shm tmpfs rw,size=1024000k") },
  { "dev_shm", "fail", "not mounted", edit("proc/mounts", "tmpfs /dev/shm", "tmpfs /run") },
  { "shm_memory_limit", "warn", "memory.max", file("sys/fs/cgroup/memory.max", "8589934592\n") },
  { "remove_ipc", "warn", "default is yes", edit("etc/systemd/logind.conf", "RemoveIPC=no", "#RemoveIPC=yes") },
  { "memlock", "fail", "8388608.*mlx5_0", edit("proc/self/limits", "Max locked memory         unlimited            unlimited ",
    "Max locked memory         8388608              8388608   ") },
  { "fd_limit", "warn", "1024", edit("proc/self/limits", "1048576              1048576 ", "1024                 1048576 ") },
  { "stack_limit", "warn", "unlimited", edit("proc/self/limits", "Max stack size            8388608  ", "Max stack size            unlimited") },
  { "cap_sys_nice", "warn", "SYS_NICE", function(t)
    tree_of.edit(t, "proc/self/status", "CapEff:\t000001ffffffffff\nSeccomp:\t0", "CapEff:\t00000000a80425fb\nSeccomp:\t2") -- docker's default set
  end, more = { "cap_sys_ptrace" } },
  { "cap_sys_ptrace", "warn", "SYS_PTRACE", function(t)
    tree_of.edit(t, "proc/self/status", "CapEff:\t000001ffffffffff\nSeccomp:\t0", "CapEff:\t00000000a88425fb\nSeccomp:\t2") -- and SYS_NICE, bit 23
  end },

  { "cpuset_numa", "fail", "0%-31.*GPU 2: cores 32%-63 of node 1", edit("proc/self/status", "Cpus_allowed_list:\t0-63", "Cpus_allowed_list:\t0-31") },
  { "cpuset_numa", "fail", "cpuset.cpus.effective", file("sys/fs/cgroup/cpuset.cpus.effective", "40-47\n") },
  { "cpuset_numa", "fail", "kubepods/pod1/cpuset.cpus.effective", function(t)
    t.files["proc/self/cgroup"] = "0::/kubepods/pod1\n"
    t.files["sys/fs/cgroup/kubepods/pod1/cpuset.cpus.effective"] = "0-7\n"
  end },
  { "mems_numa", "warn", "node 1", edit("proc/self/status", "Mems_allowed_list:\t0-1", "Mems_allowed_list:\t0") },
  { "numa_crossing", "warn", "GPU 0 %- GPU 2 SYS %(node 0 and 1%)", function() end, host = pcie_host() },
  { "numa_unknown", "warn", "GPU 0", function(t) t.files[gpu_dir(t, 1) .. "/numa_node"] = "-1\n" end },

  { "cuda_device_order", "warn", "not set", env { CUDA_DEVICE_ORDER = false } },
  { "cuda_device_order", "fail", "NVIDIA L4 and NVIDIA H100", function(t)
    tree_of.env(t, { CUDA_DEVICE_ORDER = "FASTEST_FIRST" })
    t.topo.devices[1].name = "NVIDIA L4"
  end, more = { "gpu_model" } },
  { "uuid_pin", "warn", "CUDA_VISIBLE_DEVICES=2,3", env { CUDA_VISIBLE_DEVICES = "2,3" }, more = { "gpu_hidden" } },
  { "cuda_visible_devices", "fail", "GPU%-0badc0de", env { CUDA_VISIBLE_DEVICES = "GPU-0badc0de-5d1c-4c0e-9a31-0000c0ffee00" },
    more = { "gpu_hidden" } },
  { "cuda_visible_devices", "fail", "'7'", env { CUDA_VISIBLE_DEVICES = "0,1,2,3,7" }, more = { "uuid_pin" } },
  { "gpu_hidden", "warn", "1 of 4 GPUs idle: GPU 3", function(t)
    tree_of.env(t, { CUDA_VISIBLE_DEVICES = table.concat({ t.topo.devices[1].uuid, t.topo.devices[2].uuid, t.topo.devices[3].uuid }, ",") })
  end },
  { "num_gpus", "warn", "NUM_GPUS=3.*1 stand idle", env { NUM_GPUS = "3" } },
  { "num_gpus", "fail", "TENSOR_PARALLEL_SIZE=8", env { TENSOR_PARALLEL_SIZE = "8" } },
  { "nccl_p2p_disable", "fail", "6 pairs have NVLink", env { NCCL_P2P_DISABLE = "1" } },
  { "nccl_p2p_level", "fail", "NCCL_P2P_LEVEL=LOC", env { NCCL_P2P_LEVEL = "LOC" } },
  { "nccl_p2p_level", "fail", "/etc/nccl.conf:2", file("etc/nccl.conf", "# tuning\nNCCL_P2P_LEVEL=0\n"), more = { "nccl_conf_file" } },
  { "nccl_shm_disable", "warn", "NCCL_SHM_DISABLE=1", env { NCCL_SHM_DISABLE = "1" } },
  { "nccl_topo_file", "fail", "/opt/topo.xml", env { NCCL_TOPO_FILE = "/opt/topo.xml" } },
  { "nccl_topo_file", "warn", "no <system>", function(t)
    tree_of.env(t, { NCCL_TOPO_FILE = "/opt/topo.xml" })
    t.files["opt/topo.xml"] = "<topology></topology>\n"
  end },
  { "nccl_old_names", "warn", "NCCL_MIN_NCHANNELS=16", env { NCCL_MIN_NCHANNELS = "16" } },
  { "nccl_conf_file", "warn", "/home/maria/.nccl.conf: NCCL_IB_TC=106", file("home/maria/.nccl.conf", "NCCL_IB_TC=106\n") },
  { "nccl_conf_file", "warn", "NCCL_CONF_FILE=/opt/n.conf", env { NCCL_CONF_FILE = "/opt/n.conf" } },
  { "nccl_algo", "fail", "'rings'", env { NCCL_ALGO = "allreduce:tree,rings" } },
  { "nccl_algo", "warn", "NCCL_PROTO=LL", env { NCCL_PROTO = "LL" } },
  { "nccl_ignore_disabled_p2p", "warn", "NCCL_IGNORE_DISABLED_P2P=1", env { NCCL_IGNORE_DISABLED_P2P = "1" } },

  { "nccl_versions", "warn", "2.26.2", function(t)
    t.dirs["usr/local/lib/python3.12/dist-packages/nvidia_nccl_cu12-2.26.2.dist-info"] = true
  end },
  { "nccl_log_transport", "fail", "NET/Socket although mlx5_0", function() end,
    opts = log("gpu17:4011:4023 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0") },
  { "nccl_log_gdr", "warn", "0 %- 8 NET/IB", function() end,
    opts = log("gpu17:4011:4023 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0") },
  { "nccl_log_shm", "fail", "NVLink on 6 pairs", function() end,
    opts = log("gpu17:4011:4023 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct") },

  { "tp_heads", "fail", "64 attention heads.*tp is 3.*not divisible", function() end, opts = { models = "tp=3" } },
  { "tp_heads", "warn", "held 2 times", function() end, opts = { models = "tp=16" } },

  { "k8s_gpus", "fail", "NUM_GPUS=1, and nvidia.com/gpu is 2: 1 stand idle", function() end, opts = pod { n = 1 } },
  { "k8s_gpus", "fail", "NUM_GPUS=4, and nvidia.com/gpu is 2: the start fails", function() end, opts = pod { n = 4 } },
  { "k8s_cpu", "warn", "Burstable: cpu requests 8, limits 16", function() end, opts = pod { cpu = "8" } },
  { "k8s_shm", "fail", "mounts nothing at /dev/shm|64 MiB", function() end, opts = { k8s = "kind: Pod\nmetadata: {name: s}\nspec:\n  containers:\n"
    .. "  - {name: e, resources: {limits: {nvidia.com/gpu: 4, cpu: 8, memory: 32Gi}}}\n" } },
  { "k8s_shm_size", "fail", "sizeLimit 64Gi", function() end, opts = pod { limit = "64Gi" } },
  { "k8s_shm_size", "fail", "SHM_SIZE=128g", function() end, opts = pod { shm = "128g" } },
  { "k8s_shm_size", "fail", "SHM_SIZE=16Gi, and sizeLimit of /dev/shm is 8Gi", function() end, opts = pod { shm = "16Gi" } },
  { "k8s_host_ipc", "warn", "hostIPC: true", function() end, opts = pod { ipc = "true" } },
  { "k8s_visible_devices", "warn", "CUDA_VISIBLE_DEVICES=0,1", function() end, opts = pod { env = ', {name: CUDA_VISIBLE_DEVICES, value: "0,1"}' } },
}

--- A model of 64 heads and 8 KV heads, as Llama 3 70B has (its config.json).
local function with_model(opts)
  if not opts or type(opts.models) ~= "string" then return opts end
  local dir = tmpdir.new()
  dir:write("config.json", '{"model_type":"llama","num_attention_heads":64,"num_key_value_heads":8,"hidden_size":8192}')
  local key, value = opts.models:match("^(%w+)=(%w+)$")
  return { models = { { name = dir.path, words = { { key = key, value = value } } } } }, dir
end

describe("tpl.doctor", function()
  local clean = by_code(examine(tree_of.clean()))

  it("finds nothing on the clean host, and checks most of it", function()
    local n_ok = 0
    for code, c in pairs(clean) do
      assert.is_true(c.status == "ok" or c.status == "skip", code .. ": " .. c.status .. ": " .. c.evidence)
      assert.is_falsy(c.broken, code .. ": " .. c.evidence)
      assert.is_nil(c.fix, code)
      if c.status == "ok" then n_ok = n_ok + 1 end
    end
    assert.is_true(n_ok >= 55, n_ok .. " checks were made")
  end)

  local fired = {}

  for _, case in ipairs(cases) do
    local code, status, pattern, change = case[1], case[2], case[3], case[4]
    it(("%s says %s: %s"):format(code, status, pattern), function()
      local tree = (case.host or tree_of.clean)()
      change(tree)
      local opts, dir = with_model(case.opts)
      local found = by_code(examine(tree, opts))
      if dir then dir:close() end
      local c = assert(found[code], "no such check")
      assert.equal(status, c.status, c.evidence)
      local any = false
      for part in pattern:gmatch("[^|]+") do any = any or c.evidence:find(part) ~= nil end
      assert.is_true(any, c.evidence .. "  has no  " .. pattern)
      assert.is_true(#c.what > 0 and #c.why > 0 and c.fix ~= nil and #c.fix > 0, "what, why and fix are there")
      for other, o in pairs(found) do
        assert.is_falsy(o.broken, other .. ": " .. o.evidence)
        local expected = other == code
        for _, name in ipairs(case.more or {}) do expected = expected or other == name end
        if not expected and (o.status == "warn" or o.status == "fail") then fired[#fired + 1] = code .. " also fired " .. other .. ": "
          .. o.evidence end
      end
    end)
  end

  it("has a case for every check", function()
    local has = {}
    for _, case in ipairs(cases) do has[case[1]] = true end
    for _, check in ipairs(doctor.checks()) do assert.is_true(has[check.code], check.code) end
  end)

  it("lets one change set off few other checks", function()
    -- What one cause sets off beside its own check; each is true of that tree (a container has no say over RemoveIPC, and so on).
    assert.same({}, fired)
  end)
end)
