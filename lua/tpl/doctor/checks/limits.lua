-- SPDX-License-Identifier: Apache-2.0
--- Checks of limits: shared memory, locked memory, files, stacks, and what a container may do (facts/topology.md section 8).
local bit = require("bit")
local finding = require("tpl.doctor.finding")

local ok, skip, warn, fail, bad = finding.ok, finding.skip, finding.warn, finding.fail, finding.bad

local MIB, GIB = 2 ^ 20, 2 ^ 30

local function size_text(bytes)
  if bytes >= GIB then return string.format("%.4g GiB", bytes / GIB) end
  if bytes >= MIB then return string.format("%.4g MiB", bytes / MIB) end
  return string.format("%.4g KiB", bytes / 1024)
end

-- -- /dev/shm ---------------------------------------------------------------------------------------------------------

local UNIT = { [""] = 1, k = 2 ^ 10, m = 2 ^ 20, g = 2 ^ 30, t = 2 ^ 40 }

local function mem_total(f)
  local kib = f.host:field("proc/meminfo", "MemTotal")
  kib = kib and tonumber(kib:match("^%d+"))
  return kib and kib * 1024
end

--- Read a tmpfs option: size=65536k, size=50%; without one a tmpfs takes half of the memory (Linux, tmpfs.rst).
local function tmpfs_size(f, options)
  local n, unit = options:match("%f[%w]size=(%d+)([kKmMgGtT%%]?)")
  local total = mem_total(f)
  if unit == "%" then return total and total * tonumber(n) / 100, "size=" .. n .. "%" end
  if n then return tonumber(n) * UNIT[unit:lower()], "size=" .. n .. unit end
  return total and total / 2, "no size option, so half of MemTotal in /proc/meminfo"
end

--- Find the mount of /dev/shm: the last one counts.
local function shm_mount(f)
  local kind, options, where
  for _, path in ipairs { "proc/mounts", "proc/self/mounts" } do
    local text = not kind and f.host:read(path)
    for line in (text or ""):gmatch("[^\n]+") do
      local _, at, t, o = line:match("^(%S+) (%S+) (%S+) (%S+)")
      if at == "/dev/shm" then kind, options, where = t, o, "/" .. path end
    end
  end
  if kind then return kind, options, where end
  for line in (f.host:read("proc/self/mountinfo") or ""):gmatch("[^\n]+") do
    local at = line:match("^%S+ %S+ %S+ %S+ (%S+) ")
    local t, _, o = line:match(" %- (%S+) (%S+) (%S+)")
    if at == "/dev/shm" and t then kind, options, where = t, o, "/proc/self/mountinfo" end
  end
  return kind, options, where
end

local function has_mounts(f) return f.host:exists("proc/mounts") or f.host:exists("proc/self/mounts") or f.host:exists("proc/self/mountinfo") end

local function dev_shm(f)
  if not has_mounts(f) then return skip("/proc/mounts and /proc/self/mountinfo are absent") end
  local kind, options, where = shm_mount(f)
  local fix = f.container and "docker run --shm-size=1g --ulimit memlock=-1 (or --ipc=host); Kubernetes: emptyDir { medium: Memory, sizeLimit: 8Gi } at /dev/shm"
    or "mount -o remount,size=8g /dev/shm"
  if not kind then return bad(f, "/dev/shm is not mounted" .. (f.container and " in this container" or ""), fix) end
  if kind ~= "tmpfs" and kind ~= "ramfs" then return warn(string.format("/dev/shm is %s, not tmpfs (%s)", kind, where), fix) end
  local bytes, why = tmpfs_size(f, options)
  if not bytes then return skip("/dev/shm has %s, and /proc/meminfo is absent", why) end
  local text = string.format("/dev/shm is %s (%s: %s)", size_text(bytes), where, why)
  if options:find("^ro,") or options:find(",ro,") then return bad(f, "/dev/shm is read-only (" .. where .. ")", "mount it read-write") end
  if bytes <= 512 * MIB then return bad(f, text, fix) end
  if bytes < GIB then return warn(text, fix) end
  return ok("%s", text)
end

