-- SPDX-License-Identifier: Apache-2.0
-- Expected values: interface.md section 3 (envelope, exit codes); the counts are those that tpl.fuzz.run gives.
local draw = require("tpl.fuzz.draw")
local fuzz = require("tpl.fuzz.run")
local helper = require("cli.helper")

local run = helper.run

describe("tpl fuzz-layouts", function()
  it("prints counts of every rule and reshard, and one line that repeats the run", function()
    local r = run { "fuzz-layouts", "--draws", "30", "--seed", "4" }
    assert.equal(0, r.code, r.stderr)
    local want = fuzz.run { draws = 30, seed = 4 }
    assert.matches("\nseed 4, 30 draws in [%d.]+ s: " .. want.accepted .. " accepted", r.stdout)
    for name in pairs(want.rules) do assert.truthy(r.stdout:find("  " .. name, 1, true), name) end
    for name in pairs(want.reshards) do assert.truthy(r.stdout:find("  " .. name, 1, true), name) end
  end)

  it("prints one envelope with --json", function()
    local r = run { "fuzz-layouts", "--draws", "5", "--json" }
    assert.equal(0, r.code, r.stderr)
    assert.equal(1, #r.lines)
    local envelope = r.lines[1]
    assert.equal("tpl.fuzz-layouts/1", envelope.schema)
    assert.is_true(envelope.ok)
    assert.same({ 1, 5, 0, 5 }, { envelope.result.seed, envelope.result.draws, envelope.result.wrong,
      envelope.result.accepted + envelope.result.refused })
    assert.same({}, envelope.result.failures)
    assert.is_number(envelope.result.rules["linear: R,R"])
  end)

  it("refuses malformed options with exit 2", function()
    assert.equal(2, run({ "fuzz-layouts", "--draws", "0" }).code)
    assert.equal(2, run({ "fuzz-layouts", "--seed", "x" }).code)
    assert.equal(2, run({ "fuzz-layouts", "word" }).code)
  end)

  it("ends with 5 when an accepted layout differs, and prints it, the smallest that does, and how to draw it again", function()
    local reshard = require("tpl.plan.reshard")
    local check = reshard.check_inner
    reshard.check_inner = function() end
    local found = fuzz.run { seed = 5, stop = true }
    local number = found.failures[1].number
    local argv = { "fuzz-layouts", "--seed", "5", "--first", tostring(number), "--draws", "1" }
    local text, json = run(argv), run { argv[1], argv[2], argv[3], argv[4], argv[5], argv[6], argv[7], "--json" }
    reshard.check_inner = check
    assert.same({ 5, 5 }, { text.code, json.code })
    assert.matches("tpl: draw " .. number .. ": 1 of 1 accepted layouts differ", text.stderr)
    assert.truthy(text.stdout:find("tpl fuzz-layouts --seed 5 --first " .. number .. " --draws 1", 1, true))
    local layout = draw.text(draw.case(5, number)):match("layout: ([^\n]*)")
    assert.truthy(text.stdout:find(layout, 1, true))
    assert.matches("smallest that fails", text.stdout)
    assert.equal("verify", json.lines[1].error.code)
    assert.equal(number, json.lines[1].result.failures[1].number)
  end)
end)
