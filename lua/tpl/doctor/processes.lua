-- SPDX-License-Identifier: Apache-2.0
--- Look for a service among the processes of a host. A container sees its own processes only: then the answer is "unknown".
local M = {}

--- Say whether a process of that name runs. The kernel cuts names to 15 bytes in proc/PID/comm.
---@param host tpl.doctor.Host
---@param name string
---@return boolean? runs     nil: the list of processes is absent or a container's
---@return string? where
function M.runs(host, name)
  local whole = false
  for _, pid in ipairs(host:list("proc") or {}) do
    if pid:find("^%d+$") then
      local comm = host:word("proc/" .. pid .. "/comm")
      if comm == name:sub(1, 15) then return true, "/proc/" .. pid .. "/comm" end
      whole = whole or comm == "kthreadd"
    end
  end
  if whole then return false, "no /proc/PID/comm is " .. name:sub(1, 15) end
end

return M
