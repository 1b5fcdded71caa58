-- SPDX-License-Identifier: Apache-2.0
--- Checks of NVLink, NVSwitch and peer access (facts/topology.md sections 2, 4 and 8).
local finding = require("tpl.doctor.finding")
local pci_of = require("tpl.doctor.pci")
local processes = require("tpl.doctor.processes")

local ok, skip, warn, fail, some = finding.ok, finding.skip, finding.warn, finding.fail, finding.some

local function few(f) return #f.group < 2 and skip("fewer than two GPUs would be used") end

local function no_links(f)
  if not f.topo or #(f.topo.links or {}) == 0 then return skip("no topology with links: %s", f.topo_error or "NVML, or topo.yaml or topo.txt in the recorded tree") end
end

local function name_pair(p) return string.format("GPU %d - GPU %d", p[1].index, p[2].index) end

--- Say whether a GPU is of a kind that is sold with NVLink between all of a board: SXM modules and superchips.
local function is_module(gpu)
  local name = gpu.name or ""
  return (name:find("SXM", 1, true) or name:find("HBM3", 1, true) or name:find("HGX", 1, true) or name:find("GB[23]00") or name:find(" [BH]200")
    or name:find("%f[%w]B[23]00%f[%W]")
    or name:find("GH200", 1, true) or name:find("%f[%w]H20%f[%W]")) and not name:find("PCIe", 1, true) and not name:find("NVL", 1, true)
end

-- -- Fabric -----------------------------------------------------------------------------------------------------------

local function has_nvswitch(f)
  local n = #pci_of.nvswitches(f.pci)
  if n > 0 then return n .. " NVSwitches on the bus" end
  local devices = f.host:list("proc/driver/nvidia-nvswitch/devices")
  if devices and #devices > 0 then return #devices .. " in /proc/driver/nvidia-nvswitch/devices" end
  if f.host:exists("dev/nvidia-nvswitch0") then return "/dev/nvidia-nvswitch0" end
  for _, link in ipairs(f.topo and f.topo.links or {}) do
    if link.via_switch == true then return "links through a switch in the topology" end
  end
end

local function fabric_manager(f)
  local switch = has_nvswitch(f)
  if not switch then return skip("no NVSwitch is visible: no fabric manager is needed") end
  for _, gpu in ipairs(f.gpus) do
    if type(gpu.fabric) == "table" and tostring(gpu.fabric.state):lower() == "completed" then return ok("the fabric of %s is completed (%s)",
      gpu.title, switch) end
  end
  local fix = "systemctl enable --now nvidia-fabricmanager (its version must equal the driver's); journalctl -u nvidia-fabricmanager"
  local runs, where = processes.runs(f.host, "nv-fabricmanager")
  if runs then return ok("nv-fabricmanager runs (%s)", where) end
  for _, path in ipairs { "run/nvidia-fabricmanager/nv-fabricmanager.pid", "var/run/nvidia-fabricmanager/nv-fabricmanager.pid" } do
    local pid = f.host:word(path)
    if pid then
      if runs == nil or f.host:exists("proc/" .. pid) then return ok("/%s names process %s", path, pid) end
    end
  end
  if runs == false then return fail(string.format("%s, but the fabric manager does not run: %s", switch, where), fix) end
  return skip("%s; the host's processes and the fabric's state are not visible", switch)
end

local function plain(word) return word ~= nil and tostring(word):lower():gsub("[_%-]", " ") or nil end

local GOOD_STATE = { completed = true, ["not supported"] = true, ["n/a"] = true }
local GOOD_HEALTH = { healthy = true, ok = true, success = true, ["not supported"] = true, ["n/a"] = true }

