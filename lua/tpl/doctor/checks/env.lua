-- SPDX-License-Identifier: Apache-2.0
--- Checks of variables: which GPUs are taken, and what NCCL was told, openly or in its hidden files (facts/topology.md section 6).
local facts = require("tpl.doctor.facts")
local finding = require("tpl.doctor.finding")

local ok, skip, warn, fail, some = finding.ok, finding.skip, finding.warn, finding.fail, finding.some

-- -- Which GPUs -------------------------------------------------------------------------------------------------------

local function whole_gpus(f)
  local out = {}
  for _, gpu in ipairs(f.gpus) do if gpu.kind == "gpu" then out[#out + 1] = gpu end end
  return out
end

local function mixed_models(f)
  local first
  for _, gpu in ipairs(whole_gpus(f)) do
    if gpu.name then
      first = first or gpu.name
      if gpu.name ~= first then return first .. " and " .. gpu.name end
    end
  end
end

local function device_order(f)
  local order = f.env.CUDA_DEVICE_ORDER
  if order == "PCI_BUS_ID" then return ok("CUDA_DEVICE_ORDER=PCI_BUS_ID (%s)", f.env_where) end
  local fix = "export CUDA_DEVICE_ORDER=PCI_BUS_ID, and pin by UUID"
  local mixed, visible = mixed_models(f), f.env.CUDA_VISIBLE_DEVICES
  local by_index = visible ~= nil and visible:find("^%s*%d") ~= nil
  local said = order and "CUDA_DEVICE_ORDER=" .. order or "CUDA_DEVICE_ORDER is not set"
  if mixed then return fail(string.format("%s, and the host mixes %s: CUDA puts the fastest first, NVML follows the bus", said, mixed), fix) end
  if by_index then return warn(string.format("%s, and CUDA_VISIBLE_DEVICES=%s are indices in CUDA's order", said, visible), fix) end
  if order then return warn(string.format("%s (%s)", said, f.env_where), fix) end
  if not f.env_recorded then return skip("%s; the host's own environment is not recorded (file env, or proc/self/environ)", said) end
  if #whole_gpus(f) == 1 then return ok("%s, with one GPU", said) end
  if #f.gpus == 0 and f.host.origin == "live" then return skip("no GPU is known") end
  return warn(said .. " (" .. f.env_where .. ")", fix)
end

local function pinned(f)
  local text = f.env.CUDA_VISIBLE_DEVICES
  if text == nil or text == "" then
    if #f.gpus == 0 then return skip("CUDA_VISIBLE_DEVICES is not set and no GPU is known") end
    return ok("CUDA_VISIBLE_DEVICES is not set: all GPUs are taken")
  end
  local by_index, prefix = {}, nil
  for _, word in ipairs(facts.visible_words(text)) do
    if word:find("^%d+$") then by_index[#by_index + 1] = word end
    if word:find("^GPU%-") and #word < 40 then prefix = word end
  end
  if #by_index > 0 and not (#by_index == #whole_gpus(f) and #f.group == #by_index) then
    local names = {}
    for _, gpu in ipairs(f.group) do names[#names + 1] = gpu.uuid end
    return warn(string.format("CUDA_VISIBLE_DEVICES=%s (%s) names GPUs by index: after a restart, a swap or a driver update these may be other cards", text, f.env_where),
      #names > 0 and "CUDA_VISIBLE_DEVICES=" .. table.concat(names, ",")
        or "CUDA_VISIBLE_DEVICES=GPU-uuid,.. (nvidia-smi -L), or run with --manifest")
  end
  return ok("CUDA_VISIBLE_DEVICES=%s%s", text, prefix and " (a short UUID)" or "")
end

local function visible(f)
  local text = f.env.CUDA_VISIBLE_DEVICES
  if f.topo_error and f.topo_error:find("CUDA_VISIBLE_DEVICES", 1, true) then
    return fail(f.topo_error, "export CUDA_DEVICE_ORDER=PCI_BUS_ID, and name the GPUs by UUID (nvidia-smi -L)")
  end
  if text == nil then return ok("CUDA_VISIBLE_DEVICES is not set") end
  if #f.gpus == 0 then return skip("no GPU is known") end
  local words, seen = facts.visible_words(text), {}
  if #words == 0 then return fail(string.format("CUDA_VISIBLE_DEVICES is empty (%s): no GPU is visible", f.env_where),
    "unset CUDA_VISIBLE_DEVICES") end
  for i, word in ipairs(words) do
    local gpu = f:device_of_word(word)
    if not gpu then
      if word:find("^MIG%-") then return skip("%s: the topology has no slices", word) end
      return fail(string.format("CUDA_VISIBLE_DEVICES=%s (%s): '%s' is none of the %d GPUs; CUDA ignores it and all that follow (%d)", text,
        f.env_where, word, #f.gpus, #words - i),
        "nvidia-smi -L lists the UUIDs; a card may have been replaced")
    end
    if seen[gpu] then return fail(string.format("CUDA_VISIBLE_DEVICES=%s (%s) names %s twice", text, f.env_where, gpu.title),
      "name each GPU once") end
    seen[gpu] = true
  end
  return ok("CUDA_VISIBLE_DEVICES=%s: %d devices, all there", text, #words)
end

local function hidden(f)
  local all = whole_gpus(f)
  if #all == 0 then return skip("no GPU is known") end
  local text, name = f.env.CUDA_VISIBLE_DEVICES, "CUDA_VISIBLE_DEVICES"
  local taken = {}
  for _, gpu in ipairs(f.group) do taken[gpu] = true end
  local nvidia = f.env.NVIDIA_VISIBLE_DEVICES
  if text == nil and nvidia and nvidia ~= "" and nvidia ~= "all" and nvidia ~= "void" then
    taken, text, name = {}, nvidia, "NVIDIA_VISIBLE_DEVICES"
    for _, word in ipairs(nvidia == "none" and {} or facts.visible_words(nvidia)) do
      local gpu = f:device_of_word(word)
      if gpu then taken[gpu] = true end
    end
  end
  local idle = {}
  for _, gpu in ipairs(all) do
    local cut = gpu.mig and gpu.mig.mode == "on"
    if not taken[gpu] and not cut then idle[#idle + 1] = gpu.title .. (gpu.name and ", " .. gpu.name or "") end
  end
  if #idle == 0 then return ok("all %d GPUs are visible", #all) end
  return warn(string.format("%s=%s (%s) leaves %d of %d GPUs idle: %s", name, text or "", f.env_where, #idle, #all, some(idle)),
    "unset " .. name .. ", or add the UUIDs that were meant (nvidia-smi -L)")
end

local COUNTS = { "NUM_GPUS", "TENSOR_PARALLEL_SIZE", "TP_SIZE", "NPROC_PER_NODE", "LOCAL_WORLD_SIZE", "NUM_SHARD", "SLURM_GPUS_ON_NODE" }

local function num_gpus(f)
  local any
  for _, name in ipairs(COUNTS) do
    local n = tonumber(f.env[name] or "")
    if n then
      if #f.group == 0 then return skip("%s=%d, and no GPU is known", name, n) end
      if n > #f.group then return fail(string.format("%s=%d (%s), but %d GPUs are visible", name, n, f.env_where, #f.group),
        string.format("%s=%d", name, #f.group)) end
      if n < #f.group and name ~= "SLURM_GPUS_ON_NODE" then
        return warn(string.format("%s=%d (%s), but %d GPUs are visible: %d stand idle", name, n, f.env_where, #f.group, #f.group - n),
          string.format("%s=%d, or hide the others and give them to another service", name, #f.group))
      end
      any = any or string.format("%s=%d, as many as are visible", name, n)
    end
  end
  return any and ok(any) or skip("none of %s is set", table.concat(COUNTS, ", "))
end

-- -- What NCCL was told -----------------------------------------------------------------------------------------------

local function said(name, value, where) return string.format("%s=%s (%s)", name, value, where) end

--- Say how a wrong setting is taken away where it stands.
local function unset(name, where)
  if where and where:find("nccl%.conf") then return string.format("delete the line %s from %s", name, where:match("^(.-):%d+$") or where) end
  return "unset " .. name
end

local function nvlink_pairs(f)
  local n = 0
  for _, p in ipairs(f:pairs_of(f.group)) do if p.link.kind == "nvlink" then n = n + 1 end end
  return n
end

local function p2p_disable(f)
  local value, where = f:setting("NCCL_P2P_DISABLE")
  if value ~= "1" then return ok(value and "NCCL_P2P_DISABLE=" .. value or "NCCL_P2P_DISABLE is not set") end
  local n = nvlink_pairs(f)
  local text = said("NCCL_P2P_DISABLE", value, where) .. (n > 0 and string.format(", and %d pairs have NVLink", n) or "")
  return (n > 0 and fail or warn)(text, unset("NCCL_P2P_DISABLE", where) .. " (once ACS and IOMMU are in order)")
end

local LEVELS = { LOC = 0, NVL = 1, NVB = 1, C2C = 1, PIX = 2, PXB = 3, P2C = 4, PXN = 4, PHB = 5, NODE = 5, SYS = 6 }

local function p2p_level(f)
  local value, where = f:setting("NCCL_P2P_LEVEL")
  if not value then return ok("NCCL_P2P_LEVEL is not set") end
  local word = value:upper()
  if value == "0" then word = "LOC" end
  if word == "LOC" then return fail(said("NCCL_P2P_LEVEL", value, where) .. " forbids peer access between all GPUs, NVLink included",
    unset("NCCL_P2P_LEVEL", where)) end
  if not LEVELS[word] and not value:find("^%d+$") then
    return fail(said("NCCL_P2P_LEVEL", value, where) .. " is none of LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS: NCCL ignores it",
      unset("NCCL_P2P_LEVEL", where))
  end
  if LEVELS[word] == 1 and #f.group > 1 and f.topo and #(f.topo.links or {}) > 0 and nvlink_pairs(f) == 0 then
    return warn(said("NCCL_P2P_LEVEL", value, where) .. " allows NVLink only, and no pair has it: all traffic takes /dev/shm",
      unset("NCCL_P2P_LEVEL", where))
  end
  return ok("NCCL_P2P_LEVEL=%s", value)
end

local function shm_disable(f)
  local value, where = f:setting("NCCL_SHM_DISABLE")
  if value ~= "1" then return ok(value and "NCCL_SHM_DISABLE=" .. value or "NCCL_SHM_DISABLE is not set") end
  return warn(said("NCCL_SHM_DISABLE", value, where), unset("NCCL_SHM_DISABLE", where) .. " and give /dev/shm room")
end

local function topo_file(f)
  local value, where = f:setting("NCCL_TOPO_FILE")
  if not value then return ok("NCCL_TOPO_FILE is not set") end
  local path = value:gsub("^/+", "")
  if f.host:exists(path) then
    local text = f.host:read(path)
    if text and not text:find("<system", 1, true) then
      return warn(said("NCCL_TOPO_FILE", value, where) .. " holds no <system>: NCCL skips it without a word",
        "give a dump made with NCCL_TOPO_DUMP_FILE")
    end
    return ok("NCCL_TOPO_FILE=%s is there", value)
  end
  return fail(said("NCCL_TOPO_FILE", value, where) .. " is absent: NCCL says so at INFO only, and probes instead",
    "correct the path, or mount the file into the container")
end

local OLD_NAMES = { NCCL_MIN_NCHANNELS = "NCCL_MIN_CTAS", NCCL_MAX_NCHANNELS = "NCCL_MAX_CTAS",
  NCCL_ASYNC_ERROR_HANDLING = "TORCH_NCCL_ASYNC_ERROR_HANDLING" }

local function old_names(f)
  local found, fixes = {}, {}
  for _, name in ipairs { "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_ASYNC_ERROR_HANDLING" } do
    local value, where = f:setting(name)
    if value then
      found[#found + 1] = said(name, value, where)
      fixes[#fixes + 1] = string.format("%s=%s (the new name of %s)", OLD_NAMES[name], value, name)
    end
  end
  if #found == 0 then return ok("no old name is used") end
  return warn("old names: " .. some(found), table.concat(fixes, "; "))
end

local function conf_files(f)
  local named = f.env.NCCL_CONF_FILE
  if named and not f.host:exists((named:gsub("^~/", (f.env.HOME or "") .. "/"):gsub("^/+", ""))) then
    return warn(string.format("NCCL_CONF_FILE=%s (%s) is absent", named, f.env_where), "correct the path or unset NCCL_CONF_FILE")
  end
  local found, n = {}, 0
  for _, file in ipairs(f.nccl_files) do
    local names = {}
    for name, setting in pairs(file.settings) do names[#names + 1] = name .. "=" .. setting.value end
    table.sort(names)
    n = n + #names
    if #names > 0 then found[#found + 1] = file.path .. ": " .. some(names, 8) end
  end
  if n == 0 and not f.host:list("etc") then return skip("/etc is not recorded") end
  if n == 0 then return ok("no settings in NCCL_CONF_FILE, ~/.nccl.conf or /etc/nccl.conf") end
  return warn("hidden settings in " .. table.concat(found, "; "),
    "check that each is meant; move them to the service's environment, where they are seen")
end

local TOKENS = {
  NCCL_ALGO = { tree = 1, ring = 1, collnet = 1, collnetchain = 1, collnetdirect = 1, nvls = 1, nvlstree = 1, pat = 1 },
  NCCL_PROTO = { ll = 1, ll128 = 1, simple = 1 },
}

local function algo(f)
  local shown = {}
  for _, name in ipairs { "NCCL_ALGO", "NCCL_PROTO" } do
    local value, where = f:setting(name)
    if value then
      shown[#shown + 1] = name .. "=" .. value
      for part in value:lower():gmatch("[^;]+") do
        for token in part:gsub("^[%w_]*:", ""):gsub("^%^", ""):gmatch("[^,%s]+") do
          if not TOKENS[name][token] then
            return fail(string.format("%s: '%s' is unknown", said(name, value, where), token), unset(name, where) .. ", and let NCCL choose")
          end
        end
      end
      if not value:find("^%^") then shown.forced = shown.forced or { name, value, where } end
    end
  end
  if shown.forced then return warn(said(unpack(shown.forced)) .. " forces a choice for every size and every group", unset(shown.forced[1],
    shown.forced[3])) end
  return ok(#shown > 0 and table.concat(shown, " ") or "NCCL_ALGO and NCCL_PROTO are not set")
end

local function hidden_errors(f)
  local value, where = f:setting("NCCL_IGNORE_DISABLED_P2P")
  if not value or value == "0" then return ok("NCCL_IGNORE_DISABLED_P2P is not set") end
  return warn(said("NCCL_IGNORE_DISABLED_P2P", value, where) .. ": NVLink peers that refuse P2P go unnoticed", unset("NCCL_IGNORE_DISABLED_P2P",
    where))
end

local checks = {
  { code = "cuda_device_order", group = "Variables", what = "CUDA_DEVICE_ORDER", run = device_order,
    why = "CUDA numbers the fastest GPU first, nvidia-smi by bus: index 0 may be two different cards" },
  { code = "uuid_pin", group = "Variables", what = "GPUs pinned by UUID", run = pinned,
    why = "indices move after a restart or a repair: another pair, with other links, then serves the model" },
  { code = "cuda_visible_devices", group = "Variables", what = "CUDA_VISIBLE_DEVICES names GPUs that are there", run = visible,
    why = "CUDA stops reading the list at the first name it does not know, without an error" },
  { code = "gpu_hidden", group = "Variables", what = "GPUs that a variable hides", run = hidden, why = "a GPU that is paid for stands idle" },
  { code = "num_gpus", group = "Variables", what = "NUM_GPUS and its kin against visible GPUs", run = num_gpus,
    why = "fewer: a GPU stands idle; more: the start fails" },
  { code = "nccl_p2p_disable", group = "Variables", what = "NCCL_P2P_DISABLE", run = p2p_disable,
    why = "peer traffic then goes through shared memory, then the network" },
  { code = "nccl_p2p_level", group = "Variables", what = "NCCL_P2P_LEVEL", run = p2p_level,
    why = "left at LOC, even an NVSwitch host sends everything through /dev/shm" },
  { code = "nccl_shm_disable", group = "Variables", what = "NCCL_SHM_DISABLE", run = shm_disable,
    why = "pairs without peer access then use network sockets inside one host" },
  { code = "nccl_topo_file", group = "Variables", what = "NCCL_TOPO_FILE", run = topo_file,
    why = "a wrong path is no error: the topology is probed, and the file has no effect" },
  { code = "nccl_old_names", group = "Variables", what = "old names of NCCL variables", run = old_names,
    why = "NCCL_MIN_NCHANNELS is the old name of NCCL_MIN_CTAS: when both are set or the old one goes, tuning changes silently" },
  { code = "nccl_conf_file", group = "Variables", what = "hidden NCCL settings in files", run = conf_files,
    why = "they act on every job and are not in its environment" },
  { code = "nccl_algo", group = "Variables", what = "NCCL_ALGO and NCCL_PROTO", run = algo,
    why = "an unknown word is an error at init; a forced choice is wrong for most sizes" },
  { code = "nccl_ignore_disabled_p2p", group = "Variables", what = "NCCL_IGNORE_DISABLED_P2P", run = hidden_errors,
    why = "it silences the one message that names a broken fabric" },
}

for _, check in ipairs(checks) do check.needs_env = check.code ~= "nccl_conf_file" end

return checks
