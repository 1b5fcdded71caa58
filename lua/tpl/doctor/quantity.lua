-- SPDX-License-Identifier: Apache-2.0
--- Read the quantities of Kubernetes ("500m", "8Gi", 2) and of docker's --shm-size ("64m", "10.24gb").
local M = {}

local BINARY = { Ki = 2 ^ 10, Mi = 2 ^ 20, Gi = 2 ^ 30, Ti = 2 ^ 40, Pi = 2 ^ 50, Ei = 2 ^ 60 }
local DECIMAL = { n = 1e-9, u = 1e-6, m = 1e-3, [""] = 1, k = 1e3, M = 1e6, G = 1e9, T = 1e12, P = 1e15, E = 1e18 }

--- Read a quantity of Kubernetes.
---@param value any
---@return number?
function M.parse(value)
  if type(value) == "number" then return value end
  if type(value) ~= "string" then return nil end
  local exponent = value:match("^%s*([%d.]+[eE][+-]?%d+)%s*$")
  if exponent then return tonumber(exponent) end
  local n, unit = value:match("^%s*([%d.]+)(%a*)%s*$")
  local factor = unit and (BINARY[unit] or DECIMAL[unit])
  n = tonumber(n or "")
  return n and factor and n * factor or nil
end

local DOCKER = { [""] = 1, b = 1, k = 2 ^ 10, m = 2 ^ 20, g = 2 ^ 30, t = 2 ^ 40 }

--- Read a size as people write it in a variable such as SHM_SIZE: docker's letters are binary in any case, "Gi" is Kubernetes'.
---@param value any
---@return number? bytes
function M.size(value)
  if type(value) == "number" then return value end
  local n, unit = tostring(value):match("^%s*([%d.]+)%s*(%a*)%s*$")
  n = tonumber(n or "")
  if not n then return nil end
  local letter = unit:lower():gsub("i?b$", ""):gsub("i$", "")
  return DOCKER[letter] and n * DOCKER[letter] or nil
end

--- Write bytes as Kubernetes does.
function M.text(bytes)
  for _, unit in ipairs { "Gi", "Mi", "Ki" } do
    if bytes >= BINARY[unit] then return string.format("%.4g%s", bytes / BINARY[unit], unit) end
  end
  return string.format("%d", bytes)
end

return M
