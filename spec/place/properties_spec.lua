-- SPDX-License-Identifier: Apache-2.0
--- The built-in policies keep what `tpl test-policy` asks of any policy, on drawn machines. A few draws each: more come with
--- `tpl test-policy NAME --random 2000`.
local policy = require("tpl.policy")
local test = require("tpl.policy.test")
local tree = require("spec.support.tree")

local DRAWS, SEED = 15, 1

-- What a policy breaks by its heuristic, and why.
local on_purpose = {
  spare_pairs = { unchosen_free = "a device whose NVLink partner is gone is given away first", worse_link = "so is one whose NVLink is gone" },
}

describe("the built-in policy", function()
  for _, path in ipairs(tree.files({ "policies" }, { "%.lua$" })) do
    local name = path:match("([^/]+)%.lua$")
    it(name .. " keeps the properties of test-policy", function()
      local report = test.run(assert(policy.load(name)), { random = DRAWS, seed = SEED })
      local broken = {}
      for _, f in ipairs(report.failures) do
        local property = f.failure.property
        if not (on_purpose[name] or {})[property] then broken[#broken + 1] = property .. ": " .. f.failure.message end
      end
      assert.same({}, broken)
      assert.is_true(report.placed > 0)
    end)
  end
end)
