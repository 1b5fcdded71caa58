-- SPDX-License-Identifier: Apache-2.0
--- Check a plan against one rank: run the same tokens on both, in chunks and with some decoded tokens, and
--- compare what every op left behind on every rank. The reference is one rank without fusion; the plan runs
--- fused and unfused. The first op that differs is named.
local core = require "tpl.core"
local engines = require "tpl.engine"
local err = require "tpl.err"
local json = require "tpl.json"
local make = require "tpl.plan.make"
local mesh = require "tpl.plan.mesh"
local order = require "tpl.plan.order"
local tap = require "tpl.tap"
local util = require "tpl.util"

local M = {}

-- engine.md section 9 for f32. With act = "auto" and "bf16" activations are rounded to 15 or 8 bits and the KV cache to f16, at
-- other values on other ranks: 1.3e-4 is the most that SmolLM2's 30 layers made of it, and a wrong layout makes 1e-2 and more.
local tolerances = { f32 = 1e-10, auto = 2e-3, bf16 = 2e-3 }
local N_PROMPT, CHUNK, N_NEW = 17, 7, 2

-- A plain generator (Park and Miller 1988), so that the tokens depend on the seed only.
local function tokens(seed, vocab)
  local s, ids = seed % 2147483646 + 1, {}
  for i = 1, N_PROMPT do
    s = s * 48271 % 2147483647
    ids[i] = s % vocab
  end
  return ids
end

-- -- Running ------------------------------------------------------------------------------------------------

-- Values of all steps, and the engine that must stay open while they are read.
local function run(plan, ids, options)
  local e, why = engines.open(plan, options)
  if not e then err.throw(why) end
  e.box:tap_begin()
  local ok, failure = pcall(function()
    local results, bad = e:generate { rows = { { prompt_ids = ids, max_tokens = N_NEW, ignore_eos = true } } }
    if bad then err.throw(bad) end
    if results[1].error and results[1].error.code ~= "numeric_error" then err.throw { code = results[1].error.code, message = results[1].error.message } end
  end)
  local values = tap.values(plan, e.box:tap_end())
  if not ok then
    e:close()
    error(failure, 0)
  end
  return values, e
end

local function reference_deploy(deploy)
  local d = setmetatable(util.copy(deploy), getmetatable(deploy))
  d.mesh, d.pp, d.stages, d.shares, d.layout, d.place = mesh.new "tp=1", 1, nil, nil, {}, "auto" -- nothing is cut, so every model has it
  d.replicas, d.require = 1, {}
  return d
end

local function by_step_and_name(values)
  local out, steps, n = {}, {}, 0
  for _, v in ipairs(values) do
    if not steps[v.step] then
      steps[v.step] = n
      n = n + 1
    end
    out[steps[v.step] .. "/" .. v.name] = v
    v.step_no = steps[v.step]
  end
  return out
end

-- -- Comparing ----------------------------------------------------------------------------------------------

local function finite(x) return x == x and math.abs(x) < math.huge end

-- Compares elements given by each(f(value, global index)); gives nmse, largest difference and where it is. A part that happens to be small
-- (one logit near zero) is measured against the power that as many elements of the whole have, or rounding would look like a difference.
local function compare(ref, power, each)
  local sum, norm, most, at, n = 0, 0, 0, 0, 0
  each(function(x, g)
    local d = x - ref[g]
    if not finite(d) then d = math.huge end
    sum, norm, n = sum + d * d, norm + ref[g] * ref[g], n + 1
    if math.abs(d) > most then most, at = math.abs(d), g end
  end)
  local nmse = sum == 0 and 0 or sum / math.max(norm, n * power, 1e-300)
  return nmse, most, at
end

local function mean_power(whole, n)
  local sum = 0
  for i = 0, n - 1 do sum = sum + whole[i] * whole[i] end
  return n > 0 and finite(sum) and sum / n or 0
end

local function is_partial(v)
  for _, p in pairs(v.pl) do if p.k == "P" then return true end end
  return false
end

-- The global index as [row, i, j, ..] over the value's dims.
local function coordinates(v, g)
  local out = {}
  for i = #v.sizes, 1, -1 do
    table.insert(out, 1, g % v.sizes[i])
    g = math.floor(g / v.sizes[i])
  end
  table.insert(out, 1, g)
  return json.array(out)
