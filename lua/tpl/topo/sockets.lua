-- SPDX-License-Identifier: Apache-2.0
--- Say which devices hang on the same CPU socket, from what an input happens to tell.
-- A socket is one NUMA node, or several where the firmware cuts a socket into nodes (SNC, NPS). In order of trust: the package of a node, the latency
-- table (SLIT), words nearer than SYS between devices or to the same NIC, the numbers of the nodes. Without NUMA numbers the CPU lists serve, unless SYS
-- words contradict them, and for what is left the SYS words, where they split a host in two.
local cpuset = require("tpl.topo.cpuset")
local pair = require("tpl.topo.pair")

local M = {}

-- -- Union of names --------------------------------------------------------------------------------------------------

local function new_union()
  local parent = {}
  local u = {}
  function u.find(x)
    parent[x] = parent[x] or x
    while parent[x] ~= x do
      parent[x] = parent[parent[x]]
      x = parent[x]
    end
    return x
  end
  function u.join(a, b)
    a, b = u.find(a), u.find(b)
    if a ~= b then parent[a < b and b or a] = a < b and a or b end
  end
  return u
end

-- -- Nodes of a host -------------------------------------------------------------------------------------------------

local function cpu_nodes_contradict(t, devices, lists)
  for i, a in ipairs(devices) do
    for j = i + 1, #devices do
      local link = t:link(a.uid, devices[j].uid)
      if link and pair.word(link) == "sys" and lists[a.uid] == lists[devices[j].uid] then return true end
    end
  end
  return false
end

--- Give the NUMA node of each device as a name: "numa 0", or "cpus 0-71" where only CPU lists are known.
local function nodes_of(t, devices)
  local nodes, any_numa, lists, distinct = {}, false, {}, {}
  for _, d in ipairs(devices) do
    if d.numa then
      nodes[d.uid], any_numa = "numa " .. d.numa, true
    end
    lists[d.uid] = cpuset.normal(d.cpus)
    if lists[d.uid] then distinct[lists[d.uid]] = true end
  end
  if any_numa or next(distinct) == nil or cpu_nodes_contradict(t, devices, lists) then return nodes end
  for uid, list in pairs(lists) do nodes[uid] = "cpus " .. list end
  return nodes
end

-- -- Nodes that are one socket ---------------------------------------------------------------------------------------

local function join_packages(union, host)
  local first, all = {}, #(host.numa or {}) > 0
  for _, node in ipairs(host.numa or {}) do
    if node.package == nil then all = false end
  end
  if not all then return false end
  for _, node in ipairs(host.numa) do
    local key = tostring(node.package)
    if first[key] then union.join(first[key], "numa " .. node.id) else first[key] = "numa " .. node.id end
  end
  return true
end

--- Join nodes at the smallest of two or more remote latencies: with one value only, every node is a socket of its own.
local function join_latencies(union, host)
  local least, most
  local function each(visit)
    for _, node in ipairs(host.numa or {}) do
      for i, latency in ipairs(type(node.distances) == "table" and node.distances or {}) do
        local other = host.numa[i]
        if other and other.id ~= node.id and type(latency) == "number" then visit(node, other, latency) end
      end
    end
  end
  each(function(_, _, latency) least, most = math.min(least or latency, latency), math.max(most or latency, latency) end)
  if not least then return false end
  if least < most then
    each(function(a, b, latency) if latency == least then union.join("numa " .. a.id, "numa " .. b.id) end end)
  end
  return true
end

--- Join by numbers: of 4 or more nodes the lower half is taken for one socket and the upper half for the other.
local function join_numbers(union, host, devices)
  local ids, most = {}, 0
  local function note(id)
    if type(id) ~= "number" then return end
    ids[id], most = true, math.max(most, id)
  end
  for _, node in ipairs(host.numa or {}) do note(node.id) end
  for _, d in ipairs(devices) do note(d.numa) end
  local n, listed = 4, #(host.numa or {})
  while n < most + 1 do n = n * 2 end
  if listed == most + 1 and listed % 2 == 0 then n = listed end
  if most < 2 or n < 4 then return end
  local first = {}
  for id in pairs(ids) do
    local half = id < n / 2 and 1 or 2
    if first[half] then union.join(first[half], "numa " .. id) else first[half] = "numa " .. id end
  end
end

-- -- Words -----------------------------------------------------------------------------------------------------------

