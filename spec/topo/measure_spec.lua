-- SPDX-License-Identifier: Apache-2.0
--- Measured links: figures are only checked for being plausible, the data behind them for being right.
local comm = require("tpl.core").comm
local cores = require("tpl.core").sys.cpu_list()
local measure = require("tpl.topo.measure")

local a, b = cores[1], cores[2] or cores[1]
local QUICK = { bytes = 2 ^ 20, iters = 50 }

-- A machine of two nodes, as far as cores go; their memory is wherever this machine has it.
local function record()
  return { hosts = { { id = "host0" } }, doubts = {}, links = { { a = "cpu0", b = "cpu1", kind = "sys", source = "assumed" } },
    devices = { { uid = "cpu0", kind = "cpu", host = "host0", cpus = tostring(a) }, { uid = "cpu1", kind = "cpu", host = "host0", cpus = tostring(b) } } }
end

describe("tpl.core.comm.time_pair", function()
  it("copies from one core to another and checks what arrived", function()
    local t = assert(comm.time_pair { a = { cpus = tostring(a) }, b = { cpus = tostring(b), numa = 0 }, bytes = 2 ^ 20, iters = 50 })
    assert.is_true(t.data_ok)
    assert.is_true(t.gb_s > 0.01 and t.gb_s < 10000, tostring(t.gb_s))
    assert.is_true(t.us > 0 and t.us < 1e5, tostring(t.us))
    assert.equal(1, t.threads)
  end)

  it("finds data that was damaged in any batch", function()
    for batch = 1, 7, 3 do
      assert.is_false(comm.time_pair({ a = { cpus = tostring(a) }, b = { cpus = tostring(b) }, bytes = 65536, iters = 1, spoil = batch }).data_ok)
    end
  end)

  it("refuses cores it may not use, and sizes it cannot", function()
    local value, message, code = comm.time_pair { a = { cpus = tostring(a) }, b = { cpus = "65535" }, bytes = 65536 }
    assert.same({ nil, "arg" }, { value, code })
    assert.matches("may not run", message)
    assert.is_nil((comm.time_pair { a = { cpus = "0" }, b = { cpus = "0" }, bytes = 1 }))
    assert.has_error(function() comm.time_pair { a = { cpus = "x" }, b = { cpus = "0" } } end)
    assert.has_error(function() comm.time_pair { a = { cpus = "0", node = 1 }, b = { cpus = "0" } } end)
  end)
end)

describe("tpl.topo.measure", function()
  it("fills the link of each pair of CPU devices, both ways", function()
    local r = record()
    assert.equal(1, measure.record(r, QUICK))
    local l = r.links[1]
    assert.same({ "measured", true, "sys" }, { l.source, l.data_ok, l.kind })
    for _, field in ipairs { "gb_s", "gb_s_ba", "us", "us_ba" } do assert.is_true(l[field] > 0, field) end
    assert.same({}, r.doubts)
    assert.equal(1, #r.links)
  end)

  it("turns the figures where the link is listed the other way round", function()
    local before, calls = measure.kinds.cpu, {}
    measure.kinds.cpu = function(x, y)
      calls[#calls + 1] = x.uid .. y.uid
      return { gb_s = x.uid == "cpu0" and 10 or 20, us = x.uid == "cpu0" and 1 or 2, data_ok = true }
    end
    local r = record()
    r.links[1].a, r.links[1].b = "cpu1", "cpu0"
    measure.record(r, QUICK)
    measure.kinds.cpu = before
    assert.same({ "cpu0cpu1", "cpu1cpu0" }, calls)
    local l = r.links[1]
    assert.same({ 20, 10, 2, 1 }, { l.gb_s, l.gb_s_ba, l.us, l.us_ba })
  end)

  it("says plainly that one node has no pair to measure", function()
    local r = record()
    r.devices[2], r.links = nil, {}
    assert.equal(0, measure.record(r, QUICK))
    assert.equal("nothing_to_measure", r.doubts[1].code)
    assert.same({}, r.links)
  end)

  it("leaves GPU pairs as they are, with one doubt", function()
    local r = record()
    for i = 1, 3 do r.devices[2 + i] = { uid = "GPU" .. i, kind = "gpu", host = "host0" } end
    r.links[2] = { a = "GPU1", b = "GPU2", kind = "nvlink", source = "stated" }
    assert.equal(1, measure.record(r, QUICK))
    assert.equal(1, #r.doubts)
    assert.equal("not_measured", r.doubts[1].code)
    assert.equal("stated", r.links[2].source)
    local _, e = measure.pair("gpu", r.devices[3], r.devices[4])
    assert.equal("unsupported", e.code)
  end)

  it("notes wrong data as a doubt and in the link", function()
    local before = measure.kinds.cpu
    measure.kinds.cpu = function(x, y)
      return comm.time_pair { a = { cpus = x.cpus }, b = { cpus = y.cpus }, bytes = 65536, iters = 1, spoil = x.uid == "cpu1" and 2 or 0 }
    end
    local r = record()
    measure.record(r)
    measure.kinds.cpu = before
    assert.is_false(r.links[1].data_ok)
    assert.equal("data_wrong", r.doubts[1].code)
  end)

  it("passes over devices that cannot be used", function()
    local r = record()
    r.devices[2].usable = false
    assert.equal(0, measure.record(r, QUICK))
    assert.equal("assumed", r.links[1].source)
  end)

  it("is reached through the probe, but not for a recorded tree", function()
    local got = require("tpl.topo.probe").read { measure = true }
    assert.is_table(got.devices)
    local ok, e = pcall(require("tpl.topo.probe").read, { root = "/nowhere", measure = true })
    assert.same({ false, "usage" }, { ok, e.code })
  end)
end)
