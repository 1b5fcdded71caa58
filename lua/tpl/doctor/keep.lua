-- SPDX-License-Identifier: Apache-2.0
--- Cut what a bundle keeps of each file and folder down to the lines and names that a check looks at.
local kernel_log = require("tpl.doctor.kernel_log")

local M = {}

--- Keep the lines that match one of the patterns.
local function lines(text, ...)
  local out = {}
  for line in text:gmatch("[^\n]+") do
    for i = 1, select("#", ...) do
      if line:find((select(i, ...))) then out[#out + 1] = line break end
    end
  end
  return table.concat(out, "\n") .. "\n"
end

--- Mounts of /, /dev/shm and below /sys; where / comes from is nobody's business.
local function mounts(text)
  local out = {}
  for line in text:gmatch("[^\n]+") do
    local kind, at, fs = line:match("^(%S+) (%S+) (%S+)")
    if at == "/" then out[#out + 1] = (kind == "overlay" and "overlay / overlay" or "root / " .. tostring(fs)) .. " rw 0 0"
    elseif at and (at == "/dev/shm" or at:find("^/sys")) then out[#out + 1] = line end
  end
  return table.concat(out, "\n") .. "\n"
end

local function cmdline(text)
  local out = { "BOOT_IMAGE=redacted" }
  for word in text:gmatch("%S+") do
    if word:find("iommu") or word:find("^pci") or word:find("^numa") or word:find("nouveau") or word:find("^nvidia") then out[#out + 1] = word end
  end
  return table.concat(out, " ") .. "\n"
end

--- The first core's lines that tell the maker, and of the flags only "hypervisor".
local function cpuinfo(text)
  local first = lines(text:match("^(.-\n)\n") or text, "^vendor_id", "^model name", "^CPU implementer", "^flags")
  return (first:gsub("flags([^\n]*)", function(flags) return "flags\t\t: fpu " .. ((flags .. " "):find(" hypervisor ", 1, true) and "hypervisor "
    or "") end))
end

local function ids(text) return (text:gsub("%x%x%x%x%x%x%x%x%x%x%x%x%x+", "ID")) end

local KEEP = {
  { "^proc/self/status$", function(text) return lines(text, "^CapEff:", "^Seccomp:", "^Cpus_allowed_list:", "^Mems_allowed_list:") end },
  { "^proc/cpuinfo$", cpuinfo },
  { "^proc/cmdline$", cmdline },
  { "^proc/mounts$", mounts }, { "^proc/self/mounts$", mounts },
  { "^proc/self/mountinfo$", function(text) return lines(text, " /dev/shm ") end },
  { "^proc/meminfo$", function(text) return lines(text, "^MemTotal:") end },
  { "^proc/modules$", function(text) return lines(text, "^nv", "^nouveau ") end },
  { "^proc/devices$", function(text) return lines(text, "nvidia") end },
  { "^proc/%w+/cgroup$", ids },
  { "^etc/systemd/", function(text) return "[Login]\n" .. lines(text, "^%s*RemoveIPC") end },
  { "^usr/lib/systemd/", function(text) return lines(text, "^%s*RemoveIPC") end },
  { "^run/systemd/", function(text) return lines(text, "^%s*RemoveIPC") end },
  { "nccl%.conf", function(text) return lines(text, "NCCL_") end },
}

local function is_log(path) return path:find("^var/log/") or path:find("^dmesg") or path == "dev/kmsg" end

--- Kernel logs: from "NVRM" on, so without the host's name.
local function log_lines(text)
  local out = {}
  for _, line in ipairs(kernel_log.xids(text)) do out[#out + 1] = line:match("NVRM: Xid[^,]*,?[^,]*") end
  return table.concat(out, "\n") .. "\n"
end

--- Give what is kept of a file.
---@param path string
---@param text string
---@return string
function M.text(path, text)
  if is_log(path) then return log_lines(text) end
  for _, rule in ipairs(KEEP) do
    if path:find(rule[1]) then return (rule[2](text)) end
  end
  if text:find("<system", 1, true) then return '<system version="1"/>\n' end
  return text:sub(1, 65536)
end

-- Names of processes that are looked for.
M.services = { kthreadd = true, ["nv-fabricmanage"] = true, ["nvidia-persiste"] = true }

--- Names that matter in folders that hold much else; nil: all.
---@param path string
---@param name string
function M.name(path, name)
  if path == "proc" then return nil end
  if path:find("^sys/") or path:find("^proc/") then return true end
  if path == "dev" then return name:find("^nvidia") ~= nil or name == "shm" or name == "infiniband" end
  if path:find("^dev/") then return true end
  return name:find("nccl") or name:find("^libcuda%.so") or name:find("^libnvidia%-ml") or name:find("^python3") or name:find("%.conf$") or false
end

return M
