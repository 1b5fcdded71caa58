-- SPDX-License-Identifier: Apache-2.0
--- Find what a name stands for: a model among paths and caches; a layout, policy or model definition among the script folders.
-- The order of search is interface.md section 1. Nothing inside a model's folder is ever run (reliability.md A12): script folders
-- that lie in it are left out.
local err = require("tpl.err")
local suggest = require("tpl.suggest")

local M = {}

local function sys() return require("tpl.core").sys end

--- Read an environment variable; replaced in specs.
function M.env(name) return sys().env(name) end

-- The folder that holds tpl/find.lua, "lua/" in the source tree.
local lua_root = debug.getinfo(1, "S").source:match("^@(.*)tpl/find%.lua$") or "./"

--- Join a folder and a path; an absolute path stands for itself, "." and nil leave the path alone.
---@param dir string?
---@param path string
---@return string
function M.join(dir, path)
  if path:sub(1, 1) == "/" or dir == nil or dir == "" or dir == "." then return path end
  return (dir:gsub("/+$", "")) .. "/" .. path
end

--- Give the folder of a file, "." for a bare name.
function M.dirname(path)
  local dir = path:match("^(.*)/[^/]*$")
  if dir == nil then return "." end
  return dir == "" and "/" or dir
end

--- Expand a leading "~/".
local function home(path)
  if path:sub(1, 2) ~= "~/" then return path end
  local dir = M.env("HOME")
  return dir and M.join(dir, path:sub(3)) or path
end

--- Give the folder where tpl keeps models and measurements.
function M.cache()
  local dir = M.env("TPL_CACHE")
  if dir then return home(dir) end
  return M.join(M.env("XDG_CACHE_HOME") or home("~/.cache"), "tpl")
end

--- Give the folder of the Hugging Face cache, as huggingface_hub finds it.
function M.hf_cache()
  local dir = M.env("HF_HUB_CACHE")
  if dir then return home(dir) end
  return M.join(home(M.env("HF_HOME") or M.join(M.env("XDG_CACHE_HOME") or "~/.cache", "huggingface")), "hub")
end

-- -- Models ----------------------------------------------------------------------------------------------------------

---@class tpl.FoundModel
---@field path string           file or folder
---@field kind "file"|"dir"
---@field from "path"|"model cache"|"hugging face cache"
---@field name string           as the user wrote it

local function found(path, from, name)
  local stat = sys().stat(path)
  if not stat then return nil end
  return { path = path, kind = stat.kind == "dir" and "dir" or "file", from = from, name = name }
end

--- Say whether a folder looks like a model: a bare word should not pick up just any folder of that name.
local function is_model_folder(dir)
  if sys().is_file(M.join(dir, "config.json")) then return true end
  for _, name in ipairs(sys().list(dir) or {}) do
    if name:find("%.gguf$") or name:find("%.safetensors$") then return true end
  end
  return false
end

