-- SPDX-License-Identifier: Apache-2.0
--- Compare a manifest with the machine and the plan of today, one difference at a time.
-- What is not known today, where it was known, is a difference for links only: a path that cannot be seen cannot be relied on. For the rest, a
-- container that hides a fact is not a changed machine.
local placement = require("tpl.emit.placement")

local M = {}

local known = placement.known

---@class tpl.Change
---@field code string   "device_missing" | "device_replaced" | "pci_moved" | "numa_moved" | "memory_changed" | "vbios_changed" | "name_changed"
---  | "mig_changed" | "device_unusable" | "link_lost" | "link_worse" | "p2p_lost" | "driver_changed" | "weights_changed" | "degrees_changed"
---  | "plan_changed"
---@field what string   a device, a link or a field, for people
---@field was any
---@field now any       nil: gone or not known

-- Best first; what is not in the list is worst.
local kind_rank = { nvlink = 1, c2c = 2, pix = 3, pxb = 4, phb = 5, node = 6, sys = 7, shm = 8, net = 9 }
local SLOWER = 0.8 -- of two measured rates; below it is not noise (facts/topology.md section 9: copies of one machine differ by a few per cent)

--- Write a value for a message.
function M.show(v)
  if v == nil then return "none" end
  if type(v) == "number" and v == math.floor(v) then return ("%d"):format(v) end
  return tostring(v)
end

--- Make a function that finds a device of the manifest in a topology: by UUID, else by PCI address, and by uid where it has neither.
---@param m tpl.Manifest
---@param t table
---@return fun(id: string): table?
function M.finder(m, t)
  local by_uuid, by_pci, by_uid, entry = {}, {}, {}, {}
  for _, d in ipairs(t.devices or {}) do
    if known(d.uuid) then by_uuid[d.uuid:lower()] = d end
    if known(d.pci) and d.kind ~= "mig" then by_pci[d.pci:lower()] = by_pci[d.pci:lower()] == nil and d end -- false: several hosts have it
    by_uid[d.uid] = d
  end
  for _, d in ipairs(m.devices) do
    if known(d.uid) then entry[d.uid] = d end
    if known(d.uuid) then entry[d.uuid] = d end
  end
  return function(id)
    local was = entry[id] or {}
    if known(was.uuid) then return by_uuid[was.uuid:lower()] end
    local at = known(was.pci) and was.kind ~= "mig" and by_pci[was.pci:lower()]
    return at or by_uuid[id:lower()] or by_uid[id]
  end
end

local function label(d)
  local id = known(d.uuid) or d.uid
  return known(d.pci) and ("%s (%s)"):format(id, d.pci) or id
end

