-- SPDX-License-Identifier: Apache-2.0
--- Check a multi-GPU host for the traps that are known (facts/topology.md section 8), and say how each is undone.
-- The checks are the files of tpl/doctor/checks: pure functions of tpl.doctor.facts, which reads this machine, a recorded tree or a
-- bundle alike. A check that cannot be made says "skip" and why, never "ok".
local err = require("tpl.err")
local facts = require("tpl.doctor.facts")
local host = require("tpl.doctor.host")

local M = {}

---@class tpl.doctor.Finding
---@field code string      stable word, listed by `tpl help doctor`
---@field status "ok"|"warn"|"fail"|"skip"
---@field what string      what was looked at
---@field evidence string  the value found and where it stands; for skip: why the check could not be made
---@field why string       what goes wrong otherwise
---@field fix string?      the command that helps; nil unless warn or fail

local GROUPS = {
  require("tpl.doctor.checks.driver"), require("tpl.doctor.checks.gpu"), require("tpl.doctor.checks.pcie"), require("tpl.doctor.checks.fabric"),
  require("tpl.doctor.checks.rdma"), require("tpl.doctor.checks.limits"), require("tpl.doctor.checks.numa"), require("tpl.doctor.checks.env"), require("tpl.doctor.checks.nccl"),
  require("tpl.doctor.checks.model"), require("tpl.doctor.checks.k8s"),
}

--- List the checks: {code, group, what, why, run}, in the order in which they are shown.
---@return table[]
function M.checks()
  local out = {}
  for _, group in ipairs(GROUPS) do
    for _, check in ipairs(group) do out[#out + 1] = check end
  end
  return out
end

-- What stands in a host's files may be no text at all: evidence is one line of ASCII.
local function one_line(text) return (tostring(text):gsub("%s*[%c]+%s*", " "):gsub("[\128-\255]", "?")) end

local function examine(check, f)
  local found, e = err.try(check.run, f)
  -- A host's files may hold anything: a check that trips over them could not be made, and the others go on.
  found = found or { status = "skip", evidence = "the check itself failed: " .. tostring(e), broken = true }
  if found.status == "ok" and check.needs_env and not f.env_recorded then
    found = { status = "skip", evidence = "the host's environment is not recorded (env, or proc/self/environ); in tpl's own: " .. found.evidence }
  end
  return {
    code = check.code, status = found.status, what = check.what, evidence = one_line(found.evidence), why = check.why,
    fix = found.fix and one_line(found.fix) or nil, group = check.group, broken = found.broken,
  }
end

--- Run the checks on gathered facts.
---@param f tpl.doctor.Facts
---@return tpl.doctor.Finding[]
function M.run(f)
  local out = {}
  for i, check in ipairs(M.checks()) do out[i] = examine(check, f) end
  return out
end

local function read_file(path)
  local sys = require("tpl.core").sys
  local text, message, code = sys.load_file(path, 256 * 2 ^ 20)
  if not text then err.throw(err.from_c(message, code, path)) end
  return text
end

--- Open what --root names: a folder, or a bundle.
local function open_host(root)
  if not root then return host.live() end
  local sys = require("tpl.core").sys
  if sys.is_dir(root) then return host.tree(root) end
  if not sys.exists(root) then err.throw { code = "missing", where = root, message = "no such folder or bundle" } end
  return require("tpl.doctor.bundle").read(read_file(root), root)
end

---@class tpl.doctor.Options
---@field root? string       folder of a recorded tree (proc, sys, etc, dev), or a bundle; nil: this machine
---@field nccl_log? string   file
---@field k8s? string        file
---@field models? {name: string, words: table[]}[]
---@field topo? table        a topology, in place of the one recorded or probed

---@class tpl.doctor.Report
---@field checks tpl.doctor.Finding[]
---@field nccl tpl.doctor.NcclLog?
---@field failed integer     how many checks failed
---@field facts tpl.doctor.Facts

--- Examine a host.
---@param opts? tpl.doctor.Options
---@return tpl.doctor.Report?
---@return tpl.Err?
function M.examine(opts)
  opts = opts or {}
  return err.try(function()
    local h = open_host(opts.root)
    local log = opts.nccl_log and require("tpl.doctor.nccl_log").parse(read_file(opts.nccl_log))
    local k8s = opts.k8s and require("tpl.doctor.k8s").parse(read_file(opts.k8s), opts.k8s)
    local models = {}
    for i, model in ipairs(opts.models or {}) do models[i] = require("tpl.doctor.model_facts").read(model.name, model.words) end
    local parts = h.parts
    local f = facts.gather(h, { topo = opts.topo, log = log or parts.log, k8s = k8s or parts.k8s, models = #models > 0 and models or parts.models })
    local report = { checks = M.run(f), nccl = f.log, facts = f, failed = 0 }
    for _, finding in ipairs(report.checks) do
      if finding.status == "fail" then report.failed = report.failed + 1 end
    end
    return report
  end)
end

return M
