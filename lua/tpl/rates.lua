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

-- Read bandwidth depends on how much is read over and over (a small model stays in the last cache) and on how many threads read.
local CURVE_BYTES = { 24 * 2 ^ 20, 96 * 2 ^ 20, 192 * 2 ^ 20, 448 * 2 ^ 20 }
local CURVE_SECONDS = 0.1

-- 1, 2, 4 .. and all of them.
local function thread_counts(cores)
  local out, n = {}, 1
  while n < cores do
    out[#out + 1] = n
    n = 2 * n
  end
  out[#out + 1] = cores
  return out
end

--- Measure read bandwidth by bytes and threads, and the arithmetic of one thread.
---@return {threads: integer, bytes: integer, gb_s: number}[]
---@return table<string, number>   GFLOP/s of one thread
local function curve(cores)
  local out, one = {}, {}
  for _, threads in ipairs(thread_counts(cores)) do
    for _, bytes in ipairs(CURVE_BYTES) do
      local r = core().kernels.probe { threads = threads, seconds = CURVE_SECONDS, bytes = bytes }
      if r then
        out[#out + 1] = { threads = threads, bytes = bytes, gb_s = r.read_gb_s }
        for _, k in ipairs { "f32", "bf16", "i8" } do
          one[k] = threads == 1 and math.max(one[k] or 0, r[k .. "_gflop_s"]) or one[k]
        end
      end
    end
  end
  return out, one
end

--- Measure. Gives the `machine` object of `tpl bench`.
---@param how {seconds?: number, bytes?: number, curve?: boolean}
---@return table? machine
---@return string? message
function M.measure(how)
  local id = identity()
  local result, message = core().kernels.probe { threads = id.cores, seconds = how.seconds or QUICK_SECONDS, bytes = how.bytes }
  if not result then return nil, message end
  local machine = {
    cpu = id.cpu or json.null, isa = id.isa, cores = id.cores, read_gb_s = null_if_zero(result.read_gb_s),
    matrix_gflop_s = {
      f32 = null_if_zero(result.f32_gflop_s), bf16 = null_if_zero(result.bf16_gflop_s), i8 = null_if_zero(result.i8_gflop_s),
    },
    barrier_us = null_if_zero(result.barrier_us),
  }
  if how.curve then machine.read, machine.core_gflop_s = curve(id.cores) end
  return machine
end

--- Measure thoroughly, and keep the result for `tpl run`.
function M.probe()
  local machine, message = M.measure { seconds = FULL_SECONDS, curve = true }
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
