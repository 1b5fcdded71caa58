-- SPDX-License-Identifier: Apache-2.0
--- Run one command of the command line and give its exit code (interface.md section 3).
-- Here alone errors become text, envelopes and exit codes.
local commands = require("tpl.cli.commands")
local err = require("tpl.err")
local knobs = require("tpl.cli.knobs")
local out = require("tpl.cli.out")
local parse = require("tpl.cli.parse")
local script = require("tpl.script")
local suggest = require("tpl.suggest")

local M = {}

---@class tpl.cli.Context
---@field command table             entry of tpl.cli.commands
---@field args tpl.cli.Args
---@field out tpl.cli.Out
---@field warnings table[]          {code, message, where}; told to people as they come, and part of the envelope
---@field knobs table
---@field json boolean
---@field engine {make: function, open: function, verify: function}   replaced in specs
---@field started boolean           a row command has begun to answer

local Context = {}
Context.__index = Context

--- Note a warning.
function Context:warn(w)
  self.warnings[#self.warnings + 1] = w
  self.out:warning(w)
end

--- Print the envelope with a result, and with the error of a command that has both (a plan that does not fit, a failed verify).
---@param result table
---@param e? tpl.Err
function Context:finish(result, e)
  self.out:line(out.envelope(self.command.name, { error = e, warnings = self.warnings, knobs = self.knobs, result = result }))
end

--- Say whether `--json` stands among the arguments; needed before they are parsed, since a usage error is an envelope too.
local function wants_json(argv)
  for _, text in ipairs(argv) do
    if text == "--" then return false end
    if text == "--json" then return true end
  end
  return false
end

--- Say the place once: messages of the system often begin with it too.
local function without_place(e)
  local where = e.where or ""
  if where ~= "" and e.message:sub(1, #where + 2) == where .. ": " then e.message = e.message:sub(#where + 3) end
  return e
end

--- Report an error on stderr and, where the output is JSON, as an envelope. Gives the exit code.
local function report(ctx, e)
  ctx.out:error(e)
  local command = ctx.command
  if ctx.json or (command.rows and not ctx.started) then
    local envelope = out.envelope(command.name, { error = e, warnings = ctx.warnings, knobs = ctx.knobs,
      result = e.changes and { changes = out.array(e.changes) } })
    if command.events then
      envelope.event = "error"
      table.insert(getmetatable(envelope).keys, 1, "event")
    end
    ctx.out:line(envelope)
  end
  return e.exit
end

local function unknown_command(name)
  for _, later in ipairs(commands.later) do
    if name == later then
      err.throw { code = "not_in_version", where = "tpl " .. name, message = "not in this version", hint = "see tpl help" }
    end
  end
  err.throw {
    code = "usage", where = "tpl " .. name, message = "unknown command",
    hint = suggest.nearest(name, commands.names()) and suggest.hint(name, commands.names()) or "see tpl help",
  }
end

local aliases = { ["--help"] = "help", ["-h"] = "help", ["--version"] = "version", ["-V"] = "version" }

-- What a script prints is a log, but for `tpl lua`, whose output is the script's.
local function script_log(ctx)
  return function(...)
    local parts = {}
    for i = 1, select("#", ...) do parts[i] = tostring((select(i, ...))) end
    ctx.out:note("%s", table.concat(parts, "\t"))
  end
end

--- Parse and run; throws errors.
local function run(ctx, name, argv)
  script.print = ctx.command.raw and print or script_log(ctx)
  ctx.knobs = knobs.read()
  if not commands.find(name) then unknown_command(name) end
  if ctx.command.raw then
    ctx.args = { names = argv, opts = {}, words = {} }
  else
    ctx.args = parse.parse(ctx.command, argv)
    if ctx.args.help then
      require("tpl.cli.help").print(ctx, name)
      return 0
    end
    parse.check(ctx.command, ctx.args)
    knobs.add_options(ctx.knobs, ctx.args.opts)
  end
  return require(ctx.command.module).run(ctx) or 0
end

--- The functions of the engine, looked up when a command needs them.
local function real_engine()
  return {
    make = function(...) return require("tpl.plan.make").make(...) end,
    open = function(...) return require("tpl.engine").open(...) end,
    verify = function(...) return require("tpl.verify").verify(...) end,
  }
end

--- Run the command line.
---@param argv string[]
---@param opts? {out?: tpl.cli.Out, engine?: table, stdin_tty?: boolean}
---@return integer exit_code
function M.main(argv, opts)
  opts = opts or {}
  local rest = {}
  for i = 2, #argv do rest[#rest + 1] = argv[i] end
  local name = aliases[argv[1]] or argv[1] or "help"
  local ctx = setmetatable({
    command = commands.find(name) or { name = name, options = {} },
    out = opts.out or out.new(), warnings = {}, knobs = {}, json = wants_json(rest), started = false,
    engine = opts.engine or real_engine(), stdin_tty = opts.stdin_tty,
  }, Context)
  if argv[1] == nil then
    err.try(require("tpl.cli.help").print, ctx)
    return 2
  end
  local code, e = err.try(run, ctx, name, rest)
  if code then return code end
  return report(ctx, without_place(e))
end

return M
