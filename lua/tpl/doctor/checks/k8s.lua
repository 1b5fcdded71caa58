-- SPDX-License-Identifier: Apache-2.0
--- Checks of Kubernetes manifests (--k8s): GPUs asked for and used, cores, and shared memory.
local finding = require("tpl.doctor.finding")
local quantity = require("tpl.doctor.quantity")

local ok, skip, warn, fail, some = finding.ok, finding.skip, finding.warn, finding.fail, finding.some

local COUNT_ENV = { "NUM_GPUS", "TENSOR_PARALLEL_SIZE", "TP_SIZE", "NUM_SHARD", "NPROC_PER_NODE" }
local COUNT_ARGS = { ["--tensor-parallel-size"] = true, ["-tp"] = true, ["--tp"] = true, ["--tp-size"] = true, ["--tp_size"] = true,
  ["--num-shard"] = true, ["--nproc-per-node"] = true,
  ["--nproc_per_node"] = true, ["--num-gpus"] = true }
local PP_ARGS = { ["--pipeline-parallel-size"] = true, ["-pp"] = true, ["--pp"] = true, ["--pp-size"] = true, ["--pp_size"] = true }
local NODE_ARGS = { ["--nnodes"] = true, ["--node-rank"] = true, ["--distributed-executor-backend"] = true }

