-- SPDX-License-Identifier: Apache-2.0
--- What a plan says of each rank's bytes is what running it allocates: weights, arena and KV cache, on the quickstart's model.
-- Expected values: the engine's own counts of what it mapped (tpl_engine_rank_stats).
local engine = require "tpl.engine"
local make = require "tpl.plan.make"
local models = require "spec.support.models"

local cases = {
  { name = "one rank", words = {} },
  { name = "tp=2 with shares 2,1", words = { tp = "2", shares = "2,1" } },
  { name = "pp=2", words = { pp = "2" } },
  { name = "tp=2 pp=2 in f32", words = { tp = "2", pp = "2", act = "f32" } },
}

describe("the planned bytes of a rank", function()
  for _, case in ipairs(cases) do
    it("are what it allocates with " .. case.name, function()
      local path, missing = models.smollm2()
      if not path then return pending(missing) end
      local words = { ["want.context"] = "512", ["want.concurrency"] = "3" }
      for k, v in pairs(case.words) do words[k] = v end
      local p = assert(make.make(path, {}, words))
      local e = assert(engine.open(p))
      local ranks = e:stats().ranks
      e:close()
      assert.equal(#p.report.ranks, #ranks)
      for i, r in ipairs(ranks) do
        local b = p.report.ranks[i].bytes
        assert.same({ r.weight_bytes, r.arena_bytes, r.kv_bytes }, { b.weights, b.arena, b.kv })
      end
    end)
  end
end)
