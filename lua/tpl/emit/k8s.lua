-- SPDX-License-Identifier: Apache-2.0
--- Write Kubernetes objects that start tpl where a plan says, in both ways that a cluster may offer.
-- A device plugin counts: `nvidia.com/gpu: 2` is any two free GPUs. It cannot pin, so an init container compares with the manifest and refuses. A DRA
-- driver (resource.k8s.io/v1, Kubernetes 1.34+, NVIDIA/k8s-dra-driver-gpu) publishes each GPU's UUID as an attribute: a claim on it pins.
-- CPUs are whole numbers and requests equal limits: only then (Guaranteed) does the static CPU manager give exclusive cores of one NUMA node.
local facts = require("tpl.emit.facts")
local names = require("tpl.emit.names")
local placement = require("tpl.emit.placement")
local shell = require("tpl.emit.shell")
local yaml = require("tpl.yaml")

local M = { target = "k8s", title = "Kubernetes", version = "resource.k8s.io/v1" }

local known = placement.known
local GIB = 2 ^ 30
local IMAGE = "registry.example.org/tpl:0.1"

-- -- Quantities ----------------------------------------------------------------------------------------------------------

--- Name the extended resource of a device: whole GPUs, or slices by profile (device plugin with MIG strategy "mixed").
local function resource_of(d)
  if d.kind == "mig" then return "nvidia.com/mig-" .. ((known(d.mig) or {}).profile or "1g") end
  if d.kind == "gpu" then return "nvidia.com/gpu" end
end

