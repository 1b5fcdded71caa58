-- SPDX-License-Identifier: Apache-2.0
--- Write what the commands have to say: envelopes and rows on stdout, errors and progress on stderr.
-- One writer belongs to one run of the command line; specs give it their own sinks.
local err = require("tpl.err")
local json = require("tpl.json")
local util = require("tpl.util")

local M = {}

---@class tpl.cli.Out
---@field stdout fun(text: string)
---@field stderr fun(text: string)
---@field is_tty boolean              whether stderr is a terminal
---@field stdout_tty boolean
local Out = {}
Out.__index = Out

M.separators = { ",", ":" }

--- Make a table that is written with its keys in this order; absent ones are written as null.
---@param keys string[]
---@param values table
---@return table
function M.ordered(keys, values)
  local out = setmetatable({}, { __name = "json.object", keys = keys })
  for _, key in ipairs(keys) do
    local value = values[key]
    if value == nil then value = json.null end
    out[key] = value
  end
  return out
end

--- Make a JSON array, also of an empty list.
function M.array(list) return setmetatable(list or {}, json.array_mt) end

--- Replace what JSON has no word for: NaN and infinities become null. Tables are changed in place.
local function finite(value)
  if type(value) == "number" then
    if value ~= value or value == math.huge or value == -math.huge then return json.null end
  elseif type(value) == "table" then
    for k, v in pairs(value) do
      local clean = finite(v)
      if clean ~= v then value[k] = clean end
    end
  end
  return value
end

--- Encode in one line.
function M.encode(value)
  return json.encode(finite(value), { separators = M.separators })
end

--- Make a sink whose first failure is an error (a full disk is no success); what follows is dropped, so that it can be reported.
local function throwing(write)
  local failed = false
  return function(text)
    if failed then return end
    local ok, message = write(text)
    if ok then return end
    failed = true
    err.throw { code = "io", exit = 1, where = "stdout", message = tostring(message) }
  end
end

---@param sinks? {stdout?: fun(s: string), stderr?: fun(s: string), is_tty?: boolean, stdout_tty?: boolean}
---@return tpl.cli.Out
function M.new(sinks)
  sinks = sinks or {}
  local function to(file)
    return function(text)
      local ok, message = file:write(text)
      if ok then ok, message = file:flush() end
      return ok, message
    end
  end
  local sys = require("tpl.core").sys
  local function tty(given, fd)
    if given ~= nil then return given end
    return sys.isatty(fd)
  end
  return setmetatable({
    stdout = sinks.stdout or throwing(to(io.stdout)), stderr = sinks.stderr or to(io.stderr),
    is_tty = tty(sinks.is_tty, 2), stdout_tty = tty(sinks.stdout_tty, 1),
  }, Out)
end

--- Write one JSON value as a line of stdout.
function Out:line(value) self.stdout(M.encode(value) .. "\n") end

--- Write text for people on stdout.
function Out:text(...) self.stdout(string.format(...)) end

--- Write a note for people on stderr.
function Out:note(...) self.stderr(string.format(...) .. "\n") end

local function one_line(text) return (tostring(text):gsub("%c+", " ")) end

--- Give the stderr line of an error: `tpl: WHERE: MESSAGE (HINT)`.
function M.error_line(e)
  local where = e.where and e.where ~= "" and one_line(e.where) .. ": " or ""
  local hint = e.hint and e.hint ~= "" and " (" .. one_line(e.hint) .. ")" or ""
  return "tpl: " .. where .. one_line(e.message) .. hint
end

--- Report an error to people.
function Out:error(e)
  self.stderr(M.error_line(e) .. "\n")
  if e.code == "internal" and e.exit == 1 and e.traceback then self.stderr(e.traceback .. "\n") end
end

--- Report a warning to people.
function Out:warning(w)
  self.stderr(string.format("tpl: warning: %s%s\n", w.where and w.where ~= "" and w.where .. ": " or "", one_line(w.message)))
end

local internal_fields = { exit = true, key = true, traceback = true, field = true, looked = true, unit_error = true }
local first_fields = { "code", "message", "where", "hint" }
local promised = { layout_conflict = { "op", "axis", "x", "w", "mark", "fixes" } } -- there whatever was refused, null where unknown

--- Give the JSON form of an error: the four fields, then what else it carries (op, axis, fixes, ..).
function M.error_value(e)
  local values, more = {}, {}
  for key, value in pairs(e) do
    if not internal_fields[key] and type(value) ~= "function" and value ~= "" and value ~= "?" then values[key] = value end
  end
  for _, key in ipairs(promised[e.code] or {}) do more[key] = true end
  for key in pairs(values) do more[key] = true end
  for _, key in ipairs(first_fields) do more[key] = nil end
  if more.fixes then values.fixes = M.array(values.fixes) end
  local keys = { unpack(first_fields) }
  for _, key in ipairs(util.keys(more)) do keys[#keys + 1] = key end
  return M.ordered(keys, values)
end

local function warning_value(w)
  return M.ordered({ "code", "message", "where" }, { code = w.code or "warning", message = w.message, where = w.where })
end

--- Give the envelope of a command.
---@param command string
---@param fields {error?: tpl.Err, warnings?: table[], knobs?: table, result?: table}
function M.envelope(command, fields)
  local warnings = {}
  for i, w in ipairs(fields.warnings or {}) do warnings[i] = warning_value(w) end
  return M.ordered({ "schema", "version", "ok", "error", "warnings", "knobs", "result" }, {
    schema = "tpl." .. command .. "/1", version = require("tpl").version, ok = fields.error == nil,
    error = fields.error and M.error_value(fields.error) or nil,
    warnings = M.array(warnings), knobs = fields.knobs or {}, result = fields.result or {},
  })
end

--- Report progress: a bar on a terminal, else a line for each tenth.
---@param what string
---@param unit string?   of `done` and `total`; nil: bytes
---@return fun(done: number, total: number)
function Out:progress(what, unit)
  local last = 0
  local function amount(done, total)
    if unit then return ("%d of %d %s"):format(done, total, unit) end
    return ("%.1f of %.1f MiB"):format(done / 2 ^ 20, total / 2 ^ 20)
  end
  return function(done, total)
    if total <= 0 or last >= 10 then return end
    local tenth = math.floor(10 * done / total)
    if self.is_tty then
      local width = math.floor(30 * done / total)
      self.stderr(string.format("\r%s [%s%s] %3d %%  %s", what, ("#"):rep(width), ("."):rep(30 - width), math.floor(100 * done / total),
        amount(done, total)))
      if tenth >= 10 then self.stderr("\n") end
      last = tenth
    elseif tenth > last then
      last = tenth
      self:note("%s %d %%: %s", what, tenth * 10, amount(done, total))
    end
  end
end

M.is_error = err.is

return M
