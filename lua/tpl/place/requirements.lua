-- SPDX-License-Identifier: Apache-2.0
--- Hold a placement against what a site requires of it (`require` of deploy.lua): the kind of link inside a group, one NUMA
--- node, equal GPUs, tokens of KV cache, time between tokens. What is not known counts as unmet. Pure.
local links = require "tpl.topo.pair"
local suggest = require "tpl.suggest"
local util = require "tpl.util"

local M = {}

-- From near to far.
local distance = { nvlink = 1, c2c = 1, pix = 2, pxb = 3, phb = 4, node = 5, shm = 5, sys = 6, net = 7 }
local known = { "link", "same_numa", "same_gpu", "kv_tokens", "itl_ms" }

-- The sets of devices that talk in collectives; a pipeline of single devices is one set of neighbours.
local function pairs_that_talk(replica)
  local out = {}
  for _, s in ipairs(replica.stages) do
    for i = 1, #s.devices do
      for j = i + 1, #s.devices do out[#out + 1] = { s.devices[i], s.devices[j] } end
    end
  end
  if #out == 0 then
    for i = 1, #replica.stages - 1 do out[i] = { replica.stages[i].devices[1], replica.stages[i + 1].devices[1] } end
  end
  return out
end

local checks = {}

function checks.link(topo, replica, _, wanted)
  if not distance[wanted] then return ("'%s' is no kind of link (%s)"):format(tostring(wanted), "nvlink, c2c, pix, pxb, phb, node, sys, net") end
  for _, pair in ipairs(pairs_that_talk(replica)) do
    local link = topo:link(pair[1], pair[2])
    local kind = link and link.kind
    if not kind then return ("how %s and %s are linked is not known"):format(pair[1], pair[2]) end
    if links.refused(link) and wanted == "nvlink" then return ("P2P between %s and %s is refused"):format(pair[1], pair[2]) end
    if not distance[kind] or distance[kind] > distance[wanted] then return ("%s and %s are linked by %s"):format(pair[1], pair[2], kind) end
  end
end

function checks.same_numa(topo, replica, _, wanted)
  if not wanted then return nil end
  for _, s in ipairs(replica.stages) do
    local first = topo:dev(s.devices[1])
    for _, uid in ipairs(s.devices) do
      local d = topo:dev(uid)
      if d.numa == nil then return ("the NUMA node of %s is not known"):format(uid) end
      if d.numa ~= first.numa or d.host ~= first.host then
        return ("%s is on NUMA node %s, %s on %s"):format(first.uid, tostring(first.numa), uid, tostring(d.numa))
      end
    end
  end
end

local function same(topo, uids, field)
  local first = topo:dev(uids[1])
  for _, uid in ipairs(uids) do
    local d = topo:dev(uid)
    if d[field] == nil then return ("the %s of %s is not known"):format(field, uid) end
    if d[field] ~= first[field] then
      return ("%s has %s %s, %s has %s"):format(first.uid, field, tostring(first[field]), uid, tostring(d[field]))
    end
  end
end

function checks.same_gpu(topo, replica, _, wanted)
  if not wanted then return nil end
  local uids = {}
  for _, s in ipairs(replica.stages) do
    for _, uid in ipairs(s.devices) do uids[#uids + 1] = uid end
  end
  if #uids < 2 then return nil end
  return same(topo, uids, "name") or same(topo, uids, "mem_bytes") or same(topo, uids, "vbios")
end

function checks.kv_tokens(_, _, facts, wanted)
  if not facts.kv_tokens then return "the size of the KV cache is not known" end
  if facts.kv_tokens < wanted then return ("the KV cache has %d tokens, %d are required"):format(facts.kv_tokens, wanted) end
end

function checks.itl_ms(_, _, facts, wanted)
  if not facts.itl_us then return "the time between tokens is not known" end
  if facts.itl_us / 1e3 > wanted then return ("%.1f ms between tokens, at most %g are required"):format(facts.itl_us / 1e3, wanted) end
end

--- List what is unmet.
---@param topo tpl.Topo
---@param replica {stages: {devices: string[]}[]}
---@param facts {kv_tokens?: number, itl_us?: number}
---@param required table      `require` of deploy.lua
---@return {field: string, message: string}[]
function M.unmet(topo, replica, facts, required)
  local out = {}
  for field, wanted in util.pairs(required or {}) do
    local check = checks[field]
    local message = check and check(topo, replica, facts, wanted)
    if not check then message = "is no known requirement: " .. suggest.hint(field, known, "requirements") end
    if message then out[#out + 1] = { field = field, message = message } end
  end
  return out
end

return M
