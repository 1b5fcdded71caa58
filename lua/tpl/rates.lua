-- SPDX-License-Identifier: Apache-2.0
--- What this machine's CPUs can do at most: measured, and kept in the cache folder. The cost model prices CPU ranks by it.
local find = require("tpl.find")
local json = require("tpl.json")

local M = {}

local function core() return require("tpl.core") end

local QUICK_SECONDS, QUICK_BYTES = 0.15, 64 * 2 ^ 20 -- together under 0.2 s
local FULL_SECONDS = 2

--- Name the instruction set in use.
function M.isa()
  return find.env("TPL_ISA") or core().kernels.isa_best()
end

--- Give what identifies this machine in the stored file.
local function identity()
  local sys = core().sys
  return { cpu = sys.cpu_model(), cores = sys.cpus(), isa = M.isa() }
end

local function path() return find.join(find.cache(), "probe.json") end

local function null_if_zero(x)
  if x == nil or x == 0 then return json.null end
  return x
end

--- Measure. Gives the `machine` object of `tpl bench`.
---@param how {seconds?: number, bytes?: number}
---@return table? machine
---@return string? message
function M.measure(how)
  local id = identity()
  local result, message = core().kernels.probe { threads = id.cores, seconds = how.seconds or QUICK_SECONDS, bytes = how.bytes }
  if not result then return nil, message end
  return {
    cpu = id.cpu or json.null, isa = id.isa, cores = id.cores, read_gb_s = null_if_zero(result.read_gb_s),
    matrix_gflop_s = {
      f32 = null_if_zero(result.f32_gflop_s), bf16 = null_if_zero(result.bf16_gflop_s), i8 = null_if_zero(result.i8_gflop_s),
    },
    barrier_us = null_if_zero(result.barrier_us),
  }
end

--- Measure thoroughly, and keep the result for `tpl run`.
function M.probe()
  local machine, message = M.measure { seconds = FULL_SECONDS }
  if not machine then return nil, message end
  core().sys.mkdir_p(find.cache())
  core().sys.write_file(path(), json.encode(machine) .. "\n") -- a cache that cannot be written costs a probe later, no more
  return machine
end

--- Give the stored measurement of this machine, nil when there is none.
function M.stored()
  local text = core().sys.exists(path()) and core().sys.read_file(path(), 65536)
  local machine = text and json.decode(text)
  local id = identity()
  if type(machine) ~= "table" or machine.cores ~= id.cores or machine.isa ~= id.isa then return nil end
  if machine.cpu ~= (id.cpu or json.null) or type(machine.read_gb_s) ~= "number" then return nil end
  return machine
end

--- Give the stored measurement, else a quick one; nil when neither works.
function M.known()
  local machine = M.stored()
  if machine then return machine end
  local ok, quick = pcall(M.measure, { seconds = QUICK_SECONDS, bytes = QUICK_BYTES })
  return ok and quick or nil
end

return M
