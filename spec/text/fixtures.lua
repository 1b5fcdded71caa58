-- SPDX-License-Identifier: Apache-2.0
--- Reads the template fixtures, the project's own and those of ../shared (TPL_SHARED).
local json = require("tpl.json")

local M = {}

--- Content of a file, nil if it is not there.
M.read = require("spec.support.files").read

--- Content of a file under the shared fixtures, nil if they are not there.
function M.shared(path)
  return M.read((os.getenv("TPL_SHARED") or "../shared") .. "/fixtures/text/" .. path)
end

function M.decode(text)
  return assert(json.decode(text, { typed = true }))
end

--- Rows of a JSON Lines text.
function M.rows(text)
  local out = {}
  for line in text:gmatch("[^\n]+") do out[#out + 1] = M.decode(line) end
  return out
end

--- What is wrong with an answer to a row with `expected` or `error`, nil if nothing is.
--- Messages are compared where the template wrote them (raise_exception).
function M.mismatch(row, got, err)
  if row.expected then
    if got == row.expected then return nil end
    return ("want %q, got %s"):format(row.expected, got and ("%q"):format(got) or tostring(err))
  end
  local want = row.error
  if not err then return ("want %s, got %q"):format(want.type, got) end
  if err.code ~= want.type or want.type == "TemplateError" and err.message ~= want.message then
    return ("want %s: %s, got %s"):format(want.type, want.message, tostring(err))
  end
  return nil
end

--- All mismatches of rows as one text, "" if there are none.
---@param rows table[]
---@param answer fun(row): string?, table?
---@param label fun(row): string
function M.mismatches(rows, answer, label)
  local out = {}
  for _, row in ipairs(rows) do
    local got, err = answer(row)
    local wrong = M.mismatch(row, got, err)
    if wrong then out[#out + 1] = label(row) .. ": " .. wrong end
  end
  return table.concat(out, "\n")
end

return M
