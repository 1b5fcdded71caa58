-- SPDX-License-Identifier: Apache-2.0
--- Compare what a run reached with what this machine can do at most (tpl.rates).
local rates = require("tpl.rates")

local M = {}

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
  local ok, quick = pcall(rates.measure, { bytes = bytes })
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
