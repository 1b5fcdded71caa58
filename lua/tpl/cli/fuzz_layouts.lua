-- SPDX-License-Identifier: Apache-2.0
--- The command `tpl fuzz-layouts`: random models and layouts against one rank. Exit 5 when an accepted one differs.
local err = require("tpl.err")
local out = require("tpl.cli.out")
local util = require("tpl.util")

local M = {}

local fields = { "seed", "draws", "accepted", "refused", "wrong", "lowered", "rules", "reshards", "no_kernel", "failures", "seconds" }
local failure_fields = { "number", "why", "case", "smallest", "smallest_why" }

local function counts(t) return out.ordered(util.keys(t), t) end

local function json_of(report)
  local r = util.copy(report)
  r.rules, r.reshards, r.no_kernel = counts(r.rules), counts(r.reshards), counts(r.no_kernel)
  r.failures = out.array(util.map(r.failures, function(f) return out.ordered(failure_fields, f) end))
  return out.ordered(fields, r)
end

local function print_counts(ctx, title, t)
  ctx.out:text("%s\n", title)
  for name, n in util.pairs(t) do ctx.out:text("  %-42s %6d\n", name, n) end
end

local function indent(text) return "  " .. text:gsub("\n", "\n  ") end

local function print_text(ctx, r)
  print_counts(ctx, "accepted layouts that used each rule", r.rules)
  print_counts(ctx, "accepted layouts that needed each reshard", r.reshards)
  print_counts(ctx, "accepted layouts that were typed only, for want of a kernel for", r.no_kernel)
  for _, f in ipairs(r.failures) do
    ctx.out:text("\nWRONG draw %d (again: tpl fuzz-layouts --seed %d --first %d --draws 1)\n  %s\n%s\n", f.number, r.seed, f.number, f.why, indent(f.case))
    ctx.out:text("smallest that fails: %s\n%s\n", f.smallest_why, indent(f.smallest))
  end
  ctx.out:text("seed %d, %d draws in %.1f s: %d accepted (%.1f %%, %d as programs too), %d refused, %d wrong\n", r.seed, r.draws, r.seconds, r.accepted,
    100 * r.accepted / math.max(1, r.draws), r.lowered, r.refused, r.wrong)
end

local function on_terminal(ctx, draws)
  if not ctx.out.is_tty then return nil end
  return function(n)
    if n % 100 == 0 or n == draws then ctx.out.stderr(("\r%d of %d layouts%s"):format(n, draws, n == draws and "\n" or "")) end
  end
end

function M.run(ctx)
  local opts = ctx.args.opts
  local report = require("tpl.fuzz.run").run { draws = opts.draws, first = opts.first, seed = opts.seed or tonumber(ctx.knobs.TPL_SEED) or 1,
    progress = on_terminal(ctx, opts.draws) }
  local failed = report.wrong > 0 and err.new { code = "verify", where = "draw " .. report.failures[1].number, hint = "report it: the planner is wrong",
    message = ("%d of %d accepted layouts differ from one rank"):format(report.wrong, report.accepted + report.wrong) } or nil
  if ctx.json then ctx:finish(json_of(report), failed) else print_text(ctx, report) end
  if failed then ctx.out:error(failed) end
  return failed and failed.exit or 0
end

return M
