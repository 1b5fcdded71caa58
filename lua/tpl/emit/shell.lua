-- SPDX-License-Identifier: Apache-2.0
--- Write the POSIX sh start script of an engine: devices by UUID, turned into indices when it starts, never when it is written.
-- nvidia-smi lists indices in PCI order, and CUDA does so under CUDA_DEVICE_ORDER=PCI_BUS_ID only; both are taken at the same moment, so that a
-- reboot, a moved card or another driver cannot make the script start on other GPUs: what is missing ends it.
local names = require("tpl.emit.names")
local parts = require("tpl.emit.sh_parts")
local placement = require("tpl.emit.placement")

local M = {}

local known = placement.known

---@class tpl.emit.Command
---@field replica tpl.emit.Replica
---@field facts tpl.emit.Facts
---@field ep integer
---@field port integer
---@field numa integer[]?        node of each device of the first host
---@field numa_is_one boolean    all of one node: the script binds the process itself
---@field n_hosts integer

--- Quote a word for sh.
function M.quote(word)
  if type(word) == "table" then return word.raw end
  word = tostring(word)
  if word:match("^[%w_./:,=@%%+-]+$") then return word end
  return "'" .. word:gsub("'", "'\\''") .. "'"
end

-- A comment is one line whatever stands in a name.
local function comment(text) return "# " .. tostring(text):gsub("%c", " ") end

