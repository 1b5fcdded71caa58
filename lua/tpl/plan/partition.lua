-- SPDX-License-Identifier: Apache-2.0
--- Cut a dim into one list of ranges per rank. A range is {first, count}, 0-based; a list may have gaps.
--- One table is kept per (dim, axes) and shared by every tensor, so two tensors cannot disagree about a cut.
--- Largest remainder is Hamilton's apportionment: floor of the ideal part, what is left to the largest fractions.
local err = require "tpl.err"

local M = {}

-- A soft unit is kept while no rank gets more than this above what hard units alone would give it (layout.md 2.3).
local SLACK = 1 / 8

local floor, ceil, concat = math.floor, math.ceil, table.concat

local function gcd(a, b)
  while b ~= 0 do a, b = b, a % b end
  return a
end
local function lcm(a, b) return a / gcd(a, b) * b end
M.gcd, M.lcm = gcd, lcm

--- Add up the indices of a list of ranges.
function M.count(ranges)
  local n = 0
  for _, r in ipairs(ranges) do n = n + r[2] end
  return n
end

-- How many units, cut at the multiples of `unit`, lie in first..stop; the first and the last may be short.
local function units_in(first, stop, unit) return ceil(stop / unit) - floor(first / unit) end

--- Share k whole things among n by largest remainder; the lower index wins a tie.
---@param k integer
---@param n integer
---@param shares number[]?  weights, default equal
---@return integer[]
function M.apportion(k, n, shares)
  local total, left, got, order, frac = 0, k, {}, {}, {}
  for i = 1, n do total = total + (shares and shares[i] or 1) end
  for i = 1, n do
    local ideal = k * (shares and shares[i] or 1) / total
    got[i], order[i] = floor(ideal), i
    frac[i], left = ideal - got[i], left - got[i]
  end
  table.sort(order, function(a, b)
    if frac[a] ~= frac[b] then return frac[a] > frac[b] end
    return a < b
  end)
  for i = 1, left do got[order[i]] = got[order[i]] + 1 end
  return got
end

