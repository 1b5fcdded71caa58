-- SPDX-License-Identifier: Apache-2.0
--- The topology object: devices, links, hosts, sockets, what is usable, islands, NICs. Expected values by hand from the records.
local cpuset = require("tpl.topo.cpuset")
local s = require("spec.topo.support")
local topo = require("tpl.topo")
local usable = require("tpl.topo.usable")

local function codes(t)
  local out = {}
  for _, doubt in ipairs(t.doubts) do out[doubt.code] = doubt end
  return out
end

describe("tpl.topo", function()
  it("is callable with a path or several, and is part of tpl", function()
    local tpl = require("tpl")
    local t = assert(tpl.topo("spec/fixtures/topologies/4xa6000-bridge-pairs.topo.txt"))
    assert.equal(4, #t.devices)
    assert.equal("matrix", t.source.kind)
    t = assert(topo { "spec/fixtures/topologies/4xa6000-bridge-pairs.topo.txt" })
    assert.equal(4, #t.devices)
  end)

  it("gives nil and an error for a file that is missing, or no topology", function()
    local t, e = topo("spec/fixtures/topologies/nothing.yaml")
    assert.is_nil(t)
    assert.equal(2, e.exit)
    t, e = topo("spec/topo/graph_spec.lua")
    assert.is_nil(t)
    assert.equal(6, e.exit)
    t, e = topo.read {}
    assert.is_nil(t)
    assert.equal(2, e.exit)
  end)

  it("refuses a record whose lists are none, and two devices of one name", function()
    local t, e = topo.from_record { devices = "GPU0" }
    assert.is_nil(t)
    assert.same({ "devices", 6 }, { e.where, e.exit })
    t, e = topo.from_record { devices = { { uid = "a" }, { uid = "a" } } }
    assert.is_nil(t)
    assert.matches("two devices are called 'a'", e.message)
    assert.is_nil((topo.from_record(7)))
  end)

  it("fills what a bare record leaves out", function()
    local t = assert(topo.from_record { devices = { {}, { uuid = "GPU-1" }, { kind = "cpu" } } })
    assert.same({ "GPU0", "GPU-1", "cpu0" }, t:ids())
    assert.equal("host0", t.devices[1].host)
    assert.same({ 0, 1, 0 }, { t.devices[1].index, t.devices[2].index, t.devices[3].index })
    t = assert(topo.from_record {})
    assert.equal("none", t.suggest.advice)
    assert.same({}, t:ids())
  end)

  it("drops links to nothing and to itself", function()
    local t = assert(topo.from_record { devices = { {}, {} }, links = { { a = "GPU0", b = "GPU0", kind = "pix" }, { a = "GPU0", b = "GPU9", kind = "pix" },
      { a = "GPU0", b = "GPU1", kind = "pix" } } })
    assert.equal(1, #t.links)
  end)

  it("finishes twice without a change", function()
    local t = s.fixture("8xh100-three-unhealthy.yaml")
    local json, write = require("tpl.json"), require("tpl.topo.write")
    local before = json.encode(write.result(t))
    assert.equal(before, json.encode(write.result(topo.finish(t))))
  end)
end)

describe("a topology object", function()
  it("answers for devices, and lists them by conditions that must be known to hold", function()
    local t = s.fixture("host-4xh100-two-in-mig.yaml")
    assert.equal("NVIDIA H100 80GB HBM3", t:dev("GPU-aa000000-0000-4000-8000-000000000001").name)
    assert.is_nil(t:dev("GPU9"))
    assert.equal(8, #t:ids())
    assert.equal(4, #t:ids { kind = "mig" })
    assert.equal(2, #t:ids { kind = "gpu", usable = true })
    assert.equal(2, #t:ids { kind = "gpu", usable = false })
    assert.equal(2, #t:ids { kind = "gpu", numa = 1 })
    assert.equal(8, #t:ids { sm = "9.0" })
    assert.equal(8, #t:ids { sm = "8.9", host = "ref" })
    assert.same({}, t:ids { sm = "10.0" })
    assert.same({}, t:ids { host = "other" })
    assert.equal(4, #t:ids { min_free = 70 * 2 ^ 30 })
    assert.has_error(function() t:ids { minfree = 1 } end)
    t = assert(topo.from_record { devices = { {}, { free_bytes = 10 }, { mem_bytes = 30, busy = { used_bytes = 5 } } } })
    assert.same({ "GPU1", "GPU2" }, t:ids { min_free = 10 })
    assert.same({ "GPU2" }, t:ids { min_free = 25 })
    assert.same({}, t:ids { min_free = 26 })
    assert.same({}, t:ids { sm = "8.0" })
  end)

  it("picks devices by index, which is not their position", function()
    local t = assert(topo.from_record { devices = { { uid = "x", index = 4 }, { uid = "y", index = 0 } } })
    assert.same({ "y", "x" }, t:pick { ids = { 0, 4 } })
    assert.same({ "x" }, t:pick { ids = { 4, 9 } })
  end)

  it("shows a link from either end", function()
    local t = assert(topo.from_record { devices = { {}, {} }, links = { { a = "GPU0", b = "GPU1", kind = "pix", pcie = "pix", gb_s = 20, us = 1, gb_s_ba = 10,
      p2p = { read = "ok", write = "ok" }, p2p_ba = { read = "ns", write = "ok" } } } })
    local there, back = t:link("GPU0", "GPU1"), t:link("GPU1", "GPU0")
    assert.same({ "GPU0", 20, 1, "ok" }, { there.a, there.gb_s, there.us, there.p2p.read })
    assert.same({ "GPU1", "GPU0", 10, 1, "ns", 20 }, { back.a, back.b, back.gb_s, back.us, back.p2p.read, back.gb_s_ba })
    assert.is_nil(t:link("GPU0", "GPU0"))
    assert.is_nil(t:link("GPU0", "GPU7"))
  end)

  it("makes a link of the network between hosts, the fastest one", function()
    local t = s.fixture("2x8xh100-infiniband.yaml")
    local a, b = t:ids({ host = "node-a" })[1], t:ids({ host = "node-b" })[3]
    local link = t:link(a, b)
    assert.same({ "net", 50, 5, a, b }, { link.kind, link.gb_s, link.us, link.a, link.b })
    table.insert(t.networks, { hosts = { "node-a", "node-b" }, gb_s = 100, us = 9 })
    t:reindex()
    assert.equal(100, t:network("node-b", "node-a").gb_s)
    assert.is_nil(t:network("node-a", "elsewhere"))
    assert.equal("node-a", t:host("node-a").id)
  end)

  it("groups devices by island, socket, node, host and name", function()
    local t = s.fixture("2x8xh100-infiniband.yaml")
    assert.equal(2, #t:groups("nvlink"))
    assert.equal(2, #t:groups("host"))
    assert.equal(1, #t:groups("name"))
    assert.equal(4, #t:groups("numa"))
    assert.equal(4, #t:groups("socket"))
    assert.has_error(function() t:groups("colour") end)
  end)
end)

describe("sockets", function()
  local function split(t) return s.text(t, t:groups("socket")) end

  it("are NUMA nodes where nothing joins these", function()
    assert.equal("0,1 2", split(s.topo({ ". NV1 NV1", "NV1 . NV1", "NV1 NV1 ." }, { numa = { 0, 0, 1 } })))
  end)

  it("join nodes by words nearer than SYS, by a NIC near to both, by latency and by package", function()
    local square = { ". NV1 NV1", "NV1 . NV1", "NV1 NV1 ." }
    assert.equal("0,1 2", split(s.topo({ ". NODE SYS", "NODE . SYS", "SYS SYS ." }, { numa = { 0, 1, 8 } })))
    assert.equal("0,1", split(s.topo({ ". NV1", "NV1 ." }, { numa = { 0, 1 }, nics = { n = "PHB NODE" } })))
    assert.equal("0 1", split(s.topo({ ". NV1", "NV1 ." }, { numa = { 0, 1 }, nics = { n = "PHB SYS" } })))
    local record = s.record(square, { numa = { 0, 1, 2 } })
    -- SLIT of a two-socket machine with two nodes a socket: 10 own, 12 same socket, 32 other socket.
    record.hosts[1].numa = { { id = 0, distances = { 10, 12, 32, 32 } }, { id = 1, distances = { 12, 10, 32, 32 } }, { id = 2, distances = { 32, 32, 10, 12 } },
      { id = 3, distances = { 32, 32, 12, 10 } } }
    assert.equal("0,1 2", split(assert(topo.from_record(record))))
    record = s.record(square, { numa = { 0, 1, 2 } })
    record.hosts[1].numa = { { id = 0, package = 0 }, { id = 1, package = 1 }, { id = 2, package = 0 } }
    assert.equal("0,2 1", split(assert(topo.from_record(record))))
    record = s.record({ ". NV1", "NV1 ." }, { numa = { 0, 1 } })
    record.hosts[1].numa = { { id = 0, distances = { 10, 21 } }, { id = 1, distances = { 21, 10 } } } -- one remote latency: two sockets
    assert.equal("0 1", split(assert(topo.from_record(record))))
  end)

  it("are guessed by halves of the node numbers, which ranks after NICs", function()
    local square = { ". NV1 NV1", "NV1 . NV1", "NV1 NV1 ." }
    local t = s.topo(square, { numa = { 1, 4, 6 } })
    assert.equal("0 1,2", split(t))
    assert.are_not.equal(t:firm_socket("GPU1"), t:firm_socket("GPU2"))
    assert.equal("1,2", s.text(t, { t.suggest.tp2[1] }))
  end)

  it("come from CPU lists unless SYS words contradict, and from SYS words where they split a host in two", function()
    local cpus = { "0-3", "0-3", "4-7" }
    local function device(i) return { cpus = cpus[i + 1] } end
    assert.equal("0,1 2", split(s.topo({ ". NV1 SYS", "NV1 . SYS", "SYS SYS ." }, { device = device })))
    cpus = { "1-1", "1-1", "1-1", "1-1" }
    local mesh = { ". NV1 NV1 SYS", "NV1 . SYS NV1", "NV1 SYS . NV1", "SYS NV1 NV1 ." }
    assert.equal("", split(s.topo(mesh, { device = device }))) -- SYS pairs 0-3 and 1-2 do not say who stands with whom
    local bipartite = { ". NV1 SYS SYS", "NV1 . SYS SYS", "SYS SYS . NV1", "SYS SYS NV1 ." }
    assert.equal("0,1 2,3", split(s.topo(bipartite, { device = device })))
  end)

  it("are unknown where nothing is known", function()
    local t = s.topo { ". NV1", "NV1 ." }
    assert.is_nil(t:socket("GPU0"))
    assert.is_nil(t:numa_node("GPU0"))
    assert.is_table(codes(t).numa_unknown)
  end)
end)

describe("usable", function()
  local function why(device)
    device.kind = device.kind or "gpu"
    usable.judge(device)
    local out = {}
    for i, reason in ipairs(device.why_not) do out[i] = reason.code end
    assert.equal(out[1] == nil, device.usable)
    return table.concat(out, " ")
  end

  it("follows MIG: on, and pending either way", function()
    assert.equal("mig_on", why { mig = { mode = "on", pending = "on" } })
    assert.equal("mig_on", why { mig = { mode = "on" } })
    assert.equal("mig_pending", why { mig = { mode = "off", pending = "on" } })
    assert.equal("mig_on mig_pending", why { mig = { mode = "on", pending = "off" } })
    assert.equal("", why { mig = { mode = "off", pending = "off" } })
    assert.equal("", why { kind = "mig", mig = { mode = "on", parent = "GPU0" } })
  end)

  it("follows the fabric where there is one: NVML's states, and health", function()
    assert.equal("", why { fabric = { state = "N/A" } })
    assert.equal("", why { fabric = { state = "Not Supported" } })
    assert.equal("", why { fabric = { state = "Completed", status = "Success", cluster = "00000000-0000-0000-0000-000000000000", clique = 0 } })
    assert.equal("fabric_not_ready", why { fabric = { state = "In Progress", status = "N/A" } })
    assert.equal("fabric_not_ready", why { fabric = { state = "not_started" } })
    assert.equal("fabric_insufficient_resources", why { fabric = { state = "Completed", status = "Insufficient Resources" } })
    assert.equal("fabric_unhealthy", why { fabric = { state = "completed", health = "unhealthy" } })
    assert.equal("", why { fabric = { state = "completed", health = "Limited Capacity" } })
    assert.equal("fabric_failed", why { fabric = { state = "completed", status = "unknown error" } })
  end)

  it("follows Xids, remapped rows, and what the record states", function()
    assert.equal("lost", why { health = { xid = 79 } })
    assert.equal("", why { health = { xid = 31 } }) -- a program's fault
    assert.equal("reset_required lost", why { health = { xid = { 95, 79 } } })
    assert.equal("remap_pending", why { health = { remapped = "pending" } })
    assert.equal("remap_pending remap_failed", why { health = { remapped = { pending = true, failure = true } } })
    assert.equal("", why { health = { remapped = { pending = false, failure = false, correctable = 1 } } })
    assert.equal("stated", why { usable = false })
    assert.equal("reserved", why { usable = false, why_not = { { code = "reserved", message = "for the service" } } })
  end)

  it("gives a MIG slice the faults of its card, but not that the card is cut", function()
    local t = assert(topo.from_record { devices = { { mig = { mode = "on" } }, { mig = { mode = "on" }, health = { xid = 79 } },
      { uid = "a", kind = "mig", mig = { parent = "GPU0" } }, { uid = "b", kind = "mig", mig = { parent = "GPU1" } } } })
    assert.same({ false, false, true, false }, { t.devices[1].usable, t.devices[2].usable, t.devices[3].usable, t.devices[4].usable })
    assert.equal("lost", t:dev("b").why_not[1].code)
    assert.equal(1, #topo.finish(t):dev("b").why_not)
  end)

  it("keeps unusable devices out of islands, suggestions and advice", function()
    local t = s.fixture("8xh100-three-unhealthy.yaml")
    assert.same({ "remap_pending", "fabric_unhealthy", "lost" },
      { t.devices[2].why_not[1].code, t.devices[5].why_not[1].code, t.devices[7].why_not[1].code })
    assert.equal(1, #t.islands)
    assert.equal(5, #t.islands[1].devices)
    assert.equal("0,2 5,7", s.text(t, t.suggest.tp2))
    assert.equal("tp4", t.suggest.advice)
  end)
end)

describe("islands", function()
  it("are closed under reachability, and full only if every pair is told to be joined", function()
    local t = s.topo { ". NV1 SYS SYS", "NV1 . NV1 SYS", "SYS NV1 . SYS", "SYS SYS SYS ." }
    assert.equal("0,1,2", s.text(t, t:groups("nvlink")))
    assert.is_false(t.islands[1].full)
    t = s.topo { ". NV1 ?", "NV1 . NV1", "? NV1 ." }
    assert.is_nil(t.islands[1].full)
    assert.equal("the input says nothing about 1 of 3 pairs of GPUs: GPU0-GPU2", codes(t).links_missing.message)
    t = s.topo { ". NV1", "NV1 ." }
    assert.is_true(t.islands[1].full)
    assert.is_nil(t.islands[1].fabric)
  end)

  it("span hosts only over a completed fabric with a cluster that is not zero, and the same clique", function()
    local function two(fabric_a, fabric_b)
      local record = { hosts = { { id = "a" }, { id = "b" } }, devices = { { uid = "a/0", host = "a", fabric = fabric_a }, { uid = "b/0", host = "b", fabric = fabric_b } } }
      return assert(topo.from_record(record))
    end
    local function fabric(cluster, clique, state) return { state = state or "Completed", health = "Healthy", cluster = cluster, clique = clique } end
    local c = "5e1f0000-0000-0000-0000-00000000abcd"
    local t = two(fabric(c, 7), fabric(c:upper(), 7))
    assert.equal(1, #t.islands)
    assert.same({ true, c .. "/7" }, { t.islands[1].full, t.islands[1].fabric })
    assert.same({ "nvlink", true }, { t:link("a/0", "b/0").kind, t:link("a/0", "b/0").via_switch })
    assert.equal(2, #require("tpl.topo.groups").best(t, nil, 2))
    local zero = "00000000-0000-0000-0000-000000000000"
    for _, pair in ipairs { { fabric(c, 7), fabric(c, 8) }, { fabric(zero, 7), fabric(zero, 7) }, { fabric(c, 7, "In Progress"), fabric(c, 7) }, { fabric(c, 7) },
      { fabric(c), fabric(c) } } do
      assert.same({}, two(unpack(pair)).islands)
      assert.is_nil(two(unpack(pair)):link("a/0", "b/0"))
    end
  end)
end)

describe("near NICs", function()
  it("are those of the least word, ties included, none across sockets", function()
    local t = s.topo({ ". NV1 NV1", "NV1 . NV1", "NV1 NV1 ." }, { nics = { a = "PIX PHB SYS", b = "PIX NODE SYS" } })
    local near = {}
    for _, nic in ipairs(t.nics) do near[nic.name] = nic.near end
    assert.same({ a = { "GPU0", "GPU1" }, b = { "GPU0" } }, near)
  end)

  it("are by NUMA node where there are no words", function()
    local t = assert(topo.from_record { devices = { { numa = 0 }, { numa = 1 }, {} }, nics = { { name = "n", numa = 1 } } })
    assert.same({ "GPU1" }, t.nics[1].near)
  end)
end)

describe("advice", function()
  local function advice(rows, fields) return s.topo(rows, fields).suggest.advice end

  it("names the largest group that the links carry", function()
    assert.equal("single", advice { "." })
    assert.equal("tp2", advice { ". NV1", "NV1 ." })
    assert.equal("tp4", advice { ". NV1 NV1 NV1", "NV1 . NV1 NV1", "NV1 NV1 . NV1", "NV1 NV1 NV1 ." })
    assert.equal("tp4", advice { ". PIX PHB PHB", "PIX . PHB PHB", "PHB PHB . PIX", "PHB PHB PIX ." })
    assert.equal("tp2xpp2", advice { ". PIX SYS SYS", "PIX . SYS SYS", "SYS SYS . PIX", "SYS SYS PIX ." })
    assert.equal("tp2xpp2", advice { ". NV4 PHB PHB", "NV4 . PHB PHB", "PHB PHB . NV4", "PHB PHB NV4 ." })
    assert.equal("tp2", s.fixture("3xa100-pcie-one-bridge.topo.txt").suggest.advice)
    assert.equal("tp2xpp2", s.fixture("4xl40s-pcie.yaml").suggest.advice)
    assert.equal("tp8xpp2", s.fixture("2x8xh100-infiniband.yaml").suggest.advice)
    assert.equal("tp2", s.fixture("host-4xh100-two-in-mig.yaml").suggest.advice)
  end)

  it("warns of a pair across sockets that is still the best", function()
    assert.is_table(codes(s.topo { ". SYS", "SYS ." }).pair_crosses_sockets)
    assert.is_table(codes(s.topo({ ". SYS", "SYS ." }, { numa = { 0, 0 } })).pair_is_sys)
    assert.is_nil(codes(s.topo { ". NV1", "NV1 ." }).pair_crosses_sockets)
  end)

  it("takes CPU nodes where there is no GPU", function()
    local t = s.fixture("cpu-two-sockets.yaml")
    assert.same({ { "cpu0", "cpu1" } }, t.suggest.tp2)
    assert.equal(17.9, t:link("cpu1", "cpu0").gb_s)
  end)
end)

describe("tpl.topo.cpuset", function()
  it("reads lists and writes them in one form", function()
    assert.same({ 0, 1, 2, 3, 8 }, cpuset.parse("8,0-3"))
    assert.equal("0-3,8", cpuset.normal("8, 0-2,3,2"))
    assert.equal("6,14,22,30", cpuset.normal("30,22,14,6"))
    assert.equal(5, cpuset.count("0-3,8"))
    assert.equal("1", cpuset.normal("1-1"))
  end)

  it("gives nil for what is no list", function()
    for _, text in ipairs { "", "N/A", "3-1", "0-3,", "a", "0-99999999", "-1", "1--2" } do assert.is_nil(cpuset.parse(text), text) end
    assert.is_nil(cpuset.parse(nil))
  end)

  it("intersects and contains", function()
    assert.equal("2-3", cpuset.both("0-3", "2-8"))
    assert.is_nil(cpuset.both("0-3", "4"))
    assert.is_true(cpuset.contains("0-7", "1,3"))
    assert.is_false(cpuset.contains("0-7", "1,8"))
    assert.is_nil(cpuset.contains("0-7", "N/A"))
  end)
end)
