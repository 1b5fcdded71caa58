-- SPDX-License-Identifier: Apache-2.0
--- The layout fuzz can fail: with a hole in the planner, or a fault below typing, it finds a counterexample; and it makes one smaller.
--- Holes are made by replacing a function or a rule from here; nothing that users meet switches them.
local draw = require "tpl.fuzz.draw"
local fuzz = require "tpl.fuzz.run"
local rules = require "tpl.plan.rules"
local util = require "tpl.util"

local NOTHING = {} -- stands for nil in a table of fields

-- What the fuzz says while `fields` of `t` are replaced.
local function with_hole(t, fields)
  local old = {}
  local function put(values)
    for k, v in pairs(values) do if v == NOTHING then t[k] = nil else t[k] = v end end
  end
  for k in pairs(fields) do old[k] = t[k] == nil and NOTHING or t[k] end
  put(fields)
  local ok, r = pcall(fuzz.run, { draws = 3000, seed = 5, stop = true, seconds = 60 })
  put(old)
  assert(ok, r)
  return r
end

describe("layout fuzz, with a hole in the planner,", function()
  it("finds a counterexample within 60 s when any axis of a dim may change alone", function()
    local r = with_hole(require "tpl.plan.reshard", { check_inner = function() end })
    print(("found in draw %d after %.1f s: %s\n%s"):format(r.draws, r.seconds, r.failures[1] and r.failures[1].why or "nothing", r.failures[1] and r.failures[1].case or ""))
    assert.equal(1, r.wrong)
    assert.is_true(r.seconds < 60)
  end)

  it("finds every rule that gives another placement than it should", function()
    local missed, most, n = {}, 0, 0
    for op, t in util.pairs(rules) do
      for key, row in util.pairs(type(t) == "table" and not op:find("^mark") and rawget(t, "rows") or {}) do
        local out = row.out == "R" and "P" or "R"
        if op ~= "rope" or out ~= "P" then -- attend refuses partial queries, so a rope that gives them is never accepted
          local r = with_hole(row, { out = out })
          n, most = n + 1, math.max(most, r.draws)
          if r.wrong == 0 then missed[#missed + 1] = op .. ": " .. key .. " -> " .. out end
        end
      end
    end
    print(("%d rules changed, the last found in draw %d"):format(n, most))
    assert.same({}, missed)
  end)

  it("finds every kind of reshard that is believed but not done", function()
    local reshard = require "tpl.plan.reshard"
    local to = reshard.to
    for _, kind in ipairs { "slice", "all_gather", "all_to_all", "all_reduce", "reduce_scatter" } do
      for _, of in ipairs(kind:find("reduce") and { "sum", "lse" } or { "any" }) do
        local r = with_hole(reshard, { to = function(st, x, ...)
          local first = #st.graph.ops + 1
          local y = to(st, x, ...)
          for i = first, #st.graph.ops do
            local op = st.graph.ops[i]
            if op.kind == kind and (of == "any" or op.attrs.op == of) then y.value = x.value end
          end
          return y
        end })
        assert.equal(1, r.wrong, kind .. " of " .. of)
      end
    end
  end)

  it("finds rules that are too generous", function()
    local function row(key, out) return { [key] = { key = key, out = out } } end
    for _, hole in ipairs { { "silu_mul", row("P,P", "P") }, { "attend", row("S(tok),S(tok),S(tok)", "S(tok)") },
      { "attend", row("S(hd),S(hd),S(hd)", "S(hd)") }, { "add", row("P,R", "P") } } do
      local r = with_hole(rules[hole[1]].rows, hole[2])
      assert.equal(1, r.wrong, hole[1] .. " " .. next(hole[2]))
    end
  end)

  it("finds operands that a rule forgets to cut", function() -- in the program: a typed operand that is not cut does no harm, and stats has no kernel
    for op, t in util.pairs(rules) do
      for key, row in util.pairs(type(t) == "table" and rawget(t, "rows") or {}) do
        if row.cut and row.when ~= "stats" then assert.equal(1, with_hole(row, { cut = NOTHING }).wrong, op .. ": " .. key) end
      end
    end
  end)
end)

-- -- Holes below typing -------------------------------------------------------------------------------------

describe("layout fuzz, with a fault below typing,", function()
  local function shifted(list)
    local out = {}
    for i, g in ipairs(list) do out[i] = { g[1], g[2] } end
    return out
  end

  -- {what, module, function, how it goes wrong}
  local holes = {
    { "index lists that are not relative to what a rank holds", "tpl.plan.index_ranges", "localize", function() return function(sub) return shifted(sub) end end },
    { "values that share memory while both are needed", "tpl.plan.memory", "plan", function(plan)
      return function(ops, caps)
        local m = plan(ops, caps)
        for v in pairs(m.offset) do m.offset[v] = 0 end
        return m
      end
    end },
    { "a fused product of gate and up in the wrong order", "tpl.plan.fuse", "run", function(run)
      return function(ops, skip)
        local out = run(ops, skip)
        for _, op in ipairs(out) do if op.kind == "linear" and op.imm[1].i == 1 then op.ws = { op.ws[2], op.ws[1] } end end
        return out
      end
    end },
  }
  for _, h in ipairs(holes) do
    it("finds " .. h[1], function()
      local module = require(h[2])
      local r = with_hole(module, { [h[3]] = h[4](module[h[3]]) })
      assert.equal(1, r.wrong)
      assert.matches("^%l+: op ", r.failures[1].why)
    end)
  end
end)

-- -- The smallest case --------------------------------------------------------------------------------------

describe("a failing draw", function()
  it("is made smaller as long as it fails, and still fails", function()
    local reshard = require "tpl.plan.reshard"
    local check = reshard.check_inner
    reshard.check_inner = function() end
    local found = fuzz.run { draws = 3000, seed = 5, stop = true }
    local whole = draw.case(5, found.failures[1].number)
    local small = require("tpl.fuzz.shrink").smallest(whole, function(c) return fuzz.try(c).how == "wrong" end)
    local again = fuzz.try(small)
    reshard.check_inner = check
    assert.equal("wrong", again.how)
    assert.is_true(#draw.text(small) < #draw.text(whole))
    assert.equal("refused", fuzz.try(small).how) -- the rule is what keeps it out
  end)
end)
