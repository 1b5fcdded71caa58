-- SPDX-License-Identifier: Apache-2.0
--- Say why a layout is refused and what would make it right (layout.md 2.7). A refusal names op, axis, both types and
--- the last mark. Fixes are Lua text for layout:extend; each one listed was put over the layout and typed to the end.
local err = require "tpl.err"
local layouts = require "tpl.plan.layout"
local marks = require "tpl.plan.marks"
local util = require "tpl.util"

local M = {}

-- What typing knows of a refusal beyond its public fields: error -> {kind, op, axis, terms, ..}.
local detail = setmetatable({}, { __mode = "k" })

-- Messages -----------------------------------------------------------------------------------------------------------

local operand_names = { attend = { "q", "k", "v" }, mark = { "has", "wants" }, add = { "left", "right" }, silu_mul = { "left", "right" } }

-- op kind (or "*"), pattern on the key of placements, why, what to do in words; the first match is used.
-- $a axis, $m last mark, $1 $2 .. the dims or placements of the operands on that axis.
local sum = "make it whole at '$m' first (R: all_reduce, S on tok: reduce_scatter)"
local reasons = {
  { "mark", "L", "attention partials merge to R, S(kvh) or S(grp) only", "go to R at '$m' first and cut at the next mark" },
  { "*", "L", "unmerged attention partial", "merge it at the mark after attend: R, or S on kvh or grp, at 'attn.core'" },
  { "add", "P", "a partial sum and a value that is whole", "give both sides one placement at '$m'" },
  { "add", "", "the two sides are split differently", "give both sides one placement at '$m'" },
  { "linear", "^S%(c%),R", "x is split on the contracted dim '$1' but the weight is not", "gather at '$m', or split '$1' in layout.split" },
  { "linear", "^P", "partial sum times a split weight", sum },
  { "linear", "", "both use this axis for different things (S($1) vs S($2))", "gather at '$m', or take '$2' off axis $a" },
  { "bias", "", "the bias is placed unlike the output", "place the bias R" },
  { "embed", "", "ids and table are split on one axis", "place ids R on axis $a and cut at the mark after, or take '$2' off axis $a" },
  { "norm", "P", "norm of a partial sum", sum },
  { "norm", "^S%(n%)", "the normalised dim '$1' is split", "norm_stats=true (one tiny all_reduce of per-token sums), or gather at the mark before" },
  { "norm", "", "the weight is split and x is not", "place the norm's weight R" },
  { "rope", "hd", "rope turns pairs inside a head", "split kvh on axis $a and not hd" },
  { "attend", "P", "partial q, k or v", "make them whole at 'attn.q' and 'attn.kv'" },
  { "attend", "pos", "the cache is cut by position here, so q, k and v must be whole", "R at 'attn.q' and 'attn.kv' on axis $a" },
  { "attend", "hd", "a score is a sum over the whole head", "split kvh on axis $a (and grp on a second one), not hd" },
  { "attend", "^S%(tok%),S%(tok%),S%(tok%)", "this axis cuts inside requests, so each rank would see only its own keys",
    "gather KV at 'attn.kv', or declare the axis kind 'batch'" },
  { "attend", "", "queries and keys do not meet", "split kvh on axis $a (and grp on a second one)" },
  { "sample", "P", "partial logits", "R or S on vocab at 'logits'" },
  { "*", "P", "a partial sum in an op that is not linear", sum },
  { "*", "", "not a listed rule", "gather at '$m'" },
}

local function reason(kind, key, fill)
  for _, r in ipairs(reasons) do
    if (r[1] == "*" or r[1] == kind) and key:find(r[2]) then
      return (r[3]:gsub("%$(%w)", fill)), (r[4]:gsub("%$(%w)", fill))
    end
  end
end

local function throw(fields, d)
  local e = err.new(fields)
  e.fixes = e.fixes or {}
  detail[e] = d
  error(e, 0)
end

