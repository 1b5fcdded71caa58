-- SPDX-License-Identifier: Apache-2.0
--- Hold a deployment to its manifest: find the same devices again, plan on them, refuse what has changed, and write the file.
local err = require("tpl.err")
local find = require("tpl.find")
local json = require("tpl.json")
local machine = require("tpl.plan.machine")
local manifest = require("tpl.manifest")
local split = require("tpl.topo.split")
local stages = require("tpl.plan.stages")

local M = {}

local function sys() return require("tpl.core").sys end

local function must(value, e)
  if value == nil then err.throw(e) end
  return value
end

-- Files whose change means other weights.
local function files_of(p)
  local out, config = {}, p.open and find.join(p.open.dir or ".", "config.json")
  for i, file in ipairs(p.checkpoint and p.checkpoint:files() or {}) do out[i] = file.path end
  if config and sys().exists(config) then out[#out + 1] = config end
  return out
end

local function identity(p, hash_bytes)
  return must(manifest.identity(files_of(p), hash_bytes and { hash_bytes = hash_bytes }))
end

local function assumptions(ctx, p)
  local out = json.array {}
  for i, word in ipairs(ctx.args.opts.assume or {}) do out[i] = "--assume " .. word end
  if p.cost and not p.cost.calibrated then out[#out + 1] = "times are estimates from data sheets" end
  return out
end

--- Write the manifest of a plan.
---@param path string
---@param hash_bytes number?   hash model files up to this size; nil: the usual limit
function M.write(ctx, p, path, hash_bytes)
  local m = manifest.make(p.report, p.topo, { model = identity(p, hash_bytes), assumptions = assumptions(ctx, p), deploy = p.deploy, shape = p.shape })
  must(manifest.write(path, m))
end

--- Where `run` writes its manifest when no option says: beside the model cache, one file for each deployment.
---@return string
function M.default_path(d)
  local name = (d.origin.file or d.model):match("([^/]+)/*$"):gsub("%.lua$", ""):gsub("[^%w._-]", "_")
  return find.join(find.cache(), "manifests/" .. name .. ".yaml")
end

-- The devices of a manifest on this machine; its CPU ranks get their groups of cores again.
local function pinned(m, options)
  local topo, n_cpu = machine.of(options), 0
  for _, d in ipairs(m.devices) do if d.kind == "cpu" then n_cpu = n_cpu + 1 end end
  if n_cpu > 0 then topo = split.cpus(topo, n_cpu) end
  return topo, manifest.pin(m, topo)
end

-- What the deployment asks for and the manifest has otherwise.
local function asked(m, d)
  local out, n_stages, n_replicas = {}, 0, 0
  for _, s in ipairs(m.stages) do
    if (s.replica or 0) == 0 then n_stages = n_stages + 1 end
    n_replicas = math.max(n_replicas, (s.replica or 0) + 1)
  end
  local function compare(what, was, now)
    if now and now ~= was then out[#out + 1] = { code = "degrees_changed", what = what, was = was, now = now } end
  end
  compare("ranks of a stage", #m.stages[1].devices, not d.stages and stages.mesh_n(d))
  compare("stages", n_stages, d.given and d.given.pp)
  compare("replicas", n_replicas, d.replicas)
  return out
end

--- Plan a deployment as its manifest says.
---@param path string        of a manifest that exists
---@param d tpl.Deploy
---@param make fun(options: table): tpl.Plan
---@param options table      of the planner
---@return tpl.Plan
function M.hold(ctx, path, d, make, options)
  local m = must(manifest.read(path))
  local accept = ctx.args.opts.accept_drift
  local other = asked(m, d)
  if #other > 0 then
    if not accept then err.throw(manifest.drift(other, path)) end
    ctx:warn { code = "drift", message = "the deployment asks for another cut than the manifest has", where = path }
    return make(options)
  end
  local topo, placement, e = pinned(m, options)
  if not placement then
    must(manifest.check(m, topo, nil, { path = path, accept = accept }))
    if not accept then err.throw(e) end
    ctx:warn { code = "drift", message = e.message, where = path }
    return make(options)
  end
  local again = {}
  for k, v in pairs(options) do again[k] = v end
  again.placed = { topo = topo, kinds = { gpu = true, cpu = true }, policy = "manifest", where = path, excluded = {}, alternatives = {},
    reasons = { "the devices of the manifest" }, replicas = placement.replicas }
  local p = make(again)
  local changes = must(manifest.check(m, topo, p.report, { path = path, accept = accept, model = identity(p) }))
  for _, c in ipairs(changes) do ctx:warn { code = "drift", message = ("%s changed since the manifest was written"):format(c.what), where = path } end
  p.drift = changes
  return p
end

return M
