-- SPDX-License-Identifier: Apache-2.0
-- Reads the text files of the shared corpus. Expected values: ../shared/data/topologies/INDEX.md (ISL, NUMA and NIC of each file, and what
-- is odd in it); "-" is unknown. Answers that INDEX.md marks as inferred are not the importer's to give.
local files = require("spec.support.files")
local import = require("tpl.topo.import")
local see = require("spec.topo.import.support")

local folder, why = see.corpus()
local all8, quads = "0,1,2,3,4,5,6,7", "0 0 0 0 1 1 1 1"
local none8, none4 = "- - - - - - - -", "- - - -"

-- {number in the corpus, GPUs, islands, NUMA, nearest NICs (nil: none in the file), codes of doubts that must be there, ..}
local matrices = {
  { 18, 8, all8, quads, "NIC0 NIC1 NIC2 NIC3 NIC6 NIC7 NIC8 NIC8" },
  { 19, 4, "0,1,2,3", "0 0 0 0" },
  { 20, 1, "", "0" },
  { 23, 4, "0,1 2,3", none4 },
  { 27, 8, all8, none8, "mlx5_0 mlx5_0 mlx5_1 mlx5_1 mlx5_2 mlx5_2 mlx5_3 mlx5_3", "header_glued" },
  { 28, 8, all8, none8, "mlx5_0 mlx5_0 mlx5_1 mlx5_1 mlx5_2 mlx5_2 mlx5_3 mlx5_3" },
  { 29, 8, all8, quads, "NIC0 NIC0 NIC0 NIC0 - - - -" },
  { 31, 4, "", none4, "mlx4_0 mlx4_0 mlx4_0 mlx4_0" },
  { 33, 4, "0,1 2,3", "0 0 8 8", "mlx5_0,mlx5_1 mlx5_0,mlx5_1 mlx5_2,mlx5_3,mlx5_4,mlx5_5 mlx5_2,mlx5_3,mlx5_4,mlx5_5" },
  { 34, 6, "0,3 1,2 4,5", "0 0 0 1 1 1", "mlx5_0 mlx5_0 mlx5_0 - - -" },
  { 35, 4, "0,1 2,3", "0 1 2 3" },
  { 36, 4, "0,1 2,3", "0 0 1 1" },
  { 37, 8, all8, quads, "NIC0,NIC1 NIC0,NIC1 NIC2,NIC3 NIC2,NIC3 - - - -", "nic_unnamed" },
  { 39, 4, "0,1,2,3", "3 2 1 0", "- mlx5_1 - mlx5_0" },
  { 40, 2, "0,1", "3 5" },
  { 42, 4, "0,3 1,2", none4 },
  { 43, 8, "0,1 2,3 4,5 6,7", none8 },
  { 44, 3, "0,1", "0 0 0" },
  { 46, 2, "0,1", "0 0" },
  { 47, 8, "", quads },
  { 48, 8, "", quads },
  { 49, 4, "", "0 0 1 1" },
  { 50, 8, "", none8, nil, "cell_unreadable", "rows_missing" },
  { 51, 4, "0,1,2,3", "3 1 7 5", "NIC0 NIC1 NIC2 NIC3" },
  { 53, 2, "0,1", "0 1", "NIC5 NIC6" },
  { 54, 8, all8, quads, "NIC0 NIC1 NIC2 NIC3 NIC4 NIC5 NIC6 NIC7" },
  { 57, 1, "", "0" },
  { 58, 4, "0,1,2,3", "0 1 1 1" },
  { 60, 4, "", "0 0 0 0" },
  { 61, 4, "", "0 0 0 0" },
  { 62, 2, "", "1 0" },
  { 66, 4, "0,1,2,3", "0 0 0 0", "NIC0 NIC1 NIC2 NIC3", "row_cut" },
  { 67, 4, "0,1,2,3", "2 2 6 6", "NIC0 NIC0 NIC1 NIC1" },
  { 68, 8, all8, quads, "mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_7" },
  { 69, 4, "0,1,2,3", "0 0 0 0", "NIC0,NIC1 NIC3 NIC2 NIC1" },
  { 71, 2, "0,1", "- -", "mlx5_0 -" },
  { 72, 8, all8, quads, "NIC0 NIC1 NIC0,NIC1 NIC0,NIC1 - - - -", "header_wrapped" },
  { 73, 4, "0,1,2,3", none4, none4 },
  { 74, 2, "0,1", "- -", "NIC0 NIC1", "nic_unnamed" },
  { 76, 2, "0,1", "0 0", "NIC0 NIC1", "columns_ambiguous" },
  { 77, 1, "", "-", "mlx5_0" },
  { 79, 8, all8, "0 0 0 0 - - - -", "NIC11 NIC10 NIC9 NIC8 NIC7 - - -", "header_glued", "rows_missing" },
  { 83, 16, all8 .. ",8,9,10,11,12,13,14,15", ("- "):rep(15) .. "-",
    "mlx5_0 mlx5_0 mlx5_1 mlx5_1 mlx5_2 - - - - - - - - - - -", "rows_missing", "affinity_cut" },
  { 84, 8, all8, quads, "NIC0 NIC1 NIC2 NIC5 NIC6 NIC7 NIC8 NIC9", "row_cut" },
  { 86, 8, "", "0 0 0 0 - - - -", "NIC0 NIC1 NIC2 NIC7 - - - -", "mp_hides_nvlink", "rows_missing" },
  { 87, 2, "", "0 0" },
  { 88, 2, "0,1", "- -", nil, "p2p_kind_unknown", "nvlink_p2p_refused" },
  { 89, 2, "0,1", "0 0" },
  { 105, 8, all8, quads },
  { 106, 2, "0,1", "- -" },
  { 107, 2, "", "- -" },
  { 109, 8, "0,1 2,3 4,5 6,7", quads, "- - - - NIC0,NIC1 NIC0,NIC1 NIC0,NIC1 NIC0,NIC1" },
  { 112, 8, all8, "- - - 1 4 6 7 5", "NIC0 NIC7 NIC3 - NIC4 NIC6 NIC5 -", "header_missing", "rows_missing" },
  { 114, 8, "", "0 0 0 0 - - - -", nil, "row_cut", "rows_missing" },
}