local function shm_limit(f)
  local _, options = shm_mount(f)
  local path
  local limit
  for _, p in ipairs(f:cgroup_files("memory.max", "memory/memory.limit_in_bytes")) do
    local n = not limit and f.host:number(p)
    if n and n < 2 ^ 60 then limit, path = n, "/" .. p end
  end
  if not limit then return skip("no memory limit in /sys/fs/cgroup") end
  local bytes = options and tmpfs_size(f, options)
  if not bytes then return skip("the size of /dev/shm is unknown") end
  local text = string.format("/dev/shm may take %s of the memory limit of %s (%s)", size_text(bytes), size_text(limit), path)
  if bytes >= limit then return warn(text, "raise the memory limit by the size of /dev/shm, or give /dev/shm a size below it") end
  return ok("%s", text)
end

local function remove_ipc(f)
  if f.container then return skip("in a container systemd-logind has no say (%s)", f.container) end
  local value, where, read
  local paths = { "etc/systemd/logind.conf" }
  for _, dir in ipairs { "usr/lib/systemd/logind.conf.d", "etc/systemd/logind.conf.d", "run/systemd/logind.conf.d" } do
    for _, name in ipairs(f.host:list(dir) or {}) do if name:find("%.conf$") then paths[#paths + 1] = dir .. "/" .. name end end
  end
  for _, path in ipairs(paths) do
    local text = f.host:read(path)
    if text then read = read or "/" .. path end
    local v = text and ("\n" .. text):match("\n%s*RemoveIPC%s*=%s*(%w+)")
    if v then value, where = v:lower(), "/" .. path end
  end
  if not read then return skip("/etc/systemd/logind.conf is absent") end
  if value == "no" or value == "false" or value == "off" or value == "0" then return ok("RemoveIPC=%s (%s)", value, where) end
  return warn(value and string.format("RemoveIPC=%s (%s)", value, where) or string.format("%s does not set RemoveIPC: the default is yes", read),
    "echo 'RemoveIPC=no' in [Login] of /etc/systemd/logind.conf; systemctl restart systemd-logind (or run as a system user)")
end

-- -- rlimits ----------------------------------------------------------------------------------------------------------

--- Give a soft limit of proc/self/limits: a number, math.huge, or nil.
local function limit_of(f, name)
  local text = f.host:read("proc/self/limits")
  if not text then return nil end
  for line in text:gmatch("[^\n]+") do
    if line:sub(1, #name) == name then
      local soft, hard = line:sub(#name + 1):match("^%s+(%S+)%s+(%S+)")
      local function value(word) return word == "unlimited" and math.huge or tonumber(word) end
      return value(soft), value(hard), line:gsub("%s+", " ")
    end
  end
end

local NO_LIMITS = "/proc/self/limits is absent"

local function memlock(f)
  local soft, _, line = limit_of(f, "Max locked memory")
  if not soft then return skip(NO_LIMITS) end
  if soft == math.huge then return ok("Max locked memory is unlimited") end
  local total = mem_total(f)
  if total and soft >= total / 2 then return ok("Max locked memory is %s, half of the memory or more", size_text(soft)) end
  local rdma = f:rdma()
  local text = string.format("%s(/proc/self/limits)%s", line:match("^(.-)%s*$") .. " ", #rdma > 0 and ", and " .. rdma[1].name
    .. " registers its buffers" or "")
  local fix = f.container and "docker run --ulimit memlock=-1; Kubernetes: the limit of containerd (LimitMEMLOCK=infinity)"
    or "ulimit -l unlimited; '* - memlock unlimited' in /etc/security/limits.conf; LimitMEMLOCK=infinity in the systemd unit"
  return (#rdma > 0 and fail or warn)(text, fix)
end

local function fd_limit(f)
  local soft, hard, line = limit_of(f, "Max open files")
  if not soft then return skip(NO_LIMITS) end
  if soft >= 4096 then return ok("Max open files is %s", soft == math.huge and "unlimited" or string.format("%d", soft)) end
  local fix = string.format("ulimit -n %s; LimitNOFILE=1048576 in the systemd unit, docker run --ulimit nofile=1048576", hard and hard > soft
    and hard ~= math.huge and string.format("%d", hard) or "1048576")
  return (soft < 512 and fail or warn)(line .. " (/proc/self/limits)", fix)
end

local function stack_limit(f)
  local soft, _, line = limit_of(f, "Max stack size")
  if not soft then return skip(NO_LIMITS) end
  if soft == math.huge then return warn(line .. " (/proc/self/limits)", "ulimit -s 8192") end
  return ok("Max stack size is %s", size_text(soft))
end

-- -- Capabilities -----------------------------------------------------------------------------------------------------

--- Say whether a capability is effective; nil when proc/self/status does not tell.
local function has_cap(f, number)
  local hex = f.host:field("proc/self/status", "CapEff")
  if not hex or not hex:find("^%x+$") then return nil end
  hex = ("0"):rep(16 - #hex) .. hex
  local word = tonumber(number < 32 and hex:sub(-8) or hex:sub(-16, -9), 16)
  return bit.band(word, bit.lshift(1, number % 32)) ~= 0, hex
end

local function any_cap(hex) return hex:find("[1-9a-fA-F]") ~= nil end

--- Say how a sandbox was recognised: a container, a seccomp filter, or a reduced but not empty set of capabilities.
local function sandbox(f, hex)
  if f.container then return f.container end
  local mode = f.host:field("proc/self/status", "Seccomp")
  if mode == "2" then return "Seccomp: 2 in /proc/self/status" end
  if any_cap(hex) and mode ~= "0" then return "a reduced set of capabilities" end
end

local function cap(number, name, harmless)
  return function(f)
    local has, hex = has_cap(f, number)
    if has == nil then return skip("no CapEff in /proc/self/status") end
    if has then return ok("CapEff %s has %s", hex, name) end
    local how = sandbox(f, hex)
    if not how then return ok("no container and no seccomp filter: %s is not needed", name) end
    local why = harmless(f)
    if why then return ok("%s", why) end
    return warn(string.format("CapEff %s in /proc/self/status lacks %s (container: %s)", hex, name, how),
      string.format("docker run --cap-add %s; Kubernetes: securityContext.capabilities.add: [%s]%s", name, name,
        name == "SYS_NICE" and "; or NCCL_CUMEM_HOST_ENABLE=0" or "; and one user and pid namespace for all ranks"))
  end
end

return {
  { code = "dev_shm", group = "Limits", what = "size of /dev/shm", run = dev_shm,
    why = "NCCL's shared memory and the workers' queues live there: `failed to extend /dev/shm/nccl-..`, a bus error, or a time-out" },
  { code = "shm_memory_limit", group = "Limits", what = "/dev/shm against the memory limit", run = shm_limit,
    why = "what is written to /dev/shm counts as memory of the container: it is killed although it allocated little" },
  { code = "remove_ipc", group = "Limits", what = "RemoveIPC of systemd-logind", run = remove_ipc,
    why = "when a user's last session ends, logind deletes his /dev/shm files under a running job" },
  { code = "memlock", group = "Limits", what = "limit of locked memory", run = memlock,
    why = "RDMA buffers are locked: ibv_reg_mr and ibv_create_qp fail" },
  { code = "fd_limit", group = "Limits", what = "limit of open files", run = fd_limit,
    why = "each peer, channel and client takes some: random failures at init with many ranks" },
  { code = "stack_limit", group = "Limits", what = "stack limit", run = stack_limit,
    why = "unlimited makes thread libraries reserve huge stacks: threads fail to start" },
  { code = "cap_sys_nice", group = "Limits", what = "capability SYS_NICE in a container",
    run = cap(23, "SYS_NICE", function(f) return f:setting("NCCL_CUMEM_HOST_ENABLE") == "0"
      and "lacking, and NCCL_CUMEM_HOST_ENABLE=0 does without it" or nil end),
    why = "set_mempolicy and move_pages are blocked without it: memory is not bound to its NUMA node, and NCCL's cuMem host buffers fail" },
  { code = "cap_sys_ptrace", group = "Limits", what = "capability SYS_PTRACE in a container",
    run = cap(19, "SYS_PTRACE", function(f) return f:setting("NCCL_CUMEM_ENABLE") == "0"
      and "lacking, and NCCL_CUMEM_ENABLE=0 shares no file handles" or nil end),
    why = "handles of GPU memory are shared by pidfd_getfd, which answers EPERM without it" },
}
