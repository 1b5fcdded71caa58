-- SPDX-License-Identifier: Apache-2.0
-- Whatever a policy returns, it is accepted or refused with a rule: random tables with the words of a placement, and damaged good ones.
local check = require("tpl.policy.check")
local guard = require("tpl.policy.guard")
local machines = require("policy.machines")
local random = require("tpl.fuzz.draw").random
local util = require("tpl.util")

describe("tpl.policy.check on garbage", function()
  local topo = machines.machine { machines.gpu(0), machines.gpu(1), machines.gpu(2) }
  local model = machines.model(4)
  local words = { "replicas", "stages", "devices", "layers", "mesh", "layout", "shares", "reasons", "excluded", "alternatives", "uid", "why", "name", "score", "tp" }

  local function value(r, depth)
    local kind = r:below(depth > 0 and 14 or 9)
    if kind < 9 then
      return ({ 0, 1, -1, 0.5, 0 / 0, math.huge, "GPU" .. r:below(4), true, function() end })[kind + 1]
    end
    local t = {}
    for i = 1, r:below(4) do t[r:chance(60) and i or r:pick(words)] = value(r, depth - 1) end
    if r:chance(3) then t[t] = t end
    if r:chance(3) then t[true] = 1 end
    return t
  end

  local function damage(r, t)
    local keys, inner = util.keys(t), {}
    for _, k in ipairs(keys) do if type(t[k]) == "table" then inner[#inner + 1] = t[k] end end
    if #inner > 0 and r:chance(75) then return damage(r, r:pick(inner)) end
    local v = r:chance(50) and value(r, 2) or nil
    local key = #keys > 0 and r:pick(keys)
    if key and r:chance(40) and type(t[key]) ~= "table" then -- another value of the same type
      t[key] = type(t[key]) == "string" and "GPU" .. r:below(5) or r:below(5)
    elseif key and r:chance(70) then t[key] = v else t[r:pick(words)] = v end
  end

  local good = { replicas = { { stages = { { devices = { "GPU0", "GPU1" }, layers = { 0, 1 }, mesh = "tp=2", shares = { 2, 1 } },
    { devices = { "GPU2" }, layers = { 2, 3 }, layout = "megatron" } } } }, reasons = { "a" }, excluded = {}, alternatives = { { name = "x", score = 1 } } }

  it("never fails in another way", function()
    local rules, accepted = {}, 0
    for n = 1, 6000 do
      local r = random(11, n)
      local placement
      if n % 3 == 0 then placement = { replicas = value(r, 4) }
      else
        placement = guard.copy(good)
        for _ = 1, 1 + r:below(3) do damage(r, placement) end
      end
      local ok, e = check.check(placement, topo, model)
      if ok then accepted = accepted + 1
      else
        assert.equal("policy_error", e.code, e.traceback or tostring(e))
        assert.is_string(check.rules[e.rule], tostring(e))
        rules[e.rule] = (rules[e.rule] or 0) + 1
      end
    end
    assert.is_true(accepted > 100) -- damage that changes nothing, such as reasons that are gone
    for _, rule in ipairs { "wrong_type", "unknown_field", "not_finite", "empty", "unknown_device", "device_twice", "bad_layers", "bad_mesh", "bad_shares" } do
      assert.is_true((rules[rule] or 0) > 2, rule .. " " .. (rules[rule] or 0))
    end
  end)
end)
