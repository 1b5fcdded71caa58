-- SPDX-License-Identifier: Apache-2.0
--- Call a user's function within a time limit, find the line it failed at, and keep its hands off what it was given.
-- LuaJIT calls hooks from interpreted code only: a compiled `while true do end` never ends. So the functions of the user's file, and those they
-- reach through locals, globals of the file and tables, are kept out of the compiler, and a count hook looks at the clock; the library that
-- they call stays compiled. A C function that never returns (a pattern that backtracks) cannot be stopped, nor can a loop inside the library.
local err = require("tpl.err")

local M = {}

local INSTRUCTIONS = 10000 -- between looks at the clock: well under a millisecond of interpreted code

local own_folder = debug.getinfo(1, "S").source:match("^@(.*)policy/guard%.lua$")

--- Say whether a function belongs to the library, and not to a policy, layout or model definition that comes with it.
local function is_library(source)
  local rest = own_folder and source:sub(1, #own_folder + 1) == "@" .. own_folder and source:sub(#own_folder + 2)
  return rest and not rest:find("^layouts/") and not rest:find("^models/")
end

--- Keep a function, and every function of scripts that it can reach, out of the compiler.
---@param fn function
function M.interpret(fn)
  local seen, todo = { [_G] = true, [package.loaded] = true }, { fn }
  local function add(v)
    local kind = type(v)
    if (kind == "function" or kind == "table") and not seen[v] then
      seen[v] = true
      todo[#todo + 1] = v
    end
  end
  while #todo > 0 and #todo < 100000 do
    local v = table.remove(todo)
    if type(v) == "table" then
      for _, x in next, v do add(x) end
    else
      local info = debug.getinfo(v, "Su")
      if info.what ~= "C" and not is_library(info.source) then
        if jit then jit.off(v, true) end
        for i = 1, info.nups do add(select(2, debug.getupvalue(v, i))) end
        add(debug.getfenv(v))
      end
    end
  end
end

--- Copy a value with everything in it: tables that are shared, cycles and metatables stay as they are, functions are not copied.
---@generic T
---@param value T
---@return T
function M.copy(value)
  local done = {}
  local function copy(v)
    if type(v) ~= "table" then return v end
    local out = done[v]
    if out then return out end
    out = {}
    done[v] = out
    for k, x in next, v do
      if type(x) == "table" then x = copy(x) end
      if type(k) == "table" then k = copy(k) end
      out[k] = x
    end
    return setmetatable(out, getmetatable(v))
  end
  return copy(value)
end

local function now_s() return require("tpl.core").sys.now_us() / 1e6 end

--- Give the innermost line of a file among the frames, and the message without the place before it.
local function place_of(raw, source)
  local level, line, short = 3, nil, nil
  while not line do
    local info = debug.getinfo(level, "Sl")
    if not info then break end
    if info.source == source and info.currentline > 0 then line, short = info.currentline, info.short_src end
    level = level + 1
  end
  local text = tostring(raw)
  local name, at, rest = text:match("^(.-):(%d+): (.*)$")
  if short and name == short then return tonumber(at), rest end
  return line, text
end

---@class tpl.GuardOptions
---@field source string      "@file" of the function, as debug.getinfo says it
---@field hard_s number      the call is stopped after so many seconds
---@field clock? fun(): number   seconds; replaced in specs
---@field on_line? fun(line: integer)   called for each line of the file that runs, at a price

--- Call a function with a limit. math.random is seeded: equal arguments give equal results, and the caller's own sequence goes on.
---@param fn function
---@param o tpl.GuardOptions
---@return boolean ok
---@return table results      {n=, ..}; or {line=, message=, error=}: line of the file nearest to the failure (nil: none), error: a tpl.Err that was thrown
---@return number seconds
function M.call(fn, o, ...)
  local clock = o.clock or now_s
  local start, expired, handler = clock(), false, nil
  local old, mask, count = debug.gethook()
  local function hook(event, line)
    if event == "line" and debug.getinfo(2, "S").source == o.source then o.on_line(line) end
    if not expired and clock() - start > o.hard_s then
      expired = true
      debug.sethook(hook, "", 1) -- no pcall of the policy outlives this
    end
    if not expired then return end
    local here = debug.getinfo(2, "f").func
    if here ~= M.call and here ~= handler then error(("it ran for more than %g s and was stopped"):format(o.hard_s), 0) end
  end
  local resume = math.random(2 ^ 31 - 1)
  math.randomseed(20240229) -- any fixed number
  local args, n = { ... }, select("#", ...)
  debug.sethook(hook, o.on_line and "l" or "", INSTRUCTIONS)
  local function pack(...) return { n = select("#", ...), ... } end
  function handler(raw)
    debug.sethook()
    local line, message = place_of(raw, o.source)
    if err.is(raw) then return { line = line, message = raw.message, error = raw } end
    if type(raw) ~= "string" then message = ("it raised a value of type %s; a text is needed"):format(type(raw)) end
    return { line = line, message = message }
  end
  local ok, got = xpcall(function()
    local results = pack(fn(unpack(args, 1, n))) -- no tail call: a limit that was passed is noticed in here
    debug.sethook()
    return results
  end, handler)
  debug.sethook()
  if old then debug.sethook(old, mask, count) end
  math.randomseed(resume)
  if not ok and type(got) ~= "table" then got = { message = tostring(got) } end -- the handler itself was stopped
  return ok, got, clock() - start
end

return M
