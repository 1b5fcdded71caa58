-- SPDX-License-Identifier: Apache-2.0
--- A sample of the layout fuzz through the real engine: files on disk, plan, program text, ranks of threads, a prompt in chunks and decoded
--- tokens. Expected values: one rank, by `tpl verify`.
local deploys = require("tpl.deploy")
local fuzz = require("tpl.fuzz.run")
local draw = require("tpl.fuzz.draw")
local small_models = require("spec.support.small_models")
local tmpdir = require("spec.support.tmpdir")
local verify = require("tpl.verify")

local SEED, WANTED = 11, 80

describe("accepted layouts with kernels for everything", function()
  local dir
  lazy_setup(function() dir = tmpdir.new() end)
  lazy_teardown(function() dir:close() end)

  it("equal one rank in the engine too", function()
    local n, number, compared, kinds = 0, 0, 0, {}
    while n < WANTED do
      number = number + 1
      local case = draw.case(SEED, number)
      local graph = fuzz.type(case)
      local low = graph and fuzz.lower(case, graph)
      local has_batch = false
      for _, a in ipairs(case.axes) do has_batch = has_batch or a[3] ~= nil end
      if low and not has_batch and not case.c.block then
        n = n + 1
        for _, op in ipairs(low.ops) do kinds[op.kind] = (kinds[op.kind] or 0) + 1 end
        local deploy = assert(deploys.open(small_models.write(dir, case)))
        local result, e = verify.verify(deploy, { seed = number, stall_s = 60 }) -- machines of tests are busy
        assert(result, ("draw %d: %s\n%s"):format(number, tostring(e), draw.text(case)))
        local diff = result.passed and {} or result.first_diff
        assert(result.passed, ("draw %d: differs at %s, rank %s\n%s"):format(number, tostring(diff.op), tostring(diff.rank), draw.text(case)))
        compared = compared + result.ops_compared
      end
    end
    print(("seed %d: %d of %d draws ran, %d values compared"):format(SEED, n, number, compared))
    for _, kind in ipairs { "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "gather", "slice", "slice_tok", "bias", "rope", "norm" } do
      assert.is_true((kinds[kind] or 0) > 0, kind)
    end
  end)
end)
