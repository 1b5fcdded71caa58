-- SPDX-License-Identifier: Apache-2.0
--- Learn of a FILE or MODEL what the checks need: heads and the degree of tensor parallelism. Any config.json will do, also of a family
-- that tpl has no definition of.
local err = require("tpl.err")
local find = require("tpl.find")

local M = {}

local function core() return require("tpl.core") end

local function number(...)
  for i = 1, select("#", ...) do
    local n = select(i, ...)
    if type(n) == "number" and n >= 1 then return n end
  end
end

--- Read the heads of a config.json.
local function from_json(path)
  local text, message, code = core().sys.load_file(path, 4 * 2 ^ 20)
  if not text then err.throw(err.from_c(message, code, path)) end
  local config, problem, c, where = core().json.decode(text, { where = path })
  if type(config) ~= "table" then err.throw(err.from_c(problem or "holds no JSON object", c or "format", where or path)) end
  local inner = type(config.text_config) == "table" and config.text_config or {}
  local heads = number(config.num_attention_heads, inner.num_attention_heads, config.n_head, config.num_heads)
  return heads, number(config.num_key_value_heads, inner.num_key_value_heads, config.num_kv_heads), path
end

--- The largest of a list (some families give the heads of each layer), or the number.
local function most(value)
  if type(value) ~= "table" then return number(value) end
  local out
  for _, n in ipairs(value) do if type(n) == "number" and n > (out or 0) then out = n end end
  return out
end

local function from_gguf(path)
  local checkpoint, message, code, where, hint = core().checkpoint.open(path)
  if not checkpoint then err.throw(err.from_c(message, code, where or path, hint)) end
  local arch = checkpoint:kv("general.architecture")
  local heads = arch and most((checkpoint:kv(arch .. ".attention.head_count")))
  local kv = arch and most((checkpoint:kv(arch .. ".attention.head_count_kv")))
  if checkpoint.close then checkpoint:close() end
  return heads, kv, path
end

local function heads_of(name, dir)
  local model, e = find.model(name, dir)
  if not model then err.throw(e) end
  if model.kind == "dir" then
    local path = find.join(model.path, "config.json")
    if core().sys.is_file(path) then return from_json(path) end
    for _, file in ipairs(core().sys.list(model.path) or {}) do
      if file:find("%.gguf$") then return from_gguf(find.join(model.path, file)) end
    end
    err.throw { code = "format", where = model.path, message = "holds neither config.json nor a .gguf file" }
  end
  if model.path:find("%.json$") then return from_json(model.path) end
  return from_gguf(model.path)
end

local function tp_of_mesh(mesh)
  if type(mesh) == "string" then
    local n = 1
    for axis, size in mesh:gmatch("([%a_]+)=(%d+)") do if axis == "tp" then n = n * tonumber(size) end end
    return n
  end
  if type(mesh) ~= "table" then return nil end
  if mesh.axes and mesh.size then return mesh.size.tp or 1 end -- tpl.plan.mesh
  if mesh.tp then return tonumber(mesh.tp) end
  for _, axis in ipairs(mesh) do
    if type(axis) == "table" and (axis[1] == "tp" or axis.name == "tp") then return tonumber(axis[2] or axis.size) end
  end
end

--- Read what names a model on the command line, with the words that follow.
---@param name string
---@param words tpl.Word[]
---@return table model  {name, heads, kv_heads, tp, where}
function M.read(name, words)
  local tp, mesh
  for _, word in ipairs(words) do
    if word.key == "tp" or word.key == "deploy.tp" then tp = tonumber(word.value) end
    if word.key == "mesh" or word.key == "deploy.mesh" then mesh = word.value end
  end
  local model = { name = name, tp = tp or (mesh and tp_of_mesh(mesh)) or nil }
  local source, dir = name, nil
  if name:find("%.lua$") then
    local d, e = require("tpl.deploy").open(name, words)
    if not d then err.throw(e) end
    source, dir = d.model, find.dirname(name)
    model.has_deploy = true
    model.tp = tp_of_mesh(d.mesh) or model.tp
  end
  model.heads, model.kv_heads, model.where = heads_of(source, dir)
  return model
end

return M
