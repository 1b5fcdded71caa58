-- SPDX-License-Identifier: Apache-2.0
--- Remember a placement by identity and check it at every start: the same devices after their indices changed, and a refusal, with every
--- difference named, when the machine, the driver or the weights are not those that the plan was made for.
-- Field names are those of `tpl topo` and `tpl plan` (interface.md section 4); a field that was not known is absent. Devices are matched by
-- UUID, those without by PCI address, CPU nodes by uid; an index is not written, so it cannot drift.
local check = require("tpl.manifest.check").check
local compare = require("tpl.manifest.compare")
local err = require("tpl.err")
local json = require("tpl.json")
local placement = require("tpl.emit.placement")
local yaml = require("tpl.yaml")

local M = {}

local SCHEMA = "tpl.manifest/1"

local known = placement.known

---@class tpl.Manifest
---@field schema "tpl.manifest/1"
---@field version string       of tpl
---@field plan_hash string?
---@field program_hash string?
---@field source {kind: string?, files: string[]?}?  where the topology came from
---@field deploy {file: string?, args: table?}?
---@field model {arch: string?, path: string?, sha256: string?, config_sha256: string?, weight_bytes: number?, params: number?, files: table[]?}
---@field degrees {tp: integer, pp: integer, ep: integer, dp: integer}
---@field hosts table[]        {id, driver, cuda}
---@field devices table[]      chosen ones: uid, uuid, pci, host, name, sm, vbios, numa, mem_bytes, mig
---@field links table[]        between chosen ones; a and b as in `devices`
---@field stages table[]       {replica, i, layers, devices, shares}
---@field assumptions string[]

-- -- Making --------------------------------------------------------------------------------------------------------------

--- Name a device for good: its UUID, else its uid.
local function id_of(d) return known(d.uuid) or d.uid end

local function pick(from, fields)
  local out = {}
  for _, name in ipairs(fields) do
    local v = known(from[name])
    if v ~= nil then out[name] = v end
  end
  return out
end

