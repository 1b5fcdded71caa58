-- SPDX-License-Identifier: Apache-2.0
--- Holds the state of the render that is running in this Lua state: budgets, line, escaping, clock.
--- A chat template is a program from a stranger (facts/reliability.md B5), so every loop turn, call
--- and byte produced is paid for here. One render runs at a time; `swap` makes nesting safe.
local errors = require("tpl.jinja.errors")

local M = {}

---@class tpl.TemplateLimits
---@field steps integer?    loop turns, calls and units of 32 bytes or items touched
---@field output integer?   bytes of the result, and of any single string; an eighth of it for items of a list
---@field depth integer?    nested macro calls and recursive loops
M.defaults = { steps = 1000000, output = 4 * 1024 * 1024, depth = 32 }

-- Long conversations need more: each byte of input grants this many steps and bytes.
local STEPS_PER_BYTE, OUTPUT_PER_BYTE = 2, 2
local UNIT, ITEMS = 32, 8

--- Fresh run state; `now` is a table like os.date("*t").
function M.new(limits, now)
  limits = limits or {}
  return {
    steps = limits.steps or M.defaults.steps,
    output = limits.output or M.defaults.output,
    max_depth = limits.depth or M.defaults.depth,
    depth = 0, line = 0, autoescape = false, now = now,
  }
end

-- Replaced by swap(); this one serves code that runs outside a render (constant folding, tests).
local run = M.new()

--- Install `other` as the running state and return the one it replaces.
function M.swap(other)
  local before = run
  run = other
  return before
end

function M.current()
  return run
end

--- Pay for n units of work.
function M.spend(n)
  local left = run.steps - n
  run.steps = left
  if left < 0 then errors.raise("TimeoutError", "template exceeds its step budget") end
end

--- Raise the budgets by what n bytes of input need.
function M.grant(n)
  run.steps = run.steps + n * STEPS_PER_BYTE
  run.output = run.output + n * OUTPUT_PER_BYTE
end

--- Pay for the last `added` bytes of a string that has grown to n.
function M.grow(n, added)
  if n > run.output then M.bytes(n) end
  M.spend(added / UNIT)
end

--- Pay for a string of n bytes that is about to be made or searched.
function M.bytes(n)
  if n > run.output then
    errors.raise("MemoryError", "template makes a string of %.0f bytes, at most %d are allowed", n, run.output)
  end
  M.spend(n / UNIT)
end

--- Pay for handling a string of n bytes character by character.
function M.chars(n)
  M.spend(n / 4)
end

--- Pay for the last `added` items of a list that has grown to n.
function M.more_items(n, added)
  if n * ITEMS > run.output then
    errors.raise("MemoryError", "template makes a list of %.0f items, at most %d are allowed", n, run.output / ITEMS)
  end
  M.spend(added / UNIT)
end

--- Pay for a list of n items that is about to be made.
function M.items(n)
  M.more_items(n, n)
end

--- Enter a macro or a recursive loop; pair with leave().
function M.enter()
  local depth = run.depth + 1
  if depth > run.max_depth then
    errors.raise("RecursionError", "maximum recursion depth exceeded: %d nested calls", run.max_depth)
  end
  run.depth = depth
  M.spend(1)
end

function M.leave()
  run.depth = run.depth - 1
end

return M
