-- SPDX-License-Identifier: Apache-2.0
--- Carry every failure of the Lua side as one structured value, the same three fields that the command line prints.
--- An error is {code=, message=, where=, hint=, exit=, ...}; further fields (op, axis, fixes, ..) are kept as given.
--- The exit codes are those of interface.md section 3.
local M = {}

---@class tpl.Err
---@field code string      stable word for programs: "layout_conflict", "io", "internal", ..
---@field message string   object, fact, expectation
---@field where string?    "file:line", "file:offset" or an option's name
---@field hint string?     what to do about it
---@field exit integer     process exit code

local mt = {}
mt.__index = mt

function mt.__tostring(e)
  local s = e.message or e.code
  if e.where and e.where ~= "" then s = e.where .. ": " .. s end
  if e.hint and e.hint ~= "" then s = s .. " (" .. e.hint .. ")" end
  return s
end

-- What a code means for the process where the thrower names no exit. Lower-case C status names come first.
local exits = {
  arg = 3, mem = 4, io = 1, format = 6, unsupported = 6, device = 1, comm = 1, canceled = 130,
  usage = 2, missing = 2, script = 3, layout_conflict = 3, layout_error = 3, model_error = 3, policy_error = 3,
  not_in_version = 2, no_fit = 4, require = 4, drift = 4, verify = 5, internal = 1,
}

--- Give a text without control characters: names and values from files stand in messages, and an error is one line.
local function one_line(text) return text and (tostring(text):gsub("%c", " ")) end

--- Make an error value. Missing `exit` follows from `code`, 1 if the code is unknown.
---@param fields table
---@return tpl.Err
function M.new(fields)
  local e = {}
  for k, v in pairs(fields) do e[k] = v end
  e.code = e.code or "internal"
  e.message, e.where, e.hint = one_line(e.message or e.code), one_line(e.where), one_line(e.hint)
  e.exit = e.exit or exits[e.code] or 1
  return setmetatable(e, mt)
end

--- Say whether a value is one of these errors.
function M.is(x) return getmetatable(x) == mt end

--- Raise an error value, or a table of its fields.
function M.throw(e)
  if not M.is(e) then e = M.new(e) end
  error(e, 0)
end

--- Turn what a C function returned after nil into an error value. A missing file is a usage error, other I/O a failure.
---@param message string
---@param code string?  name of the C status, any case
---@param where string?
---@param hint string?
---@return tpl.Err
function M.from_c(message, code, where, hint)
  code = (code or "internal"):lower()
  local exit = exits[code]
  if code == "io" and tostring(message):find("No such file or directory", 1, true) then exit = 2 end
  return M.new { code = code, message = tostring(message), where = where, hint = hint, exit = exit }
end

local source = debug.getinfo(1, "S").source
local own_folder = source:match("^@(.*)err%.lua$") or source

local function is_own(src) return src:sub(1, #own_folder + 1) == "@" .. own_folder or src:sub(1, 2) == "=[" end

local function is_library(src)
  local rest = is_own(src) and src:sub(#own_folder + 2)
  return rest and not rest:match("^layouts/") and not rest:match("^models/") and not rest:match("^policies/")
end

--- Say which script called into the library: the first frame from `level` on that is none of the library's own.
--- Model, layout and policy files count as scripts, the built-in ones too.
---@param level integer  1 = the caller of this function
---@return string? where  "file:line"
function M.position(level)
  level = level + 1
  while true do
    local info = debug.getinfo(level, "Sl")
    if not info then return nil end
    if info.currentline > 0 and not is_library(info.source) then
      return (info.source:match("^@(.*)$") or info.short_src) .. ":" .. info.currentline
    end
    level = level + 1
  end
end

-- Lua puts the shortened source name before a message; the frames give the whole one.
local function unexpected(raw)
  local text = type(raw) == "string" and raw or "error value of type " .. type(raw)
  local short, line, rest = text:match("^(.-):(%d+): (.*)$")
  local src, level = nil, 2
  while short and not src do
    local info = debug.getinfo(level, "S")
    if not info then break end
    if info.short_src == short then src = info.source end
    level = level + 1
  end
  src = src or (short and "@" .. short) or "=[?]"
  return M.new {
    code = "internal", message = rest or text, exit = is_own(src) and 1 or 3, traceback = debug.traceback(text, 2),
    where = short and ((src:match("^@(.*)$") or short) .. ":" .. line) or nil,
  }
end

--- Call fn(...) and give back its results, or nil and an error value. A plain Lua error becomes code "internal":
--- exit 3 when it was raised in a script outside this library, else 1.
function M.try(fn, ...)
  local args, n = { ... }, select("#", ...)
  local function finish(ok, ...)
    if ok then return ... end
    return nil, (...)
  end
  return finish(xpcall(function() return fn(unpack(args, 1, n)) end, function(raw)
    if M.is(raw) then return raw end
    return unexpected(raw)
  end))
end

return M
