-- SPDX-License-Identifier: Apache-2.0
-- NCCL variables with a cause, and none without. Defaults: NCCL 2.30.7, facts/topology.md sections 4 and 6.
local S = dofile("spec/emit/support.lua")
local nccl_env = require("tpl.nccl_env")

local U = S.uuid

local function values(list)
  local out = {}
  for _, e in ipairs(list) do out[e.name .. (e.host and "@" .. e.host or "")] = e.value end
  return out
end

-- Two PCIe GPUs behind one CPU; Gen4 x16, so direct access is worth it from 12 GB/s (half of NCCL's 24).
local function pcie_pair(link, vendor, n)
  local devices = {}
  for i = 0, (n or 2) - 1 do devices[i + 1] = S.gpu(i, { pcie = { gen = 4, width = 16 } }) end
  local fields = { kind = "phb", nvlinks = false, via_switch = false, p2p = { read = "ok", write = "ok" }, gb_s = 20, source = "measured",
    data_ok = true }
  for k, v in pairs(link or {}) do fields[k] = v end
  return S.topo { hosts = { { id = "host0", cpu = { vendor = vendor or "GenuineIntel" } } }, devices = devices, links = S.mesh(devices, fields) }
end

local function two_hosts(nics, b_host)
  local devices = { S.gpu(0, { host = "a" }), S.gpu(1, { host = "a" }), S.gpu(2, { host = "b" }), S.gpu(3, { host = "b" }) }
  local t = S.topo { hosts = { { id = "a" }, { id = "b" } }, devices = devices, nics = nics }
  for k, v in pairs(b_host or {}) do t.hosts[2][k] = v end
  return t
end

local ALL = { { U(0), U(1), U(2), U(3) } }

describe("NCCL variables", function()
  it("are none for a healthy NVLink group; CUDA's order is said with its reason", function()
    local list = nccl_env.make(S.machine(4), ALL)
    assert.same({ CUDA_DEVICE_ORDER = "PCI_BUS_ID" }, values(list))
    assert.truthy(#list[1].why > 20)
  end)

  it("are none at all for CPU ranks", function()
    assert.same({}, nccl_env.make(S.topo { devices = { { uid = "cpu0", kind = "cpu" }, { uid = "cpu1", kind = "cpu" } } }, { { "cpu0", "cpu1" } }))
  end)

  it("raise the P2P level for a PHB path that was measured to be good", function()
    local list = nccl_env.make(pcie_pair(), { { U(0), U(1) } })
    assert.equal("PHB", values(list).NCCL_P2P_LEVEL)
    assert.truthy(list[2].why:find("20.0 GB/s", 1, true))
    assert.equal("PHB", values(nccl_env.make(pcie_pair { kind = "node" }, { { U(0), U(1) } })).NCCL_P2P_LEVEL) -- one NUMA node is PHB to NCCL
    assert.equal("SYS", values(nccl_env.make(pcie_pair { kind = "sys" }, { { U(0), U(1) } })).NCCL_P2P_LEVEL)
  end)

  for what, link in pairs {
    ["a path that was only stated"] = { source = "stated" }, ["a slow one"] = { gb_s = 5 },
    ["one without peer access"] = { p2p = { read = "ok", write = "cns" } },
    ["one of which nothing is known"] = { p2p = false, gb_s = false }, ["a level that NCCL takes by itself"] = { kind = "pxb" },
  } do
    it("leave the level alone for " .. what, function()
      local t = pcie_pair(link)
      for _, l in ipairs(t.links) do
        if l.p2p == false then l.p2p, l.gb_s = nil, nil end
      end
      assert.is_nil(values(nccl_env.make(t, { { U(0), U(1) } })).NCCL_P2P_LEVEL)
    end)
  end

  it("leave the level alone where any pair of that level is bad", function()
    local t = pcie_pair(nil, nil, 3)
    t.links[3].gb_s = 3
    assert.is_nil(values(nccl_env.make(t, { { U(0), U(1), U(2) } })).NCCL_P2P_LEVEL)
  end)

  it("leave the level alone with two GPUs under an AMD CPU, where NCCL's default is SYS, not with four", function()
    assert.is_nil(values(nccl_env.make(pcie_pair(nil, "AuthenticAMD"), { { U(0), U(1) } })).NCCL_P2P_LEVEL)
    assert.equal("PHB", values(nccl_env.make(pcie_pair(nil, "AuthenticAMD", 4), ALL)).NCCL_P2P_LEVEL)
  end)

  it("switch P2P off where it delivered wrong data, and then set no level", function()
    local t = pcie_pair(nil, nil, 3)
    t.links[2].data_ok = false
    local v = values(nccl_env.make(t, { { U(0), U(1), U(2) }, { U(0), U(1) } }))
    assert.equal("1", v.NCCL_P2P_DISABLE)
    assert.is_nil(v.NCCL_P2P_LEVEL)
  end)

  it("name the near adapters of a job over hosts where others exist, exactly", function()
    local nics = { { name = "NIC0", device = "mlx5_0", near = { U(0), U(2) } }, { name = "NIC1", device = "mlx5_1", near = { U(1), U(3) } },
      { name = "NIC2", device = "mlx5_10", near = {} } }
    -- the far adapter belongs to whichever host; each host lists it through `host`
    local all = {}
    for _, host in ipairs { "a", "b" } do
      for _, nic in ipairs(nics) do all[#all + 1] = { name = nic.name, device = nic.device, near = nic.near, host = host } end
    end
    assert.equal("=mlx5_0,mlx5_1", values(nccl_env.make(two_hosts(all), ALL)).NCCL_IB_HCA)
    assert.is_nil(values(nccl_env.make(two_hosts(all), { { U(0), U(1) } })).NCCL_IB_HCA) -- one host: NCCL needs no adapter
  end)

  it("name adapters per host where they differ, and none where all are near", function()
    local nics = { { device = "mlx5_0", near = { U(0), U(1) }, host = "a" }, { device = "mlx5_1", near = {}, host = "a" },
      { device = "mlx5_4", near = { U(2), U(3) }, host = "b" }, { device = "mlx5_5", near = {}, host = "b" } }
    local v = values(nccl_env.make(two_hosts(nics), ALL))
    assert.equal("=mlx5_0", v["NCCL_IB_HCA@a"])
    assert.equal("=mlx5_4", v["NCCL_IB_HCA@b"])
    v = values(nccl_env.make(two_hosts { nics[1], nics[3] }, ALL))
    assert.same({ "CUDA_DEVICE_ORDER" }, require("tpl.util").keys(v))
  end)

  it("keep virtual bridges out of the bootstrap between hosts", function()
    local t = two_hosts({}, { interfaces = { "eth0", "docker0", "virbr0" } })
    assert.equal("^docker,virbr,lo", values(nccl_env.make(t, ALL)).NCCL_SOCKET_IFNAME)
    assert.equal("^docker,lo", values(nccl_env.make(two_hosts({}), ALL, { interfaces = { "ib0", "docker0" } })).NCCL_SOCKET_IFNAME)
    assert.is_nil(values(nccl_env.make(two_hosts({}), ALL, { interfaces = { "eth0", "ib0" } })).NCCL_SOCKET_IFNAME)
  end)

  it("turn cuMem host allocations off without SYS_NICE, up to NCCL 2.26.4", function()
    local t = S.machine(2)
    local function value(opts) return values(nccl_env.make(t, { { U(0), U(1) } }, opts)).NCCL_CUMEM_HOST_ENABLE end
    assert.is_nil(value {})
    assert.equal("0", value { sys_nice = false })
    assert.equal("0", value { sys_nice = false, nccl = "2.26.2" })
    assert.is_nil(value { sys_nice = false, nccl = "2.26.5" })
    assert.is_nil(value { sys_nice = false, nccl = "2.30.7" })
  end)

  it("know NCCL_MIN_NCHANNELS as the old name of NCCL_MIN_CTAS", function()
    assert.equal("NCCL_MIN_CTAS", (nccl_env.canonical("NCCL_MIN_NCHANNELS")))
    assert.equal("NCCL_ALGO", (nccl_env.canonical("NCCL_ALGO")))
    local list = nccl_env.make(S.machine(2), { { U(0), U(1) } }, { environment = { NCCL_MIN_NCHANNELS = "8" } })
    assert.equal("8", values(list).NCCL_MIN_CTAS)
    assert.truthy(list[2].why:find("NCCL_MIN_NCHANNELS", 1, true))
  end)
end)
