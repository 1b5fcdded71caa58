-- SPDX-License-Identifier: Apache-2.0
--- What this machine can do at most: probed, kept in the cache folder, and compared with what a run reached.
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
---@param how {seconds: number, bytes?: number}
---@return table? machine
---@return string? message
local function measure(how)
  local id = identity()
  local result, message = core().kernels.probe { threads = id.cores, seconds = how.seconds, bytes = how.bytes }
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
  local machine, message = measure { seconds = FULL_SECONDS }
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
  local ok, quick = pcall(measure, { seconds = QUICK_SECONDS, bytes = QUICK_BYTES })
  return ok and quick or nil
end

-- -- Shares ----------------------------------------------------------------------------------------------------------

local function number(x) return type(x) == "number" and x or nil end

--- Give the bytes that a decode step reads: all weights but an embedding that is only looked up, and the KV cache so far.
---@param p table            plan
---@param cached number      tokens in the cache, of all sequences together
function M.step_bytes(p, cached)
  local bytes = number(p.report.model and p.report.model.weight_bytes)
  if not bytes then return nil end
  if p.checkpoint and p.config and not p.config.tied then
    local embed = p.checkpoint:tensor(p.config.names == "gguf" and "token_embd.weight" or "model.embed_tokens.weight")
    bytes = bytes - (embed and embed.bytes or 0)
  end
  local kv, tokens = 0, number(p.report.kv and p.report.kv.tokens)
  for _, rank in ipairs(p.report.ranks or {}) do kv = kv + (number(rank.bytes and rank.bytes.kv) or 0) end
  return bytes + (tokens and tokens > 0 and kv / tokens * cached or 0)
end

-- Weights that stay in a cache are read faster than memory: then the limit is what a buffer of their size gives, if that is more.
local function limit_at(machine, bytes, reached)
  if reached <= machine.read_gb_s then return machine.read_gb_s end
  local ok, quick = pcall(measure, { seconds = QUICK_SECONDS, bytes = bytes })
  return math.max(machine.read_gb_s, ok and quick and number(quick.read_gb_s) or 0)
end

-- What a prompt's products multiply (kernels/cpu/linear.c): with act = auto bf16 on AMX, bytes elsewhere.
local function prefill_type(act, isa)
  if act == "auto" then return isa == "amx" and "bf16" or "i8" end
  return act
end

--- Give the share of the read bandwidth and of the matrix peak that a speed means; nil where unknown.
---@param machine table
---@param p table
---@param speed {tok_s: number, batch?: integer, position?: integer, prefill_tok_s?: number}
---@return number? bandwidth
---@return number? matrix
function M.shares(machine, p, speed)
  local bandwidth, matrix
  local read = M.step_bytes(p, (speed.position or 0) * (speed.batch or 1))
  if read and speed.tok_s and number(machine.read_gb_s) then
    local reached = read * speed.tok_s / (speed.batch or 1) / 1e9
    bandwidth = reached / limit_at(machine, read, reached)
  end
  local params = number(p.report.model and p.report.model.params)
  local peaks = machine.matrix_gflop_s or {}
  local peak = number(peaks[prefill_type(p.deploy and p.deploy.act, machine.isa)]) or number(peaks.f32)
  if params and peak and speed.prefill_tok_s then matrix = 2 * params * speed.prefill_tok_s / 1e9 / peak end
  return bandwidth, matrix
end

return M
