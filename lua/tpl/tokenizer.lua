-- SPDX-License-Identifier: Apache-2.0
--- Open the tokenizer of a model, from a tokenizer.json, a model's folder or a .gguf file: text to ids, and back.
-- The C core (core/token) knows tokenizer.json and GGUF vocabularies; this module finds the files beside them and
-- reads from tokenizer_config.json, generation_config.json and chat_template.jinja what the core cannot know.
-- Ids count from 0.
local M = {}

local MOST_TOKENIZER_BYTES = 128 * 2 ^ 20
local MOST_CONFIG_BYTES = 4 * 2 ^ 20

local function core() return require("tpl.core") end

---@class tpl.Tokenizer
---@field bos_token string?      spelling, for chat templates
---@field eos_token string?
---@field bos_id integer?
---@field eos_id integer?
---@field n_vocab integer        highest id + 1
---@field chat_template string?  Jinja source
---@field source string          the file it was read from
local Tokenizer = {}
Tokenizer.__index = Tokenizer

-- -- Encoding and decoding ------------------------------------------------------------------------

--- Encode a text.
---@param text string   bytes; what is not UTF-8 is read as U+FFFD
---@param opts? {special: boolean?, bos: boolean?}  both true by default; special: the spelling of a control token is
---  that token; bos: add what the model's post-processor adds
---@return integer[]? ids
---@return string? message, string? code, string? where, string? hint
function Tokenizer:encode(text, opts)
  opts = opts or {}
  return self.core:encode(text, opts.special ~= false, opts.bos ~= false)
end

