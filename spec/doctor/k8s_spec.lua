-- SPDX-License-Identifier: Apache-2.0
-- Kubernetes manifests (spec/fixtures/k8s, own). What each shows is written beside it; classes of service by the rules of the
-- Kubernetes documentation ("Pod Quality of Service Classes"), quantities by its "resource.Quantity".
local doctor = require("tpl.doctor")
local helper = require("spec.cli.helper")
local quantity = require("tpl.doctor.quantity")

local CLEAN = require("spec.doctor.hosts").dir() .. "clean"

local function check(path)
  local report = assert(doctor.examine { root = CLEAN, k8s = path })
  local out = {}
  for _, c in ipairs(report.checks) do if c.group == "Kubernetes" then out[c.code] = c end end
  return out, report
end

local function status(found)
  local out = {}
  for code, c in pairs(found) do out[code:gsub("^k8s_", "")] = c.status end
  return out
end

describe("tpl.doctor.quantity", function()
  it("reads what Kubernetes writes", function()
    assert.same({ 0.5, 8 * 2 ^ 30, 2, 1.5e9, 2 ^ 40, 12.5, 1e3 }, {
      quantity.parse("500m"), quantity.parse("8Gi"), quantity.parse(2), quantity.parse("1.5G"), quantity.parse("1Ti"), quantity.parse("12500m"),
        quantity.parse("1e3"),
    })
    assert.is_nil(quantity.parse("8 apples"))
    assert.is_nil(quantity.parse({}))
  end)

  it("reads what people write in SHM_SIZE", function()
    assert.same({ 64 * 2 ^ 20, 10 * 2 ^ 30, 10 * 2 ^ 30, 2 ^ 30, 1024 }, {
      quantity.size("64m"), quantity.size("10gb"), quantity.size("10Gi"), quantity.size("1G"), quantity.size("1024"),
    })
  end)
end)

describe("tpl doctor --k8s", function()
  it("finds nothing in a good Deployment", function()
    local found, report = check("spec/fixtures/k8s/good.yaml")
    assert.same({ gpus = "ok", cpu = "ok", shm = "ok", shm_size = "ok", host_ipc = "ok", visible_devices = "ok" }, status(found))
    assert.equal(0, report.failed)
  end)

  it("counts the pods of a LeaderWorkerSet together", function()
    assert.same({ gpus = "ok", cpu = "ok", shm = "ok", shm_size = "ok", host_ipc = "ok", visible_devices = "ok" },
      status(check("spec/fixtures/k8s/lws.yaml")))
  end)

  it("finds the idle GPU, the missing /dev/shm and the shared cores of a CronJob", function()
    local found = check("spec/fixtures/k8s/idle-gpu.yaml")
    assert.equal("fail", found.k8s_gpus.status)
    assert.matches("CronJob/nightly, container eval: NUM_GPUS=1, and nvidia.com/gpu is 2: 1 stand idle", found.k8s_gpus.evidence)
    assert.equal("warn", found.k8s_cpu.status)
    assert.matches("Burstable: cpu requests 4, limits 12.5", found.k8s_cpu.evidence)
    assert.equal("fail", found.k8s_shm.status)
  end)

  it("finds /dev/shm above the memory limit, and cores that are no whole number", function()
    local found = check("spec/fixtures/k8s/shm-over-memory.yaml")
    assert.equal("fail", found.k8s_shm_size.status)
    assert.matches("SHM_SIZE=48g is not below the memory limit 32Gi", found.k8s_shm_size.evidence)
    assert.equal("warn", found.k8s_cpu.status)
    assert.matches("cpu 8.5 is no whole number", found.k8s_cpu.evidence)
  end)

  it("refuses what is no manifest, with the place", function()
    local dir = helper.folder()
    local bad = helper.write(dir .. "/bad.yaml", "kind: Pod\nspec: {containers: [\n")
    local none = helper.write(dir .. "/none.yaml", "kind: ConfigMap\ndata: {a: b}\n")
    local r = helper.run { "doctor", "--root", CLEAN, "--k8s", bad }
    assert.equal(6, r.code)
    assert.matches("bad.yaml:%d", r.stderr)
    r = helper.run { "doctor", "--root", CLEAN, "--k8s", none }
    assert.equal(6, r.code)
    assert.matches("holds no pod", r.stderr)
    assert.equal(2, helper.run({ "doctor", "--root", CLEAN, "--k8s", dir .. "/absent.yaml" }).code)
    helper.remove(dir)
  end)

  it("takes odd values without falling over", function()
    local dir = helper.folder()
    local odd = helper.write(dir .. "/odd.yaml", [[
kind: Pod
metadata: null
spec:
  hostIPC: "yes"
  containers:
  - {name: 7, env: [null, {name: NUM_GPUS, value: many}, {name: X}], args: [null, 3,
    --tensor-parallel-size], resources: {limits: {nvidia.com/gpu: few, cpu: {}, memory: []}}}
  - null
  - {}
  volumes: [null, {name: 3}]
]])
    for _, c in ipairs(assert(doctor.examine { root = CLEAN, k8s = odd }).checks) do assert.is_falsy(c.broken, c.code .. ": " .. c.evidence) end
    helper.remove(dir)
  end)
end)
