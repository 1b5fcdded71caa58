-- SPDX-License-Identifier: Apache-2.0
--- Take out of texts what names people, hosts or cards, the same way everywhere in one record: a UUID that stands in two places stands
-- in both afterwards, so that the record still means the same.
local util = require("tpl.util")

local M = {}

---@class tpl.doctor.Redactor
---@field uuids table<string, string>
---@field words table<string, string>
local Redactor = {}
Redactor.__index = Redactor

-- Words that say nothing of anybody, and that stand in paths and names.
local COMMON = {}
for word in ("root user host localhost nvidia cuda nccl gpu proc sys dev etc usr lib opt var run home admin ubuntu ec2-user node"):gmatch("%S+") do
  COMMON[word] = true
end

---@param names {hosts: string[], users: string[]}   what is known to name this host and its user
---@return tpl.doctor.Redactor
function M.new(names)
  local self = setmetatable({ uuids = {}, n = 0, words = {}, homes = {}, n_homes = 0, cards = {}, n_cards = 0 }, Redactor)
  for word, list in pairs { host = names.hosts, user = names.users } do
    for _, name in ipairs(list) do
      if #name >= 3 and not COMMON[name:lower()] then
        self.words[name] = word
        local short = name:match("^([^.]+)%.")
        if short and #short >= 3 and not COMMON[short:lower()] then self.words[short] = word end
      end
    end
  end
  self.longest = util.keys(self.words)
  table.sort(self.longest, function(a, b) return #a == #b and a < b or #a > #b end) -- gpu17.example before gpu17
  return self
end

local HEX4 = ("%x"):rep(4)
local UUID = HEX4 .. HEX4 .. "%-" .. HEX4 .. "%-" .. HEX4 .. "%-" .. HEX4 .. "%-" .. HEX4 .. HEX4 .. HEX4

function Redactor:uuid(text)
  if not text:find("[1-9a-fA-F]") then return text end -- all zero means "none"
  local key = text:lower()
  if not self.uuids[key] then
    self.n = self.n + 1
    self.uuids[key] = string.format("%08x-0000-4000-8000-%012x", self.n, self.n)
  end
  return self.uuids[key]
end

function Redactor:home(dir, name)
  if name == "user" or name:find("^user%d+$") then return nil end
  if not self.homes[name] then
    self.n_homes = self.n_homes + 1
    self.homes[name] = "user" .. self.n_homes
  end
  return dir .. self.homes[name]
end

local SECRETS = { "hf_%w%w%w%w%w%w%w%w+", "sk%-[%w_-]+", "gh[posu]_%w+", "glpat%-[%w_-]+", "xox[abp]%-[%w-]+", "eyJ[%w_-]+%.[%w_.-]+", "AKIA%w+", "nvapi%-[%w_-]+" }
local BYTE = "%x%x"
local MAC = (BYTE .. "[:-]"):rep(5) .. BYTE

--- A name that Linux makes of a MAC address (enx0011..): another one in its place, the same for the same card.
function Redactor:interface(digits)
  if not self.cards[digits] then
    self.n_cards = self.n_cards + 1
    self.cards[digits] = string.format("enx%012x", 0x020000000000 + self.n_cards)
  end
  return self.cards[digits]
end

--- Redact a text. Addresses of the network are taken out only where asked: VBIOS versions look like them.
---@param text string
---@param with_addresses boolean?
---@return string
function Redactor:text(text, with_addresses)
  for _, pattern in ipairs(SECRETS) do text = text:gsub(pattern, "SECRET") end
  text = text:gsub("([Bb]earer%s+)%S+", "%1SECRET")
  text = text:gsub(UUID, function(uuid) return self:uuid(uuid) end)
  text = text:gsub("(/?home/)([%w._-]+)", function(dir, name) return self:home(dir, name) end)
  text = text:gsub("[%w._-]+@[%w._-]+", "user@host")
  text = text:gsub("%f[%w]enx(" .. BYTE:rep(6) .. ")%f[^%w]", function(digits) return self:interface(digits) end)
  text = text:gsub("%f[%w]" .. MAC .. "%f[^%w:]", "00:00:00:00:00:00")
  text = text:gsub("([Ss]erial[%a ]*[:=]?%s*)%f[%w]%w*%d%w*", "%1X")
  text = text:gsub(", name=[^,]*", ", name=X") -- of a process, in the kernel's log
  for _, word in ipairs(self.longest) do text = text:gsub("%f[%w]" .. word:gsub("%p", "%%%0") .. "%f[^%w]", self.words[word]) end
  if with_addresses then
    text = text:gsub("%f[%d.]%d+%.%d+%.%d+%.%d+%f[^%d.]", "0.0.0.0")
    text = text:gsub("%f[%w:]%x+:%x*:%x*:%x*:[%x:]+", "::")
    text = text:gsub("%f[%w]%x+:[%x:]*:[%x:]*", function(a) return a:find("::", 1, true) and "::" or nil end)
  end
  return text
end

return M
