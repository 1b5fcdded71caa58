-- SPDX-License-Identifier: Apache-2.0
--- Read an NCCL log (NCCL_DEBUG=INFO) of any version since 2.4: which transport each pair of ranks uses, and whether the network reads
-- and writes GPU memory directly. The forms of the lines are those of facts/topology.md section 7; what is around them is not looked at.
local M = {}

---@class tpl.doctor.NcclPair
---@field a integer           rank, the smaller one
---@field b integer
---@field channels integer    distinct channels, both ways
---@field transport string    "P2P/CUMEM", "SHM/direct", "NET/IB", ..; the worst when channels differ
---@field gdr boolean?        GPUDirect RDMA on every connection; nil unless the transport is NET

---@class tpl.doctor.NcclLog
---@field version string?
---@field versions string[]
---@field pairs tpl.doctor.NcclPair[]
---@field nets string[]       networks and the devices they use: "NET/IB mlx5_0:1/IB"
---@field ib_seen boolean     IB hardware is named in the log
---@field network string?     "Using network X"
---@field p2p_disabled string?
---@field ring_gdr boolean?   "Connected all rings, use ring PXN 0 GDR 1"

-- Worst first: what is shown for a pair whose channels differ.
local ORDER = { NET_SOCKET = 1, NET = 2, NET_IB = 3, SHM = 4, P2P = 5 }

local function class_of(transport)
  if transport:find("^NET/Socket") then return ORDER.NET_SOCKET end
  if transport:find("^NET/IB") then return ORDER.NET_IB end
  if transport:find("^NET") then return ORDER.NET end
  if transport:find("^SHM") then return ORDER.SHM end
  return ORDER.P2P
end

-- The words after P2P/ and SHM/ in all versions. What else follows is another rank's line: several write into one file at once.
local LOCAL = { "direct pointer", "direct", "CUMEM", "IPC", "MNNVL", "CE", "read", "hostpinned" }

