-- SPDX-License-Identifier: Apache-2.0
--- Checks of NCCL itself: the builds that lie around, and what a log says (--nccl-log).
local finding = require("tpl.doctor.finding")

local ok, skip, warn, fail, some = finding.ok, finding.skip, finding.warn, finding.fail, finding.some

local LIB_DIRS = {
  "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/local/lib", "usr/local/cuda/lib64",
    "usr/local/cuda/targets/x86_64-linux/lib",
  "usr/local/nccl/lib", "opt/nccl/lib",
}

--- Folders where Python keeps packages.
local function site_packages(f)
  local out = {}
  local function try(dir) if f.host:list(dir) then out[#out + 1] = dir end end
  for _, lib in ipairs { "usr/lib", "usr/local/lib", "opt/conda/lib", "opt/venv/lib", "usr/lib/python3" } do
    for _, name in ipairs(f.host:list(lib) or {}) do
      if name:find("^python3") then
        try(lib .. "/" .. name .. "/site-packages")
        try(lib .. "/" .. name .. "/dist-packages")
      end
    end
  end
  try("usr/lib/python3/dist-packages")
  local venv = f.env.VIRTUAL_ENV or f.env.CONDA_PREFIX
  if venv then
    local lib = venv:gsub("^/+", "") .. "/lib"
    for _, name in ipairs(f.host:list(lib) or {}) do
      if name:find("^python3") then try(lib .. "/" .. name .. "/site-packages") end
    end
  end
  return out
end

local function builds(f)
  local found, seen = {}, {}
  local function add(version, path)
    if not seen[path] then found[#found + 1] = { version = version, path = path } end
    seen[path] = true
  end
  local dirs = { unpack(LIB_DIRS) }
  for dir in (f.env.LD_LIBRARY_PATH or ""):gmatch("[^:]+") do dirs[#dirs + 1] = (dir:gsub("^/+", ""):gsub("/+$", "")) end
  for _, dir in ipairs(dirs) do
    for _, name in ipairs(f.host:list(dir) or {}) do
      local version = name:match("^libnccl%.so%.(%d+%.%d+[%d.]*)$")
      if version then add(version, "/" .. dir .. "/" .. name) end
    end
  end
  for _, dir in ipairs(site_packages(f)) do
    for _, name in ipairs(f.host:list(dir) or {}) do
      local version = name:match("^nvidia_nccl_cu%d+%-(%d+%.[%d.]+)%.dist%-info$")
      if version then add(version, "/" .. dir .. "/" .. name) end
    end
  end
  return found
end

local function versions(f)
  local found = builds(f)
  if f.log and f.log.mismatch then return fail(f.log.mismatch, "run every rank from one image or environment; compare ncclGetVersion") end
  if f.log and #f.log.versions > 1 then return fail("the log names versions " .. table.concat(f.log.versions, " and "),
    "run every rank from one image or environment") end
  if #found == 0 then return skip("no libnccl is in the usual folders%s", f.log and "; the log names " .. (f.log.version or "no version") or "") end
  local texts, differ = {}, false
  for i, b in ipairs(found) do
    texts[i] = b.version .. " " .. b.path
    differ = differ or b.version ~= found[1].version
  end
  if differ then
    return warn(some(texts), "keep one: LD_LIBRARY_PATH or LD_PRELOAD decides which is loaded; NCCL_DEBUG=VERSION prints it; all ranks must agree")
  end
  return ok("NCCL %s", some(texts))
end

-- -- The log ----------------------------------------------------------------------------------------------------------

local function no_log(f)
  if not f.log then return skip("no --nccl-log FILE was given") end
  if #f.log.pairs == 0 then return skip("the log has no line `Channel .. via ..` (NCCL_DEBUG=INFO is needed)") end
end

local function pair_text(p) return string.format("%d - %d %s", p.a, p.b, p.transport) end

local function select(f, test)
  local out = {}
  for _, p in ipairs(f.log.pairs) do if test(p) then out[#out + 1] = pair_text(p) end end
  return out
end

local function transport(f)
  local gone = no_log(f)
  local sockets = f.log and select(f, function(p) return p.transport:find("^NET/Socket") end) or {}
  local fix = "NCCL_IB_DISABLE unset; NCCL_DEBUG_SUBSYS=INIT,NET shows why IB was left (`NET/IB : No device found`, a missing libibverbs "
    .. "or plugin); in a container --device /dev/infiniband"
  if f.log then
    local rdma = f:rdma()
    local ib = f.log.ib_seen and "the log itself names IB" or (#rdma > 0 and rdma[1].name .. " is in " .. rdma[1].where) or nil
    if #sockets > 0 and ib then return fail("NET/Socket although " .. ib .. ": " .. some(sockets), fix) end
    if (f.log.network or ""):find("^Socket") and ib then return fail("`Using network Socket` although " .. ib, fix) end
  end
  if gone then return gone end
  if #sockets > 0 then return warn("NET/Socket: " .. some(sockets),
    "sockets are slow: InfiniBand, RoCE or EFA between hosts; inside a host see dev_shm and nccl_shm_disable") end
  local counts, order = {}, {}
  for _, p in ipairs(f.log.pairs) do
    if not counts[p.transport] then order[#order + 1] = p.transport end
    counts[p.transport] = (counts[p.transport] or 0) + 1
  end
  for i, name in ipairs(order) do order[i] = string.format("%d pairs %s", counts[name], name) end
  return ok(table.concat(order, ", "))
end

local function gdr(f)
  local gone = no_log(f)
  if gone then return gone end
  local nets = select(f, function(p) return p.transport:find("^NET/") and not p.transport:find("^NET/Socket") end)
  if #nets == 0 then return skip("no pair uses an RDMA network") end
  local without = select(f, function(p) return p.transport:find("^NET/") and not p.transport:find("^NET/Socket") and not p.gdr end)
  if #without > 0 then
    return warn("without /GDRDMA, staged through the host: " .. some(without),
      "modprobe nvidia-peermem (or dma-buf); NIC and GPU on one switch, else NCCL_NET_GDR_LEVEL")
  end
  return ok("GPUDirect RDMA on %d pairs", #nets)
end

local function shm(f)
  local gone = no_log(f)
  if gone then return gone end
  local pairs_shm = select(f, function(p) return p.transport:find("^SHM") end)
  if f.log.p2p_disabled then return fail(f.log.p2p_disabled, "systemctl status nvidia-fabricmanager; nvidia-smi topo -p2p r") end
  if #pairs_shm == 0 then return ok("no pair goes through shared memory") end
  local n = 0
  for _, p in ipairs(f:pairs_of(f.gpus)) do if p.link.kind == "nvlink" then n = n + 1 end end
  local fix = "look at nccl_p2p_level, nccl_p2p_disable, fabric_manager, acs; separate containers need one /dev/shm (--ipc=host)"
  if n > 0 then return fail(string.format("%s, and the host has NVLink on %d pairs", some(pairs_shm), n), fix) end
  return warn(some(pairs_shm) .. ": no peer access between these GPUs", fix)
end

return {
  { code = "nccl_versions", group = "NCCL", what = "one build of NCCL", run = versions,
    why = "two builds among ranks end in `Mismatched NCCL version detected`" },
  { code = "nccl_log_transport", group = "NCCL", what = "transport of each pair in the log", run = transport,
    why = "sockets on a host with InfiniBand are the sign of a missing plugin, library or device, and ten times slower" },
  { code = "nccl_log_gdr", group = "NCCL", what = "GPUDirect RDMA in the log", run = gdr,
    why = "a network line without /GDRDMA copies through the CPU's memory" },
  { code = "nccl_log_shm", group = "NCCL", what = "shared memory in the log", run = shm,
    why = "SHM between GPUs of one host means that peer access was refused or switched off" },
}
