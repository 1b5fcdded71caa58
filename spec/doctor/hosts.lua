-- SPDX-License-Identifier: Apache-2.0
--- The recorded hosts of the failure table (not a spec itself): small trees (proc, sys, etc, dev, `env`, `topo.yaml`) for `tpl doctor --root`,
-- written to build/spec-hosts by the specs. No machine was copied: the forms of the files are those of Linux, of the NVIDIA driver's
-- proc files and of the PCI Express specification, the values are ours.
--
-- clean                     nothing fires: 4 x H100 behind NVSwitch, 2 NICs, bare metal
-- heads-not-divisible       the engine refuses to start: 3 GPUs, NUM_GPUS=3, a model of 64 heads (model/config.json)
-- nccl-timeout              time-outs at the first collective: /dev/shm of 64 MiB, ACS on the switch, IOMMU translates
-- one-gpu-idle              one of four GPUs never works: CUDA_VISIBLE_DEVICES names three, NUM_GPUS=2
-- slow-pcie-numa            half the speed that was planned: NCCL_P2P_LEVEL=LOC in /etc/nccl.conf, SYS pairs, cores of one socket, x8 of x16
-- other-pair-after-restart  slower after a restart: pinned by index 1,2 which are no NVLink pair; no CUDA_DEVICE_ORDER
local tree_of = require("spec.doctor.tree")

local M = {}

-- proc/self/environ holds NULs; a recorded host may keep its environment as lines in `env`.
local function env_as_text(tree)
  tree.files.env = tree.files["proc/self/environ"]:gsub("%z", "\n")
  tree.files["proc/self/environ"] = nil
end

local function l40s(n) return tree_of.host { name = "NVIDIA L40S", n = n, sm = "8.9", mem_bytes = 48305799168, lean = true } end

local CONTAINER_MOUNTS = "overlay / overlay rw,relatime,lowerdir=/var/lib/docker/overlay2/l/AB 0 0\nproc /proc proc rw,nosuid,nodev,noexec,relatime 0 0\n"
  .. "sysfs /sys sysfs ro,nosuid,nodev,noexec,relatime 0 0\nshm /dev/shm tmpfs rw,nosuid,nodev,noexec,relatime,size=65536k 0 0\n"

M.hosts = {}

function M.hosts.clean() return tree_of.host { name = "NVIDIA H100 80GB HBM3", n = 4, nvlink = true, ib = true, lean = true } end

--- Three cards, and a model of 64 heads is started with all of them.
M.hosts["heads-not-divisible"] = function()
  local t = l40s(3)
  tree_of.env(t, { NUM_GPUS = "3" })
  t.files["model/config.json"] = '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "num_attention_heads": 64,'
    .. ' "num_key_value_heads": 8, "num_hidden_layers": 80}\n'
  return t
end

--- Workers in a container time out at the first collective: /dev/shm of 64 MiB, and ACS on the switch under a translating IOMMU.
M.hosts["nccl-timeout"] = function()
  local t = l40s(2)
  t.files["proc/mounts"] = CONTAINER_MOUNTS
  t.files["proc/1/cgroup"] = "0::/../docker-9f2b7c1d5e3a4f60718293a4b5c6d7e8f9012a3b4c5d6e7f8091a2b3c4d5e6f7.scope\n"
  t.files[".dockerenv"] = ""
  tree_of.edit(t, "proc/self/status", "CapEff:\t000001ffffffffff\nSeccomp:\t0", "CapEff:\t00000000a80425fb\nSeccomp:\t2")
  tree_of.edit(t, "proc/cmdline", "intel_iommu=on iommu=pt", "intel_iommu=on")
  for path in pairs(t.files) do if path:find("^sys/kernel/iommu_groups/") then t.files[path] = "DMA-FQ\n" end end
  for _, address in ipairs { "0000:19:00.0", "0000:99:00.0", "0000:99:01.0" } do
    if t.links["sys/bus/pci/devices/" .. address] then
      t.files[tree_of.dir_of(t, address) .. "/config"] = tree_of.config(0x1000, 0xc030, 0x0604, 0x001d)
    end
  end
  for pid in pairs { ["2"] = 1, ["1204"] = 1, ["1311"] = 1 } do t.files["proc/" .. pid .. "/comm"] = nil end
  return t
end

--- Four cards, one of them never works: the start script still says NUM_GPUS=3, and a variable hides the fourth.
M.hosts["one-gpu-idle"] = function()
  local t = l40s(4)
  local ids = {}
  for i = 1, 3 do ids[i] = t.topo.devices[i].uuid end
  tree_of.env(t, { NUM_GPUS = "2", CUDA_VISIBLE_DEVICES = table.concat(ids, ",") })
  return t
end

--- Four cards on two sockets, slow: peer access switched off in a file, the process bound to one socket, one card in a slot of 8 lanes.
M.hosts["slow-pcie-numa"] = function()
  local t = l40s(4)
  t.files["etc/nccl.conf"] = "# added for a test in spring\nNCCL_P2P_LEVEL=LOC\n"
  tree_of.edit(t, "proc/self/status", "Cpus_allowed_list:\t0-63", "Cpus_allowed_list:\t0-15")
  t.files[tree_of.dir_of(t, t.topo.devices[4].pci) .. "/current_link_width"] = "8\n"
  return t
end

--- Two NVLink pairs; after a card was replaced the service runs on 1 and 2, which have no bridge: pinned by index, order not set.
M.hosts["other-pair-after-restart"] = function()
  local t = tree_of.host { name = "NVIDIA A100 80GB PCIe", n = 4, sm = "8.0", mem_bytes = 85899345920, lean = true }
  local d = t.topo.devices
  for _, link in ipairs(t.topo.links) do
    local is_pair = (link.a == d[1].uid and link.b == d[2].uid) or (link.a == d[3].uid and link.b == d[4].uid)
    if is_pair then link.pcie, link.kind, link.nvlinks = link.kind, "nvlink", 12 end
  end
  tree_of.env(t, { CUDA_VISIBLE_DEVICES = "1,2", CUDA_DEVICE_ORDER = false })
  return t
end

local folder

--- Give the folder that holds all hosts, each under its name; it is written when it is first asked for.
---@return string   ends in /
function M.dir()
  if folder then return folder .. "/" end
  folder = "build/spec-hosts" -- remade by every run, so that nothing of an older one stands in it
  os.execute("rm -rf " .. folder)
  for name, make in pairs(M.hosts) do
    local tree = make()
    env_as_text(tree)
    tree_of.write(tree, folder .. "/" .. name)
  end
  return folder .. "/"
end

return M
