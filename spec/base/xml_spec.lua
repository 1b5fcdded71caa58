-- SPDX-License-Identifier: Apache-2.0
--- XML for Lua: the tree, and a broken text giving both what came before the fault and the error. Refusals are in spec/c/xml_test.c too.
local xml = require("tpl.xml")

describe("tpl.xml.decode", function()
  it("gives elements with attributes, lines, text and children", function()
    local root, e = xml.decode('<a x="1&amp;2">\n  <b/>\n  <!-- <no/> -->\n  <c>one<d/>two</c>\n</a>')
    assert.is_nil(e)
    assert.same({
      tag = "a", line = 1, attr = { x = "1&2" },
      { tag = "b", line = 2, attr = {} },
      { tag = "c", line = 4, attr = {}, text = "onetwo", { tag = "d", line = 4, attr = {} } },
    }, root)
  end)
  it("gives the part before a fault, and the fault", function()
    local root, e = xml.decode("<system>\n<cpu numaid='0'>\n<pci busid='1'/>\n", { where = "t.xml" })
    assert.equal("system", root.tag)
    assert.equal("1", root[1][1].attr.busid)
    assert.equal("format", e.code)
    assert.equal(6, e.exit)
    assert.equal(4, e.line)
    assert.equal("t.xml:4", e.where)
    root, e = xml.decode("\tGPU0\tGPU1\n")
    assert.is_nil(root)
    assert.equal("format", e.code)
  end)
  it("refuses entities, and opens no DTD", function()
    local _, e = xml.decode('<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>')
    assert.matches("entities", e.message)
    assert.is_nil(select(2, xml.decode('<!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology/>')))
  end)
  it("iterates over children of a tag", function()
    local root, seen = xml.decode("<a><b n='1'/><c/><b n='2'/></a>"), {}
    for b in xml.each(root, "b") do seen[#seen + 1] = b.attr.n end
    assert.same({ "1", "2" }, seen)
    for _ in xml.each(root, "none") do error("there is none") end
  end)
  it("survives random damage", function()
    math.randomseed(11)
    local good = '<?xml version="1.0"?><system version="1"><cpu numaid="0"><pci busid="0000:07:00.0"><gpu dev="0">x</gpu></pci></cpu></system>'
    for _ = 1, 2000 do
      local at, n = math.random(#good), math.random(0, 3)
      local text = good:sub(1, at - 1) .. string.char(math.random(0, 255)) .. good:sub(at + n)
      local root, e = xml.decode(text)
      assert.truthy(root or e)
    end
  end)
end)
