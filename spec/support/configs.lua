-- SPDX-License-Identifier: Apache-2.0
--- Give the shapes of the model configurations in spec/fixtures/configs (not a spec itself).
local json = require("tpl.json")
local read_file = require("spec.support.files").read
local shape = require("tpl.shape")

local M = {}

local shapes = {}

--- Decode a configuration; each call gives a table of its own.
---@param name string   "llama-3.1-8b"
function M.config(name) return assert(json.decode((assert(read_file("spec/fixtures/configs/" .. name .. ".json"), name)))) end

--- Give the shape of a configuration, made once.
---@param name string
---@return tpl.Shape
function M.shape(name)
  shapes[name] = shapes[name] or assert(shape.of(M.config(name)))
  return shapes[name]
end

return M