--- Decode ids at once. Ids without a token show nothing.
---@param ids integer[]
---@param opts? {skip_special: boolean?}  leave control tokens out, default false
---@return string text
function Tokenizer:decode(ids, opts)
  local stream = self:stream(opts)
  local parts = {}
  for i = 1, #ids do parts[i] = stream:push(ids[i]) end
  parts[#parts + 1] = stream:flush()
  return table.concat(parts)
end

---@class tpl.Detok
---@field push fun(self, id: integer): string   the text that this token completes, whole characters only
---@field flush fun(self): string               what is left at the end

--- Make a decoder for tokens that come one by one.
---@param opts? {skip_special: boolean?, prompt: integer?}  prompt: so many tokens are followed first, showing nothing
---@return tpl.Detok
function Tokenizer:stream(opts)
  opts = opts or {}
  return assert(self.core:stream(opts.skip_special or false, opts.prompt or 0))
end

--- Say whether an id ends a generation.
---@param id integer
---@return boolean
function Tokenizer:eog(id) return self.core:is_eog(id) end

--- List the ids that end a generation, ascending.
---@return integer[]
function Tokenizer:eog_ids() return self.core:eog_ids() end

--- Say whether an id is a control token.
function Tokenizer:is_special(id) return self.core:is_special(id) end

--- Give the spelling of an id in the vocabulary, nil if it has none.
function Tokenizer:token(id) return self.core:token(id) end

--- Give the id of a spelling, nil if it is no token.
function Tokenizer:id(token) return self.core:find(token) end

--- Say whether encoding with bos puts the BOS in front.
function Tokenizer:adds_bos() return self.core:adds_bos() end

-- -- Files beside tokenizer.json ------------------------------------------------------------------

local function is_null(x) return x == nil or x == core().json.null end

--- Read a JSON object and its text; nil when the file is not there; raises {message, code, where} when it is no such thing.
local function read_object(path)
  local sys = core().sys
  if not sys.exists(path) then return nil end
  local text, message, code, where = sys.load_file(path, MOST_CONFIG_BYTES)
  if not text then error({ message, code, where or path }, 0) end
  local object, why
  object, why, code, where = core().json.decode(text, { where = path })
  if type(object) == "table" and getmetatable(object) == core().json.array_mt then object = nil end
  if type(object) ~= "table" then error({ why or "holds no JSON object", code or "format", where or path }, 0) end
  return object, text
end

--- Give the text of a token as tokenizer_config.json writes it: a string, or an object with its content.
local function token_text(x)
  if type(x) == "table" then x = x.content end
  return type(x) == "string" and x or nil
end

--- Give the chat template of a config: a string, or a list of named ones, of which `default` counts.
local function template_text(x)
  if type(x) == "string" then return x end
  if type(x) ~= "table" then return nil end
  local first
  for _, entry in ipairs(x) do
    if type(entry) == "table" and type(entry.template) == "string" then
      if entry.name == "default" then return entry.template end
      first = first or entry.template
    end
  end
  return first
end

local function find_template(dir, config)
  local path = dir .. "/chat_template.jinja"
  if core().sys.exists(path) then
    local text, message, code, where = core().sys.load_file(path, MOST_CONFIG_BYTES)
    if not text then error({ message, code, where or path }, 0) end
    return text
  end
  local object = read_object(dir .. "/chat_template.json")
  return template_text(object and object.chat_template) or template_text(config.chat_template)
end

-- Classes of the transformers library that build their post-processor from add_bos_token and add_eos_token; for all
-- others the one in tokenizer.json stands, and add_bos_token = true can only add to it.
local function rebuilds_post_processor(class)
  if type(class) ~= "string" then return false end
  return (class:find("^Llama") or class:find("^CodeLlama") or class:find("^Gemma")) ~= nil
end

local function flag(value, rebuilds)
  if type(value) ~= "boolean" then return nil end
  if value or rebuilds then return value end
  return nil
end

--- Apply the ids that end a generation: an integer or a list. Padding ids beyond the vocabulary are not an error here.
local function add_eog(object, eos)
  if is_null(eos) then return end
  for _, id in ipairs(type(eos) == "table" and eos or { eos }) do
    if type(id) == "number" and object:token(id) then object:add_eog(id) end
  end
end

local function configure(self, dir, config)
  local generation = read_object(dir .. "/generation_config.json") or read_object(dir .. "/config.json") or {}
  local rebuilds = rebuilds_post_processor(config.tokenizer_class)
  local bos, eos = token_text(config.bos_token), token_text(config.eos_token)
  self.bos_token, self.eos_token = bos, eos
  local ok, message, code, where = self.core:configure {
    -- a spelling that is no token serves the template only
    bos_token = bos and self.core:find(bos) and bos or nil,
    eos_token = eos and self.core:find(eos) and eos or nil,
    add_bos = flag(config.add_bos_token, rebuilds), add_eos = flag(config.add_eos_token, rebuilds),
  }
  if not ok then error({ message, code, where }, 0) end
  add_eog(self.core, generation.eos_token_id)
  self.chat_template = find_template(dir, config)
end

-- -- Opening --------------------------------------------------------------------------------------

local function finish(object, source)
  local self = setmetatable({ core = object, source = source }, Tokenizer)
  self.n_vocab = object:n_vocab()
  return self
end

local function set_ids(self)
  self.bos_id, self.eos_id = self.core:bos(), self.core:eos()
  self.bos_token = self.bos_token or (self.bos_id and self.core:token(self.bos_id))
  self.eos_token = self.eos_token or (self.eos_id and self.core:token(self.eos_id))
  return self
end

--- Make a tokenizer from tokenizer.json and what lies beside it; raises {message, code, where, hint}.
local function load_json(path)
  local text, message, code, place = core().sys.load_file(path, MOST_TOKENIZER_BYTES)
  if not text then error({ message, code, place or path }, 0) end
  local dir = path:match("^(.*)/[^/]*$") or "."
  local config_path = dir .. "/tokenizer_config.json"
  local config, config_text = read_object(config_path)
  local object, why, status, where, hint = core().tokenizer.from_json(text, path, config_text, config_path)
  if not object then error({ why, status, where, hint }, 0) end
  local self = finish(object, path)
  configure(self, dir, config or {})
  return set_ids(self)
end

local function open_json(path)
  local ok, self = pcall(load_json, path)
  if ok then return self end
  if type(self) ~= "table" then error(self, 0) end
  return nil, self[1], self[2], self[3], self[4]
end

--- Make the tokenizer of an open GGUF checkpoint.
---@param checkpoint userdata  tpl.core.checkpoint
---@param path string          for messages
---@return tpl.Tokenizer?
function M.from_checkpoint(checkpoint, path)
  local object, message, code, where, hint = core().tokenizer.from_checkpoint(checkpoint, path)
  if not object then return nil, message, code, where, hint end
  local self = finish(object, path)
  local template = checkpoint:kv("tokenizer.chat_template")
  self.chat_template = type(template) == "string" and template or nil
  return set_ids(self)
end

local function open_gguf(path)
  local checkpoint, message, code, where, hint = core().checkpoint.open(path)
  if not checkpoint then return nil, message, code, where or path, hint end
  local function close(...)
    checkpoint:close()
    return ...
  end
  return close(M.from_checkpoint(checkpoint, path))
end

--- Open a tokenizer.
---@param path string  tokenizer.json, a .gguf file, or a model's folder
---@return tpl.Tokenizer?
---@return string? message
---@return string? code   "no_vocab" for a model without a vocabulary, else a status ("io", "format", "unsupported", ..)
---@return string? where
---@return string? hint
function M.open(path)
  local sys = core().sys
  if sys.is_dir(path) then
    local json = (path:gsub("/+$", "")) .. "/tokenizer.json"
    if sys.exists(json) then return open_json(json) end
    for _, name in ipairs(sys.list(path) or {}) do
      if name:find("%.gguf$") then return open_gguf(path) end
    end
    return nil, "the folder has no tokenizer.json", "no_vocab", path, "give token ids, or name a tokenizer.json"
  end
  if path:find("%.json$") then return open_json(path) end
  return open_gguf(path)
end

return M
