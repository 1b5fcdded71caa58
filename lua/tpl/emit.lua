-- SPDX-License-Identifier: Apache-2.0
--- Say a plan in the words of the engine or the scheduler that a site runs: a start script or a manifest, with devices by UUID.
-- What the engine cannot do is refused and listed, never dropped: a script that starts something else than the plan is worse than none.
local err = require("tpl.err")
local facts = require("tpl.emit.facts")
local limits = require("tpl.emit.limits")
local names = require("tpl.emit.names")
local placement = require("tpl.emit.placement")
local shell = require("tpl.emit.shell")
local suggest = require("tpl.suggest")

local M = {}

--- What `--emit` takes: engines that tpl does not run, and places where tpl itself is started.
M.targets = { "vllm", "sglang", "trtllm", "k8s", "slurm", "env" }

local modules = { vllm = "tpl.emit.vllm", sglang = "tpl.emit.sglang", trtllm = "tpl.emit.trtllm", k8s = "tpl.emit.k8s", slurm = "tpl.emit.slurm",
  env = "tpl.emit.env" }

---@class tpl.Emit
---@field target string
---@field version string            of the engine or the API that the text was written for
---@field text string
---@field not_expressible string[]  empty here; an error has the same field, filled
---@field warnings {code: string, message: string}[]

local function target_of(name)
  if modules[name] then return require(modules[name]) end
  err.throw { code = "usage", where = "--emit " .. tostring(name), message = ("unknown target '%s'"):format(tostring(name)),
    hint = suggest.hint(tostring(name), M.targets, "targets") }
end

local function refuse(engine, list)
  local said = #list == 1 and list[1] or ("%d things: %s"):format(#list, table.concat(list, "; "))
  err.throw { code = "not_expressible", exit = 3, where = "--emit " .. engine.target, message = ("%s cannot do %s"):format(engine.title, said),
    hint = "plan again with what the engine can do, e.g. tp= or --why-not, or run it with tpl", not_expressible = list,
    emit = { target = engine.target, version = engine.version, not_expressible = list } }
end

local function name_devices(p, engine, warnings)
  local how = names.naming(p)
  if not how then
    err.throw { code = "format", where = "--emit " .. engine.target, message = "the topology names its devices by nothing that can be found again",
      hint = "add the output of nvidia-smi -L: --topo matrix.txt --topo list.txt" }
  end
  if how ~= "uuid" then
    local message = how == "pci" and "the topology has no UUIDs: devices are found by PCI address, which another card in the slot has too"
      or "the topology has neither UUIDs nor PCI addresses: devices are taken by index, which a reboot may change"
    warnings[1] = { code = "not_pinned", message = message .. "; add the output of nvidia-smi -L with --topo" }
  end
  return how
end

-- tpl's layouts say where values are cut and reduced; the engines have one way, that of `megatron`.
local function warn_of_layout(report, engine, warnings)
  for _, stage in ipairs(placement.known(report.stages) or {}) do
    local layout = placement.known(stage.layout)
    if layout and not tostring(layout):find("megatron[^/]*$") then
      warnings[#warnings + 1] = { code = "layout", message = ("%s has its own layout, not %s: bytes and times of the plan are not its"):format(
        engine.title, layout) }
      return
    end
  end
end

local function given_env(report, t, p)
  local env = placement.known(report.env)
  if env and #env > 0 then return env end
  local groups = {}
  for _, replica in ipairs(p.replicas) do
    local uids = {}
    for i, d in ipairs(replica.devices) do uids[i] = d.uid end
    groups[#groups + 1] = uids
  end
  return t and require("tpl.nccl_env").make(t, groups) or {}
end

local function make(target, report, t, deploy)
  local engine = target_of(target)
  local p = placement.read(report, t, deploy and deploy.shape)
  local f = facts.gather(report, deploy)
  if #p.replicas == 0 or #p.replicas[1].devices == 0 then
    err.throw { code = "format", where = "--emit " .. target, message = "the plan places nothing: it has neither ranks nor replicas with devices" }
  end
  local s = { engine = engine, p = p, facts = f, env = given_env(report, t, p), warnings = {}, t = t, report = report, deploy = deploy }
  local text
  if engine.command then
    local cannot = limits.check(p, engine)
    if #cannot > 0 then refuse(engine, cannot) end
    s.how = name_devices(p, engine, s.warnings)
    warn_of_layout(report, engine, s.warnings)
    text = shell.script(s)
  else
    text = engine.write(s)
  end
  return { target = target, version = engine.version, text = text, not_expressible = require("tpl.json").array {}, warnings = s.warnings }
end

--- Write a plan for a target.
---@param target "vllm"|"sglang"|"trtllm"|"k8s"|"slurm"|"env"
---@param report table    result of `tpl plan`: ranks, stages, replicas, degrees, kv, model, env
---@param t table?        topology object: devices by uid with uuid, pci, numa, host
---@param deploy table?   the deployment (model, serve, want, origin); `shape` = {n_head, n_kv} where the report's model has none
---@return tpl.Emit?
---@return tpl.Err? err   "not_expressible" (exit 3, with the list), "usage" for an unknown target, "format" where report or topology say too little
function M.make(target, report, t, deploy) return err.try(make, target, report, t, deploy) end

return M
