-- SPDX-License-Identifier: Apache-2.0
--- Make a folder for one spec, write files into it, and take it away again.
local M = {}
M.__index = M

local function sh(cmd)
  local status = os.execute(cmd)
  return status == 0 or status == true
end

--- Create a folder under TMPDIR.
function M.new()
  local p = assert(io.popen("mktemp -d"))
  local path = p:read("*l")
  p:close()
  return setmetatable({ path = path }, M)
end

--- Write bytes to a file inside and return its path.
function M:write(name, bytes)
  local path = self.path .. "/" .. name
  local f = assert(io.open(path, "wb"))
  f:write(bytes)
  f:close()
  return path
end

--- Run a shell command inside the folder.
function M:sh(cmd)
  return sh("cd '" .. self.path .. "' && " .. cmd)
end

--- Remove the folder.
function M:close()
  sh("rm -rf '" .. self.path .. "'")
end

return M
