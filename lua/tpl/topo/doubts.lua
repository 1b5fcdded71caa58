-- SPDX-License-Identifier: Apache-2.0
--- Add what a finished topology leaves open to its doubts: pairs without a link, contradictions, forced choices.
-- Importers note what they repaired, with line numbers; here is only what the whole record shows.
local pair = require("tpl.topo.pair")

local M = {}

local function adder(t)
  local seen = {}
  for _, doubt in ipairs(t.doubts) do seen[tostring(doubt.code) .. "|" .. tostring(doubt.message)] = true end
  return function(code, message)
    local key = code .. "|" .. message
    if seen[key] then return end
    seen[key] = true
    t.doubts[#t.doubts + 1] = { code = code, message = message }
  end
end

local function has(t, code)
  for _, doubt in ipairs(t.doubts) do
    if doubt.code == code then return true end
  end
  return false
end

local MOST_NAMED = 6

--- Name a device as people do: GPU3, with its host where there are several.
local function label(t, uid)
  local d = t:dev(uid)
  if not d or d.kind ~= "gpu" then return uid end
  return (#t.hosts > 1 and d.host .. "/" or "") .. "GPU" .. tostring(d.index)
end

local function both(t, a, b) return label(t, a) .. "-" .. label(t, b) end

local function named(list)
  local out = {}
  for i = 1, math.min(#list, MOST_NAMED) do out[i] = list[i] end
  return table.concat(out, ", ") .. (#list > MOST_NAMED and (" and %d more"):format(#list - MOST_NAMED) or "")
end

local function gpus_of(t, host)
  local out = {}
  for _, d in ipairs(t.devices) do
    if d.kind == "gpu" and d.host == host then out[#out + 1] = d.uid end
  end
  return out
end

--- List the pairs of a host's GPUs without a link, and count those with one.
local function look_at(t, host)
  local uids, missing, known = gpus_of(t, host.id), {}, 0
  for i, a in ipairs(uids) do
    for j = i + 1, #uids do
      if t:either(a, uids[j]) then known = known + 1 else missing[#missing + 1] = both(t, a, uids[j]) end
    end
  end
  return missing, known
end

local function missing_links(t, add)
  local some, of, dark = {}, 0, {}
  for _, host in ipairs(t.hosts) do
    local missing, known = look_at(t, host)
    if missing[1] and known > 0 then
      for _, name in ipairs(missing) do some[#some + 1] = name end
      of = of + #missing + known
    elseif missing[1] then
      dark[#dark + 1] = host.id
    end
  end
  if some[1] then add("links_missing", ("the input says nothing about %d of %d pairs of GPUs: %s"):format(#some, of, named(some))) end
  if dark[1] then add("links_unknown", ("no links between the GPUs of %s are known: groups are chosen by NUMA node and order only"):format(named(dark))) end
end

local function refused_nvlink(t, add)
  local list = {}
  for _, link in ipairs(t.links) do
    if pair.is_nvlink(link) and pair.refused(link) and link.data_ok ~= false then list[#list + 1] = both(t, link.a, link.b) end
  end
  if list[1] and not has(t, "nvlink_p2p_refused") then
    add("nvlink_p2p_refused", ("NVLink is reported but peer access is refused: %s; not counted as NVLink until a probe says otherwise"):format(named(list)))
  end
end

local function wrong_data(t, add)
  local list = {}
  for _, link in ipairs(t.links) do
    if link.data_ok == false then list[#list + 1] = both(t, link.a, link.b) end
  end
  if list[1] then add("data_wrong", ("what arrived was not what was sent: %s; not counted as a direct link"):format(named(list))) end
end

local function forced_sys(t, add)
  local best = t.suggest.tp2[1]
  local link = best and t:either(best[1], best[2])
  if not link or pair.nvlinks(link) > 0 or pair.word(link) ~= "sys" then return end
  local one = t:firm_socket(best[1]) and t:firm_socket(best[1]) == t:firm_socket(best[2])
  add(one and "pair_is_sys" or "pair_crosses_sockets", ("even the best pair, %s and %s, is SYS%s"):format(label(t, best[1]), label(t, best[2]),
    one and ", though in one socket: sub-NUMA nodes, or a virtual machine" or ": joined across sockets"))
end

local function numa_unknown(t, add)
  local list, gpus = {}, 0
  for _, d in ipairs(t.devices) do
    if d.kind == "gpu" then
      gpus = gpus + 1
      if not t:numa_node(d.uid) then list[#list + 1] = label(t, d.uid) end
    end
  end
  if list[1] and gpus > 1 then add("numa_unknown", ("the NUMA node is unknown of %s"):format(#list == gpus and "every GPU" or named(list))) end
end

local function cards_unknown(t, add)
  local list = {}
  for _, d in ipairs(t.devices) do
    if d.kind == "mig" and not (d.mig and d.mig.parent and t:dev(d.mig.parent)) then list[#list + 1] = label(t, d.uid) end
  end
  if list[1] and not has(t, "mig_parent_unknown") then add("mig_parent_unknown", ("the card of %s is not in the input"):format(named(list))) end
end

--- Add doubts; those that are already noted are not repeated.
---@param t tpl.Topo
function M.add(t)
  local add = adder(t)
  refused_nvlink(t, add)
  wrong_data(t, add)
  missing_links(t, add)
  numa_unknown(t, add)
  cards_unknown(t, add)
  forced_sys(t, add)
end

return M
