-- SPDX-License-Identifier: Apache-2.0
--- Read and check the knobs for tests (engine.md section 10); every envelope repeats those that are set.
local err = require("tpl.err")

local M = {}

local function sys() return require("tpl.core").sys end

local function malformed(name, value, wanted)
  err.throw { code = "usage", where = name, message = string.format("malformed value '%s', %s is needed", value, wanted) }
end

--- The instruction set must be one that this machine has, or everything after would die of a signal.
local function check_isa(value)
  local kernels = require("tpl.core").kernels
  if not (kernels and kernels.isas) then return end
  local names = {}
  for _, isa in ipairs(kernels.isas()) do
    names[#names + 1] = isa.name
    if isa.name == value then
      if isa.usable then return end
      err.throw { code = "usage", where = "TPL_ISA", message = string.format("this machine lacks %s", value) }
    end
  end
  malformed("TPL_ISA", value, "one of " .. table.concat(names, ", "))
end

local function check_fault(value)
  local fault, message = sys().fault(value)
  if not fault then
    err.throw { code = "usage", where = "TPL_FAULT", message = tostring(message):gsub("^TPL_FAULT: ", "") }
  end
end

local checks = {
  TPL_ISA = check_isa,
  TPL_FAULT = check_fault,
  TPL_SEED = function(value)
    local n = value:find("^%d+$") and tonumber(value)
    if not n or n > 2 ^ 53 then malformed("TPL_SEED", value, "a whole number from 0 to 2^53") end
  end,
  TPL_PAGE_ORDER = function(value)
    if value ~= "shuffle" then malformed("TPL_PAGE_ORDER", value, "'shuffle'") end
  end,
  TPL_DETERMINISTIC = function(value)
    if value ~= "1" and value ~= "0" then malformed("TPL_DETERMINISTIC", value, "0 or 1") end
  end,
}

local names = { "TPL_ISA", "TPL_FAULT", "TPL_SEED", "TPL_PAGE_ORDER", "TPL_DETERMINISTIC" }

--- Give the knobs of the environment that are set, as texts; throws a usage error for a malformed one.
function M.read()
  local knobs = {}
  for _, name in ipairs(names) do
    local value = sys().env(name)
    if value then
      checks[name](value)
      knobs[name] = value
    end
  end
  return knobs
end

--- Add the knobs that are options.
function M.add_options(knobs, opts)
  for _, name in ipairs { "no_fuse", "no_graph", "deterministic", "tune" } do
    if opts[name] ~= nil then knobs[name] = opts[name] end
  end
end

return M
