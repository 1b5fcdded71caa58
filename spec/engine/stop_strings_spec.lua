-- SPDX-License-Identifier: Apache-2.0
--- Stop strings over tokens whose text is given here; no model runs. Expected values: by hand, what a reader of the joined text
--- sees before the first stop string.
local generation = require("tpl.generation")

-- An engine whose only request yields these pieces of text, one per token.
local function engine_of(pieces)
  local fake = { plan = { config = {} }, vocab = #pieces + 1, context = 100, kv_tokens = 100, cancelled = 0 }
  function fake.submit() return 1 end
  function fake.cancel(self) self.cancelled = self.cancelled + 1 end
  function fake.drain(_, on)
    for i in ipairs(pieces) do on { handle = 1, token = i, time_us = i } end
    on { handle = 1, finish = "length" }
  end
  fake.tokenizer = {
    stream = function()
      return { push = function(_, id) return pieces[id] end, flush = function() return "" end }
    end,
  }
  return fake
end

local function run(pieces, stop)
  local shown, engine = {}, engine_of(pieces)
  local results = generation.run(engine, { rows = { { prompt_ids = { 1 }, max_tokens = 50, stop = stop } }, tokenizer = engine.tokenizer,
    on_token = function(_, t) shown[#shown + 1] = t.text end })
  return results[1], shown, engine
end

describe("stop strings", function()
  it("end the text before them, within one token", function()
    local r, shown, engine = run({ "he", "llo wo", "rld" }, "o w")
    assert.equal("hell", r.text)
    assert.equal("stop", r.finish)
    assert.same({ "he", "ll" }, shown)
    assert.equal(1, engine.cancelled)
  end)
  it("are found across tokens, and none of them is shown", function()
    local r, shown = run({ "ab", "cS", "TO", "Pxyz", "more" }, { "STOP" })
    assert.equal("abc", r.text)
    assert.same({ "ab", "c", "", "" }, shown)
  end)
  it("that only began are shown once it is clear", function()
    local r, shown = run({ "abST", "Azz", "ST" }, { "STOP" })
    assert.equal("abSTAzzST", r.text)
    assert.equal("length", r.finish)
    assert.same({ "ab", "STAzz", "", "ST" }, shown)
  end)
  it("that begin again inside a false start are found", function()
    assert.equal("a", run({ "aa", "a", "b" }, { "aab" }).text)
    assert.equal("STO", run({ "STO", "ST", "OP" }, { "STOP" }).text)
  end)
  it("that come first win, whatever their order in the list", function()
    assert.equal("x", run({ "x1y2z" }, { "2", "1" }).text)
    assert.equal("x", run({ "x", "ab", "c" }, { "abc", "ab" }).text)
  end)
end)