local paths = {}
for name in (folder and files.slurp(folder .. "/INDEX.md") or ""):gmatch("`(%d+%-[^`]+)`") do
  paths[tonumber(name:match("^%d+"))] = paths[tonumber(name:match("^%d+"))] or name
end

local function read(number)
  local name = assert(paths[number], "no file " .. number)
  return import.read(files.slurp(folder .. "/" .. name), name)
end

local function refused(number)
  local name = assert(paths[number], "no file " .. number)
  return see.refusal(files.slurp(folder .. "/" .. name), name)
end

-- Files that nothing had to be doubted in: no repair, nothing missing but names of NICs.
local clean = { [18] = true, [19] = true, [20] = true, [23] = true, [28] = true, [31] = true, [34] = true, [39] = true, [42] = true, [43] = true,
  [51] = true, [53] = true, [54] = true, [58] = true, [61] = true, [69] = true, [71] = true, [105] = true, [109] = true }

describe("the shared corpus, topo -m", function()
  if not folder then return pending(why) end

  for _, case in ipairs(matrices) do
    it(paths[case[1]] or tostring(case[1]), function()
      local r = read(case[1])
      assert.equal(case[2], #r.devices)
      assert.equal(case[3], see.islands(r))
      assert.equal(case[4], see.column(r, "numa"))
      if case[5] then assert.equal(case[5], see.nearest(r)) else assert.equal(0, #r.nics) end
      for i = 6, #case do assert.truthy(see.doubt(r, case[i]), case[i]) end
      for _, d in ipairs(clean[case[1]] and r.doubts or {}) do assert.equal("nic_unnamed", d.code) end
    end)
  end

  it("covers every file of that kind", function()
    local seen = {}
    for _, case in ipairs(matrices) do seen[case[1]] = true end
    for number, name in pairs(paths) do
      if name:find("%.topo%.txt$") then assert.is_true(seen[number], name) end
    end
  end)

  it("reads the links of the cube mesh as listed", function()
    assert.equal("0-1 NV1, 0-2 NV1, 0-3 NV2, 0-4 NV2, 0-5 sys, 0-6 sys, 0-7 sys, 1-2 NV2, 1-3 NV1, 1-4 sys, 1-5 NV2, 1-6 sys, 1-7 sys, "
      .. "2-3 NV2, 2-4 sys, 2-5 sys, 2-6 NV1, 2-7 sys, 3-4 sys, 3-5 sys, 3-6 sys, 3-7 NV1, 4-5 NV1, 4-6 NV1, 4-7 NV2, 5-6 NV2, 5-7 NV1, 6-7 NV2",
      see.links(read(28)))
    assert.is_false(see.link(read(28), 0, 3).via_switch)
  end)

  it("keeps the CPU lists that say where GPUs are where no NUMA column does", function()
    assert.equal("0-7 0-7 8-15 8-15", see.column(read(23), "cpus"))
    assert.equal("0-71 0-71 72-143 72-143", see.column(read(73), "cpus"))
    assert.equal("6,14,22,30 4,12,20,28 7,15,23,31 5,13,21,29", see.column(read(51), "cpus"))
    assert.equal("44-51,148-155 - - -", see.column(read(58), "cpus"))
  end)

  it("keeps P2P and path as two facts (87, 88)", function()
    assert.same({ "phb", "gns" }, { see.link(read(87), 0, 1).kind, see.link(read(87), 0, 1).p2p.read })
    assert.same({ "nvlink", "ns" }, { see.link(read(88), 0, 1).kind, see.link(read(88), 0, 1).p2p.write })
  end)

  it("names devices of NICs from the legend only (18: NIC9 is mlx5_10)", function()
    local r = read(18)
    assert.equal("mlx5_10", r.nics[10].device)
    assert.equal("mlx5_bond_3", read(54).nics[4].device)
    assert.is_nil(read(74).nics[2].device)
  end)

  it("does not say what the cut rows would have said (79: 5-6, 5-7, 6-7; 50: 6-7; 112: 0-1)", function()
    assert.is_nil(see.link(read(79), 5, 6))
    assert.is_nil(see.link(read(50), 6, 7))
    assert.is_nil(see.link(read(112), 0, 1))
  end)
end)

describe("the shared corpus, other text", function()
  if not folder then return pending(why) end

  it("25 and 26: MIG slices and index gaps", function()
    local r = read(25)
    assert.equal("on", r.devices[1].mig.mode)
    assert.equal(5, #r.devices)
    r = read(26)
    assert.equal("0 4 7", see.column(r, "index"))
    assert.is_nil(r.devices[1].mig)
    assert.equal("GPU-0007", r.devices[6].mig.parent)
  end)

  it("45: four links of GPU0 and GPU1, none of GPU2", function()
    local r = read(45)
    assert.equal("0-1 NV4", see.links(r))
    assert.equal(0, r.devices[3].nvlink.links)
  end)

  it("89: 4 x 14.062 GB/s", function() assert.near(4 * 14.062, see.link(read(89), 0, 1).gb_s, 1e-9) end)

  it("97: both GPUs are on the same switches", function()
    local r = read(97)
    assert.equal("5 6", see.column(r, "index"))
    assert.is_true(see.link(r, 5, 6).via_switch)
    assert.truthy(see.doubt(r, "links_cut"))
  end)

  it("98, 100, 101: states of the fabric", function()
    assert.same({ "completed", "insufficient_resources" }, { read(98).devices[1].fabric.state, read(98).devices[1].fabric.status })
    assert.equal("in_progress", read(100).devices[1].fabric.state)
    assert.is_nil(read(101).devices[1].fabric)
  end)

  it("102: 18 links, the second list is cut", function()
    local r = read(102)
    assert.same({ links = 18, gb_s = 53.125 }, r.devices[1].nvlink)
    assert.is_nil(r.devices[2].nvlink.links)
  end)

  it("110: the islands of 109", function()
    local r = read(110)
    assert.equal("0,1 2,3 4,5 6,7", see.islands(r))
    assert.equal(51539607552, r.devices[8].mem_bytes)
  end)

  it("16 and 17: only nodes with CPUs count", function()
    for _, number in ipairs { 16, 17 } do
      local r = read(number)
      assert.equal("0004:05:00.0 0004:06:00.0 0006:00:00.0 0007:00:00.0 0035:04:00.0 0035:05:00.0", see.column(r, "pci"))
      assert.equal("0 0 0 8 8 8", see.column(r, "numa"))
      assert.same({ 0, 8 }, { r.hosts[1].numa[1].id, r.hosts[1].numa[2].id })
      assert.is_nil(r.hosts[1].numa[3])
    end
  end)

  it("refuses what is none: 05, 22, 95, 96", function()
    for number, word in pairs { [5] = "NCCL graph file", [22] = "rocm%-smi", [95] = "Moore Threads", [96] = "rocm%-smi" } do
      local e = refused(number)
      assert.same({ "format", 6 }, { e.code, e.exit })
      assert.truthy(e.message:find(word), e.message)
    end
  end)
end)
