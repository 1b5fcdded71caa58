-- SPDX-License-Identifier: Apache-2.0
--- The command `tpl test-policy`: a placement policy on imagined or recorded machines. Exit 3 when it breaks a property.
local err = require("tpl.err")
local find = require("tpl.find")
local out = require("tpl.cli.out")
local sys = require("tpl.core").sys

local M = {}

local fields = { "policy", "where", "seed", "machines", "placed", "refused", "census", "properties", "failures" }
local failure_fields = { "property", "rule", "message", "where", "number", "kinds", "model", "want", "drawn_devices", "devices", "saved" }

local function load_policy(ctx)
  local name = ctx.args.names[1]
  if not name then err.throw { code = "usage", message = "tpl test-policy needs a FILE", hint = "a policy: a file, or the name of one that plan would find" } end
  local is_path = name:find("/", 1, true) or name:find("%.lua$")
  if is_path and not sys.is_file(name) then err.throw { code = "missing", where = name, message = "no such file" } end
  local p, e = require("tpl.policy").load(name)
  if not p then err.throw(e) end
  return p
end

local function records(paths)
  if not paths then return nil end
  local list = {}
  for i, path in ipairs(paths) do
    local t, e = require("tpl.topo").read(path)
    if not t then err.throw(e) end
    list[i] = { name = path, record = t }
  end
  return list
end

-- Write the machine of each failure; gives the paths.
local function save(report, dir)
  local writer, paths = require("tpl.policy.save"), {}
  for i, f in ipairs(report.failures) do
    local case = { seed = f.drawn.seed, number = f.drawn.number, kinds = f.drawn.kinds, record = f.case.record, model = f.case.model, want = f.case.want }
    local path = find.join(dir, writer.name(report.policy, f.failure, f.drawn))
    local ok, message, code = sys.mkdir_p(dir)
    if ok then ok, message, code = sys.write_file(path, writer.text(report.policy, f.failure, case)) end
    if not ok then err.throw(err.from_c(message, code, path)) end
    paths[i] = path
  end
  return paths
end

local function error_of(report)
  local first = report.failures[1]
  if not first then return nil end
  local names = {}
  for i, f in ipairs(report.failures) do
    if i > 1 then names[#names + 1] = f.failure.property end
  end
  return err.new { code = "policy_error", where = first.failure.where or report.policy.where, property = first.failure.property,
    message = ("breaks '%s': %s%s"):format(first.failure.property, first.failure.message, #names > 0 and "; also breaks " .. table.concat(names, ", ") or "") }
end

local function properties() return require("tpl.policy.properties").list end

local function json_of(report, saved)
  local rows, failures, census = {}, {}, {}
  for i, p in ipairs(properties()) do
    rows[i] = out.ordered({ "name", "what", "failed", "left_out" },
      { name = p[1], what = p[2], failed = report.failed[p[1]], left_out = report.policy.except[p[1]] })
  end
  for i, f in ipairs(report.failures) do
    failures[i] = out.ordered(failure_fields, { property = f.failure.property, rule = f.failure.rule, message = f.failure.message,
      where = f.failure.where or report.policy.where, number = f.drawn.number, kinds = out.array(f.drawn.kinds), model = f.case.model,
      want = out.ordered({ "context", "concurrency", "goal" }, f.case.want), drawn_devices = #f.drawn.record.devices, devices = #f.case.record.devices, saved = saved[i] })
  end
  local kinds = require("tpl.policy.imagine").kinds()
  for _, kind in ipairs(kinds) do census[kind] = report.census and report.census[kind] end
  return out.ordered(fields, { policy = report.policy.name, where = report.policy.where, seed = report.seed, machines = report.machines, placed = report.placed,
    refused = report.refused, census = report.census and out.ordered(kinds, census), properties = out.array(rows), failures = out.array(failures) })
end

local function print_census(ctx, census)
  ctx.out:text("machines of each kind\n")
  local kinds = require("tpl.policy.imagine").kinds()
  local rows = math.ceil(#kinds / 3)
  for i = 1, rows do
    local line = {}
    for column = 0, 2 do
      local kind = kinds[i + column * rows]
      if kind then line[#line + 1] = ("  %-22s %6d"):format(kind, census[kind]) end
    end
    ctx.out:text("%s\n", table.concat(line))
  end
end

local function print_text(ctx, report, saved)
  local p = report.policy
  ctx.out:text("policy %s (%s, %s)\n", p.name, p.where, p.from)
  if report.census then print_census(ctx, report.census) end
  ctx.out:text("properties\n")
  for _, property in ipairs(properties()) do
    local n, except = report.failed[property[1]], p.except[property[1]]
    ctx.out:text("  %-20s %s  %s\n", property[1], except and "left out  " or n == 0 and "ok        " or ("FAILS %-4d"):format(n), except or property[2])
  end
  for i, f in ipairs(report.failures) do
    ctx.out:text("\nFAILS %s\n  %s: %s\n", f.failure.property, f.failure.where or p.where, f.failure.message)
    ctx.out:text("  machine %d (%s) of %d devices, shrunk to %d; model %s, goal %s\n", f.drawn.number, table.concat(f.drawn.kinds, ", "), #f.drawn.record.devices,
      #f.case.record.devices, f.case.model, f.case.want.goal)
    ctx.out:text("  saved %s (again: tpl test-policy %s --topo %s)\n", saved[i], p.name, saved[i])
  end
  ctx.out:text("\nseed %d, %d machines with a model each: %d placed, %d refused, %d failed\n", report.seed, report.machines, report.placed, report.refused,
    report.machines - report.placed - report.refused)
end

local function on_terminal(ctx)
  if not ctx.out.is_tty then return nil end
  return function(n, of)
    if n % 50 == 0 or n == of then ctx.out.stderr(("\r%d of %d machines%s"):format(n, of, n == of and "\n" or "")) end
  end
end

function M.run(ctx)
  local opts = ctx.args.opts
  local p = load_policy(ctx)
  local report = require("tpl.policy.test").run(p, { random = opts.random, seed = opts.seed or tonumber(ctx.knobs.TPL_SEED) or 1, first = opts.first,
    records = records(opts.topo), progress = on_terminal(ctx) })
  local saved = save(report, opts.out)
  local failed = error_of(report)
  if ctx.json then ctx:finish(json_of(report, saved), failed) else print_text(ctx, report, saved) end
  if failed then ctx.out:error(failed) end
  return failed and failed.exit or 0
end

return M
