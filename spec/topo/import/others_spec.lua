-- SPDX-License-Identifier: Apache-2.0
-- Expected values: what the fixtures were written to say (spec/fixtures/topologies/README.md), worked out by hand.
local see = require("spec.topo.import.support")
local import = require("tpl.topo.import")

describe("tpl.topo.import.p2p", function()
  it("keeps the direction of a refusal beside the path", function()
    local l = see.link(see.fixture("p2p-one-way.topo.txt"), 0, 1)
    assert.equal("phb", l.kind)
    assert.same({ read = "ok", write = "ok" }, l.p2p)
    assert.same({ read = "cns", write = "ok" }, l.p2p_ba)
  end)

  it("reads every letter of -p2p and both of rw", function()
    local function ask(letters)
      return see.link(import.read("$ nvidia-smi topo -p2p " .. letters .. "\n\tGPU0\tGPU1\nGPU0\tX\tTNS\nGPU1\tTNS\tX\n", "x"), 0, 1)
    end
    assert.same({ read = "tns", write = "tns" }, ask("rw").p2p)
    assert.same({ nvlink = "tns" }, ask("n").p2p)
    assert.same({ atomics = "tns" }, ask("a").p2p)
    assert.same({ pcie = "tns" }, ask("p").p2p)
    assert.is_nil(ask("rw").p2p_ba)
    assert.is_nil(ask("rw").kind, "a P2P table says nothing of the path")
  end)

  it("doubts NVLink whose P2P is refused", function()
    local r = import.read("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n\n\tGPU0\tGPU1\nGPU0\t X \tNS\nGPU1\tNS\t X \n", "x")
    assert.truthy(see.doubt(r, "p2p_kind_unknown"))
    assert.truthy(see.doubt(r, "nvlink_p2p_refused"))
    assert.equal("ns", see.link(r, 0, 1).p2p.read)
  end)
end)

describe("tpl.topo.import.smi_list", function()
  it("gives slices their parent and profile and combines with a matrix", function()
    local r = see.fixture("mig-and-matrix.smiL.txt")
    assert.equal("0 2", see.column(r, "index"))
    assert.equal("GPU-11111111-0000-4000-8000-000000000000", r.devices[1].uid)
    assert.is_nil(r.devices[1].mig)
    assert.equal("on", r.devices[2].mig.mode)
    local slice = r.devices[4]
    assert.same({ "mig", "3g.71gb", r.devices[2].uid, 1 }, { slice.kind, slice.mig.profile, slice.mig.parent, slice.index })
    assert.equal(18, see.link(r, 0, 2).nvlinks)
    assert.equal("0 0", see.column(r, "numa"))
  end)

  it("takes no blacked out or repeated UUID for an identity", function()
    local r = see.fixture("redacted.smiL.txt")
    for i, d in ipairs(r.devices) do
      assert.equal("GPU" .. (i - 1), d.uid)
      assert.is_nil(d.uuid)
      assert.equal("NVIDIA L40S", d.name)
    end
    assert.truthy(see.doubt(r, "uuid_unreadable"))
    assert.truthy(see.doubt(r, "uuid_repeated"))
  end)
end)

describe("tpl.topo.import.smi_query", function()
  it("reads identity, memory, MIG, PCIe, fabric, health and processes", function()
    local r = see.fixture("query.smiq.txt")
    local d = r.devices[1]
    assert.same({ "550.54.15", "12.4" }, { r.hosts[1].driver, r.hosts[1].cuda })
    assert.same({ "0000:0f:00.0", "96.00.74.00.1C", 81559 * 2 ^ 20, 79984 * 2 ^ 20 }, { d.pci, d.vbios, d.mem_bytes, d.free_bytes })
    assert.same({ mode = "off", pending = "on" }, d.mig)
    assert.same({ gen = 5, width = 8 }, d.pcie)
    assert.same({ state = "completed", status = "success", clique = 0, cluster = "00000000-0000-0000-0000-000000000000", health = "unhealthy" }, d.fabric)
    assert.same({ remapped = { pending = true, failure = false }, ecc = 3 }, d.health)
    assert.same({ pids = { 4242 }, used_bytes = 1024 * 2 ^ 20 }, d.busy)
    assert.same({ pids = {} }, r.devices[2].busy)
    assert.equal("0 1", see.column(r, "index"))
  end)

  it("keeps a slice's memory apart from the card's", function()
    local r = see.fixture("query-mig.smiq.txt")
    assert.equal(81559 * 2 ^ 20, r.devices[1].mem_bytes)
    assert.same({ "mig", 40448 * 2 ^ 20, "GPU0" }, { r.devices[2].kind, r.devices[2].mem_bytes, r.devices[2].mig.parent })
    assert.equal(20096 * 2 ^ 20, r.devices[3].mem_bytes)
  end)

  it("knows a GPU that is lost by its address", function()
    local d = see.fixture("query-lost.smiq.txt").devices[1]
    assert.same({ "0000:3b:00.0", true }, { d.pci, d.health.lost })
  end)

  it("gives fragments of several GPUs their order as index, with a doubt", function()
    local one = "    Fabric\n        State                             : %s\n        Status                            : Success\n"
    local r = import.read(one:format("Completed") .. "--\n" .. one:format("In Progress"), "x")
    assert.equal("0 1", see.column(r, "index"))
    assert.same({ "completed", "in_progress" }, { r.devices[1].fabric.state, r.devices[2].fabric.state })
    assert.truthy(see.doubt(r, "index_assumed"))
  end)
end)

