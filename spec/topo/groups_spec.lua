-- SPDX-License-Identifier: Apache-2.0
--- The ranking rule of ../shared/data/topologies/INDEX.md on small machines made by hand; what is expected follows from the rule by hand.
local groups = require("tpl.topo.groups")
local s = require("spec.topo.support")
local topo = require("tpl.topo")

local function best(t, n, opts) return s.text(t, { groups.best(t, nil, n, opts) or {} }) end

local function uids(...)
  local out = {}
  for i, k in ipairs { ... } do out[i] = "GPU" .. k end
  return out
end

describe("tpl.topo.groups ranks by", function()
  it("1: usable devices only", function()
    local t = s.topo({ ". NV4 NV4", "NV4 . NV2", "NV4 NV2 ." }, { device = function(i) return i == 0 and { mig = { mode = "on" } } or {} end })
    assert.equal("1,2", best(t, 2))
    assert.is_nil(groups.best(t, nil, 3))
    assert.is_nil(groups.best(t, uids(0, 1), 2)) -- also when it is asked for
  end)

  it("2: one model before NVLink", function()
    local names = { "A", "A", "B" }
    local t = s.topo({ ". SYS NV4", "SYS . NV4", "NV4 NV4 ." }, { device = function(i) return { name = names[i + 1] } end })
    assert.equal("0,1", best(t, 2))
  end)

  it("2: memory tells cards of one name apart", function()
    local mem = { 40, 80, 40 }
    local t = s.topo({ ". NV4 NV4", "NV4 . NV4", "NV4 NV4 ." }, { device = function(i) return { name = "A", mem_bytes = mem[i + 1] * 2 ^ 30 } end })
    assert.equal("0,2", best(t, 2))
  end)

  it("3: a group joined by NVLink before any other", function()
    -- 0-1-2-3 is a chain of NVLinks over two sockets; 4 to 7 share a switch.
    local t = s.topo { ". NV1 SYS SYS SYS SYS SYS SYS", "NV1 . NV1 SYS SYS SYS SYS SYS", "SYS NV1 . NV1 SYS SYS SYS SYS", "SYS SYS NV1 . SYS SYS SYS SYS",
      "SYS SYS SYS SYS . PIX PIX PIX", "SYS SYS SYS SYS PIX . PIX PIX", "SYS SYS SYS SYS PIX PIX . PIX", "SYS SYS SYS SYS PIX PIX PIX ." }
    assert.equal("0,1,2,3", best(t, 4))
    assert.equal("0,1", best(t, 2))
  end)

  it("3: most links on the weakest pair, then in total", function()
    local t = s.topo { ". NV4 NV1 SYS", "NV4 . NV2 SYS", "NV1 NV2 . NV3", "SYS SYS NV3 ." }
    assert.equal("0,1,2", best(t, 3)) -- weakest 1; with device 3 a pair has none
    assert.equal("0,1", best(t, 2))
    t = s.topo { ". NV2 NV2 NV2", "NV2 . NV4 NV2", "NV2 NV4 . NV2", "NV2 NV2 NV2 ." }
    assert.equal("0,1,2", best(t, 3)) -- weakest 2 everywhere; 8 links with the strong pair, else 6
  end)

  it("3: NVLink across sockets before PCIe inside one", function()
    local t = s.topo({ ". PIX SYS SYS", "PIX . NV4 SYS", "SYS NV4 . PIX", "SYS SYS PIX ." }, { numa = { 0, 0, 1, 1 } })
    assert.equal("1,2", best(t, 2))
  end)

  it("4: nearest PCIe on the worst pair", function()
    local t = s.topo { ". PXB PHB PHB", "PXB . PHB PHB", "PHB PHB . PIX", "PHB PHB PIX ." }
    assert.equal("2,3", best(t, 2))
    for _, words in ipairs { { "PIX", "PXB" }, { "PXB", "PHB" }, { "PHB", "NODE" }, { "NODE", "SYS" } } do
      local near, far = unpack(words)
      t = s.topo { (". %s %s"):format(far, far), ("%s . %s"):format(far, near), ("%s %s ."):format(far, near) }
      assert.equal("1,2", best(t, 2))
    end
  end)

  it("4: a pair that is not told behind one across sockets", function()
    local t = s.topo { ". ? ?", "? . SYS", "? SYS ." }
    assert.equal("1,2", best(t, 2))
  end)

  it("4: refused peer access behind a pair in the same node, before SYS", function()
    local record = s.record { ". PIX NODE", "PIX . SYS", "NODE SYS ." }
    record.links[1].p2p = { read = "gns", write = "gns" }
    local t = assert(topo.from_record(record))
    assert.equal("0,2", best(t, 2))
    record = s.record { ". PIX SYS", "PIX . SYS", "SYS SYS ." }
    record.links[1].p2p = { read = "ok", write = "cns" }
    assert.equal("0,1", best(assert(topo.from_record(record)), 2))
  end)

  it("3: NVLink whose peer access is refused, one way only, as no NVLink", function()
    local record = s.record { ". NV4 PIX", "NV4 . PIX", "PIX PIX ." }
    record.links[1].p2p, record.links[1].p2p_ba = { read = "ok", write = "ok" }, { read = "ns", write = "ok" }
    local t = assert(topo.from_record(record))
    assert.equal("0,2", best(t, 2))
    assert.same({}, t.islands)
    assert.equal("nvlink_p2p_refused", t.doubts[1].code)
  end)

  it("5: one NUMA node among equal links; an unknown node is no common node", function()
    local t = s.topo({ ". NV4 NV4", "NV4 . NV4", "NV4 NV4 ." }, { numa = { 0, 1, 1 } })
    assert.equal("1,2", best(t, 2))
    t = s.topo({ ". NV4 NV4 NV4", "NV4 . NV4 NV4", "NV4 NV4 . NV4", "NV4 NV4 NV4 ." }, { numa = { nil, nil, 1, 1 } })
    assert.equal("2,3", best(t, 2))
  end)

  it("6: near NICs, only when the job spans hosts", function()
    local square = { ". NODE NODE NODE", "NODE . NODE NODE", "NODE NODE . NODE", "NODE NODE NODE ." }
    local t = s.topo(square, { nics = { mlx5_0 = "SYS PIX SYS PHB" } })
    assert.equal("0,1", best(t, 2))
    assert.equal("1,3", best(t, 2, { nics = true }))
  end)

  it("6: the slowest pair as measured, among what is else equal", function()
    local function measured(speeds)
      local record = s.record { ". NODE NODE", "NODE . NODE", "NODE NODE ." }
      for i, gb_s in ipairs(speeds) do record.links[i].gb_s, record.links[i].source = gb_s, "measured" end
      return assert(topo.from_record(record))
    end
    assert.equal("1,2", best(measured { 10, 10, 20 }, 2)) -- the links are 0-1, 0-2, 1-2
    assert.equal("0,1", best(measured { 20, 20.5, 21 }, 2)) -- noise
    local t = measured { 20, 10, 20 }
    t:link("GPU0", "GPU1").gb_s_ba = 2 -- slow on the way back
    assert.equal("1,2", best(t, 2))
    local record = s.record { ". NODE NODE", "NODE . NODE", "NODE NODE ." }
    record.links[1].gb_s, record.links[1].source = 100, "stated" -- not measured
    assert.equal("0,1", best(assert(topo.from_record(record)), 2))
  end)

  it("3, 4: a link that delivered wrong data as one with refused peer access", function()
    local record = s.record { ". NV4 PIX", "NV4 . PIX", "PIX PIX ." }
    record.links[1].data_ok = false
    local t = assert(topo.from_record(record))
    assert.equal("0,2", best(t, 2))
    assert.equal("data_wrong", t.doubts[1].code)
  end)

  it("7: what is left, an unrelated bridge pair is not broken", function()
    local t = s.topo { ". NV4 NODE", "NV4 . NODE", "NODE NODE ." }
    assert.equal("2", best(t, 1))
    -- Three cards on one switch, two on another: a pair of the three would leave one card alone.
    t = s.topo { ". PIX PIX NODE NODE", "PIX . PIX NODE NODE", "PIX PIX . NODE NODE", "NODE NODE NODE . PIX", "NODE NODE NODE PIX ." }
    assert.equal("3,4", best(t, 2))
  end)

  it("8: the stable order of devices", function()
    local t = s.topo({ ". PIX PIX", "PIX . PIX", "PIX PIX ." }, { device = function(i) return { pci = ("0000:%02x:00.0"):format(0x90 - 0x10 * i) } end })
    assert.equal("1,2", best(t, 2)) -- the lowest PCI addresses
    t = s.topo { ". PIX PIX", "PIX . PIX", "PIX PIX ." }
    assert.equal("0,1", best(t, 2))
  end)

  it("and orders indices as numbers", function()
    local rows = {}
    for i = 1, 12 do
      local cells = {}
      for j = 1, 12 do cells[j] = i == j and "." or "NODE" end
      rows[i] = table.concat(cells, " ")
    end
    local t = s.topo(rows)
    assert.equal("0,1 2,3 4,5 6,7 8,9 10,11", s.text(t, groups.matching(t)))
  end)
end)

