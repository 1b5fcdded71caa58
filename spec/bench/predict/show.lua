-- SPDX-License-Identifier: Apache-2.0
--- Print what was predicted beside what was measured, for the cases that no constant was fitted to, and hold it against the bars of issue 5:
--- median error, worst error, and Kendall's tau over the pairs that lie far enough apart to be told apart.
local rows = require("rows")
local measure = require("measure")

local M = {}

local MEDIAN, WORST, TAU, APART = 0.15, 0.35, 0.8, 0.10

--- Kendall's tau of the predicted order over pairs whose measured values differ by more than APART; ties of the prediction count half.
function M.tau(list)
  local right, n = 0, 0
  for i = 1, #list do
    for j = i + 1, #list do
      local a, b = list[i], list[j]
      if math.max(a.measured, b.measured) > (1 + APART) * math.min(a.measured, b.measured) then
        local s = (a.measured - b.measured) * (a.predicted - b.predicted)
        n, right = n + 1, right + (s > 0 and 1 or s < 0 and -1 or 0)
      end
    end
  end
  return n > 0 and right / n or 0, n
end

local function judge(title, list)
  local errors, worst = {}, list[1]
  for i, r in ipairs(list) do
    errors[i] = math.abs(r.error)
    if math.abs(r.error) > math.abs(worst.error) then worst = r end
  end
  local median, tau, pairs_ = measure.median(errors), M.tau(list)
  local ok = { median <= MEDIAN, math.abs(worst.error) <= WORST, tau >= TAU }
  local function word(x) return x and "met" or "MISSED" end
  print(("%-9s %d figures: median error %.1f %% (bar %.0f: %s), worst %.1f %% (bar %.0f: %s; %s), Kendall tau %.3f over %d pairs (bar %.1f: %s)"):format(
    title, #list, 100 * median, 100 * MEDIAN, word(ok[1]), 100 * math.abs(worst.error), 100 * WORST, word(ok[2]), worst.name, tau, pairs_, TAU,
    word(ok[3])))
  return ok[1] and ok[2] and ok[3]
end

local function of(list, figure)
  local out = {}
  for _, r in ipairs(list) do if r.figure == figure then out[#out + 1] = r end end
  return out
end

--- Print the table. Gives whether all bars are met.
function M.run(lines)
  local samples = {}
  for _, s in ipairs(rows.samples(lines)) do
    if s.case.kind == "test" then samples[#samples + 1] = s end
  end
  local list = rows.rows(samples)
  local probe = rows.middle_probe(lines)
  print(("%s, isa %s, %d cores; medians over all probes: read %.1f GB/s, one core %.0f GFLOP/s in bf16, %.0f in f32, barrier %.2f us"):format(
    tostring(probe.cpu), probe.isa, probe.cores, probe.read_gb_s, probe.core_gflop_s.bf16 or 0, probe.core_gflop_s.f32, probe.barrier_us))
  print(("%-46s %-8s %10s %10s %7s  %s"):format("case", "", "measured", "predicted", "error", "samples kept"))
  for _, r in ipairs(list) do
    print(("%-46s %-8s %7.2f ms %7.2f ms %+5.0f %%  %d of %d"):format(r.name, r.figure == "ttft_us" and "prefill" or "decode", r.measured / 1e3,
      r.predicted / 1e3, 100 * r.error, r.kept, r.n))
  end
  judge("prefill", of(list, "ttft_us"))
  judge("decode", of(list, "itl_us"))
  return judge("all", list)
end

return M
