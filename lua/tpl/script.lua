-- SPDX-License-Identifier: Apache-2.0
--- Run a user's Lua file: a deploy.lua, layout, policy or model definition.
-- Such a file is trusted code and sees the standard library and the globals tpl, R and S. What it defines stays in its own
-- environment; reading a global that does not exist is an error. Every failure becomes one structured error with file:line.
local err = require("tpl.err")
local find = require("tpl.find")

local M = {}

--- What `print` is to a script. The command line puts its log here: standard output belongs to the command (one JSON object, rows).
---@type fun(...)
M.print = print

M.HARD_S = 60       -- a file that describes something is stopped after so long: layout.md section 4, hook `place`
local LINES = 10000 -- between looks at the clock

--- Make the globals of a script.
local function environment(extra)
  local env = { arg = rawget(_G, "arg"), print = M.print }
  env._G = env
  for k, v in pairs(extra or {}) do env[k] = v end
  return setmetatable(env, {
    __index = function(_, name)
      if name == "tpl" then return require("tpl") end
      if name == "R" or name == "S" then return require("tpl")[name] end
      local value = rawget(_G, name)
      if value == nil then
        error(string.format("undefined global '%s'", tostring(name)), 2)
      end
      return value
    end,
  })
end

--- Give the line that holds `word =` nearest above (or at) line `at`, else the first below it, or nil. The last part of a dotted
--- word counts. LuaJIT reports a call over several lines at its last one, so the field lies above.
---@param text string
---@param word string
---@param at integer
---@return integer?
function M.line_of(text, word, at)
  local name = word:match("([^.%[%]]+)[%]]?$")
  if not name then return nil end
  local pattern = "%f[%w_]" .. name:gsub("%p", "%%%0") .. "%f[^%w_][\"'%]]*%s*=[^=]"
  local number, best = 0, nil
  for line in (text .. "\n"):gmatch("(.-)\n") do
    number = number + 1
    if number > at and best then break end
    local found, comment = line:find(pattern), line:find("--", 1, true)
    if found and not (comment and comment < found) then best = number end
  end
  return best
end

--- Give the line where a call that ends with closing brackets on line `at` begins.
local function call_start(text, at)
  local number, best = 0, at
  for line in (text .. "\n"):gmatch("(.-)\n") do
    number = number + 1
    if number == at then return line:find("^[%s%]}),;]*$") and best or at end
    if line:find("tpl%.%a+%s*[({]") then best = number end
  end
  return at
end

--- Say where inside the file something went wrong. `return tpl.deploy{..}` is a tail call, which leaves no frame: then the line
--- that ran last stands in.
local function position(run, field, line)
  line = line or run.last_line or 1
  return run.path .. ":" .. (type(field) == "string" and M.line_of(run.text, field, line) or call_start(run.text, line))
end

--- Say where a file that has run made what it returned: "file:line".
function M.returned_at(run) return position(run) end

--- Give the line of the innermost frame of the file, or nil. Called inside the error handler.
local function frame_line(run, short)
  local level = 3
  while true do
    local info = debug.getinfo(level, "Sl")
    if not info then return nil end
    if info.source == "@" .. run.path and info.currentline > 0 then
      return info.currentline, info.short_src == short
    end
    level = level + 1
  end
end

