-- SPDX-License-Identifier: Apache-2.0
--- Open what a plan is made of: the model's headers and config, its definition, and what each weight is stored as.
--- Refuses what the file says and the planner could not compute with. Nothing is loaded.
local configs = require "tpl.config"
local err = require "tpl.err"
local find = require "tpl.find"
local models = require "tpl.model"
local shapes = require "tpl.shape"
local storage = require "tpl.plan.storage"
local typing = require "tpl.plan.typing"

local M = {}

local torch_types = { bfloat16 = "bf16", float16 = "f16", float32 = "f32" }

local function tensors_of(checkpoint)
  return checkpoint and checkpoint:tensors() or nil
end

local function shape_of(config, tensors, where)
  local shape, e = shapes.of(config, tensors, where)
  if not shape then err.throw(e) end
  return shape
end

-- What a user is told of a model that is planned but cannot be run.
local function warning(shape, refused, path)
  if shape.has_definition then
    return { code = "not_runnable", where = refused.where or path,
      message = ("this version plans and prices the model but does not run it: %s"):format(refused.message) }
  end
  return { code = "no_definition", where = path,
    message = ("tpl has no definition of %s: memory is planned from its config, programs and cost are not"):format(shape.arch) }
end

-- What a config may say that this version cannot run and whose memory is known all the same: another family, packed weights.
local plannable = { architectures = true, model_type = true, quantization_config = true }

-- A model that this version cannot run: its shape, and what was said against running it. A family with a definition has a price
-- too; its weights are in a format that nothing here computes with.
local function outline(found, refused)
  local raw, path = configs.raw(found)
  if not raw then err.throw(refused) end
  local shape, e = shapes.of(raw, nil, path)
  if not shape then err.throw(e.code == "unsupported" and refused or e) end
  shape.has_definition = find.script("models", shape.arch) ~= nil
  local config = { arch = shape.arch, n_layer = shape.n_layer, vocab = shape.vocab, hidden = shape.hidden, context = shape.context }
  return { config = config, path = found.path, dir = find.dirname(path), shape = shape, refused = refused,
    warnings = { warning(shape, refused, path) } }
end

--- Find and open the model of a deployment, or throw.
---@param deploy tpl.Deploy
---@param may_outline boolean?   a model that cannot be run is given as its shape alone
---@return tpl.OpenModel         with `shape`; with `refused` (the error that running it would give) where it is an outline
function M.model(deploy, may_outline)
  local found, e = find.model(deploy.model, deploy.origin and deploy.origin.dir)
  if not found then err.throw(e) end
  local open
  open, e = configs.open(found)
  if not open then
    if e.code == "unsupported" and plannable[e.key] and may_outline then return outline(found, e) end
    err.throw(e)
  end
  open.shape = shape_of(open.config, tensors_of(open.checkpoint), open.path)
  open.shape.has_definition = true
  return open
end

-- Layouts and model definitions lie beside deploy.lua. A model's own folder never gives code, unless a
-- deploy.lua was written there.
local function where_to_look(deploy, open)
  local origin = deploy.origin or {}
  return { dir = origin.dir, model_folder = not origin.file and open.path == open.dir and open.dir or nil }
end

-- The storage type of a weight: of its tensor, or where there are no weights yet what the config says.
local function dtype_of(open, model, config)
  local known = {}
  return function(name)
    if known[name] == nil then
      local tensor_name = model:tensor(config.names, name)
      local tensor = open.checkpoint and tensor_name and open.checkpoint:tensor(tensor_name)
      if open.checkpoint and not tensor then
        err.throw { code = "format", where = open.path,
          message = ("the checkpoint has no tensor '%s' for weight '%s'"):format(tostring(tensor_name), name) }
      end
      known[name] = tensor and tensor.dtype or torch_types[config.dtype] or config.dtype or "bf16"
    end
    return known[name]
  end
end

local function check_types(trace, dtype, where)
  for _, w in ipairs(trace.weight_list) do
    local name = dtype(w.name)
    if not storage.types[name] then
      err.throw { code = "unsupported", where = where,
        message = ("weight '%s' is stored as %s, which this version does not compute with"):format(w.name, name) }
    end
    if w.kind == "vector" and storage.elements(name) > 1 then
      err.throw { code = "unsupported", where = where, message = ("vector '%s' is stored in blocks (%s)"):format(w.name, name) }
    end
  end
end

-- Every tensor must have the shape the model gives its weight, or a file that lies is only found while loading.
local function check_shapes(open, model, config, trace)
  if not open.checkpoint then return end
  for _, w in ipairs(trace.weight_list) do
    local name = model:tensor(config.names, w.name)
    local tensor = open.checkpoint:tensor(name)
    local rows, cols = 1, 1
    for i, d in ipairs(w.dims) do
      if i <= w.n_out and w.kind ~= "vector" then rows = rows * trace.sizes[d] else cols = cols * trace.sizes[d] end
    end
    local n = 1
    for _, d in ipairs(tensor.dims) do n = n * d end
    local is_ok = n == rows * cols and (w.kind == "vector" or tensor.dims[#tensor.dims] == cols)
    if not is_ok then
      err.throw { code = "format", where = open.path,
        message = ("tensor '%s' is [%s], the config says [%d,%d]"):format(name, table.concat(tensor.dims, ","), rows, cols) }
    end
  end
end

--- Bytes of each layer's weights (1-based), and those that come with the head.
---@return number[] cost
---@return number head
function M.layer_costs(trace, dtype)
  local cost, head = {}, 0
  for i = 1, trace.n_layer do cost[i] = 0 end
  for _, w in ipairs(trace.weight_list) do
    local n = 1
    for _, d in ipairs(w.dims) do n = n * trace.sizes[d] end
    local bytes = storage.bytes(dtype(w.name), n)
    if w.layer >= 0 then cost[w.layer + 1] = cost[w.layer + 1] + bytes
    elseif w.uses.linear then head = head + bytes end
  end
  return cost, head
end

---@class tpl.Opened
---@field open tpl.OpenModel
---@field model tpl.Model
---@field model_file string
---@field look table                        where layouts are searched
---@field dtype fun(weight: string): string
---@field trace table                       the model's definition, run once

--- Find the definition of an open model and check its tensors against it.
---@param deploy tpl.Deploy
---@param open tpl.OpenModel
---@return tpl.Opened
function M.definition(deploy, open)
  local look = where_to_look(deploy, open)
  local model, file = models.load(open.config.arch, look)
  local dtype = dtype_of(open, model, open.config)
  local trace = typing.trace(model, open.config)
  check_types(trace, dtype, open.path)
  check_shapes(open, model, open.config, trace)
  return { open = open, model = model, model_file = file, look = look, dtype = dtype, trace = trace }
end

return M
