-- SPDX-License-Identifier: Apache-2.0
--- Read the files of one host: this machine, a recorded tree (proc, sys, etc, dev under --root DIR), or the record of one (--bundle).
-- Every check reads through here, so that a check cannot tell which of the three it looks at, and what was read can be written down
-- and read again. Paths have no leading slash: "proc/meminfo". A file that is absent or unreadable is nil, never an error.
local M = {}

local MOST_FILE_BYTES = 64 * 2 ^ 20

local function sys() return require("tpl.core").sys end

---@class tpl.doctor.Host
---@field where string               "this machine", the folder, or the bundle's file
---@field kind "live"|"tree"|"bundle"
---@field origin "live"|"tree"       of a bundle: what was recorded
---@field seen {files: table<string, string>, lists: table<string, string[]>, links: table<string, string>, dirs: table<string, boolean>}
---@field parts table<string, any>   a bundle's other parts (env, topology)
local Host = {}
Host.__index = Host

-- -- Where files come from --------------------------------------------------------------------------------------------

--- A folder, "" for this machine.
local function from_folder(root)
  local real = root == "" and "" or sys().realpath(root)
  local backend = {}

  --- Links may be absolute (/sys/devices/..): in a recorded tree they mean the tree, not this machine.
  local function place(path)
    local full = root .. "/" .. path
    if root == "" or sys().exists(full) then return full end
    return nil
  end

  function backend.read(path)
    local full = place(path)
    if not full or not sys().is_file(full) then return nil end
    return (sys().read_file(full, MOST_FILE_BYTES))
  end

  function backend.list(path)
    local full = place(path)
    return full and sys().is_dir(full) and sys().list(full) or nil
  end

  function backend.exists(path) return sys().exists(root .. "/" .. path) end

  function backend.is_dir(path) return sys().is_dir(root .. "/" .. path) end

  function backend.link(path)
    local out = sys().realpath(root .. "/" .. path)
    if not out or out:sub(1, #real + 1) ~= real .. "/" then return nil end
    return out:sub(#real + 2)
  end

  return backend
end

--- The parts of a bundle: tables from path to text, names, target.
local function from_record(record)
  local files, lists, links, dirs = record.files or {}, record.lists or {}, record.links or {}, record.dirs or {}
  local backend = {}
  function backend.read(path) return files[path] end
  function backend.list(path) return lists[path] end
  function backend.exists(path) return files[path] ~= nil or lists[path] ~= nil or dirs[path] ~= nil end
  function backend.is_dir(path) return lists[path] ~= nil or dirs[path] == true end
  function backend.link(path) return links[path] end
  return backend
end

local function new(backend, kind, where, parts)
  return setmetatable({
    backend = backend, kind = kind, origin = parts and parts.origin or kind, where = where, parts = parts or {}, seen = { files = {}, lists = {},
      links = {}, dirs = {} },
  }, Host)
end

--- This machine.
---@return tpl.doctor.Host
function M.live() return new(from_folder(""), "live", "this machine") end

--- A recorded tree.
---@param dir string
---@return tpl.doctor.Host
function M.tree(dir) return new(from_folder((dir:gsub("/+$", ""))), "tree", dir) end

--- What `seen` of another host held, with its parts.
---@param record {files: table, lists: table, links: table, dirs: table}
---@param where string
---@return tpl.doctor.Host
function M.record(record, where) return new(from_record(record), "bundle", where, record) end

-- -- Reading ----------------------------------------------------------------------------------------------------------

--- Give a file's text, nil when it is absent or unreadable.
---@param path string
---@return string?
function Host:read(path)
  local text = self.backend.read(path)
  if text ~= nil then self.seen.files[path] = text end
  return text
end

--- Give a file's text without the space around it; nil also when nothing is left.
---@return string?
function Host:word(path)
  local text = self:read(path)
  text = text and text:match("^%s*(.-)[%s%z]*$")
  return text ~= "" and text or nil
end

--- Give a file's number; decimal or 0x.
---@return number?
function Host:number(path) return tonumber(self:word(path) or "") end

--- Give the names in a folder, sorted; nil when there is no such folder.
---@return string[]?
function Host:list(path)
  local names = self.backend.list(path)
  if names ~= nil then self.seen.lists[path] = names end
  return names
end

--- Say whether there is such a file or folder.
function Host:exists(path)
  local there = self.backend.exists(path)
  if there and not self.seen.files[path] and not self.seen.lists[path] then self.seen.dirs[path] = self.backend.is_dir(path) end
  return there
end

--- Say whether a kernel module is loaded; nil when the host keeps no list of them.
---@param name string
---@return boolean?
function Host:is_module(name)
  if self:exists("sys/module/" .. name) then return true end
  local text = self:read("proc/modules")
  if not text then return nil end
  return ("\n" .. text):find("\n" .. name .. " ", 1, true) ~= nil
end

--- Give the path behind links, relative to the root; nil when absent or outside of it.
---@return string?
function Host:link(path)
  local target = self.backend.link(path)
  if target then self.seen.links[path] = target end
  return target
end

--- Give the value that follows a key at the start of a line, as in /proc/self/status: "CapEff:\t0000".
---@param path string
---@param key string
---@return string?
function Host:field(path, key)
  local text = self:read(path)
  if not text then return nil end
  for line in text:gmatch("[^\n]+") do
    if line:sub(1, #key) == key and line:sub(#key + 1):match("^%s*[:=]") then return line:sub(#key + 1):match("^%s*[:=]%s*(.-)%s*$") end
  end
  return nil
end

return M
