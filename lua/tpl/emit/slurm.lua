-- SPDX-License-Identifier: Apache-2.0
--- Write an sbatch script that starts tpl where a plan says, with the choice of GPUs made inside the job.
-- Slurm hands out any GPUs of a node. So the job asks for all of a host's whole GPUs and takes the planned ones by UUID; where the job runs on
-- another host than the plan saw, `tpl run` chooses by topology among what it got, and `require` in deploy.lua may refuse.
-- --gpus-per-node, not --gpus-per-task: the latter hides the GPUs of one task from the others and ends peer access.
local facts = require("tpl.emit.facts")
local names = require("tpl.emit.names")
local placement = require("tpl.emit.placement")
local shell = require("tpl.emit.shell")

local M = { target = "slurm", title = "Slurm", version = "23.02" }

local known = placement.known

local function hosts_of(p)
  local list, devices = {}, {}
  for _, replica in ipairs(p.replicas) do
    for _, d in ipairs(replica.devices) do
      local host = known(d.host) or "host0"
      if not devices[host] then
        devices[host] = {}
        list[#list + 1] = host
      end
      table.insert(devices[host], d)
    end
  end
  return list, devices
end

-- Whole GPUs of a host: slices are another resource to Slurm.
local function whole_gpus(t, host)
  local n = 0
  for _, d in ipairs(t and t.devices or {}) do
    local mode = known(d.mig) and d.mig.mode
    if d.kind == "gpu" and (known(d.host) or "host0") == host and mode ~= "on" then n = n + 1 end
  end
  return n
end

local function numbers(p, t, hosts, devices)
  local gpus, cores, used = 0, 0, 0
  for _, host in ipairs(hosts) do
    local n = 0
    for _, d in ipairs(devices[host]) do if d.kind ~= "cpu" then n = n + 1 end end
    used = math.max(used, n)
    gpus = math.max(gpus, n, n > 0 and whole_gpus(t, host) or 0)
  end
  for _, replica in ipairs(p.replicas) do cores = cores + math.max(4, 2 * #replica.devices) end
  return gpus, used, math.ceil(cores / #hosts)
end

local BODY = [[
# Runs once per host, inside the step: each looks for the one list of UUIDs that it has, all of it.
# shellcheck disable=SC2016 # the variables are those of the step's shell
srun --ntasks-per-node=1 --kill-on-bad-exit=1 sh -c '
  list=$(nvidia-smi -L) chosen=
  for group in $TPL_DEVICES; do
    found=$group
    for uuid in $(echo "$group" | tr , " "); do
      case $list in *"$uuid"*) ;; *) found= ;; esac
    done
    chosen=${found:-$chosen}
  done
  if [ -n "$chosen" ]; then
    export CUDA_VISIBLE_DEVICES="$chosen"
  else
    echo "$(hostname): not the GPUs of the plan; choosing by topology among those of this job" >&2
    tpl plan "$TPL_MODEL" $TPL_WORDS || exit $?
  fi
  exec tpl run "$TPL_MODEL" $TPL_WORDS "$@"
' tpl "$@"
]]

local CPU_BODY = [[
# shellcheck disable=SC2016 # the variables are those of the step's shell
srun --ntasks-per-node=1 --kill-on-bad-exit=1 sh -c 'exec tpl run "$TPL_MODEL" $TPL_WORDS "$@"' tpl "$@"
]]

-- Words without blanks: the step's shell splits the list at them.
local function words_text(s)
  local out = {}
  for _, w in ipairs(facts.words(s.facts, s.p, s.deploy)) do
    if w:find("^[%w_./:,+=@%%-]+$") then
      out[#out + 1] = w
    else
      s.warnings[#s.warnings + 1] = { code = "word_left_out",
        message = ("'%s' cannot be passed through the job; give it after the script's name"):format(w) }
    end
  end
  return table.concat(out, " ")
end

--- Write the text.
function M.write(s)
  local f, hosts, devices = s.facts, hosts_of(s.p)
  local gpus, used, cpus = numbers(s.p, s.t, hosts, devices)
  local out = { "#!/bin/sh", shell.comment(("Start %s with tpl on %d host%s, as `tpl plan --emit slurm` placed it."):format(f.model, #hosts,
    #hosts > 1 and "s" or "")) }
  if f.plan_hash then out[#out + 1] = shell.comment("Plan " .. f.plan_hash) end
  out[#out + 1] = "#SBATCH --job-name=tpl-" .. f.name
  out[#out + 1] = "#SBATCH --nodes=" .. #hosts
  out[#out + 1] = "#SBATCH --ntasks-per-node=1"
  out[#out + 1] = "#SBATCH --cpus-per-task=" .. cpus
  if gpus > 0 then
    out[#out + 1] = "#SBATCH --gpus-per-node=" .. gpus
    if used < gpus then
      out[#out + 1] = shell.comment(("The plan uses %d of %d GPUs: Slurm cannot be asked for particular ones, so the job takes"):format(used, gpus))
      out[#out + 1] = shell.comment(("all and chooses. With --gpus-per-node=%d it gets any %d; then say in deploy.lua what"):format(used, used))
      out[#out + 1] = "# must hold: require = { link = \"nvlink\" }."
    end
  end
  for i, host in ipairs(hosts) do
    local said = {}
    for k, d in ipairs(devices[host]) do said[k] = names.text(d) end
    out[#out + 1] = shell.comment(("Host %d (%s): %s"):format(i - 1, host, table.concat(said, ", ")))
  end
  out[#out + 1] = "set -eu\n"
  for _, line in ipairs(shell.exports(s.env)) do out[#out + 1] = line end
  out[#out + 1] = "export TPL_MODEL=" .. shell.quote(f.file or f.model)
  out[#out + 1] = "export TPL_WORDS=" .. shell.quote(words_text(s))
  if gpus > 0 then
    local groups = {}
    for _, host in ipairs(hosts) do
      local uuids = {}
      for _, d in ipairs(devices[host]) do uuids[#uuids + 1] = known(d.uuid) end
      if #uuids == #devices[host] then groups[#groups + 1] = table.concat(uuids, ",") end
    end
    if #groups < #hosts then
      s.warnings[#s.warnings + 1] = { code = "not_pinned", message = "the topology has no UUIDs: the job chooses by topology only" }
    end
    out[#out + 1] = "export TPL_DEVICES=" .. shell.quote(table.concat(groups, " "))
  end
  out[#out + 1] = ""
  out[#out + 1] = gpus > 0 and BODY or CPU_BODY
  return table.concat(out, "\n")
end

return M
