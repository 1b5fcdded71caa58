-- SPDX-License-Identifier: Apache-2.0
--- Complete JSON results: every promised field is there, null or [] where this version has nothing to say (interface.md).
local json = require("tpl.json")

local M = {}

--- Make a list that is written as [] when it is empty.
function M.list(values) return setmetatable(values or {}, json.array_mt) end

--- Round a number to a whole one, as all `_us` fields are; leaves null and nil alone.
function M.whole(x) return type(x) == "number" and math.floor(x + 0.5) or x end

local LIST = {}

--- Copy a value and complete it after a shape: a table of fields, LIST for lists, NULL for the rest.
local function complete(value, shape)
  if value == json.null then return value end
  if shape == LIST then return type(value) == "table" and M.list(value) or M.list() end
  if type(shape) ~= "table" then -- NULL below
    if value == nil then return json.null end
    return value
  end
  if shape.each then
    local list = {}
    for i, item in ipairs(type(value) == "table" and value or {}) do list[i] = complete(item, shape.each) end
    return M.list(list)
  end
  if value == nil and shape.may_be_null then return json.null end
  local out = {}
  for key, x in pairs(type(value) == "table" and value or {}) do out[key] = x end
  for key, inner in pairs(shape) do
    if key ~= "may_be_null" then out[key] = complete(out[key], inner) end
  end
  return out
end

local NULL = false -- a field without a shape of its own

local plan_shape = {
  plan_hash = NULL, program_hash = NULL, fits = NULL,
  model = { arch = NULL, params = NULL, weight_bytes = NULL, format = NULL, sha256 = NULL },
  stages = { each = {
    i = NULL, layers = LIST, ranks = LIST, axes = { each = { name = NULL, size = NULL, kind = NULL } },
    programs = { each = { kind = NULL, ops = NULL, hash = NULL } },
  } },
  ranks = { each = {
    rank = NULL, stage = NULL, coord = {}, uid = NULL, cpus = LIST, numa = NULL, shards = {}, read_bytes = NULL, kv_tokens = NULL,
    replica = NULL,
    bytes = { weights = NULL, arena = NULL, comm = NULL, kv = NULL, io = NULL, other = NULL, total = NULL, capacity = NULL,
      stranded = NULL },
  } },
  kv = { tokens = NULL, page = NULL, groups = LIST, domains = LIST, max_len = NULL, max_concurrency = NULL, limiting_rank = NULL },
  collectives = { each = {
    i = NULL, kind = NULL, stage = NULL, axes = LIST, group = LIST, mark = NULL, op = NULL, dtype = NULL, count = NULL,
    bytes = { decode = NULL, prefill = NULL }, us = { decode = NULL, prefill = NULL },
  } },
  cost = { ttft_us = NULL, itl_us = NULL, tok_s = NULL, comm_share = NULL, bubble = NULL, min_concurrency = NULL, stage_imbalance = NULL,
    roofline_share = NULL, bound = NULL, stages = LIST, link_bytes_per_token = LIST, calibrated = NULL },
  choice = { policy = NULL, where = NULL, reasons = LIST, excluded = LIST, alternatives = LIST },
  env = LIST, moves = LIST, replicas = LIST, degrees = { tp = NULL, pp = NULL, ep = NULL, dp = NULL },
  emit = { may_be_null = true }, why_not = { may_be_null = true },
}

--- Complete the result of `tpl plan`.
---@param report table
---@return table
function M.plan(report) return complete(report, plan_shape) end

local verify_shape = {
  passed = NULL, reference = NULL, backend = NULL, isa = NULL, seed = NULL, fused_passed = NULL, ops_compared = NULL, max_nmse = NULL,
  tolerance = NULL, first_diff = NULL, marks = { each = { name = NULL, nmse = NULL } }, order_check = NULL,
}

--- Complete the result of `tpl verify`.
function M.verify(result) return complete(result, verify_shape) end

local bench_shape = {
  machine = { cpu = NULL, isa = NULL, cores = NULL, read_gb_s = NULL, matrix_gflop_s = { f32 = NULL, bf16 = NULL, i8 = NULL },
    barrier_us = NULL },
  cases = { each = {
    name = NULL, plan_hash = NULL, isa = NULL, prompt_tokens = NULL, new_tokens = NULL, batch = NULL, depth = NULL, prefill_tok_s = NULL,
    decode_tok_s = NULL, ttft_us = NULL, itl_us = { p50 = NULL, p99 = NULL }, share_bandwidth = NULL, share_matrix = NULL,
    comm_share = NULL, allocs_per_step = NULL, syncs_per_layer = NULL, rss_peak_bytes = NULL, load_us = NULL, read_bytes = NULL,
  } },
  pairs = LIST,
}

--- Complete the result of `tpl bench`.
function M.bench(result) return complete(result, bench_shape) end

local version_shape = {
  commit = NULL, isa = LIST, isa_used = NULL,
  backends = { each = { name = NULL, built = NULL, loaded = NULL, why_not = NULL } },
  transports = LIST, models = LIST, formats = LIST, ops = { each = { name = NULL, backend = NULL, dtypes = LIST, isa = LIST } },
}

--- Complete the result of `tpl version`.
function M.version(result) return complete(result, version_shape) end

return M
