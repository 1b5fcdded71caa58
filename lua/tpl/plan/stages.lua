-- SPDX-License-Identifier: Apache-2.0
--- Decide which layers form which stage, with which mesh and layout: from the list a deployment gives, or from a placement,
--- whose layers are cut into stages of nearly equal cost where it names none. Cost is bytes of weights read per token, the
--- head counted with the last stage. Pure but for the list function.
local err = require "tpl.err"
local guard = require "tpl.policy.guard"
local mesh_of = require "tpl.plan.mesh"
local policies = require "tpl.policy"

local M = {}

---@class tpl.StageSpec
---@field first integer   0-based, inclusive
---@field last integer
---@field mesh tpl.Mesh?
---@field layout any
---@field shares table?
---@field devices string[]?  uids, one for each rank
---@field n integer?         ranks

--- Cut n layers with these costs into `parts` runs so that the most costly run is as cheap as possible (dynamic
--- programming over prefix sums; ties give the earlier stages more layers). head: cost added to the last run,
--- tail of the model.
---@param cost number[]   1-based, one per layer
---@param parts integer
---@param head number
---@return integer[][]    {first, last}, 0-based
function M.cut(cost, parts, head)
  local n = #cost
  local sum = { [0] = 0 }
  for i = 1, n do sum[i] = sum[i - 1] + cost[i] end
  local best, from = { [0] = { [0] = 0 } }, {}
  for p = 1, parts do
    best[p], from[p] = {}, {}
    for i = p, n - (parts - p) do
      for j = p - 1, i - 1 do
        local before = best[p - 1][j]
        if before then
          local run = math.max(before, sum[i] - sum[j] + (p == parts and head or 0))
          if not best[p][i] or run <= best[p][i] then best[p][i], from[p][i] = run, j end
        end
      end
    end
  end
  local out, stop = {}, n
  for p = parts, 1, -1 do
    local start = from[p][stop]
    table.insert(out, 1, { start, stop - 1 })
    stop = start
  end
  return out
end

local function check_cover(list, n_layer, where)
  local next_layer = 0
  for i, s in ipairs(list) do
    if s.first ~= next_layer or s.last < s.first or s.last >= n_layer then
      err.throw { code = "script", where = where, message = ("stages: stage %d has layers {%d, %d}, expected to start at %d and to stay below %d"):format(i - 1,
        s.first, s.last, next_layer, n_layer), hint = "stages cover all layers, in order, each once" }
    end
    next_layer = s.last + 1
  end
  if next_layer ~= n_layer then
    err.throw { code = "script", where = where, message = ("stages: layers %d to %d are in no stage"):format(next_layer, n_layer - 1) }
  end
end

--- The mesh of a stage: its own, the layout's own (nil), or one rank.
---@param spec tpl.StageSpec
---@return tpl.Mesh?
function M.mesh(spec)
  if spec.mesh then return spec.mesh end
  if type(spec.layout) == "table" and spec.layout.mesh then return nil end
  return mesh_of.new "tp=1"
end

local function ranks_of(spec) return (M.mesh(spec) or mesh_of.new(spec.layout.mesh)).n end

--- Ranks of a stage, where the deployment says: by its mesh or its layout's.
---@param deploy tpl.Deploy
---@return integer?
function M.mesh_n(deploy)
  if deploy.mesh then return deploy.mesh.n end
  if type(deploy.layout) == "table" and deploy.layout.mesh then return mesh_of.new(deploy.layout.mesh).n end
end

-- Shares by axis: those of the stage, else the deployment's, else those that its layout table brings.
local function shares_for(s, deploy)
  if s.shares then return s.shares[1] and { tp = s.shares } or s.shares end
  local layout = s.layout or deploy.layout
  return deploy.shares or type(layout) == "table" and layout.shares or nil
end

local function from_list(list, deploy, n_layer, where)
  local out = {}
  for i, s in ipairs(list) do
    local layers = s.layers
    if layers == nil or layers == "all" then layers = { 0, n_layer - 1 } end
    local spec = { first = layers[1], last = layers[2], mesh = s.mesh or deploy.mesh, layout = s.layout or deploy.layout,
      shares = shares_for(s, deploy), devices = s.devices }
    if s.devices and not spec.mesh and #s.devices > 1 then spec.mesh = mesh_of.new { { "tp", #s.devices } } end
    spec.n = ranks_of(spec)
    if s.devices and #s.devices ~= spec.n then
      err.throw { code = "script", where = where, message = ("stages: stage %d has %d devices, its mesh %d ranks"):format(i - 1, #s.devices, spec.n) }
    end
    out[i] = spec
  end
  check_cover(out, n_layer, where)
  return out
end

-- Call the deployment's function, within the time that a policy has.
local function call(fn, script_context, where)
  local source = debug.getinfo(fn, "S").source
  guard.interpret(fn)
  local ok, got = guard.call(fn, { source = source, hard_s = policies.HARD_S }, script_context)
  if ok then return got[1] end
  if got.error then err.throw(got.error) end
  err.throw { code = "script", where = got.line and ("%s:%d"):format((source:gsub("^@", "")), got.line) or where, message = "stages: " .. got.message }
end

---@class tpl.StageContext
---@field n_layer integer
---@field cost number[]      bytes of each layer's weights
---@field head_cost number
---@field script table       what a stages function is given

--- Give the stages that a deployment lists, checked; nil when it lists none.
---@param deploy tpl.Deploy
---@param ctx tpl.StageContext
---@return tpl.StageSpec[]?
function M.given(deploy, ctx)
  local where = deploy.origin and deploy.origin.where
  local given = deploy.stages
  if type(given) == "function" then
    local list = call(given, ctx.script, where)
    local checked, message, field = require("tpl.deploy").stages(list)
    if not checked then
      err.throw { code = "script", where = where, message = ("stages: %s %s"):format(field and field
        .. " of what the function returned" or "the result", message) }
    end
    given = checked
  end
  if given then return from_list(given, deploy, ctx.n_layer, where) end
  if deploy.pp > ctx.n_layer then
    err.throw { code = "script", where = where, message = ("pp = %d, but the model has %d layers"):format(deploy.pp, ctx.n_layer), hint = "a stage holds one layer at least" }
  end
end

local function mesh_for(s, deploy)
  if s.mesh then return mesh_of.new(s.mesh) end
  if deploy.mesh then return deploy.mesh end
  local layout = s.layout or deploy.layout
  if type(layout) == "table" and layout.mesh then return nil end
  return mesh_of.new { { "tp", #s.devices } }
end

--- Give the stages of a placement's replica. Stages without layers are cut by cost.
---@param list table[]     {devices, layers?, mesh?, layout?, shares?}
---@param deploy tpl.Deploy
---@param ctx tpl.StageContext
---@return tpl.StageSpec[]
function M.placed(list, deploy, ctx)
  local cut = not list[1].layers and M.cut(ctx.cost, #list, ctx.head_cost)
  local out = {}
  for i, s in ipairs(list) do
    local layers = cut and cut[i] or s.layers == "all" and { 0, ctx.n_layer - 1 } or s.layers
    out[i] = { first = layers[1], last = layers[2], mesh = mesh_for(s, deploy), layout = s.layout or deploy.layout,
      shares = shares_for(s, deploy), devices = s.devices, n = #s.devices }
  end
  return out
end

return M