local function local_transport(text)
  if text:find("^P2P/indirect") then return "P2P/indirect" end
  local kept = text:match("^[PS][2H][PM]%f[^%w]")
  if not kept then return text end
  local at = #kept + 1
  while text:sub(at, at) == "/" do
    local word
    for _, w in ipairs(LOCAL) do
      if text:sub(at + 1, at + #w) == w then
        word = w
        break
      end
    end
    if not word then break end
    kept, at = kept .. "/" .. word, at + 1 + #word
  end
  return #kept > 3 and kept or text
end

--- Read what follows "via".
---@param text string
---@return string transport
---@return boolean? gdr
local function parse_via(text)
  text = text:match("^%s*(.-)%s*$")
  if text:find("^direct shared memory") then return "SHM/direct" end -- 2.12 and older
  text = text:gsub("%s+comm 0x%x+.*$", ""):gsub("%s+nRanks %d+.*$", "")
  if not text:find("^NET/") then return local_transport(text) end
  local gdr = text:find("/GDRDMA", 1, true) ~= nil
  local kept = {}
  for part in text:gmatch("[^/]+") do
    if part:find("^GDRDMA") or part == "Shared" or part:find("^%d") then break end
    kept[#kept + 1] = part
  end
  return table.concat(kept, "/"), gdr
end

local function add_pair(self, from, to, channel, via)
  local a, b = math.min(from, to), math.max(from, to)
  local key = a .. " " .. b
  local transport, gdr = parse_via((via:gsub("[^\32-\126]", "?")))
  local pair = self.by[key]
  if not pair then
    pair = { a = a, b = b, transport = transport, gdr = gdr, seen = {}, channels = 0 }
    self.by[key] = pair
    self.pairs[#self.pairs + 1] = pair
  end
  if not pair.seen[channel] then
    pair.seen[channel] = true
    pair.channels = pair.channels + 1
  end
  if class_of(transport) < class_of(pair.transport) then
    pair.transport, pair.gdr = transport, gdr
  elseif class_of(transport) == class_of(pair.transport) and gdr == false then
    pair.gdr = false
  end
end

local function ascii(text) return (text:gsub("[^\32-\126]", "?")) end

local function add_net(self, text)
  text = ascii(text)
  if not self.net_seen[text] then
    self.net_seen[text] = true
    self.nets[#self.nets + 1] = text
  end
end

--- `NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>`
local function read_using(self, line)
  local net, rest = line:match("(NET/[%w_ %-]-) : Using (.*)$")
  if not net then return end
  rest = rest:gsub(";%s*OOB.*$", "")
  local any = false
  for device in rest:gmatch("%[%d+%]([^%s%[]+)") do
    any = true
    add_net(self, net .. " " .. device:gsub("<%d+>$", ""))
    if net:find("^NET/IB") then self.ib_seen = true end
  end
  if not any and net:find("Socket") == nil then add_net(self, net) end
end

local function has(line, words) return line:find(words, 1, true) ~= nil end

local function read_channel(self, line)
  local channel, from, to, rest = line:match("[CR][hi][an][ng]%a* ?(%d+)[/%d]*%s*:%s*(%d+)%[?[^%]>]*%]?%s*%->%s*(%d+)(.*)$")
  local via = rest and rest:match("via (.+)$")
  if via then add_pair(self, tonumber(from), tonumber(to), tonumber(channel), via) end
end

local function read_version(self, line)
  local version = line:match("NCCL version%s*:?%s*(%d+%.%d+[%w.+_%-]*)")
  if not version then return end
  version = version:gsub("%+cuda[%d.]*$", "")
  if not self.version_seen[version] then
    self.version_seen[version] = true
    self.versions[#self.versions + 1] = version
  end
end

-- Plain words first: most lines of a long log hold none of them.
local function read_statement(self, line)
  if has(line, "via ") and has(line, "->") then return read_channel(self, line) end
  if has(line, "NCCL version") then read_version(self, line) end
  if has(line, " : Using ") then read_using(self, line) end
  if has(line, "Using network") then self.network = line:match("Using network ([%w_ ]-)%s*$") or self.network end
  if has(line, "P2P is disabled between") then self.p2p_disabled = self.p2p_disabled or line:match("P2P is disabled between.*") end
  if has(line, "Connected all rings") then
    local gdr = line:match("Connected all rings.* GDR (%d)")
    if gdr then self.ring_gdr = gdr == "1" and self.ring_gdr ~= false end
  end
  if has(line, "Mismatched NCCL version detected") then self.mismatch = line:match("Mismatched NCCL version detected.*") end
end

-- A line that holds "NCCL INFO" twice is two: the ranks of a host share a file, and a write may come before the other's line end.
local function read_line(self, line)
  local at = 1
  while true do
    local _, mark = line:find(" NCCL INFO ", at, true)
    local second = mark and line:find(" NCCL INFO ", mark, true)
    if not second then break end
    read_statement(self, line:sub(at, second - 1))
    at = second
  end
  return read_statement(self, at == 1 and line or line:sub(at))
end

--- Read a log.
---@param text string
---@return tpl.doctor.NcclLog
function M.parse(text)
  local self = { pairs = {}, nets = {}, versions = {}, by = {}, net_seen = {}, version_seen = {}, ib_seen = false }
  for line in text:gmatch("[^\r\n]+") do
    read_line(self, line:find("\27", 1, true) and line:gsub("\27%[[%d;]*%a", "") or line)
  end
  table.sort(self.pairs, function(x, y)
    if x.a ~= y.a then return x.a < y.a end
    return x.b < y.b
  end)
  for _, pair in ipairs(self.pairs) do
    pair.seen = nil
    if pair.transport:find("^NET/") then
      local named = false
      for _, net in ipairs(self.nets) do named = named or net == pair.transport or net:sub(1, #pair.transport + 1) == pair.transport .. " " end
      if not named then add_net(self, pair.transport) end
      if pair.transport:find("^NET/IB") then self.ib_seen = true end
    end
  end
  self.version = self.versions[1]
  self.by, self.net_seen, self.version_seen = nil, nil, nil
  return self
end

return M
