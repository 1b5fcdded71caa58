-- SPDX-License-Identifier: Apache-2.0
-- The command `tpl doctor` (interface.md section 4): envelope, exit codes, help. And the parts that read a host.
local doctor = require("tpl.doctor")
local environ = require("tpl.doctor.environ")
local helper = require("spec.cli.helper")
local host = require("tpl.doctor.host")
local json = require("tpl.json")
local pci = require("tpl.doctor.pci")
local tree_of = require("spec.doctor.tree")

local DIR = require("spec.doctor.hosts").dir()

describe("tpl doctor", function()
  it("prints one envelope, exit 0 when nothing failed", function()
    local r = helper.run { "doctor", "--json", "--root", DIR .. "clean" }
    assert.equal(0, r.code)
    assert.equal(1, #r.lines)
    local e = r.lines[1]
    assert.same({ "tpl.doctor/1", true, json.null }, { e.schema, e.ok, e.error })
    assert.equal(json.null, e.result.nccl)
    for _, c in ipairs(e.result.checks) do
      assert.is_true(({ ok = true, warn = true, fail = true, skip = true })[c.status])
      assert.same({ "code", "status", "what", "evidence", "why", "fix" }, getmetatable(c).keys)
      assert.equal(c.status == "ok" or c.status == "skip", c.fix == json.null, c.code)
    end
  end)

  it("exits 1 when a check failed, 0 on warnings, and says so to people", function()
    local failed = helper.run { "doctor", "--json", "--root", DIR .. "nccl-timeout" }
    assert.equal(1, failed.code)
    assert.same({ false, "checks_failed", "acs, iommu, dev_shm" },
      { failed.lines[1].ok, failed.lines[1].error.code, failed.lines[1].error.message })
    local r = helper.run { "doctor", "--root", DIR .. "other-pair-after-restart" }
    assert.equal(0, r.code)
    assert.matches("warn  uuid_pin: .-\n      found: .-\n      why:   .-\n      fix:   CUDA_VISIBLE_DEVICES=GPU", r.stdout)
    assert.matches("skip  p2p_data: ", r.stdout)
    assert.matches("0 failed, 4 warnings, %d+ in order, %d+ not checked", r.stdout)
  end)

  it("lists every code in its help, each once", function()
    local r = helper.run { "help", "doctor" }
    assert.equal(0, r.code)
    local seen = {}
    for _, check in ipairs(doctor.checks()) do
      assert.is_nil(seen[check.code], check.code)
      seen[check.code] = true
      assert.matches("\n    " .. check.code .. " +" .. check.what:sub(1, 12):gsub("%p", "%%%0"), r.stdout)
      assert.is_true(#check.why > 20, check.code)
    end
  end)

  it("takes models with their words, and refuses words alone", function()
    local model = DIR .. "heads-not-divisible/model"
    local function heads(...)
      local r = helper.run { "doctor", "--json", "--root", DIR .. "heads-not-divisible", ... }
      for _, c in ipairs(r.lines[1].result.checks or {}) do if c.code == "tp_heads" then return c.status end end
      return r.code
    end
    assert.equal("fail", heads(model))
    assert.equal("ok", heads(model, "tp=4"))
    assert.equal("ok", heads(model, "mesh=dp=2:batch,tp=4"))
    assert.equal("fail", heads(model, "tp=4", model, "tp=3"))
    assert.equal("fail", heads(model .. "/config.json", "tp=6"))
    assert.equal(2, helper.run({ "doctor", "tp=3" }).code)
    assert.equal(2, helper.run({ "doctor", "--root", DIR .. "clean", "no-such-model" }).code)
    assert.equal(2, helper.run({ "doctor", "--nccl-log", "/no/such.log", "--root", DIR .. "clean" }).code)
  end)

  it("reads the heads of a GGUF file and of a deployment, which tpl itself may cut unevenly", function()
    local model = helper.model("deepseek2-gguf-q8_0")
    if not model then return pending("the shared fixtures are absent") end
    local function heads(...)
      local r = helper.run { "doctor", "--json", "--root", DIR .. "heads-not-divisible", ... }
      for _, c in ipairs(r.lines[1].result.checks or {}) do if c.code == "tp_heads" then return c end end
      return { status = r.stderr }
    end
    local c = heads(model .. "/model.gguf", "tp=7")
    assert.equal("fail", c.status)
    assert.matches("has %d+ attention heads", c.evidence)
    local nine = helper.model("llama-9x3") -- 9 heads, 3 KV heads
    assert.equal("warn", heads("examples/hello.lua", "tp=2", "model=" .. nine).status)
    assert.equal("ok", heads("examples/hello.lua", "tp=3", "model=" .. nine).status)
    assert.equal("fail", heads(nine, "tp=2").status)
  end)

  it("asks the library that TPL_NVML names for a tree without a topology", function()
    local nvml = require("spec.support.nvml")
    if not nvml.library() then return pending("the stand-in for NVML is not built (TPL_TESTS)") end
    local dir = helper.folder()
    local tree = tree_of.clean()
    tree.topo, tree.links = nil, {}
    for path in pairs(tree.files) do if path:find("^proc/driver/nvidia/gpus") or path:find("^sys/devices/pci") then tree.files[path] = nil end end
    tree_of.write(tree, dir)
    local record = helper.write(dir .. "/machine.yaml", require("tpl.yaml").encode(require("spec.topo.standin.machines").reference()))
    local report = nvml.with_env({ TPL_NVML = nvml.library(), TPL_NVML_RECORD = record }, function() return assert(doctor.examine { root = dir }) end)
    -- Two models, and indices in CUDA's order: the probe refuses to guess, and the doctor says so.
    helper.write(record, require("tpl.yaml").encode(require("spec.topo.standin.machines").mixed()))
    local p = io.popen(("CUDA_DEVICE_ORDER= CUDA_VISIBLE_DEVICES=0 TPL_NVML=%s TPL_NVML_RECORD=%s build/tpl doctor 2>&1"):format(nvml.library(), record))
    local text = p:read("*a")
    p:close()
    helper.remove(dir)
    assert.matches("fail  cuda_visible_devices: [^\n]*\n *found: CUDA_VISIBLE_DEVICES: has indices, but the GPUs are of several models", text)
    local found = {}
    for _, c in ipairs(report.checks) do found[c.code] = c end
    assert.equal("fail", found.mig_mode.status) -- GPU 2 and 3 of the reference host are cut into slices
    assert.matches("GPU 2 .*GPU 3", found.mig_mode.evidence)
    assert.equal("ok", found.nvlink_p2p.status)
    assert.matches("GPU 1 .*10.0 GiB", found.gpu_busy.evidence)
  end)

  it("never trips over an empty or damaged tree", function()
    local dir = helper.folder()
    local function run()
      local report = assert(doctor.examine { root = dir })
      for _, c in ipairs(report.checks) do assert.is_falsy(c.broken, c.code .. ": " .. c.evidence) end
      return report
    end
    for _, c in ipairs(run().checks) do
      assert.is_true(c.status == "skip" or c.code == "ib_hca" or c.code == "p2p_intel_cpu" or c.status == "ok" and c.evidence:find("not set"),
        c.code .. ": " .. c.status .. ": " .. c.evidence)
    end
    local tree = tree_of.clean()
    for path in pairs(tree.files) do tree.files[path] = "\0\255 garbage : = \n\n-1\n" end
    tree.topo = nil
    tree_of.write(tree, dir)
    run()
    helper.write(dir .. "/nccl.log", "NCCL version 2.\255\nChannel 00 : 0[0] -> 1[1] via NET/\200\255/0\nNET/IB : Using [0]mlx\255:1/IB\n")
    local r = helper.run { "doctor", "--json", "--root", dir, "--nccl-log", dir .. "/nccl.log", "--bundle", dir .. "/b.yaml" }
    assert.equal("table", type(r.lines[1]), r.stdout) -- it is JSON whatever the host's files hold
    assert.is_true(r.code < 2, r.stderr)
    assert.is_truthy(doctor.examine { root = dir .. "/b.yaml" })
    for path in pairs(tree.files) do tree.files[path] = "" end
    tree_of.write(tree, dir)
    run()
    helper.remove(dir)
  end)
end)

describe("tpl.doctor.environ", function()
  local function read(files, own)
    return environ.read(host.record({ files = files }, "x"), host.record({ files = own or {} }, "own"))
  end

  it("reads what the kernel keeps, else lines", function()
    local env, where, recorded = read { ["proc/self/environ"] = "A=1\0B=x=y\0\0" }
    assert.same({ { A = "1", B = "x=y" }, "proc/self/environ", true }, { env, where, recorded })
  end)

  it("takes tpl's own where a tree keeps none, and says so", function()
    local env, where, recorded = read({}, { ["proc/self/environ"] = "NCCL_DEBUG=INFO\0" })
    assert.same({ { NCCL_DEBUG = "INFO" }, "environment of tpl", false }, { env, where, recorded })
  end)

  it("lets the first file of NCCL's order win, and the variable before it", function()
    local h = host.record({ files = { ["home/m/.nccl.conf"] = "NCCL_A=1 # why\n", ["etc/nccl.conf"] = "NCCL_A=2\n NCCL_B = 3 \n" } }, "x")
    local list = environ.nccl_files(h, { HOME = "/home/m" })
    assert.same({ "/home/m/.nccl.conf", "/etc/nccl.conf" }, { list[1].path, list[2].path })
    assert.same({ "1", "/home/m/.nccl.conf:1" }, { list[1].settings.NCCL_A.value, list[1].settings.NCCL_A.where })
    assert.equal("3", list[2].settings.NCCL_B.value)
    assert.equal("/etc/nccl.conf", environ.nccl_files(h, { HOME = "/home/m", NCCL_CONF_FILE = "/opt/x" })[1].path)
  end)
end)

describe("tpl.doctor.pci", function()
  it("writes addresses as sysfs does", function()
    assert.same({ "0000:1a:00.0", "0000:1a:00.0", "10000:01:00.0", "000b:00:01.7" }, {
      pci.address("00000000:1A:00.0"), pci.address("0000:1a:00"), pci.address("10000:01:00.0"), pci.address("B:0:1.7"),
    })
    assert.is_nil(pci.address("GPU0"))
    assert.is_nil(pci.address(nil))
  end)

  local function at(root, numa, ...) return { root = root, numa = numa, path = { ... } } end

  it("says how far two devices are apart, in nvidia-smi's words", function()
    local a = at("pci0000:17", 0, "17:01", "18:00", "19:00", "1a:00")
    assert.equal("pix", pci.distance(a, at("pci0000:17", 0, "17:01", "18:00", "19:01", "1b:00"))) -- ports of one switch
    assert.equal("pxb", pci.distance(a, at("pci0000:17", 0, "17:01", "28:00", "29:00", "2a:00", "2b:00", "2c:00")))
    assert.equal("phb", pci.distance(a, at("pci0000:17", 0, "17:02", "30:00")))
    assert.equal("node", pci.distance(a, at("pci0000:3d", 0, "3d:01", "3e:00")))
    assert.equal("sys", pci.distance(a, at("pci0000:97", 1, "97:01", "98:00")))
    assert.is_nil(pci.distance(a, at("pci0000:97", nil, "97:01", "98:00")))
    assert.is_nil(pci.distance({}, {}))
  end)

  it("finds ACS behind other capabilities, and not in what a user may read", function()
    local config = tree_of.config(0x1000, 0xc030, 0x0604, 0x001d)
    assert.same({ 0x148, true }, { pci.extended(config, pci.ACS) })
    assert.same({ nil, true }, { pci.extended(tree_of.config(0x1000, 0xc030, 0x0604), pci.ACS) })
    assert.same({ nil, false }, { pci.extended(config:sub(1, 64), pci.ACS) })
    assert.same({ nil, true }, { pci.extended(config:sub(1, 0x100) .. "\1\0\1\16" .. ("\0"):rep(3000), pci.ACS) }) -- next = 0x100: a ring
  end)
end)
