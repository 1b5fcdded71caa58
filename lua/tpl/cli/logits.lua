-- SPDX-License-Identifier: Apache-2.0
--- The row command `tpl logits`: the logits of every position as .npy files.
local engine_rows = require("tpl.cli.engine_rows")
local err = require("tpl.err")
local npy = require("tpl.npy")
local out = require("tpl.cli.out")

local M = {}

--- Make the folder for files, or throw a usage error.
function M.make_folder(dir)
  local ok, message = require("tpl.core").sys.mkdir_p(dir)
  if not ok then err.throw { code = "usage", where = "--out", message = message } end
end

--- Put the header of each row's file in place; the engine appends the rows.
local function begin_file(request, n_rows, vocab)
  local ok, message = npy.begin(request.part, { n_rows, vocab })
  if not ok then err.throw { code = "io", exit = 1, where = request.part, message = message } end
  return request.part
end

--- Take the file of a finished row into place, or throw the error of the row.
local function finish_file(request)
  local ok, message = os.rename(request.part, request.path)
  if not ok then err.throw { code = "io", message = message } end
end

local function line(p, isa)
  return function(result, row, request)
    finish_file(request)
    return out.ordered({ "id", "file", "rows", "vocab", "argmax", "plan_hash", "isa" }, {
      id = row.id, file = request.path, rows = result.rows, vocab = result.vocab, argmax = out.array(result.argmax),
      plan_hash = p.report.plan_hash, isa = isa(),
    })
  end
end

--- Make the request of a row: its ids and files.
local function prepare(text, dir)
  return function(row)
    local ids = text:ids(row.value, { "ids", "text" })
    if #ids == 0 then err.throw { code = "bad_ids", message = "the row has no tokens" } end
    local path = dir .. "/" .. row.name .. ".npy"
    return { ids = ids, path = path, part = path .. ".part" }
  end
end

function M.run(ctx)
  local opts = ctx.args.opts
  M.make_folder(opts.out)
  local list, p, text = engine_rows.open(ctx)
  local requests, good = engine_rows.prepare(list, prepare(text, opts.out), { unique = true })
  local isa
  local take, finish = engine_rows.answers(ctx, list, good, requests, line(p, function() return isa end))
  if #requests > 0 then
    engine_rows.with_engine(ctx, p, { chunk = opts.chunk }, function(eng)
      isa = eng.isa
      engine_rows.check(eng:each_logits {
        rows = requests, positions = opts.positions, together = opts.together or false,
        file = function(request) return begin_file(request, opts.positions == "last" and 1 or #request.ids, p.config.vocab) end,
        on_row = function(i, result)
          take(i, result)
          if result.error then os.remove(requests[i].part) end
        end,
      })
      return true
    end)
  end
  finish()
  return 0
end

return M
