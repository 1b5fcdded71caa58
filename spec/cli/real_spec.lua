-- SPDX-License-Identifier: Apache-2.0
-- The command line with the real planner and engine on tiny models. Expected values: logits and greedy ids of
-- ../shared/fixtures/models (transformers, float32); tolerance 1e-4 as its README states.
local ffi = require("ffi")
local helper = require("cli.helper")
local json = require("tpl.json")
local main = require("tpl.cli.main")
local npy = require("tpl.npy")
local out = require("tpl.cli.out")

local function run(argv)
  local text, log = "", ""
  local writer = out.new { stdout = function(s) text = text .. s end, stderr = function(s) log = log .. s end, is_tty = false, stdout_tty = false }
  local code = main.main(argv, { out = writer, stdin_tty = false })
  local lines = {}
  for line in text:gmatch("[^\n]+") do lines[#lines + 1] = json.decode(line) or line end
  return code, lines, log, text
end

describe("the command line on a real model", function()
  local folder
  setup(function() folder = helper.folder() end)
  teardown(function() helper.remove(folder) end)

  local function prompts(model)
    local expected = json.decode(helper.read(model .. "/expected.json"))
    local text = ""
    for i, p in ipairs(expected.prompts) do text = text .. json.encode { id = "p" .. i - 1, ids = p.ids, max_tokens = 4, ignore_eos = true } .. "\n" end
    return expected, helper.write(folder .. "/in.jsonl", text)
  end

  for _, name in ipairs { "llama-9x3", "llama-gguf-q4_0" } do
    it("gives the reference logits of " .. name .. " over 3 ranks", function()
      local model = helper.model(name)
      if not model then return pending("no ../shared") end
      local expected, rows = prompts(model)
      local code, lines, log = run { "logits", model, "act=f32", "tp=3", "want.context=128", "want.concurrency=4", "--together", "--in", rows, "--out", folder }
      assert.equal(0, code, log)
      for i, p in ipairs(expected.prompts) do
        local data, dims = npy.read(lines[i].file)
        assert.same({ p.shape[1], p.shape[2] }, dims)
        local want, worst = helper.read(model .. "/" .. p.logits), 0
        local reference = ffi.new("float[?]", #want / 4)
        ffi.copy(reference, want, #want)
        for k = 0, #want / 4 - 1 do worst = math.max(worst, math.abs(reference[k] - data[k])) end
        assert.is_true(worst <= 1e-4, worst)
      end
    end)
  end

  it("generates the reference's greedy ids for all rows together", function()
    local model = helper.model("llama-gqa-untied")
    if not model then return pending("no ../shared") end
    local expected, rows = prompts(model)
    local code, lines, log = run { "generate", model, "act=f32", "tp=2", "want.context=128", "want.concurrency=4", "--in", rows }
    assert.equal(0, code, log)
    for i, p in ipairs(expected.prompts) do
      for k = 1, 4 do assert.equal(p.greedy[k], lines[i].ids[k]) end
    end
  end)

  it("plans a folder with config.json alone, and refuses to run it with exit 6", function()
    local model = helper.model("llama-9x3")
    if not model then return pending("no ../shared") end
    helper.write(folder .. "/bare/config.json", helper.read(model .. "/config.json"))
    local code, lines = run { "plan", folder .. "/bare", "tp=3", "--json" }
    assert.equal(0, code)
    assert.equal(3, #lines[1].result.ranks)
    assert.equal("no_weights", lines[1].warnings[1].code)
    helper.write(folder .. "/one.jsonl", '{"ids":[1]}\n')
    code, lines = run { "generate", folder .. "/bare", "--in", folder .. "/one.jsonl" }
    assert.equal(6, code)
    assert.is_false(lines[1].ok)
  end)

  it("says what an uneven cut can reach at most", function()
    -- SmolLM2 over two ranks: rank 0 has 2 of the 3 KV groups. Bytes per element: q4_1 20/32, the tied embedding q8_0 34/32.
    -- Per layer 2 * 576^2 + 2 * 576 * 192 = 884736 elements of attention and 3 * 576 * 1536 = 2654208 of the MLP; norms are small.
    local function bytes(groups) return 30 * (884736 * groups / 3 + 2654208 / 2) * 20 / 32 + 49152 * 576 / 2 * 34 / 32 end
    local code, lines, log = run { "plan", "smollm2", "tp=2", "--json" }
    if code ~= 0 then return pending("no quickstart model: " .. log) end
    assert.near((bytes(2) + bytes(1)) / (2 * bytes(2)), lines[1].result.stages[1].balance, 1e-3)
    local _, _, _, text = run { "plan", "smollm2", "tp=2" }
    assert.matches("balance stage 0: at most 0%.946 of an even cut's speed", text)
  end)

  it("refuses an unknown layout and an impossible degree with exit 3", function()
    local model = helper.model("llama-9x3")
    if not model then return pending("no ../shared") end
    assert.equal(3, (run { "plan", model, "layout=nothing" }))
    assert.equal(3, (run { "plan", model, "tp=11" }))
  end)

  it("verifies a layout", function()
    local model = helper.model("llama-9x3")
    if not model then return pending("no ../shared") end
    local code, lines, log = run { "verify", model, "tp=3", "--json" }
    assert.equal(0, code, log)
    assert.is_true(lines[1].result.passed)
  end)
end)
