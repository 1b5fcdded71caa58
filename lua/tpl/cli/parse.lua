-- SPDX-License-Identifier: Apache-2.0
--- Read the arguments of one command: options, FILE|MODEL, key=value words, and what follows `--`.
-- Errors are usage errors (exit 2) with the nearest known option as a hint.
local err = require("tpl.err")
local suggest = require("tpl.suggest")

local M = {}

---@class tpl.cli.Option
---@field name string              "--json"
---@field value? string            what its value is called in help, "FILE"; nil: a flag
---@field optional? boolean        the value may be left out, and then comes only as --name=value
---@field default? any
---@field number? {[1]: number, [2]: number}   a whole number in this range
---@field real? {[1]: number, [2]: number}     a number in this range
---@field oneof? string[]
---@field needed? boolean
---@field later? boolean            comes with a later version
---@field help string

---@class tpl.cli.Args
---@field opts table<string, any>  by name without dashes, '-' as '_'
---@field target? string           FILE|MODEL
---@field words tpl.Word[]
---@field prompt? string           what follows `--`, joined by spaces
---@field names string[]           further words of commands without FILE|MODEL

local function usage(where, message, hint)
  err.throw { code = "usage", where = where, message = message, hint = hint }
end

local function key_of(name) return (name:gsub("^%-+", ""):gsub("%-", "_")) end

local function find_option(options, name)
  for _, option in ipairs(options) do
    if option.name == name or option.short == name then return option end
  end
end

local function unknown_option(command, name)
  local names = {}
  for _, option in ipairs(command.options) do names[#names + 1] = option.name end
  local near = suggest.nearest(name, names)
  usage(name, "unknown option of tpl " .. command.name,
    near and string.format("did you mean '%s'?", near) or string.format("see tpl help %s", command.name))
end

local function check_value(option, text)
  local range = option.number or option.real
  if range then
    local n = tonumber(text)
    if not n or not (n >= range[1] and n <= range[2]) or (option.number and n ~= math.floor(n)) then
      usage(option.name, string.format("malformed value '%s', a %snumber from %.14g to %.14g is needed", text,
        option.number and "whole " or "", range[1], range[2]))
    end
    return n
  end
  if option.oneof then
    for _, word in ipairs(option.oneof) do if word == text then return text end end
    usage(option.name, string.format("malformed value '%s'", text), "one of " .. table.concat(option.oneof, ", "))
  end
  if text == "" then usage(option.name, "needs a " .. option.value) end
  return text
end

--- Take one option off the arguments; gives the index of the last argument used.
local function take_option(command, argv, i, opts)
  local name, value = argv[i]:match("^(%-%-[^=]+)=(.*)$")
  name = name or argv[i]
  local option = find_option(command.options, name)
  if not option then unknown_option(command, name) end
  if option.later then err.throw { code = "not_in_version", where = option.name, message = "not in this version" } end
  if not option.value then
    if value then usage(option.name, "takes no value") end
    opts[key_of(option.name)] = true
    return i
  end
  if value == nil and option.optional then
    opts[key_of(option.name)] = true
    return i
  end
  if value == nil then
    i = i + 1
    value = argv[i]
    if value == nil then usage(option.name, "needs a " .. option.value) end
  end
  local checked = check_value(option, value)
  if option.many then
    local list = opts[key_of(option.name)] or {}
    list[#list + 1] = checked
    checked = list
  end
  opts[key_of(option.name)] = checked
  return i
end

local function take_word(command, args, text)
  if command.target and args.target == nil then
    args.target = text
  elseif command.target then
    if command.target_many and not text:find("=", 1, true) then
      err.throw { code = "not_in_version", where = text, message = "several files: not in this version", hint = "give one FILE or MODEL" }
    end
    args.words[#args.words + 1] = require("tpl.deploy").words({ text })[1]
  else
    args.names[#args.names + 1] = text
  end
end

local function take_rest(command, args, argv, from)
  if not command.prompt then usage("--", string.format("tpl %s takes no prompt", command.name)) end
  args.prompt = table.concat(argv, " ", from)
end

--- Read the arguments of a command.
---@param command table   an entry of tpl.cli.commands
---@param argv string[]   what follows the command's name
---@return tpl.cli.Args
function M.parse(command, argv)
  local args = { opts = {}, words = {}, names = {} }
  local i = 1
  while i <= #argv do
    local text = argv[i]
    if text == "--" then
      take_rest(command, args, argv, i + 1)
      break
    elseif text == "--help" or text == "-h" then
      args.help = true
    elseif text:sub(1, 1) == "-" and text ~= "-" then
      i = take_option(command, argv, i, args.opts)
    else
      take_word(command, args, text)
    end
    i = i + 1
  end
  for _, option in ipairs(command.options) do
    local key = key_of(option.name)
    if args.opts[key] == nil then args.opts[key] = option.default end
  end
  return args
end

--- Refuse what is missing; apart from `parse` so that --help needs nothing.
function M.check(command, args)
  if command.target and not command.target_optional and args.target == nil then
    usage(nil, string.format("tpl %s needs a FILE or MODEL", command.name),
      "FILE is a deploy.lua; MODEL a path, org/name, or a name in the model cache")
  end
  if not command.target and #args.names > (command.most_names or 0) then
    usage(args.names[(command.most_names or 0) + 1], string.format("tpl %s takes no such argument", command.name),
      string.format("see tpl help %s", command.name))
  end
  for _, option in ipairs(command.options) do
    if option.needed and args.opts[key_of(option.name)] == nil then
      usage(option.name, string.format("tpl %s needs %s %s", command.name, option.name, option.value or ""), option.help)
    end
  end
end

return M
