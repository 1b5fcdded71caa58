-- SPDX-License-Identifier: Apache-2.0
--- Where ranks run, by hand on a machine of two nodes.
local places = require("tpl.topo.places")

local function topo(devices)
  local by = {}
  for _, d in ipairs(devices) do by[d.uid] = d end
  return { dev = function(_, uid) return by[uid] end }
end

local two = topo {
  { uid = "cpu0", kind = "cpu", numa = 0, cpus = "0-3,8-11" }, { uid = "cpu1", kind = "cpu", numa = 1, cpus = "4-7" },
  { uid = "A", kind = "gpu", numa = 1, cpus = "4-7" }, { uid = "B", kind = "gpu", numa = 1, cpus = "4-7" }, { uid = "C" },
}

describe("places of ranks", function()
  it("are the cores of the device's node", function()
    assert.same({ { cpus = "0-3,8-11", cores = 8, numa = 0 }, { cpus = "4-7", cores = 4, numa = 1 } }, places.of(two, { "cpu0", "cpu1" }))
  end)

  it("are parts of them where CPU ranks share a device; GPUs of a node share all of it", function()
    assert.same({ { cpus = "0-1", cores = 2, numa = 0 }, { cpus = "2-3,8", cores = 3, numa = 0 }, { cpus = "9-11", cores = 3, numa = 0 } },
      places.of(two, { "cpu0", "cpu0", "cpu0" }))
    assert.same({ "4-7", "4-7" }, { places.of(two, { "A", "B" })[1].cpus, places.of(two, { "A", "B" })[2].cpus })
  end)

  it("are shared where there are fewer cores than ranks", function()
    for _, place in ipairs(places.of(two, { "cpu1", "cpu1", "cpu1", "cpu1", "cpu1" })) do assert.equal("4-7", place.cpus) end
  end)

  it("are unknown where the topology does not tell", function()
    assert.same({ {}, {} }, places.of(two, { "C", "nowhere" }))
  end)

  it("cover all cores once", function()
    for n = 1, 8 do
      local uids, seen = {}, 0
      for i = 1, n do uids[i] = "cpu0" end
      for _, place in ipairs(places.of(two, uids)) do seen = seen + place.cores end
      assert.equal(8, seen)
    end
  end)
end)
