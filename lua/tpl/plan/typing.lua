-- SPDX-License-Identifier: Apache-2.0
--- Type a stage of a model under a layout: forward only, one axis at a time, and whatever the rule table does not list
--- is refused. The result is the typed graph that lowering reads: values and weights with placements, ops with the
--- collectives that marks asked for. Pure: equal inputs give an equal graph.
---
--- Axes of size 1 are typed like any other (a layout is right or wrong whatever the sizes), but the graph does not
--- show them: their placements are R there and their collectives and slices are left out.
local bind = require "tpl.plan.bind"
local conflict = require "tpl.plan.conflict"
local err = require "tpl.err"
local layouts = require "tpl.plan.layout"
local marks = require "tpl.plan.marks"
local mesh_of = require "tpl.plan.mesh"
local partition = require "tpl.plan.partition"
local reshard = require "tpl.plan.reshard"
local rules = require "tpl.plan.rules"
local trace = require "tpl.plan.trace"
local units_of = require "tpl.plan.units"
local util = require "tpl.util"

local M = {}

---@class tpl.Graph
---@field mesh tpl.Mesh
---@field values table[]   {id, name, dims, pl}
---@field ops table[]      {kind, name, layer, mark, src, ins, outs, ws, attrs}
---@field weights table<string, table>  name -> {name, dims, n_out, pl, kind, dtype, layer, uses}
---@field marks table[]    {name, full, value, layer, show}
---@field log table[]      the journey: {kind="mark", mark} and {kind="comm", op}
---@field sizes table<string, integer>  dim -> size, without tok and out
---@field needs table<string, boolean>  what lowering must know beyond first light: lse, norm_stats
---@field parts fun(dim: string, axes: string[]): table  ranges per piece; nil for tok and out

local State = {}
State.__index = State

-- Terms: what typing knows of a tensor. An activation has .value (its value in the graph), a weight has .weight. ------

-- Every cut that a placement implies must exist.
local function check_cuts(st, dims, pl)
  for _, d in ipairs(dims) do
    local axes = marks.axes_of(st.mesh, pl, d)
    if #axes > 0 then st.tables:get(d, axes) end
  end
end

--- Make a term; `from` lends its name and the marks it passed.
function State:term(dims, pl, from)
  check_cuts(self, dims, pl)
  return { dims = dims, pl = pl, name = from and from.name, marks = from and from.marks or {} }
end