--- Try the text itself as a path.
local function as_path(name, dir, tried)
  local is_word = not name:find("/", 1, true)
  local places = { M.join(dir, home(name)) }
  if dir and dir ~= "." then places[2] = home(name) end
  for _, path in ipairs(places) do
    local model = found(path, "path", name)
    if model and not (is_word and model.kind == "dir" and not is_model_folder(path)) then return model end
    tried[#tried + 1] = path
  end
end

--- Try org/name in the Hugging Face cache, at the commit that its `main` names.
local function as_hf(name, tried)
  local org, repo = name:match("^([%w._-]+)/([%w._-]+)$")
  if not org or org:find("^%.+$") or repo:find("^%.+$") then return nil end
  local base = M.join(M.hf_cache(), "models--" .. org .. "--" .. repo)
  tried[#tried + 1] = base
  local ref = sys().is_file(base .. "/refs/main") and sys().read_file(base .. "/refs/main", 4096)
  ref = ref and ref:match("^%s*([%w._-]+)%s*$")
  if not ref or ref:find("^%.+$") then return nil end
  return found(base .. "/snapshots/" .. ref, "hugging face cache", name)
end

local function as_cached(name, tried)
  if name:find("/", 1, true) then return nil end
  local base = M.cache() .. "/models/" .. name
  for _, path in ipairs { base .. ".gguf", base } do
    local model = found(path, "model cache", name)
    if model then return model end
    tried[#tried + 1] = path
  end
end

--- List the names in the model cache, for hints.
local function cached_names()
  local names = {}
  for _, name in ipairs(sys().list(M.cache() .. "/models") or {}) do
    names[#names + 1] = (name:gsub("%.gguf$", ""))
  end
  return names
end

--- Find a model.
---@param name string
---@param dir? string    folder that relative paths start from (that of deploy.lua); the working folder comes after it
---@return tpl.FoundModel?
---@return tpl.Err?      code "model_not_found", exit 2, with `looked` = the places
function M.model(name, dir)
  local tried = {}
  local model = as_path(name, dir, tried) or as_hf(name, tried) or as_cached(name, tried)
  if model then return model end
  local near = suggest.nearest(name, cached_names())
  return nil, err.new {
    code = "model_not_found", exit = 2, where = name, looked = tried,
    message = "no such model; looked at " .. table.concat(tried, ", "),
    hint = near and string.format("did you mean '%s'?", near)
      or "a path, file.gguf, folder, org/name in the Hugging Face cache, or a name in the model cache",
  }
end

-- -- Scripts ---------------------------------------------------------------------------------------------------------

local codes = { layouts = "layout_error", policies = "policy_error", models = "model_error" }
local singular = { layouts = "layout", policies = "policy", models = "model definition" }

--- Give the folders to search for one kind of script, in order, with a word for where each comes from.
local function script_folders(kind, dir, search_path)
  local folders = {}
  local function add(path, from) folders[#folders + 1] = { path = path, from = from } end
  add(M.join(dir, kind), "beside deploy.lua")
  if dir and dir ~= "." then add(kind, "working folder") end
  for path in (search_path or M.env("TPL_PATH") or ""):gmatch("[^:]+") do
    add(M.join(path, kind), "TPL_PATH")
    add(path, "TPL_PATH")
  end
  add(lua_root .. "tpl/" .. kind, "built in")
  add(lua_root .. "../" .. kind, "built in") -- policies/ of the source tree
  add(lua_root .. "../../tpl/" .. kind, "built in") -- and where it is installed
  if not dir or dir == "." then folders[1].from = "working folder" end
  return folders
end

--- Say whether a path lies in a folder; both must exist.
local function is_inside(path, folder)
  local a, b = sys().realpath(path), folder and sys().realpath(folder)
  return a ~= nil and b ~= nil and (a == b or a:sub(1, #b + 1) == b .. "/")
end

local function known_scripts(folders)
  local names, seen = {}, {}
  for _, folder in ipairs(folders) do
    for _, file in ipairs(sys().list(folder.path) or {}) do
      local name = file:match("^(.+)%.lua$")
      if name and not seen[name] then
        names[#names + 1], seen[name] = name, true
      end
    end
  end
  table.sort(names)
  return names
end

--- Find the Lua file of a layout, policy or model definition.
---@param kind "layouts"|"policies"|"models"
---@param name string
---@param dir? string                          folder of deploy.lua; nil: the working folder
---@param opts? {model_folder?: string, path?: string}  scripts in model_folder are not taken; path: instead of TPL_PATH
---@return {path: string, from: string, name: string}?
---@return tpl.Err?                            exit 3
function M.script(kind, name, dir, opts)
  local model_folder = opts and opts.model_folder
  local tried, folders = {}, script_folders(kind, dir, opts and opts.path)
  local function try(path, from)
    if sys().is_file(path) and not is_inside(path, model_folder) then
      return { path = path, from = from, name = name }
    end
    tried[#tried + 1] = path
  end
  local hit
  if name:find("/", 1, true) or name:find("%.lua$") then
    hit = try(M.join(dir, home(name)), "path") or (dir and dir ~= "." and try(home(name), "path")) or nil
  elseif name:find("^[%w_.-]+$") then
    for _, folder in ipairs(folders) do
      hit = try(folder.path .. "/" .. name .. ".lua", folder.from)
      if hit then break end
    end
  end
  if hit then return hit end
  return nil, err.new {
    code = codes[kind], exit = 3, looked = tried,
    message = string.format("unknown %s '%s'", singular[kind], name)
      .. (#tried > 0 and "; looked at " .. table.concat(tried, ", ") or ""),
    hint = suggest.hint(name, known_scripts(folders), "known"),
  }
end

return M
