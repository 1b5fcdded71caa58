-- SPDX-License-Identifier: Apache-2.0
--- Run the row commands that need an engine: read all rows, make ids, run the good ones together, answer all in order.
local deployment = require("tpl.cli.deployment")
local err = require("tpl.err")
local rows = require("tpl.cli.rows")

local M = {}

--- Read the rows of --in, then plan: a bad input file or deployment costs no loading.
---@return tpl.Row[] list
---@return table plan
---@return tpl.Text text
function M.open(ctx)
  local list = rows.read(ctx.args.opts["in"])
  local p = deployment.plan(ctx)
  return list, p, deployment.text(p)
end

--- Load, run fn(engine), and close the engine whatever happens.
---@param more? table   see deployment.load
function M.with_engine(ctx, p, more, fn)
  local eng = deployment.load(ctx, p, more)
  local result, e = err.try(fn, eng)
  eng:close()
  if e then err.throw(e) end
  return result
end

--- Prepare the rows with fn(row) -> request; a row whose work fails keeps its error. Two rows of one name are an error of the second.
---@param list tpl.Row[]
---@param fn fun(row: tpl.Row): table
---@return table[] requests     of the good rows
---@return tpl.Row[] good       aligned with requests
function M.prepare(list, fn, opts)
  local requests, good, seen = {}, {}, {}
  for _, row in ipairs(list) do
    if not row.error and opts and opts.unique and seen[row.name] then
      row.error = rows.fault("duplicate_id", string.format("id '%s' is used by an earlier row", row.name))
    end
    seen[row.name] = true
    if not row.error then
      local request, e = err.try(fn, row)
      if request then
        requests[#requests + 1], good[#good + 1] = request, row
      else
        row.error = rows.fault_of(e)
      end
    end
  end
  return requests, good
end

--- Throw what an engine call returned after nil; else give its value.
function M.check(value, e)
  if value == nil then err.throw(err.is(e) and e or err.from_c(tostring(e))) end
  return value
end

--- Make a function that takes the results of the good rows one by one, in order, and prints the lines of all rows in the order of the
--- input. `line(result, row, request)` makes a line or throws the error of the row. Call `finish` after the last.
---@return fun(i: integer, result: table) take
---@return fun() finish
function M.answers(ctx, list, good, requests, line)
  local next_row = 1
  local function print_row(row, text)
    ctx.started = true
    ctx.out:line(text or rows.error_line(row, row.error or rows.fault("internal", "the row was not answered")))
    next_row = next_row + 1
  end
  local function catch_up(row)
    while list[next_row] and list[next_row] ~= row do print_row(list[next_row]) end
  end
  local function take(i, result)
    local row = good[i]
    local text, e
    if result.error then
      row.error = rows.fault(result.error.code, result.error.message)
    else
      text, e = err.try(line, result, row, requests[i])
      if not text then row.error = rows.fault_of(e) end
    end
    catch_up(row)
    print_row(row, text)
  end
  return take, function() catch_up(nil) end
end

return M