--- Join by words nearer than SYS. Gives the SYS neighbours of each device, and whether every word between devices is known.
local function join_words(t, union, devices)
  local apart = {}
  for i, a in ipairs(devices) do
    for j = i + 1, #devices do
      local b = devices[j]
      local word = pair.word(t:link(a.uid, b.uid))
      if pair.near_word[word or ""] then union.join(a.uid, b.uid) end
      if word == "sys" then
        apart[a.uid], apart[b.uid] = apart[a.uid] or {}, apart[b.uid] or {}
        table.insert(apart[a.uid], b.uid)
        table.insert(apart[b.uid], a.uid)
      end
    end
  end
  for _, nic in ipairs(t.nics or {}) do
    local first
    for _, d in ipairs(devices) do
      if pair.near_word[nic.to and nic.to[d.uid] or ""] then
        if first then union.join(first, d.uid) else first = d.uid end
      end
    end
  end
  return apart
end

--- Colour sockets so that those with SYS between them differ; nil when two colours do not do. A host has one or two sockets as a rule.
local function two_sides(union, devices, apart)
  local next_to, colour = {}, {}
  for _, d in ipairs(devices) do
    local root = union.find(d.uid)
    next_to[root] = next_to[root] or {}
    for _, other in ipairs(apart[d.uid] or {}) do table.insert(next_to[root], union.find(other)) end
  end
  local function paint(root, c)
    if colour[root] then return colour[root] == c end
    colour[root] = c
    for _, other in ipairs(next_to[root]) do
      if other ~= root and not paint(other, 3 - c) then return false end
    end
    return true
  end
  local starts = 0
  for _, d in ipairs(devices) do
    local root = union.find(d.uid)
    if not colour[root] and next_to[root][1] then
      starts = starts + 1
      if starts > 1 or not paint(root, 1) then return nil end
    end
  end
  return colour
end

-- -- All of it -------------------------------------------------------------------------------------------------------

--- Name the sockets of a host. Without `by_number` the numbers of NUMA nodes do not join any.
local function sockets_of(t, host, devices, nodes, by_number)
  local union, out = new_union(), {}
  if not join_packages(union, host) and not join_latencies(union, host) and by_number then join_numbers(union, host, devices) end
  for _, d in ipairs(devices) do
    if nodes[d.uid] then union.join(d.uid, nodes[d.uid]) end
  end
  local apart = join_words(t, union, devices)
  local members = {}
  for _, d in ipairs(devices) do
    local root = union.find(d.uid)
    members[root] = (members[root] or 0) + 1
  end
  local sides = next(apart) and two_sides(union, devices, apart) or {}
  for _, d in ipairs(devices) do
    local root = union.find(d.uid)
    local told = nodes[d.uid] ~= nil or members[root] > 1
    if told then
      out[d.uid] = host.id .. " " .. root
    elseif sides[root] then
      out[d.uid] = host.id .. " side " .. sides[root]
    end
  end
  return out
end

local function assign_host(t, host, devices, out)
  local nodes = nodes_of(t, devices)
  local guessed, firm = sockets_of(t, host, devices, nodes, true), sockets_of(t, host, devices, nodes, false)
  for _, d in ipairs(devices) do
    out.socket[d.uid], out.firm[d.uid] = guessed[d.uid], firm[d.uid]
    out.node[d.uid] = nodes[d.uid] and host.id .. " " .. nodes[d.uid]
  end
end

--- Give `socket` and `node` of every device as opaque names that are equal where the socket or NUMA node is; nil where unknown. `firm` is the socket
--- without the guess from node numbers.
---@param t tpl.Topo
---@return {socket: table<string, string>, firm: table<string, string>, node: table<string, string>}
function M.assign(t)
  local out, per_host = { socket = {}, firm = {}, node = {} }, {}
  for _, d in ipairs(t.devices) do
    if d.kind ~= "mig" then
      per_host[d.host] = per_host[d.host] or {}
      table.insert(per_host[d.host], d)
    end
  end
  for _, host in ipairs(t.hosts) do
    if per_host[host.id] then assign_host(t, host, per_host[host.id], out) end
  end
  for _, d in ipairs(t.devices) do
    local parent = d.kind == "mig" and d.mig and d.mig.parent
    if parent then out.socket[d.uid], out.firm[d.uid], out.node[d.uid] = out.socket[parent], out.firm[parent], out.node[parent] end
  end
  return out
end

return M
