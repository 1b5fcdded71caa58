-- SPDX-License-Identifier: Apache-2.0
--- Read and write YAML as data: what JSON can say, in the notation that people and Kubernetes use.
-- Values have the shapes of tpl.json: objects keep the order of their keys, lists are json.array, null is json.null.
-- Reading is libyaml's (core/base/yaml.h says what is refused), writing is yaml_encode.lua's.
local core = require("tpl.core").yaml
local err = require("tpl.err")

local M = {}

local function finish(value, message, code, where, hint)
  if message then return nil, err.from_c(message, code, where, hint) end
  return value
end

--- Read a text of one document.
---@param text string
---@param options {where: string?, depth: integer?}?   where: the file's name for messages; depth: deepest nesting, 64
---@return any? value     json.null for a null document
---@return tpl.Err? err   code "format", the line in `where` and in the message
function M.decode(text, options) return finish(core.decode(text, options)) end

--- Read a text of any number of documents, such as a Kubernetes manifest.
---@param text string
---@param options {where: string?, depth: integer?}?
---@return any[]? values  empty for an empty text
---@return tpl.Err? err
function M.decode_all(text, options) return finish(core.decode_all(text, options)) end

--- Find the line in which a value begins, for a message about a text that was read.
---@param text string   YAML or JSON
---@param path string   "devices[2].name", indices from 1
---@return integer? line
function M.line(text, path) return core.line(text, path) end

--- Write a value as YAML that decode reads back as the same value.
---@param value any
---@param options {sort_keys: boolean?, flow: boolean?}?   flow: lists of small mappings get a line each, `- {a: 1, b: 2}`
---@return string text    ends with a newline; raises for what YAML cannot say (functions, nan, bytes that are not UTF-8)
function M.encode(value, options) return require("tpl.yaml_encode").encode(value, options) end

return M
