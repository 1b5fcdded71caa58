-- SPDX-License-Identifier: Apache-2.0
--- Checks of the GPUs: health, use by others, one kind in a group, MIG.
local finding = require("tpl.doctor.finding")
local pci_of = require("tpl.doctor.pci")

local ok, skip, warn, fail, some = finding.ok, finding.skip, finding.warn, finding.fail, finding.some

local function no_gpu(f) return #f.gpus == 0 and skip("no GPU is known (no topology, no /proc/driver/nvidia/gpus, none in /sys/bus/pci/devices)") end

-- -- The GPUs of a group ----------------------------------------------------------------------------------------------

--- Compare one fact over the group; gives the distinct values with who has them.
local function values_of(f, read)
  local order, by, known = {}, {}, 0
  for _, gpu in ipairs(f.group) do
    local value = read(gpu)
    if value ~= nil then
      known = known + 1
      if not by[value] then
        by[value] = {}
        order[#order + 1] = value
      end
      table.insert(by[value], tostring(gpu.index))
    end
  end
  return order, by, known
end

local function spread(order, by, show)
  local parts = {}
  for i, value in ipairs(order) do parts[i] = string.format("GPU %s: %s", table.concat(by[value], " "), show and show(value) or value) end
  return table.concat(parts, "; ")
end

local function equal(f, what, read, show, fix)
  if #f.group < 2 then return skip("fewer than two GPUs would be used") end
  local order, by, known = values_of(f, read)
  if known < 2 then return skip("%s of the GPUs is not known", what) end
  if #order > 1 then return warn(spread(order, by, show), fix) end
  return ok("%d GPUs: %s", known, show and show(order[1]) or order[1])
end

local SAME = "group by kind: devices = { only = { UUIDs of one kind } } in deploy.lua, or require = { same_gpu = true }; or give shares by memory"

local function gpu_model(f)
  return equal(f, "the name", function(gpu) return gpu.name end, nil, SAME)
end

local function gpu_memory(f)
  return equal(f, "the memory", function(gpu) return gpu.mem_bytes end, function(bytes) return string.format("%.1f GiB", bytes / 2 ^ 30) end, SAME)
end

local function gpu_vbios(f)
  return equal(f, "the VBIOS", function(gpu) return gpu.vbios and not gpu.vbios:find("%?") and gpu.vbios or nil end, nil,
    "bring the GPUs of a group to one VBIOS, and compare power limits: nvidia-smi --query-gpu=uuid,vbios_version,power.limit --format=csv")
end

-- Reasons of tpl.topo.usable that are not about the card's health, or have a check of their own.
local OTHER_REASON = { "^mig", "^fabric", "busy", "visible", "hidden", "driver", "stated", "label", "service" }

local function is_ill(code)
  for _, pattern in ipairs(OTHER_REASON) do if tostring(code):find(pattern) then return false end end
  return true
end

local function positive(x) return type(x) == "number" and x > 0 end

local function gpu_health(f)
  local gone = no_gpu(f)
  if gone then return gone end
  local bad, known = {}, 0
  for _, gpu in ipairs(f.gpus) do
    local health, said = type(gpu.health) == "table" and gpu.health or {}, {}
    if next(health) then known = known + 1 end
    local function add(text) said[#said + 1] = text end
    for _, why in ipairs(type(gpu.why_not) == "table" and gpu.why_not or {}) do
      if is_ill(why.code) then add(why.message or why.code) end
    end
    local xids = type(health.xid) == "table" and health.xid or { health.xid }
    for _, code in ipairs(xids) do if positive(code) then add("Xid " .. code) end end
    local rows = health.remapped
    if type(rows) == "table" and rows.pending == true and #said == 0 then add("row remapping waits for a reset") end
    if type(rows) == "table" and rows.failure == true and #said == 0 then add("row remapping failed") end
    if type(rows) == "table" and positive(rows.uncorrectable) then add("remapped rows after uncorrectable errors: " .. rows.uncorrectable) end
    if (positive(rows) or rows == true) and #said == 0 then add("remapped rows " .. tostring(rows)) end
    if positive(health.ecc) then add("uncorrected ECC errors: " .. health.ecc) end
    if #said > 0 then bad[#bad + 1] = gpu.title .. ": " .. table.concat(said, ", ") end
  end
  if #bad > 0 then return fail(some(bad), "drain the GPU and reset it: nvidia-smi --gpu-reset -i INDEX; nvidia-smi -q -d ECC,ROW_REMAPPER") end
  if known == 0 then return skip("the topology says nothing of health (ECC, remapped rows, Xid)") end
  return ok("no errors on %d GPUs", known)
end

local function gpu_missing(f)
  if #f.missed > 0 then
    local names = {}
    for i, gpu in ipairs(f.missed) do names[i] = gpu.pci end
    return warn("on the bus but not in the topology: " .. some(names),
      "nvidia-smi -L; if the GPU is lost see dmesg, if it is kept from the container give it --gpus all")
  end
  if not f.topo then return skip("no topology to compare the bus with") end
  local on_bus = pci_of.gpus(f.pci)
  if #on_bus == 0 then return skip("no GPU is visible in /sys/bus/pci/devices") end
  return ok("%d GPUs on the bus, all in the topology", #on_bus)
end

local function gpu_busy(f)
  local gone = no_gpu(f)
  if gone then return gone end
  local busy, known = {}, 0
  for _, gpu in ipairs(f.group) do
    local b = gpu.busy
    if type(b) == "table" and (b.pids or b.used_bytes) then
      known = known + 1
      local n, used = #(b.pids or {}), b.used_bytes or 0
      if n > 0 or used > 2 ^ 30 then
        busy[#busy + 1] = string.format("%s: %d processes, %.1f GiB in use", gpu.title, n, used / 2 ^ 30)
      end
    end
  end
  if known == 0 then return skip("the topology does not say who uses the GPUs") end
  if #busy > 0 then return warn(some(busy),
    "leave it out: devices = { exclude = { UUID } } in deploy.lua, or end the process: nvidia-smi --query-compute-apps=gpu_uuid,pid,name --format=csv") end
  return ok("%d GPUs are free", known)
end

local MIG_WORDS = { on = "on", enabled = "on", off = "off", disabled = "off" }

local function mig_word(word) return MIG_WORDS[tostring(word):lower()] end

local function gpu_unused(f)
  if #f.group < 2 then return skip("fewer than two GPUs would be used") end
  local idle, working = {}, 0
  for _, gpu in ipairs(f.group) do
    local b = gpu.busy
    if type(b) ~= "table" or not b.pids and not b.used_bytes then return skip("the topology does not say who uses the GPUs") end
    local cut = gpu.kind == "mig" or gpu.mig and mig_word(gpu.mig.mode) == "on"
    if #(b.pids or {}) > 0 or (b.used_bytes or 0) > 2 ^ 30 then working = working + 1 elseif not cut then idle[#idle + 1] = gpu.title end
  end
  if working == 0 then return ok("nothing runs on the %d GPUs", #f.group) end
  if #idle > 0 then
    return warn(string.format("%d of %d GPUs are at work, not %s", working, #f.group, some(idle)),
      "compare num_gpus, gpu_hidden, k8s_gpus and the engine's degree of parallelism with the number of GPUs")
  end
  return ok("all %d GPUs are at work", working)
end

-- -- MIG --------------------------------------------------------------------------------------------------------------

local function mig_mode(f)
  local gone = no_gpu(f)
  if gone then return gone end
  local cut, pending, known = {}, {}, 0
  for _, gpu in ipairs(f.group) do
    local mig = gpu.kind == "gpu" and gpu.mig or nil
    local mode, wanted = mig and mig_word(mig.mode), mig and mig_word(mig.pending)
    if mode then
      known = known + 1
      if wanted and wanted ~= mode then pending[#pending + 1] = gpu.title end
      if mode == "on" then cut[#cut + 1] = gpu.title end
    end
  end
  local fix = "leave it out (devices = { exclude = .. }, or CUDA_VISIBLE_DEVICES of whole GPUs by UUID), or nvidia-smi -i INDEX -mig 0"
  if #pending > 0 then return fail("MIG mode changes at the next reset: " .. some(pending), "nvidia-smi --gpu-reset -i INDEX, or reboot") end
  if #cut > 0 and #f.group > 1 then return fail(string.format("MIG is on in a group of %d: %s stands idle or breaks it", #f.group, some(cut)),
    fix) end
  if known == 0 then return skip("the topology does not say whether MIG is on") end
  return ok("MIG is off on the %d GPUs that would be used", known)
end

local function mig_slices(f)
  local by, n = {}, 0
  for _, gpu in ipairs(f.group) do
    if gpu.kind == "mig" then
      n = n + 1
      local parent = gpu.mig and gpu.mig.parent or "one GPU"
      by[parent] = by[parent] or {}
      table.insert(by[parent], gpu.uuid or gpu.uid)
    end
  end
  for _, word in ipairs(f.env.CUDA_VISIBLE_DEVICES and require("tpl.doctor.facts").visible_words(f.env.CUDA_VISIBLE_DEVICES) or {}) do
    if word:find("^MIG%-") and not f:device_of_word(word) then
      n = n + 1
      by["CUDA_VISIBLE_DEVICES"] = by["CUDA_VISIBLE_DEVICES"] or {}
      table.insert(by["CUDA_VISIBLE_DEVICES"], word)
    end
  end
  if n == 0 then
    if #f.gpus == 0 then return no_gpu(f) end
    return ok("no MIG slice is in the group")
  end
  if n > 1 then
    for parent, list in pairs(by) do
      if #list > 1 then return fail(string.format("%d slices of %s in one group: %s", #list, parent, some(list)),
        "one process per slice, tp=1: slices have no peer access") end
    end
    return fail(string.format("%d MIG slices in one group", n), "one process per slice, tp=1: slices have no peer access")
  end
  return ok("one MIG slice, alone")
end

return {
  { code = "gpu_health", group = "GPU", what = "ECC, remapped rows, lost GPUs", run = gpu_health, why = "one ill GPU stops its whole group" },
  { code = "gpu_missing", group = "GPU", what = "GPUs on the bus against GPUs of the driver", run = gpu_missing,
    why = "a lost or hidden GPU makes a smaller group than was bought" },
  { code = "gpu_busy", group = "GPU", what = "other users of the GPUs", run = gpu_busy,
    why = "their memory is not there for the model, and their work slows every step" },
  { code = "gpu_unused", group = "GPU", what = "a GPU that is idle beside working ones", run = gpu_unused,
    why = "a server started on fewer GPUs than it was given leaves one unused" },
  { code = "gpu_model", group = "GPU", what = "one model of GPU in a group", run = gpu_model, why = "a group runs at its slowest GPU and link" },
  { code = "gpu_memory", group = "GPU", what = "equal memory in a group", run = gpu_memory,
    why = "with equal shares the smallest card decides, the rest is stranded" },
  { code = "gpu_vbios", group = "GPU", what = "one VBIOS in a group", run = gpu_vbios,
    why = "another VBIOS may mean other clocks, power limits and NVLink firmware" },
  { code = "mig_mode", group = "GPU", what = "MIG in a group", run = mig_mode,
    why = "a GPU cut into slices has no NVLink and no peer access: it cannot be a member" },
  { code = "mig_slices", group = "GPU", what = "MIG slices in one group", run = mig_slices,
    why = "NCCL reports a duplicate GPU: slices of one GPU cannot talk to each other" },
}
