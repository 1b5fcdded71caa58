-- SPDX-License-Identifier: Apache-2.0
-- Logs of each form (spec/fixtures/nccl_logs, own; forms from facts/topology.md section 7). The tables are read off the logs by hand.
local files = require("spec.support.files")
local helper = require("spec.cli.helper")
local nccl_log = require("tpl.doctor.nccl_log")
local tree_of = require("spec.doctor.tree")

local DIR = "spec/fixtures/nccl_logs/"

local function parse(name) return nccl_log.parse(files.slurp(DIR .. name .. ".log")) end

local function rows(log)
  local out = {}
  for i, p in ipairs(log.pairs) do out[i] = ("%d %d %d %s %s"):format(p.a, p.b, p.channels, p.transport, tostring(p.gdr)) end
  return out
end

describe("tpl.doctor.nccl_log", function()
  local expected = {
    ["2.4"] = { "2.4.8", { "0 1 1 P2P/IPC nil", "0 2 1 SHM/direct nil", "1 2 1 SHM/direct nil" }, {} },
    ["2.12"] = { "2.12.12", { "0 1 2 P2P/IPC/read nil", "1 2 1 SHM/direct nil", "2 3 1 P2P/direct pointer nil", "3 4 1 NET/IB true" },
      { "NET/IB mlx5_0:1/IB", "NET/IB mlx5_1:1/IB" } },
    ["2.18"] = { "2.18.5", { "0 1 2 P2P/IPC nil", "1 2 1 SHM/direct/direct nil", "2 8 2 NET/IB false", "2 9 1 NET/IB false" },
      { "NET/IB mlx5_0:1/IB", "NET/IB mlx5_bond_0:1/RoCE" } },
    ["2.28"] = { "2.28.3", { "0 1 2 P2P/CUMEM nil", "1 3 1 P2P/indirect nil", "1 5 1 P2P/MNNVL nil", "1 8 1 NET/IB true", "1 9 1 NET/IB true" },
      { "NET/IB mlx5_0:1/IB", "NET/IB mlx5_3:1/IB" } },
    ["2.30-no-number"] = { "2.30.7", { "0 1 1 P2P/CUMEM/CE nil", "0 4 2 NET/IB true", "1 5 1 NET/IB false" }, { "NET/IB mlx5_0:1/IB" } },
    ["libfabric"] = { "2.22.3", { "0 8 1 NET/AWS Libfabric true", "1 9 1 NET/Libfabric false" }, { "NET/AWS Libfabric", "NET/Libfabric" } },
    ["socket-only"] = { "2.21.5", { "0 1 1 NET/Socket false" }, { "NET/Socket eth0:192.168.4.10" } },
  }
  for name, want in pairs(expected) do
    it("reads " .. name, function()
      local log = parse(name)
      assert.equal(want[1], log.version)
      assert.same(want[2], rows(log))
      assert.same(want[3], log.nets)
    end)
  end

  it("finds lines behind any prefix, and leaves others alone", function()
    local log = nccl_log.parse("[1,3]<stdout>:\27[32mx: INFO Channel 5/0:3[3]->2[2] via P2P/CUMEM\27[0m\r\nvia nothing\nChannel 00 : x -> y via P2P\n\0\255\n")
    assert.same({ "2 3 1 P2P/CUMEM nil" }, rows(log))
    assert.same({}, nccl_log.parse("").pairs)
  end)

  it("parts lines of two ranks that ran together in one file", function()
    local log = nccl_log.parse("h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPCh:1:3 [1] NCCL INFO Channel 00/0 : 2[2] -> 3[3] via "
      .. "SHM/direct/directgpu18:9:9 [3] NCCL INFO Channel 00/0 : 4[0] -> 5[0] [send] via NET/IB/0gpu18:9:8 [2] NCCL INFO Connected all rings\n")
    assert.same({ "0 1 1 P2P/IPC nil", "2 3 1 SHM/direct/direct nil", "4 5 1 NET/IB false" }, rows(log))
  end)

  it("shows the worst transport of a pair, whichever line comes first", function()
    local a, b = "Channel 00 : 0[0] -> 1[1] via P2P/CUMEM\n", "Channel 01 : 1[1] -> 0[0] via SHM/direct/direct\n"
    assert.same({ "0 1 2 SHM/direct/direct nil" }, rows(nccl_log.parse(a .. b)))
    assert.same({ "0 1 2 SHM/direct/direct nil" }, rows(nccl_log.parse(b .. a)))
  end)
end)

describe("tpl doctor --nccl-log", function()
  local function run(name, host)
    local dir = helper.folder()
    tree_of.write(host, dir)
    local r = helper.run { "doctor", "--json", "--root", dir, "--nccl-log", DIR .. name .. ".log" }
    local status = {}
    for _, c in ipairs(r.lines[1].result.checks) do status[c.code] = c.status end
    helper.remove(dir)
    return r.code, r.lines[1].result.nccl, status
  end

  local function plain_host()
    return tree_of.host { name = "NVIDIA L40S", n = 2, sm = "8.9", mem_bytes = 48305799168 }
  end

  it("fails on NET/Socket where the log itself names InfiniBand", function()
    local code, nccl, status = run("socket-beside-ib", plain_host())
    assert.equal(1, code)
    assert.equal("fail", status.nccl_log_transport)
    assert.equal("NET/Socket", nccl.pairs[1].transport)
    assert.is_false(nccl.pairs[1].gdr)
  end)

  it("fails on NET/Socket where the host has InfiniBand", function()
    local code, _, status = run("socket-only", tree_of.clean())
    assert.equal(1, code)
    assert.equal("fail", status.nccl_log_transport)
  end)

  it("warns of NET/Socket where there is none, exit 0", function()
    local code, _, status = run("socket-only", plain_host())
    assert.equal(0, code)
    assert.equal("warn", status.nccl_log_transport)
  end)

  it("passes a log of P2P and GPUDirect RDMA", function()
    local code, nccl, status = run("2.28", tree_of.clean())
    assert.equal(0, code)
    assert.same({ "ok", "ok", "ok" }, { status.nccl_log_transport, status.nccl_log_gdr, status.nccl_log_shm })
    assert.equal("2.28.3", nccl.version)
    assert.equal(require("tpl.json").null, nccl.pairs[1].gdr)
  end)

  it("prints a table for people", function()
    local r = helper.run { "doctor", "--root", require("spec.doctor.hosts").dir() .. "clean", "--nccl-log", DIR .. "2.28.log" }
    assert.matches("0 +1 +2 +P2P/CUMEM +%-", r.stdout)
    assert.matches("1 +9 +1 +NET/IB +yes", r.stdout)
  end)
end)