local function fabric_state(f)
  local bad, weak, known = {}, {}, 0
  for _, gpu in ipairs(f.gpus) do
    local fabric = type(gpu.fabric) == "table" and gpu.fabric or {}
    local state, health, status = plain(fabric.state), plain(fabric.health), plain(fabric.status)
    if state then
      known = known + 1
      if not GOOD_STATE[state] then bad[#bad + 1] = gpu.title .. ": state " .. state
      elseif status and state == "completed" and status ~= "success" and status ~= "0" and status ~= "n/a" then bad[#bad + 1] = gpu.title
        .. ": status " .. status
      elseif health == "limited capacity" then weak[#weak + 1] = gpu.title .. ": health " .. health
      elseif health and not GOOD_HEALTH[health] then bad[#bad + 1] = gpu.title .. ": health " .. health end
    end
  end
  if known == 0 then return skip("the topology says nothing of a fabric") end
  local fix = "systemctl restart nvidia-fabricmanager; nvidia-smi -q | grep -A5 Fabric; on partitioned systems ask the provider to activate the partition"
  if #bad > 0 then return fail(some(bad), fix) end
  if #weak > 0 then return warn(some(weak), fix) end
  return ok("%d GPUs report a usable fabric state", known)
end

local function imex(f)
  local cluster
  for _, gpu in ipairs(f.gpus) do
    local id = type(gpu.fabric) == "table" and gpu.fabric.cluster
    if type(id) == "string" and id:find("[1-9a-fA-F]") then cluster = gpu.title .. " belongs to cluster " .. id end
  end
  local driver = (f.host:read("proc/devices") or ""):find("nvidia%-caps%-imex%-channels") ~= nil
  if not cluster and not driver then return skip("no multi-node NVLink (no cluster id, no nvidia-caps-imex-channels in /proc/devices)") end
  local off = f:setting("NCCL_MNNVL_ENABLE")
  local channels = f.host:list("dev/nvidia-caps-imex-channels") or {}
  if #channels > 0 then return ok("/dev/nvidia-caps-imex-channels/%s is there", channels[1]) end
  if off == "0" then return ok("no IMEX channel, and NCCL_MNNVL_ENABLE=0") end
  local evidence = "/dev/nvidia-caps-imex-channels holds no channel; " .. (cluster or "the driver has IMEX in /proc/devices")
  local fix = "NCCL_MNNVL_ENABLE=0, or give the container the channel: --device /dev/nvidia-caps-imex-channels/channel0 (Kubernetes: a ComputeDomain)"
  return (cluster and fail or warn)(evidence, fix)
end

-- -- NVLink -----------------------------------------------------------------------------------------------------------

local function nvlink_missing(f)
  if #f.gpus < 2 then return skip("fewer than two GPUs are known") end
  local modules = 0
  for _, gpu in ipairs(f.gpus) do if is_module(gpu) then modules = modules + 1 end end
  local links = 0
  for _, p in ipairs(f:pairs_of(f.gpus)) do if p.link.kind == "nvlink" then links = links + 1 end end
  if links > 0 then return ok("%d pairs have NVLink", links) end
  local gone = no_links(f)
  if gone then return gone end
  if modules < 2 then return skip("the names of the GPUs do not say that they have NVLink") end
  return fail(string.format("%d GPUs named '%s', and no pair has NVLink%s", modules, f.gpus[1].name, f.vm and " in a virtual machine (" .. f.vm
    .. ")" or ""),
    f.vm and "pass all GPUs and NVSwitches of the partition through to the guest, and activate the partition on the host"
      or "nvidia-smi nvlink --status; systemctl restart nvidia-fabricmanager; nvidia-smi topo -mp hides NVLink: record with topo -m")
end

--- Count the NVLink peers of each GPU of the group.
local function degrees(f)
  local peers, links = {}, {}
  for _, gpu in ipairs(f.gpus) do peers[gpu], links[gpu] = 0, {} end
  for _, p in ipairs(f:pairs_of(f.gpus)) do
    if p.link.kind == "nvlink" then
      for i = 1, 2 do
        peers[p[i]] = peers[p[i]] + 1
        if p.link.nvlinks then table.insert(links[p[i]], p.link.nvlinks) end
      end
    end
  end
  return peers, links
end

local function nvlink_island(f)
  local gone = few(f) or no_links(f)
  if gone then return gone end
  local peers, links = degrees(f)
  local lone, most, thin, top = {}, 0, {}, 0
  for _, gpu in ipairs(f.gpus) do
    if gpu.kind == "gpu" then
      most = math.max(most, peers[gpu])
      for _, n in ipairs(links[gpu]) do top = math.max(top, n) end
    end
  end
  if most == 0 then return skip("no pair has NVLink") end
  for _, gpu in ipairs(f.gpus) do
    local cut = gpu.mig and (gpu.mig.mode == "on")
    if gpu.kind == "gpu" and not cut then
      local best = 0
      for _, n in ipairs(links[gpu]) do best = math.max(best, n) end
      if peers[gpu] == 0 then lone[#lone + 1] = gpu.title elseif best > 0 and best < top then thin[#thin + 1] = string.format("%s: NV%d of NV%d",
        gpu.title, best, top) end
    end
  end
  local fix = "nvidia-smi nvlink --status -i INDEX; look for Xid 74 in dmesg; reseat the bridge or restart the fabric manager; until then leave it out of the group"
  if #lone > 0 then return warn("without NVLink while others have it: " .. some(lone), fix) end
  if #thin > 0 then return warn("fewer links than its peers: " .. some(thin), fix) end
  return ok("every GPU has NVLink to %d others or fewer", most)
end

local function p2p_text(p2p)
  if type(p2p) ~= "table" then return nil end
  for _, way in ipairs { "read", "write" } do
    local word = p2p[way] and tostring(p2p[way]):lower()
    if word and word ~= "ok" and word ~= "u" and word ~= "unknown" then return way .. " " .. word:upper() end
  end
end

local function bad_p2p(f, is_nvlink)
  local bad, known = {}, 0
  for _, p in ipairs(f:pairs_of(f.group)) do
    local nv = p.link.kind == "nvlink"
    if nv == is_nvlink and (p.link.p2p or p.link.p2p_ba) then
      known = known + 1
      local text = p2p_text(p.link.p2p) or p2p_text(p.link.p2p_ba)
      if text then bad[#bad + 1] = name_pair(p) .. " " .. text end
    end
  end
  return bad, known
end

local function nvlink_p2p(f)
  local gone = few(f) or no_links(f)
  if gone then return gone end
  local bad, known = bad_p2p(f, true)
  if known == 0 then return skip("the topology has no NVLink pair with a P2P status") end
  if #bad > 0 then
    return fail("P2P is refused between NVLink peers: " .. some(bad),
      "systemctl status nvidia-fabricmanager; nvidia-smi topo -p2p r; look for MIG, confidential mode, a bad bridge; NCCL_IGNORE_DISABLED_P2P=1 only silences it")
  end
  return ok("P2P is OK on %d NVLink pairs", known)
end

local function p2p_pcie(f)
  local gone = few(f)
  if gone then return gone end
  local bad, known = bad_p2p(f, false)
  local fix = "expect shared memory between them: NCCL_P2P_DISABLE=1 avoids the error, and prefer pp or replicas to tp"
  if #bad > 0 then return warn("no peer access: " .. some(bad) .. " (CNS chipset, GNS GPU, TNS topology, NS not supported, DR disabled)", fix) end
  if known > 0 then return ok("P2P is OK on %d PCIe pairs", known) end
  for _, gpu in ipairs(f.group) do
    if (gpu.name or ""):find("GeForce RTX [45]0%d%d") then
      return warn(gpu.title .. " is a " .. gpu.name .. ": the stock driver gives no peer access", fix .. "; check: nvidia-smi topo -p2p r")
    end
  end
  return skip("the topology has no P2P status of PCIe pairs (nvidia-smi topo -p2p r)")
end

local function p2p_data(f)
  local gone = few(f)
  if gone then return gone end
  local bad, known = {}, 0
  for _, p in ipairs(f:pairs_of(f.group)) do
    if p.link.data_ok ~= nil then
      known = known + 1
      if p.link.data_ok == false then bad[#bad + 1] = name_pair(p) end
    end
  end
  if #bad > 0 then return fail("a copy between peers gave wrong data: " .. some(bad),
    "NCCL_P2P_DISABLE=1; then look at the IOMMU, ReBAR and a patched driver") end
  if known > 0 then return ok("data was right on %d measured pairs", known) end
  for _, p in ipairs(f:pairs_of(f.group)) do
    if (p[1].name or ""):find("GeForce", 1, true) and p.link.kind ~= "nvlink" and type(p.link.p2p) == "table" and p.link.p2p.read == "ok" then
      return warn(string.format("%s is %s and has PCIe peer access, which the stock driver does not give: a patched driver, data unchecked",
        p[1].title, p[1].name),
        "tpl topo --measure checks the data of every pair")
    end
  end
  return skip("no pair was measured (tpl topo --measure)")
end

return {
  { code = "fabric_manager", group = "NVLink", what = "fabric manager on NVSwitch hosts", run = fabric_manager,
    why = "without it CUDA starts with error 802 (system not yet initialized), or NVLink is off and traffic goes through /dev/shm" },
  { code = "fabric_state", group = "NVLink", what = "fabric state and health", run = fabric_state,
    why = "a fabric that is not completed or not healthy gives P2P errors or a hang at the first collective" },
  { code = "imex_channel", group = "NVLink", what = "IMEX channels for multi-node NVLink", run = imex,
    why = "without a channel the import of a peer's memory fails: CUDA failure 800, operation not permitted" },
  { code = "nvlink_missing", group = "NVLink", what = "NVLink between modules that have it", run = nvlink_missing,
    why = "a guest without the switches, or a partition that is not active, falls to PCIe speed" },
  { code = "nvlink_island", group = "NVLink", what = "every GPU in its NVLink island", run = nvlink_island,
    why = "one GPU with a link down makes the whole group as slow as PCIe" },
  { code = "nvlink_p2p", group = "NVLink", what = "P2P status of NVLink pairs", run = nvlink_p2p,
    why = "NCCL stops with `P2P is disabled between NVLINK connected GPUs`" },
  { code = "p2p_pcie", group = "NVLink", what = "P2P status of PCIe pairs", run = p2p_pcie,
    why = "`peer access is not supported between these two devices`: traffic goes through the CPU's memory" },
  { code = "p2p_data", group = "NVLink", what = "data of peer copies", run = p2p_data,
    why = "patched drivers and a wrong IOMMU give wrong numbers without an error" },
}
