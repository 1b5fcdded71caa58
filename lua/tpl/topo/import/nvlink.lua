-- SPDX-License-Identifier: Apache-2.0
--- Read `nvidia-smi nvlink -s` (state and speed of each link) and `nvlink -R` (what each link leads to).
--- -s names no peers: a pair is concluded only where just two GPUs have links. -R names peers by PCI address: a switch is known by its
--- port numbers or its number of links, another GPU by its address or, where all addresses are remote ones, by their order.
---
--- Contents: blocks of one GPU - pairs from -s - switches and peers from -R - fill
local draft_of = require("tpl.topo.import.draft")
local smi_list = require("tpl.topo.import.smi_list")

local M = {}

-- Ports of a GPU up to Blackwell; a remote port number above, or more links than that at one address, is a switch.
local most_ports = 18

local link_line = "Link (%d%d?):%s*(.-)%s*$"

-- -- Blocks ----------------------------------------------------------------------------------------------------------

-- What one line says of a link: its number and "active" (with GB/s), "inactive", or "remote" (with address and port).
local function read_link(text)
  local number, rest = text:match(link_line)
  if not number then return nil end
  local speed = rest:match("^([%d%.]+) GB/s")
  if speed then return { number = tonumber(number), gb_s = tonumber(speed) } end
  local bus, port = rest:match("^Remote Device (%x+:%x+:%x+%.%x): Link (%d+)")
  if bus then return { number = tonumber(number), bus = draft_of.pci(bus), port = tonumber(port) } end
  if rest:lower():find("inactive", 1, true) then return { number = tonumber(number), inactive = true } end
  return nil
end

