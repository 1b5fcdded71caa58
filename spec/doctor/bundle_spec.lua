-- SPDX-License-Identifier: Apache-2.0
-- A bundle finds what the host found, and names nobody. Names, addresses and secrets below are invented and planted in the trees.
local doctor = require("tpl.doctor")
local bundle = require("tpl.doctor.bundle")
local helper = require("spec.cli.helper")
local redact = require("tpl.doctor.redact")
local tree_of = require("spec.doctor.tree")

local function statuses(report)
  local out = {}
  for _, c in ipairs(report.checks) do out[c.code] = c.status end
  return out
end

--- Examine a tree and the bundle made of it.
local function both(tree, opts)
  local dir = helper.folder()
  tree_of.write(tree, dir .. "/host")
  opts = opts or {}
  opts.root = dir .. "/host"
  local first = assert(doctor.examine(opts))
  local text = bundle.write(first)
  helper.write(dir .. "/bundle.yaml", text)
  local second, e = doctor.examine { root = dir .. "/bundle.yaml" }
  helper.remove(dir)
  return first, assert(second, e and tostring(e)), text
end

describe("tpl.doctor.redact", function()
  it("replaces a UUID by the same one everywhere, and keeps zero", function()
    local r = redact.new { hosts = {}, users = {} }
    local a = r:text("GPU-3FA0B000-5d1c-4c0e-9a31-0000c0ffee00 MIG-11111111-1c4b-5a3d-8f22-77d1a0b1c2d3")
    assert.equal("GPU-00000001-0000-4000-8000-000000000001 MIG-00000002-0000-4000-8000-000000000002", a)
    assert.equal("GPU-00000001-0000-4000-8000-000000000001", r:text("GPU-3fa0b000-5d1c-4c0e-9a31-0000c0ffee00"))
    assert.equal("00000000-0000-0000-0000-000000000000", r:text("00000000-0000-0000-0000-000000000000"))
  end)

  it("takes out MAC addresses, names made of them, serial numbers and short IPv6 addresses", function()
    local r = redact.new { hosts = {}, users = {} }
    assert.equal("enx020000000001 enp1s0 enx020000000002 enx020000000001", r:text("enx001122334455 enp1s0 enx00112233445f enx001122334455"))
    assert.equal("link 00:00:00:00:00:00 at 0000:1a:00.0", r:text("link a0:36:9f:01:02:03 at 0000:1a:00.0"))
    assert.equal("GPU Board Serial Number: X; serial X", r:text("GPU Board Serial Number: 1320123456789; serial SN99"))
    assert.equal("eth1:::%eth1 0000:1a:00.0", r:text("eth1:fe80::a1:b2%eth1 0000:1a:00.0", true))
  end)

  it("takes out hosts, users, addresses and secrets, and leaves versions and bus addresses", function()
    local r = redact.new { hosts = { "gpu17.cluster.example" }, users = { "maria" } }
    assert.equal("host kernel: host /home/user1/x user", r:text("gpu17 kernel: gpu17.cluster.example /home/maria/x maria"))
    assert.equal("marianne gpu170 0000:1a:00.0 96.00.89.00.01", r:text("marianne gpu170 0000:1a:00.0 96.00.89.00.01", true))
    assert.equal("at 0.0.0.0 and ::", r:text("at 10.20.0.11 and fe80::a236:9fff:fe00:1", true))
    assert.equal("SECRET Bearer SECRET SECRET", r:text("hf_aBcDeFgHiJkLmNoPq Bearer abc.def-1 sk-proj-123456789"))
    assert.equal("(user@host)", r:text("(buildd@lcy02-amd64-115)"))
  end)
end)