-- Hands the units out in order; what is adjacent stays one range.
local function deal(ranges, n, unit, shares)
  local total = 0
  for _, r in ipairs(ranges) do total = total + units_in(r[1], r[1] + r[2], unit) end
  local out, i = {}, 1
  local at = ranges[1] and ranges[1][1]
  for piece, want in ipairs(M.apportion(total, n, shares)) do
    local mine = {}
    while want > 0 do
      local stop = ranges[i][1] + ranges[i][2]
      local take = math.min(want, units_in(at, stop, unit))
      local upto = math.min(stop, (floor(at / unit) + take) * unit)
      local last = mine[#mine]
      if last and last[1] + last[2] == at then last[2] = last[2] + upto - at else mine[#mine + 1] = { at, upto - at } end
      want, at = want - take, upto
      if at == stop and ranges[i + 1] then
        i = i + 1
        at = ranges[i][1]
      end
    end
    out[piece] = mine
  end
  return out
end

local function is_close(coarse, fine)
  for i, ranges in ipairs(coarse) do
    local have = M.count(ranges)
    if have == 0 or have > M.count(fine[i]) * (1 + SLACK) then return false end
  end
  return true
end

--- Cut a list of ranges over n ranks. Cuts fall on multiples of `hard`; also of `soft`, or of soft/2, soft/4, ..
--- where a coarser unit would leave a rank empty or more than 1/8 above its part.
---@param ranges integer[][]
---@param n integer
---@param opt {hard: integer?, soft: integer?, shares: number[]?}?
---@return integer[][][]
function M.cut(ranges, n, opt)
  opt = opt or {}
  local hard, soft = opt.hard or 1, opt.soft or 1
  local fine = deal(ranges, n, hard, opt.shares)
  while soft > 1 and soft % 1 == 0 do
    local coarse = deal(ranges, n, lcm(hard, soft), opt.shares)
    if is_close(coarse, fine) then return coarse end
    soft = soft / 2
  end
  return fine
end

--- Say why a map by hand is no partition of `size` indices over n ranks in units of `hard`; nil if it is one.
---@return string?
function M.map_fault(map, n, size, hard)
  if type(map) ~= "table" or #map ~= n then return ("has %d entries for %d ranks"):format(type(map) == "table" and #map or 0, n) end
  local seen, total = {}, 0
  for _, ranges in ipairs(map) do
    for _, r in ipairs(ranges) do
      local first, count = r[1], r[2]
      if type(first) ~= "number" or type(count) ~= "number" or first < 0 or count < 1 or first % 1 ~= 0 or count % 1 ~= 0
        or first + count > size then
        return ("has a range that is not {first, count} inside 0..%d"):format(size - 1)
      end
      if first % hard ~= 0 or (first + count) % hard ~= 0 and first + count ~= size then return ("cuts inside a unit of %d"):format(hard) end
      for i = first, first + count - 1 do
        if seen[i] then return ("names index %d twice"):format(i) end
        seen[i] = true
      end
      total = total + count
    end
  end
  if total ~= size then return ("covers %d of %d"):format(total, size) end
end

---@class tpl.Tables
local Tables = {}
Tables.__index = Tables

--- Make the set of tables for one mesh.
---@param spec {mesh: tpl.Mesh, units: tpl.Units, shares: table?, map: table?}
---@return tpl.Tables
function M.tables(spec)
  return setmetatable({ mesh = spec.mesh, units = spec.units, shares = spec.shares or {}, map = spec.map or {}, made = {}, used = {} }, Tables)
end

-- tok and out are cut evenly by padding; only the order of their axes is checked here.
local dynamic = { tok = true, out = true }
M.is_dynamic = function(dim) return dynamic[dim] == true end

local function check_batch_order(self, dim, axes)
  local inside
  for _, a in ipairs(axes) do
    if self.mesh.kind[a] ~= "batch" then inside = inside or a
    elseif inside and dim == "tok" then
      err.throw { code = "layout_conflict", dim = dim, axis = a, fixes = {}, unit_error = true,
        message = ("dim 'tok': batch axis '%s' is inside '%s', which cuts inside requests"):format(a, inside),
        hint = "list batch axes first in the mesh" }
    end
  end
end

-- How many ranks would work, for the message of an empty share: k ranks on 'kvh' times g on 'grp', KV heads repeated.
local function factorings(units, n)
  local most, groups, by, totals = units:count("kvh"), units:count("grp"), {}, {}
  for k = 1, most do
    for g = 2, groups do by[k * g] = ("%d = %dx%d"):format(k * g, k, g) end
  end
  if by[n] then return { by[n] } end
  for t in pairs(by) do if t > most then totals[#totals + 1] = t end end
  table.sort(totals)
  local out = {}
  for i = 1, math.min(8, #totals) do out[i] = by[totals[i]] end
  return out
end

local function no_room(self, dim, n, axes, rank)
  local units = self.units
  local have, hard = units:count(dim), units.hard[dim] or 1
  local fix = n > have and ("at most %d ranks on '%s'"):format(have, dim) or "more even shares"
  local ways = dim == "kvh" and n > have and factorings(units, n) or {}
  if #ways > 0 then
    fix = fix .. "; or two axes, 'kvh' on the first and 'grp' on the second, so KV heads repeat: " .. concat(ways, ", ")
  end
  if hard > 1 then fix = fix .. "; or smaller blocks" end
  err.throw { code = "layout_conflict", dim = dim, axis = axes[#axes], fixes = {}, unit_error = true, hint = fix,
    message = ("dim '%s' (%d units%s) cannot feed %d ranks on axis %s: rank %d would be empty"):format(dim, have,
      hard > 1 and (" of %d, for whole quantisation blocks"):format(hard) or "", n, concat(axes, "+"), rank) }
end

local lookup

local function compute(self, dim, axes, key)
  local mesh, units = self.mesh, self.units
  local size, hard = units.size[dim], units.hard[dim] or 1
  if #axes == 0 then return { { { 0, size } } } end
  local axis = axes[#axes]
  local n = mesh.size[axis]
  if units.whole[dim] and n > 1 then
    err.throw { code = "layout_conflict", dim = dim, axis = axis, fixes = {}, unit_error = true, hint = units.whole[dim].hint,
      message = ("dim '%s' on axis '%s': %s"):format(dim, axis, units.whole[dim].why) }
  end
  local map = self.map[key]
  if map then
    local why = #axes > 1 and "is for one axis, this dim is cut by several" or M.map_fault(map, n, size, hard)
    if why then err.throw { code = "layout_error", message = ("layout.map['%s'] %s"):format(key, why) } end
    return map
  end
  local outer, out = {}, {}
  for i = 1, #axes - 1 do outer[i] = axes[i] end
  local opt = { hard = hard, soft = units.soft[dim], shares = self.shares[axis] }
  for _, piece in ipairs(lookup(self, dim, outer)) do
    for _, ranges in ipairs(M.cut(piece, n, opt)) do out[#out + 1] = ranges end
  end
  return out
end

function lookup(self, dim, axes)
  local key = dim .. "@" .. concat(axes, "+")
  local out = self.made[key]
  if out then return out end
  out = compute(self, dim, axes, key)
  for i, ranges in ipairs(out) do
    if M.count(ranges) == 0 then no_room(self, dim, #out, axes, i - 1) end
  end
  self.made[key] = out
  return out
end

--- Give the ranges of each piece of a dim cut by `axes` (outer first), one list per piece; raises where a piece is empty.
---@param dim string
---@param axes string[]  in mesh order
---@return integer[][][]? pieces  nil for tok and out, which are cut evenly per step
function Tables:get(dim, axes)
  if dynamic[dim] then
    check_batch_order(self, dim, axes)
    return nil
  end
  local pieces = lookup(self, dim, axes)
  if #axes > 0 and not self.used[pieces] then
    self.used[pieces] = true
    self.used[#self.used + 1] = { dim = dim, axes = axes, pieces = pieces }
  end
  return pieces
end

return M
