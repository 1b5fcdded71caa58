-- SPDX-License-Identifier: Apache-2.0
--- The picture: a well-formed document (libexpat reads it) with every device, link class and rank in it, whatever texts the input holds.
local s = require("spec.topo.support")
local svg = require("tpl.topo.svg")
local sys = require("tpl.core").sys
local topo = require("tpl.topo")
local xml = require("tpl.xml")

--- Read a picture; gives the elements by tag, and all text.
local function read(picture)
  local root, e = xml.decode(picture)
  assert.is_nil(e)
  assert.equal("svg", root.tag)
  local out, texts = {}, {}
  local function walk(node)
    out[node.tag] = out[node.tag] or {}
    table.insert(out[node.tag], node)
    for _, child in ipairs(node) do
      if type(child) == "table" then walk(child) else texts[#texts + 1] = child end
    end
    if node.text then texts[#texts + 1] = node.text end
  end
  walk(root)
  out.texts = table.concat(texts, "\n")
  return out
end

describe("tpl.topo.svg", function()
  it("draws every device, NUMA box and link of a machine", function()
    local e = read(svg.draw(s.fixture("8xv100-cube-mesh-renumbered.topo.txt")))
    -- 16 NVLink pairs of the cube mesh and the other 12 as SYS: 28 pairs of 8.
    assert.equal(28, #e.path)
    local green = 0
    for _, path in ipairs(e.path) do
      if path.attr.stroke == "#3a8f3a" then green = green + 1 end
    end
    assert.equal(16, green)
    for i = 0, 7 do assert.matches("GPU" .. i, e.texts) end
    assert.matches("NUMA 0", e.texts)
    assert.matches("tp4xpp2", e.texts)
  end)

  it("draws wider arcs for more links, and refused ones dashed", function()
    local e = read(svg.draw(s.topo { ". NV1 NV4", "NV1 . SYS", "NV4 SYS ." }))
    assert.is_true(tonumber(e.path[1].attr["stroke-width"]) < tonumber(e.path[2].attr["stroke-width"]))
    e = read(svg.draw(s.fixture("4x4090-no-peer-access.topo.txt")))
    for _, path in ipairs(e.path) do assert.is_string(path.attr["stroke-dasharray"]) end
  end)

  it("draws a placement: colours by stage, ranks by name, MIG slices in their card", function()
    local t = s.fixture("4xl40s-pcie.yaml")
    local ids = t:ids()
    local ranks = { { rank = 0, stage = 0, uid = ids[1] }, { rank = 1, stage = 0, uid = ids[2] }, { rank = 2, stage = 1, uid = ids[3] } }
    local e = read(svg.draw(t, { placement = ranks, title = "a plan" }))
    assert.matches("rank 2 stage 1", e.texts)
    assert.matches("a plan", e.texts)
    local fill, n = {}, 0
    for _, rect in ipairs(e.rect) do
      if rect.attr.rx == "6" then
        n = n + 1
        fill[n] = rect.attr.fill
      end
    end
    assert.equal(4, n)
    assert.equal(fill[1], fill[2])
    assert.are_not.equal(fill[1], fill[3])
    assert.equal("#ffffff", fill[4])
    t = s.fixture("host-4xh100-two-in-mig.yaml")
    e = read(svg.draw(t, { placement = { { rank = 0, stage = 0, uid = t:ids({ kind = "mig" })[1] } } }))
    assert.matches("MIG x 2", e.texts)
    assert.matches("rank 0 stage 0", e.texts)
  end)

  it("escapes what inputs hold: markup, control characters, bytes that are not UTF-8", function()
    local nasty = '<b a="1">&\'\1\27[0m\255\240\144\128 ]]> --> \237\160\128 %s%d \195\164'
    local t = assert(topo.from_record { hosts = { { id = nasty, cpu = { model = nasty } } }, nics = { { name = nasty, numa = 0, host = nasty } },
      devices = { { host = nasty, name = nasty, numa = 0, uid = nasty, pci = nasty },
        { host = nasty, uid = "b", usable = false, why_not = { { code = nasty, message = nasty } } } },
      links = { { a = nasty, b = "b", kind = "pix" } }, networks = { { hosts = { nasty }, kind = nasty } } })
    local picture = svg.draw(t, { title = nasty, placement = { { rank = 0, stage = 0, uid = nasty } } })
    local e = read(picture)
    assert.matches("<b a=", e.texts, 1, true)
    assert.equal("&lt;a&gt; &amp; &quot;&#39; ?? \195\164", svg.escape("<a> & \"' \1\255 \195\164"))
  end)

  it("reads well-formed for every fixture, empty machines and clusters too", function()
    for _, name in ipairs(sys.list("spec/fixtures/topologies")) do
      local t = topo.read("spec/fixtures/topologies/" .. name)
      if t then
        local picture = svg.draw(t)
        read(picture)
        assert.is_true(#picture < 2 ^ 20)
      end
    end
    read(svg.draw(assert(topo.from_record {})))
  end)
end)