local function add(out, code, what, was, now) out[#out + 1] = { code = code, what = what, was = was, now = now } end

local function at_pci(t, was)
  for _, d in ipairs(t.devices or {}) do
    local is_host = known(was.host) == nil or #(t.hosts or {}) < 2 or d.host == was.host
    if known(d.pci) and d.pci == was.pci and d.kind ~= "mig" and is_host then return d end
  end
end

local function compare_field(out, code, name, was, now, field)
  local a, b = known(was[field]), known(now[field])
  if a ~= nil and b ~= nil and a ~= b then add(out, code, label(was) .. " " .. name, a, b) end
end

local function on_off(word)
  if word == "enabled" or word == true then return "on" end
  if word == "disabled" or word == false then return "off" end
  return known(word)
end

local function mig_mode(d)
  local mig = known(d.mig)
  if not mig then return nil end
  local mode, pending = on_off(mig.mode), on_off(mig.pending)
  if pending and pending ~= (mode or "off") then return "pending" end
  return mode
end

local function compare_mig(out, was, now)
  if was.kind == "mig" then
    local a, b = known(was.mig) and known(was.mig.profile), known(now.mig) and known(now.mig.profile)
    if a and b and a ~= b then add(out, "mig_changed", label(was) .. " MIG profile", a, b) end
    return true
  end
  local a, b = mig_mode(was) or "off", mig_mode(now) or "off"
  if a == b then return true end
  add(out, "mig_changed", label(was) .. " MIG mode", a, b)
end

local function compare_device(out, was, now)
  compare_field(out, "pci_moved", "PCI address", was, now, "pci")
  compare_field(out, "numa_moved", "NUMA node", was, now, "numa")
  compare_field(out, "name_changed", "model", was, now, "name")
  compare_field(out, "memory_changed", "memory in bytes", was, now, "mem_bytes")
  compare_field(out, "vbios_changed", "VBIOS", was, now, "vbios")
  local is_same_mode = compare_mig(out, was, now)
  if is_same_mode and now.usable == false and mig_mode(was) ~= "on" then
    local why = now.why_not and now.why_not[1]
    add(out, "device_unusable", label(was), "usable", why and (why.message or why.code) or "not usable")
  end
end

local function compare_devices(out, m, t, find)
  for _, was in ipairs(m.devices) do
    local now = find(known(was.uid) or was.uuid)
    if now then
      compare_device(out, was, now)
    else
      local other = known(was.pci) and at_pci(t, was)
      if other then
        add(out, "device_replaced", "device at " .. was.pci, known(was.uuid) or was.uid, known(other.uuid) or other.uid)
      else
        add(out, "device_missing", label(was), known(was.uuid) or was.uid, nil)
      end
    end
  end
end

-- -- Links ---------------------------------------------------------------------------------------------------------------

local function link_text(l)
  local kind = known(l.kind) or "unknown"
  if kind == "nvlink" then return known(l.nvlinks) and "NV" .. l.nvlinks or "NVLink" end
  return kind:upper()
end

local function is_ok(word) return word == nil or word == "ok" end

local function compare_p2p(out, what, was, now)
  local a, b = known(was.p2p), known(now.p2p)
  if not a or not b then return end
  for _, way in ipairs { "read", "write" } do
    if known(a[way]) == "ok" and not is_ok(known(b[way])) then
      add(out, "p2p_lost", what .. " peer " .. way, "ok", b[way])
      return
    end
  end
end

local function compare_rate(out, what, was, now)
  local a, b = known(was.gb_s), known(now.gb_s)
  if a and b and was.source == "measured" and now.source == "measured" and b < SLOWER * a then
    add(out, "link_worse", what .. " measured GB/s", a, b)
  end
end

local function compare_link(out, what, was, now)
  if not now then
    add(out, "link_lost", what, link_text(was), nil)
    return
  end
  local a, b = kind_rank[known(was.kind)] or 99, kind_rank[known(now.kind)] or 99
  if b > a then
    add(out, a <= 2 and "link_lost" or "link_worse", what, link_text(was), link_text(now))
    return
  end
  if known(was.kind) == "nvlink" and (known(now.nvlinks) or known(was.nvlinks) or 0) < (known(was.nvlinks) or 0) then
    add(out, "link_worse", what, link_text(was), link_text(now))
  end
  compare_p2p(out, what, was, now)
  compare_rate(out, what, was, now)
end

local function compare_links(out, m, t, find)
  for _, was in ipairs(known(m.links) or {}) do
    local a, b = find(was.a), find(was.b)
    if a and b then compare_link(out, ("link %s - %s"):format(was.a, was.b), was, t:link(a.uid, b.uid)) end
  end
end

-- -- Host, model, plan ---------------------------------------------------------------------------------------------------

local function compare_hosts(out, m, t)
  local by_id = {}
  for _, h in ipairs(t.hosts or {}) do by_id[h.id] = h end
  local was_hosts = known(m.hosts) or {}
  for _, was in ipairs(was_hosts) do
    local now = by_id[was.id] or (#was_hosts == 1 and #(t.hosts or {}) == 1 and t.hosts[1]) or nil -- one host may have got another name
    local a, b = known(was.driver), now and known(now.driver)
    if a and b and a ~= b then add(out, "driver_changed", "driver of " .. was.id, a, b) end
  end
end

local function by_name(files)
  local out = {}
  for _, f in ipairs(files or {}) do out[f.name] = f end
  return out
end

local function short(hash) return type(hash) == "string" and #hash > 16 and hash:sub(1, 16) .. ".." or hash end

local function compare_file(out, was, now)
  local what = "weights file " .. was.name
  if not now then
    add(out, "weights_changed", what, ("%d bytes"):format(was.bytes), nil)
  elseif known(was.bytes) and known(now.bytes) and was.bytes ~= now.bytes then
    add(out, "weights_changed", what .. " bytes", was.bytes, now.bytes)
  elseif known(was.sha256) and known(now.sha256) then
    if was.sha256 ~= now.sha256 then add(out, "weights_changed", what .. " SHA-256", short(was.sha256), short(now.sha256)) end
  elseif known(was.mtime) and known(now.mtime) and was.mtime ~= now.mtime then -- the only witness of a file too large to hash
    add(out, "weights_changed", what .. " time of change", was.mtime, now.mtime)
  end
end

-- What stands for the weights where no files are known, the surest first.
local identity_fields = { { "sha256", "SHA-256" }, { "config_sha256", "config SHA-256" }, { "weight_bytes", "bytes" }, { "params", "parameters" },
  { "arch", "family" } }

local function compare_model(out, was, now)
  local n = #out
  if known(was.files) and known(now.files) then
    local old, new = by_name(was.files), by_name(now.files)
    for _, f in ipairs(was.files) do compare_file(out, f, new[f.name]) end
    for _, f in ipairs(now.files) do
      if not old[f.name] then add(out, "weights_changed", "weights file " .. f.name, nil, ("%d bytes"):format(f.bytes)) end
    end
  end
  if #out > n then return end
  for _, f in ipairs(identity_fields) do
    local a, b = known(was[f[1]]), known(now[f[1]])
    if a ~= nil and b ~= nil and a ~= b then
      add(out, "weights_changed", "weights " .. f[2], short(a), short(b))
      return
    end
  end
end

local function compare_plan(out, m, report)
  for _, name in ipairs { "tp", "pp", "ep", "dp" } do
    local a, b = known((known(m.degrees) or {})[name]), known((known(report.degrees) or {})[name])
    if a and b and a ~= b then add(out, "degrees_changed", name, a, b) end
  end
  local a, b = known(m.plan_hash), known(report.plan_hash)
  if a and b and a ~= b then add(out, "plan_changed", "plan hash", short(a), short(b)) end
end

--- List the differences; see tpl.manifest.compare.
---@return tpl.Change[]
function M.list(m, t, report, options)
  local out, find = {}, M.finder(m, t)
  compare_devices(out, m, t, find)
  compare_links(out, m, t, find)
  compare_hosts(out, m, t)
  local model = options and options.model or {}
  local of_report = report and known(report.model) or {}
  local now = {}
  for k, v in pairs(of_report) do now[k] = v end
  for k, v in pairs(model) do now[k] = v end
  compare_model(out, known(m.model) or {}, now)
  if report then compare_plan(out, m, report) end
  return out
end

return M
