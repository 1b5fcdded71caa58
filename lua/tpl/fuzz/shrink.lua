-- SPDX-License-Identifier: Apache-2.0
--- Make a failing case smaller: take parts of the layout, the model and the mesh away one at a time, as long as it still fails.
local draw = require "tpl.fuzz.draw"
local util = require "tpl.util"

local M = {}

local function deep(t)
  if type(t) ~= "table" then return t end
  local out = {}
  for k, v in pairs(t) do out[k] = deep(v) end
  return out
end

-- Drops the last axis and every word that names it.
local function drop_axis(case)
  local gone, l = table.remove(case.axes)[1], case.layout
  local function clean(spec)
    for d, a in pairs(spec) do if a == gone then spec[d] = nil end end
  end
  clean(l.split)
  for _, f in ipairs { l.at, l.weights } do for _, spec in pairs(f) do clean(spec) end end
  if l.input then clean(l.input) end
  if l.pos == gone then l.pos = nil end
  if l.shares then l.shares[gone] = nil end
  for key in pairs(l.map or {}) do if key:match("@(.*)$") == gone then l.map = nil end end
end

local plainest = { pos = "none", norm = "none", mlp = "plain", qk = false, mix = false, par = false, tied = false, softcap = false, bias = false,
  interleaved = false }

-- Every way to make a case one step smaller: functions that change a copy.
local function steps(case)
  local out, l = {}, case.layout
  local function add(f) out[#out + 1] = f end
  if #case.axes > 1 then add(drop_axis) end
  for i, a in ipairs(case.axes) do
    if a[3] then add(function(c) c.axes[i][3] = nil end) end
    if a[2] > 2 then
      add(function(c)
        c.axes[i][2] = 2
        if c.layout.shares and c.layout.shares[a[1]] then c.layout.shares[a[1]][3] = nil end
      end)
    end
  end
  for _, f in ipairs { "shares", "map", "pos", "input" } do if l[f] then add(function(c) c.layout[f] = nil end) end end
  if l.norm_stats then add(function(c) c.layout.norm_stats = false end) end
  for _, f in ipairs { "split", "at", "weights" } do
    for _, key in ipairs(util.keys(l[f])) do add(function(c) c.layout[f][key] = nil end) end
  end
  for k, v in util.pairs(plainest) do if case.v[k] ~= v then add(function(c) c.v[k] = v end) end end
  if case.c.block then add(function(c) c.c.block = nil end) end
  return out
end

--- Find a case that fails and has no smaller step that fails.
---@param case tpl.fuzz.Case
---@param fails fun(case: tpl.fuzz.Case): boolean
---@return tpl.fuzz.Case
function M.smallest(case, fails)
  local again = true
  while again do
    again = false
    for _, step in ipairs(steps(case)) do
      local smaller = deep(case)
      step(smaller)
      draw.fit(smaller)
      if fails(smaller) then
        case, again = smaller, true
        break
      end
    end
  end
  return case
end

return M