describe("tpl.topo.import.nvlink", function()
  it("finds directly wired peers by the order of their addresses", function()
    local r = see.fixture("direct-R.nvlink.txt")
    assert.equal("0-1 NV2, 0-2 NV2, 0-3 NV2, 1-2 NV2, 1-3 NV2, 2-3 NV2", see.links(r))
    assert.equal("0000:07:00.0 0000:0a:00.0 0000:47:00.0 0000:4d:00.0", see.column(r, "pci"))
    assert.is_false(see.link(r, 0, 1).via_switch)
    assert.truthy(see.doubt(r, "address_by_order"))
  end)

  it("knows switches by their port numbers", function()
    local r = see.fixture("switch-R.nvlink.txt")
    assert.equal("0-1 NV18, 0-2 NV18, 1-2 NV18", see.links(r))
    assert.is_true(see.link(r, 0, 2).via_switch)
  end)

  it("pairs the only two GPUs with links, and no others", function()
    local r = see.fixture("two-with-links.nvlink.txt")
    assert.equal("0-2 NV4", see.links(r))
    assert.truthy(see.doubt(r, "peer_by_elimination"))
    local three = see.fixture_text("two-with-links.nvlink.txt"):gsub("<inactive>", "14.062 GB/s")
    assert.equal("", see.links(import.read(three, "x")))
  end)

  it("gives a pair of the matrix its stated speed: 4 links of 14.062 GB/s", function()
    local text = see.fixture_text("two-with-links.nvlink.txt") .. "\n\tGPU0\tGPU2\nGPU0\t X \tNV4\nGPU2\tNV4\t X \n"
    local l = see.link(import.read(text, "x"), 0, 2)
    assert.near(56.248, l.gb_s, 1e-9)
    assert.equal("stated", l.source)
  end)
end)

describe("tpl.topo.import.slurm", function()
  it("reads Links=, Cores= and the memory of each GPU", function()
    local r = see.fixture("quad.slurm.txt")
    assert.equal("0-2 NV4, 1-3 NV4", see.links(r))
    assert.equal("0-15 0-15 16-31 16-31", see.column(r, "cpus"))
    assert.equal(24 * 2 ^ 30, r.devices[4].mem_bytes)
    assert.equal("a30", r.devices[1].name)
  end)
end)

describe("tpl.topo.import.lstopo_text", function()
  it("places GPUs and NICs at their memory node and leaves the board's VGA out", function()
    local r = see.fixture("two-sockets.lstopo.txt")
    assert.equal("0000:0f:00.0 0000:8f:00.0", see.column(r, "pci"))
    assert.equal("0 1", see.column(r, "numa"))
    assert.equal("0,2 1,3", see.column(r, "cpus"))
    assert.same({ name = "mlx5_0", device = "mlx5_0", pci = "0000:10:00.0", numa = 0, host = "host0" }, r.nics[1])
    assert.equal(1, #r.nics)
    assert.same({ id = 1, cpus = "1,3", mem_bytes = 126 * 2 ^ 30 }, r.hosts[1].numa[2])
    assert.truthy(see.doubt(r, "display_left_out"))
  end)
end)

describe("tpl.topo.import", function()
  it("refuses other vendors and other files by name, exit 6", function()
    local cases = {
      ["npu%-smi"] = see.fixture_text("npu-smi.negative.txt"), ["amd%-smi"] = see.fixture_text("amd-smi.negative.txt"),
      ["rocm%-smi"] = "=== ROCm System Management Interface ===\n", ["NCCL graph file"] = "<!-- a -->\n<graphs version=\"1\"></graphs>\n",
      ["root element <html>"] = "<html><body>GPU0</body></html>", ["plain nvidia%-smi"] = "| NVIDIA-SMI 550.1   Driver Version: 550.1 |\n",
      ["without %-x"] = "<?xml version=\"1.0\" ?>\n<nvidia_smi_log></nvidia_smi_log>", ["no topology"] = see.fixture_text("weights-only.negative.txt"),
      ["empty"] = " \n",
      ["ixsmi topo"] = "$ ixsmi topo -m\n" .. see.fixture_text("index-gaps.topo.txt"),
      ["Moore Threads"] = "| MTHREADS | Device 0 |\n| Device 0 | X |\n", ["nvidia%-smi was not found"] = "sh: nvidia-smi: command not found\n",
    }
    for word, text in pairs(cases) do
      local e = see.refusal(text)
      assert.same({ "format", 6 }, { e.code, e.exit }, word)
      assert.truthy(e.message:find(word), word .. ": " .. e.message)
      assert.truthy(e.hint:find("nvidia-smi topo -m", 1, true))
      assert.equal("input", e.where)
    end
  end)

  it("is not put off by another vendor's command that was not found", function()
    local r = import.read("$ rocm-smi\nbash: rocm-smi: command not found\n" .. see.fixture_text("index-gaps.topo.txt"), "x")
    assert.equal(3, #r.devices)
  end)

  it("is not misled by titles that look like keys of a record", function()
    local r = import.read("hosts:\ndevices:\n" .. see.fixture_text("index-gaps.topo.txt"), "x")
    assert.equal(3, #r.devices)
  end)

  it("takes titles of parts for hosts only where both have the same GPUs", function()
    local r = import.read("=== part-1 ===\n" .. see.fixture_text("index-gaps.topo.txt") .. "=== part-2 ===\nGPU 1: NVIDIA L4 (UUID: GPU-0a)\n", "x")
    assert.equal(1, #r.hosts)
    assert.equal("NVIDIA L4", r.devices[1].name)
  end)

  it("says that text is needed", function()
    local err = require("tpl.err")
    local _, e = err.try(import.read, nil, "x")
    assert.equal("usage", e.code)
  end)
end)
