-- SPDX-License-Identifier: Apache-2.0
--- Price the path between two devices: its class, bandwidth one way and latency. A measured figure wins; a stated one is
--- held against what NCCL plans with, since rates on paper are not reached; what is unknown is assumed to be slow.
-- Constants: NCCL 2.30.7 topo.h, facts/topology.md section 4 "Link bandwidth constants".
local device = require "tpl.cost.device"
local pair = require "tpl.topo.pair"

local M = {}

-- Better classes first; policies compare by this order.
M.order = { nvlink = 1, c2c = 2, pix = 3, pxb = 4, phb = 5, node = 6, sys = 7, shm = 8, net = 9 }

local STATED = 0.8     -- of a stated rate, where NCCL has no figure: copies reach 80 to 88 % (facts/topology.md section 9)
-- Through a buffer in host memory every byte crosses two PCIe links and the memory. NCCL goes that way where P2P is refused, and
-- beyond PXB unless the CPU is AMD's and the host has two GPUs at most (section 4, "Direct P2P rule").
local SHM = 0.5
local NET_GB_S = 12    -- NCCL's default for a network
local C2C_GB_S = 450 * STATED

-- us of one message besides its bytes: NCCL's LL base and hop (section 5).
local latency = { nvlink = 7.2, c2c = 7.2, pix = 7.6, pxb = 7.6, phb = 7.6, node = 7.6, sys = 7.6, shm = 7.6, net = 9.3, cpu = 0.3 }

-- GB/s of one NVLink, by compute capability.
local function per_nvlink(sm)
  local v = sm and tonumber(sm) or 0
  if v >= 10 then return 40.1 elseif v >= 9 then return 20.6 elseif v == 8.6 then return 12 end
  return v >= 6 and v < 7 and 18 or 20
end

local function sm_of(dev, spec) return dev and dev.sm or spec and spec.sm end

local function pcie_gb_s(dev, spec)
  local known, table_ = dev and dev.pcie or {}, spec and spec.pcie or {}
  local gen, width = known.gen or table_.gen or 3, known.width or table_.width or 16
  return 12 * 2 ^ (math.min(gen, 6) - 3) * width / 16
end

-- GB/s between two sockets; the model of the CPU is only known by name, so by the PCIe generation it comes with.
local function sys_gb_s(cpu, pcie_gen)
  local vendor = cpu and cpu.vendor or ""
  if vendor:find("AMD") then return 16 elseif vendor:find("IBM") then return 32 elseif vendor:find("ARM") then return 6 end
  return pcie_gen >= 5 and 22 or 10
end

-- What is asked for with every pair, once per topology: the CPU of each host and how many GPUs it has.
local hosts_of = setmetatable({}, { __mode = "k" })

local function host_of(t, id)
  local hosts = hosts_of[t]
  if not hosts then
    hosts = {}
    for _, h in ipairs(t.hosts or {}) do hosts[h.id] = { cpu = h.cpu, gpus = 0 } end
    for _, d in ipairs(t.devices or {}) do
      local h = hosts[d.host]
      if h and d.kind ~= "cpu" then h.gpus = h.gpus + 1 end
    end
    hosts_of[t] = hosts
  end
  return hosts[id] or { gpus = 0 }
end

local function has_amd(cpu) return cpu and cpu.vendor and cpu.vendor:find("AMD") ~= nil end

local function is_direct(class, host)
  return class == "pix" or class == "pxb" or class ~= "shm" and has_amd(host.cpu) and host.gpus <= 2
end

-- What the class would give and whether through host memory; each worse class gives no more.
local function assumed_gb_s(t, class, l, a, b)
  local sa, sb = device.of(a), device.of(b)
  if class == "nvlink" then
    local count = l.nvlinks or l.via_switch and math.min(sa and sa.nvlinks or 1, sb and sb.nvlinks or 1) or 1
    return count * math.min(per_nvlink(sm_of(a, sa)), per_nvlink(sm_of(b, sb)))
  end
  if class == "c2c" then return C2C_GB_S end
  if class == "net" then return NET_GB_S end
  local host = host_of(t, a.host)
  local cpu, gb_s = host.cpu, math.min(pcie_gb_s(a, sa), pcie_gb_s(b, sb))
  local word = class == "shm" and (l.pcie or "sys") or class
  if word ~= "pix" and word ~= "pxb" then
    if not has_amd(cpu) then gb_s = gb_s * 5 / 6 end
    if word == "sys" then gb_s = math.min(gb_s, sys_gb_s(cpu, a.pcie and a.pcie.gen or sa and sa.pcie and sa.pcie.gen or 3)) end
  end
  if is_direct(class, host) then return gb_s end
  return gb_s * SHM, true
end

---@class tpl.cost.Link
---@field class "nvlink"|"c2c"|"pix"|"pxb"|"phb"|"node"|"sys"|"net"|"shm"
---@field gb_s number     one way
---@field us number       of a small message
---@field source "measured"|"stated"|"assumed"
---@field transport "p2p"|"shm"|"net"   what NCCL would use

--- Price the path from a to b.
---@param t table     topology
---@param a string
---@param b string
---@return tpl.cost.Link
function M.of(t, a, b)
  local da, db = t:dev(a), t:dev(b)
  if da and db and da.kind == "cpu" and db.kind == "cpu" and da.host == db.host then
    local l = t:link(a, b)
    local is_measured = l and l.source == "measured" and l.gb_s
    return { class = "shm", cpu = true, gb_s = is_measured and l.gb_s or 6, us = is_measured and l.us or latency.cpu,
      source = is_measured and "measured" or "assumed", transport = "shm" }
  end
  local l = t:link(a, b)
  if not l then
    l = { kind = da and db and da.host ~= db.host and "net" or "sys" }
  end
  local class = l.kind
  if class ~= "net" and pair.refused(l) then class = "shm" end
  if l.source == "measured" and l.gb_s then
    return { class = class, gb_s = l.gb_s, us = l.us or latency[class], source = "measured",
      transport = class == "net" and "net" or class == "shm" and "shm" or "p2p" }
  end
  local plan, through_memory = assumed_gb_s(t, class, l, da or {}, db or {})
  local source = "assumed"
  if l.gb_s and class == l.kind then
    source = "stated"
    plan = class == "net" and l.gb_s * STATED or math.min(plan, l.gb_s)
  end
  return { class = class, gb_s = plan, us = class == "net" and l.us and l.us + latency.net or latency[class], source = source,
    transport = class == "net" and "net" or through_memory and "shm" or "p2p" }
end

return M
