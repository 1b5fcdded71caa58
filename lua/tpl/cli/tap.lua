-- SPDX-License-Identifier: Apache-2.0
--- The row command `tpl tap`: values inside the model, recombined over the ranks, as .npy files. One line for each value of each row.
local engine_rows = require("tpl.cli.engine_rows")
local err = require("tpl.err")
local logits = require("tpl.cli.logits")
local npy = require("tpl.npy")
local out = require("tpl.cli.out")
local rows = require("tpl.cli.rows")

local M = {}

local keys = { "id", "name", "dims", "placement", "op", "rank_shapes", "file", "shape" }

--- Give the sizes of a value: `shape`, or `dims` where these are numbers.
local function shape_of(value)
  return value.shape or (type(value.dims[1]) == "number" and value.dims) or { value.rows, value.cols }
end

local function array_of_arrays(list)
  local values = {}
  for i, x in ipairs(list or {}) do values[i] = type(x) == "table" and out.array(x) or x end
  return out.array(values)
end

--- Write a file, or throw the error of the row.
local function write(path, data, dims)
  local ok, message = npy.write(path, data, dims)
  if not ok then err.throw { code = "io", message = message } end
end

--- Tap one row; gives the lines.
local function tap(ctx, eng, request)
  local lines = {}
  local opts = ctx.args.opts
  for _, value in ipairs(engine_rows.check(eng:tap { ids = request.ids, at = opts.at })) do
    local file = string.format("%s/%s.%s.npy", opts.out, request.name, (value.name:gsub("[^%w._-]", "_")))
    local shape = shape_of(value)
    write(file, value.data, shape)
    lines[#lines + 1] = out.ordered(keys, {
      name = value.name, dims = out.array(value.dims), placement = value.placement, op = value.op,
      rank_shapes = array_of_arrays(value.rank_shapes), file = file, shape = out.array(shape),
    })
  end
  if #lines == 0 then
    err.throw { code = "no_match", message = string.format("no value is named '%s'; names are in tpl plan --text", opts.at) }
  end
  return lines
end

local function print_rows(ctx, list, lines_of)
  for _, row in ipairs(list) do
    ctx.started = true
    if row.error then ctx.out:line(rows.error_line(row)) end
    for _, line in ipairs(lines_of[row] or {}) do
      line.id = row.id
      ctx.out:line(line)
    end
  end
end

function M.run(ctx)
  logits.make_folder(ctx.args.opts.out)
  local list, p, text = engine_rows.open(ctx)
  local requests, good = engine_rows.prepare(list, function(row)
    local ids = text:ids(row.value, { "ids", "text" })
    if #ids == 0 then err.throw { code = "bad_ids", message = "the row has no tokens" } end
    return { name = row.name, ids = ids }
  end, { unique = true })
  local lines_of = {}
  if #requests > 0 then
    engine_rows.with_engine(ctx, p, nil, function(eng)
      for i, row in ipairs(good) do
        local lines, e = err.try(tap, ctx, eng, requests[i])
        if lines then lines_of[row] = lines else row.error = rows.fault_of(e) end
      end
      return true
    end)
  end
  print_rows(ctx, list, lines_of)
  return 0
end

return M
