-- SPDX-License-Identifier: Apache-2.0
--- The layout fuzz can fail: with a hole in the planner, or a fault below typing, it finds a counterexample; and it makes one smaller.
--- Holes are made by replacing a function or a rule from here; nothing that users meet switches them.
local draw = require "tpl.fuzz.draw"
local fuzz = require "tpl.fuzz.run"
local rules = require "tpl.plan.rules"
local util = require "tpl.util"

local NOTHING = {} -- stands for nil in a table of fields
local SEED = 5

-- f() while `fields` of `t` are replaced.
local function with_hole(t, fields, f)
  local old = {}
  local function put(values)
    for k, v in pairs(values) do if v == NOTHING then t[k] = nil else t[k] = v end end
  end
  for k in pairs(fields) do old[k] = t[k] == nil and NOTHING or t[k] end
  put(fields)
  local ok, r = pcall(f)
  put(old)
  assert(ok, r)
  return r
end

-- From the first draw on, until one is wrong.
local function search() return fuzz.run { draws = 3000, seed = SEED, stop = true, seconds = 60 } end

-- Draws that the planner as it is accepts, by the rules and reshards that they use: where a fault in one of these must show.
local users

local function find_users()
  if users then return users end
  users = {}
  local function note(name, number)
    users[name] = users[name] or {}
    table.insert(users[name], number)
  end
  fuzz.run { draws = 900, seed = SEED, on_accepted = function(case, outcome)
    for key in pairs(outcome.graph.hits) do note(key, case.number) end
    for _, op in ipairs(outcome.graph.ops) do note(op.attrs.op == "lse" and op.kind .. "(lse)" or op.kind, case.number) end
  end }
  return users
end

-- How many of the draws that use `name` it takes until one is wrong; nil when none is.
local function tries(name)
  for i, number in ipairs(find_users()[name] or {}) do
    if fuzz.try(draw.case(SEED, number)).how == "wrong" then return i end
  end
end

describe("layout fuzz, with a hole in the planner,", function()
  it("finds a counterexample within 60 s when any axis of a dim may change alone", function()
    local r = with_hole(require "tpl.plan.reshard", { check_inner = function() end }, search)
    print(("found in draw %d after %.1f s: %s\n%s"):format(r.draws, r.seconds, r.failures[1] and r.failures[1].why or "nothing", r.failures[1] and r.failures[1].case or ""))
    assert.equal(1, r.wrong)
    assert.is_true(r.seconds < 60)
  end)

  it("finds every rule that gives another placement than it should", function()
    find_users() -- of the planner as it is
    local missed, most, n = {}, 0, 0
    for op, t in util.pairs(rules) do
      for key, row in util.pairs(type(t) == "table" and not op:find("^mark") and rawget(t, "rows") or {}) do
        local out = row.out == "R" and "P" or "R"
        if op ~= "rope" or out ~= "P" then -- attend refuses partial queries, so a rope that gives them is never accepted
          local i = with_hole(row, { out = out }, function() -- those draws may be refused now: then others must show it
            return tries(op .. ": " .. key) or search().wrong == 1 and 0 or nil
          end)
          n, most = n + 1, math.max(most, i or 0)
          if not i then missed[#missed + 1] = op .. ": " .. key .. " -> " .. out end
        end
      end
    end
    print(("%d rules changed, each found within %d draws that use it"):format(n, most))
    assert.is_true(n >= 40)
    assert.same({}, missed)
  end)

  it("finds every kind of reshard that is believed but not done", function()
    find_users()
    local reshard = require "tpl.plan.reshard"
    local to = reshard.to
    for _, name in ipairs { "slice", "all_gather", "all_to_all", "all_reduce", "reduce_scatter", "all_reduce(lse)", "reduce_scatter(lse)" } do
      local kind, is_lse = name:match("^[%l_]+"), name:find("lse", 1, true)
      local function lazy_to(st, x, ...)
        local first = #st.graph.ops + 1
        local y = to(st, x, ...)
        for i = first, #st.graph.ops do
          local op = st.graph.ops[i]
          if op.kind == kind and (not is_lse or op.attrs.op == "lse") then y.value = x.value end
        end
        return y
      end
      assert.is_number(with_hole(reshard, { to = lazy_to }, function() return tries(name) end), name)
    end
  end)

  it("finds rules that are too generous", function()
    local function row(key, out) return { [key] = { key = key, out = out } } end
    for _, hole in ipairs { { "silu_mul", row("P,P", "P") }, { "attend", row("S(tok),S(tok),S(tok)", "S(tok)") },
      { "attend", row("S(hd),S(hd),S(hd)", "S(hd)") }, { "add", row("P,R", "P") } } do
      local r = with_hole(rules[hole[1]].rows, hole[2], search)
      assert.equal(1, r.wrong, hole[1] .. " " .. next(hole[2]))
    end
  end)

  it("finds operands that a rule forgets to cut", function() -- in the program: a typed operand that is not cut does no harm, and stats has no kernel
    for op, t in util.pairs(rules) do
      for key, row in util.pairs(type(t) == "table" and rawget(t, "rows") or {}) do
        if row.cut and row.when ~= "stats" then
          assert.is_number(with_hole(row, { cut = NOTHING }, function() return tries(op .. ": " .. key) end), op .. ": " .. key)
        end
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
      local r = with_hole(module, { [h[3]] = h[4](module[h[3]]) }, search)
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
