-- SPDX-License-Identifier: Apache-2.0
--- Decide which devices hold which stage: by the devices that a deployment names, else by its placement policy. Also says
--- which devices may be used at all. Pure but for the policy: a machine and a model in, a placement with its reasons out.
local err = require "tpl.err"
local groups = require "tpl.topo.groups"
local meshes = require "tpl.plan.mesh"
local policies = require "tpl.policy"
local split = require "tpl.topo.split"
local suggest = require "tpl.suggest"
local util = require "tpl.util"

local M = {}

---@class tpl.Placed
---@field topo tpl.Topo                 the machine, CPU devices cut into as many groups of cores as there are ranks
---@field policy string
---@field where string                  file of the policy
---@field kinds table<string, boolean>  kinds of device that ranks may run on
---@field reasons string[]
---@field excluded {uid: string, why: string}[]
---@field alternatives table[]          {name, score, why}
---@field replicas {stages: {devices: string[], layers?: integer[], mesh?: any, layout?: any, shares?: number[]}[]}[]

-- -- Which devices may be used ---------------------------------------------------------------------------------------

local function is_called(device, name)
  if device.uid == name or device.uuid == name or device.pci == name then return true end
  for _, label in ipairs(device.labels or {}) do if label == name then return true end end
  return tostring(device.pci):lower() == name:lower()
end

local function named(topo, names, field, where)
  local out = {}
  for _, name in ipairs(names or {}) do
    local hit = false
    for _, d in ipairs(topo.devices) do
      if is_called(d, name) then out[d.uid], hit = true, true end
    end
    if not hit then
      err.throw { code = "script", where = where, message = ("devices.%s names '%s', which no device of this machine is called"):format(field, name),
        hint = suggest.hint(name, util.map(topo.devices, function(d) return d.uid end), "devices") }
    end
  end
  return out
end

