-- SPDX-License-Identifier: Apache-2.0
--- Read any supported description of a machine's topology into one partial record: find out what a text is, hand it to the importers,
--- and refuse by name what looks alike but is something else. One text may hold several tables; all of them are read.
---
--- Contents: what a text is (M.kind) - text pages - M.read
local draft_of = require("tpl.topo.import.draft")
local err = require("tpl.err")
local page_of = require("tpl.topo.import.page")
local refuse = require("tpl.topo.import.refuse")

local M = {}

local max_bytes, max_text_bytes = 16 * 1024 * 1024, 2 * 1024 * 1024
local head_bytes = 65536 -- of a large text: enough to see whether it is XML or a record

-- Importers of plain text, in the order in which they write into one draft: those that name devices by index first.
local text_importers = { "matrix", "nvlink", "smi_list", "smi_query", "slurm", "p2p", "lstopo_text" }

local function fail(name, message, hint)
  err.throw { code = "format", message = message, where = name, hint = hint or refuse.accepted }
end

-- -- What a text is --------------------------------------------------------------------------------------------------

-- The first element of an XML text behind declarations and comments; lines of a prompt may stand before it.
local function root_tag(text)
  local at = 1
  while true do
    local from, tag = text:match("()<([%w_:%-!%?][%w_:%-]*)", at)
    if not from then return nil end
    if tag:sub(1, 3) == "!--" then
      at = select(2, text:find("-->", from, true))
      if not at then return nil end
    elseif tag:find("^[!%?]") then
      at = select(2, text:find(">", from, true))
      if not at then return nil end
    else
      return tag, from
    end
    at = at + 1
  end
end

local xml_roots = { system = "nccl_xml", topology = "hwloc_xml" }
local record_keys = { "source", "hosts", "networks", "devices", "links", "nics", "islands" }

local function looks_like_record(text)
  if text:find("^%s*[{%[]%s*[\"%]}{]") then return true end
  if text:find("\n[ \t]*GPU%d+[ \t]+X[ \t]") then return false end
  for _, key in ipairs(record_keys) do
    if text:find("^" .. key .. ":") or text:find("\n" .. key .. ":") then return true end
  end
  return false
end

--- Say what a text is: "nccl_xml", "hwloc_xml", "record", "text", or nil and what it is instead.
---@param text string  clean text
---@return string? kind
---@return string? instead
function M.kind(text)
  local named = refuse.named(text)
  if named then return nil, named end
  local tag, at = root_tag(text)
  local before = tag and text:sub(1, at - 1) or ""
  if tag and xml_roots[tag] then return xml_roots[tag] end
  if tag and (text:find("^%s*<") or text:find("<cpu%s") or text:find("<pci%s")) and not before:find("GPU%d") then
    -- A NCCL file that lost its beginning still shows its tags.
    if text:find("<cpu%s+[%w_]+=") or text:find("<pci%s+busid=") then return "nccl_xml" end
    if text:find("<object%s+type=") then return "hwloc_xml" end
    return nil, ("XML with the root element <%s>"):format(tag)
  end
  if looks_like_record(text) then return "record" end
  return "text"
end

-- -- Text pages ------------------------------------------------------------------------------------------------------

-- Lines of one host together, in the order of first appearance. Lines before the first name belong to no host.
local function sections(page)
  local out, by_name = {}, {}
  for _, line in ipairs(page.lines) do
    local key = line.host or ""
    local s = by_name[key]
    if not s then
      s = { name = line.host, lines = {} }
      by_name[key], out[#out + 1] = s, s
    end
    s.lines[#s.lines + 1] = line
  end
  return out
end

-- Two names are two hosts only where both show GPUs of the same indices; else they are titles of parts of one paste.
local function are_hosts(list)
  local with_gpus = 0
  for _, s in ipairs(list) do
    local rows = 0
    for _, line in ipairs(s.lines) do
      if line.text:find("^%s*GPU0%s+X%f[%s%z]") or line.text:find("^%s*GPU0%s+X$") then rows = rows + 1 end
    end
    s.has_matrix = rows > 0
    with_gpus = with_gpus + (rows > 0 and 1 or 0)
  end
  if with_gpus > 1 then return true end
  local lists = 0
  for _, s in ipairs(list) do
    for _, line in ipairs(s.lines) do
      if line.text:find("^GPU 0: .*%(UUID: GPU%-") then
        lists = lists + 1
        break
      end
    end
  end
  return with_gpus == 0 and lists > 1
end

local function fill(draft, host, lines)
  for _, name in ipairs(text_importers) do require("tpl.topo.import." .. name).fill(draft, host, lines) end
end

-- Large XML and records are read; a large paste is refused before the whole of it is cleaned, which takes a second per 4 MiB.
local function refuse_large(text, name)
  if #text > max_bytes then fail(name, "larger than 16 MiB: no topology") end
  if #text > max_text_bytes and M.kind(page_of.clean(text:sub(1, head_bytes))) == "text" then
    fail(name, "text larger than 2 MiB: cut the topology out of it")
  end
end

local function read_text(text, name)
  local page = page_of.read(text, name)
  local draft = draft_of.new(page.name)
  if page.stripped then draft:doubt(page.stripped, "prefix", "what a log puts before its lines was taken away") end
  if page.joined then draft:doubt(page.joined, "row_wrapped", "lines that fill the width of a terminal were joined with the next one") end
  local list = sections(page)
  if #list > 1 and are_hosts(list) then
    draft:doubt(nil, "several_hosts", "the text speaks of several hosts; what connects them is not in it")
    for _, s in ipairs(list) do fill(draft, draft:add_host(s.name), s.lines) end
  else
    fill(draft, draft:add_host(), page.lines)
  end
  if #draft.kinds == 0 then
    local what = refuse.hint_at(page_of.clean(text))
    fail(name, what and "this is " .. what or "no topology that tpl knows is in this text")
  end
  return draft:record()
end

-- -- Public ----------------------------------------------------------------------------------------------------------

--- Read a text into a partial record: what it states, unknown things nil, and doubts about what was repaired or is missing.
--- Raises code "format" (exit 6) for anything that is not one of the accepted inputs.
---@param text string
---@param name string?  the file's name, for messages
---@return table record
function M.read(text, name)
  name = name or "topology"
  if type(text) ~= "string" then err.throw { code = "usage", message = "topo.import: a text is needed, got " .. type(text) } end
  refuse_large(text, name)
  local clean = page_of.clean(text)
  local kind, instead = M.kind(clean)
  if not kind then fail(name, "this is " .. instead .. "; it is not read as a topology") end
  local record, e
  if kind == "text" then
    record, e = err.try(read_text, text, name)
  else
    record, e = err.try(require("tpl.topo.import." .. kind).read, clean, name)
  end
  if not record then
    e.where = e.where or (e.line and name .. ":" .. e.line or name)
    err.throw(e)
  end
  return record
end

return M
