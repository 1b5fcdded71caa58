-- SPDX-License-Identifier: Apache-2.0
--- Check what a placement policy returned, strictly: a wrong type is an error, never a success with a default.
-- A policy is a user's file, and what it returns decides where weights go; each way to be wrong has a word (`rule`) and a place (`at`),
-- and what passes is a fresh table that shares nothing with the policy's own.
local err = require("tpl.err")
local mesh = require("tpl.plan.mesh")
local suggest = require("tpl.suggest")
local util = require("tpl.util")

local M = {}

---@class tpl.PlacedStage
---@field devices string[]?          uids; nil: CPU ranks that share the cores, as many as the mesh has
---@field layers integer[]           {first, last}, 0-based, inclusive; nil where the model is not known
---@field mesh string|table|nil      as the policy wrote it
---@field layout string|table|nil
---@field shares table|nil           {n, ..} over tp, or axis -> {n, ..}

---@class tpl.Placement
---@field replicas {stages: tpl.PlacedStage[]}[]
---@field reasons string[]
---@field excluded {uid: string, why: string}[]
---@field alternatives {name: string, score: number?, why: string?}[]

--- What can be wrong, for `tpl test-policy` and for specs: rule -> in words.
M.rules = {
  wrong_type = "a value has a wrong type", unknown_field = "a field nobody reads", not_finite = "a number is NaN or infinite",
  empty = "nothing is placed", unknown_device = "a device that the machine does not have", device_twice = "a device in two places",
  mig_parent = "a GPU that is cut into MIG slices", mig_in_group = "a MIG slice in a group", unusable_device = "a device that cannot be used",
  device_excluded = "a device that was excluded", bad_layers = "layers that are not 0..n-1, each once, in order",
  bad_mesh = "a mesh that does not match its devices", bad_shares = "shares that do not match the mesh",
}

local fields = {
  placement = { "replicas", "reasons", "excluded", "alternatives" },
  replica = { "stages", "devices", "layers", "mesh", "layout", "shares" },
  stage = { "devices", "layers", "mesh", "layout", "shares" },
  excluded = { "uid", "why" },
  alternative = { "name", "score", "why" },
}

local function fail(rule, at, message, hint)
  err.throw { code = "policy_error", rule = rule, at = at, message = (at ~= "" and at .. " " or "") .. message, hint = hint }
end

local function kind_of(v)
  if v == nil then return "nil" end
  if type(v) == "string" then return ("the text '%s'"):format(v) end
  if type(v) == "number" or type(v) == "boolean" then return ("the %s %s"):format(type(v), tostring(v)) end
  return "a " .. type(v)
end

local function expect(v, wanted, at, what, hint)
  if type(v) ~= wanted then fail("wrong_type", at, ("is %s; %s is needed"):format(kind_of(v), what), hint) end
  return v
end

--- Refuse NaN and infinities wherever they stand. A layout is a program of its own and is looked at when it is bound.
local function check_finite(v, at, open)
  if type(v) == "number" then
    if v ~= v or v == math.huge or v == -math.huge then fail("not_finite", at, ("is %s; a finite number is needed"):format(v ~= v and "NaN" or tostring(v))) end
  elseif type(v) == "table" then
    if open[v] then fail("wrong_type", at, "contains itself") end
    open[v] = true
    for k, x in util.pairs(v) do
      local name = type(k) == "number" and ("%s[%s]"):format(at, tostring(k)) or (at == "" and "" or at .. ".") .. tostring(k)
      if k ~= "layout" then check_finite(x, name, open) end
    end
    open[v] = nil
  end
end

local function check_fields(t, kind, at)
  for k in util.pairs(t) do
    if not util.has(fields[kind], k) then
      local name = tostring(k)
      if kind == "placement" and k == 1 then fail("wrong_type", at, "is a list; { replicas = { .. } } is needed") end
      fail("unknown_field", (at == "" and "" or at .. ".") .. name, ("is no field of a %s"):format(kind), suggest.hint(name, fields[kind], "fields"))
    end
  end
end

--- Give the length of a list; holes and named keys are no list.
local function list_of(v, at, what)
  expect(v, "table", at, "a list of " .. what)
  local n = 0
  for k in pairs(v) do
    if type(k) ~= "number" or k < 1 or k % 1 ~= 0 then fail("wrong_type", at, ("has the key '%s'; a list of %s is needed"):format(tostring(k), what)) end
    n = n + 1
  end
  for i = 1, n do
    if v[i] == nil then fail("wrong_type", ("%s[%d]"):format(at, i), "is nil; a list has no holes") end
  end
  return n
