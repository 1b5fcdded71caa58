-- SPDX-License-Identifier: Apache-2.0
--- `repeat` on hosts: counts and names by hand from the record.
local err = require("tpl.err")
local expand = require("tpl.topo.expand").expand
local record = require("tpl.topo.import.record")
local s = require("spec.topo.import.xml_support")

describe("tpl.topo.expand", function()
  it("makes N hosts of one, with devices, links, NICs and networks", function()
    local before = record.read(s.fixture("cluster-repeat.yaml"), "c.yaml")
    local from = os.clock()
    local r = expand(before)
    assert.is_true(os.clock() - from < 1)
    assert.equal(129, #r.hosts)
    assert.equal("node.127", r.hosts[128].id)
    assert.is_nil(r.hosts[1]["repeat"])
    assert.equal("head", r.hosts[129].id)
    assert.equal(128 * 8 + 1, #r.devices)
    assert.equal("node.0/GPU0", r.devices[1].uid)
    assert.equal("node.0/GPU7", r.devices[8].uid)
    assert.equal("node.1/GPU0", r.devices[9].uid)
    assert.equal("node.1", r.devices[9].host)
    assert.equal(0, r.devices[9].index)
    assert.is_nil(r.devices[9].uuid)
    assert.equal("cpu0", r.devices[1025].uid)
    assert.equal(128 * 28, #r.links)
    assert.equal(129, #r.networks[1].hosts)
    assert.equal(128, #r.nics)
    assert.same({ ["node.5/GPU0"] = "pix", ["node.5/GPU1"] = "node" }, r.nics[6].to)
    assert.same({ "node.5/GPU0" }, r.nics[6].near)
    assert.equal(9, #before.devices) -- the record itself stays
    assert.equal("GPU0", before.devices[1].uid)
    local uids = {}
    for _, d in ipairs(r.devices) do
      assert.is_nil(uids[d.uid])
      uids[d.uid] = true
    end
    for _, l in ipairs(r.links) do assert.is_true(uids[l.a] and uids[l.b] and l.a:match("^[^/]+") == l.b:match("^[^/]+")) end
  end)
  it("leaves a record without repeat as it is", function()
    local r = record.read(s.fixture("mixed-memory.yaml"), "m.yaml")
    assert.equal(r, expand(r))
  end)
  it("refuses what has no meaning or no end", function()
    local function refused(text)
      local _, e = err.try(expand, record.read(text, "x.yaml"))
      return e and e.message
    end
    assert.matches("which copy", refused("hosts: [{id: a, repeat: 2}, {id: b}]\ndevices: [{uid: x, host: a}, {uid: y, host: b}]\nlinks: [{a: x, b: y, kind: net}]"))
    assert.matches("more than 16384 hosts", refused("hosts: [{id: a, repeat: 16385}]"))
    local many = { "hosts: [{id: a, repeat: 16384}]\ndevices:\n" }
    for i = 1, 8 do many[#many + 1] = "- {uid: d" .. i .. "}\n" end
    assert.matches("at most 65536", refused(table.concat(many)))
  end)
end)
