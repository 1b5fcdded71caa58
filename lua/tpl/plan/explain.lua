-- SPDX-License-Identifier: Apache-2.0
--- Tell the journey of the activations through a typed stage in words: what lies where at each mark, which collective
--- gets it there and with how many bytes, how every dim is cut and why a cut is uneven. Text only, no decisions.
local marks = require "tpl.plan.marks"
local partition = require "tpl.plan.partition"
local util = require "tpl.util"

local M = {}

local concat = table.concat

-- The largest local size of a dim over the ranks.
local function local_count(graph, dim, axes, rows)
  if partition.is_dynamic(dim) then return math.ceil(rows / graph.mesh:pieces(axes)) end
  local most = 0
  for _, ranges in ipairs(graph.parts(dim, axes)) do most = math.max(most, partition.count(ranges)) end
  return most
end

--- Give the bytes of a value on the rank that holds most of it.
---@param graph tpl.Graph
---@param value table
---@param tokens integer   tokens of the step; one output row
---@param elem integer     bytes per element
---@return integer
function M.value_bytes(graph, value, tokens, elem)
  local n = elem
  for _, dim in ipairs(value.dims) do
    n = n * local_count(graph, dim, marks.axes_of(graph.mesh, value.pl, dim), dim == "out" and 1 or tokens)
  end
  return n
end

--- Give the bytes that a rank brings to a collective: the size of its operand.
---@param graph tpl.Graph
---@param op table
---@param tokens integer
---@param elem integer?  bytes per element, default 4
function M.comm_bytes(graph, op, tokens, elem)
  elem = elem or 4
  if op.kind == "norm" then return local_count(graph, op.ins[1].dims[1], marks.axes_of(graph.mesh, op.ins[1].pl, op.ins[1].dims[1]),
    op.ins[1].dims[1] == "out" and 1 or tokens) * elem end
  return M.value_bytes(graph, op.ins[1], tokens, elem)
end

local function bytes_text(n)
  if n < 10000 then return n .. " B" end
  if n < 1e7 then return ("%.1f kB"):format(n / 1e3) end
  return ("%.1f MB"):format(n / 1e6)
end

local function is_even(counts)
  for _, c in ipairs(counts) do if c ~= counts[1] then return false end end
  return true
end

local words = {
  kvh = "KV heads", grp = "query heads of a KV head", hd = "head elements", ffn = "FFN columns", vocab = "ids", embd = "hidden elements",
}

-- The coarsest unit at whose multiples all cuts of a dim fall, out of soft, soft/2 .. hard.
local function unit_of(cut, hard, soft, size)
  local function fits(unit)
    for _, ranges in ipairs(cut.pieces) do
      for _, r in ipairs(ranges) do
        local stop = r[1] + r[2]
        if r[1] % unit ~= 0 or stop % unit ~= 0 and stop ~= size then return false end
      end
    end
    return true
  end
  local unit = partition.lcm(hard, soft)
  while unit > hard and not fits(unit) do unit = unit / 2 end
  return math.max(unit, hard)
end

