-- SPDX-License-Identifier: Apache-2.0
--- Open a model: its normalised configuration, its checkpoint (headers only) and where its tokenizer is.
-- A folder with config.json alone is enough to plan; then there is no checkpoint. Nothing of a model's folder is run.
local err = require("tpl.err")
local find = require("tpl.find")
local gguf = require("tpl.config.gguf")
local hf = require("tpl.config.hf")
local reader = require("tpl.config.reader")

local M = {}

local MOST_JSON_BYTES = 4 * 2 ^ 20

local function core() return require("tpl.core") end

--- Read a JSON object from a file; gives the object and a function that finds the line of a key.
local function load_json(path)
  local text, message, code, where = core().sys.load_file(path, MOST_JSON_BYTES)
  if not text then err.throw(err.from_c(message, code, where or path)) end
  local object
  object, message, code, where = core().json.decode(text, { where = path })
  if object == nil then err.throw(err.from_c(message, code or "format", where or path)) end
  if type(object) ~= "table" or getmetatable(object) == core().json.array_mt then
    err.throw { code = "format", where = path .. ":1", message = "holds no JSON object" }
  end
  return object, function(key)
    local at = text:find('"' .. key .. '"', 1, true)
    local _, lines = text:sub(1, (at or 1) - 1):gsub("\n", "")
    return path .. ":" .. (lines + 1)
  end
end

local function json_reader(path)
  local object, locate = load_json(path)
  return reader.new(function(key) return reader.member(object, key) end, locate)
end

--- Normalise the config.json in a folder.
---@param dir string
---@param has? fun(tensor: string): boolean
---@return tpl.ModelConfig
local function from_hf(dir, has)
  local r = json_reader(find.join(dir, "config.json"))
  local generation_path = find.join(dir, "generation_config.json")
  local generation = core().sys.exists(generation_path) and json_reader(generation_path) or nil
  return hf.normalise(r.get, r.locate, { generation = generation, has = has })
end

--- Normalise the keys of a GGUF checkpoint.
local function from_gguf(checkpoint, path)
  local tokens
  local function all_tokens()
    if tokens == nil then tokens = checkpoint:kv("tokenizer.ggml.tokens") or false end
    return tokens
  end
  local source = { n_tensors = #checkpoint:tensors() }
  function source.n_tokens() return all_tokens() and #tokens or nil end
  function source.dims(name)
    local tensor = checkpoint:tensor(name)
    return tensor and tensor.dims
  end
  function source.floats(name)
    local list, message, code, where = checkpoint:read_f32(name)
    if not list then err.throw(err.from_c(message, code, where or path)) end
    return list
  end
  local ids
  function source.token_id(text)
    if not ids then
      ids = {}
      for i, token in ipairs(all_tokens() or {}) do
        if token:byte(1) == 60 then ids[token] = i - 1 end -- '<'
      end
    end
    return ids[text]
  end
  return gguf.normalise(function(key)
    local value, too_large = checkpoint:kv(key)
    return too_large and math.huge or value
  end, function(key) return path .. ":" .. key end, source)
end

local function open_checkpoint(path)
  local checkpoint, message, code, where, hint = core().checkpoint.open(path)
  if not checkpoint then
    err.throw(err.from_c(message, code, where or path, hint))
  end
  return checkpoint
end

--- Say whether a folder holds weights that a checkpoint could be opened from.
local function has_weights(dir)
  for _, name in ipairs(core().sys.list(dir) or {}) do
    if name:find("%.safetensors$") or name:find("%.safetensors%.index%.json$") or name:find("%.gguf$") then return true end
  end
  return false
end

local function warn(warnings, code, message, where)
  warnings[#warnings + 1] = { code = code, message = message, where = where }
end

--- Open a folder without weights: its config.json.
local function open_bare(dir, warnings)
  if not core().sys.exists(find.join(dir, "config.json")) then
    err.throw { code = "format", where = dir, message = "holds neither config.json nor weights (.safetensors, .gguf)" }
  end
  warn(warnings, "no_weights", "the folder holds config.json but no weights: enough to plan, not to run", dir)
  return from_hf(dir)
end

---@class tpl.OpenModel
---@field config tpl.ModelConfig
---@field checkpoint? userdata        nil when there are no weights
---@field path string                 what was opened
---@field dir string                  folder of its files
---@field tokenizer? string           tokenizer.json or the .gguf file; nil when the model has none
---@field warnings {code: string, message: string, where: string}[]

local function open(path, kind)
  local model = { path = path, dir = kind == "dir" and path or find.dirname(path), warnings = {} }
  if kind == "dir" and not has_weights(path) then
    model.config = open_bare(path, model.warnings)
  else
    local checkpoint = open_checkpoint(path)
    model.checkpoint, model.dir = checkpoint, checkpoint:path()
    if checkpoint:warning() then warn(model.warnings, "ignored_files", checkpoint:warning(), model.dir) end
    if checkpoint:kind() == "gguf" then
      local file = checkpoint:files()[1].path
      model.config = from_gguf(checkpoint, file)
      model.tokenizer = checkpoint:kv("tokenizer.ggml.tokens") and file or nil
      return model
    end
    if not core().sys.exists(find.join(model.dir, "config.json")) then
      err.throw { code = "format", where = model.dir, message = "holds safetensors but no config.json" }
    end
    model.config = from_hf(model.dir, function(name) return checkpoint:tensor(name) ~= nil end)
  end
  local tokenizer = find.join(model.dir, "tokenizer.json")
  model.tokenizer = core().sys.exists(tokenizer) and tokenizer or nil
  return model
end

--- Open a model that find.model found.
---@param found tpl.FoundModel
---@return tpl.OpenModel?
---@return tpl.Err?   exit 6 for what opens but is not valid or not supported
function M.open(found)
  return err.try(open, found.path, found.kind)
end

--- Read the config.json of a model that this version has no definition of, as it stands: enough to plan its memory.
---@param found tpl.FoundModel
---@return table? config   decoded; nil when there is none
---@return string? path
function M.raw(found)
  local dir = found.kind == "dir" and found.path or find.dirname(found.path)
  local path = find.join(dir, "config.json")
  if not core().sys.exists(path) then return nil end
  return (load_json(path)), path
end

--- Normalise a folder's config.json alone, or throw; for tools and specs.
M.from_hf = from_hf

return M