end

-- Which rank's part of a product is wrong: y = x w^T is computed again from its own input and the checkpoint,
-- for one row.
local function blame_product(plan, v, inputs, row)
  local op, w = v.low_op, v.low_op.ws[1]
  for k, out in ipairs(op.outs) do if out.name == v.name then w = op.ws[k] or w end end
  local x = inputs[v.step_no .. "/" .. op.ins[1].name]
  if not x then return nil end
  local worst, guilty = 0, nil
  for i, p in ipairs(v.pieces) do
    local r = p.rank - plan.stages[v.stage + 1].first_rank + 1
    local xp = x.pieces[i]
    local d = core.engine.product_error(plan.checkpoint, w.tensor, w.row_index[r], w.col_index[r],
      xp.data + row * xp.cols, p.data + row * p.cols)
    if d and not finite(d) then d = math.huge end
    if d and d > worst then worst, guilty = d, p.rank end
  end
  return guilty
end

-- A rank holds the row that is looked up, or zeros; the one whose rows are farthest from both is to blame.
local function blame_lookup(v, ref)
  local worst, guilty = 0, nil
  for _, p in ipairs(v.pieces) do
    local zero, equal = {}, {} -- squared distances, by row
    tap.each(v, p, function(i, g)
      local row, y = math.floor(g / v.cols), p.data[i]
      zero[row], equal[row] = (zero[row] or 0) + y * y, (equal[row] or 0) + (y - ref[g]) ^ 2
    end)
    for row, d in pairs(zero) do
      d = math.min(d, equal[row])
      if not finite(d) then d = math.huge end
      if d > worst then worst, guilty = d, p.rank end
    end
  end
  return guilty
end

-- The rank whose part of an elementwise op is farthest from what its own operands give: want(piece number, local and global index).
local function blame_elements(v, want)
  local worst, guilty = 0, nil
  for i, p in ipairs(v.pieces) do
    tap.each(v, p, function(at, g)
      local d = math.abs(p.data[at] - want(i, at, g))
      if not finite(d) then d = math.huge end
      if d > worst then worst, guilty = d, p.rank end
    end)
  end
  return guilty
end

-- The bias of a partial sum belongs on one rank; what it is follows from the values of one rank before and after.
local function blame_bias(plan, v, ref, inputs, reference)
  local low = v.low_op.ins[1]
  local x, before = inputs[v.step_no .. "/" .. low.name], reference[v.step_no .. "/" .. (low.base or low.name)]
  if not x or not before then return nil end
  before.whole = before.whole or tap.whole(before)
  local first, on = plan.stages[v.stage + 1].first_rank, v.low_op.imm[1].i
  return blame_elements(v, function(i, at, g)
    local here = type(on) == "table" and on[v.pieces[i].rank - first + 1] or on
    return x.pieces[i].data[at] + (here == 1 and ref[g] - before.whole[g] or 0)
  end)
end

local function blame_add(v, inputs)
  local a, b = inputs[v.step_no .. "/" .. v.low_op.ins[1].name], inputs[v.step_no .. "/" .. v.low_op.ins[2].name]
  if not a or not b then return nil end
  return blame_elements(v, function(i, at) return a.pieces[i].data[at] + b.pieces[i].data[at] end)
end

local function blame_partial(plan, v, ref, inputs, reference, row)
  local kind = v.low_op.kind
  if kind == "linear" then return blame_product(plan, v, inputs, row) end
  if kind == "embed" or kind == "rows" then return blame_lookup(v, ref) end
  if kind == "bias" then return blame_bias(plan, v, ref, inputs, reference) end
  if kind == "add" then return blame_add(v, inputs) end
end

local function diff_of(plan, v, found, ref, inputs, reference)
  local rank = found.rank or blame_partial(plan, v, ref, inputs, reference, math.floor(found.at / v.cols))
  return { op = v.name, layer = v.layer, mark = v.mark, rank = rank or json.null, axis = v.axis or json.null,
    nmse = finite(found.nmse) and found.nmse or json.null,
    max_abs = finite(found.most) and found.most or json.null, index = coordinates(v, found.at) }
end