local function plain(v)
  if type(v) ~= "table" then return v end
  local out = {}
  for k, x in pairs(v) do if known(x) ~= nil then out[k] = plain(x) end end
  return (#out > 0 or getmetatable(v) == json.array_mt) and json.array(out) or out
end

local function object(fields)
  local list = {}
  for _, f in ipairs(fields) do
    local v = known(f[2])
    if v ~= nil then list[#list + 1] = { f[1], plain(v) } end
  end
  return json.object(list)
end

local function chosen(p)
  local list, seen = {}, {}
  for _, replica in ipairs(p.replicas) do
    for _, d in ipairs(replica.devices) do
      if not seen[d.uid] then
        seen[d.uid] = true
        list[#list + 1] = d
      end
    end
  end
  return list
end

local function mig_of(d)
  local mig = known(d.mig)
  return mig and next(mig) ~= nil and pick(mig, { "mode", "parent", "profile" }) or nil
end

local function devices_of(list)
  local out = {}
  for i, d in ipairs(list) do
    out[i] = object { { "uid", id_of(d) }, { "uuid", d.uuid }, { "kind", d.kind }, { "pci", d.pci }, { "host", d.host },
      { "name", d.name }, { "sm", d.sm }, { "vbios", d.vbios }, { "numa", d.numa }, { "mem_bytes", d.mem_bytes }, { "mig", mig_of(d) } }
  end
  return json.array(out)
end

-- Links between ranks that talk to each other; those between replicas do not matter.
local function add_links(t, list, out)
  for i = 1, #list do
    for k = i + 1, #list do
      local link = t and t.link and t:link(list[i].uid, list[k].uid)
      if link then
        out[#out + 1] = object { { "a", id_of(list[i]) }, { "b", id_of(list[k]) }, { "kind", link.kind }, { "pcie", link.pcie },
          { "nvlinks", link.nvlinks }, { "via_switch", link.via_switch }, { "p2p", link.p2p }, { "gb_s", link.gb_s }, { "us", link.us },
          { "source", link.source } }
      end
    end
  end
end

local function links_of(t, p)
  local out = {}
  for _, replica in ipairs(p.replicas) do add_links(t, replica.devices, out) end
  return json.array(out)
end

local function hosts_of(t, list)
  local used, out = {}, {}
  for _, d in ipairs(list) do used[known(d.host) or "host0"] = true end
  for _, h in ipairs(t and t.hosts or {}) do
    if used[h.id] then out[#out + 1] = object { { "id", h.id }, { "driver", h.driver }, { "cuda", h.cuda } } end
  end
  return json.array(out)
end

local function stages_of(p)
  local out = {}
  for _, replica in ipairs(p.replicas) do
    for _, stage in ipairs(replica.stages) do
      local ids = {}
      for i, d in ipairs(stage.devices) do ids[i] = id_of(d) end
      out[#out + 1] = object { { "replica", replica.i }, { "i", stage.i }, { "layers", stage.layers }, { "devices", ids },
        { "shares", stage.given_shares } }
    end
  end
  return json.array(out)
end

--- Make a manifest of a plan.
---@param report table   result of `tpl plan`
---@param t table?       topology it was planned on
---@param extra {model: table?, assumptions: string[]?, deploy: table?, shape: table?}?
---  model: what manifest.identity gave; deploy: the deployment, for its file and arguments
---@return tpl.Manifest
function M.make(report, t, extra)
  extra = extra or {}
  local p = placement.read(report, t, extra.shape)
  local list = chosen(p)
  local model = pick(known(report.model) or {}, { "arch", "path", "params", "weight_bytes", "format", "sha256" })
  for k, v in pairs(extra.model or {}) do model[k] = v end
  local deploy = extra.deploy
  model.path = model.path or deploy and deploy.model
  local origin = deploy and deploy.origin
  return object { { "schema", SCHEMA }, { "version", require("tpl").version }, { "plan_hash", report.plan_hash },
    { "program_hash", report.program_hash },
    { "source", t and t.source and pick(t.source, { "kind", "files" }) }, { "deploy", origin and pick(origin, { "file", "args" }) },
    { "model", model }, { "degrees", pick(known(report.degrees) or {}, { "tp", "pp", "ep", "dp" }) }, { "hosts", hosts_of(t, list) },
    { "devices", devices_of(list) }, { "links", links_of(t, p) }, { "stages", stages_of(p) },
    { "assumptions", json.array(extra.assumptions or known(report.assumptions) or {}) } }
end

-- -- Model identity ------------------------------------------------------------------------------------------------------

-- A file up to this size is hashed whole (about five seconds a GB); of a larger one the config, the sizes and the times of change are kept.
local HASH_BYTES = 2 ^ 30

--- Say what the weights are: size and time of change of each file, and its SHA-256 unless it is large.
---@param paths string[]      the model's files; config.json may be among them
---@param options {hash_bytes: number?}?   hash files up to this size, default 1 GiB; math.huge: all
---@return {files: {name: string, bytes: number, mtime: number, sha256: string?}[], config_sha256: string?}? identity
---@return tpl.Err? err       a file that cannot be read
function M.identity(paths, options)
  return err.try(function()
    local core, limit = require("tpl.core"), options and options.hash_bytes or HASH_BYTES
    local out = { files = {} }
    for i, path in ipairs(paths) do
      local stat, message, code = core.sys.stat(path)
      if not stat then err.throw(err.from_c(message, code, path)) end
      local name, sha = path:match("[^/]*$"), nil
      if stat.bytes <= limit then
        sha, message, code = core.hash.sha256_file(path)
        if not sha then err.throw(err.from_c(message, code, path)) end
      end
      out.files[i] = { name = name, bytes = stat.bytes, mtime = math.floor(stat.mtime), sha256 = sha }
      if name == "config.json" then out.config_sha256 = sha end
    end
    table.sort(out.files, function(a, b) return a.name < b.name end)
    return out
  end)
end

-- -- Files ---------------------------------------------------------------------------------------------------------------

local HEAD = "# Written by tpl: where this plan runs. `--manifest` compares it at each start; `--accept-drift` starts in spite of a difference.\n"

--- Give a manifest as YAML.
---@param m tpl.Manifest
---@return string
function M.text(m) return HEAD .. yaml.encode(m, { flow = true }) end

--- Write a manifest; readers see the old file or all of the new one.
---@param path string
---@param m tpl.Manifest
---@return true? ok
---@return tpl.Err? err
function M.write(path, m)
  local ok, message, code = require("tpl.core").sys.write_file(path, M.text(m))
  if not ok then return nil, err.from_c(message, code, path) end
  return true
end

local function checked(m, source, path)
  if type(m) ~= "table" or m.schema ~= SCHEMA then
    err.throw { code = "format", where = path, message = ("not a manifest: no `schema: %s`"):format(SCHEMA) }
  end
  local message, at = check(m)
  if not message then return m end
  local line = at and yaml.line(source, at)
  err.throw { code = "format", where = line and path .. ":" .. line or path, message = "manifest: " .. message }
end

--- Read a manifest.
---@param path string
---@return tpl.Manifest?
---@return tpl.Err? err   exit 2 for a missing file, "format" (exit 6) with the line for one that is none
function M.read(path)
  return err.try(function()
    local source, message, code = require("tpl.core").sys.read_file(path)
    if not source then err.throw(err.from_c(message, code, path)) end
    local m, e = yaml.decode(source, { where = path })
    if e then err.throw(e) end
    return checked(m, source, path)
  end)
end

-- -- Comparing -----------------------------------------------------------------------------------------------------------

--- List what is not as it was. A change of index is none.
---@param m tpl.Manifest
---@param t table           topology now
---@param report table?     plan now, for its hash, degrees and model; nil: not compared
---@param options {model: table?}?   model: identity of the weights now (manifest.identity)
---@return tpl.Change[]     empty: nothing changed
function M.compare(m, t, report, options) return compare.list(m, t, report, options) end

local function say(c)
  local was, now = compare.show(c.was), compare.show(c.now)
  return ("%s: %s -> %s"):format(c.what, was, now)
end

--- Make the error of a start that is refused.
---@param changes tpl.Change[]
---@param path string?
---@return tpl.Err   "drift", exit 4, each change named in the message
function M.drift(changes, path)
  local parts = {}
  for i, c in ipairs(changes) do parts[i] = say(c) end
  return err.new { code = "drift", exit = 4, where = path, changes = changes,
    message = ("%d change%s since the manifest was written: %s"):format(#changes, #changes > 1 and "s" or "", table.concat(parts, "; ")),
    hint = "put it back, or plan anew; --accept-drift starts in spite of it" }
end

--- Compare, and refuse a difference unless it is accepted.
---@param m tpl.Manifest
---@param t table
---@param report table?
---@param options {model: table?, accept: boolean?, path: string?}?
---@return tpl.Change[]? changes
---@return tpl.Err? err    "drift" (exit 4) with `changes`, each named in the message
function M.check(m, t, report, options)
  options = options or {}
  local changes = compare.list(m, t, report, options)
  if #changes == 0 or options.accept then return changes end
  return nil, M.drift(changes, options.path)
end

--- Find the manifest's devices in a topology whose indices may be others, in the form of a placement.
---@param m tpl.Manifest
---@param t table
---@return {replicas: {stages: {devices: string[], layers: integer[]?, shares: integer[]?}[]}[]}? placement  uids of t
---@return tpl.Err? err    "drift" naming each device that is not there
function M.pin(m, t)
  local find = compare.finder(m, t)
  local replicas, missing, seen = {}, {}, {}
  for _, s in ipairs(m.stages) do
    local at = (known(s.replica) or 0) + 1
    replicas[at] = replicas[at] or { stages = {} }
    local stage = { devices = {}, layers = known(s.layers) and { s.layers[1], s.layers[2] }, shares = known(s.shares) and { unpack(s.shares) } }
    for i, id in ipairs(s.devices) do
      local d = find(id)
      if not d and not seen[id] then
        seen[id] = true
        missing[#missing + 1] = { code = "device_missing", what = id, was = "in the plan" }
      end
      stage.devices[i] = d and d.uid
    end
    table.insert(replicas[at].stages, stage)
  end
  if #missing == 0 then return { replicas = replicas } end
  local parts = {}
  for i, c in ipairs(missing) do parts[i] = say(c) end
  return nil, err.new { code = "drift", exit = 4, changes = missing, message = table.concat(parts, "; "), hint = "plan anew without --manifest" }
end

return M
