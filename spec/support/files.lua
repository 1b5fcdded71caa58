-- SPDX-License-Identifier: Apache-2.0
--- Read files of fixtures and of the repository.
local M = {}

--- Give the bytes of a file, or n of them from an offset; nil and why it cannot be opened.
---@param path string
---@param from integer?   bytes from the start, default 0
---@param n integer?      default: to the end
---@return string? text
---@return string? message
function M.read(path, from, n)
  local f, message = io.open(path, "rb")
  if not f then return nil, message end
  if from then f:seek("set", from) end
  local text = f:read(n or "*a")
  f:close()
  return text
end

--- Give the bytes of a file that must be there; raises otherwise.
function M.slurp(path) return assert(M.read(path)) end

return M
