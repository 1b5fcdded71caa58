-- SPDX-License-Identifier: Apache-2.0
--- Match and merge the devices of two partial records (merge.lua), and give the result its final names and order.
local util = require("tpl.util")

local M = {}

local function label(d) return d.uid or d.uuid or d.pci or "a device" end

--- Numbers by PCI address within a host, as NVML counts: for files that number their GPUs only by their own order.
local function ranks(list)
  local by_host, rank = {}, {}
  for _, d in ipairs(list) do
    if d.kind == "gpu" and d.pci then
      by_host[d.host] = by_host[d.host] or {}
      table.insert(by_host[d.host], d)
    end
  end
  for _, of_host in pairs(by_host) do
    table.sort(of_host, function(a, b) return a.pci < b.pci end)
    for i, d in ipairs(of_host) do rank[d] = i - 1 end
  end
  return rank
end

local function find(list, test)
  for _, d in ipairs(list) do if test(d) then return d end end
end

--- Say whether an importer gave a uid for want of anything better.
local function is_made_up(uid) return uid == nil or uid:find("^GPU%d+$") or uid:find("/GPU%d+$") or uid:find("#%d+$") or uid:find(":mig%d+$") end

local function differ(a, b) return a ~= nil and b ~= nil and a ~= b end

--- Find the device of `out` that d is, and how: by "uuid", "pci", "uid" (a name that somebody gave it) or "index".
local function match(out, d, taken, index_of, own_index_of)
  local function free(e) return not taken[e] and e.kind == d.kind and e.host == d.host end
  local own = d.uuid and find(out.devices, function(e) return not taken[e] and e.uuid == d.uuid end)
  if own then return own, "uuid" end
  own = d.pci and d.kind == "gpu" and find(out.devices, function(e) return free(e) and e.pci == d.pci end)
  if own then return own, "pci" end
  own = d.uid and (d.kind == "mig" or not is_made_up(d.uid)) and find(out.devices, function(e)
    return free(e) and e.uid == d.uid and not differ(e.uuid, d.uuid) and not differ(e.pci, d.pci)
  end)
  if own then return own, "uid" end
  if d.kind == "mig" then return nil end
  local index = index_of(d)
  own = index and find(out.devices, function(e)
    return free(e) and own_index_of(e) == index and not differ(e.uuid, d.uuid) and not differ(e.pci, d.pci)
  end)
  if own then return own, "index" end
end

-- What to keep where two files disagree about a field.
local keep = {
  numa = function() return nil, "it is unknown" end,
  cpus = function(a) return a, "the first is kept" end,
  mem_bytes = function(a, b) return math.min(a, b), "the less is kept" end,
}

local function set_of(cpus)
  local out, n = {}, 0
  for from, to in (tostring(cpus):gsub("%f[%d](%d+)%f[^%d%-]", "%1-%1")):gmatch("(%d+)%-(%d+)") do
    for i = tonumber(from), math.min(tonumber(to), tonumber(from) + 65535) do
      if not out[i] then out[i], n = true, n + 1 end
    end
  end
  return out, n
end

--- The smaller of two CPU lists, if the other has all of it: with and without hardware threads, or what a cgroup leaves.
local function smaller_cpus(a, b)
  local sa, na = set_of(a)
  local sb, nb = set_of(b)
  local few, many, text = sa, sb, a
  if nb < na then few, many, text = sb, sa, b end
  for i in pairs(few) do if not many[i] then return nil end end
  return next(few) and text or nil
end

local function almost(key, a, b)
  if a == b then return true end
  if key == "mem_bytes" then return math.abs(a - b) <= 0.03 * math.max(a, b) end -- total with and without what the driver keeps
  if key == "cpus" then return smaller_cpus(a, b) ~= nil end
  if key == "name" then return a:find(b, 1, true) ~= nil or b:find(a, 1, true) ~= nil end
  return false
end

