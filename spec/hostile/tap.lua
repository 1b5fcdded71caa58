-- SPDX-License-Identifier: Apache-2.0
--- The named hostile files as a program that writes TAP, for a build with sanitizers: build-asan/tpl lua spec/hostile/tap.lua
local cases = require("spec.hostile.cases")

local n, n_bad = 0, 0
for _, c in ipairs(cases.all()) do
  n = n + 1
  local fault = cases.check(c, true)
  if fault then n_bad = n_bad + 1 end
  print(("%s %d - %s"):format(fault and "not ok" or "ok", n, cases.title(c)))
  if fault then print("# " .. fault) end
end
print("1.." .. n)
os.exit(n_bad == 0 and 0 or 1)