end

-- -- Devices --------------------------------------------------------------------------------------------------

local function device_map(topo)
  local by = {}
  for _, d in ipairs(topo.devices or {}) do if d.uid then by[d.uid] = d end end
  return by
end

local function names_device(word, d)
  return word == d.uid or word == d.uuid or word == d.pci or util.has(d.labels or {}, word)
end

--- Say whether the deployment left a device out: `devices.only` and `devices.exclude` hold uids, UUIDs, PCI addresses or labels.
---@param d table        device
---@param want table?    with devices = {only=, exclude=}
---@return string? why
function M.left_out(d, want)
  local devices = want and want.devices or {}
  for _, word in ipairs(devices.exclude or {}) do
    if names_device(word, d) then return "devices.exclude names " .. word end
  end
  if not devices.only or #devices.only == 0 then return nil end
  for _, word in ipairs(devices.only) do if names_device(word, d) then return nil end end
  return "devices.only does not name it"
end

--- Give the uid that somebody meant who wrote an index, a UUID or a PCI address.
local function meant(v, topo)
  for _, d in ipairs(topo.devices or {}) do
    if v == d.index or v == d.uuid or v == d.pci or tostring(v):lower() == tostring(d.uid):lower() then return ("did you mean '%s'?"):format(d.uid) end
  end
  local uids = {}
  for i, d in ipairs(topo.devices or {}) do
    if i <= 16 then uids[i] = d.uid end
  end
  return #uids == 0 and "the machine has no devices" or suggest.hint(tostring(v), uids, #topo.devices > 16 and "uids, among others" or "uids")
end

local function why_not(d)
  local out = {}
  for i, w in ipairs(d.why_not or {}) do out[i] = w.message or w.code end
  return #out > 0 and table.concat(out, "; ") or "it is marked as not usable"
end

local function check_device(c, uid, at)
  if type(uid) == "string" and not c.devices[uid] then fail("unknown_device", at, ("names '%s', which the machine does not have"):format(uid), meant(uid, c.topo)) end
  expect(uid, "string", at, "a uid", meant(uid, c.topo))
  local d = c.devices[uid]
  if c.used[uid] then fail("device_twice", at, ("is %s, which %s has already"):format(uid, c.used[uid])) end
  c.used[uid] = at
  if d.kind ~= "mig" and d.mig and (d.mig.mode == "on" or d.mig.pending == "on") then
    fail("mig_parent", at, ("is %s, a GPU in MIG mode: only its slices can be used"):format(uid))
  end
  if d.usable == false then fail("unusable_device", at, ("is %s, which cannot be used: %s"):format(uid, why_not(d))) end
  local out = M.left_out(d, c.want)
  if out then fail("device_excluded", at, ("is %s, but %s"):format(uid, out)) end
  if c.excluded[uid] then fail("device_excluded", at, ("is %s, which the policy itself lists under excluded: %s"):format(uid, c.excluded[uid])) end
  return d
end

local function check_devices(c, list, at)
  local out, n_cpu = {}, 0
  if list_of(list, at, "uids") == 0 then fail("empty", at, "is empty; a stage needs a device", "leave it out for CPU ranks, and give mesh=") end
  for i, uid in ipairs(list) do
    local d = check_device(c, uid, ("%s[%d]"):format(at, i))
    out[i], n_cpu = uid, n_cpu + (d.kind == "cpu" and 1 or 0)
  end
  if n_cpu > 0 and n_cpu < #out then fail("wrong_type", at, "mixes CPU nodes and GPUs; a group has one kind") end
  return out, n_cpu > 0
end

-- -- Stages ---------------------------------------------------------------------------------------------------

local function check_mesh(spec, devices, is_cpu, at)
  if spec == nil then return nil end
  if type(spec) ~= "string" and type(spec) ~= "table" then expect(spec, "string", at, "a mesh such as 'tp=2'") end
  local m, e = err.try(mesh.new, spec)
  if not m then fail("bad_mesh", at, "is no mesh: " .. (e.message:gsub("^mesh: ", ""))) end
  local n = devices and #devices
  if n and is_cpu and m.n % n ~= 0 then
    fail("bad_mesh", at, ("has %d ranks (%s) for %d CPU nodes; a multiple of %d is needed"):format(m.n, tostring(m), n, n))
  elseif n and not is_cpu and m.n ~= n then
    fail("bad_mesh", at, ("has %d ranks (%s) for %d device%s"):format(m.n, tostring(m), n, n == 1 and "" or "s"))
  end
  return m
