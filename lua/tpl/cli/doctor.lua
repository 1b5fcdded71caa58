-- SPDX-License-Identifier: Apache-2.0
--- The command `tpl doctor`: every known trap of a multi-GPU host, checked, with what undoes it.
local doctor = require("tpl.doctor")
local err = require("tpl.err")
local out = require("tpl.cli.out")
local util = require("tpl.util")

local M = {}

--- Split FILE|MODEL names from the key=value words behind each.
local function targets(names)
  local models = {}
  for _, text in ipairs(names) do
    if text:find("^[%a_][%w_.]*=") then
      if #models == 0 then
        err.throw { code = "usage", where = text, message = "a key=value word stands behind a FILE or MODEL", hint = "tpl doctor MODEL tp=4" }
      end
      table.insert(models[#models].words, require("tpl.deploy").words({ text })[1])
    else
      models[#models + 1] = { name = text, words = {} }
    end
  end
  return models
end

local function nccl_value(log)
  if not log then return nil end
  local list = {}
  for i, p in ipairs(log.pairs) do
    list[i] = out.ordered({ "a", "b", "channels", "transport", "gdr" }, p)
  end
  return out.ordered({ "version", "pairs", "nets" }, { version = log.version, pairs = out.array(list), nets = out.array(util.copy(log.nets)) })
end

local function result(report)
  local list = {}
  for i, c in ipairs(report.checks) do list[i] = out.ordered({ "code", "status", "what", "evidence", "why", "fix" }, c) end
  return out.ordered({ "checks", "nccl" }, { checks = out.array(list), nccl = nccl_value(report.nccl) })
end

--- The error of a host on which checks failed: the envelope's `ok` and the exit code say the same.
local function failure(report)
  if report.failed == 0 then return nil end
  local codes = {}
  for _, c in ipairs(report.checks) do if c.status == "fail" then codes[#codes + 1] = c.code end end
  return err.new { code = "checks_failed", exit = 1, where = report.facts.host.where, message = table.concat(codes, ", "), hint = "each check has its fix" }
end

-- -- For people -------------------------------------------------------------------------------------------------------

local COLOUR = { ok = 32, warn = 33, fail = 31, skip = 90 }

local function painter(ctx)
  local find = require("tpl.find")
  local on = ctx.out.stdout_tty and not find.env("NO_COLOR") and find.env("TERM") ~= "dumb"
  return function(status, text) return on and string.format("\27[%dm%s\27[0m", COLOUR[status], text) or text end
end

local function show_nccl(ctx, log)
  if not log then return end
  ctx.out:text("\nNCCL %s%s\n", log.version or "of unknown version", #log.nets > 0 and "; networks: " .. table.concat(log.nets, ", ") or "")
  if #log.pairs == 0 then return end
  ctx.out:text("  %5s %5s %9s  %-24s %s\n", "rank", "rank", "channels", "transport", "GPUDirect RDMA")
  for _, p in ipairs(log.pairs) do
    ctx.out:text("  %5d %5d %9d  %-24s %s\n", p.a, p.b, p.channels, p.transport, p.gdr == nil and "-" or p.gdr and "yes" or "no")
  end
end

local function show(ctx, report)
  local paint = painter(ctx)
  local counts, skipped = { ok = 0, warn = 0, fail = 0, skip = 0 }, {}
  for _, c in ipairs(report.checks) do counts[c.status] = counts[c.status] + 1 end
  for _, status in ipairs { "fail", "warn" } do
    for _, c in ipairs(report.checks) do
      if c.status == status then
        ctx.out:text("%s  %s: %s\n      found: %s\n      why:   %s\n%s", paint(status, status), c.code, c.what, c.evidence, c.why,
          c.fix and "      fix:   " .. c.fix .. "\n" or "")
      end
    end
  end
  for _, c in ipairs(report.checks) do
    if c.status == "ok" then ctx.out:text("%s    %s: %s\n", paint("ok", "ok"), c.code, c.evidence) end
    if c.status == "skip" then skipped[#skipped + 1] = c end
  end
  for _, c in ipairs(skipped) do ctx.out:text("%s  %s: %s\n", paint("skip", "skip"), c.code, c.evidence) end
  show_nccl(ctx, report.nccl)
  ctx.out:text("\n%s: %d failed, %d warnings, %d in order, %d not checked\n", report.facts.host.where, counts.fail, counts.warn, counts.ok,
    counts.skip)
end

--- List the codes for `tpl help doctor`.
function M.codes()
  local lines, group = {}, nil
  for _, check in ipairs(doctor.checks()) do
    if check.group ~= group then
      group = check.group
      lines[#lines + 1] = group
    end
    lines[#lines + 1] = string.format("  %-24s %s", check.code, check.what)
  end
  return table.concat(lines, "\n") .. "\n"
end

function M.run(ctx)
  local opts = ctx.args.opts
  local report, e = doctor.examine {
    root = opts.root, nccl_log = opts.nccl_log, k8s = opts.k8s, models = targets(ctx.args.names),
  }
  if not report then err.throw(e) end
  for _, c in ipairs(report.checks) do
    if c.broken then ctx:warn { code = "check_failed", message = c.code .. ": " .. c.evidence } end
  end
  if opts.bundle then
    local sys = require("tpl.core").sys
    local ok, message, code = sys.write_file(opts.bundle, require("tpl.doctor.bundle").write(report))
    if not ok then err.throw(err.from_c(message, code, opts.bundle)) end
    ctx.out:note("tpl: wrote %s: hostnames, users, addresses, serial numbers and secrets are replaced; look through it before you send it",
      opts.bundle)
  end
  if ctx.json then ctx:finish(result(report), failure(report)) else show(ctx, report) end
  return report.failed > 0 and 1 or 0
end

return M