--- Raise the refusal of an op on an axis.
---@param st table  the typing state
---@param d {kind: string, op: table, axis: string, terms: table[], key: string, pos: boolean?}
function M.rule(st, d)
  local shown, types, fill = {}, {}, { a = d.axis, m = st.mark_short }
  for i, x in ipairs(d.terms) do
    local p = x.pl[d.axis]
    types[i] = marks.show(st.mesh, x.dims, x.pl)
    shown[i] = ((operand_names[d.kind] or {})[i] or (x.weight and x.name) or (d.op.kind == "embed" and x.name) or "x") .. " " .. types[i]
    fill[tostring(i)] = p and p.dim or marks.word(p)
  end
  local why, hint = reason(d.kind, d.key .. (d.pos and " pos" or ""), fill)
  local head = ("layout conflict in op '%s' on axis '%s'"):format(d.op.short, d.axis)
  local joined = table.concat(shown, "  with  ")
  d.words = hint
  throw({
    code = "layout_conflict", op = d.op.name, axis = d.axis, x = types[1], w = types[2], mark = st.mark_short, src = d.op.src,
    layer = d.op.layer, hint = hint,
    message = ("%s (%s): %s: %s; last mark: %s; model: %s"):format(head, d.op.scope, joined:gsub("  with  ", " with "), why, st.mark_short,
      d.op.src or "?"),
    text = ("%s (%s)\n  %s: %s\n  last mark: %s\n  model: %s"):format(head, d.op.scope, joined, why, st.mark_short, d.op.src or "?"),
  }, d)
end

--- Raise the refusal of a tensor with two dims on one axis.
function M.two_dims(st, d)
  d.kind = "two_dims"
  throw({
    code = "layout_conflict", axis = d.axis, x = d.name, mark = d.what == "mark" and d.name or st.mark_short,
    message = ("%s %s: axis '%s' would split two dims (%s and %s)"):format(d.what, d.name, d.axis, d.dims[1], d.dims[2]),
    hint = "override this tensor in layout.weights or layout.at",
  }, d)
end

--- Raise the refusal of a change on an axis that is not the innermost of its dim.
function M.inner(st, mark, dim, outer, inside)
  throw({
    code = "layout_conflict", axis = outer, dim = dim, mark = st.mark_short, op = st.current and st.current.name, src = st.current and st.current.src,
    message = ("reshard at '%s': axis '%s' is outside '%s' on dim '%s'; only the innermost axis of a dim can change alone")
      :format(mark, outer, inside, dim),
    hint = ("reorder the mesh axes, or go through R on '%s' in two marks"):format(dim),
  }, { kind = "inner", dim = dim, axis = outer })
end

-- Fixes --------------------------------------------------------------------------------------------------------------

--- Keep what typing knew when it refused, for the search of fixes.
function M.note(e, st)
  local d = detail[e] or { kind = "unit", dim = e.dim, axis = e.axis }
  d.st, d.index = st, st.current and st.current.index or 0
  detail[e] = d
end

local function axes_value(axes) return #axes == 1 and axes[1] or axes end

