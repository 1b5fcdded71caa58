-- SPDX-License-Identifier: Apache-2.0
--- Make lua/tpl/_meta/tpl.lua, the stubs from which editors know the library (LuaCATS, the annotations of lua-language-server).
---   eval "$(build/tpl env)"; LUA_PATH="./?.lua;$LUA_PATH" luajit spec/structure/stubs.lua >lua/tpl/_meta/tpl.lua
-- What there is comes from the live table of require "tpl"; what it does comes from the comment above each function in the source,
-- for C from the comment `/* name(arguments) -> results: what it does */` in core/bind/l_<part>.c.
local slurp = require("spec.support.files").slurp
local tree = require("spec.support.tree")

local M = {}

local function sorted_keys(t)
  local keys = {}
  for key in pairs(t) do
    if type(key) == "string" and key:find("^[%a_][%w_]*$") and not key:find("^__") then keys[#keys + 1] = key end
  end
  table.sort(keys)
  return keys
end

-- -- Reading sources -------------------------------------------------------------------------------------------------

local sources = {}

local function lines_of(path)
  sources[path] = sources[path] or tree.lines(slurp(path))
  return sources[path]
end

--- Give the comment block that ends above a line.
local function doc_above(lines, at)
  local first = at
  while first > 1 and lines[first - 1]:find("^%s*%-%-%-") do first = first - 1 end
  local out = {}
  for i = first, at - 1 do out[#out + 1] = lines[i]:match("^%s*(.*)$") end
  return out
end

--- Give doc and parameters of a Lua function.
local function from_lua(info)
  local path = info.source:match("^@.*(lua/tpl/.*)$")
  if not path then return {}, "..." end
  local lines = lines_of(path)
  return doc_above(lines, info.linedefined), lines[info.linedefined]:match("function[^%(]*%(([^%)]*)%)") or "..."
end

--- Find the comment of a C function: in the file of its part, or in another one that helps it.
local function c_comment(module, name)
  local paths = tree.files({ "core/bind" }, { "%.c$" })
  table.insert(paths, 1, "core/bind/l_" .. module .. ".c")
  for _, path in ipairs(paths) do
    local file = io.open(path)
    local text = file and file:read("*a") or ""
    if file then file:close() end
    for _, head in ipairs { name, module .. "%." .. name } do
      for _, brackets in ipairs { "(%b())", "(%b{})" } do
        local arguments, rest = text:match("/%* " .. head .. brackets .. "(.-)%*/")
        if arguments then return arguments, rest end
      end
    end
  end
end

--- Give doc and parameters of a C function from its comment, if it has one.
local function from_c(module, name)
  local arguments, rest = c_comment(module, name)
  if not arguments then return {}, "..." end
  local doc = { "--- " .. (name .. arguments .. rest):gsub("%s*\n%s*%*?%s*", " "):gsub("%s+$", "") }
  if arguments:find("^{") then return doc, "options" end
  local names = {}
  for word in arguments:sub(2, -2):gsub("[%[%]%s]", ""):gmatch("[^,]+") do
    if not word:find("^[%a_][%w_]*$") then return doc, "..." end
    names[#names + 1] = word
  end
  return doc, table.concat(names, ", ")
end

-- -- Writing ---------------------------------------------------------------------------------------------------------

local function add(out, ...)
  for _, line in ipairs { ... } do out[#out + 1] = line end
end

local function add_function(out, path, f)
  local info = debug.getinfo(f, "S")
  local doc, parameters
  if info.what == "C" then doc, parameters = from_c(path:match("([%w_]+)%.[%w_]+$"), path:match("([%w_]+)$"))
  else doc, parameters = from_lua(info) end
  add(out, "")
  for _, line in ipairs(doc) do
    if not line:find("^%-%-%-@class") and not line:find("^%-%-%-@field") then add(out, line) end
  end
  add(out, ("function %s(%s) end"):format(path, parameters))
end

--- Write what a table holds: functions, and tables of functions two levels down.
local function add_table(out, path, t, depth)
  for _, key in ipairs(sorted_keys(t)) do
    local value, inner = t[key], path .. "." .. key
    if type(value) == "function" then add_function(out, inner, value)
    elseif type(value) == "table" and depth > 0 and not getmetatable(value) then
      add(out, "", inner .. " = {}")
      add_table(out, inner, value, depth - 1)
    else
      add(out, "", "---@type " .. (type(value) == "userdata" and "lightuserdata" or type(value)), inner .. " = nil")
    end
  end
end

--- Read the block of a class: its fields, and its methods where the class is a table of the file.
local function read_class(lines, i)
  local block, at = { lines[i] }, i + 1
  while lines[at] and lines[at]:find("^%-%-%-@field") or lines[at]:find("^%-%-%-  ") do
    block[#block + 1] = lines[at]
    at = at + 1
  end
  local name = lines[at]:match("^local ([%a_][%w_]*) =")
  if not name then return block end
  add(block, ("local %s = {}"):format(name))
  for k, method in ipairs(lines) do
    local head, parameters = method:match("^function (" .. name .. "[:.]%a[%w_]*)(%b())")
    if head then
      add(block, "")
      add(block, unpack(doc_above(lines, k)))
      add(block, ("function %s%s end"):format(head, parameters))
    end
  end
  table.insert(block, 1, "do") -- Lua allows 200 locals in one block
  block[#block + 1] = "end"
  return block
end

--- Read all annotated classes: name -> block.
local function classes()
  local blocks = {}
  for _, path in ipairs(tree.files({ "lua/tpl" }, { "%.lua$" })) do
    local lines = not path:find("^lua/tpl/_meta/") and lines_of(path) or {}
    for i, line in ipairs(lines) do
      local name = line:match("^%-%-%-@class ([%w_.]+)")
      if name then blocks[name] = read_class(lines, i) end
    end
  end
  return blocks
end

--- Write the classes that what is written so far names, and those that these name.
local function add_classes(out)
  local blocks, done, at, names = classes(), {}, 1, {}
  local function note(line)
    for name in (line:find("^%-%-%-@") and line or ""):gmatch("tpl%.[%w_.]*%w") do
      if blocks[name] and not done[name] then
        done[name], names[#names + 1] = true, name
      end
    end
  end
  for _, line in ipairs(out) do note(line) end
  while names[at] do
    for _, line in ipairs(blocks[names[at]]) do note(line) end
    at = at + 1
  end
  table.sort(names)
  for _, name in ipairs(names) do
    add(out, "")
    add(out, unpack(blocks[name]))
  end
end

--- Give the whole file.
---@return string
function M.text()
  local tpl = require("tpl")
  local out = {
    "-- SPDX-License-Identifier: Apache-2.0", "---@meta tpl",
    "--- Generated by spec/structure/stubs.lua: names from the live library, words from its sources. For editors only; nothing loads it.", "",
    "---@class tpl", "---@field version string", "local tpl = {}",
  }
  add_function(out, "tpl.names", tpl.names)
  for _, name in ipairs(tpl.names()) do
    local value, path = tpl[name], "tpl." .. name
    if type(value) == "function" then add_function(out, path, value)
    else
      add(out, "", "---@class " .. path)
      if (getmetatable(value) or {}).__call then add(out, "---@overload fun(...): table") end
      add(out, path .. " = {}")
      add_table(out, path, value, 1)
    end
  end
  add(out, "", "-- Classes ----------------------------------------------------------------------------------------------------------")
  add_classes(out)
  add(out, "", "return tpl", "")
  return table.concat(out, "\n")
end

--- Give the names of all functions of the live library: "tpl.json.decode".
---@return table<string, true>
function M.live()
  local tpl, names = require("tpl"), { ["tpl.names"] = true }
  local function walk(path, t, depth)
    for _, key in ipairs(sorted_keys(t)) do
      if type(t[key]) == "function" then names[path .. "." .. key] = true
      elseif type(t[key]) == "table" and depth > 0 and not getmetatable(t[key]) then walk(path .. "." .. key, t[key], depth - 1) end
    end
  end
  for _, name in ipairs(tpl.names()) do
    if type(tpl[name]) == "function" then names["tpl." .. name] = true else walk("tpl." .. name, tpl[name], 1) end
  end
  return names
end

if arg and arg[0] and arg[0]:find("stubs%.lua$") and not package.loaded["busted"] then io.write(M.text()) end

return M