--- Say of each device whether it may be used, and why not.
---@param topo tpl.Topo
---@param deploy tpl.Deploy
---@param kinds table<string, boolean>   kinds of device that ranks can run on
---@return string[] uids
---@return {uid: string, why: string}[] excluded
function M.usable(topo, deploy, kinds)
  local where = deploy.origin and deploy.origin.where
  local only, exclude = deploy.devices.only and named(topo, deploy.devices.only, "only", where), named(topo, deploy.devices.exclude, "exclude", where)
  local uids, excluded = {}, {}
  for _, d in ipairs(topo.devices) do
    local why
    if exclude[d.uid] then why = "devices.exclude names it"
    elseif only and not only[d.uid] then why = "devices.only does not name it"
    elseif d.usable == false then
      why = util.map(d.why_not or {}, function(w) return w.message end)
      why = #why > 0 and table.concat(why, "; ") or "not usable"
    elseif d.kind == "mig" and not only then why = "a MIG slice, which must be named in devices.only"
    elseif not kinds[d.kind] then why = nil -- of a kind that is not asked for: not worth a line
    end
    if why then
      if kinds[d.kind] or d.kind == "mig" then excluded[#excluded + 1] = { uid = d.uid, why = why } end
    elseif kinds[d.kind] or d.kind == "mig" then
      uids[#uids + 1] = d.uid
    end
  end
  return uids, excluded
end

-- GPUs where there are any that ranks can run on, else the CPUs.
local function choose_kinds(topo, deploy, has_gpu_backend)
  local cpu = { cpu = true }
  if not has_gpu_backend then return cpu end
  local gpu = { gpu = true, mig = deploy.devices.only ~= nil }
  if #(M.usable(topo, deploy, gpu)) > 0 then return gpu end
  for _, d in ipairs(topo.devices) do if d.kind == "cpu" then return cpu end end
  return gpu
end

-- -- By name ---------------------------------------------------------------------------------------------------------

local function check_devices(topo, uids, stages, where)
  local may, seen = {}, {}
  for _, uid in ipairs(uids) do may[uid] = true end
  for i, s in ipairs(stages) do
    local real = {}
    for k, name in ipairs(s.devices) do
      for _, d in ipairs(topo.devices) do if is_called(d, name) then real[k] = d.uid end end
      local function refuse(what)
        err.throw { code = "script", where = where, message = ("stages: stage %d names device '%s', which %s"):format(i - 1, name, what) }
      end
      if not real[k] then refuse "this machine does not have" end
      if not may[real[k]] then refuse "may not be used" end
      if seen[real[k]] then refuse "is in use already" end
      seen[real[k]] = true
    end
    s.devices = real
  end
end

-- Devices for stages of given sizes, best groups first; stages that follow each other get neighbours.
local function assign(topo, uids, sizes, where)
  local left, out = util.copy(uids), {}
  for i, n in ipairs(sizes) do
    if #left < n then
      local total = 0
      for _, k in ipairs(sizes) do total = total + k end
      err.throw { code = "no_fit", exit = 4, where = where, message = ("%d devices are needed, %d may be used"):format(total, #uids) }
    end
    out[i] = groups.best(topo, left, n)
    local taken = {}
    for _, uid in ipairs(out[i]) do taken[uid] = true end
    for k = #left, 1, -1 do if taken[left[k]] then table.remove(left, k) end end
  end
  return out
end

-- Replicas of stages that have no devices, each on the best groups that are left; the stages get those of the first.
local function copies(topo, uids, stages, n, where)
  local sizes, out = {}, {}
  for i = 1, n * #stages do sizes[i] = stages[(i - 1) % #stages + 1].n end
  local lists = assign(topo, uids, sizes, where)
  for i, s in ipairs(stages) do s.devices = lists[i] end
  for r = 1, n do
    out[r] = { stages = util.map(stages, util.copy) }
    for i, s in ipairs(out[r].stages) do s.devices = lists[(r - 1) * #stages + i] end
  end
  return out
end

local function by_name(topo, uids, excluded, stages, where, n)
  local missing = {}
  for i, s in ipairs(stages) do if not s.devices then missing[#missing + 1] = i end end
  if #missing > 0 and #missing < #stages then
    err.throw { code = "script", where = where, message = ("stages: stage %d has no devices, others have"):format(missing[1] - 1) }
  end
  local replicas = { { stages = stages } }
  if #missing > 0 then
    replicas = copies(topo, uids, stages, n, where)
  elseif n > 1 then
    err.throw { code = "script", where = where, message = ("replicas = %d, but stages name the devices of one"):format(n),
      hint = "stages without devices, or replicas = 1" }
  else
    check_devices(topo, uids, stages, where)
  end
  local reason = #missing > 0 and "stages are given; devices by the best groups" or "stages name their devices"
  return { policy = "stages", where = where or "stages", reasons = { reason }, excluded = excluded, alternatives = {}, replicas = replicas }
end

-- A policy may leave devices to the planner: CPU ranks, as many as the mesh has, on groups of cores.
local function fill_cpus(topo, replicas)
  local n, missing = 0, {}
  for _, replica in ipairs(replicas) do
    for _, s in ipairs(replica.stages) do
      n = n + (s.devices and #s.devices or meshes.new(s.mesh).n)
      if not s.devices then missing[#missing + 1] = s end
    end
  end
  if #missing == 0 then return topo end
  topo = split.cpus(topo, n)
  local uids, at = topo:ids { kind = "cpu" }, 0
  for _, s in ipairs(missing) do
    s.devices = {}
    for i = 1, meshes.new(s.mesh).n do s.devices[i] = uids[at + i] end
    at = at + #s.devices
  end
  return topo
end

-- -- By policy -------------------------------------------------------------------------------------------------------

--- Give the wish of a deployment as policies see it.
---@param deploy tpl.Deploy
---@param mesh_n integer?   ranks of a stage, where the deployment says
function M.wish(deploy, mesh_n)
  local want = util.copy(deploy.want)
  want.kv_dtype = deploy.kv.dtype == "auto" and (deploy.act == "f32" and "f32" or "f16") or deploy.kv.dtype
  want.act, want.require, want.replicas, want.usable = deploy.act, deploy.require, deploy.replicas, deploy.devices.usable
  want.kv_tokens = deploy.kv.tokens
  want.tp, want.pp = mesh_n, (mesh_n or deploy.pp > 1 or deploy.given and deploy.given.pp == 1) and deploy.pp or nil
  want.mesh, want.shares = deploy.mesh and tostring(deploy.mesh) or nil, deploy.shares and deploy.shares.tp or nil
  want.devices = deploy.devices
  return want
end

local function add_excluded(excluded, more)
  local known = {}
  for _, x in ipairs(excluded) do known[x.uid] = true end
  for _, x in ipairs(more or {}) do
    if not known[x.uid] then excluded[#excluded + 1] = x end
  end
end

-- The machine has devices of the kind, and something is wrong with each of them.
local function refuse_none(excluded, where)
  local why = util.map(excluded, function(x) return ("%s: %s"):format(x.uid, x.why) end)
  for i = #why, 9, -1 do why[i] = nil end
  if #excluded > 8 then why[9] = ("and %d more"):format(#excluded - 8) end
  err.throw { code = "no_fit", exit = 4, where = where or "place", message = "no device may be used: " .. table.concat(why, "; ") }
end

local function by_policy(args, topo, uids, excluded)
  local deploy = args.deploy
  if #uids == 0 and #excluded > 0 then refuse_none(excluded, deploy.origin and deploy.origin.where) end
  local policy, e = policies.load(deploy.place, deploy.origin and deploy.origin.dir)
  if not policy then err.throw(e) end
  local want = M.wish(deploy, args.mesh_n)
  want.uids, want.own = uids, deploy.devices.only and named(topo, deploy.devices.only, "only", deploy.origin and deploy.origin.where)
  local answer, more = policies.run(policy, topo, args.shape, want)
  if not answer then err.throw(more) end
  add_excluded(excluded, answer.excluded)
  local placed = { policy = policy.name, where = policy.file or policy.where, reasons = answer.reasons, alternatives = answer.alternatives,
    replicas = answer.replicas, excluded = excluded, warnings = more }
  return placed, fill_cpus(topo, answer.replicas)
end

---@class tpl.PlaceArgs
---@field topo tpl.Topo
---@field deploy tpl.Deploy
---@field shape tpl.Shape
---@field stages table[]?        stages that the deployment gives: {layers, mesh, n (ranks), devices?, layout, shares}
---@field mesh_n integer?        ranks of a stage, where the deployment says
---@field kinds table<string, boolean>?   kinds of device; nil: GPUs if any, else CPUs
---@field has_gpu_backend boolean?

--- Decide, or throw.
---@param args tpl.PlaceArgs
---@return tpl.Placed
function M.resolve(args)
  local deploy, topo = args.deploy, args.topo
  local where = deploy.origin and deploy.origin.where
  local kinds = args.kinds or choose_kinds(topo, deploy, args.has_gpu_backend)
  if kinds.cpu then
    local n = 0
    for _, s in ipairs(args.stages or {}) do n = n + s.n end
    topo = split.cpus(topo, (args.stages and n or (args.mesh_n or 1) * deploy.pp) * (deploy.replicas or 1))
  end
  local uids, excluded = M.usable(topo, deploy, kinds)
  local placed
  if args.stages then
    placed = by_name(topo, uids, excluded, args.stages, where, deploy.replicas or 1)
  else
    placed, topo = by_policy(args, topo, uids, excluded)
  end
  placed.topo, placed.kinds = topo, kinds
  return placed
end

return M