describe("tpl.topo.groups.matching", function()
  it("pairs the cube mesh of a DGX-1V by double links inside sockets, whatever the numbering", function()
    -- Links of the DGX-1V: NVIDIA DGX-1 System Architecture white paper; renumbered in the fixture. (0,3)(1,2)(4,7)(5,6) become these.
    local t = s.fixture("8xv100-cube-mesh-renumbered.topo.txt")
    local got = {}
    for _, pair in ipairs(t.suggest.tp2) do got[#got + 1] = s.text(t, { pair }) end
    table.sort(got)
    assert.same({ "0,5", "1,6", "2,7", "3,4" }, got)
    local quads = { s.text(t, { t.suggest.tp4[1] }), s.text(t, { t.suggest.tp4[2] }) }
    table.sort(quads)
    assert.same({ "0,2,5,7", "1,3,4,6" }, quads)
    assert.equal("tp4xpp2", t.suggest.advice)
    assert.equal(1, #t.islands)
    assert.is_false(t.islands[1].full)
  end)

  it("looks ahead: the best pairs together, not the first best one", function()
    -- 0-1, 0-3, 1-2 have two links: taking 0-1 first would leave 2-3 without any.
    local t = s.topo { ". NV2 SYS NV2", "NV2 . NV2 SYS", "SYS NV2 . SYS", "NV2 SYS SYS ." }
    assert.equal("0,3 1,2", s.text(t, groups.matching(t)))
  end)

  it("leaves out the device that hurts least", function()
    local t = s.topo { ". PHB PHB", "PHB . PIX", "PHB PIX ." }
    assert.equal("1,2", s.text(t, groups.matching(t)))
  end)

  it("gives nothing for one device, and takes no MIG slice", function()
    local t = s.fixture("host-4xh100-two-in-mig.yaml")
    assert.equal("0,1", s.text(t, groups.matching(t)))
    assert.same({}, groups.matching(t, t:ids { kind = "mig" }))
    assert.equal(1, #groups.best(t, t:ids { kind = "mig" }, 1))
    assert.same({}, groups.matching(s.topo { "." }))
  end)
end)

describe("tpl.topo.groups.partition", function()
  it("never crosses hosts while a host is large enough, and joins whole hosts when none is", function()
    local t = s.fixture("2x8xh100-infiniband.yaml")
    local function hosts(group)
      local seen, n = {}, 0
      for _, uid in ipairs(group) do
        local host = t:dev(uid).host
        if not seen[host] then seen[host], n = true, n + 1 end
      end
      return n
    end
    for _, n in ipairs { 2, 3, 4, 5, 8 } do
      local list = groups.partition(t, nil, n)
      assert.equal(2 * math.floor(8 / n), #list)
      for _, group in ipairs(list) do assert.equal(1, hosts(group)) end
    end
    local all = groups.partition(t, nil, 16)
    assert.equal(1, #all)
    assert.equal(16, #all[1])
    assert.equal(2, hosts(groups.best(t, nil, 12)))
    assert.same({}, groups.partition(t, nil, 17))
  end)

  it("puts every device in at most one group", function()
    local t = s.fixture("8xa100-hgx-nps4.yaml")
    for n = 1, 8 do
      local seen = {}
      for _, group in ipairs(groups.partition(t, nil, n)) do
        assert.equal(n, #group)
        for _, uid in ipairs(group) do
          assert.is_nil(seen[uid])
          seen[uid] = true
        end
      end
    end
  end)

  it("keeps PCIe switches and, by node numbers, sockets together under NVSwitch", function()
    local t = s.fixture("8xa100-hgx-nps4.yaml")
    assert.equal("0,1 2,3 4,5 6,7", s.text(t, t.suggest.tp2))
    assert.equal("0,1,2,3 4,5,6,7", s.text(t, t.suggest.tp4))
    assert.equal("tp8", t.suggest.advice)
  end)

  it("joins sub-NUMA nodes of one package though nvidia-smi says SYS", function()
    local t = s.fixture("8xl40s-sub-numa-of-two-sockets.yaml")
    assert.equal("0,1,2,3 4,5,6,7", s.text(t, t.suggest.tp4))
    assert.equal("tp4xpp2", t.suggest.advice)
    assert.equal(2, #t:groups("socket"))
    assert.equal(8, #t:groups("numa"))
  end)
end)

describe("tpl.topo.groups.compare and weakest", function()
  it("compare says which group is better, whatever the order of the arguments", function()
    local t = s.topo { ". NV2 PIX SYS", "NV2 . SYS SYS", "PIX SYS . NODE", "SYS SYS NODE ." }
    assert.is_true(groups.compare(t, uids(0, 1), uids(0, 2)) < 0)
    assert.is_true(groups.compare(t, uids(0, 2), uids(0, 1)) > 0)
    assert.is_true(groups.compare(t, uids(0, 2), uids(2, 3)) < 0)
    t = s.topo { ". SYS SYS", "SYS . SYS", "SYS SYS ." }
    assert.equal(0, groups.compare(t, uids(0, 1), uids(0, 2)))
  end)

  it("weakest names the pair that limits a group", function()
    local t = s.topo { ". NV2 PIX SYS", "NV2 . SYS SYS", "PIX SYS . NODE", "SYS SYS NODE ." }
    local link, a, b = groups.weakest(t, uids(0, 2, 3))
    assert.same({ "sys", "GPU0", "GPU3" }, { link.kind, a, b })
    assert.is_nil((groups.weakest(t, uids(0))))
    local _, x, y = groups.weakest(s.topo { ". NV2 NV2", "NV2 . ?", "NV2 ? ." }, uids(0, 1, 2))
    assert.same({ "GPU1", "GPU2" }, { x, y })
  end)
end)

describe("tpl.topo.groups exactly", function()
  -- Try all groups with an independent reading of points 3 and 4: joined, weakest, total, worst PCIe word.
  local order = { pix = 1, pxb = 2, phb = 3, node = 4, sys = 5 }

  local function weigh(t, group)
    local weakest, total, worst, reach = math.huge, 0, 0, { [group[1]] = true }
    for i = 1, #group do
      for j = i + 1, #group do
        local link = t:link(group[i], group[j])
        local n = link.nvlinks or 0
        weakest, total = math.min(weakest, n), total + n
        if n == 0 then worst = math.max(worst, order[link.pcie]) end
      end
    end
    for _ = 1, #group do
      for _, a in ipairs(group) do
        for _, b in ipairs(group) do
          if a ~= b and reach[a] and (t:link(a, b).nvlinks or 0) > 0 then reach[b] = true end
        end
      end
    end
    local joined = 0
    for _ in pairs(reach) do joined = joined + 1 end
    return { joined == #group and 0 or 1, -weakest, -total, worst }
  end

  local function less(a, b)
    for i = 1, #a do
      if a[i] ~= b[i] then return a[i] < b[i] end
    end
    return false
  end

  local function every(t, n, visit)
    local list = t:ids()
    local function rec(from, group)
      if #group == n then return visit(group) end
      for i = from, #list do
        group[#group + 1] = list[i]
        rec(i + 1, group)
        group[#group] = nil
      end
    end
    rec(1, {})
  end

  it("finds no worse group than trying all does, on 60 random machines", function()
    local state = 12345
    local function draw(n)
      state = (state * 1103515245 + 12345) % 2 ^ 31
      return math.floor(state / 65536) % n + 1
    end
    local words = { "NV1", "NV2", "NV4", "PIX", "PXB", "PHB", "NODE", "SYS", "SYS", "SYS" }
    for _ = 1, 60 do
      local n, cells, rows = 3 + draw(5), {}, {}
      for i = 1, n do
        cells[i] = cells[i] or {}
        for j = i, n do
          cells[j] = cells[j] or {}
          cells[i][j] = i == j and "." or words[draw(#words)]
          cells[j][i] = cells[i][j]
        end
      end
      for i = 1, n do rows[i] = table.concat(cells[i], " ") end
      local t = s.topo(rows)
      for k = 2, math.min(4, n) do
        local got = weigh(t, groups.best(t, nil, k))
        every(t, k, function(group) assert.is_false(less(weigh(t, group), got)) end)
      end
    end
  end)
end)

describe("tpl.topo.groups quickly", function()
  it("chooses among 16 devices in under 50 ms, and plans 1024 in under a second", function()
    local rows = {}
    for i = 1, 16 do
      local cells = {}
      for j = 1, 16 do
        local same = math.floor((i - 1) / 2) == math.floor((j - 1) / 2)
        cells[j] = i == j and "." or same and "NV4" or (i - 1) % 4 == (j - 1) % 4 and "PXB" or (i <= 8) == (j <= 8) and "NODE" or "SYS"
      end
      rows[i] = table.concat(cells, " ")
    end
    local t = s.topo(rows)
    groups.matching(t) -- compiled once
    local from = os.clock()
    assert.equal(8, #groups.matching(t))
    assert.is_true(os.clock() - from < 0.05)
    from = os.clock()
    groups.best(t, nil, 4)
    assert.is_true(os.clock() - from < 0.05)
    from = os.clock()
    local cluster = s.fixture("cluster-repeat.yaml")
    assert.equal(1024, #cluster:ids { kind = "gpu" })
    assert.equal(512, #cluster.suggest.tp2)
    assert.is_true(os.clock() - from < 1)
  end)
end)
