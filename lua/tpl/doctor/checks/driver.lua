-- SPDX-License-Identifier: Apache-2.0
--- Checks of the driver: module, libraries, device files, the persistence daemon, and what it wrote into the kernel's log.
local finding = require("tpl.doctor.finding")
local kernel_log = require("tpl.doctor.kernel_log")
local pci_of = require("tpl.doctor.pci")
local processes = require("tpl.doctor.processes")

local ok, skip, warn, fail, some = finding.ok, finding.skip, finding.warn, finding.fail, finding.some

local function no_gpu(f) return #f.gpus == 0 and skip("no GPU is known (no topology, no /proc/driver/nvidia/gpus, none in /sys/bus/pci/devices)") end

-- -- Driver -----------------------------------------------------------------------------------------------------------

local function kernel_version(f)
  local text = f.host:read("proc/driver/nvidia/version")
  local version = text and text:match("Kernel Module[^\n]-%s(%d+%.%d[%d.]*)")
  if version then return version, "/proc/driver/nvidia/version" end
  version = f.host:word("sys/module/nvidia/version")
  if version then return version, "/sys/module/nvidia/version" end
end

local function driver_loaded(f)
  local on_bus = pci_of.gpus(f.pci)
  if #on_bus == 0 then return skip("no NVIDIA GPU is on the bus (/sys/bus/pci/devices)") end
  local version, where = kernel_version(f)
  if version then return ok("driver %s (%s)", version, where) end
  if f.host:is_module("nvidia") then return ok("module nvidia is loaded (/proc/modules)") end
  return fail(string.format("%d NVIDIA GPUs are on the bus, but /proc/driver/nvidia/version and /sys/module/nvidia are absent", #on_bus),
    "load the driver: modprobe nvidia; nvidia-smi; see dmesg if it fails (Secure Boot, missing headers)")
end

local function nouveau(f)
  local there = f.host:is_module("nouveau")
  if there == nil then return skip("/proc/modules and /sys/module are absent") end
  if there then
    return fail("module nouveau is loaded (/proc/modules)",
      "echo 'blacklist nouveau' >> /etc/modprobe.d/blacklist-nouveau.conf; update-initramfs -u; reboot")
  end
  return ok("module nouveau is not loaded")
end

local LIB_DIRS = {
  "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/lib/nvidia", "usr/lib/wsl/lib", "usr/local/nvidia/lib64",
  "lib/x86_64-linux-gnu", "lib64",
}

local function driver_mismatch(f)
  local version, where = kernel_version(f)
  if not version then return skip("/proc/driver/nvidia/version and /sys/module/nvidia/version are absent") end
  local loaded = f.host:word("sys/module/nvidia/version")
  local fix = "reboot, or unload and load the modules: rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; modprobe nvidia"
  if loaded and loaded ~= version then
    return fail(string.format("/proc/driver/nvidia/version says %s, /sys/module/nvidia/version %s", version, loaded), fix)
  end
  for _, gpu in ipairs(f.gpus) do
    for _, why in ipairs(type(gpu.why_not) == "table" and gpu.why_not or {}) do
      if tostring(why.message):find("driver was updated", 1, true) then return fail(string.format("%s; the kernel module is %s", why.message,
        version), fix) end
    end
  end
  local found = {}
  for _, dir in ipairs(LIB_DIRS) do
    for _, name in ipairs(f.host:list(dir) or {}) do
      local library, v = name:match("^(libnvidia%-ml%.so)%.(%d+%.[%d.]+)$")
      if not library then library, v = name:match("^(libcuda%.so)%.(%d+%.[%d.]+)$") end
      if library then found[#found + 1] = { version = v, path = "/" .. dir .. "/" .. name } end
    end
  end
  if #found == 0 then return skip("no libnvidia-ml.so.VERSION or libcuda.so.VERSION in the usual folders; the kernel module is %s", version) end
  local other
  for _, lib in ipairs(found) do
    if lib.version ~= version then other = other or lib end
  end
  if not other then return ok("kernel module and libraries are %s", version) end
  return fail(string.format("the kernel module is %s (%s), the library %s", version, where, other.path), fix)
end

local function device_files(f)
  if not f.host:list("dev") then return skip("/dev is not recorded") end
  local gone = no_gpu(f)
  if gone then return gone end
  local any = false
  for _, name in ipairs(f.host:list("dev")) do any = any or name:find("^nvidia") ~= nil end
  if not any and f.host.origin ~= "live" then return skip("no /dev/nvidia* is recorded") end
  local missing, whole = {}, 0
  for i, gpu in ipairs(f.gpus) do
    if gpu.kind == "gpu" then
      local minor = gpu.minor or gpu.index or i - 1
      whole = whole + 1
      if not f.host:exists("dev/nvidia" .. minor) then missing[#missing + 1] = "/dev/nvidia" .. minor end
    end
  end
  for _, name in ipairs { "nvidiactl", "nvidia-uvm" } do
    if not f.host:exists("dev/" .. name) then missing[#missing + 1] = "/dev/" .. name end
  end
  if #missing > 0 then
    return fail(string.format("absent: %s, for %d GPUs", some(missing, 10), whole),
      "nvidia-modprobe -u -c=0 on the host; in a container: docker run --gpus all, or NVIDIA_VISIBLE_DEVICES=all")
  end
  return ok("/dev/nvidia0.. of %d GPUs, /dev/nvidiactl and /dev/nvidia-uvm are there", whole)
end

local function persistence(f)
  local gone = no_gpu(f)
  if gone then return gone end
  local runs, where = processes.runs(f.host, "nvidia-persistenced")
  if runs == nil then return skip("the host's processes are not visible") end
  if runs then return ok("nvidia-persistenced runs (%s)", where) end
  return warn("nvidia-persistenced does not run: " .. where, "systemctl enable --now nvidia-persistenced (or nvidia-smi -pm 1)")
end

-- -- Kernel log -------------------------------------------------------------------------------------------------------

local LOGS = { "var/log/dmesg", "var/log/kern.log", "var/log/messages", "var/log/syslog", "dmesg", "dmesg.txt", "dev/kmsg" }

-- Xids that applications cause themselves (13, 31, 43, 45, 68 and others are shown, but only these are hardware or link).
local HARD = { [48] = true, [62] = true, [63] = true, [64] = true, [74] = true, [79] = true, [92] = true, [94] = true, [95] = true, [109] = true,
  [110] = true,
  [119] = true, [120] = true, [136] = true, [140] = true, [143] = true, [149] = true }

local function xid(f)
  local read = {}
  local first, n, hard = nil, 0, nil
  for _, path in ipairs(LOGS) do
    local text = f.host:read(path)
    if text then
      read[#read + 1] = "/" .. path
      for _, line in ipairs(kernel_log.xids(text)) do
        n = n + 1
        local code = tonumber(line:match("Xid %([^)]*%): (%d+)"))
        local shown = "/" .. path .. ": " .. line:sub(1, 160)
        first = first or shown
        if code and HARD[code] and not hard then hard = shown end
      end
    end
  end
  if #read == 0 then return skip("no kernel log is readable (/var/log/kern.log, /var/log/dmesg)") end
  local fix = "look the number up in NVIDIA's Xid list; 74: reseat the NVLink bridge or restart the fabric manager, 48, 63, 64, 79, 94, 95: reset or replace the GPU"
  if hard then return fail(string.format("%d Xid lines, one of them: %s", n, hard), fix) end
  if first then return warn(string.format("%d Xid lines, the first: %s", n, first), fix) end
  return ok("no Xid in %s", table.concat(read, ", "))
end

return {
  { code = "driver_loaded", group = "GPU", what = "NVIDIA kernel driver", run = driver_loaded, why = "without the module no GPU can be opened" },
  { code = "nouveau", group = "GPU", what = "nouveau driver", run = nouveau, why = "it holds the GPUs, and the NVIDIA driver then finds none" },
  { code = "driver_mismatch", group = "GPU", what = "kernel module against libraries", run = driver_mismatch,
    why = "after an update without a reboot NVML and CUDA refuse to start (driver/library version mismatch)" },
  { code = "device_files", group = "GPU", what = "/dev/nvidia* of every GPU", run = device_files,
    why = "a GPU without its device file is counted but cannot be opened" },
  { code = "persistence", group = "GPU", what = "persistence daemon", run = persistence,
    why = "without it the driver drops its state when the last process ends: slow starts, lost settings" },
  { code = "xid", group = "GPU", what = "Xid errors in the kernel log", run = xid,
    why = "an Xid is the driver's report of a fault: 74 NVLink, 79 fallen off the bus, 48, 63, 94 memory" },
}
