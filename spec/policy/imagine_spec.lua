-- SPDX-License-Identifier: Apache-2.0
-- Expected values: the kinds of machine that facts/topology.md and data/topologies/INDEX.md describe; DGX-1's mesh as in their file 28.
local guard = require("tpl.policy.guard")
local imagine = require("tpl.policy.imagine")
local models = require("tpl.policy.models")
local permute = require("tpl.policy.permute")
local topo = require("tpl.topo")
local util = require("tpl.util")

local function machine_with(...)
  for n = 1, 5000 do
    local case = imagine.draw(1, n)
    local has_all = true
    for _, kind in ipairs { ... } do has_all = has_all and util.has(case.kinds, kind) end
    if has_all then return case end
  end
end

local function finish(record) return assert(topo.from_record(guard.copy(record))) end

describe("tpl.policy.imagine", function()
  it("draws every kind within 2,000 machines, and each is a record that topo takes", function()
    local census = imagine.census()
    for n = 1, 2000 do
      local case = imagine.draw(3, n)
      for _, kind in ipairs(case.kinds) do census[kind] = census[kind] + 1 end
      if n % 20 == 0 then finish(case.record) end
    end
    for kind, count in pairs(census) do assert.is_true(count >= 10, kind .. " " .. count) end
  end)

  it("draws the same machine for a seed and number, whatever was drawn before", function()
    local a = imagine.draw(5, 17)
    for n = 1, 5 do imagine.draw(6, n) end
    assert.same(a, imagine.draw(5, 17))
    assert.is_false(util.same(a.record, imagine.draw(5, 18).record))
  end)

  it("wires a cube mesh as a DGX-1: 16 pairs, six links on each card", function()
    local case = machine_with("cube_mesh")
    local of, n_pairs = {}, 0
    for _, l in ipairs(case.record.links) do
      local a, b = l.a, l.b
      if l.kind == "nvlink" then
        n_pairs = n_pairs + 1
        of[a], of[b] = (of[a] or 0) + l.nvlinks, (of[b] or 0) + l.nvlinks
      end
    end
    assert.equal(16 * #case.record.hosts, n_pairs)
    for uid, n in pairs(of) do assert.equal(6, n, uid) end
  end)

  it("keeps the links of a switch, slices below their parents, and unknown facts unknown", function()
    local t = finish(machine_with("nvswitch").record)
    assert.is_true(t.islands[1].full)
    local mig = machine_with("mig").record
    for _, d in ipairs(mig.devices) do
      if d.kind == "mig" then
        local by = {}
        for _, x in ipairs(mig.devices) do by[x.uid] = x end
        assert.equal("on", by[d.mig.parent].mig.mode)
      end
    end
    for _, l in ipairs(machine_with("unknown_p2p").record.links) do if l.p2p == nil then return end end
    error("every P2P status is known")
  end)
end)

describe("tpl.policy.models", function()
  it("grow, and have the fields of a Shape", function()
    local last = 0
    for _, name in ipairs(models.names) do
      local m = models.get(name)
      assert.is_true(m.weight_bytes > last, name)
      assert.equal(m.n_layer, #m.layers)
      last = m.weight_bytes
    end
    -- 2 bytes x (80 x (2 x 8192^2 + 2 x 8192 x 1024 + 3 x 8192 x 28672 + 2 x 8192) + 2 x 128256 x 8192 + 8192), by hand
    assert.equal(141107412992, models.get("70b").weight_bytes)
  end)
end)

describe("tpl.policy.permute", function()
  local function reverse(n)
    local list = {}
    for i = 1, n do list[i] = n + 1 - i end
    return list
  end

  -- What joins two devices, by UUID: kind, NVLinks and PCIe word.
  local function by_uuid(record)
    local t, out = finish(record), {}
    for _, a in ipairs(t.devices) do
      for _, b in ipairs(t.devices) do
        local l = a ~= b and a.host == b.host and t:link(a.uid, b.uid)
        if l then out[a.uuid .. " " .. b.uuid] = { l.kind, l.nvlinks or 0, l.pcie } end
      end
    end
    return out
  end

  it("gives other indices and names to the same machine", function()
    for n = 1, 60 do
      local record = imagine.draw(2, n).record
      local before = guard.copy(record)
      local other = permute.indices(record, reverse)
      assert.same(before, record)
      if record.devices[1].kind == "gpu" then assert.same(by_uuid(record), by_uuid(other)) end
      local at = {}
      for i, d in ipairs(other.devices) do at[d.uid] = i end
      for _, l in ipairs(other.links) do assert.is_true(at[l.a] < at[l.b]) end
    end
  end)

  it("takes a device with its slices, and every mention of it", function()
    local record = machine_with("mig").record
    for _, d in ipairs(record.devices) do
      if d.kind == "mig" then
        local other = permute.without(record, { [d.mig.parent] = true })
        for _, x in ipairs(other.devices) do assert.is_true(x.uid ~= d.mig.parent and (x.mig or {}).parent ~= d.mig.parent) end
        for _, l in ipairs(other.links) do assert.is_true(l.a ~= d.mig.parent and l.b ~= d.mig.parent) end
        for _, nic in ipairs(other.nics) do assert.is_nil(nic.to[d.mig.parent]) end
        return
      end
    end
  end)
end)
