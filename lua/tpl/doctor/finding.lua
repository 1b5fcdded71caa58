-- SPDX-License-Identifier: Apache-2.0
--- Say what a check found: status, evidence (the value and where it stands) and the command that helps.
local M = {}

function M.ok(evidence, ...) return { status = "ok", evidence = select("#", ...) > 0 and evidence:format(...) or evidence } end

--- The reason why the check could not be made.
function M.skip(reason, ...) return { status = "skip", evidence = select("#", ...) > 0 and reason:format(...) or reason } end

function M.warn(evidence, fix) return { status = "warn", evidence = evidence, fix = fix } end

function M.fail(evidence, fix) return { status = "fail", evidence = evidence, fix = fix } end

--- fail where it matters, else warn.
function M.bad(facts, evidence, fix) return (facts:matters() and M.fail or M.warn)(evidence, fix) end

--- Join up to `most` texts; the rest is counted.
---@param list string[]
---@param most integer?   4
function M.some(list, most)
  most = most or 4
  if #list <= most then return table.concat(list, ", ") end
  return table.concat(list, ", ", 1, most) .. string.format(" and %d more", #list - most)
end

return M
