-- SPDX-License-Identifier: Apache-2.0
--- The built-in policies keep what `tpl test-policy` asks of any policy, on drawn machines. A few draws each; a
--- slice of spec/run.sh tries more.
local policy = require("tpl.policy")
local test = require("tpl.policy.test")
local tree = require("spec.support.tree")

local DRAWS, SEED = 15, 1

describe("the built-in policy", function()
  for _, path in ipairs(tree.files({ "policies" }, { "%.lua$" })) do
    local name = path:match("([^/]+)%.lua$")
    it(name .. " keeps the properties of test-policy", function()
      local report = test.run(assert(policy.load(name)), { random = DRAWS, seed = SEED })
      local broken = {}
      for _, f in ipairs(report.failures) do broken[#broken + 1] = f.failure.property .. ": " .. f.failure.message end
      assert.same({}, broken)
      assert.is_true(report.placed > 0)
    end)
  end
end)
