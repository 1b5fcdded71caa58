-- SPDX-License-Identifier: Apache-2.0
--- Give the environment that a host's processes run with, and the settings that NCCL reads from files.
-- A recorded tree keeps it as the system does (proc/self/environ, NUL between) or as lines NAME=VALUE in the file `env`; both may
-- be there, `env` wins; without them that of process 1 (the server of a container) or etc/environment stands
-- in. A tree with none of them runs with the environment of tpl itself: so a host's / can be mounted and looked at.
local M = {}

---@class tpl.doctor.Setting
---@field value string
---@field where string    "environment", or the file and line

local function split(text, pattern, into)
  for entry in text:gmatch(pattern) do
    entry = entry:gsub("\r$", ""):gsub("^export%s+", "")
    local name, value = entry:match("^%s*([%a_][%w_]*)=(.*)$")
    if name then into[name] = value:match('^"(.*)"$') or value:match("^'(.*)'$") or value end
  end
end

--- Read the environment.
---@param host tpl.doctor.Host
---@param own tpl.doctor.Host    this machine, for a tree that keeps none
---@return table<string, string> env
---@return string where
---@return boolean recorded      false: it is that of tpl, not of the recorded host
function M.read(host, own)
  if host.parts.env then return host.parts.env, host.parts.env_where or "env", host.parts.env_recorded ~= false end
  local env, where = {}, nil
  local text = host:read("proc/self/environ")
  if text then
    split(text, text:find("%z") and "[^%z]+" or "[^\n]+", env)
    where = "proc/self/environ"
  end
  for _, path in ipairs { "environ", "env" } do
    local lines = host.kind == "tree" and host:read(path)
    if lines then
      split(lines, lines:find("%z") and "[^%z]+" or "[^\n]+", env)
      where = path
    end
  end
  for _, path in ipairs(where == nil and host.kind == "tree" and { "proc/1/environ", "etc/environment" } or {}) do
    local lines = not where and host:read(path)
    if lines then
      split(lines, lines:find("%z") and "[^%z]+" or "[^\n]+", env)
      where = path
    end
  end
  if where then return env, where, true end
  text = own:read("proc/self/environ") or ""
  split(text, "[^%z]+", env)
  return env, "environment of tpl", false
end

--- Read NCCL's own files of settings. NCCL takes the variable first, then NCCL_CONF_FILE (else ~/.nccl.conf), then /etc/nccl.conf.
---@param host tpl.doctor.Host
---@param env table<string, string>
---@param recorded boolean?   false: whose HOME it is is unknown, so every user's file is looked at
---@return {path: string, settings: table<string, tpl.doctor.Setting>}[]   those that are there, in the order of NCCL
function M.nccl_files(host, env, recorded)
  local places = {}
  local user = env.NCCL_CONF_FILE or (env.HOME and env.HOME .. "/.nccl.conf")
  if user then places[1] = (user:gsub("^~/", (env.HOME or "") .. "/")) end
  if not env.HOME and not env.NCCL_CONF_FILE then places[1] = "/root/.nccl.conf" end
  if recorded == false then
    places = { "/root/.nccl.conf" }
    for _, user_name in ipairs(host:list("home") or {}) do places[#places + 1] = "/home/" .. user_name .. "/.nccl.conf" end
  end
  places[#places + 1] = "/etc/nccl.conf"
  local out = {}
  for _, place in ipairs(places) do
    local path = place:gsub("^/+", "")
    local text = host:read(path)
    if text then
      local settings, n = {}, 0
      for line in (text .. "\n"):gmatch("(.-)\n") do
        n = n + 1
        local name, value = line:gsub("#.*$", ""):match("^%s*([%a_][%w_]*)%s*=%s*(.-)%s*$")
        if name then settings[name] = { value = value, where = place .. ":" .. n } end
      end
      out[#out + 1] = { path = place, settings = settings }
    end
  end
  return out
end

return M