--- Give `export` lines with the reason above each.
---@param env tpl.EnvEntry[]   one that is for one host is a comment: a script runs on all
---@param indent string?
---@return string[]
function M.exports(env, indent)
  local out = {}
  indent = indent or ""
  for _, e in ipairs(env) do
    out[#out + 1] = indent .. comment(e.why)
    local line = ("export %s=%s"):format(e.name, M.quote(e.value))
    out[#out + 1] = indent .. (e.host and comment(("on %s only: %s"):format(e.host, line)) or line)
  end
  return out
end

-- -- The script ----------------------------------------------------------------------------------------------

-- The command, a flag with its values on each line, with the caller's own arguments at the end.
local function command_lines(words, prefix, config_name)
  local lines, line = {}, prefix
  for i, word in ipairs(words) do
    local text = M.quote(word)
    if type(word) == "string" and word:find("^%-%-") and i > 1 then
      lines[#lines + 1] = line .. " \\"
      line = "    " .. text
    else
      line = line == "" and text or line .. " " .. text
    end
  end
  lines[#lines + 1] = line .. " \\"
  if config_name then lines[#lines + 1] = '    --config "' .. config_name .. '" \\' end
  lines[#lines + 1] = '    "$@"'
  return lines
end

local function first_host(replica, devices)
  local out = {}
  for _, d in ipairs(devices) do
    if (known(d.host) or "host0") == replica.hosts[1] then out[#out + 1] = d end
  end
  return out
end

local function hosts_of(replica, devices)
  local out = {}
  for i, host in ipairs(replica.hosts) do
    out[i] = {}
    for _, d in ipairs(devices) do
      if (known(d.host) or "host0") == host then table.insert(out[i], d) end
    end
  end
  return out
end

-- What sets devices_I: one host by name, several by which of them this machine is.
local function lookup_lines(s, replica, devices)
  local lines = {}
  local lookup = replica.devices[1].kind == "mig" and "slices" or "indices"
  local function set(list)
    if s.how == "index" then return ("devices_%d=%s"):format(replica.i, table.concat(names.keys(list, s.how), ",")) end
    return ("devices_%d=$(%s %s) || exit 1"):format(replica.i, lookup, table.concat(names.keys(list, s.how), " "))
  end
  if #replica.hosts == 1 and s.n_hosts == 1 then return { set(devices) } end
  local per = hosts_of(replica, devices)
  local function place(i, list) -- where this machine is the i-th host of the replica
    return set(list) .. (#per > 1 and not s.engine.launch and ("; node_%d=%d"):format(replica.i, i - 1) or "")
  end
  lines[1] = ("devices_%d=''"):format(replica.i)
  if s.how == "index" then
    lines[2] = ("case ${NODE_RANK:?number of this host in the plan, 0 to %d} in"):format(s.n_hosts - 1)
    for i, list in ipairs(per) do lines[#lines + 1] = ("  %d) %s ;;"):format(s.host_number[replica.hosts[i]], place(i, list)) end
    lines[#lines + 1] = "esac"
    return lines
  end
  for i, list in ipairs(per) do
    lines[#lines + 1] = ("if is_here %s; then # %s"):format(table.concat(names.keys(list, s.how), " "), (replica.hosts[i]:gsub("%c", " ")))
    lines[#lines + 1] = "  " .. place(i, list)
    lines[#lines + 1] = "fi"
  end
  return lines
end

local function replica_function(s, replica, devices, out)
  local numa, is_one = placement.numa(first_host(replica, devices))
  local words, env, config = s.engine.command { replica = replica, facts = s.facts, ep = s.p.ep, port = s.facts.port + replica.i, numa = numa,
    numa_is_one = is_one, n_hosts = #replica.hosts }
  local said = {}
  for i, d in ipairs(devices) do said[i] = names.text(d) end
  out[#out + 1] = comment("Replica " .. replica.i .. ": " .. table.concat(said, ", "))
  out[#out + 1] = ("replica_%d() {"):format(replica.i)
  out[#out + 1] = ('  export CUDA_VISIBLE_DEVICES="$devices_%d"'):format(replica.i)
  for _, line in ipairs(M.exports(env, "  ")) do out[#out + 1] = line end
  local config_name
  if config and #config > 0 then
    config_name = "$config"
    out[#out + 1] = "  config=$(mktemp) || fail 'no temporary file'"
    out[#out + 1] = "  printf '%s\\n' \\"
    for i, line in ipairs(config) do out[#out + 1] = "    " .. M.quote(line) .. (i < #config and " \\" or ' >"$config"') end
  end
  if #replica.hosts > 1 and not s.engine.launch then out[#out + 1] = ("  node=$node_%d"):format(replica.i) end
  if #replica.hosts > 1 and s.engine.follower then out[#out + 1] = "  " .. s.engine.follower end
  local prefix = "exec"
  if numa and is_one then
    local cpus = known(devices[1].cpus) or ""
    prefix = ("bind %d %s"):format(numa[1], M.quote(cpus == "" and { raw = "''" } or cpus))
    s.has_bind = true
  end
  for _, line in ipairs(command_lines(words, prefix, config_name)) do out[#out + 1] = "  " .. line end
  out[#out + 1] = "}\n"
end

local function start_lines(s, out)
  local replicas = s.p.replicas
  if #replicas == 1 then
    if s.n_hosts > 1 then out[#out + 1] = '[ -n "$devices_0" ] || fail "none of the plan\'s GPUs is in this machine"' end
    out[#out + 1] = 'replica_0 "$@"'
    return
  end
  out[#out + 1] = "# Replicas are independent: one that ends leaves the others running. The status is that of the last that failed."
  out[#out + 1] = "pids=''"
  out[#out + 1] = "status=0"
  out[#out + 1] = "trap 'for pid in $pids; do kill \"$pid\" 2>/dev/null || :; done' INT TERM"
  for _, replica in ipairs(replicas) do
    local run = ('replica_%d "$@" & pids="$pids $!"'):format(replica.i)
    if s.n_hosts > 1 then run = ('if [ -n "$devices_%d" ]; then %s; fi'):format(replica.i, run) end
    out[#out + 1] = run
  end
  if s.n_hosts > 1 then out[#out + 1] = '[ -n "$pids" ] || fail "none of the plan\'s GPUs is in this machine"' end
  out[#out + 1] = "for pid in $pids; do wait \"$pid\" || status=$?; done"
  out[#out + 1] = "exit $status"
end

local function head(s)
  local f, replicas, first = s.facts, s.p.replicas, s.p.replicas[1]
  local per = ("tp=%d pp=%d"):format(first.stages[1].tp, #first.stages)
  if first.stages[1].dp > 1 then per = per .. " dp=" .. first.stages[1].dp end
  if s.p.ep > 1 then per = per .. " ep=" .. s.p.ep end
  local out = { "#!/bin/sh",
    comment(("Start %s with %s: %d replica%s of %s, as `tpl plan --emit %s` placed it."):format(f.model, s.engine.title, #replicas,
      #replicas > 1 and "s" or "", per, s.engine.target)),
    comment(("Flags of %s %s. Further arguments of this script go to each engine process."):format(s.engine.title, s.engine.version)) }
  if f.plan_hash then out[#out + 1] = comment("Plan " .. f.plan_hash) end
  for _, w in ipairs(s.warnings) do out[#out + 1] = comment("Warning: " .. w.message) end
  return out
end

local function count_hosts(p)
  local number, n = {}, 0
  for _, replica in ipairs(p.replicas) do
    for _, host in ipairs(replica.hosts) do
      if not number[host] then number[host], n = n, n + 1 end
    end
  end
  return number, n
end

local function has_mig(p)
  for _, replica in ipairs(p.replicas) do
    if replica.devices[1].kind == "mig" then return true end
  end
end

--- Write the start script of an engine.
---@param s {engine: table, p: tpl.emit.Placement, facts: tpl.emit.Facts, env: table[], how: string, warnings: table[]}
---@return string
function M.script(s)
  s.host_number, s.n_hosts = count_hosts(s.p)
  local out, body, most = head(s), {}, 1
  for _, replica in ipairs(s.p.replicas) do
    most = math.max(most, #replica.hosts)
    replica_function(s, replica, placement.order(replica, s.engine.dp_first), body)
  end
  if most > 1 and s.engine.launch then out[#out + 1] = comment(s.engine.launch:format(most, #s.p.replicas[1].devices / most)) end
  out[#out + 1] = "set -eu\n"
  out[#out + 1] = parts.fail
  for _, line in ipairs(M.exports(s.env)) do out[#out + 1] = line end
  out[#out + 1] = ""
  if s.how ~= "index" then
    local field = s.how == "uuid" and "uuid" or "pci.bus_id"
    out[#out + 1] = (parts.lookup:gsub("@WHAT@", s.how == "uuid" and "UUID" or "PCI address"):gsub("@FIELD@", field))
    if s.n_hosts > 1 then out[#out + 1] = parts.here end
  end
  if has_mig(s.p) then out[#out + 1] = parts.mig end
  if s.has_bind then out[#out + 1] = parts.bind end
  if most > 1 and not s.engine.launch then
    out[#out + 1] = comment("Several hosts: run this script on each, with the address of the first of its replica.")
    out[#out + 1] = ": \"${MASTER_ADDR:?address of the first host of the replica, " .. s.p.replicas[1].hosts[1]:gsub("[^%w._-]", "_") .. "}\"\n"
  end
  for _, replica in ipairs(s.p.replicas) do
    for _, line in ipairs(lookup_lines(s, replica, placement.order(replica, s.engine.dp_first))) do out[#out + 1] = line end
  end
  out[#out + 1] = ""
  for _, line in ipairs(body) do out[#out + 1] = line end
  start_lines(s, out)
  return table.concat(out, "\n") .. "\n"
end

M.comment = comment

return M
