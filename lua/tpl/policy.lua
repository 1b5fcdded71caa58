-- SPDX-License-Identifier: Apache-2.0
--- Load and run placement policies: function(topo, model, want) -> placement, reasons.
-- A policy is a user's file. It sees copies, runs within a time limit and with seeded random numbers, and whatever goes wrong in it or with what
-- it returns is one error that names its file and line. A policy that finds no place returns nil and the reason; that is no fault of the
-- policy but "no_fit", exit 4.
local check = require("tpl.policy.check")
local err = require("tpl.err")
local find = require("tpl.find")
local graph = require("tpl.topo.graph")
local guard = require("tpl.policy.guard")
local script = require("tpl.script")
local util = require("tpl.util")

local M = {}

M.SOFT_S, M.HARD_S = 5, 60 -- a warning after the first, an end after the second: layout.md section 4, hook `place`

---@class tpl.Policy
---@field name string     as the user wrote it; "function" for a function
---@field file string?    path; nil for a function
---@field from string     where it was found: "path" | "beside deploy.lua" | "working folder" | "TPL_PATH" | "built in" | "function"
---@field where string    "file:line" of the function
---@field call function
---@field except table<string, string>   properties of `tpl test-policy` that the file says it breaks on purpose -> why

local function file_of(source) return source:match("^@(.*)$") or source:gsub("^=", "") end

local function from_function(fn)
  local info = debug.getinfo(fn, "S")
  if info.what == "C" then
    err.throw { code = "policy_error", where = "place", message = "is a function of a library in C; a Lua function (topo, model, want) is needed" }
  end
  return { name = "function", from = "function", where = file_of(info.source) .. ":" .. info.linedefined, call = fn, except = {} }
end

--- Run the file of a policy; whatever fails in it is the policy's error.
local function run_file(hit)
  local value, run = err.try(script.run, hit.path)
  if run and err.is(run) then
    local e = run
    if e.code == "script" or e.code == "internal" then e.code, e.exit = "policy_error", 3 end
    err.throw(e)
  end
  return value, script.returned_at(run)
end

--- Read what a policy says it breaks on purpose: { place = f, except = { unchosen_free = "why" } }.
local function exceptions(value, where)
  local except = type(value) == "table" and value.except or {}
  if type(except) ~= "table" then except = { except } end
  for name, why in util.pairs(except) do
    if type(name) ~= "string" or type(why) ~= "string" then
      err.throw { code = "policy_error", where = where, message = "except: a table { property = \"why\" } is needed" }
    end
  end
  return util.copy(except)
end

local function from_file(name, dir)
  local hit, e = find.script("policies", name, dir)
  if not hit then
    e.where = e.where or "place"
    err.throw(e)
  end
  local value, returned_at = run_file(hit)
  local fn = type(value) == "table" and value.place or value
  if type(fn) ~= "function" then
    err.throw { code = "policy_error", where = returned_at,
      message = ("a policy returns a function (topo, model, want), or a table with one as `place`; got %s"):format(
        type(value) == "table" and "a table without one" or value == nil and "nothing" or "a " .. type(value)) }
  end
  local p = from_function(fn)
  p.name, p.file, p.from, p.except = name, hit.path, hit.from, exceptions(value, returned_at)
  if file_of(debug.getinfo(fn, "S").source) ~= hit.path then p.where = returned_at end
  return p
end

--- Load a policy: a file (its text has a / or ends in .lua), a name searched as interface.md section 1 says, or a function.
---@param what string|function
---@param dir? string      folder of deploy.lua; nil: the working folder
---@return tpl.Policy?
---@return tpl.Err?        code "policy_error", exit 3
function M.load(what, dir)
  return err.try(function()
    local p
    if type(what) == "function" then p = from_function(what)
    elseif type(what) == "string" then p = from_file(what, dir)
    else
      err.throw { code = "policy_error", where = "place", message = ("is a %s; a name, a file or a function is needed"):format(type(what)) }
    end
    guard.interpret(p.call)
    return p
  end)
end

-- -- Running --------------------------------------------------------------------------------------------------

local function at_line(p, line) return line and file_of(debug.getinfo(p.call, "S").source) .. ":" .. line or p.where end

--- Copy a topology; its index is made anew, since it points into the tables of the original.
local function copy_topo(topo)
  local copy = guard.copy(topo)
  return graph.is(topo) and graph.new(copy) or copy
end

