-- SPDX-License-Identifier: Apache-2.0
--- The command `tpl topo`: the machine at hand, or one that files describe, as text, JSON, a record or a picture.
local err = require("tpl.err")
local find = require("tpl.find")
local write = require("tpl.topo.write")

local M = {}

local function open(ctx)
  local topo = require("tpl.topo")
  local from = ctx.args.opts.from
  local t, e
  if from then t, e = topo.read(from) else t, e = topo.probe() end
  if not t then err.throw(e) end
  return t
end

--- Measure every pair of the machine at hand, and complete the topology anew with what was measured.
local function measured(ctx, t)
  if ctx.args.opts.from then
    err.throw { code = "usage", where = "--measure", message = "measures the machine at hand, not one that a file describes", hint = "leave --from out" }
  end
  local n, e = require("tpl.topo.measure").record(t, { progress = ctx.out:progress("measuring", "pairs") })
  if not n then err.throw(e) end
  return require("tpl.topo").finish(t)
end

local function save_svg(path, t)
  local sys = require("tpl.core").sys
  local ok, message, code = sys.write_file(path, require("tpl.topo.svg").draw(t))
  if not ok then err.throw(err.from_c(message, code, path)) end
end

local function has_colour(ctx)
  local no_colour = find.env("NO_COLOR")
  return ctx.out.stdout_tty and (no_colour == nil or no_colour == "")
end

function M.run(ctx)
  local opts = ctx.args.opts
  local t = open(ctx)
  if opts.measure then t = measured(ctx, t) end
  if opts.svg then save_svg(opts.svg, t) end
  if ctx.json then
    ctx:finish(write.result(t))
  elseif opts.record then
    ctx.out:text("%s", write.yaml(t))
  else
    ctx.out:text("%s", require("tpl.topo.text").write(t, { colour = has_colour(ctx) }))
  end
  return 0
end

return M