--- Point an error value into the script where it does not name a better place itself.
local function point(run, e)
  if e.exit == 2 then return e end
  local where = e.where or ""
  local line = where:sub(1, #run.path + 1) == run.path .. ":" and tonumber(where:match(":(%d+)$"))
  if line or where == "" or where == run.outside then e.where = position(run, e.field, line or nil) end
  return e
end

--- Turn whatever was raised into an error value that points into the script.
local function located(run, raw)
  if err.is(raw) then return point(run, raw) end
  if type(raw) ~= "string" then
    return err.new { code = "script", where = position(run), message = "error value of type " .. type(raw) }
  end
  local short, line, message = raw:match("^(.-):(%d+): (.*)$")
  local inner, is_own = frame_line(run, short)
  return err.new {
    code = "script", where = position(run, nil, is_own and tonumber(line) or inner), message = message or raw,
    traceback = debug.traceback(raw, 2),
  }
end

local function compile(path, text, env)
  if text:byte(1) == 27 then
    err.throw { code = "script", where = path .. ":1", message = "is bytecode, Lua source is needed" }
  end
  local chunk, message = loadstring(text, "@" .. path)
  if not chunk then
    local line, rest = message:match("^.-:(%d+): (.*)$")
    err.throw { code = "script", where = path .. ":" .. (line or 1), message = rest or message }
  end
  return setfenv(chunk, env)
end

--- Follow which line of the file runs, to have a line for calls in tail position, and stop what runs for too long; once it is
--- too late every line fails, so that no pcall of the file outlives it. Gives a function that stops the watch.
---@param run table
---@param hard_s number
local function watch(run, hard_s)
  local hook, mask, count = debug.gethook()
  local now_us = require("tpl.core").sys.now_us
  local start, n_lines, is_late = now_us(), 0, false
  debug.sethook(function(_, line)
    if debug.getinfo(2, "S").source == "@" .. run.path then run.last_line = line end
    n_lines = n_lines + 1
    is_late = is_late or n_lines % LINES == 0 and now_us() - start > hard_s * 1e6
    if is_late then error(("it ran for more than %g s and was stopped"):format(hard_s), 0) end
  end, "l")
  return function()
    if hook then debug.sethook(hook, mask, count) else debug.sethook() end
  end
end

--- Read a text file that a user named; a folder, a pipe or a missing file is a usage error.
---@param path string
---@return string
function M.read(path)
  local sys = require("tpl.core").sys
  local stat, message, code = sys.stat(path)
  if not stat then
    err.throw(err.from_c(message:sub(1, #path + 2) == path .. ": " and message:sub(#path + 3) or message, code, path))
  end
  if stat.kind ~= "file" then
    err.throw { code = "usage", where = path, message = "is no regular file" }
  end
  local text
  text, message, code = sys.read_file(path)
  if not text then err.throw(err.from_c(message, code, path)) end
  return text
end

--- Run a file and give what it returns. Throws a structured error, exit 3 unless the error says otherwise.
---@param path string
---@param extra? table   further globals
---@return any
function M.run(path, extra)
  local text = M.read(path)
  -- `outside` is what err.position gives for a call in tail position: the file's own frame is gone by then
  local run = { path = path, text = text, outside = err.position(1) }
  local chunk = compile(path, text, environment(extra))
  local stop = watch(run, M.HARD_S)
  if jit then jit.off(chunk, true) end -- a compiled loop calls no hook
  local ok, value = xpcall(chunk, function(raw)
    stop()
    return located(run, raw)
  end)
  stop()
  if jit then jit.on(chunk, true) end
  if not ok then err.throw(value) end
  return value, run
end

--- Find a layout, policy or model definition by name (tpl.find) and run it.
---@param kind "layouts"|"policies"|"models"
---@param name string
---@param opts? {dir: string?, path: string?, model_folder: string?, where: string?}  where: what to blame for an unknown name
---@return any value
---@return string file
---@return string where   "file:line" of what it returns
function M.load(kind, name, opts)
  local hit, e = find.script(kind, name, opts and opts.dir, opts)
  if not hit then
    e.where = e.where or opts and opts.where or kind:gsub("ies$", "y"):gsub("s$", "")
    err.throw(e)
  end
  local value, run = M.run(hit.path)
  return value, hit.path, M.returned_at(run)
end

--- Evaluate an expression as a script sees it.
---@param text string
---@return any
function M.evaluate(text)
  local chunk, message = loadstring("return " .. text, "=expression")
  if not chunk then err.throw { code = "script", message = message } end
  return setfenv(chunk, environment())()
end

--- Run a file as a program: with the plain globals and tpl, R and S among them, and its arguments in `...`.
---@param path string
---@param arg string[]
function M.main(path, arg)
  local text = M.read(path)
  local run = { path = path, text = text:gsub("^#[^\n]*", ""), outside = err.position(1) }
  local tpl = require("tpl")
  setmetatable(_G, { __index = function(_, name)
    if name == "tpl" then return tpl end
    if name == "R" or name == "S" then return tpl[name] end
  end })
  local chunk = compile(path, run.text, _G)
  local n = table.maxn(arg)
  local ok, e = xpcall(function() chunk(unpack(arg, 1, n)) end, function(raw) return located(run, raw) end)
  setmetatable(_G, nil)
  if not ok then err.throw(e) end
end

return M