-- The S{..} that keeps a placement but puts axis `a` on `dim` (nil: on nothing). Partial axes become whole.
local function spec_of(st, dims, pl, a, dim)
  local split = {}
  for _, d in ipairs(dims) do
    local axes = {}
    for _, x in ipairs(st.mesh.axes) do
      local on = pl[x] and pl[x].dim
      if x == a then on = dim end
      if on == d then axes[#axes + 1] = x end
    end
    if #axes > 0 then split[d] = axes_value(axes) end
  end
  return next(split) and layouts.S(split) or layouts.R
end

local function add(list, patch)
  local text = layouts.text(patch)
  if list[text] then return end
  list[text] = true
  list[#list + 1] = { patch = patch, text = text }
end

local function at_mark(list, d, mark, dim)
  local st, x = d.st, d.st.at_mark[mark]
  if not x or dim and not util.has(x.dims, dim) then return end
  local spec = spec_of(st, x.dims, x.pl, d.axis, dim)
  add(list, { at = { [mark] = spec } })
  local group = mark:match("%.[^.]+$")
  if group == ".in" or group == ".out" then add(list, { at = { ["*" .. group] = spec } }) end
end

-- Take `dim` off the axis in layout.split, or put it on.
local function in_split(list, d, dim, on)
  local st = d.st
  local axes, found = {}, false
  for _, a in ipairs(st.mesh.axes) do
    local has = util.has(st.bound.split[dim] or {}, a)
    if a == d.axis then found, has = has, on end
    if has then axes[#axes + 1] = a end
  end
  if found == on then return end
  add(list, { split = { [dim] = #axes > 0 and axes_value(axes) or layouts.R } })
end

local function in_weights(list, d, x, dim)
  local base = x.name:gsub("^blk%.%d+%.", "")
  local pattern = base == x.name and base or "*" .. base
  add(list, { weights = { [pattern] = spec_of(d.st, x.dims, x.pl, d.axis, dim) } })
end

-- Every placement of axis a that the other operands show, as a goal for the operands behind marks.
local function rule_candidates(list, d)
  local st = d.st
  local seen, behind = {}, {}
  local function behind_mark(m)
    if m and not seen[m] and st.at_mark[m] then
      seen[m] = true
      behind[#behind + 1] = m
    end
  end
  behind_mark(st.mark_short)
  for _, x in ipairs(d.terms) do for _, m in ipairs(x.marks) do behind_mark(m) end end
  local dims = {}
  for _, x in ipairs(d.terms) do
    local p = x.pl[d.axis]
    if p and p.k == "S" then dims[#dims + 1] = p.dim end
  end
  for _, m in ipairs(behind) do at_mark(list, d, m, nil) end
  for _, m in ipairs(behind) do -- where inner axes hold the same dim, all of them have to go
    for _, x in ipairs(st.mesh.axes) do
      local p, q = st.at_mark[m].pl[x], st.at_mark[m].pl[d.axis]
      if x ~= d.axis and p and q and p.dim and p.dim == q.dim then add(list, { at = { [m] = layouts.R } }) end
    end
  end
  if d.kind == "norm" then add(list, { norm_stats = true }) end
  for _, m in ipairs(behind) do at_mark(list, d, m, "tok") end
  for _, x in ipairs(d.terms) do
    if x.weight then
      local p = x.pl[d.axis]
      if p then in_weights(list, d, x, nil) end
      for _, dim in ipairs(dims) do
        if util.has(x.dims, dim) and not (p and p.dim == dim) then in_weights(list, d, x, dim) end
      end
    end
  end
  for _, dim in ipairs(dims) do
    in_split(list, d, dim, false)
    in_split(list, d, dim, true)
    for _, m in ipairs(behind) do at_mark(list, d, m, dim) end
  end
  if util.has(dims, "hd") and not util.has(st.bound.split.kvh or {}, d.axis) then -- what was meant: heads, not parts of a head
    add(list, { split = { hd = layouts.R, kvh = d.axis } })
  end
  for _, dim in ipairs { "kvh", "embd" } do for _, m in ipairs(behind) do at_mark(list, d, m, dim) end end
end

local function two_dims_candidates(list, d)
  local function without(dim)
    local split = {}
    for k, axes in pairs(d.spec) do
      local left = {}
      for _, a in ipairs(axes) do if not (k == dim and a == d.axis) then left[#left + 1] = a end end
      if #left > 0 and util.has(d.tensor, k) then split[k] = axes_value(left) end
    end
    return next(split) and layouts.S(split) or layouts.R
  end
  for _, dim in ipairs { d.dims[2], d.dims[1] } do
    if d.what == "mark" then add(list, { at = { [d.name] = without(dim) } })
    elseif d.what == "weight" then
      local base = d.name:gsub("^blk%.%d+%.", "")
      add(list, { weights = { [base == d.name and base or "*" .. base] = without(dim) } })
      in_split(list, d, dim, false)
    end
  end
end

-- The mesh with one axis moved to the front (or the back). A text cannot hold aliases, so only where there are none.
local function reordered_mesh(list, d, front)
  local mesh, axes = d.st.mesh, {}
  if next(mesh.alias) then return end
  local function put(a) axes[#axes + 1] = a .. "=" .. mesh.size[a] .. (mesh.kind[a] and ":" .. mesh.kind[a] or "") end
  if front then put(d.axis) end
  for _, a in ipairs(mesh.axes) do if a ~= d.axis then put(a) end end
  if not front then put(d.axis) end
  add(list, { mesh = table.concat(axes, ",") })
end

local function unit_candidates(list, d)
  local st = d.st
  local size = st.mesh.size[d.axis]
  if d.dim == "kvh" then add(list, { split = { kvh = layouts.gqa(d.axis) } }) end
  if d.dim == "tok" then reordered_mesh(list, d, true) end
  if st.bound.shares[d.axis] then add(list, { shares = { [d.axis] = false } }) end
  if d.dim and st.bound.map[d.dim .. "@" .. d.axis] then add(list, { map = { [d.dim .. "@" .. d.axis] = false } }) end
  if d.dim and size then in_split(list, d, d.dim, false) end
end

local function candidates(d)
  local list = {}
  if not d.st then return list end
  if d.kind == "two_dims" then two_dims_candidates(list, d)
  elseif d.kind == "unit" then unit_candidates(list, d)
  elseif d.kind == "inner" then
    reordered_mesh(list, d, false)
    add(list, { at = { [d.st.mark_short] = layouts.R } })
  else rule_candidates(list, d) end
  return list
end

local function merged(a, b)
  local out = {}
  for k, v in pairs(a) do out[k] = type(v) == "table" and util.copy(v) or v end
  for k, v in pairs(b) do
    if type(v) == "table" and type(out[k]) == "table" then
      for n, x in pairs(v) do out[k][n] = x end
    else out[k] = v end
  end
  return out
end

local MOST_FIXES, MOST_TRIES, MOST_STEPS, WIDTH = 4, 160, 4, 8

-- Breadth first over patches. A step is kept only if it gets typing past the op that refused, so a search cannot circle.
local function search(first, layout, try)
  local queue, tried, seen, fixes = { { patch = {}, d = first, steps = 0 } }, 0, {}, {}
  local enough
  for _, node in ipairs(queue) do
    if enough and node.steps >= enough then break end
    for i, c in ipairs(candidates(node.d)) do
      if #fixes >= MOST_FIXES or tried >= MOST_TRIES or node.steps > 0 and i > WIDTH then break end
      local patch = merged(node.patch, c.patch)
      local text = layouts.text(patch)
      if not seen[text] then
        seen[text], tried = true, tried + 1
        local ok, e = try(layout:extend(patch))
        if ok then
          fixes[#fixes + 1], enough = text, node.steps + 1
        elseif node.steps + 1 < MOST_STEPS and err.is(e) and detail[e] and detail[e].st and detail[e].index > node.d.index then
          queue[#queue + 1] = { patch = patch, d = detail[e], steps = node.steps + 1 }
        end
      end
    end
  end
  return fixes
end

--- Look for fixes and write them into the error: fixes, hint and the text for people.
---@param e tpl.Err
---@param layout table
---@param try fun(patched: table): boolean, any  types the whole stage with another layout
function M.explain(e, layout, try)
  local d = detail[e]
  if e.code ~= "layout_conflict" or not d then return end
  e.fixes = search(d, layout, try)
  local text = e.text or e.message
  if #e.fixes > 0 then
    local listed = table.concat(e.fixes, ", or ")
    e.hint = d.kind == "unit" and e.hint .. "; " .. listed or "fixes: " .. listed
    e.text = text .. "\n  fixes: " .. (d.kind == "unit" and e.hint or listed)
  else
    e.text = text .. "\n  fixes: " .. (e.hint or "none found")
  end
end

return M