local function count(devices)
  local n, order = {}, {}
  for _, d in ipairs(devices) do
    local name = resource_of(d)
    if name then
      if not n[name] then n[name], order[#order + 1] = 0, name end
      n[name] = n[name] + 1
    end
  end
  table.sort(order)
  return n, order
end

-- What of the hosts' devices the plan leaves: whole GPUs and slices; a card in MIG mode is its slices.
local function kept(t, p)
  local used, left = {}, {}
  for _, replica in ipairs(p.replicas) do
    for _, d in ipairs(replica.devices) do used[d.uid] = true end
  end
  for _, d in ipairs(t and t.devices or {}) do
    local is_parent = d.kind == "gpu" and known(d.mig) and d.mig.mode == "on"
    if not used[d.uid] and not is_parent then left[#left + 1] = d end
  end
  return left
end

local function sum_bytes(replica, field)
  local n = 0
  for _, r in ipairs(replica.ranks) do
    local bytes = known(r.bytes)
    n = n + (bytes and known(bytes[field]) or 0)
  end
  return n
end

-- Memory of the pod: the process and what it reads through; the ranks' own where they are CPU ranks; and /dev/shm, which counts against the limit.
local function sizes(replica)
  local n = #replica.devices
  local shm = math.max(2, n)
  local on_cpu = replica.devices[1].kind == "cpu" and math.ceil(sum_bytes(replica, "total") / GIB) or 0
  return { cpu = replica.devices[1].kind == "cpu" and math.max(1, 2 * n) or math.max(4, 2 * n), shm_gib = shm, mem_gib = 16 + 4 * n + on_cpu + shm }
end

-- -- Texts -------------------------------------------------------------------------------------------------------------

local function indent(text, n)
  local pad = (" "):rep(n)
  return (text:gsub("\n$", ""):gsub("[^\n]+", pad .. "%0"))
end

local function q(text) return (yaml.encode(tostring(text)):gsub("\n$", "")) end

-- The words of the command, in both places that plan.
local function args(s, command)
  local list = { command, "/etc/tpl/deploy.lua" }
  for _, w in ipairs(s.facts.file and facts.words(s.facts, s.p, s.deploy) or {}) do list[#list + 1] = w end
  list[#list + 1], list[#list + 2] = "--manifest", "/etc/tpl/manifest.yaml"
  for i, w in ipairs(list) do list[i] = q(w) end
  return "[" .. table.concat(list, ", ") .. "]"
end

local function resources(replica, size, mode)
  local n, order = count(replica.devices)
  local lines = { ("cpu: %d"):format(size.cpu), ("memory: %dGi"):format(size.mem_gib) }
  if mode == "count" then
    for _, name in ipairs(order) do lines[#lines + 1] = ("%s: %d"):format(name, n[name]) end
  end
  local list = table.concat(lines, "\n")
  local out = "resources:\n  requests:\n" .. indent(list, 4) .. "\n  limits: # equal to requests: Guaranteed\n" .. indent(list, 4)
  if mode == "claim" then out = out .. "\n  claims:\n    - name: gpus" end
  return out
end

local function env_lines(env)
  local out = {}
  for _, e in ipairs(env) do
    if not e.host then out[#out + 1] = ("%s\n- name: %s\n  value: %s"):format(shell.comment(e.why), e.name, q(e.value)) end
  end
  return #out > 0 and "env:\n" .. indent(table.concat(out, "\n"), 2) .. "\n" or ""
end

local MOUNTS = [[
volumeMounts:
  - name: tpl
    mountPath: /etc/tpl
    readOnly: true
  - name: shm
    mountPath: /dev/shm
]]

-- Compares what the pod was given with the manifest, and ends the start when it is something else.
local function guard(s, replica, size)
  return ([[
initContainers:
  # Refuses: any other GPUs, a lost link, another driver: exit 4 with a list, and the pod does not start.
  - name: check-manifest
    image: %s
    args: %s
%s
    volumeMounts:
      - name: tpl
        mountPath: /etc/tpl
        readOnly: true
]]):format(IMAGE, args(s, "plan"), indent(resources(replica, size, "count"), 4))
end

local function pod_spec(s, replica, size, mode)
  local parts = {}
  if mode == "claim" then
    parts[#parts + 1] = ("resourceClaims:\n  - name: gpus\n    resourceClaimName: tpl-%s-%d\n"):format(s.facts.name, replica.i)
  else
    parts[#parts + 1] = guard(s, replica, size)
  end
  local port = s.facts.port
  parts[#parts + 1] = ([[
containers:
  - name: tpl
    image: %s
    args: %s
    ports:
      - containerPort: %d
    startupProbe: # loading takes minutes
      httpGet:
        path: /health
        port: %d
      periodSeconds: 5
      failureThreshold: 360
%s%s
%s
volumes:
  - name: tpl
    configMap:
      name: tpl-%s-%d
  - name: shm # ranks meet in /dev/shm; a container's default is 64 MiB. It counts against the memory limit.
    emptyDir:
      medium: Memory
      sizeLimit: %dGi
]]):format(IMAGE, args(s, "run"), port, port, indent(env_lines(s.env), 4) .. (#s.env > 0 and "\n" or ""), indent(MOUNTS, 4),
  indent(resources(replica, size, mode), 4),
    s.facts.name, replica.i, size.shm_gib)
  return table.concat(parts)
end

local function deployment(s, replica, size, mode, copies)
  local name = ("tpl-%s-%d%s"):format(s.facts.name, replica.i, mode == "claim" and "-pinned" or "")
  return ([[
apiVersion: apps/v1
kind: Deployment
metadata:
  name: %s
spec:
  replicas: %d
  strategy: # the old pod holds the GPUs
    type: Recreate
  selector:
    matchLabels:
      app: %s
  template:
    metadata:
      labels:
        app: %s
    spec:
%s
]]):format(name, copies, name, name, indent(pod_spec(s, replica, size, mode), 6))
end

local function claim(s, replica)
  local requests = {}
  for i, d in ipairs(replica.devices) do
    local class = d.kind == "mig" and "mig.nvidia.com" or "gpu.nvidia.com"
    requests[i] = ([[
- name: gpu-%d # %s
  exactly:
    deviceClassName: %s
    allocationMode: ExactCount
    count: 1
    selectors:
      - cel:
          expression: %s]]):format(i - 1, (names.text(d):gsub("%c", " ")), class,
      q(('device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].uuid == "%s"'):format(d.uuid)))
  end
  return ([[
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: tpl-%s-%d
spec:
  devices:
    requests:
%s
]]):format(s.facts.name, replica.i, indent(table.concat(requests, "\n"), 6))
end

local function one_replica(report, i)
  local out, ranks = {}, {}
  for k, v in pairs(report) do out[k] = v end
  local numbers, seen = {}, {}
  for _, r in ipairs(known(report.ranks) or {}) do
    local n = known(r.replica) or 0
    if not seen[n] then seen[n], numbers[#numbers + 1] = true, n end
  end
  table.sort(numbers)
  for _, r in ipairs(known(report.ranks) or {}) do
    if (known(r.replica) or 0) == numbers[i + 1] then ranks[#ranks + 1] = r end
  end
  out.ranks = ranks
  local placed = (known(report.replicas) or {})[i + 1]
  out.replicas = placed and { placed } or {}
  return out
end

local function deploy_text(s)
  local file = s.facts.file
  local text = file and require("tpl.core").sys.read_file(file)
  return text or facts.deploy_text(s.facts, s.p)
end

local function config_map(s, replica, left)
  local manifest = require("tpl.manifest")
  local m = manifest.make(one_replica(s.report, replica.i), s.t, { deploy = s.deploy })
  local n, order = count(left)
  local node = {}
  for _, name in ipairs(order) do node[#node + 1] = ("%s: %d"):format(name, n[name]) end
  local data = require("tpl.json").object { { "deploy.lua", deploy_text(s) }, { "manifest.yaml", manifest.text(m) } }
  if #node > 0 then data["kept-for-others.yaml"] = table.concat(node, "\n") .. "\n" end
  return ("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: tpl-%s-%d\ndata:\n%s\n"):format(s.facts.name, replica.i, indent(yaml.encode(data), 2))
end

local function list_text(devices)
  local n, order = count(devices)
  local out = {}
  for i, name in ipairs(order) do out[i] = ("%s: %d"):format(name, n[name]) end
  return #out > 0 and table.concat(out, ", ") or "nothing"
end

local function head(s, left, has_claims)
  local all = {}
  for _, replica in ipairs(s.p.replicas) do for _, d in ipairs(replica.devices) do all[#all + 1] = d end end
  local out = { ("Start %s with tpl, as `tpl plan --emit k8s` placed it."):format(s.facts.model) }
  if s.facts.plan_hash then out[#out + 1] = "Plan " .. s.facts.plan_hash end
  out[#out + 1] = "This deployment takes " .. list_text(all) .. "; for other services the node keeps " .. list_text(left) .. "."
  if has_claims then
    out[#out + 1] = "Two ways for each replica; run one of them:"
    out[#out + 1] = "  tpl-..-N         counts (device plugin): does NOT pin. Kubernetes hands over any free GPUs; the init container"
    out[#out + 1] = "                   refuses the wrong ones."
    out[#out + 1] = "  tpl-..-N-pinned  claims by UUID (DRA driver, Kubernetes 1.34+): pins. It has 0 replicas here; scale it to 1, the"
    out[#out + 1] = "                   other to 0."
  elseif all[1].kind ~= "cpu" then
    out[#out + 1] = "Counted by the device plugin, which does NOT pin; the topology has no UUIDs that a claim could name."
  end
  out[#out + 1] = "Before use: the image, and where the model is mounted."
  for _, w in ipairs(s.warnings) do out[#out + 1] = "Warning: " .. w.message end
  for i, line in ipairs(out) do out[i] = shell.comment(line) end
  return table.concat(out, "\n") .. "\n"
end

--- Write the text.
function M.write(s)
  local has_claims = true
  for _, replica in ipairs(s.p.replicas) do
    for _, d in ipairs(replica.devices) do has_claims = has_claims and d.kind ~= "cpu" and known(d.uuid) ~= nil end
  end
  local left, docs = kept(s.t, s.p), {}
  for _, replica in ipairs(s.p.replicas) do
    local size = sizes(replica)
    docs[#docs + 1] = config_map(s, replica, left)
    docs[#docs + 1] = deployment(s, replica, size, "count", 1)
    if has_claims then
      docs[#docs + 1] = claim(s, replica)
      docs[#docs + 1] = deployment(s, replica, size, "claim", 0)
    end
  end
  if not has_claims and s.p.replicas[1].devices[1].kind ~= "cpu" then
    s.warnings[#s.warnings + 1] = { code = "not_pinned",
      message = "the topology has no UUIDs: nothing in the manifest can pin; add the output of nvidia-smi -L with --topo" }
  end
  local serve = s.deploy and s.deploy.serve
  if s.facts.file and not (serve and serve.host == "0.0.0.0") then
    table.insert(s.warnings, { code = "serve_host", message = "deploy.lua does not serve on 0.0.0.0, so neither probes nor a Service reach the pod" })
  end
  return head(s, left, has_claims) .. "---\n" .. table.concat(docs, "---\n")
end

return M
