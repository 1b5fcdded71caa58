-- SPDX-License-Identifier: Apache-2.0
--- The row command `tpl score`: the log probability of every token given those before it.
local engine_rows = require("tpl.cli.engine_rows")
local err = require("tpl.err")
local json = require("tpl.json")
local out = require("tpl.cli.out")

local M = {}

--- Make the first position null: nothing comes before it.
local function with_null(list, n)
  local values = {}
  for i = 1, n do
    local x = list and list[i]
    values[i] = x == nil and json.null or x
  end
  return out.array(values)
end

local function top_value(top)
  local values = {}
  for i, list in ipairs(top or {}) do
    local at = {}
    if type(list) == "table" then
      for j, x in ipairs(list) do at[j] = out.ordered({ "id", "logprob" }, { id = x.id, logprob = x.logprob }) end
    end
    values[i] = out.array(at)
  end
  return out.array(values)
end

local function line(result, row, request)
  return out.ordered({ "id", "ids", "logprobs", "greedy", "top", "sum" }, {
    id = row.id, ids = out.array(request.ids), logprobs = with_null(result.logprobs, #request.ids),
    greedy = out.array(result.greedy or {}), top = top_value(result.top), sum = result.sum,
  })
end

function M.run(ctx)
  local list, p, text = engine_rows.open(ctx)
  local requests, good = engine_rows.prepare(list, function(row)
    local ids = text:ids(row.value, { "ids", "text" })
    if #ids == 0 then err.throw { code = "bad_ids", message = "the row has no tokens" } end
    return { ids = ids }
  end)
  local take, finish = engine_rows.answers(ctx, list, good, requests, line)
  if #requests > 0 then
    engine_rows.with_engine(ctx, p, nil, function(eng)
      local results = engine_rows.check(eng:score { rows = requests, top = ctx.args.opts.top })
      for i, result in ipairs(results) do take(i, result) end
      return true
    end)
  end
  finish()
  return 0
end

return M
