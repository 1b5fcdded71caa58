-- SPDX-License-Identifier: Apache-2.0
--- Read the PCI devices of a host from sysfs: GPUs, NICs, switches, the bridges above them, and how far two devices are apart
-- (facts/topology.md sections 1 and 3).
local bit = require("bit")

local M = {}

---@class tpl.doctor.PciDevice
---@field pci string            "0000:0f:00.0"
---@field class string          "0x030200"
---@field vendor string         "0x10de"
---@field numa integer?         nil when the system says -1
---@field cpus string?
---@field path string[]?        addresses from the root port down to the device; nil when the tree keeps no links
---@field root string?          "pci0000:00"

--- Write a PCI address as sysfs does: lower case, a domain of four digits or more. nil when it is none.
---@param text string?
---@return string?
function M.address(text)
  local domain, bus, device, fn = tostring(text or ""):lower():match("^(%x+):(%x+):(%x+)%.(%x)$")
  if not domain then
    domain, bus, device = tostring(text or ""):lower():match("^(%x+):(%x+):(%x+)$")
    fn = "0"
  end
  if not domain then return nil end
  return string.format("%04x:%02x:%02x.%s", tonumber(domain, 16), tonumber(bus, 16), tonumber(device, 16), fn)
end

local DIR = "sys/bus/pci/devices/"

local function path_of(host, address)
  local real = host:link(DIR .. address)
  if not real or not real:find("^sys/devices/") then return nil end
  local out, root = {}, nil
  for part in real:gmatch("[^/]+") do
    if part:find("^pci%x+:%x+$") then root = part end
    if part:find("^%x+:%x%x:%x%x%.%x$") then out[#out + 1] = part end
  end
  if out[#out] ~= address then return nil end
  return out, root
end

--- Read one device.
local function device(host, address)
  local dir = DIR .. address .. "/"
  local numa = host:number(dir .. "numa_node")
  local path, root = path_of(host, address)
  return {
    pci = M.address(address), name = address, class = (host:word(dir .. "class") or ""):lower(), vendor = (host:word(dir .. "vendor") or ""):lower(),
    device = host:word(dir .. "device"), numa = numa and numa >= 0 and numa or nil, numa_said = numa, cpus = host:word(dir .. "local_cpulist"),
    path = path, root = root, dir = dir,
  }
end

--- Read all devices; nil when sysfs is absent.
---@param host tpl.doctor.Host
---@return {list: tpl.doctor.PciDevice[], by: table<string, tpl.doctor.PciDevice>}?
function M.read(host)
  local names = host:list("sys/bus/pci/devices")
  if not names then return nil end
  local out = { list = {}, by = {} }
  for _, name in ipairs(names) do
    if M.address(name) then
      local d = device(host, name)
      out.list[#out.list + 1], out.by[d.pci] = d, d
    end
  end
  return out
end

local function select(pci, test)
  local out = {}
  for _, d in ipairs(pci and pci.list or {}) do if test(d) then out[#out + 1] = d end end
  return out
end

--- GPUs of NVIDIA: class 0x0300 (VGA) or 0x0302 (3D controller).
function M.gpus(pci) return select(pci, function(d) return d.vendor == "0x10de" and d.class:find("^0x030[02]") end) end

--- NVSwitches: bridges of class 0x0680 by NVIDIA.
function M.nvswitches(pci) return select(pci, function(d) return d.vendor == "0x10de" and d.class:find("^0x0680") end) end

--- PCI-to-PCI bridges: root ports and the ports of switches.
function M.bridges(pci) return select(pci, function(d) return d.class:find("^0x0604") end) end

--- Say how far two devices are apart as nvidia-smi does; nil when unknown. PIX: at most one bridge (a switch is an upstream and a
--- downstream port, so a pair on one switch shares the upstream one); PXB: several, no host bridge; PHB: one host bridge; NODE and SYS by NUMA.
---@param a tpl.doctor.PciDevice
---@param b tpl.doctor.PciDevice
---@return "pix"|"pxb"|"phb"|"node"|"sys"|nil
function M.distance(a, b)
  if a.numa and b.numa and a.numa ~= b.numa then return "sys" end
  if not (a.path and b.path and a.root and b.root) then return nil end
  if a.root ~= b.root then return (a.numa and b.numa) and "node" or nil end
  local common = 0
  while a.path[common + 1] and a.path[common + 1] == b.path[common + 1] do common = common + 1 end
  if common == 0 then return "phb" end
  local up = math.max(#a.path, #b.path) - common -- components below the last common bridge, the device included
  return up <= 2 and "pix" or "pxb"
end

-- -- Configuration space ----------------------------------------------------------------------------------------------

local function u16(s, at)
  local a, b = s:byte(at + 1, at + 2)
  return b and a + b * 256
end

M.ACS = 0x000d

--- Find an extended capability in a device's configuration space (PCI Express base specification, 7.9: 16 bits of id, then version
--- and the next offset, from 0x100 on).
---@param config string
---@param id integer
---@return integer? offset
---@return boolean known     false when the text ends before 0x100 (read without root)
function M.extended(config, id)
  if #config < 0x104 then return nil, false end
  local at = 0x100
  for _ = 1, 64 do
    local low, high = u16(config, at), u16(config, at + 2)
    if not low or not high or (low == 0 and high == 0) or low == 0xffff then return nil, true end
    if low == id then return at, true end
    at = bit.rshift(high, 4)
    if at < 0x100 or at % 4 ~= 0 then return nil, true end
  end
  return nil, true
end

--- Give the control register of Access Control Services of a bridge.
---@param host tpl.doctor.Host
---@param d tpl.doctor.PciDevice
---@return integer? control   nil: the bridge has no ACS, or the space is unreadable
---@return boolean known
function M.acs_control(host, d)
  local config = host:read(d.dir .. "config")
  if not config then return nil, false end
  local at, known = M.extended(config, M.ACS)
  return at and u16(config, at + 6), known
end

return M
