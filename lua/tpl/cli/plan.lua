-- SPDX-License-Identifier: Apache-2.0
--- The command `tpl plan`: what would run where, without loading weights.
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

local function print_text(ctx, p)
  local opts = ctx.args.opts
  if opts.text then
    ctx.out:text("%s", p:text())
    return
  end
  M.print(ctx, p)
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
  return value
end

function M.run(ctx)
  local p = deployment.plan(ctx)
  local _, unfit = err.try(deployment.check_fit, p)
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
