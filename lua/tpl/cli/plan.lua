-- SPDX-License-Identifier: Apache-2.0
--- The command `tpl plan`: what would run where, and why, without loading weights.
local deployment = require("tpl.cli.deployment")
local err = require("tpl.err")
local fill = require("tpl.cli.fill")
local report = require("tpl.report")

local M = {}

--- Say which files were taken for the layout, the policy and the model.
---@return string[]
function M.taken(p)
  local lines, seen = {}, {}
  local function add(format, ...)
    local line = string.format(format, ...)
    if not seen[line] then lines[#lines + 1] = line end
    seen[line] = true
  end
  if p.open and p.open.path then add("from    %s", p.open.path) end
  for _, stage in ipairs(p.stages or {}) do
    if type(stage.layout) == "string" then add("layout  %s (%s)", stage.layout, stage.file or "built in") end
  end
  return lines
end

--- Print the report for people; shared with `run`.
function M.print(ctx, p)
  ctx.out:text("%s", report.text(p.report, { taken = M.taken(p) }))
end

-- -- What is asked for besides the plan ------------------------------------------------------------------------------

local function write_svg(ctx, p, path)
  local text = require("tpl.topo.svg").draw(p.topo, { placement = p.report.ranks, title = "tpl plan" })
  local ok, message = require("tpl.core").sys.write_file(path, text)
  if not ok then err.throw { code = "io", where = path, message = tostring(message) } end
  ctx.out:note("wrote %s", path)
end

local function diff(ctx, p, path)
  local d, e = require("tpl.deploy").open(path)
  if not d then err.throw(e) end
  return require("tpl.plan.diff").of(p, deployment.plan(ctx, d, true))
end

-- Everything that options add to a plan's report; gives what must be said after printing.
local function extend(ctx, p)
  local opts, refused = ctx.args.opts, nil
  if opts.why_not then p.report.why_not = require("tpl.plan.choices").why_not(p, opts.why_not) end
  if opts.diff then p.report.diff = diff(ctx, p, opts.diff) end
  if opts.svg then write_svg(ctx, p, opts.svg) end
  if opts.emit then
    local made, e = require("tpl.emit").make(opts.emit, p.report, p.topo, p.deploy)
    p.report.emit, refused = made or e.emit, e
  end
  return refused
end

local function why_not_lines(w)
  if type(w) ~= "table" then return "" end
  return ("why not %s: %s%s\n"):format(w.asked, type(w.rule) == "string" and w.rule .. ": " or "", tostring(w.why))
end

local function print_text(ctx, p)
  local opts = ctx.args.opts
  if opts.emit then
    if type(p.report.emit) == "table" and p.report.emit.text then ctx.out:text("%s", p.report.emit.text) end
    return
  end
  if opts.text then
    ctx.out:text("%s", p:text())
    return
  end
  M.print(ctx, p)
  ctx.out:text("%s", why_not_lines(p.report.why_not))
  if p.report.diff then
    ctx.out:text("diff    %s\n", p.report.diff.kind)
    for _, change in ipairs(p.report.diff.changes) do ctx.out:text("        %s\n", change) end
  end
  if opts.explain then
    ctx.out:text("\n%s\n", table.concat(p:explain(), "\n"))
  end
end

--- The fields of the JSON result; what this version does not know is null or [].
local function result(ctx, p)
  local opts = ctx.args.opts
  local value = fill.plan(p.report)
  if opts.explain then value.explain = fill.list(p:explain()) end
  if opts.text then value.text = p:text() end
  if value.diff then
    value.diff.changes = fill.list(value.diff.changes)
    value.kind, value.changes = value.diff.kind, value.diff.changes
  end
  return value
end

function M.run(ctx)
  local p = deployment.plan(ctx)
  for _, w in ipairs(p.cost and p.cost.warnings or {}) do ctx:warn { code = w.code, message = w.message, where = "cost" } end
  local refused = extend(ctx, p)
  local _, unfit = err.try(deployment.check_fit, p)
  unfit = unfit or refused
  if ctx.json then
    ctx:finish(result(ctx, p), unfit)
    if unfit then ctx.out:error(unfit) end
    return unfit and unfit.exit or 0
  end
  print_text(ctx, p)
  if unfit then err.throw(unfit) end
  return 0
end

return M
