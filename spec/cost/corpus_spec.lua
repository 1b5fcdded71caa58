-- SPDX-License-Identifier: Apache-2.0
--- The cost model on the machines that people really paste (../shared/data/topologies): it prices every one, and no pair or four of
--- devices is cheaper than the ones that the ranking of tpl.topo puts first. Names are assumed where a file has none.
local configs = require("spec.support.configs")
local cost = require("tpl.cost")
local models = require("spec.support.models")
local read_file = require("spec.support.files").read
local topo = require("tpl.topo")

local folder = models.shared() .. "/data/topologies/"

local function usable_gpus(t)
  local out = {}
  for _, uid in ipairs(t:ids { usable = true, kind = "gpu" }) do out[#out + 1] = uid end
  return out
end

local function all_reduce(t, group, bytes) return cost.collective("all_reduce", cost.group(t, group), bytes) end

-- Calls f with every group of n of a list.
local function each_group(list, n, f, from, chosen)
  chosen = chosen or {}
  if #chosen == n then return f(chosen) end
  for i = from or 1, #list do
    chosen[#chosen + 1] = list[i]
    each_group(list, n, f, i + 1, chosen)
    chosen[#chosen] = nil
  end
end

describe("tpl.cost on the corpus", function()
  if not read_file(folder .. "INDEX.md") then
    pending(folder .. " is not there (TPL_SHARED names the shared folder)")
    return
  end
  local n, list = 0, assert(io.popen("ls '" .. folder .. "'"))
  for name in list:lines() do
    local t = not name:find("^INDEX") and topo.read({ folder .. name })
    local gpus = t and usable_gpus(t) or {}
    if #gpus > 0 then
      n = n + 1
      it("prices " .. name, function()
        for _, d in ipairs(t.devices) do d.name = d.name or "NVIDIA H100 80GB HBM3" end
        local e = assert(cost.estimate(t, configs.shape("llama-3.1-8b"), { stages = { { devices = { unpack(gpus, 1, 2) } } } }, {}))
        assert.is_true(e.itl_us > 0 and e.itl_us < 1e7 and e.kv_tokens >= 0)
        for size, key in pairs { [2] = "tp2", [4] = "tp4" } do
          local first = t.suggest[key] and t.suggest[key][1]
          if first and #gpus <= 16 then
            for _, bytes in ipairs { 16384, 262144, 8388608 } do
              local us = all_reduce(t, first, bytes)
              each_group(gpus, size, function(group)
                assert.is_true(us <= all_reduce(t, group, bytes) * (1 + 1e-9),
                  ("%s: %.2f us, %s: %.2f us"):format(table.concat(first, " "), us, table.concat(group, " "), all_reduce(t, group, bytes)))
              end)
            end
          end
        end
      end)
    end
  end
  list:close()
  it("are more than sixty", function() assert.is_true(n > 60, tostring(n)) end)
end)
