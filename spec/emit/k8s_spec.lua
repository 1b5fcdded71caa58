-- SPDX-License-Identifier: Apache-2.0
-- Kubernetes objects are read back as YAML and looked at as data. Names of fields: Kubernetes API reference 1.34 (resource.k8s.io/v1, apps/v1),
-- attributes: NVIDIA/k8s-dra-driver-gpu cmd/gpu-kubelet-plugin/deviceinfo.go.
local S = dofile("spec/emit/support.lua")
local emit = require("tpl.emit")
local yaml = require("tpl.yaml")

local U = S.uuid

local function objects(report, t, deploy)
  local e = assert(emit.make("k8s", report, t, deploy))
  local by = {}
  for _, o in ipairs(assert(yaml.decode_all(e.text))) do
    by[o.kind] = by[o.kind] or {}
    table.insert(by[o.kind], o)
  end
  return by, e
end

local function pod(deployment) return deployment.spec.template.spec end

describe("k8s objects", function()
  it("of the reference host take gpu 2 and leave mig-3g.40gb 4 to services", function()
    local by, e = objects(S.report({ { { U(0), U(1) } } }, { n_head = 64, n_kv = 8 }), S.reference_host())
    local r = pod(by.Deployment[1]).containers[1].resources
    assert.equal(2, r.requests["nvidia.com/gpu"])
    assert.equal(2, r.limits["nvidia.com/gpu"])
    assert.same({ ["nvidia.com/mig-3g.40gb"] = 4 }, assert(yaml.decode(by.ConfigMap[1].data["kept-for-others.yaml"])))
    assert.truthy(e.text:find("nvidia.com/gpu: 2", 1, true))
    assert.truthy(e.text:find("nvidia.com/mig-3g.40gb: 4", 1, true))
  end)

  it("count whole GPUs that the plan leaves, not parents of slices", function()
    local by = objects(S.report({ { { U(0) } } }), S.reference_host())
    assert.same({ ["nvidia.com/gpu"] = 1, ["nvidia.com/mig-3g.40gb"] = 4 }, assert(yaml.decode(by.ConfigMap[1].data["kept-for-others.yaml"])))
  end)

  it("have requests equal to limits and whole CPUs in every container", function()
    local by = objects(S.report({ { { U(0), U(1) } } }), S.machine(4))
    for _, d in ipairs(by.Deployment) do
      local all = { pod(d).containers[1] }
      if pod(d).initContainers then all[2] = pod(d).initContainers[1] end
      for _, c in ipairs(all) do
        assert.same(c.resources.requests, c.resources.limits)
        assert.equal("number", type(c.resources.requests.cpu))
        assert.equal(math.floor(c.resources.requests.cpu), c.resources.requests.cpu)
      end
    end
  end)

  it("guard the counted pod by the manifest, which has this replica's devices", function()
    local by = objects(S.report({ { { U(0) } }, { { U(1) } } }), S.machine(2))
    assert.equal(2, #by.ConfigMap)
    for i, d in ipairs { by.Deployment[1], by.Deployment[3] } do
      local init = pod(d).initContainers[1]
      assert.same({ "plan", "/etc/tpl/deploy.lua", "--manifest", "/etc/tpl/manifest.yaml" }, { unpack(init.args) })
      assert.equal(by.ConfigMap[i].metadata.name, pod(d).volumes[1].configMap.name)
      local m = assert(yaml.decode(by.ConfigMap[i].data["manifest.yaml"]))
      assert.equal(1, #m.devices)
      assert.equal(U(i - 1), m.devices[1].uuid)
    end
  end)

  it("have a memory-backed /dev/shm within the memory limit", function()
    local by = objects(S.report({ { { U(0), U(1), U(2), U(3) } } }), S.machine(4))
    local p = pod(by.Deployment[1])
    local shm = p.volumes[2]
    assert.equal("Memory", shm.emptyDir.medium)
    assert.equal("/dev/shm", p.containers[1].volumeMounts[2].mountPath)
    assert.equal(shm.name, p.containers[1].volumeMounts[2].name)
    assert.is_true(tonumber(shm.emptyDir.sizeLimit:match("^(%d+)Gi$")) < tonumber(p.containers[1].resources.limits.memory:match("^(%d+)Gi$")))
  end)

  it("claim each device by its UUID, and only the claiming pod uses the claim", function()
    local by, e = objects(S.report({ { { U(3), U(1) } } }), S.machine(4))
    local claim = by.ResourceClaim[1]
    assert.equal("resource.k8s.io/v1", claim.apiVersion)
    for i, n in ipairs { 3, 1 } do
      local want = claim.spec.devices.requests[i].exactly
      assert.equal("gpu.nvidia.com", want.deviceClassName)
      assert.equal(('device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].uuid == "%s"'):format(U(n)),
        want.selectors[1].cel.expression)
    end
    local counted, pinned = by.Deployment[1], by.Deployment[2]
    assert.is_nil(pod(counted).resourceClaims)
    assert.equal(claim.metadata.name, pod(pinned).resourceClaims[1].resourceClaimName)
    assert.equal(pod(pinned).resourceClaims[1].name, pod(pinned).containers[1].resources.claims[1].name)
    assert.is_nil(pod(pinned).containers[1].resources.requests["nvidia.com/gpu"])
    assert.same({ 1, 0 }, { counted.spec.replicas, pinned.spec.replicas }) -- never both
    assert.truthy(e.text:find("does NOT pin", 1, true))
    assert.truthy(e.text:find("pins.", 1, true))
  end)

  it("name a slice's own resource and device class", function()
    local by = objects(S.report({ { { S.mig_uuid(2, 0) } } }), S.reference_host())
    assert.equal(1, pod(by.Deployment[1]).containers[1].resources.limits["nvidia.com/mig-3g.40gb"])
    assert.equal("mig.nvidia.com", by.ResourceClaim[1].spec.devices.requests[1].exactly.deviceClassName)
    assert.same({ ["nvidia.com/gpu"] = 2, ["nvidia.com/mig-3g.40gb"] = 3 }, assert(yaml.decode(by.ConfigMap[1].data["kept-for-others.yaml"])))
  end)

  it("say that nothing pins where the topology has no UUIDs", function()
    local t = S.machine(2)
    for i, d in ipairs(t.devices) do d.uuid, d.uid = nil, "GPU" .. i - 1 end
    local by, e = objects(S.report({ { { "GPU0" } } }), t)
    assert.is_nil(by.ResourceClaim)
    assert.equal("not_pinned", e.warnings[1].code)
  end)

  it("carry the deployment: the file with the words it was given, or one made of the plan", function()
    local tmpdir = dofile("spec/support/tmpdir.lua")
    local dir = tmpdir.new()
    local file = dir:write("deploy.lua", "local a = tpl.args { tp = 1 }\nreturn tpl.deploy { model = \"m\", mesh = \"tp=\" .. a.tp }\n")
    local by, e = objects(S.report({ { { U(0), U(1) } } }), S.machine(2), { origin = { file = file, args = { tp = 2 } } })
    assert.truthy(by.ConfigMap[1].data["deploy.lua"]:find("tpl.args { tp = 1 }", 1, true))
    assert.same({ "run", "/etc/tpl/deploy.lua", "tp=2", "--manifest", "/etc/tpl/manifest.yaml" },
      { unpack(pod(by.Deployment[1]).containers[1].args) })
    assert.equal("serve_host", e.warnings[1].code)
    dir:close()
    by = objects(S.report({ { { U(0), U(1) } } }, { kvh = { 5, 3 } }), S.machine(2))
    local made = setfenv(assert(loadstring(by.ConfigMap[1].data["deploy.lua"])), { tpl = { deploy = function(d) return d end } })()
    assert.same({ model = "meta-llama/Llama-3.3-70B-Instruct", mesh = "tp=2", pp = 1, shares = { tp = { 5, 3 } },
      want = { context = 8192, concurrency = 16 }, serve = { host = "0.0.0.0", port = 8000 } }, made)
  end)

  it("ask for no GPU where the ranks are CPU ranks", function()
    local by = objects(S.report({ { { "cpu0" } } }), S.topo { devices = { { uid = "cpu0", kind = "cpu", numa = 0, host = "host0" } } })
    assert.same({ "cpu", "memory" }, require("tpl.util").keys(pod(by.Deployment[1]).containers[1].resources.limits))
  end)

  it("have names that Kubernetes takes, whatever the model is called", function()
    local report = S.report({ { { U(0) } } }, { path = "/models/My Model_v1.5 (\"x\"): #2.gguf" })
    local by = objects(report, S.machine(1))
    for _, list in pairs(by) do
      for _, o in ipairs(list) do
        assert.truthy(o.metadata.name:match("^%l[%l%d-]*[%l%d]$"), o.metadata.name)
        assert.is_true(#o.metadata.name <= 63)
      end
    end
  end)
end)
