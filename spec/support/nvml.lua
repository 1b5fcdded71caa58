-- SPDX-License-Identifier: Apache-2.0
--- Let the NVML stand-in (spec/topo/standin/) answer for a record while a function runs (not a spec itself).
local ffi = require("ffi")
local tmpdir = require("spec.support.tmpdir")

ffi.cdef [[
int setenv(const char *name, const char *value, int overwrite);
int unsetenv(const char *name);
]]

local M = {}

local function set(name, value)
  if value then ffi.C.setenv(name, value, 1) else ffi.C.unsetenv(name) end
end

--- Run f with variables set, and put them back whatever happens. An empty text is set as such; false takes the variable away.
function M.with_env(values, f)
  local before = {}
  for name, value in pairs(values) do
    before[name] = os.getenv(name) or false
    set(name, value)
  end
  local ok, a, b = pcall(f)
  for name, value in pairs(before) do set(name, value) end
  if not ok then error(a, 0) end
  return a, b
end

--- Give the path of a stand-in library; nil when it was not built.
function M.library(name)
  local path = "build/spec/topo/standin/" .. (name or "nvml_standin") .. ".so"
  local f = io.open(path)
  if f then f:close() end
  return f and path
end

--- Probe with the stand-in answering from a record.
---@param record table
---@param options {library: string?, env: table?, root: string?}?
---@return table? record
---@return tpl.Err?
function M.probe(record, options)
  options = options or {}
  local dir = tmpdir.new()
  local env = { TPL_NVML = assert(M.library(options.library)), TPL_NVML_RECORD = dir:write("record.yaml", require("tpl.yaml").encode(record)),
    CUDA_VISIBLE_DEVICES = false, CUDA_DEVICE_ORDER = false }
  for k, v in pairs(options.env or {}) do env[k] = v end
  local got, e = M.with_env(env, function() return require("tpl.err").try(require("tpl.topo.probe").read, { root = options.root }) end)
  dir:close()
  return got, e
end

return M