local function collect(lines)
  local blocks, block = {}, nil
  for _, line in ipairs(lines) do
    local index = smi_list.gpu(line.text)
    local link = not index and read_link(line.text)
    if index then
      block = { index = index, links = {}, no = line.no }
      blocks[#blocks + 1] = block
    elseif link then
      if not block then
        block = { links = {}, no = line.no, headless = true }
        blocks[1] = block
      end
      block.links[#block.links + 1] = link
    elseif block and line.text:find("all links are inActive", 1, true) then
      block.none = true
    elseif block and line.text:find("^%s*%.%.%.") then
      block.cut = true
    end
  end
  return blocks
end

-- The text starts inside the list of a GPU: the one before the first that is named.
local function name_headless(draft, blocks)
  local first = blocks[1]
  if not first or not first.headless then return end
  local following = blocks[2] and blocks[2].index
  first.index = following and following > 0 and following - 1 or 0
  first.cut = true
  draft:doubt(first.no, "index_assumed", ("the links stand before any GPU's name: taken for those of GPU%d"):format(first.index))
end

local function count(block)
  local active, remote, speed = 0, 0, nil
  for _, l in ipairs(block.links) do
    if l.gb_s then active, speed = active + 1, speed or l.gb_s end
    if l.bus then remote = remote + 1 end
  end
  block.active, block.remote, block.gb_s = active, remote, speed
  block.n = math.max(active, remote)
end

-- The last list of a text may be cut: it is when it is shorter than another one and ends in no line that closes it.
local function mark_cut(draft, blocks)
  local most = 0
  for _, b in ipairs(blocks) do most = math.max(most, #b.links) end
  local last = blocks[#blocks]
  if #blocks > 1 and #last.links > 0 and #last.links < most then last.cut = true end
  for _, b in ipairs(blocks) do
    if b.cut then draft:doubt(b.no, "links_cut", ("GPU%d: the list of its links is not complete"):format(b.index)) end
  end
end

-- -- nvlink -s -------------------------------------------------------------------------------------------------------

local function pair_by_elimination(draft, host, blocks, named)
  local linked = {}
  for _, b in ipairs(blocks) do
    if b.cut or not (b.none or #b.links > 0) then return end
    if b.active > 0 then linked[#linked + 1] = b end
  end
  if #linked ~= 2 or linked[1].active ~= linked[2].active or #blocks < math.max(named, #host:gpus()) then return end
  local link = host:link(host:device(linked[1].index), host:device(linked[2].index))
  if link.kind then return end
  link.kind, link.nvlinks = "nvlink", linked[1].active
  draft:doubt(linked[1].no, "peer_by_elimination", (
    "nvlink -s names no peers: GPU%d and GPU%d are the only ones with links, so they are a pair"):format(
    linked[1].index, linked[2].index))
end

-- Speeds of pairs whose number of links is known, and pairs with more links than are active.
local function add_speeds(draft, host)
  for _, link in pairs(host.links) do
    local a, b = link.a.nvlink, link.b.nvlink
    if link.kind == "nvlink" and link.nvlinks and a and b and a.gb_s and a.gb_s == b.gb_s then
      link.gb_s = link.nvlinks * a.gb_s
      if math.min(a.links or 99, b.links or 99) < link.nvlinks then
        draft:doubt(nil, "links_disagree", ("%s to %s is NV%d, but fewer links are active"):format(
          draft.label(link.a), draft.label(link.b), link.nvlinks))
      end
    end
  end
end

-- -- nvlink -R -------------------------------------------------------------------------------------------------------

local function remotes_of(blocks)
  local remotes, list = {}, {}
  for _, b in ipairs(blocks) do
    b.to = {}
    for _, l in ipairs(b.links) do
      if l.bus then
        local r = remotes[l.bus]
        if not r then
          r = { bus = l.bus, n = 0 }
          remotes[l.bus], list[#list + 1] = r, r
        end
        r.n = r.n + 1
        r.switch = r.switch or l.port >= most_ports or r.n > most_ports
        b.to[l.bus] = (b.to[l.bus] or 0) + 1
      end
    end
  end
  table.sort(list, function(x, y) return x.bus < y.bus end)
  return remotes, list
end

local function link_through_switches(host, blocks, remotes)
  local function ports(b)
    local n = 0
    for bus, k in pairs(b.to) do
      if remotes[bus].switch then n = n + k end
    end
    return n
  end
  for i, a in ipairs(blocks) do
    for k = i + 1, #blocks do
      local b, shared = blocks[k], false
      for bus in pairs(a.to) do shared = shared or (remotes[bus].switch and b.to[bus] ~= nil) end
      if shared and a.index ~= b.index then
        local link = host:link(host:device(a.index), host:device(b.index))
        link.kind, link.via_switch = "nvlink", true
        if not link.nvlinks and not a.cut and not b.cut then link.nvlinks = math.min(ports(a), ports(b)) end
      end
    end
  end
end

-- All remote addresses are those of the GPUs listed: their order is the order of the indices, if that fits every count.
local function addresses_by_order(draft, blocks, list)
  if #list ~= #blocks then return end
  for i, b in ipairs(blocks) do
    if b.cut or b.to[list[i].bus] then return end
    for k, other in ipairs(blocks) do
      if (b.to[list[k].bus] or 0) ~= (other.to[list[i].bus] or 0) then return end
    end
  end
  for i, b in ipairs(blocks) do b.pci = list[i].bus end
  draft:doubt(blocks[1].no, "address_by_order",
    "nvlink -R does not print the GPUs' own addresses: they are taken to follow the indices, which fits all counts")
end

local function link_directly(host, blocks, remotes)
  for _, b in ipairs(blocks) do
    local device = host:device(b.index)
    for bus, n in pairs(b.to) do
      local peer = not remotes[bus].switch and host:find("pci", bus)
      if peer and peer ~= device then
        local link = host:link(device, peer)
        link.kind, link.nvlinks, link.via_switch = "nvlink", link.nvlinks or n, false
      end
    end
  end
end

local function read_remotes(draft, host, blocks)
  local remotes, list = remotes_of(blocks)
  if #list == 0 then return end
  local direct = true
  for _, r in ipairs(list) do direct = direct and not r.switch end
  if direct then addresses_by_order(draft, blocks, list) end
  for _, b in ipairs(blocks) do
    local device = host:device(b.index)
    device.pci = device.pci or b.pci
  end
  link_through_switches(host, blocks, remotes)
  link_directly(host, blocks, remotes)
end

-- -- Public ----------------------------------------------------------------------------------------------------------

--- Write the links of the lines into a draft.
---@param draft tpl.topo.Draft
---@param host table               the host that the lines speak of
---@param lines tpl.topo.Line[]
function M.fill(draft, host, lines)
  local blocks, any, named, seen = {}, false, 0, {}
  for _, b in ipairs(collect(lines)) do
    if b.index and not seen[b.index] then seen[b.index], named = true, named + 1 end
    if #b.links > 0 or b.none then blocks[#blocks + 1] = b end
    any = any or #b.links > 0 or b.none
  end
  if not any then return end
  draft:found("nvlink")
  name_headless(draft, blocks)
  for _, b in ipairs(blocks) do count(b) end
  mark_cut(draft, blocks)
  for _, b in ipairs(blocks) do
    local device = host:device(b.index)
    device.nvlink = device.nvlink or {}
    device.nvlink.gb_s = device.nvlink.gb_s or b.gb_s
    if not b.cut then device.nvlink.links = b.none and 0 or b.n end
  end
  pair_by_elimination(draft, host, blocks, named)
  read_remotes(draft, host, blocks)
  add_speeds(draft, host)
end

return M