describe("tpl doctor --bundle", function()
  it("finds the same on every recorded host", function()
    for _, name in ipairs { "clean", "nccl-timeout", "one-gpu-idle", "slow-pcie-numa", "other-pair-after-restart", "heads-not-divisible" } do
      local first = assert(doctor.examine { root = require("spec.doctor.hosts").dir() .. name,
        models = name == "heads-not-divisible" and { { name = require("spec.doctor.hosts").dir() .. "heads-not-divisible/model", words = {} } } or nil })
      local dir = helper.folder()
      helper.write(dir .. "/b.yaml", bundle.write(first))
      local second = assert(doctor.examine { root = dir .. "/b.yaml" })
      helper.remove(dir)
      assert.same(statuses(first), statuses(second), name)
    end
  end)

  it("finds the same with a log, a manifest and a short UUID", function()
    local tree = tree_of.clean()
    tree_of.env(tree, { CUDA_VISIBLE_DEVICES = "GPU-3fa0b000,GPU-3fa0c111", NCCL_SOCKET_IFNAME = "^docker" })
    tree.files["home/maria/.nccl.conf"] = "NCCL_P2P_LEVEL=LOC\nNCCL_NET_PLUGIN=/home/maria/lib.so\n"
    tree.files["usr/local/lib/python3.12/dist-packages/nvidia_nccl_cu12-2.26.2.dist-info/METADATA"] = "x"
    tree.topo.devices[3].busy = { pids = { 4711 }, used_bytes = 2 ^ 34 }
    local first, second = both(tree, { nccl_log = "spec/fixtures/nccl_logs/socket-beside-ib.log", k8s = "spec/fixtures/k8s/shm-over-memory.yaml" })
    assert.same(statuses(first), statuses(second))
    assert.equal("fail", statuses(first).nccl_p2p_level)
    assert.equal("fail", statuses(first).nccl_log_transport)
    assert.equal("fail", statuses(first).k8s_shm_size)
    assert.same(first.nccl.pairs, second.nccl.pairs)
  end)

  it("keeps the hidden file of a user whose environment is not recorded", function()
    local tree = tree_of.clean()
    tree.files["proc/self/environ"] = nil
    tree.files["home/maria/.nccl.conf"] = "NCCL_P2P_LEVEL=LOC\n"
    local first, second, text = both(tree)
    assert.equal("fail", statuses(first).nccl_p2p_level)
    assert.same(statuses(first), statuses(second))
    assert.is_nil(text:find("maria"))
  end)

  it("names nobody", function()
    local tree = tree_of.clean()
    local uuid = tree.topo.devices[1].uuid
    tree_of.env(tree, { HF_TOKEN = "hf_abcdefghijklmnop", NCCL_SOCKET_IFNAME = "eno1", AWS_SECRET_ACCESS_KEY = "zzz",
      KUBERNETES_SERVICE_HOST = "10.96.0.1",
      CUDA_VISIBLE_DEVICES = uuid, NCCL_TOPO_FILE = "/home/maria/topo.xml", PRIVATE = "nobody-should-see-this" })
    tree.files["home/maria/topo.xml"] = '<system version="1" name="gpu17"><cpu numaid="0"/></system>\n'
    tree.files["etc/nccl.conf"] = "NCCL_OOB=10.1.2.3\n# for maria\n"
    tree.files["proc/4711/comm"] = "secret-app\n"
    tree.files["var/log/kern.log"] = "Nov  2 gpu17 kernel: usb 1-1: SerialNumber: 0123456789ABC\n"
      .. "Nov  2 gpu17 kernel: NVRM: Xid (PCI:0000:1a:00): 31, pid=99, name=maria-train, Ch 8\n"
    tree_of.edit(tree, "proc/cmdline", "ro ", "ro ip=10.20.0.11 password=hunter2 ")
    tree_of.edit(tree, "proc/mounts", "tmpfs /dev/shm", "10.20.0.99:/export/maria /home/maria nfs4 rw 0 0\ntmpfs /dev/shm")
    tree.topo.devices[1].serial = "1654123456789"
    local first, second, text = both(tree)
    assert.same(statuses(first), statuses(second))
    for _, word in ipairs { "maria", "gpu17", "10%.20", "10%.96", "10%.1%.2", "hf_", "zzz", "nobody", "hunter2", "secret", "0123456789ABC",
      "1654123456789", "3fa0b000", "buildd", "vg%-root" } do
      local at = text:find(word)
      assert.is_nil(at and text:sub(at - 60, at + 60), word)
    end
  end)

  it("is written and read by the command", function()
    local dir = helper.folder()
    local r = helper.run { "doctor", "--root", require("spec.doctor.hosts").dir() .. "slow-pcie-numa", "--bundle", dir .. "/b.yaml", "--json" }
    assert.equal(1, r.code)
    local again = helper.run { "doctor", "--root", dir .. "/b.yaml", "--json" }
    assert.equal(1, again.code)
    for i, c in ipairs(r.lines[1].result.checks) do assert.equal(c.code .. c.status, again.lines[1].result.checks[i].code
      .. again.lines[1].result.checks[i].status) end
    helper.remove(dir)
  end)

  it("refuses other files", function()
    local dir = helper.folder()
    for name, text in pairs { ["a.yaml"] = "devices: []\n", ["b.yaml"] = "tpl_doctor_bundle: 2\n", ["c.yaml"] = "a: [",
      ["d.yaml"] = "tpl_doctor_bundle: 1\nfiles: {a: 3}\n", ["e.yaml"] = "" } do
      local r = helper.run { "doctor", "--root", helper.write(dir .. "/" .. name, text) }
      assert.equal(6, r.code, name)
    end
    assert.equal(2, helper.run({ "doctor", "--root", dir .. "/absent" }).code)
    helper.remove(dir)
  end)

  it("takes a bundle whose parts are odd", function()
    local dir = helper.folder()
    local path = helper.write(dir .. "/b.yaml",
      "tpl_doctor_bundle: 1\ntopo: {devices: [{kind: gpu, uid: 3}, {}], links: [{a: 1}], nics: [{}]}\nfiles: {proc/self/limits: x, proc/mounts: ''}\nlists: {proc: [a]}\n")
    local report, e = doctor.examine { root = path }
    helper.remove(dir)
    assert.is_truthy(report or require("tpl.err").is(e) and e.code ~= "internal", tostring(e))
  end)
end)