-- One line per cut that was used, and for an uneven one its reason.
local function cut_lines(graph)
  local out, seen = {}, {}
  for _, cut in ipairs(graph.tables.used) do
    local counts = util.map(cut.pieces, partition.count)
    local hard, soft = graph.units.hard[cut.dim] or 1, graph.units.soft[cut.dim] or 1
    local size, key = graph.sizes[cut.dim], cut.dim .. "@" .. concat(cut.axes, "+")
    if graph.mesh:pieces(cut.axes) > 1 and not seen[key] then
      seen[key] = true
      local line = ("  %s over %s: %s of %d %s"):format(cut.dim, concat(cut.axes, "+"), concat(counts, "/"), size, words[cut.dim] or "")
      if cut.dim == "kvh" and (graph.sizes.grp or 1) > 1 then
        local heads = util.map(counts, function(c) return c * graph.sizes.grp end)
        line = line .. (", so %s of %d heads"):format(concat(heads, "/"), size * graph.sizes.grp)
      end
      out[#out + 1] = (line:gsub("%s+$", ""))
      if hard > 1 then out[#out + 1] = ("    cut in units of %d: a quantisation block stays on one rank"):format(hard) end
      if not is_even(counts) then
        local axis = cut.axes[#cut.axes]
        local shares = graph.bound.shares[axis]
        local unit, n = unit_of(cut, hard, soft, size), graph.mesh:pieces(cut.axes)
        local units = math.ceil(size / unit)
        local why
        if graph.bound.map[key] then why = "by the layout's map"
        elseif shares then why = ("by shares %s on %s"):format(concat(shares, ":"), axis)
        elseif units % n ~= 0 then
          why = ("%d units%s over %d ranks, by largest remainder"):format(units, unit > 1 and " of " .. unit or "", n)
        else why = ("units of %d, the last one is short"):format(unit) end
        out[#out + 1] = ("    uneven: %s; partial sums have full shape, so the collectives at the marks stay even"):format(why)
      end
    end
  end
  for name, axes in util.pairs(graph.bound.gqa) do
    if axes.grp then
      out[#out + 1] = ("  %s is factored into %s x %s: KV heads repeat along %s"):format(name, axes.kvh, axes.grp, axes.grp)
    end
  end
  return out
end

local function comm_line(graph, kind, op, axes, at, opt)
  return ("    %-14s over %-8s at %-18s | %s per decoded token, %s per %d-token chunk"):format(kind, concat(axes, "+"), at,
    bytes_text(M.comm_bytes(graph, op, 1, opt.elem)), bytes_text(M.comm_bytes(graph, op, opt.tokens, opt.elem)), opt.tokens)
end

-- The journey as blocks of lines: before, one per layer, after.
local function journey(graph, opt)
  local sections, current, key = {}, nil, nil
  local function push(layer, line)
    if layer ~= key or not current then
      current, key = { layer = layer, lines = {} }, layer
      sections[#sections + 1] = current
    end
    table.insert(current.lines, line)
  end
  for _, e in ipairs(graph.log) do
    if e.kind == "mark" then push(e.mark.layer, ("  %s %s"):format(e.mark.full, e.mark.show))
    elseif e.kind == "stats" then push(e.op.layer, comm_line(graph, "all_reduce", e.op, e.axes, e.op.name, opt))
    else push(e.op.layer, comm_line(graph, e.op.kind, e.op, e.op.attrs.axes, e.op.kind == "gather" and "sample" or e.op.mark, opt)) end
  end
  return sections
end

local function general(lines) -- a layer's lines without its number
  return (concat(lines, "\n"):gsub("blk%.%d+%.", "blk.N."):gsub(" +|", " |"))
end

--- Write the explanation of a stage as lines.
---@param graph tpl.Graph
---@param opt {tokens: integer?, elem: integer?, all: boolean?}?  all: print every layer, also where it is like the one before
---@return string[]
function M.lines(graph, opt)
  opt = opt or {}
  opt = { tokens = opt.tokens or 512, elem = opt.elem or 4, all = opt.all }
  local out = { ("layout %s"):format(graph.bound.where or graph.file or "(table)") }
  if graph.file and graph.file ~= graph.bound.where then out[1] = out[1] .. "  (file " .. graph.file .. ")" end
  out[#out + 1] = ("mesh %s: %d rank%s"):format(tostring(graph.mesh), graph.mesh.n, graph.mesh.n == 1 and "" or "s")
  local cuts = cut_lines(graph)
  out[#out + 1] = #cuts > 0 and "cuts" or "cuts: none, every rank holds everything"
  for _, line in ipairs(cuts) do out[#out + 1] = line end
  out[#out + 1] = "journey"
  local last, skipped
  local function flush()
    if skipped then out[#out + 1] = ("  %s: the same"):format(skipped.from == skipped.to and "blk." .. skipped.to or
      ("blk.%d to blk.%d"):format(skipped.from, skipped.to)) end
    skipped = nil
  end
  for _, s in ipairs(journey(graph, opt)) do
    local text = s.layer >= 0 and general(s.lines)
    if text and text == last and not opt.all then
      skipped = skipped or { from = s.layer }
      skipped.to = s.layer
    else
      flush()
      for _, line in ipairs(s.lines) do out[#out + 1] = line end
    end
    last = text
  end
  flush()
  return out
end

return M