-- Compares one value on every rank; partial sums only as a whole.
local function check_value(v, ref, power)
  if is_partial(v) then
    local whole = tap.whole(v)
    local nmse, most, at = compare(ref, power, function(f) for g = 0, v.rows * v.cols - 1 do f(whole[g], g) end end)
    return { nmse = nmse, most = most, at = at }
  end
  local worst = { nmse = 0, most = 0, at = 0 }
  for _, p in ipairs(v.pieces) do
    local nmse, most, at = compare(ref, power, function(f) tap.each(v, p, function(i, g) f(p.data[i], g) end) end)
    if nmse > worst.nmse then worst = { nmse = nmse, most = most, at = at, rank = p.rank } end
  end
  return worst
end

---@class tpl.VerifyRun
---@field compared integer
---@field max_nmse number
---@field first table?
---@field by_name table<string, number>

local function check_run(plan, values, reference, tolerance)
  local out = { compared = 0, max_nmse = 0, by_name = {} }
  local inputs = by_step_and_name(values)
  for _, v in ipairs(values) do
    local r = reference[v.step_no .. "/" .. v.base]
    if r and r.rows == v.rows and r.cols == v.cols then
      r.whole = r.whole or tap.whole(r)
      r.power = r.power or mean_power(r.whole, r.rows * r.cols)
      local found = check_value(v, r.whole, r.power)
      out.compared, out.max_nmse = out.compared + 1, math.max(out.max_nmse, found.nmse)
      out.by_name[v.name] = math.max(out.by_name[v.name] or 0, found.nmse)
      if found.nmse > tolerance and not out.first then out.first = diff_of(plan, v, found, r.whole, inputs, reference) end
    end
  end
  return out
end

-- -- The result ---------------------------------------------------------------------------------------------

local function mark_list(plan, by_name)
  local out = json.array {}
  for _, s in ipairs(plan.stages) do
    for _, m in ipairs(s.graph.marks) do
      local v = s.lowered.values[m.value.id]
      if v and by_name[v.name] then out[#out + 1] = { name = m.full, nmse = by_name[v.name] } end
    end
  end
  return out
end

local function check_order(plan)
  for _, s in ipairs(plan.stages) do
    local _, e = err.try(order.check, order.by_rank(s.graph))
    if e then return tostring(e) end
  end
end

local function verify(deploy, options)
  local seed = options.seed or tonumber(core.sys.env "TPL_SEED") or 1
  local function plan_of(d, no_fuse)
    local p, e = make.make(d, { no_fuse = no_fuse })
    if not p then err.throw(e) end
    return p
  end
  local plan, plain = plan_of(deploy, options.no_fuse), plan_of(deploy, "all")
  local one = plan_of(reference_deploy(deploy), "all")
  local ids, tolerance = tokens(seed, plan.config.vocab), tolerances[deploy.act] or tolerances.auto
  local ref_values, ref_engine = run(one, ids, { fault = "", chunk = CHUNK, stall_s = options.stall_s })
  local reference = by_step_and_name(ref_values)
  local n_warnings = #plan.warnings
  local function check(p)
    local values, e = run(p, ids, { chunk = CHUNK, fault = options.fault, stall_s = options.stall_s })
    by_step_and_name(values)
    local result = check_run(p, values, reference, tolerance)
    e:close()
    result.warning = p.warnings[n_warnings + 1]
    return result
  end
  local unfused, fused = check(plain), check(plan)
  ref_engine:close()
  local disorder = check_order(plan)
  local first = unfused.first or fused.first
  return { passed = not first and not disorder, reference = "one rank, unfused", backend = "cpu",
    isa = ref_engine.isa, seed = seed, fused_passed = not fused.first,
    ops_compared = unfused.compared + fused.compared, max_nmse = math.max(unfused.max_nmse, fused.max_nmse),
      tolerance = tolerance, first_diff = first or json.null,
    marks = mark_list(plan, fused.by_name), order_check = disorder or true, plan_hash = plan.hash,
    warning = unfused.warning and fused.warning or nil }
end

--- Verify a deployment; act is f32 unless the caller chose another. A run that fails is an error, a run that
--- differs is a result.
---@param deploy tpl.Deploy
---@param options {seed: integer?, no_fuse: any, fault: string?, stall_s: number?}?
---@return table? result  fields of `tpl verify`
---@return tpl.Err?
function M.verify(deploy, options)
  return err.try(verify, deploy, options or {})
end

return M