local function call(p, o, topo, model, want, on_line)
  local seen = { topo = copy_topo(topo), model = guard.copy(model), want = guard.copy(want) }
  local ok, got, seconds = guard.call(p.call, { source = debug.getinfo(p.call, "S").source, hard_s = o.hard_s or M.HARD_S, clock = o.clock,
    on_line = on_line }, seen.topo, seen.model, seen.want)
  if o.seen and not on_line then o.seen(seen) end
  return ok, got, seconds
end

--- Give the line of the `return` that a function left through: it is called once more with a hook on its lines.
local function return_line(p, o, topo, model, want)
  local info, last = debug.getinfo(p.call, "S"), nil
  call(p, o, topo, model, want, function(line)
    if line >= info.linedefined and line <= info.lastlinedefined then last = line end
  end)
  local file = p.file or info.source:match("^@(.*)$")
  local text = last and file and err.try(script.read, file)
  local number, best = 0, nil
  for line in ((text or "") .. "\n"):gmatch("(.-)\n") do
    number = number + 1
    if number > (last or 0) then break end
    if number >= info.linedefined and line:find("%f[%w_]return%f[^%w_]") then best = number end
  end
  return best or last
end

-- What the library says about the machine or the model, and not about the policy, keeps its code: does not fit, needs --assume.
local function keeps_its_code(e) return e and (e.exit == 4 or e.exit == 6) end

local function failure(p, got)
  local e = got.error
  if keeps_its_code(e) then
    e.where = e.where or at_line(p, got.line)
    return e
  end
  return err.new { code = "policy_error", where = at_line(p, got.line), message = got.message, hint = e and e.hint, policy = p.name }
end

local function refusal(p, why, where)
  if type(why) == "table" and type(why[1]) == "string" and #why > 0 then why = table.concat(why, "; ") end
  if type(why) == "string" then return err.new { code = "no_fit", where = where(), message = why, policy = p.name } end
  return err.new { code = "policy_error", rule = "wrong_type", where = where(), policy = p.name,
    message = "gave nil and no reason; { replicas = { .. } } is needed, or nil and a text that says why nothing fits" }
end

--- Put the second result where check looks for it; reasons in both places are joined.
local function join(placement, reasons)
  if type(placement) ~= "table" or reasons == nil or reasons == placement.reasons then return placement end
  local out, all = util.copy(placement), {}
  if type(reasons) == "string" then reasons = { reasons } end
  if out.reasons == nil or type(reasons) ~= "table" then
    out.reasons = reasons
  elseif type(out.reasons) == "table" then
    for _, list in ipairs { out.reasons, reasons } do
      for _, text in ipairs(list) do all[#all + 1] = text end
    end
    out.reasons = all
  end
  return out
end

---@class tpl.PolicyRunOptions
---@field soft_s number?   instead of M.SOFT_S
---@field hard_s number?   instead of M.HARD_S
---@field clock? fun(): number
---@field quick boolean?   a refusal names the function instead of its `return`, for which the policy has to run again
---@field seen? fun(copies: {topo: table, model: table, want: table})   what the policy was given, as it left it

--- Run a policy on copies of its arguments and check what it returns.
---@param p tpl.Policy|function|string
---@param topo table      topology object
---@param model table?    Shape
---@param want table
---@param o? tpl.PolicyRunOptions
---@return tpl.Placement?
---@return table[]|tpl.Err   warnings {code, message, where}; or the error: "policy_error" exit 3, "no_fit" exit 4 where it found no place
function M.run(p, topo, model, want, o)
  return err.try(function()
    o, want = o or {}, want or {}
    if type(p) ~= "table" then p = assert(M.load(p)) end
    local ok, got, seconds = call(p, o, topo, model, want)
    if not ok then err.throw(failure(p, got)) end
    local function where() return at_line(p, return_line(p, o, topo, model, want)) end
    if got[1] == nil then err.throw(refusal(p, got[2], o.quick and type(got[2]) == "string" and function() return p.where end or where)) end
    local placement, e = check.check(join(got[1], got[2]), topo, model, want)
    if not placement then
      e.where, e.policy = where(), p.name
      err.throw(e)
    end
    local warnings = {}
    if seconds > (o.soft_s or M.SOFT_S) then
      warnings[1] = { code = "policy_slow", where = p.where, message = ("the policy took %.1f s; %g s are expected"):format(seconds, o.soft_s or M.SOFT_S) }
    end
    return placement, warnings
  end)
end

M.check = check.check

return M