local function merge_facts(own, d, say)
  for _, key in ipairs { "uuid", "pci", "name", "sm", "vbios", "numa", "cpus", "mem_bytes" } do
    local a, b = own[key], d[key]
    if a ~= nil and b ~= nil and not almost(key, a, b) then
      local kept, what
      if keep[key] then kept, what = keep[key](a, b) else kept, what = a, "the first is kept" end
      own[key] = kept
      say("contradiction", ("%s: %s is %s and here %s: %s"):format(label(own), key, tostring(a), tostring(b), what))
      own.disputed = own.disputed or {}
      own.disputed[key] = true
    elseif a == nil then
      if not (own.disputed and own.disputed[key]) then own[key] = b end
    elseif b ~= nil and key == "name" then
      own.name = #b > #a and b or a
    elseif b ~= nil and key == "cpus" then
      own.cpus = smaller_cpus(a, b)
    elseif b ~= nil and key == "mem_bytes" then
      own.mem_bytes = math.min(a, b)
    end
  end
end

local good_fabric = { completed = true, success = true, healthy = true, ["n/a"] = true }

--- What speaks against a device stays, whichever file says it.
local function merge_state(own, d, say)
  own.free_bytes = own.free_bytes and d.free_bytes and math.min(own.free_bytes, d.free_bytes) or own.free_bytes or d.free_bytes
  if own.usable == false or d.usable == false then own.usable = false elseif own.usable == nil then own.usable = d.usable end
  if d.why_not then
    own.why_not = own.why_not or {}
    for _, reason in ipairs(d.why_not) do own.why_not[#own.why_not + 1] = reason end
  end
  if d.mig then
    own.mig = own.mig or {}
    for key, v in pairs(d.mig) do
      if own.mig[key] == nil then own.mig[key] = v
      elseif key == "mode" and own.mig.mode ~= v then
        own.mig.mode = "on"
        say("contradiction", label(own) .. ": MIG is on in one file and off in another: it counts as on")
      end
    end
  end
  if d.fabric then
    own.fabric = own.fabric or {}
    for key, v in util.pairs(d.fabric) do
      local had = own.fabric[key]
      if had == nil then own.fabric[key] = v
      elseif had ~= v then
        own.fabric[key] = type(had) == "string" and good_fabric[had:lower()] and v or had
        say("contradiction", ("%s: fabric %s is %s and here %s: '%s' is kept"):format(label(own), key, tostring(had), tostring(v), tostring(own.fabric[key])))
      end
    end
  end
  if d.pcie then
    own.pcie = own.pcie or {}
    for _, key in ipairs { "gen", "width" } do own.pcie[key] = math.max(own.pcie[key] or 0, d.pcie[key] or 0) end
    for _, key in ipairs { "gen", "width" } do if own.pcie[key] == 0 then own.pcie[key] = nil end end
  end
  if d.busy then
    own.busy = own.busy or {}
    own.busy.used_bytes = math.max(own.busy.used_bytes or 0, d.busy.used_bytes or 0)
    own.busy.pids = own.busy.pids or {}
    for _, pid in ipairs(d.busy.pids or {}) do if not util.has(own.busy.pids, pid) then table.insert(own.busy.pids, pid) end end
  end
  if d.labels then
    own.labels = own.labels or {}
    for _, word in ipairs(d.labels) do if not util.has(own.labels, word) then table.insert(own.labels, word) end end
  end
  own.health = own.health or d.health
  for key, v in pairs(own.health and d.health or {}) do if own.health[key] == nil then own.health[key] = v end end
end

local function merge_rest(own, d)
  for key, v in pairs(d) do
    if own[key] == nil and not (own.disputed and own.disputed[key]) and key ~= "disputed" then own[key] = v end
  end
end

--- Say that a file left devices out, where both list GPUs of one host.
local function unmatched(added, say)
  if #added == 0 then return end
  local names = util.map(added, label)
  say("only_in_one", ("%d of its GPUs are in no earlier file: %s"):format(#added, table.concat(names, ", ", 1, math.min(#names, 8))))
end

--- Merge the devices of a part into `out`.
---@return table<string, string> name_of   uids of the part as uids of `out`
function M.merge(out, part, say)
  local taken, name_of, rank, own_rank = {}, {}, ranks(part.devices), ranks(out.devices)
  local by_position = false
  local function index_of(d)
    if part.by_order and not out.by_order then by_position = rank[d] ~= nil return rank[d] end
    return d.index
  end
  local function own_index_of(e)
    if out.by_order and not part.by_order then by_position = by_position or own_rank[e] ~= nil return own_rank[e] end
    return e.index
  end
  local had, added, used_position = {}, {}, false
  for _, e in ipairs(out.devices) do had[e.host] = had[e.host] or e.kind == "gpu" end
  for _, d in ipairs(part.devices) do
    local own, how = match(out, d, taken, index_of, own_index_of)
    if own then
      taken[own] = true
      if how == "index" and (part.by_order ~= out.by_order) then used_position = true end
      if out.by_order and not part.by_order then own.index = d.index end
      merge_facts(own, d, say)
      merge_state(own, d, say)
      if d.uid then name_of[d.uid] = own.uid end
      local uid = own.uid
      merge_rest(own, d)
      own.uid = uid
    else
      if find(out.devices, function(e) return e.uid == d.uid end) then
        local uid, n = d.uid, 2
        while find(out.devices, function(e) return e.uid == uid .. "#" .. n end) do n = n + 1 end
        d.uid, name_of[uid] = uid .. "#" .. n, uid .. "#" .. n
      elseif d.uid then
        name_of[d.uid] = d.uid
      end
      out.devices[#out.devices + 1], taken[d] = d, true
      if d.kind == "gpu" and had[d.host] then added[#added + 1] = d end
    end
  end
  if used_position and by_position then
    say("matched_by_pci_order", "GPUs without UUID and address in common were matched by the order of their PCI addresses, as nvidia-smi counts them")
  end
  unmatched(added, say)
  out.by_order = out.by_order and part.by_order
  return name_of
end

--- Give devices the name of their UUID where they had only a number, put them in the order of their indices where files brought some
--- together, and let links, NICs and MIG parents follow.
function M.settle(out, links, merged)
  local new, seen = {}, {}
  for _, d in ipairs(out.devices) do
    local old = d.uid
    d.disputed = nil
    if d.uuid and merged and is_made_up(old) and not seen[d.uuid] then d.uid = d.uuid end
    seen[d.uid or ""] = true
    if old then new[old] = d.uid end
  end
  if merged then
    local host_rank, kind_rank, place = {}, { gpu = 1, mig = 2, cpu = 3 }, {}
    for i, h in ipairs(out.hosts) do host_rank[h.id] = i end
    for i, d in ipairs(out.devices) do place[d] = i end
    local numbered = true
    for _, d in ipairs(out.devices) do numbered = numbered and (d.kind ~= "gpu" or d.index ~= nil) end
    table.sort(out.devices, function(a, b)
      local ha, hb = host_rank[a.host] or 0, host_rank[b.host] or 0
      if ha ~= hb then return ha < hb end
      if a.kind ~= b.kind then return (kind_rank[a.kind] or 9) < (kind_rank[b.kind] or 9) end
      if numbered and a.kind == "gpu" and a.index ~= b.index then return a.index < b.index end
      return place[a] < place[b]
    end)
  end
  for _, d in ipairs(out.devices) do
    if d.mig and d.mig.parent then d.mig.parent = new[d.mig.parent] or d.mig.parent end
  end
  links.rename(out, new)
  for _, nic in ipairs(out.nics) do
    local to = {}
    for uid, word in pairs(nic.to or {}) do to[new[uid] or uid] = word end
    nic.to = nic.to and to
    nic.near = nic.near and util.map(nic.near, function(uid) return new[uid] or uid end)
  end
end

return M
