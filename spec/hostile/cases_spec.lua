-- SPDX-License-Identifier: Apache-2.0
--- Every named hostile file (cases.lua). The same under the sanitizers: build-asan/tpl lua spec/hostile/tap.lua.
local cases = require("spec.hostile.cases")

describe("hostile files", function()
  local names, n_rules = {}, {}
  for _, c in ipairs(cases.all()) do
    local title = cases.title(c)
    assert(not names[title], title)
    names[title] = true
    n_rules[c[1]] = (n_rules[c[1]] or 0) + 1
    it(title, function() assert.is_nil(cases.check(c)) end)
  end

  it("cover every rule that a file's bytes can break (A9 and A12: also spec/model/hostile_spec.lua)", function()
    for _, rule in ipairs { "A1", "A2", "A3", "A4", "A5", "A6", "A7", "A8", "A10", "A11", "A12", "B5" } do assert.truthy(n_rules[rule], rule) end
  end)
end)