end

local function check_share_list(list, n, at)
  local count = list_of(list, at, "numbers")
  for i, x in ipairs(list) do
    expect(x, "number", ("%s[%d]"):format(at, i), "a share")
    if x <= 0 then fail("bad_shares", ("%s[%d]"):format(at, i), ("is %g; a share is more than 0"):format(x)) end
  end
  if n and count ~= n then fail("bad_shares", at, ("has %d shares for %d ranks"):format(count, n)) end
  return util.copy(list)
end

local function check_shares(shares, m, n, at)
  if shares == nil then return nil end
  expect(shares, "table", at, "a list of shares")
  if shares[1] ~= nil or next(shares) == nil then return check_share_list(shares, m and (m.size.tp or m.n) or n, at) end
  local out = {}
  for axis, list in util.pairs(shares) do
    if m and not m.size[axis] then fail("bad_shares", at .. "." .. tostring(axis), ("names no axis of %s"):format(tostring(m))) end
    out[axis] = check_share_list(list, m and m.size[axis] or nil, at .. "." .. tostring(axis))
  end
  return out
end

local function check_stage(c, t, at)
  local devices, is_cpu
  if t.devices ~= nil then devices, is_cpu = check_devices(c, t.devices, at .. ".devices")
  elseif t.mesh == nil then
    fail("empty", at, "has no devices", "devices = {uid, ..}; for CPU ranks that share the cores mesh= alone, for example 'tp=2'")
  end
  local m = check_mesh(t.mesh, devices, is_cpu, at .. ".mesh")
  if t.layout ~= nil and type(t.layout) ~= "table" then expect(t.layout, "string", at .. ".layout", "a layout's name, file or table") end
  return { devices = devices, mesh = t.mesh, layout = t.layout, layers = t.layers,
    shares = check_shares(t.shares, m, devices and #devices, at .. ".shares") }
end

local function check_span(span, at)
  local what = "{first, last}"
  if list_of(expect(span, "table", at, what), at, "two layer numbers") ~= 2 then fail("bad_layers", at, ("has %d numbers; %s is needed"):format(#span, what)) end
  for i = 1, 2 do
    local x = expect(span[i], "number", ("%s[%d]"):format(at, i), "a layer number")
    if x % 1 ~= 0 or x < 0 then fail("bad_layers", ("%s[%d]"):format(at, i), ("is %g; layers are whole numbers from 0"):format(x)) end
  end
  return span[1], span[2]
end

--- Check that the stages of a replica hold the layers 0..n-1 in order, each once; where no stage says, the planner cuts them.
local function check_layers(stages, n_layer, at, places)
  local next_layer, n_given = 0, 0
  for _, stage in ipairs(stages) do if stage.layers ~= nil then n_given = n_given + 1 end end
  if n_given == 0 and #stages > 1 then return end -- the planner cuts them
  for i, stage in ipairs(stages) do
    local here = places[i]
    if #stages == 1 and (stage.layers == nil or stage.layers == "all") then
      stage.layers = n_layer and { 0, n_layer - 1 } or nil
      return
    end
    if stage.layers == nil then
      fail("bad_layers", here, "has no layers",
        "with several stages each says {first, last}, 0-based (tpl.cost.cut gives them), or none does and the planner cuts")
    end
    local first, last = check_span(stage.layers, here .. ".layers")
    if first ~= next_layer then
      fail("bad_layers", here .. ".layers", ("begins at layer %d; layer %d comes next"):format(first, next_layer))
    end
    if last < first then fail("bad_layers", here .. ".layers", ("is {%d, %d}, which holds no layer"):format(first, last)) end
    if n_layer and last >= n_layer then fail("bad_layers", here .. ".layers", ("ends at layer %d; the last one is %d"):format(last, n_layer - 1)) end
    stage.layers, next_layer = { first, last }, last + 1
  end
  if n_layer and next_layer ~= n_layer then
    fail("bad_layers", at, ("holds the layers 0 to %d; the model has %d"):format(next_layer - 1, n_layer))
  end
end

--- A slice has no peer-to-peer path and NCCL refuses two slices of one GPU (NVIDIA/nccl issue 1716): it works alone or not at all.
local function check_slices(c, stages, at)
  local n, slice = 0, nil
  for _, stage in ipairs(stages) do
    for _, uid in ipairs(stage.devices or {}) do
      n = n + 1
      if c.devices[uid].kind == "mig" then slice = slice or uid end
    end
  end
  if slice and n > 1 then fail("mig_in_group", at, ("has the MIG slice %s in a group of %d; a slice can only work alone"):format(slice, n)) end
end

local function check_replica(c, t, at)
  expect(t, "table", at, "a replica { stages = { { devices = {uid, ..} } } }")
  check_fields(t, "replica", at)
  local stages, places = {}, {}
  if t.stages == nil then stages[1], places[1] = check_stage(c, t, at), at
  else
    for _, f in ipairs(fields.stage) do
      if t[f] ~= nil then fail("wrong_type", at, ("has both stages and %s"):format(f), f .. " belongs into a stage") end
    end
    if list_of(t.stages, at .. ".stages", "stages") == 0 then fail("empty", at .. ".stages", "is empty; a replica needs a stage") end
    for i, s in ipairs(t.stages) do
      local here = ("%s.stages[%d]"):format(at, i)
      check_fields(expect(s, "table", here, "a stage { devices = {uid, ..} }"), "stage", here)
      stages[i], places[i] = check_stage(c, s, here), here
    end
  end
  check_layers(stages, c.n_layer, at, places)
  check_slices(c, stages, at)
  return { stages = stages }
end

-- -- The rest -------------------------------------------------------------------------------------------------

local function check_reasons(v, at)
  if v == nil then return {} end
  list_of(v, at, "texts")
  for i, text in ipairs(v) do expect(text, "string", ("%s[%d]"):format(at, i), "a text") end
  return util.copy(v)
end

local function check_excluded(c, v)
  local out = {}
  if v == nil then return out end
  list_of(v, "excluded", "{uid=, why=}")
  for i, x in ipairs(v) do
    local at = ("excluded[%d]"):format(i)
    check_fields(expect(x, "table", at, "{uid=, why=}"), "excluded", at)
    expect(x.uid, "string", at .. ".uid", "a uid")
    expect(x.why, "string", at .. ".why", "a text that says why")
    if not c.devices[x.uid] then fail("unknown_device", at .. ".uid", ("names '%s', which the machine does not have"):format(x.uid), meant(x.uid, c.topo)) end
    out[i], c.excluded[x.uid] = { uid = x.uid, why = x.why }, x.why
  end
  return out
end

local function check_alternatives(v)
  local out = {}
  if v == nil then return out end
  list_of(v, "alternatives", "{name=, score=, why=}")
  for i, x in ipairs(v) do
    local at = ("alternatives[%d]"):format(i)
    check_fields(expect(x, "table", at, "{name=, score=, why=}"), "alternative", at)
    expect(x.name, "string", at .. ".name", "a text")
    if x.score ~= nil then expect(x.score, "number", at .. ".score", "a number") end
    if x.why ~= nil then expect(x.why, "string", at .. ".why", "a text") end
    out[i] = { name = x.name, score = x.score, why = x.why }
  end
  return out
end

local function checked(placement, topo, shape, want)
  expect(placement, "table", "", "a table { replicas = { .. }, reasons = { .. } }")
  check_finite(placement, "", {})
  check_fields(placement, "placement", "")
  local c = { topo = topo, devices = device_map(topo), want = want, used = {}, excluded = {}, n_layer = shape and shape.n_layer }
  local out = { reasons = check_reasons(placement.reasons, "reasons"), excluded = check_excluded(c, placement.excluded),
    alternatives = check_alternatives(placement.alternatives), replicas = {} }
  if list_of(placement.replicas, "replicas", "replicas") == 0 then
    fail("empty", "replicas", "is empty; a placement has at least one replica", 'a policy that finds none returns nil, "why"')
  end
  for i, r in ipairs(placement.replicas) do out.replicas[i] = check_replica(c, r, ("replicas[%d]"):format(i)) end
  return out
end

--- Check a placement against a machine and a model.
---@param placement any     what a policy returned
---@param topo table        topology object or record: its devices are looked at
---@param shape table?      model; nil: its layers are not known
---@param want table?       `devices.only` and `devices.exclude` are looked at
---@return tpl.Placement?   a fresh table; replicas in long form, layers filled in
---@return tpl.Err?         code "policy_error", exit 3, with rule = a key of M.rules and at = the place in the placement
function M.check(placement, topo, shape, want) return err.try(checked, placement, topo, shape, want) end

return M
