-- SPDX-License-Identifier: Apache-2.0
--- The whole engine on the model fixtures, for a `tpl` that busted cannot load (another architecture, in an emulator): TAP on standard
--- output. For each fixture the float32 path against its reference, and the fast path (act=auto) against the float32 path.
---   tpl lua spec/aarch64/engine.lua FILE [own]
--- own: only the project's own fixtures. FILE gets a line per fixture and path with the hash of all logits: on the portable instruction
--- set these bits are the same on every architecture, so two such files can be compared.
package.path = "./?.lua;" .. package.path
local ffi = require("ffi")
local core = require("tpl.core")
local models = require("spec.support.models")

local TOLERANCE = 1e-4 -- as in spec/engine/fixtures_spec.lua
-- Fast activations against floats on random models, several times what is seen: q8 rows keep 15 bits, bf16 rows (models of halves) 8.
local FAST_NMSE, BF16_NMSE = 1e-5, 5e-4
local halves = { bf16 = true, ["f16-sharded"] = true }
local STALL_S = 120    -- an emulator on a busy machine stands still for seconds

-- Types of weights that the own fixtures do not have.
local shared = { "llama-gguf-q4_0", "llama-gguf-q5_0", "llama-gguf-q5_1", "llama-gguf-q4_k", "llama-gguf-q5_k", "llama-gguf-q6_k" }

local digests = assert(io.open(arg[1], "w"))
local n_tests = 0

local function test(name, skipped, f)
  n_tests = n_tests + 1
  local ok, message = true, nil
  if not skipped then ok, message = pcall(f) end
  print(("%sok %d - %s%s"):format(ok and "" or "not ", n_tests, name, skipped and " # SKIP " .. skipped or ""))
  if not ok then print("# " .. tostring(message):gsub("\n", "\n# ")) end
  io.stdout:flush()
end

--- Logits and greedy ids of all prompts of a fixture under one activation form; notes the hash.
local function run(fixture, act)
  return models.with(fixture.target, { "act=" .. act }, { stall_s = STALL_S }, function(engine)
    local prompts, out, hashes = {}, { logits = {} }, {}
    for i, p in ipairs(fixture.expected.prompts) do
      prompts[i] = p.ids
      local l = assert(engine:logits(p.ids))
      hashes[i] = core.hash.sha256(ffi.string(l.data, 4 * l.rows * l.vocab))
      out.logits[i] = models.copy_logits(l)
    end
    out.ids = models.greedy(engine, prompts, #fixture.expected.prompts[1].greedy)
    assert(engine:stats().allocs == 0, "memory was allocated in a step")
    digests:write(fixture.name, " ", act, " ", core.hash.sha256(table.concat(hashes)), "\n")
    return out
  end)
end

local function check_ids(fixture, got, tolerance)
  for i, prompt in ipairs(fixture.expected.prompts) do
    for k = 1, models.comparable(prompt, tolerance) do
      local want = prompt.greedy[k]
      assert(got[i][k] == want, ("prompt %d, step %d: %s, expected %d"):format(i - 1, k - 1, tostring(got[i][k]), want))
    end
  end
end

local function check(name, open)
  local fixture, missing = open(name)
  if fixture then missing = nil end
  local floats
  test(name .. " act=f32: the reference's logits and greedy ids", missing, function()
    floats = run(fixture, "f32")
    for i, prompt in ipairs(fixture.expected.prompts) do
      local want, n = fixture:logits(prompt)
      local worst = models.max_abs(floats.logits[i].data, want, n)
      assert(worst <= TOLERANCE, ("%s: largest difference %.3g, tolerance %g"):format(prompt.logits, worst, TOLERANCE))
    end
    check_ids(fixture, floats.ids, TOLERANCE)
  end)
  test(name .. " act=auto: close to act=f32", missing, function()
    local got = run(fixture, "auto")
    local worst = models.worst_nmse(got.logits, floats.logits)
    local tolerance = halves[name] and BF16_NMSE or FAST_NMSE
    assert(worst <= tolerance, ("NMSE %.3g, tolerance %g"):format(worst, tolerance))
  end)
end

for _, name in ipairs(models.own) do check(name, models.own_fixture) end
if arg[2] ~= "own" then
  for _, name in ipairs(shared) do check(name, models.shared_fixture) end
end
print("1.." .. n_tests)
digests:close()
