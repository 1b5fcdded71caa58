-- SPDX-License-Identifier: Apache-2.0
--- The text for people: what it must show of a machine, and that colours are only ever added.
local s = require("spec.topo.support")
local text = require("tpl.topo.text")
local topo = require("tpl.topo")

local function lines_of(t, opts)
  local out = {}
  for line in text.write(t, opts):gmatch("[^\n]+") do out[#out + 1] = line end
  return out
end

local function line_with(lines, pattern)
  for _, line in ipairs(lines) do
    if line:find(pattern) then return line end
  end
end

describe("tpl.topo.text", function()
  it("shows the matrix as the input had it", function()
    local lines = lines_of(s.fixture("4xa6000-bridge-pairs.topo.txt"))
    assert.is_string(line_with(lines, "^%s+GPU0%s+GPU1%s+GPU2%s+GPU3$"))
    assert.is_string(line_with(lines, "^%s+GPU0%s+%.%s+SYS%s+NV4%s+SYS$"))
    assert.is_string(line_with(lines, "^%s+GPU3%s+SYS%s+NV4%s+SYS%s+%.$"))
    assert.matches("NV NVLink, and how many links; SYS across sockets", table.concat(lines, "\n"))
    assert.is_nil(line_with(lines, "PIX one PCIe switch")) -- the legend has only what occurs
  end)

  it("shows devices with memory, MIG, health, NUMA, NICs, islands, the suggestion", function()
    local lines = lines_of(s.fixture("host-4xh100-two-in-mig.yaml"))
    assert.matches("GPU0 .*NVIDIA H100 80GB HBM3 sm 9.0 .*79.6 GiB %(79.0 GiB free%).* 0 .*0%-47 .*0000:18:00.0 .*GPU%-aa000000", line_with(lines, "0000:18"))
    assert.matches("not usable: mig_on", line_with(lines, "0000:9a"))
    assert.is_string(line_with(lines, "^%s+MIG1 "))
    assert.is_string(line_with(lines, "NUMA 1: cpus 48%-95"))
    assert.is_string(line_with(lines, "^  {GPU0 GPU1}  every pair is joined"))
    assert.equal("suggestion  tp2: tensor parallel over 2 devices", line_with(lines, "^suggestion"))
    assert.equal("  tp=2  (GPU0 GPU1) NV18", line_with(lines, "^  tp=2"))
    lines = lines_of(s.fixture("3xa100-pcie-one-bridge.topo.txt"))
    assert.matches("NIC0 %(mlx5_3%) .*near GPU1 %(PIX%), GPU2 %(PHB%)$", line_with(lines, "mlx5_3"))
    lines = lines_of(s.fixture("8xh100-three-unhealthy.yaml"))
    assert.matches("not usable: remap_pending", line_with(lines, "GPU1 .*GiB"))
    assert.matches("not usable: fabric_unhealthy", line_with(lines, "GPU4 .*GiB"))
  end)

  it("marks refused peer access, and pairs that are not told", function()
    local lines = lines_of(s.fixture("4x4090-no-peer-access.topo.txt"))
    assert.is_string(line_with(lines, "^%s+GPU0%s+%.%s+PHB!%s+NODE!%s+NODE!$"))
    assert.is_string(line_with(lines, "peer access refused"))
    lines = lines_of(s.topo { ". NV1 ?", "NV1 . NV1", "? NV1 ." })
    assert.is_string(line_with(lines, "^%s+GPU0%s+%.%s+NV1%s+%?$"))
    assert.is_string(line_with(lines, "whether every pair is joined is not told"))
    assert.is_string(line_with(lines, "says nothing about 1 of 3 pairs.*%[links_missing%]"))
  end)

  it("gives lines of doubts, names devices by host where there are several, and shortens clusters", function()
    local lines = lines_of(assert(topo.from_record { devices = { {} }, doubts = { { line = 12, code = "repaired", message = "a quote was missing" } } }))
    assert.equal("  line 12: a quote was missing [repaired]", line_with(lines, "line 12"))
    lines = lines_of(s.fixture("2x8xh100-infiniband.yaml"))
    assert.is_string(line_with(lines, "{node%-a/GPU0 node%-a/GPU1"))
    assert.is_string(line_with(lines, "^network  ib, 50.0 GB/s, 5.0 us between 2 hosts"))
    lines = lines_of(s.fixture("cluster-repeat.yaml"))
    assert.is_string(line_with(lines, "^and 125 more hosts: 1025 devices in all"))
    assert.is_true(#lines < 200)
  end)

  it("shows what was measured, both ways", function()
    assert.matches("cpu0 %- cpu1 +18.5 GB/s, 0.4 us +back 17.9 GB/s, 0.4 us", table.concat(lines_of(s.fixture("cpu-two-sockets.yaml")), "\n"))
  end)

  it("has the same text with colours, once they are taken out", function()
    for _, name in ipairs { "host-4xh100-two-in-mig.yaml", "8xv100-cube-mesh-renumbered.topo.txt" } do
      local t = s.fixture(name)
      local plain, coloured = text.write(t), text.write(t, { colour = true })
      assert.is_nil(plain:find("\27", 1, true))
      assert.matches("\27%[32m", coloured)
      -- Blanks that a colour keeps at a line's end are no difference.
      assert.equal(plain, (coloured:gsub("\27%[%d*m", ""):gsub("[ ]+\n", "\n")))
    end
  end)

  it("says every word of advice", function()
    assert.equal("no device can be used", text.advice("none"))
    assert.equal("tensor parallel over groups of 2, pipeline or replicas over the 3 groups", text.advice("tp2xpp3"))
    assert.equal("pipeline or replicas over 2 devices", text.advice("pp2"))
    assert.equal("?", text.advice(nil))
  end)
end)
