-- SPDX-License-Identifier: Apache-2.0
--- Write down what the checks read of a host, redacted, in one YAML file, and read it back: `tpl doctor --root FILE` then finds the same.
-- Of most files only the lines that a check looks at are kept. The format is this file's own; `tpl_doctor_bundle` is its version.
local err = require("tpl.err")
local host_of = require("tpl.doctor.host")
local json = require("tpl.json")
local keep = require("tpl.doctor.keep")
local redact = require("tpl.doctor.redact")
local util = require("tpl.util")

local M = {}

local VERSION = 1

-- -- Files and folders ------------------------------------------------------------------------------------------------

local function files_of(seen, r)
  local files, binary, pids = {}, {}, {}
  for path, text in util.pairs(seen.files) do
    local pid = path:match("^proc/(%d+)/comm$")
    local is_environ = path == "proc/self/environ" or path == "env" or path == "environ"
    if pid and not keep.services[text:match("^%s*(.-)%s*$")] then is_environ = true -- another's process
    elseif pid then pids[#pids + 1] = pid end
    if not is_environ then
      local key = r:text(path)
      if path:find("/config$") then
        local last = text:match("^.*()[^%z]") or 0 -- the zeros behind it say nothing
        binary[key] = (text:sub(1, math.max(last + 16, 0x104)):gsub(".", function(c) return string.format("%02x", c:byte()) end))
      else
        files[key] = r:text(keep.text(path, text):gsub("[^\n\t\32-\126]", "?"), path:find("nccl%.conf") ~= nil)
      end
    end
  end
  return files, binary, pids
end

local function lists_of(seen, pids, r)
  local out = {}
  for path, names in util.pairs(seen.lists) do
    local kept = {}
    for _, name in ipairs(names) do
      if keep.name(path, name) then kept[#kept + 1] = r:text(name) end
      if path == "home" and seen.files["home/" .. name .. "/.nccl.conf"] then kept[#kept + 1] = r:home("", name) end
    end
    if path == "proc" then
      for _, pid in ipairs(pids) do kept[#kept + 1] = pid end
    end
    out[r:text(path)] = setmetatable(kept, json.array_mt)
  end
  return out
end

local function mapped(t, r)
  local out = {}
  for key, value in util.pairs(t) do out[r:text(key)] = type(value) == "string" and r:text(value) or value end
  return out
end

-- -- Environment, topology, and what was given ------------------------------------------------------------------------

local ENV = { "^CUDA_", "^NVIDIA_", "^NCCL_", "^TORCH_NCCL_", "^KUBERNETES_SERVICE_HOST$", "^container$", "^HOME$", "^LD_LIBRARY_PATH$",
  "^VIRTUAL_ENV$",
  "^CONDA_PREFIX$", "^NUM_", "^TENSOR_PARALLEL_SIZE$", "^TP_SIZE$", "^NPROC_PER_NODE$", "^LOCAL_WORLD_SIZE$", "^SLURM_GPUS_ON_NODE$", "^SHM_SIZE$" }

local function is_wanted(name)
  for _, word in ipairs { "TOKEN", "KEY", "SECRET", "PASS" } do
    if name:find(word, 1, true) then return false end
  end
  for _, pattern in ipairs(ENV) do if name:find(pattern) then return true end end
  return false
end

--- Short UUIDs are written whole before they are replaced, else they would no longer fit.
local function visible(facts, text)
  local out = {}
  for _, word in ipairs(require("tpl.doctor.facts").visible_words(text)) do
    local gpu = not word:find("^%d+$") and facts:device_of_word(word)
    out[#out + 1] = gpu and gpu.uuid or word
  end
  return table.concat(out, ",")
end

local function env_of(facts, r)
  local out = {}
  for name, value in util.pairs(facts.env) do
    if is_wanted(name) then
      if name:find("_VISIBLE_DEVICES$") then value = visible(facts, value) end
      out[name] = r:text(value:gsub("[^\32-\126]", "?"), true)
    end
  end
  return out
end

--- Copy plain data, redacting texts; functions and what is unknown stay out.
local function plain(value, r, depth)
  if type(value) == "string" then return r:text(value:gsub("[^\32-\126]", "?")) end
  if type(value) == "number" or type(value) == "boolean" then return value end
  if type(value) ~= "table" or depth > 8 then return nil end
  local out = {}
  for key, item in util.pairs(value) do
    if type(key) == "number" or type(key) == "string" then out[key] = plain(item, r, depth + 1) end
  end
  return #out > 0 and setmetatable(out, json.array_mt) or out
end

local DEVICE = { "uid", "kind", "index", "uuid", "pci", "name", "sm", "vbios", "numa", "cpus", "mem_bytes", "free_bytes", "mig", "fabric", "pcie",
  "health", "usable", "why_not" }
local LINK = { "a", "b", "kind", "pcie", "nvlinks", "via_switch", "p2p", "p2p_ba", "data_ok" }
local NIC = { "name", "device", "pci", "numa", "to" }

local function chosen(list, fields, r)
  local out = {}
  for i, item in ipairs(list or {}) do
    out[i] = {}
    for _, field in ipairs(fields) do out[i][field] = plain(item[field], r, 0) end
  end
  return setmetatable(out, json.array_mt)
end

local function topo_of(facts, r)
  local topo = facts.topo
  if not topo then return nil end
  local first = topo.hosts and topo.hosts[1] or {}
  local out = { hosts = { { id = "host0", driver = first.driver, cuda = first.cuda } }, devices = chosen(topo.devices, DEVICE, r),
    links = chosen(topo.links, LINK, r), nics = chosen(topo.nics, NIC, r),
    doubts = chosen(topo.doubts, { "code", "message" }, r) }
  for i, device in ipairs(topo.devices or {}) do
    local busy = device.busy
    if type(busy) == "table" and (busy.pids or busy.used_bytes) then
      local pids = {}
      for j in ipairs(busy.pids or {}) do pids[j] = j end
      out.devices[i].busy = { pids = setmetatable(pids, json.array_mt), used_bytes = busy.used_bytes }
    end
  end
  return out
end

local function k8s_of(facts, r)
  if not facts.k8s then return nil end
  local list = {}
  for i, c in ipairs(facts.k8s.containers) do
    local env, args, after_flag = {}, {}, false
    for name, value in util.pairs(c.env) do if is_wanted(name) then env[name] = r:text(value, true) end end
    for _, word in ipairs(c.args) do
      local is_flag = word:find("^%-%-?[%a]") ~= nil
      if is_flag then args[#args + 1] = word:find("=%d+$") and word or word:match("^[^=]+") elseif after_flag and word:find("^%d+$") then
        args[#args + 1] = word end
      after_flag = is_flag
    end
    local volume = c.mounts["/dev/shm"]
    list[i] = {
      name = "c" .. i, where = "manifest, container " .. i, init = c.init, env = env, args = setmetatable(args, json.array_mt),
        requests = plain(c.requests, r, 0),
      limits = plain(c.limits, r, 0), claims = c.claims, pods = c.pods, qos = c.qos, pod = { hostIPC = c.pod.hostIPC == true },
      mounts = volume and { ["/dev/shm"] = { emptyDir = plain(volume.emptyDir, r, 0), hostPath = volume.hostPath and { path = "/dev/shm" }
        or nil } } or {},
    }
  end
  return { path = "manifest", containers = setmetatable(list, json.array_mt) }
end

local function models_of(facts)
  local out = {}
  for i, model in ipairs(facts.models) do
    out[i] = { name = "model" .. i, where = "config", heads = model.heads, kv_heads = model.kv_heads, tp = model.tp, has_deploy = model.has_deploy }
  end
  return #out > 0 and setmetatable(out, json.array_mt) or nil
end

local function log_of(facts, r)
  local log = facts.log
  if not log then return nil end
  local out = plain(log, r, 0)
  for i, net in ipairs(log.nets) do out.nets[i] = r:text(net, true) end
  for _, name in ipairs { "pairs", "nets", "versions" } do setmetatable(out[name], json.array_mt) end
  return out
end

--- What names this host and its user.
local function names_of(facts)
  local out = { hosts = {}, users = {} }
  local function add(list, text) if text then list[#list + 1] = text end end
  for _, path in ipairs { "proc/sys/kernel/hostname", "etc/hostname" } do add(out.hosts, facts.host.backend.read(path)
    and facts.host.backend.read(path):match("%S+")) end
  add(out.hosts, facts.env.HOSTNAME)
  for _, name in ipairs { "USER", "LOGNAME", "SUDO_USER" } do add(out.users, facts.env[name]) end
  for _, host in ipairs(facts.topo and facts.topo.hosts or {}) do add(out.hosts, host.id) end
  return out
end

-- -- Writing and reading ----------------------------------------------------------------------------------------------

--- Write the record of an examined host.
---@param report tpl.doctor.Report
---@return string yaml
function M.write(report)
  local f = report.facts
  local r = redact.new(names_of(f))
  local files, binary, pids = files_of(f.host.seen, r)
  local findings = {}
  -- Names of pods and models are the reader's own business; the findings on them can be had again from the parts below.
  local private = { Kubernetes = true, Model = true }
  for i, c in ipairs(report.checks) do
    findings[i] = { code = c.code, status = c.status, evidence = not private[c.group] and r:text(c.evidence, true) or nil }
  end
  return require("tpl.yaml").encode({
    tpl_doctor_bundle = VERSION, origin = f.host.origin, tpl = require("tpl").version, findings = setmetatable(findings, json.array_mt),
    env = env_of(f, r), env_where = f.env_where, env_recorded = f.env_recorded, topo = topo_of(f, r), topo_error = f.topo_error
      and r:text(f.topo_error, true) or nil, log = log_of(f, r), k8s = k8s_of(f, r),
      models = models_of(f),
    files = files, binary = binary, lists = lists_of(f.host.seen, pids, r), links = mapped(f.host.seen.links, r), dirs = mapped(f.host.seen.dirs, r),
  }, { sort_keys = true })
end

local function unhex(text) return (text:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end)) end

--- A table of texts, or of what `test` lets through.
local function table_of(value, kind, where, name)
  if value == nil or value == json.null then return {} end
  if type(value) ~= "table" then err.throw { code = "format", where = where, message = name .. " is no mapping" } end
  local out = {}
  for key, item in pairs(value) do
    if type(key) ~= "string" or type(item) ~= kind then err.throw { code = "format", where = where, message = string.format("%s: '%s' is no %s",
      name, tostring(key), kind) } end
    out[key] = item
  end
  return out
end

--- json.null becomes nil, at every depth.
local function known(value)
  if value == json.null then return nil end
  if type(value) ~= "table" then return value end
  local out = {}
  for key, item in pairs(value) do out[key] = known(item) end
  return out
end

--- Read a bundle as a host.
---@param text string
---@param where string
---@return tpl.doctor.Host
function M.read(text, where)
  local value, e = require("tpl.yaml").decode(text, { where = where })
  if e then err.throw(e) end
  if type(value) ~= "table" or value.tpl_doctor_bundle ~= VERSION then
    err.throw { code = "format", where = where, message = "is no bundle of this version",
      hint = "tpl doctor --bundle FILE writes one; --root also takes a folder" }
  end
  local record = {
    files = table_of(value.files, "string", where, "files"), lists = table_of(value.lists, "table", where, "lists"),
    links = table_of(value.links, "string", where, "links"), dirs = table_of(value.dirs, "boolean", where, "dirs"),
    env = table_of(value.env, "string", where, "env"), env_where = known(value.env_where), env_recorded = known(value.env_recorded),
      origin = value.origin == "live" and "live" or "tree",
    topo = known(value.topo), topo_error = known(value.topo_error), log = known(value.log), k8s = known(value.k8s), models = known(value.models),
  }
  for path, hex in pairs(table_of(value.binary, "string", where, "binary")) do record.files[path] = unhex(hex) end
  return host_of.record(record, where)
end

return M
