-- SPDX-License-Identifier: Apache-2.0
--- All named hostile files, and the check of one: it goes through the command line, in this process, and must end in one line
--- `tpl: WHERE: MESSAGE (HINT)`, the right exit code, soon, and without much memory (criterion C-FILE of facts/reliability.md).
local json = require("tpl.json")
local main = require("tpl.cli.main")
local out = require("tpl.cli.out")
local sys = require("tpl.core").sys
local tmpdir = require("spec.support.tmpdir")

local M = {}

local MOST_SECONDS = 2 -- of processor time; others use the machine too
local MOST_BYTES = 64 * 2 ^ 20

---@class spec.HostileCase
---@field [1] string            rule
---@field [2] string            name
---@field [3] string|function?  bytes, or what makes them; nil: `sh` makes the file
---@field [4] string            patterns of the message, separated by "|"
---@field kind string
---@field command string        plan, tokenize or template
---@field file string           its name; plan gets the folder when it is no weights file itself
---@field files table<string, string>?   other files of the folder
---@field sh string?            run in the folder before
---@field exit integer?         6 unless told
---@field row string?           the error is that of a row: its code, "*" for any, "*?" when an answer is right too

---@return spec.HostileCase[]
function M.all()
  local list = {}
  for _, name in ipairs { "gguf", "safetensors", "json", "template" } do
    for _, c in ipairs(require("spec.hostile.files_" .. name)) do list[#list + 1] = c end
  end
  return list
end

function M.title(c) return ("%s %s: %s"):format(c[1], c.kind, c[2]) end

local function run(argv)
  local result = { stdout = "", stderr = "" }
  result.code = main.main(argv, { stdin_tty = false, out = out.new {
    stdout = function(s) result.stdout = result.stdout .. s end, stderr = function(s) result.stderr = result.stderr .. s end,
    is_tty = false, stdout_tty = false,
  } })
  return result
end

local function arguments(c, dir)
  local path = dir.path .. "/" .. c.file
  if c.command == "plan" then return { "plan", c.file:find("config.json$") and dir.path or path } end
  local row = c.command == "tokenize" and { text = ("a"):rep(40) .. "!" } or { messages = { { role = "user", content = "hi" } } }
  if c.kwargs then row.kwargs = json.decode(c.kwargs) end
  local rows = dir:write("rows.jsonl", json.encode(row) .. "\n")
  return { c.command, "--file", c.kind == "tokenizer_config.json" and dir.path .. "/tokenizer.json" or path, "--in", rows }
end

local function says(c, message)
  for pattern in (c[4] .. (c.also and "|" .. c.also or "")):gmatch("[^|]+") do
    if message:find(pattern) then return true end
  end
  return false
end

local function check_line(c, result)
  local line = result.stderr:gsub("tpl: warning: [^\n]*\n", "")
  if result.code ~= (c.exit or 6) then return ("exit %d: %s"):format(result.code, line) end
  local where, message = line:match("^tpl: (.-): (.+)\n$")
  if not where then return "no line `tpl: WHERE: MESSAGE`: " .. line end
  if line:sub(1, -2):find("%c") then return "more than one line: " .. line end
  if not json.decode(json.encode { line }) then return "not UTF-8: " .. line end
  if not says(c, message) then return "says something else: " .. line end
end

local function check_row(c, result)
  if result.code ~= 0 then return ("exit %d: %s"):format(result.code, result.stderr) end
  local row = json.decode(result.stdout)
  if type(row) ~= "table" then return "no row: " .. result.stdout end
  if not row.error then return c.row ~= "*?" and "was answered: " .. result.stdout:sub(1, 200) or nil end
  if row.error.code == "InternalError" or row.error.code == "internal" then return "a fault of ours: " .. row.error.message end
  if c.row:sub(1, 1) ~= "*" and row.error.code ~= c.row then return ("code %s: %s"):format(row.error.code, row.error.message) end
  if not says(c, row.error.message) then return "says something else: " .. row.error.message end
end

--- Check one case.
---@param c spec.HostileCase
---@param is_slow? boolean   under a sanitizer: memory is not measured, and time is longer
---@return string? fault
function M.check(c, is_slow)
  local dir = tmpdir.new()
  local bytes = type(c[3]) == "function" and c[3]() or c[3]
  for name, text in pairs(c.files or {}) do dir:write(name, text) end
  if bytes then dir:write(c.file, bytes) end
  if c.sh then assert(dir:sh(c.sh)) end
  local argv = arguments(c, dir)
  collectgarbage()
  sys.rss_peak_reset()
  local before, from = sys.rss(), os.clock()
  local ok, result = pcall(run, argv)
  local seconds, more = os.clock() - from, (sys.rss_peak() or 0) - (before or 0)
  dir:close()
  if not ok then return "raised: " .. tostring(result) end
  local fault = (c.row and check_row or check_line)(c, result)
  if fault then return fault end
  if seconds > MOST_SECONDS * (is_slow and 5 or 1) then return ("took %.1f s"):format(seconds) end
  if not is_slow and more > #(bytes or "") + MOST_BYTES then return ("took %.0f MiB of memory"):format(more / 2 ^ 20) end
end

return M
