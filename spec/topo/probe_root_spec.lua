-- SPDX-License-Identifier: Apache-2.0
--- The probe of a recorded tree (proc/ and sys/ in a folder). The tree: two sockets; on each a PCIe switch with a GPU and an RDMA card below it, and a
--- GPU at a root port of its own. Distances worked out by hand after facts/topology.md section 1 (PIX: one switch, PXB: several, PHB: one host bridge).
local tmpdir = require("spec.support.tmpdir")

local GIB_KB = 1024 * 1024

-- Bridges above each device, root complex first.
local pcis = {
  { "0000:03:00.0", 0x030200, 0x10de, 0, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0" },
  { "0000:04:00.0", 0x020700, 0x15b3, 0, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0" },
  { "0000:05:00.0", 0x030200, 0x10de, 0, "pci0000:00/0000:00:02.0/0000:05:00.0" },
  { "0000:20:00.0", 0x020000, 0x8086, 0, "pci0000:1f/0000:1f:01.0/0000:20:00.0" },
  { "0000:83:00.0", 0x030000, 0x10de, 1, "pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0/0000:83:00.0" },
  { "0000:86:00.0", 0x030200, 0x10de, 1, "pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:01.0/0000:84:00.0/0000:85:00.0/0000:86:00.0" },
  { "0000:84:00.0", 0x060400, 0x10b5, 1, "pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:01.0/0000:84:00.0" },
}
local nics = { { "infiniband", "mlx5_0", "0000:04:00.0" }, { "net", "ib0", "0000:04:00.0" }, { "net", "eth0", "0000:20:00.0" }, { "net", "lo" } }
local cpus = { [0] = "0-3,8-11", "4-7,12-15" }

local function build(change)
  local dir = tmpdir.new()
  local function write(path, text)
    dir:sh("mkdir -p '" .. path:match("^(.*)/") .. "'")
    dir:write(path, text .. "\n")
  end
  for _, p in ipairs(pcis) do
    local at = "sys/devices/" .. p[5]
    write(at .. "/class", ("0x%06x"):format(p[2]))
    write(at .. "/vendor", ("0x%04x"):format(p[3]))
    write(at .. "/device", "0x1234")
    write(at .. "/numa_node", tostring(p[4]))
    write(at .. "/local_cpulist", cpus[p[4]] or "0-15")
    dir:sh(("mkdir -p sys/bus/pci/devices && ln -s ../../../devices/%s sys/bus/pci/devices/%s"):format(p[5], p[1]))
  end
  for i, list in pairs(cpus) do
    local at = ("sys/devices/system/node/node%d"):format(i)
    write(at .. "/cpulist", list)
    write(at .. "/meminfo", ("Node %d MemTotal: %d kB\nNode %d MemFree: %d kB\nNode %d Active(file): %d kB\nNode %d Inactive(file): %d kB\nNode %d SReclaimable: %d kB")
      :format(i, 128 * GIB_KB, i, 100 * GIB_KB, i, 6 * GIB_KB, i, 3 * GIB_KB, i, GIB_KB))
    write(("sys/devices/system/cpu/cpu%s/topology/physical_package_id"):format(list:match("^%d+")), tostring(i))
  end
  for _, n in ipairs(nics) do
    local device = n[3] and "sys/devices/" .. (function() for _, p in ipairs(pcis) do if p[1] == n[3] then return p[5] end end end)()
    dir:sh(("mkdir -p sys/class/%s/%s"):format(n[1], n[2]))
    if device then dir:sh(("ln -s ../../../%s sys/class/%s/%s/device"):format(device:gsub("^sys/", ""), n[1], n[2])) end
  end
  write("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Some Xeon\n")
  write("proc/driver/nvidia/gpus/0000:03:00.0/information", "Model: \t\t NVIDIA A40\nGPU UUID: \t GPU-0a0b0c0d-0000-0000-0000-000000000001\nVideo BIOS: \t 94.02.5c.00.03")
  if change then change(dir, write) end
  return dir
end

local function probe(change)
  local dir = build(change)
  local ok, record = pcall(require("tpl.topo.probe").read, { root = dir.path })
  dir:close()
  if not ok then error(record) end
  return record
end

local function by(list, key)
  local out = {}
  for _, x in ipairs(list) do out[x[key]] = x end
  return out
end

describe("the probe of a recorded tree", function()
  it("has a CPU device for each NUMA node", function()
    local r = probe()
    local d = by(r.devices, "uid")
    for i = 0, 1 do
      local c = d["cpu" .. i]
      assert.same({ "cpu", i, i, cpus[i], "Some Xeon" }, { c.kind, c.index, c.numa, c.cpus, c.name })
      assert.equal(128 * 2 ^ 30, c.mem_bytes)
      assert.equal(110 * 2 ^ 30, c.free_bytes) -- free, file cache of both kinds, reclaimable slabs
    end
    assert.same({ vendor = "GenuineIntel", model = "Some Xeon" }, r.hosts[1].cpu)
    assert.same({ { id = 0, package = 0, cpus = cpus[0], mem_bytes = 128 * 2 ^ 30 }, { id = 1, package = 1, cpus = cpus[1], mem_bytes = 128 * 2 ^ 30 } },
      { r.hosts[1].numa[1], r.hosts[1].numa[2] })
    assert.same({ "probe", "cpu" }, { r.source.kind, r.devices[#r.devices].kind }) -- after the GPUs
  end)

  it("joins nodes of one socket by shared memory, and of two by the socket link", function()
    local function node_link(r) for _, l in ipairs(r.links) do if l.a == "cpu0" and l.b == "cpu1" then return l end end end
    assert.same({ a = "cpu0", b = "cpu1", kind = "sys", source = "assumed" }, node_link(probe()))
    local snc = probe(function(_, write) write("sys/devices/system/cpu/cpu4/topology/physical_package_id", "0") end)
    assert.equal("shm", node_link(snc).kind)
  end)

  it("finds the GPUs that the kernel knows, and says what it cannot know", function()
    local r = probe()
    local gpus = {}
    for _, d in ipairs(r.devices) do if d.kind == "gpu" then gpus[#gpus + 1] = d end end
    assert.equal(4, #gpus)
    assert.same({ "GPU-0a0b0c0d-0000-0000-0000-000000000001", "NVIDIA A40", "94.02.5c.00.03", "0000:03:00.0", 0, cpus[0] },
      { gpus[1].uid, gpus[1].name, gpus[1].vbios, gpus[1].pci, gpus[1].numa, gpus[1].cpus })
    assert.same({ "GPU1", 1, nil }, { gpus[2].uid, gpus[2].index, gpus[2].mem_bytes })
    assert.equal("nvml_missing", r.doubts[1].code)
  end)

  it("measures distances between GPUs by their bridges", function()
    local r = probe()
    local words = {}
    for _, l in ipairs(r.links) do if l.pcie then words[l.a:sub(1, 4) .. l.b:sub(1, 4)] = l.pcie end end
    assert.same({ ["GPU-GPU1"] = "phb", ["GPU-GPU2"] = "sys", ["GPU-GPU3"] = "sys", GPU1GPU2 = "sys", GPU1GPU3 = "sys", GPU2GPU3 = "pxb" }, words)
  end)

  it("takes RDMA cards only where there are some, and says how far each device is", function()
    local r = probe()
    assert.equal(1, #r.nics)
    local nic = r.nics[1]
    assert.same({ "mlx5_0", "mlx5_0", "0000:04:00.0", 0 }, { nic.name, nic.device, nic.pci, nic.numa })
    assert.same({ ["GPU-0a0b0c0d-0000-0000-0000-000000000001"] = "pix", GPU1 = "phb", GPU2 = "sys", GPU3 = "sys", cpu0 = "phb", cpu1 = "sys" }, nic.to)
    local plain = probe(function(dir) dir:sh("rm -r sys/class/infiniband") end)
    local names = by(plain.nics, "name")
    assert.is_table(names.eth0)
    assert.is_nil(names.lo)
    assert.equal("node", names.eth0.to.GPU1) -- another host bridge of the same node
  end)

  it("honours what a recorded process may use", function()
    local r = probe(function(_, write) write("proc/self/status", "Name:\tx\nCpus_allowed_list:\t2-3,6\nMems_allowed_list:\t0") end)
    local d = by(r.devices, "uid")
    assert.equal("2-3", d.cpu0.cpus)
    assert.is_nil(d.cpu0.usable)
    assert.equal("6", d.cpu1.cpus)
    assert.same({ false, "cgroup_mems" }, { d.cpu1.usable, d.cpu1.why_not[1].code })
    r = probe(function(_, write) write("proc/self/status", "Cpus_allowed_list:\t0-1\nMems_allowed_list:\t0-1") end)
    d = by(r.devices, "uid")
    assert.same({ false, "cgroup_cpus", cpus[1] }, { d.cpu1.usable, d.cpu1.why_not[1].code, d.cpu1.cpus })
  end)

  it("makes one node of a kernel without NUMA, and nothing of an empty folder", function()
    local r = probe(function(dir, write)
      dir:sh("rm -r sys/devices/system/node")
      write("sys/devices/system/cpu/online", "0-15")
      write("proc/meminfo", "MemTotal:       1048576 kB\nMemAvailable:    524288 kB")
    end)
    local c = by(r.devices, "uid").cpu0
    assert.same({ "0-15", 2 ^ 30, 2 ^ 29 }, { c.cpus, c.mem_bytes, c.free_bytes })
    local dir = tmpdir.new()
    r = require("tpl.topo.probe").read { root = dir.path }
    dir:close()
    assert.same({ 0, 0 }, { #r.devices, #r.nics })
  end)

  it("leaves the word unknown where folders stand in place of links", function()
    local r = probe(function(dir)
      dir:sh("cd sys/bus/pci/devices && for f in *; do cp -rL $f ../x && rm $f && mv ../x $f; done")
    end)
    local words = {}
    for _, l in ipairs(r.links) do if l.pcie then words[l.a:sub(1, 4) .. l.b:sub(1, 4)] = l.pcie end end
    assert.equal("node", words["GPU-GPU1"]) -- one node is all that is known
  end)
end)

describe("the probe of this machine", function()
  it("lists the cores and the memory that this process has", function()
    local sys, cpuset = require("tpl.core").sys, require("tpl.topo.cpuset")
    local r = require("tpl.topo.probe").read()
    local all, mem = {}, 0
    for _, d in ipairs(r.devices) do
      if d.kind == "cpu" then
        for _, c in ipairs(cpuset.parse(d.cpus)) do all[#all + 1] = c end
        mem = mem + d.mem_bytes
        assert.is_true(d.free_bytes <= d.mem_bytes)
      end
    end
    table.sort(all)
    assert.same(sys.cpu_list(), all)
    assert.is_true(mem <= sys.mem_total() * 1.01 and mem > sys.mem_total() * 0.8)
  end)

  it("gives the nodes a part each of what a control group allows", function()
    local sys = require("tpl.core").sys
    local total, available = sys.mem_total, sys.mem_available
    sys.mem_total, sys.mem_available = function() return 60 * 2 ^ 30 end, function() return 15 * 2 ^ 30 end
    local record = { devices = {}, links = {} }
    local ok, e = pcall(require("tpl.topo.probe.cpus").add, record, { host = "host0", nodes = {
      { id = 0, cpus = "0", mem_bytes = 80 * 2 ^ 30, free_bytes = 20 * 2 ^ 30 }, { id = 1, cpus = "1", mem_bytes = 40 * 2 ^ 30, free_bytes = 10 * 2 ^ 30 } } })
    sys.mem_total, sys.mem_available = total, available
    assert.is_true(ok, tostring(e))
    local a, b = record.devices[1], record.devices[2]
    assert.same({ 40 * 2 ^ 30, 10 * 2 ^ 30, 20 * 2 ^ 30, 5 * 2 ^ 30 }, { a.mem_bytes, a.free_bytes, b.mem_bytes, b.free_bytes })
  end)

  it("finishes into a topology", function()
    local t = assert(require("tpl.topo").probe())
    assert.equal("cpu", t.devices[#t.devices].kind)
  end)
end)
