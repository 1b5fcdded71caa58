-- SPDX-License-Identifier: Apache-2.0
--- Give the model configurations of examples/models and spec/fixtures/configs: folder, fields, shape (not a spec itself).
local json = require("tpl.json")
local read_file = require("spec.support.files").read
local shape = require("tpl.shape")

local M = {}

local shapes = {}

--- Give the folder of a configuration: a model that `tpl plan` takes.
---@param name string   "llama-3.1-8b"
function M.folder(name)
  for _, parent in ipairs { "examples/models/", "spec/fixtures/configs/" } do
    if read_file(parent .. name .. "/config.json") then return parent .. name end
  end
  error("no configuration is called " .. name)
end

--- Decode a configuration; each call gives a table of its own.
---@param name string
function M.config(name) return assert(json.decode((assert(read_file(M.folder(name) .. "/config.json"), name)))) end

--- Give the shape of a configuration, made once.
---@param name string
---@return tpl.Shape
function M.shape(name)
  shapes[name] = shapes[name] or assert(shape.of(M.config(name)))
  return shapes[name]
end

return M
