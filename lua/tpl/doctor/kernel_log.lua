-- SPDX-License-Identifier: Apache-2.0
--- Find the driver's reports of faults in a kernel log, in one pass: logs are long.
local M = {}

--- List what follows "NVRM: Xid" on each line that has it, those words included.
---@param text string
---@return string[]
function M.xids(text)
  local out, at = {}, 1
  while true do
    local from = text:find("NVRM: Xid", at, true)
    if not from then return out end
    local line = text:match("^[^\n]*", from)
    out[#out + 1] = line
    at = from + #line
  end
end

return M
