-- SPDX-License-Identifier: Apache-2.0
--- Turn what a row or a user says into token ids (interface.md section 3, Text).
-- `text` and `prompt` are tokenised with special tokens and the BOS of the tokenizer's own post-processor; `messages` go through the
-- chat template with add_generation_prompt, and what it renders is tokenised as it is; `ids` need no tokenizer.
local err = require("tpl.err")
local find = require("tpl.find")
local json = require("tpl.json")

local M = {}

---@class tpl.Text
---@field path? string               tokenizer.json or .gguf; nil: the model has no tokenizer
---@field vocab? integer             size of the model's vocabulary; nil: ids are only checked to be ids
---@field tokenizer? tpl.Tokenizer   opened when first needed
local Text = {}
Text.__index = Text

--- Open a tokenizer file or throw.
---@param path string
---@return tpl.Tokenizer
function M.open_tokenizer(path)
  local tokenizer, message, code, where, hint = require("tpl.tokenizer").open(path)
  if tokenizer then return tokenizer end
  local e = err.from_c(message, code, where or path, hint)
  if e.code == "no_vocab" then e = err.new { code = "no_vocab", exit = 6, message = message, where = where or path, hint = hint } end
  err.throw(e)
end

---@param path? string
---@param vocab? integer
---@return tpl.Text
function M.new(path, vocab)
  return setmetatable({ path = path, vocab = vocab }, Text)
end

--- Give the tokenizer file of a model's name, or throw.
---@param name string
---@return string path
function M.of_model(name)
  local model, e = find.model(name)
  if not model then err.throw(e) end
  return model.path
end

local function fault(code, message) err.throw { code = code, message = message, exit = 1 } end

--- Give the tokenizer; throws when the model has none.
function Text:need()
  if not self.tokenizer then
    if not self.path then fault("no_tokenizer", "the model has no tokenizer: give ids") end
    self.tokenizer = M.open_tokenizer(self.path)
  end
  return self.tokenizer
end

--- Give the tokenizer, nil when the model has none.
function Text:maybe()
  if not self.path then return nil end
  return self:need()
end

--- Give the tokenizer, nil when the model has none or it cannot be read: for work on ids, where text is only an extra.
function Text:maybe_quietly()
  return (err.try(self.maybe, self))
end

local function encode(self, text, opts)
  local ids, message, code = self:need():encode(text, opts)
  if not ids then fault((code or "format"):lower(), message) end
  return ids
end

--- Check ids that came from outside.
---@param list any
---@param vocab? integer
---@return integer[]
function M.check_ids(list, vocab)
  if type(list) ~= "table" or (next(list) ~= nil and list[1] == nil) then fault("bad_ids", "ids must be a list of token ids") end
  local most = vocab or 2 ^ 31
  local ids = {}
  for i = 1, #list do
    local id = list[i]
    if type(id) ~= "number" or id ~= math.floor(id) or id < 0 or id >= most then
      fault("bad_ids", string.format("ids[%d] is %s, a token id from 0 to %d is needed", i - 1,
        type(id) == "number" and string.format("%.14g", id) or "a " .. type(id), most - 1))
    end
    ids[i] = id
  end
  return ids
end

--- Render a conversation with the model's chat template.
---@param messages table
---@param more? table   further options of template.chat
---@return string
function Text:render(messages, more)
  local tokenizer = self:need()
  if not tokenizer.chat_template then
    fault("no_template", "the model has no chat template: give a prompt or ids")
  end
  local template = require("tpl.template")
  if not self.template then
    local compiled, e = template.compile(tokenizer.chat_template)
    if not compiled then fault(e.code, e.message) end
    self.template = compiled
  end
  local opts = { messages = messages, add_generation_prompt = true, bos_token = tokenizer.bos_token, eos_token = tokenizer.eos_token }
  for key, value in pairs(more or {}) do opts[key] = value end
  local text, e = template.chat(self.template, opts)
  if not text then fault(e.code, e.message) end
  return text
end

local function is_set(x) return x ~= nil and x ~= json.null end

local function need_text(name, value)
  if type(value) ~= "string" then fault("bad_row", name .. " must be a string") end
  return value
end

--- Give the ids of a row that holds `ids`, `text`, `prompt` or `messages`; throws the error of the row.
---@param row table
---@param keys string[]    which of these count, in this order
---@return integer[]
function Text:ids(row, keys)
  for _, key in ipairs(keys) do
    local value = row[key]
    if is_set(value) then
      if key == "ids" then return M.check_ids(value, self.vocab) end
      if key == "messages" then
        if type(value) ~= "table" or (next(value) ~= nil and value[1] == nil) then fault("bad_row", "messages must be a list") end
        local tools = is_set(row.tools) and row.tools or nil
        return encode(self, self:render(value, { tools = tools, kwargs = is_set(row.kwargs) and row.kwargs or nil }), { special = true, bos = false })
      end
      return encode(self, need_text(key, value), { special = true, bos = true })
    end
  end
  fault("bad_row", "the row has none of: " .. table.concat(keys, ", "))
end

--- Give the ids of a prompt of `tpl run`: as a user's message through the template, or as plain text when the model has none.
---@param messages {role: string, content: string}[]
---@return integer[]
function Text:prompt(messages)
  if self:need().chat_template then
    return encode(self, self:render(setmetatable(messages, json.array_mt)), { special = true, bos = false })
  end
  local parts = {}
  for i, message in ipairs(messages) do parts[i] = message.content end
  return encode(self, table.concat(parts, "\n"), { special = true, bos = true })
end

return M
