-- SPDX-License-Identifier: Apache-2.0
--- Read XML as people paste it: prose or a prompt around it, attributes without quotes, an end that is missing.
--- Every repair is a doubt with its line, and so is where reading had to stop.
local err = require("tpl.err")
local xml = require("tpl.xml")

local M = {}

local MAX_BYTES = 8 * 2 ^ 20 -- an export of a large machine has some hundred kilobytes
local MAX_AROUND = 65536      -- of text before and behind that is looked at more closely
local MAX_REPAIRS = 50

local function line_at(text, pos)
  local n = 1
  for _ in text:sub(1, pos - 1):gmatch("\n") do n = n + 1 end
  return n
end

local function keep_breaks(s) return (s:gsub("[^\n]+", "")) end

--- Find the tag of the first element, below an XML declaration, comments and a DOCTYPE; other text is passed over.
---@return string? tag
---@return integer? at   where "<tag" begins
function M.root(text)
  local at = 1
  while true do
    local from = text:find("<", at, true)
    if not from then return nil end
    if text:sub(from, from + 3) == "<!--" then
      local _, to = text:find("-->", from + 4, true)
      if not to then return nil end
      at = to + 1
    else
      local tag = text:match("^<([%a_][%w_.:-]*)[%s/>]", from)
      if tag then return tag, from end
      at = from + 1
    end
  end
end

--- Quote the attribute values of one tag that have no quotes; gives the tag and whether something changed.
local function quote_values(tag)
  local out, at, changed = {}, 1, false
  while at <= #tag do
    local from, to, name, first = tag:find("%f[%w_:.-]([%w_:.-]+%s*=%s*)(.?)", at)
    if not from then break end
    out[#out + 1] = tag:sub(at, from - 1)
    if first == '"' or first == "'" then
      local close = tag:find(first, to + 1, true) or #tag
      out[#out + 1] = tag:sub(from, close)
      at = close + 1
    else
      local value = tag:match("^[^%s>\"'<]*", to - #first + 1)
      local slash = value:match("/$") and tag:find("^>", to - #first + 1 + #value) and "/" or ""
      value = value:sub(1, #value - #slash)
      out[#out + 1] = name .. '"' .. value .. '"'
      at, changed = to - #first + 1 + #value, true
    end
  end
  out[#out + 1] = tag:sub(at)
  return table.concat(out), changed
end

local function quote_all(text, doubts)
  local out, at, line, counted = {}, 1, 1, 1
  while true do
    local from = text:find("<", at, true)
    if not from then break end
    if text:sub(from, from + 3) == "<!--" then
      local _, to = text:find("-->", from + 4, true)
      if not to then break end
      out[#out + 1] = text:sub(at, to)
      at = to + 1
    else
      local to = text:find(">", from, true)
      if not to then break end
      local tag, changed = text:sub(from, to), false
      if tag:find("^<[%a_]") and not tag:find("<", 2, true) and #tag < 65536 then tag, changed = quote_values(tag) end
      if changed and #doubts < MAX_REPAIRS then
        line, counted = line + line_at(text:sub(counted, from), from - counted + 1) - 1, from
        doubts[#doubts + 1] = { line = line, code = "repaired", message = "an attribute without quotes was quoted" }
      end
      out[#out + 1] = text:sub(at, from - 1) .. tag
      at = to + 1
    end
  end
  out[#out + 1] = text:sub(at)
  return table.concat(out)
end

--- Cut what stands behind the last closing tag of the root, such as a prompt.
local function without_tail(text, tag, doubts)
  local last, at = nil, 1
  while true do
    local _, to = text:find("</" .. tag .. ">", at, true)
    if not to then break end
    last, at = to, to + 1
  end
  if not last then return text end
  local rest = #text - last > MAX_AROUND and "much" or text:sub(last + 1):gsub("<!%-%-.-%-%->", "")
  if not rest:find("[^%s%z]") then return text end
  doubts[#doubts + 1] = { line = line_at(text, last), code = "repaired", message = "text behind the last element was passed over" }
  return text:sub(1, last)
end

--- Read a text whose root element is at `at`. What is odd goes into `doubts` as {line, code, message}.
---@param text string
---@param name string     the file's name, for `where`
---@param doubts table[]
---@return tpl.XmlNode root
---@return boolean whole   false when the file breaks off: what came behind is unknown
function M.decode(text, name, doubts)
  if #text > MAX_BYTES then
    err.throw { code = "format", where = name, message = ("%d bytes of XML, at most %d are read as a topology"):format(#text, MAX_BYTES) }
  end
  local tag, at = M.root(text)
  if not tag then err.throw { code = "format", where = name, message = "no XML element in it" } end
  local before = at > MAX_AROUND and "much" or text:sub(1, at - 1):gsub("<!%-%-.-%-%->", ""):gsub("<!DOCTYPE[^>%[]*%b[]%s*>", ""):gsub("<[?!].->", "")
  if before:find("[^%s\239\187\191]") then
    doubts[#doubts + 1] = { line = 1, code = "repaired", message = "text before the first element was passed over" }
    text = keep_breaks(text:sub(1, at - 1)) .. text:sub(at)
  end
  text = without_tail(text, tag, doubts)
  local root, e = xml.decode(text, { where = name })
  if e then
    local repaired = {}
    local second, e2 = xml.decode(quote_all(text, repaired), { where = name })
    if second and #repaired > 0 then
      for _, d in ipairs(repaired) do doubts[#doubts + 1] = d end
      root, e = second, e2
    end
  end
  if not root then err.throw(e) end
  if not e then return root, true end
  if e.message:find("entit") then err.throw(e) end
  if e.message:find("junk after document element", 1, true) then
    doubts[#doubts + 1] = { line = e.line, code = "repaired", message = "text behind the last element was passed over" }
    return root, true
  end
  doubts[#doubts + 1] = { line = e.line, code = "truncated",
    message = ("the file breaks off or is damaged here (%s): what was read up to here is used, what follows is missing"):format(e.message) }
  return root, false
end

return M
