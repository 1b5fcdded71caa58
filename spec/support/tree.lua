-- SPDX-License-Identifier: Apache-2.0
--- Read the repository's own sources, for the specs that check its structure.
local M = {}

--- List files under folders whose names match one of the patterns, sorted; build outputs and hidden folders are left out.
---@param folders string[]
---@param patterns string[]   Lua patterns for the whole path
---@return string[]
function M.files(folders, patterns)
  local out, seen = {}, {}
  local p = assert(io.popen("find " .. table.concat(folders, " ") .. " -type f -not -path '*/.*/*' -not -path './build*' | sort"))
  for path in p:lines() do
    path = path:gsub("^%./", "")
    for _, pattern in ipairs(patterns) do
      if path:find(pattern) and not seen[path] then
        out[#out + 1], seen[path] = path, true
      end
    end
  end
  p:close()
  return out
end

M.read = require("spec.support.files").slurp

--- Give the lines of a text.
function M.lines(text)
  local out = {}
  for line in (text:gsub("\n$", "") .. "\n"):gmatch("(.-)\n") do out[#out + 1] = line end
  return out
end

-- Keeps line breaks, so that line numbers stay true.
local function blank(s) return (s:gsub("[^\n]", " ")) end

--- Give C source with comments blanked and the insides of strings and character constants emptied; lines keep their numbers.
---@param text string
---@return string
function M.bare_c(text)
  local out, at = {}, 1
  while at <= #text do
    local from = text:find("[\"'/]", at)
    if not from then break end
    out[#out + 1] = text:sub(at, from - 1)
    local c, two = text:sub(from, from), text:sub(from, from + 1)
    local to
    if two == "/*" then
      to = select(2, text:find("*/", from + 2, true)) or #text
      out[#out + 1] = blank(text:sub(from, to))
    elseif two == "//" then
      to = (text:find("\n", from, true) or #text + 1) - 1
      out[#out + 1] = blank(text:sub(from, to))
    elseif c == "/" then
      to = from
      out[#out + 1] = c
    else
      to = from + 1
      while to <= #text and text:sub(to, to) ~= c do to = to + (text:sub(to, to) == "\\" and 2 or 1) end
      out[#out + 1] = c .. c
    end
    at = to + 1
  end
  out[#out + 1] = text:sub(at)
  return table.concat(out)
end

return M