local function each(list, f)
  local out = {}
  for _, c in ipairs(list) do
    local text = f(c)
    if text then out[#out + 1] = text end
  end
  return out
end

--- Give the GPU resources of a container: nvidia.com/gpu and the MIG resources.
local function gpus_in(resources)
  local n, name
  for key, value in pairs(resources) do
    if key == "nvidia.com/gpu" or tostring(key):find("^nvidia%.com/mig%-") or tostring(key):find("^nvidia%.com/gpu%.") then
      local count = quantity.parse(value)
      n, name = (n or 0) + (count or 0), name or key
    end
  end
  return n, name
end

local function none(f)
  if not f.k8s then return skip("no --k8s FILE was given") end
end

--- Containers that want a GPU by resource, claim, variable or argument.
local function gpu_containers(f)
  local out = {}
  for _, c in ipairs(f.k8s.containers) do
    local wants = gpus_in(c.limits) or gpus_in(c.requests) or c.claims > 0
    for _, name in ipairs(COUNT_ENV) do wants = wants or c.env[name] end
    for _, word in ipairs(c.args) do wants = wants or COUNT_ARGS[word:match("^[^=]+")] end
    if wants then out[#out + 1] = c end
  end
  return out
end

local function flag(c, names)
  for i, word in ipairs(c.args) do
    local name, value = word:match("^([^=]+)=(.*)$")
    if names[name or word] then
      value = value or c.args[i + 1] or ""
      local variable = value:match("^%$%(([%w_]+)%)$") or value:match("^%$?{?([%a_][%w_]*)}?$") -- $(NAME), ${NAME}
      return tonumber(value) or tonumber(variable and c.env[variable] or ""), name or word
    end
  end
end

--- How many GPUs a container means to use, and who says so.
local function meant(c)
  local list = {}
  for _, name in ipairs(COUNT_ENV) do
    local n = tonumber(c.env[name] or "")
    if n then list[#list + 1] = { n, name .. "=" .. c.env[name] } end
  end
  local tp, name = flag(c, COUNT_ARGS)
  if tp then
    local pp = flag(c, PP_ARGS)
    local text = string.format("%s %d", name, tp)
    if pp and pp > 1 then tp, text = tp * pp, string.format("%s and pipeline %d (%d GPUs)", text, pp, tp * pp) end
    list[#list + 1] = { tp, text, true }
  end
  return list
end

local function gpus(f)
  local gone = none(f)
  if gone then return gone end
  local wrong, good = {}, 0
  local list = gpu_containers(f)
  for _, c in ipairs(list) do
    local requested, limited = gpus_in(c.requests), gpus_in(c.limits)
    local have = limited or requested
    if requested and not limited then
      wrong[#wrong + 1] = string.format("%s: nvidia.com/gpu %d in requests and none in limits: Kubernetes refuses it", c.where, requested)
    elseif requested and limited and requested ~= limited then
      wrong[#wrong + 1] = string.format("%s: requests %d GPUs and limits %d: they must be equal", c.where, requested, limited)
    end
    for _, m in ipairs(meant(c)) do
      if not have and c.claims == 0 then
        wrong[#wrong + 1] = string.format("%s: %s, and neither requests nor limits have nvidia.com/gpu", c.where, m[2])
      elseif have and m[3] and (m[1] == have * c.pods or (m[1] > have and select(2, flag(c, NODE_ARGS)))) then
        good = good + 1 -- several pods serve one model
      elseif have and m[1] ~= have then
        wrong[#wrong + 1] = string.format("%s: %s, and nvidia.com/gpu is %d: %s", c.where, m[2], have,
          m[1] < have and string.format("%d stand idle", have - m[1]) or "the start fails")
      else good = good + 1 end
    end
  end
  if #wrong > 0 then return fail(some(wrong),
    "resources: { limits: { nvidia.com/gpu: N } } with N = NUM_GPUS = tensor-parallel-size; requests may be left out") end
  if #list == 0 then return skip("no container asks for a GPU") end
  return ok(good > 0 and "NUM_GPUS and its kin equal nvidia.com/gpu"
    or string.format("%d containers ask for GPUs; none states a number to compare with", #list))
end

local function cpu(f)
  local gone = none(f)
  if gone then return gone end
  local list = gpu_containers(f)
  if #list == 0 then return skip("no container asks for a GPU") end
  local wrong = each(list, function(c)
    if c.init then return nil end
    local r, l = quantity.parse(c.requests.cpu), quantity.parse(c.limits.cpu)
    if c.qos ~= "Guaranteed" then
      local why
      if r and l and r ~= l then why = string.format(": cpu requests %g, limits %g", r, l)
      elseif not l then why = r and ": cpu has requests and no limits" or ": no cpu in requests or limits"
      else
        local rm, lm = quantity.parse(c.requests.memory), quantity.parse(c.limits.memory)
        if not lm then why = ": memory has no limit" elseif rm ~= lm then
          why = ": memory requests and limits differ" else why = ": another container of the pod has no equal requests and limits" end
      end
      return string.format("%s is %s%s", c.where, c.qos, why)
    end
    if r and r ~= math.floor(r) then return string.format("%s: cpu %g is no whole number", c.where, r) end
  end)
  if #wrong > 0 then
    return warn(some(wrong) .. ": no exclusive cores",
      "give every container of the pod equal requests and limits of cpu and memory, cpu a whole number; kubelet --cpu-manager-policy=static")
  end
  return ok("Guaranteed, with whole cores: exclusive under the static CPU manager")
end

local function shm_volume(c) return c.mounts["/dev/shm"] end

local function shm(f)
  local gone = none(f)
  if gone then return gone end
  local list = gpu_containers(f)
  if #list == 0 then return skip("no container asks for a GPU") end
  local wrong, notes = {}, {}
  for _, c in ipairs(list) do
    local n = gpus_in(c.limits) or gpus_in(c.requests) or 0
    for _, m in ipairs(meant(c)) do n = math.max(n, m[1]) end
    local volume = shm_volume(c)
    local dir = volume and type(volume.emptyDir) == "table" and volume.emptyDir
    local host = volume and type(volume.hostPath) == "table"
    if c.init then n = 0 end
    if n > 1 and not volume and c.pod.hostIPC ~= true then
      wrong[#wrong + 1] = string.format("%s uses %d GPUs and mounts nothing at /dev/shm: it has 64 MiB there", c.where, n)
    elseif dir and dir.medium ~= "Memory" then
      wrong[#wrong + 1] = string.format("%s: the emptyDir at /dev/shm has no medium: Memory, so it lies on the disk", c.where)
    elseif dir or host then notes[#notes + 1] = c.where end
  end
  if #wrong > 0 then
    return fail(some(wrong), "volumes: [{ name: shm, emptyDir: { medium: Memory, sizeLimit: 8Gi } }] and volumeMounts: [{ name: shm, mountPath: /dev/shm }]")
  end
  return ok(#notes > 0 and "memory at /dev/shm: " .. some(notes) or "no container uses more than one GPU, or hostIPC is set")
end

local function shm_size(f)
  local gone = none(f)
  if gone then return gone end
  local wrong, soft, checked = {}, {}, 0
  for _, c in ipairs(f.k8s.containers) do
    local volume = shm_volume(c)
    local dir = volume and type(volume.emptyDir) == "table" and volume.emptyDir or nil
    local size = dir and quantity.parse(dir.sizeLimit)
    local memory = quantity.parse(c.limits.memory)
    local wanted = c.env.SHM_SIZE and quantity.size(c.env.SHM_SIZE)
    if wanted or (dir and dir.medium == "Memory") then checked = checked + 1 end
    local function add(list, ...) list[#list + 1] = c.where .. ": " .. string.format(...) end
    if wanted and memory and wanted >= memory then add(wrong, "SHM_SIZE=%s is not below the memory limit %s", c.env.SHM_SIZE,
      tostring(c.limits.memory)) end
    if wanted and size and wanted > size then add(wrong, "SHM_SIZE=%s, and sizeLimit of /dev/shm is %s", c.env.SHM_SIZE, tostring(dir.sizeLimit)) end
    if wanted and not volume and c.pod.hostIPC ~= true then add(wrong,
      "SHM_SIZE=%s, and nothing is mounted at /dev/shm: the variable does not make it larger than 64 MiB", c.env.SHM_SIZE) end
    if dir and dir.medium == "Memory" and size and memory and size >= memory then
      add(wrong, "sizeLimit %s of /dev/shm is not below the memory limit %s, which it counts against", tostring(dir.sizeLimit),
        tostring(c.limits.memory))
    elseif dir and dir.medium == "Memory" and size and size < 2 ^ 30 then
      add(soft, "sizeLimit %s of /dev/shm is under 1Gi", tostring(dir.sizeLimit))
    elseif dir and dir.medium == "Memory" and not size and memory then
      add(soft, "/dev/shm has no sizeLimit: it may fill the memory limit %s", tostring(c.limits.memory))
    end
  end
  local fix = "limits.memory = what the process needs + sizeLimit; sizeLimit = SHM_SIZE; 1Gi to 16Gi is usual"
  if #wrong > 0 then return fail(some(wrong), fix) end
  if #soft > 0 then return warn(some(soft), fix) end
  if checked == 0 then return skip("no SHM_SIZE and no memory-backed /dev/shm") end
  return ok("%d containers with /dev/shm below their memory limit", checked)
end

local function host_ipc(f)
  local gone = none(f)
  if gone then return gone end
  local found = each(f.k8s.containers, function(c) return c.pod.hostIPC == true and not c.init and c.where or nil end)
  if #found > 0 then return warn("hostIPC: true in " .. some(found),
    "an emptyDir { medium: Memory } at /dev/shm does without it, and pods then cannot read each other's memory") end
  return ok("hostIPC is not used")
end

local function pinned(f)
  local gone = none(f)
  if gone then return gone end
  local list = gpu_containers(f)
  if #list == 0 then return skip("no container asks for a GPU") end
  local found = each(list, function(c)
    local value = c.env.CUDA_VISIBLE_DEVICES or c.env.NVIDIA_VISIBLE_DEVICES
    if value and value ~= "all" and value ~= "void" and value ~= "none" then
      return string.format("%s: %s=%s", c.where, c.env.CUDA_VISIBLE_DEVICES and "CUDA_VISIBLE_DEVICES" or "NVIDIA_VISIBLE_DEVICES", value)
    end
  end)
  if #found > 0 then
    return warn(some(found) .. ": the device plugin chooses the GPUs, and such a variable goes past it or hides what it gave",
      "take it out; choose by a DRA ResourceClaim on the uuid, or refuse the wrong pair at start with --manifest")
  end
  return ok("the device plugin chooses")
end

return {
  { code = "k8s_gpus", group = "Kubernetes", what = "NUM_GPUS against nvidia.com/gpu", run = gpus,
    why = "fewer used than asked for: one stands idle and is billed; more: the start fails" },
  { code = "k8s_cpu", group = "Kubernetes", what = "exclusive cores", run = cpu,
    why = "a Burstable pod gets no cores of its own and no NUMA alignment: token times jitter" },
  { code = "k8s_shm", group = "Kubernetes", what = "/dev/shm of the pod", run = shm,
    why = "the default of 64 MiB is too small for NCCL and for the queues of several workers" },
  { code = "k8s_shm_size", group = "Kubernetes", what = "SHM_SIZE and /dev/shm against the memory limit", run = shm_size,
    why = "what is written to a memory-backed /dev/shm counts against the limit: the pod is killed (OOM)" },
  { code = "k8s_host_ipc", group = "Kubernetes", what = "hostIPC", run = host_ipc,
    why = "it shares the host's /dev/shm with every pod that asks: no limit and no isolation" },
  { code = "k8s_visible_devices", group = "Kubernetes", what = "visible devices set by hand", run = pinned,
    why = "two pods may then use one GPU while another is idle" },
}
