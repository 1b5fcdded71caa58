-- SPDX-License-Identifier: Apache-2.0
--- Plan and open what FILE|MODEL and its words describe: shared by all commands that take them.
local deploy = require("tpl.deploy")
local err = require("tpl.err")
local suggest = require("tpl.suggest")
local text = require("tpl.text")

local M = {}

--- Read the deployment, or throw.
---@return tpl.Deploy
function M.read(ctx)
  local d, e = deploy.open(ctx.args.target, ctx.args.words)
  if not d then err.throw(e) end
  return d
end

--- Turn --no-fuse[=PASS] into what the planner takes; an unknown pass is a usage error.
local function no_fuse(pass)
  if pass == nil or pass == true then return pass and "all" end
  local names = {}
  for i, known in ipairs(require("tpl.plan.fuse").passes) do
    names[i] = known.name
    if known.name == pass then return { [pass] = true } end
  end
  err.throw { code = "usage", where = "--no-fuse", message = string.format("unknown pass '%s'", pass), hint = suggest.hint(pass, names, "passes") }
end

--- Give the machine that --topo names, completed by --assume; nil: this one.
---@return tpl.Topo?
function M.topo(ctx)
  local files = ctx.args.opts.topo
  if not files then
    if ctx.args.opts.assume then
      err.throw { code = "usage", where = "--assume", message = "completes a recorded machine", hint = "give --topo FILE too" }
    end
    return nil
  end
  if ctx.topo then return ctx.topo end
  local topo, e = require("tpl.topo").read(files)
  if not topo then err.throw(e) end
  for _, d in ipairs(topo.doubts) do
    ctx:warn { code = d.code, message = d.message, where = d.line and ("%s:%d"):format(files[1], d.line) or files[1] }
  end
  ctx.topo = require("tpl.plan.machine").complete(topo, ctx.args.opts.assume)
  return ctx.topo
end

--- Give the options that commands pass on to the planner.
function M.plan_options(ctx)
  local opts = ctx.args.opts
  return {
    no_fuse = no_fuse(opts.no_fuse), no_graph = opts.no_graph, tune = opts.tune,
    topo = M.topo(ctx), outline = ctx.command.name == "plan" or nil,
    deterministic = opts.deterministic or ctx.knobs.TPL_DETERMINISTIC == "1" or nil, knobs = ctx.knobs,
  }
end

--- Make the plan of a deployment, or throw. With --manifest it is held to that file, or writes it.
---@param d? tpl.Deploy
---@param is_other? boolean   not the deployment that the options are for: --manifest does not apply
function M.plan(ctx, d, is_other)
  d = d or M.read(ctx)
  local path = not is_other and ctx.args.opts.manifest or nil
  local function make(options)
    local made, e = ctx.engine.make(d, options)
    if not made then err.throw(e) end
    return made
  end
  local is_there = path and require("tpl.core").sys.exists(path)
  local options = M.plan_options(ctx)
  local p = is_there and require("tpl.cli.manifest").hold(ctx, path, d, make, options) or make(options)
  for _, w in ipairs(p.warnings or {}) do ctx:warn(w) end
  if path and (not is_there or ctx.args.opts.accept_drift) then
    require("tpl.cli.manifest").write(ctx, p, path)
    ctx.out:note("wrote %s", path)
  end
  return p
end

--- Refuse a plan that does not fit; the report goes with the error.
function M.check_fit(p)
  if p.report.fits ~= false then return end
  local moves = {}
  for _, move in ipairs(type(p.report.moves) == "table" and p.report.moves or {}) do moves[#moves + 1] = tostring(move.what) end
  err.throw {
    code = "no_fit", exit = 4, message = p.why_not or "the plan does not fit the memory of the devices",
    where = p.deploy and p.deploy.origin and p.deploy.origin.where, hint = #moves > 0 and table.concat(moves, "; ") or nil,
  }
end

--- Add the progress of all ranks up, and tell each step to `event`.
local function follow_load(ctx, p, event)
  local bar = not ctx.json and ctx.out:progress("loading") or function() end
  local done, totals, whole = {}, {}, 0
  for _, rank in ipairs(p.report.ranks or {}) do
    if type(rank.read_bytes) == "number" then totals[rank.rank] = rank.read_bytes end
  end
  return function(rank, bytes, total)
    done[rank], totals[rank] = bytes, total
    local sum = 0
    whole = 0
    for _, n in pairs(done) do sum = sum + n end
    for _, n in pairs(totals) do whole = whole + n end
    bar(sum, whole)
    if event then event(rank, bytes, total) end
  end
end

--- Load the weights and open the engine, or throw.
---@param more? {event?: fun(rank: integer, bytes: number, total: number), tokenizer?: tpl.Tokenizer, chunk?: integer}
function M.load(ctx, p, more)
  M.check_fit(p)
  more = more or {}
  local n_warnings = #(p.warnings or {})
  local eng, e = ctx.engine.open(p, { progress = follow_load(ctx, p, more.event), tokenizer = more.tokenizer, chunk = more.chunk })
  if not eng then err.throw(e) end
  for i = n_warnings + 1, #(p.warnings or {}) do ctx:warn(p.warnings[i]) end
  return eng
end

--- Close the engine after fn, also when it fails; gives what fn gives.
function M.with(eng, fn)
  local result, e = err.try(fn)
  eng:close()
  if e then err.throw(e) end
  return result
end

--- Give the text side of a plan: its tokenizer and the ids that its model knows.
---@return tpl.Text
function M.text(p)
  return text.new(p.tokenizer_path, p.config and p.config.vocab)
end

--- Give the most tokens of one request, prompt and answer together; nil when the plan does not say.
function M.context(p)
  local kv = p.report.kv
  local n = type(kv) == "table" and kv.max_len
  if type(n) == "number" then return type(kv.tokens) == "number" and math.min(n, kv.tokens) or n end
  return p.deploy and p.deploy.want and p.deploy.want.context
end

return M
