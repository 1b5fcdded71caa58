-- SPDX-License-Identifier: Apache-2.0
--- Explain the commands: the overview, or one of them.
local commands = require("tpl.cli.commands")
local err = require("tpl.err")
local suggest = require("tpl.suggest")

local M = {}

local groups = { "Answer", "Look before you load", "Rows in, rows out", "Measure", "Other" }

local FOOT = [[

FILE is a deploy.lua, MODEL a path, file.gguf, folder, org/name in the Hugging Face cache, or a name in the model cache.
Environment: TPL_CACHE (models and measurements), TPL_PATH (folders with layouts/ and policies/), HF_HOME, HF_HUB_CACHE,
  TPL_ISA=portable|avx2|avx512|amx|neon, TPL_SEED; for tests TPL_FAULT, TPL_PAGE_ORDER, TPL_DETERMINISTIC.
Exit codes: 0 ok, 1 failed while running, 2 usage, 3 script or layout, 4 does not fit, 5 verification differs, 6 a file that is not
  valid or not supported, 130 interrupted.

  tpl help COMMAND     explains one command, with examples
]]

local function overview(ctx)
  ctx.out:text("%s", "tpl runs transformer models sharded over several devices: C executes, Lua decides.\n\nusage: tpl COMMAND ...\n")
  for _, group in ipairs(groups) do
    ctx.out:text("\n%s\n", group)
    for _, command in ipairs(commands.list) do
      if command.group == group then ctx.out:text("  %-12s %s\n", command.name, command.summary) end
    end
  end
  ctx.out:text("%s", FOOT)
end

local function option_line(option)
  local name = option.name
  if option.value then name = option.optional and name .. "[=" .. option.value .. "]" or name .. " " .. option.value end
  return string.format("  %-22s %s\n", name, option.help or "")
end

local function one(ctx, command)
  ctx.out:text("%s: %s\n\nusage: %s\n", "tpl " .. command.name, command.summary, command.usage)
  if command.about ~= "" then ctx.out:text("\n%s", command.about) end
  local shown = {}
  for _, option in ipairs(command.options) do
    if not option.later then shown[#shown + 1] = option_line(option) end
  end
  if #shown > 0 then ctx.out:text("\nOptions\n%s", table.concat(shown)) end
  if command.codes then ctx.out:text("\nChecks\n%s", (require(command.module).codes():gsub("%f[^\n%z]", "  "))) end
  ctx.out:text("\nExamples\n")
  for _, example in ipairs(command.examples) do ctx.out:text("  %s\n", example) end
end

--- Print the help of a command, or the overview.
function M.print(ctx, name)
  if not name then return overview(ctx) end
  local command = commands.find(name)
  if command then return one(ctx, command) end
  for _, later in ipairs(commands.later) do
    if later == name then
      err.throw { code = "not_in_version", where = "tpl " .. name, message = "not in this version" }
    end
  end
  err.throw { code = "usage", where = "tpl help", message = string.format("unknown command '%s'", name),
    hint = suggest.hint(name, commands.names(), "commands") }
end

function M.run(ctx)
  M.print(ctx, ctx.args.names[1])
  return 0
end

return M
