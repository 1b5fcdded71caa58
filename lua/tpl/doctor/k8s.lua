-- SPDX-License-Identifier: Apache-2.0
--- Read Kubernetes manifests and find the containers that ask for GPUs, with what surrounds them. Anything that holds a pod template
-- is looked into: Pod, Deployment, StatefulSet, DaemonSet, Job, CronJob, LeaderWorkerSet, List, and kinds of operators.
local err = require("tpl.err")
local quantity = require("tpl.doctor.quantity")

local M = {}

---@class tpl.doctor.K8sContainer
---@field where string              "file: Kind/name, container NAME"
---@field name string
---@field init boolean
---@field env table<string, string>
---@field args string[]             command and args
---@field requests table<string, any>
---@field limits table<string, any>
---@field mounts table<string, table>   by path: the volume
---@field pod table                 pod spec
---@field pods integer              pods of a group that serves one model (LeaderWorkerSet)
---@field claims integer            DRA claims of the container
---@field qos "Guaranteed"|"Burstable"|"BestEffort"   of its pod

local function items(value) return type(value) == "table" and value or {} end

local function text_of(value)
  if type(value) == "string" then return value end
  if type(value) == "number" then return string.format("%.14g", value) end
  if type(value) == "boolean" then return tostring(value) end
end

local function words(...)
  local out = {}
  for i = 1, select("#", ...) do
    for _, item in ipairs(items((select(i, ...)))) do
      local text = text_of(item)
      -- `sh -c "exec server --tensor-parallel-size 2"`: one item holds many words
      for word in (text or ""):gmatch("%S+") do out[#out + 1] = word end
    end
  end
  return out
end

local function env_of(container)
  local env = {}
  for _, entry in ipairs(items(container.env)) do
    if type(entry) == "table" and type(entry.name) == "string" then env[entry.name] = text_of(entry.value) end
  end
  return env
end

local function mounts_of(container, pod)
  local volumes, out = {}, {}
  for _, volume in ipairs(items(pod.volumes)) do
    if type(volume) == "table" and volume.name then volumes[volume.name] = volume end
  end
  for _, mount in ipairs(items(container.volumeMounts)) do
    if type(mount) == "table" and type(mount.mountPath) == "string" then
      out[(mount.mountPath:gsub("(.)/+$", "%1"))] = volumes[mount.name] or {}
    end
  end
  return out
end

--- Requests default to limits, resource by resource.
local function resources_of(container)
  local given = items(container.resources)
  local limits, requests = {}, {}
  for key, value in pairs(items(given.limits)) do limits[key] = value requests[key] = value end
  for key, value in pairs(items(given.requests)) do requests[key] = value end
  return requests, limits, items(given.claims)
end

--- The class of a pod as the kubelet decides it: by cpu and memory of all containers.
local function qos_of(pod)
  local any, guaranteed = false, true
  for _, list in ipairs { items(pod.containers), items(pod.initContainers) } do
    for _, container in ipairs(list) do
      local requests, limits = resources_of(items(container))
      for _, name in ipairs { "cpu", "memory" } do
        local r, l = quantity.parse(requests[name]), quantity.parse(limits[name])
        if r or l then any = true end
        if not l or l ~= r then guaranteed = false end
      end
    end
  end
  if not any then return "BestEffort" end
  return guaranteed and "Guaranteed" or "Burstable"
end

local function add_pod(out, pod, where, pods)
  local qos = qos_of(pod)
  for _, part in ipairs { { items(pod.initContainers), true }, { items(pod.containers), false } } do
    for _, container in ipairs(part[1]) do
      if type(container) == "table" then
        local requests, limits, claims = resources_of(container)
        local name = text_of(container.name) or "?"
        out[#out + 1] = {
          name = name, init = part[2], where = string.format("%s, container %s", where, name), env = env_of(container), qos = qos,
          args = words(container.command, container.args), requests = requests, limits = limits, mounts = mounts_of(container, pod),
          pod = pod, pods = pods, claims = #claims, security = items(container.securityContext),
        }
      end
    end
  end
end

--- Look for pod specs: a table with a list `containers`.
local function walk(out, value, where, depth, pods)
  if type(value) ~= "table" or depth > 24 then return end
  if type(value.containers) == "table" and type(value.containers[1]) == "table" then return add_pod(out, value, where, pods) end
  if value.leaderTemplate or value.workerTemplate then pods = tonumber(value.size) or pods end -- LeaderWorkerSet: pods that serve one model
  for _, child in pairs(value) do
    if type(child) == "table" then walk(out, child, where, depth + 1, pods) end
  end
end

--- Read manifests.
---@param text string
---@param path string   for messages
---@return {path: string, containers: tpl.doctor.K8sContainer[]}
function M.parse(text, path)
  local documents, e = require("tpl.yaml").decode_all(text, { where = path })
  if not documents then err.throw(e) end
  local out = {}
  for i, document in ipairs(documents) do
    if type(document) == "table" then
      local list = document.kind == "List" and items(document.items) or { document }
      for _, object in ipairs(list) do
        local meta = items(type(object) == "table" and object.metadata or nil)
        walk(out, object, string.format("%s: %s/%s", path, type(object) == "table" and text_of(object.kind) or "document " .. i,
          text_of(meta.name) or "?"), 0, 1)
      end
    end
  end
  if #out == 0 then
    err.throw { code = "format", where = path, message = "holds no pod: nothing with a list of containers",
      hint = "Pod, Deployment, StatefulSet, Job, LeaderWorkerSet, .." }
  end
  return { path = path, containers = out }
end

return M