--- Leave out axes of size 1.
function State:wide(axes)
  local out = {}
  for _, a in ipairs(axes) do if self.mesh.size[a] > 1 then out[#out + 1] = a end end
  return out
end

local function wide_pl(st, pl)
  local out = {}
  for a, p in pairs(pl) do if st.mesh.size[a] > 1 then out[a] = p end end
  return out
end

--- Add a value to the graph.
function State:value(name, term)
  local values = self.graph.values
  local v = { id = #values + 1, name = name, dims = term.dims, pl = wide_pl(self, term.pl) }
  values[v.id] = v
  return v
end

--- Add an op to the graph.
function State:emit(op)
  local rec = self.current
  op.layer, op.src = rec and rec.layer or -1, rec and rec.src or self.trace.model.where
  op.mark, op.ws, op.attrs = self.mark_full, op.ws or {}, op.attrs or {}
  local ops = self.graph.ops
  ops[#ops + 1] = op
  if op.comm then
    op.comm = nil
    table.insert(self.graph.log, { kind = "comm", op = op })
  end
  return op
end

-- Placements of a tensor from a layout's dim -> axes.
local function to_pl(st, spec, dims, what, name)
  local pl = {}
  for _, dim in ipairs(util.keys(spec)) do
    if util.has(dims, dim) then
      for _, a in ipairs(spec[dim]) do
        if pl[a] then conflict.two_dims(st, { what = what, name = name, axis = a, dims = { pl[a].dim, dim }, spec = spec, tensor = dims }) end
        pl[a] = { k = "S", dim = dim }
      end
    end
  end
  return pl
end

local function weight_term(st, name)
  local w = st.trace.weights[name]
  local spec = st.bound:weight(name)
  local pl = to_pl(st, spec, w.dims, "weight", name)
  check_cuts(st, w.dims, pl)
  return { dims = w.dims, pl = pl, weight = w, name = name, marks = {} }
end

-- Cuts of a replicated vector are taken when loading, so the weight's placement in the graph is the cut one.
local function graph_weight(st, term)
  local all, w = st.graph.weights, term.weight
  local pl = wide_pl(st, term.pl)
  local old = all[w.name]
  if old then
    if not util.same(old.pl, pl) then
      err.throw { code = "layout_error", where = st.bound.where,
        message = ("weight '%s' is used twice and would have to lie in two ways"):format(w.name) }
    end
    return old
  end
  all[w.name] = { name = w.name, dims = w.dims, n_out = w.n_out, kind = w.kind, layer = w.layer, uses = w.uses, pl = pl,
    dtype = st.dtype and st.dtype(w.name) or nil }
  return all[w.name]
end

-- Rules --------------------------------------------------------------------------------------------------------------

local function word(p, class, op, env)
  if not p then return "R" end
  if p.k == "P" then return p.op == "lse" and "L" or "P" end
  local c = class(op, p.dim)
  env[c] = env[c] or p.dim
  return "S(" .. c .. (env[c] == p.dim and "" or "2") .. ")"
end

-- The conditions that hold for an op on an axis, the plain rows last; a cache cut by position leaves no other choice.
local function conditions(st, kind, axis)
  if kind == "attend" and st.bound.cache[axis] then return { "pos" } end
  if kind == "norm" and st.bound.norm_stats then return { "stats", "" } end
  if (kind == "attend" or kind == "rows") and st.mesh.kind[axis] == "batch" then return { "batch", "" } end
  return { "" }
end

--- Find the row for one axis, or raise the conflict; gives the row and what its classes stand for.
function State:rule(kind, op, axis, terms)
  local env, words, class = {}, {}, rules.class[kind]
  for i, x in ipairs(terms) do words[i] = word(x.pl[axis], class, op, env) end
  local row, key = rules.find(kind, words, conditions(self, kind, axis))
  if not row then
    conflict.rule(self, { kind = kind:gsub("_lse$", ""), op = op, axis = axis, terms = terms, key = key, env = env,
      pos = kind == "attend" and self.bound.cache[axis] })
  end
  local hit = kind .. ": " .. row.key .. (row.when and " " .. row.when or "")
  self.graph.hits[hit] = (self.graph.hits[hit] or 0) + 1
  return row, env
end

local function placed(out, env)
  if out == "R" then return nil end
  if out == "P" then return { k = "P", op = "sum" } end
  if out == "L" then return { k = "P", op = "lse" } end
  local c = out:match("^S%((%w+)%)$")
  return { k = "S", dim = env[c] or c }
end

local function cut_operand(st, op, x, axis, dim)
  if not x.weight then return reshard.slice(st, x, axis, dim, op.name) end
  reshard.check_inner(st, x.pl, dim, { axis }, st.mark_short)
  local pl = util.copy(x.pl)
  pl[axis] = { k = "S", dim = dim }
  check_cuts(st, x.dims, pl)
  return { dims = x.dims, pl = pl, weight = x.weight, name = x.name, marks = x.marks }
end

-- The result's placement; operands that a rule cuts are replaced in `terms`.
local function derive(st, op, terms)
  local pl, rows = {}, {}
  for _, a in ipairs(st.mesh.axes) do
    local row, env = st:rule(op.kind, op, a, terms)
    if row.cut then
      terms[row.cut] = cut_operand(st, op, terms[row.cut], a, terms[3 - row.cut].pl[a].dim)
    end
    pl[a], rows[a] = placed(row.out, env), row
  end
  return pl, rows
end

-- Ops ----------------------------------------------------------------------------------------------------------------

-- A result stands behind the marks of all its operands: those are the places where a layout can change it.
local function result(st, op, pl, terms)
  local from, seen = {}, {}
  for _, x in ipairs(terms) do
    for _, m in ipairs(x.marks) do
      if not seen[m] then
        seen[m] = true
        from[#from + 1] = m
      end
    end
  end
  local y = st:term(op.dims, pl, { name = op.name, marks = from })
  y.value = st:value(op.name, y)
  return y
end

local function operands(st, op)
  local terms = {}
  for i, id in ipairs(op.ins) do
    local x = st.terms[id]
    if not x then
      err.throw { code = "model_error", where = op.src, message = ("model: op '%s' uses a value of another layer"):format(op.name) }
    end
    -- a copy, so that a name of this op ("x", "q") can be shown for it
    terms[i] = x
  end
  if op.weight then terms[#terms + 1] = weight_term(st, op.weight) end
  return terms
end

local function plain(st, op, attrs)
  local terms = operands(st, op)
  local pl, rows = derive(st, op, terms)
  local y = result(st, op, pl, terms)
  local ins, ws = {}, {}
  for _, x in ipairs(terms) do
    if x.weight then ws[#ws + 1] = graph_weight(st, x) else ins[#ins + 1] = x.value end
  end
  local out = st:emit { kind = op.kind, name = op.name, ins = ins, outs = { y.value }, ws = ws, attrs = attrs or util.copy(op.attrs) }
  st.terms[op.out] = y
  return out, terms, rows, y
end

local handlers = setmetatable({}, { __index = function() return plain end })

local function set(list)
  local out = {}
  for _, d in ipairs(list) do out[d] = true end
  return out
end

function handlers.linear(st, op)
  op.con_set, op.out_set = op.con_set or set(op.attrs.con), op.out_set or set(op.attrs.out)
  plain(st, op)
end

function handlers.bias(st, op)
  op.out_set = op.out_set or set(op.attrs.out)
  local out, terms = plain(st, op)
  out.attrs.first_only = {} -- axes on which y is partial: only index 0 adds the bias
  for _, a in ipairs(st.mesh.axes) do
    if terms[1].pl[a] and terms[1].pl[a].k == "P" then table.insert(out.attrs.first_only, a) end
  end
  out.attrs.first_only = st:wide(out.attrs.first_only)
end

function handlers.norm(st, op)
  op.over_set = op.over_set or set(op.attrs.over)
  local out, terms = plain(st, op)
  local axes = {}
  for _, a in ipairs(st.mesh.axes) do
    local p = terms[1].pl[a]
    if p and p.k == "S" and op.over_set[p.dim] then axes[#axes + 1] = a end
  end
  axes = st:wide(axes)
  if #axes > 0 then
    st.needs.norm_stats = true
    out.attrs.stats = axes
    table.insert(st.graph.log, { kind = "stats", op = out, axes = axes })
  end
end

function handlers.attend(st, op)
  local _, _, _, y = plain(st, op)
  for _, p in pairs(y.value.pl) do if p.op == "lse" then st.needs.lse = true end end
end

function handlers.embed(st, op)
  local spec = op.attrs.ids == "tok" and st.bound.input or {} -- positions are known on every rank
  local ids = { dims = { "tok" }, name = "ids", marks = {}, pl = to_pl(st, spec, { "tok" }, "input", "ids") }
  check_cuts(st, ids.dims, ids.pl)
  local terms = { ids, weight_term(st, op.weight) }
  local y = result(st, op, (derive(st, op, terms)), terms)
  st:emit { kind = "embed", name = op.name, ins = {}, outs = { y.value }, ws = { graph_weight(st, terms[2]) }, attrs = util.copy(op.attrs) }
  st.terms[op.out] = y
end

function handlers.sample(st, op)
  local terms = operands(st, op)
  local pl, rows = derive(st, op, terms)
  local x, axes = terms[1], {}
  for _, a in ipairs(st.mesh.axes) do if rows[a].gather then axes[#axes + 1] = a end end
  local input, wide = x.value, st:wide(axes)
  if #wide > 0 then
    local whole = util.copy(x.pl)
    for _, a in ipairs(axes) do whole[a] = nil end
    local g = st:term(x.dims, whole, x)
    g.value = st:value(x.value.name, g)
    st:emit { kind = "gather", name = "sample.gather", ins = { x.value }, outs = { g.value }, comm = true,
      attrs = { axes = wide, dim = "vocab", from = "vocab" } }
    input = g.value
  end
  local y = result(st, op, pl, terms)
  st:emit { kind = "sample", name = op.name, ins = { input }, outs = { y.value } }
  st.terms[op.out] = y
end

function handlers.mark(st, op)
  local x = st.terms[op.ins[1]]
  local full = op.name
  st.mark_short, st.mark_full = op.short, full
  local spec = st.bound:at(full)
  if spec then x = reshard.to(st, x, to_pl(st, spec, x.dims, "mark", op.short), full, op) end
  local y = { dims = x.dims, pl = x.pl, name = full, marks = { op.short }, value = x.value }
  st.terms[op.out] = y
  st.at_mark[op.short] = y
  local m = { name = op.short, full = full, value = x.value, layer = op.layer, show = marks.show(st.mesh, x.dims, x.pl) }
  table.insert(st.graph.marks, m)
  table.insert(st.graph.log, { kind = "mark", mark = m })
end

-- Stages -------------------------------------------------------------------------------------------------------------

local function run(st, section)
  for i = section.first, section.last do
    local op = st.trace.ops[i]
    st.current = op
    handlers[op.kind](st, op)
  end
end

local function stage_in(st, id)
  local x = st:term({ "tok", "embd" }, {}, { name = "stage.in", marks = {} })
  x.value = st:value("stage.in", x)
  st.current, st.mark_short, st.mark_full = nil, "stage.in", "stage.in"
  st:emit { kind = "input", name = "stage.in", ins = {}, outs = { x.value } }
  st.terms[id] = x
end

-- The last activation leaves whole on every rank, so the next stage's mesh does not matter here.
local function stage_out(st, id)
  st.mark_short, st.mark_full = "stage.out", "stage.out"
  local op = { kind = "mark", name = "stage.out", short = "stage.out", scope = "", layer = -1, index = math.huge,
    src = st.current and st.current.src }
  st.current = op
  local x = reshard.to(st, st.terms[id], {}, "stage.out", op)
  st:emit { kind = "output", name = "stage.out", ins = { x.value }, outs = {} }
  local m = { name = "stage.out", full = "stage.out", value = x.value, layer = -1, show = marks.show(st.mesh, x.dims, x.pl) }
  table.insert(st.graph.marks, m)
  table.insert(st.graph.log, { kind = "mark", mark = m })
end

local function walk(st, opts)
  local sections, last_layer = st.trace.sections, st.trace.n_layer - 1
  local first, last = opts.first or 0, opts.last or last_layer
  local embed, head = opts.embed, opts.head
  if embed == nil then embed = first == 0 end
  if head == nil then head = last == last_layer end
  local function entry(i) return (sections.layers[i] or sections.head).entry end
  if embed then run(st, sections.embed) else stage_in(st, entry(first)) end
  for i = first, last do
    if opts.skim and i == first + 2 and last > i then -- a sketch: the layers between are taken to be like these two
      st.terms[entry(last)] = st.terms[entry(i)]
    elseif not (opts.skim and i > first + 2 and i < last) then run(st, sections.layers[i]) end
  end
  if head then run(st, sections.head) else stage_out(st, entry(last + 1)) end
  st.graph.stage = { first = first, last = last, embed = embed, head = head }
end

-- The entry point ----------------------------------------------------------------------------------------------------

local function context(opts, t, mesh, units)
  return { mesh = mesh, config = opts.config, dims = t.sizes, phase = opts.phase, stage = opts.stage,
    layers = { first = opts.first or 0, last = opts.last or t.n_layer - 1 }, units = function(_, dim) return units:count(dim) end }
end

--- Type with a layout object; raises the bare conflict, with no fixes looked for.
local function attempt(opts, t, units, layout, mesh)
  local bound = bind.bind(layout, t, mesh, units, opts)
  local graph = { mesh = bound.mesh, values = {}, ops = {}, weights = {}, marks = {}, log = {}, hits = {}, needs = {}, sizes = t.sizes,
    units = units, layout = layout, bound = bound, trace = t, phase = opts.phase }
  local st = setmetatable({ graph = graph, bound = bound, mesh = bound.mesh, trace = t, terms = {}, at_mark = {}, needs = graph.needs,
    dtype = opts.dtype, mark_short = "?", mark_full = "" }, State)
  st.tables = partition.tables { mesh = bound.mesh, units = units, shares = bound.shares, map = bound.map }
  graph.tables = st.tables
  local ok, e = pcall(walk, st, opts)
  if not ok then
    if err.is(e) then
      e.where = e.where or bound.where
      conflict.note(e, st)
    end
    error(e, 0)
  end
  function graph.parts(dim, axes) return st.tables:get(dim, graph.mesh:ordered(axes)) end
  return graph
end

local traces = setmetatable({}, { __mode = "k" })

--- Trace a model for a config; the trace is kept for the next stage or phase.
---@param model tpl.Model
---@param config table
---@return tpl.Trace
function M.trace(model, config)
  local by = traces[model] or setmetatable({}, { __mode = "k" })
  traces[model] = by
  by[config] = by[config] or trace.run(model, config)
  return by[config]
end

---@class tpl.TypingOpts
---@field model tpl.Model
---@field config table
---@field mesh any           as tpl.mesh takes it; nil: the layout's own
---@field layout any         name, path, table, layout object or function(ctx)
---@field first integer?     first layer of the stage, default 0
---@field last integer?      last layer, default all
---@field embed boolean?     default: first == 0
---@field head boolean?      default: last is the model's last layer
---@field phase string?      "prefill" or "decode"
---@field dtype (fun(weight: string): string)?  storage types of the checkpoint
---@field blocks table?      elements per block by type, instead of the known ones
---@field shares table?      the deployment's shares, instead of the layout's
---@field where string?      file:line to blame where the layout is a plain table
---@field find {dir: string?, path: string?}?   where layout names are looked for
---@field fixes boolean?     false: do not look for fixes

--- Type a stage. Raises an error value, code layout_conflict (with fixes that were tried) or layout_error.
---@param opts tpl.TypingOpts
---@return tpl.Graph
function M.build(opts)
  local t = opts.trace or M.trace(opts.model, opts.config)
  local units = units_of.collect(t, opts.dtype, opts.blocks)
  local mesh = opts.mesh and mesh_of.new(opts.mesh) or nil
  local find = util.copy(opts.find or {})
  find.where = opts.where
  local layout, file = layouts.resolve(opts.layout, context(opts, t, mesh, units), find)
  local ok, out = pcall(attempt, opts, t, units, layout, mesh)
  if ok then
    out.file = file
    return out
  end
  if err.is(out) and opts.fixes ~= false then
    local sketch = setmetatable({ skim = true }, { __index = opts })
    conflict.explain(out, layout, function(patched)
      local fits, e = pcall(attempt, sketch, t, units, patched, mesh)
      if not fits then return fits, e end
      return pcall(attempt, opts, t, units, patched, mesh)
    end)
  end
  error(out, 0)
end

return M
