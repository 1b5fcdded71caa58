-- SPDX-License-Identifier: Apache-2.0
--- Say what a link between two devices is worth to the ranking: usable NVLinks, and how far the PCIe way is.
-- The words are those of `nvidia-smi topo -m`. A pair about which nothing is known ranks behind every known one.
local M = {}

--- Distance by word, less is nearer. Between the steps of ten is room for what makes a word worse.
M.rank_of = { c2c = 5, pix = 10, pxb = 20, phb = 30, node = 40, sys = 50 }
M.UNKNOWN = 60
M.NETWORK = 70

--- A word that stays inside one NUMA node or one host bridge.
M.near_word = { pix = true, pxb = true, phb = true, node = true }

local function status_ok(status) return status == nil or status == "ok" end

local function way_refused(p2p) return p2p ~= nil and not (status_ok(p2p.read) and status_ok(p2p.write)) end

--- Say whether peer access over a link is refused, either way, or was measured to deliver wrong data. Never asked is not refused; "u" (the driver
--- does not know) is.
---@param link table?
---@return boolean
function M.refused(link)
  return link ~= nil and (way_refused(link.p2p) or way_refused(link.p2p_ba) or link.data_ok == false)
end

--- Say whether a link is made of NVLinks, usable or not.
---@param link table?
---@return boolean
function M.is_nvlink(link)
  return link ~= nil and (link.kind == "nvlink" or (link.nvlinks or 0) > 0 or link.via_switch == true)
end

--- Count the NVLinks that a pair can use: 0 without NVLink and where peer access is refused; 1 where the count is unknown.
---@param link table?
---@return integer
function M.nvlinks(link)
  if not M.is_nvlink(link) or M.refused(link) then return 0 end
  return math.max(1, link.nvlinks or 1)
end

--- Give the PCIe word of a link, nil where NVLink hides it or nothing is known.
---@param link table?
---@return string?
function M.word(link)
  if not link then return nil end
  if link.pcie then return link.pcie end
  return M.rank_of[link.kind] and link.kind or nil
end

--- Rank a link by its PCIe way, less is nearer. Refused peer access goes through host memory: behind NODE, before SYS.
---@param link table?
---@return integer
function M.rank(link)
  if link and link.kind == "net" then return M.NETWORK end
  local rank = M.rank_of[M.word(link)] or (link and link.kind == "shm" and M.rank_of.node) or M.UNKNOWN
  if not M.refused(link) then return rank end
  return math.max(rank, M.rank_of.node) + math.min(9, math.floor(rank / 10))
end

local STEP = math.log(1.25) -- measurements nearer than this are taken for equal

--- Give the step of a measured bandwidth, the slower way counts: 0 where it was not measured, else 1 to 63, more is faster.
---@param link table?
---@return integer
function M.speed(link)
  if not link or link.source ~= "measured" or not link.gb_s then return 0 end
  local gb_s = math.min(link.gb_s, link.gb_s_ba or link.gb_s)
  if gb_s <= 0 then return 0 end
  return math.max(1, math.min(63, 21 + math.floor(math.log(gb_s) / STEP)))
end

return M
