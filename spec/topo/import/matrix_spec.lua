-- SPDX-License-Identifier: Apache-2.0
-- Expected values: each fixture's machine as its README row states it (spec/fixtures/topologies), and the rules of the tool's own legend.
local see = require("spec.topo.import.support")
local import = require("tpl.topo.import")

describe("tpl.topo.import.matrix: repairs", function()
  it("takes glued header labels apart and reads SOC as SYS", function()
    local r = see.fixture("glued-soc.topo.txt")
    assert.equal("0-1 NV2, 0-2 sys, 0-3 sys, 1-2 sys, 1-3 sys, 2-3 NV2", see.links(r))
    assert.equal("mlx4_0 mlx4_0 mlx4_1 mlx4_1", see.nearest(r))
    assert.equal(1, see.doubt(r, "header_glued").line)
  end)

  it("drops the columns from the glue on when rows have fewer cells than the header", function()
    local r = see.fixture("glued-short-rows.topo.txt")
    assert.equal("0-1 NV4, 0-2 sys, 1-2 sys", see.links(r))
    assert.equal(1, #r.nics)
    assert.equal("NIC0", r.nics[1].name)
    assert.equal("0 0 1", see.column(r, "numa"))
    assert.truthy(see.doubt(r, "columns_ambiguous"))
  end)

  it("names the columns of a table without a header after the cells marked X", function()
    local r = see.fixture("headless.topo.txt")
    assert.equal("0 1 2 3 4 5", see.column(r, "index"))
    assert.equal("2,3 4,5", see.islands(r))
    assert.is_nil(see.link(r, 0, 1), "the pair whose rows are missing")
    assert.equal("sys", see.link(r, 0, 5).kind)
    assert.equal("- - 0 1 1 1", see.column(r, "numa"))
    assert.equal("NIC0 NIC0 NIC0 - NIC1 NIC1", see.nearest(r))
    assert.truthy(see.doubt(r, "header_missing"))
    assert.equal("no row for GPU0, GPU1: links among them, CPUs and NUMA nodes are unknown", see.doubt(r, "rows_missing").message)
  end)

  it("joins headers and rows that go on in the next line", function()
    local r = see.fixture("wrapped.topo.txt")
    assert.equal("0,1,2,3", see.islands(r))
    assert.equal("0 0 1 1", see.column(r, "numa"))
    assert.equal("NIC0 NIC0 - -", see.nearest(r))
    assert.equal("mlx5_7", r.nics[1].device)
    assert.truthy(see.doubt(r, "header_wrapped"))
    assert.equal(3, see.doubt(r, "row_wrapped").line)
  end)

  it("takes away prefixes of logs and is not misled by prose", function()
    for _, name in ipairs { "log-prefix.topo.txt", "journal-prefix.topo.txt" } do
      local r = see.fixture(name)
      assert.equal("0-1 phb, 0-2 NV4, 1-2 sys", see.links(r))
      assert.equal("0 0 1", see.column(r, "numa"))
      assert.truthy(see.doubt(r, "prefix"))
    end
  end)

  it("takes any other words before the label of a row for a prefix", function()
    local text = see.fixture_text("index-gaps.topo.txt"):gsub("\n", "\nworker#3 >> ")
    local r = import.read("worker#3 >> " .. text, "x")
    assert.equal("1-4 NV4, 1-6 sys, 4-6 pix", see.links(r))
  end)

  it("reads chat pastes: code fence, prompt, no-break spaces, CRLF", function()
    local r = see.fixture("chat-paste.topo.txt")
    assert.equal("0-1 NV4", see.links(r))
    assert.equal("0-5 0-5", see.column(r, "cpus"))
    assert.equal("0 0", see.column(r, "numa"))
    assert.equal(0, #r.doubts)
  end)

  it("gives the labels, not the order, the say: gaps, rows in another order, NICs first", function()
    local r = see.fixture("index-gaps.topo.txt")
    assert.equal("1 4 6", see.column(r, "index"))
    assert.equal("1-4 NV4, 1-6 sys, 4-6 pix", see.links(r))
    assert.equal("0 0 1", see.column(r, "numa"))
    r = see.fixture("nic-first.topo.txt")
    assert.equal("0-1 phb", see.links(r))
    assert.equal("NIC0 NIC1", see.nearest(r))
    assert.equal("bnxt_re0", r.nics[2].device)
  end)

  it("names a header that lost a label after the rows", function()
    local text = see.fixture_text("ring.topo.txt"):gsub("GPU0\t", "", 1)
    local r = import.read(text, "x")
    assert.equal("0-1 NV2, 0-2 sys, 0-3 NV2, 1-2 NV2, 1-3 sys, 2-3 NV2", see.links(r))
    assert.truthy(see.doubt(r, "header_repaired"))
  end)

  it("stops trusting a row in which a cell got lost, and uses the mirror cells", function()
    local text = see.fixture_text("ring.topo.txt"):gsub("GPU1\tNV2\t", "GPU1\t", 1)
    local r = import.read(text, "x")
    assert.equal("0-1 NV2, 0-2 sys, 0-3 NV2, 1-2 NV2, 1-3 sys, 2-3 NV2", see.links(r))
    assert.equal(3, see.doubt(r, "cells_lost").line)
  end)

  it("joins rows that a terminal broke in the middle of words", function()
    local text = see.fixture_text("sixteen.topo.txt")
    local wide = text:gsub("([^\n]*)\n", function(line)
      local out = {}
      for cell in (line .. "\t"):gmatch("([^\t]*)\t") do out[#out + 1] = cell .. (" "):rep(8 - #cell % 8) end
      line = table.concat(out)
      return line:sub(1, 100) .. "\n" .. line:sub(101) .. "\n"
    end)
    local r = import.read(wide, "x")
    assert.equal(see.links(import.read(text, "x")), see.links(r))
    assert.equal("0 0 0 0 0 0 0 0 1 1 1 1 1 1 1 1", see.column(r, "numa"))
    assert.truthy(see.doubt(r, "row_wrapped"))
  end)

  it("trusts the cells left of an ellipsis", function()
    local r = import.read("\tGPU0\tGPU1\tGPU2\t...\nGPU0\t X \tNV4\tSYS ...\nGPU1\tNV4\t X \t...\nGPU2\tSYS\tPHB\t X ...\n", "x")
    assert.equal("0-1 NV4, 0-2 sys, 1-2 phb", see.links(r))
  end)

  it("finds the label of a row that lost it", function()
    local text = see.fixture_text("ring.topo.txt"):gsub("GPU2\tSYS", "SYS", 1)
    local r = import.read(text, "x")
    assert.equal("NV2", see.links(r):match("2%-3 (%S+)$"))
    assert.equal(4, see.doubt(r, "label_missing").line)
  end)

  it("reads the same from every other clothing of the text", function()
    local plain = see.fixture_text("ring.topo.txt")
    local want = see.links(import.read(plain, "x"))
    local bars = plain:gsub("\n\nLegend.*", "\n"):gsub("([^\n]*)\n", function(l) return "| " .. l:gsub("\t", " | ") .. " |\n" end)
    local clothes = {
      crlf = plain:gsub("\n", "\r\n"), cr = plain:gsub("\n", "\r"), one_blank = plain:gsub("[\t ]+", " "),
      utf16 = "\255\254" .. plain:gsub(".", "%0\0"):gsub("\n", "\n\0"):gsub("%z%z", "\0"), bom = "\239\187\191" .. plain,
      ansi = "\27[4m" .. plain:gsub("\n", "\27[0m\n", 1), no_esc = "[4m" .. plain:gsub("\n", "[0m\n", 1), quoted = "> " .. plain:gsub("\n", "\n> "),
      double = plain:gsub("\n", "\n\n"), bars = bars, escaped = plain:gsub("\t", "\\t"):gsub("\n", "\\n"), no_lead = plain:gsub("^\t", ""),
      spaced = plain:gsub("GPU(%d)", "GPU %1"), powershell = "PS C:\\Users\\me> nvidia-smi topo -m\n" .. plain,
    }
    for name, text in pairs(clothes) do assert.equal(want, see.links(import.read(text, name)), name) end
  end)
end)

describe("tpl.topo.import.matrix: facts", function()
  it("never takes GPU NUMA ID for the host's node, and blank stays unknown", function()
    for _, name in ipairs { "blank-affinity-tabs.topo.txt", "blank-affinity-columns.topo.txt" } do
      local r = see.fixture(name)
      assert.equal("2 - -", see.column(r, "numa"), name)
      assert.equal("- 8-15 -", see.column(r, "cpus"), name)
    end
  end)

  it("counts the worse of two cells that disagree, with the line", function()
    local r = see.fixture("asymmetric.topo.txt")
    assert.equal("0-1 NV2, 0-2 phb, 1-2 sys", see.links(r))
    assert.equal(3, see.doubt(r, "asymmetric").line)
  end)

  it("does not believe the last word of a text that was cut", function()
    local r = see.fixture("cut-in-cell.topo.txt")
    assert.equal(18, see.link(r, 1, 2).nvlinks)
    assert.is_nil(see.link(r, 2, 3))
    assert.equal("0 0 - -", see.column(r, "numa"))
    assert.truthy(see.doubt(r, "row_cut"))
    assert.truthy(see.doubt(r, "rows_missing"))
  end)

  it("joins -m and -mp of one host: the PCIe path of an NVLink pair becomes known", function()
    local r = see.fixture("m-and-mp.topo.txt")
    assert.equal(4, #r.devices)
    local l = see.link(r, 0, 1)
    assert.same({ "nvlink", 12, "node" }, { l.kind, l.nvlinks, l.pcie })
    assert.equal("phb", see.link(r, 2, 3).pcie)
    assert.is_nil(see.doubt(r, "mp_hides_nvlink"))
  end)

  it("says that -mp alone hides NVLink", function()
    assert.truthy(see.doubt(see.fixture("mp-only.topo.txt"), "mp_hides_nvlink"))
  end)

  it("tells hosts apart by prompts and by line prefixes", function()
    for name, id in pairs { ["two-hosts.topo.txt"] = "alpha-", ["two-hosts-pdsh.topo.txt"] = "beta" } do
      local r = see.fixture(name)
      assert.same({ id .. "1", id .. "2" }, { r.hosts[1].id, r.hosts[2].id })
      assert.equal(8, #r.devices)
      assert.equal(id .. "2/GPU0", r.devices[5].uid)
      assert.equal(12, #r.links)
      for _, l in ipairs(r.links) do assert.equal(l.a:match("^[^/]+"), l.b:match("^[^/]+")) end
      assert.truthy(see.doubt(r, "several_hosts"))
    end
  end)

  it("tells hosts apart by titles of several kinds", function()
    local text = see.fixture_text("ring.topo.txt")
    for _, title in ipairs { "=== %s ===", "--- %s ---", "### %s", "[%s]", "%s:", "%s", "Host: %s", "hostname=%s", "node %s", "==> %s <==" } do
      local r = import.read(title:format("rack-7") .. "\n" .. text .. "\n" .. title:format("rack-8") .. "\n" .. text, "x")
      assert.equal(2, #r.hosts, title)
      assert.same({ "rack-7", "rack-8" }, { r.hosts[1].id, r.hosts[2].id })
    end
  end)

  it("counts the same table once and takes a different one for another host", function()
    local text = see.fixture_text("ring.topo.txt")
    local r = import.read(text .. "\n" .. text, "x")
    assert.equal(4, #r.devices)
    assert.truthy(see.doubt(r, "table_repeated"))
    r = import.read(text .. "\n" .. text:gsub("NV2", "NV1"), "x")
    assert.equal(8, #r.devices)
    assert.equal(2, #r.hosts)
  end)

  it("invents no names, memory or models", function()
    for _, d in ipairs(see.fixture("sixteen.topo.txt").devices) do
      assert.is_nil(d.name)
      assert.is_nil(d.mem_bytes)
      assert.is_nil(d.uuid)
      assert.is_nil(d.pci)
    end
  end)
end)

-- A GPU has at most 18 NVLink ports up to Blackwell, so a row whose counts add up to more goes through switches (NVIDIA's data sheets:
-- P100 4, V100 6, A100 12, H100 to B300 18). H100 quads with NV6 and H200 NVL pairs with NV18 are wired directly and have the same sums as
-- parts of a switched machine, so nothing is said of them.
describe("tpl.topo.import.matrix: switches", function()
  local function mesh(n, word)
    local lines = { "" }
    for i = 0, n - 1 do lines[1] = lines[1] .. "\tGPU" .. i end
    for i = 0, n - 1 do
      local row = { "GPU" .. i }
      for k = 0, n - 1 do row[#row + 1] = i == k and " X " or word end
      lines[#lines + 1] = table.concat(row, "\t")
    end
    return import.read(table.concat(lines, "\n") .. "\n", "mesh")
  end

  it("are certain where the counts exceed the ports of any GPU", function()
    for _, case in ipairs { { 8, "NV12" }, { 4, "NV18" }, { 3, "NV12" }, { 8, "NV8" }, { 16, "NV6" } } do
      assert.is_true(see.link(mesh(case[1], case[2]), 0, 1).via_switch, table.concat(case, " "))
    end
  end)

  it("stay unknown where a direct wiring has the same counts", function()
    for _, case in ipairs { { 2, "NV18" }, { 2, "NV12" }, { 4, "NV6" }, { 4, "NV4" }, { 2, "NV4" } } do
      assert.is_nil(see.link(mesh(case[1], case[2]), 0, 1).via_switch, table.concat(case, " "))
    end
  end)

  it("are excluded in a ring and between unequal counts", function()
    assert.is_false(see.link(see.fixture("ring.topo.txt"), 0, 1).via_switch)
    local r = import.read("\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV1\tNV2\nGPU1\tNV1\t X \tNV1\nGPU2\tNV2\tNV1\t X \n", "x")
    assert.is_false(see.link(r, 0, 1).via_switch)
  end)
end)
