-- SPDX-License-Identifier: Apache-2.0
--- The command `tpl verify`: the layout against one rank, on the model itself. Exit 5 when something differs.
local deployment = require("tpl.cli.deployment")
local err = require("tpl.err")
local fill = require("tpl.cli.fill")
local json = require("tpl.json")

local M = {}

--- Read the deployment; it runs act=f32 unless it says otherwise.
local function read(ctx)
  local d = deployment.read(ctx)
  if d.given.act == nil then d.act = "f32" end
  return d
end

local function place(diff)
  local parts = {}
  for _, name in ipairs { "op", "layer", "mark", "rank", "axis" } do
    if diff[name] ~= nil and type(diff[name]) ~= "userdata" then parts[#parts + 1] = name .. " " .. tostring(diff[name]) end
  end
  return table.concat(parts, ", ")
end

--- Make the error of a verification that failed, or nil.
local function failure(result)
  if result.passed then return nil end
  local diff = type(result.first_diff) == "table" and result.first_diff
  local message = diff and string.format("differs first at %s (nmse %s, tolerance %.3g)", place(diff),
    type(diff.nmse) == "number" and string.format("%.3g", diff.nmse) or "not finite", result.tolerance or 0)
    or "the order of collectives differs: " .. tostring(result.order_check)
  return err.new { code = "verify", exit = 5, where = diff and diff.op or nil, message = message }
end

local function print_text(ctx, result)
  ctx.out:text("verify: %s ops compared with %s, largest nmse %.3g (tolerance %.3g), fused %s\n", tostring(result.ops_compared or "?"),
    tostring(result.reference or "one rank"), result.max_nmse or 0, result.tolerance or 0,
    result.fused_passed == nil and "not run" or result.fused_passed and "passed" or "differs")
  ctx.out:text("%s\n", result.passed and "passed" or "differs")
end

function M.run(ctx)
  local opts = deployment.plan_options(ctx)
  local result, e = ctx.engine.verify(read(ctx), { seed = tonumber(ctx.knobs.TPL_SEED), no_fuse = opts.no_fuse, fault = ctx.knobs.TPL_FAULT })
  if not result then err.throw(e) end
  if result.warning then ctx:warn(result.warning) end -- a planted fault that acts nowhere
  result.warning = nil
  local diff = result.first_diff
  if type(diff) == "table" then -- outside the layers and the marks
    if diff.mark == "-" then diff.mark = json.null end
    if diff.layer == -1 then diff.layer = json.null end
  end
  local failed = failure(result)
  if ctx.json then
    ctx:finish(fill.verify(result), failed)
  else
    print_text(ctx, result)
  end
  if failed then ctx.out:error(failed) end
  return failed and failed.exit or 0
end

return M
