-- SPDX-License-Identifier: Apache-2.0
--- Match module names against the lists of what quantisation leaves alone: globs (`model.layers.*.self_attn`), plain
--- names, and the regular expressions of compressed-tensors (`re:.*mlp\.gate$`). Lua has no alternation, so an
--- expression becomes several patterns; one that uses more than lists need matches nothing. Pure.
local M = {}

local MOST = 64 -- patterns that one expression may become

local magic = "[%^%$%(%)%%%.%[%]%*%+%-%?]"
local classes = { d = "%d", w = "[%w_]", s = "%s", D = "%D", S = "%S" }

-- Splits at the bars that stand outside groups; nil when brackets do not match.
local function branches(re)
  local out, depth, from, i = {}, 0, 1, 1
  while i <= #re do
    local c = re:sub(i, i)
    if c == "\\" then i = i + 1
    elseif c == "(" then depth = depth + 1
    elseif c == ")" then depth = depth - 1
    elseif c == "|" and depth == 0 then
      out[#out + 1] = re:sub(from, i - 1)
      from = i + 1
    end
    i = i + 1
  end
  if depth ~= 0 then return nil end
  out[#out + 1] = re:sub(from)
  return out
end

-- One group after another is replaced by each of its branches.
local function expand(re, out)
  local list = branches(re)
  if not list or #out + #list > MOST then return nil end
  for _, one in ipairs(list) do
    local from, to = nil, nil
    local i = 1
    while i <= #one and not from do
      local c = one:sub(i, i)
      if c == "\\" then i = i + 1 elseif c == "(" then from = i end
      i = i + 1
    end
    if from then
      to = one:match("^%b()()", from)
      if not to or one:sub(to, to):find("[%*%+%?{]") then return nil end
      for _, inner in ipairs(branches(one:sub(from + 1, to - 2):gsub("^%?:", "")) or {}) do
        if not expand(one:sub(1, from - 1) .. inner .. one:sub(to), out) then return nil end
      end
    else
      out[#out + 1] = one
    end
  end
  return out
end

local function translate(re)
  local out, i = {}, 1
  while i <= #re do
    local c = re:sub(i, i)
    if c == "\\" then
      i = i + 1
      local e = re:sub(i, i)
      out[#out + 1] = classes[e] or (e:find("%w") and "%z") or "%" .. e
    elseif c == "[" then
      local to = re:find("]", i + 2, true)
      if not to then return nil end
      out[#out + 1] = (re:sub(i, to):gsub("%%", "%%%%"):gsub("\\d", "%%d"))
      i = to
    elseif c == "{" then return nil
    elseif c == "-" or c == "%" then out[#out + 1] = "%" .. c
    else out[#out + 1] = c -- . * + ? ^ $ mean the same
    end
    i = i + 1
  end
  return "^" .. table.concat(out):gsub("^%^", "")
end

local function from_regex(re)
  local out = {}
  for _, one in ipairs(expand(re, {}) or {}) do
    local p = translate(one)
    if p and pcall(string.find, "", p) then out[#out + 1] = p end
  end
  return function(name)
    for _, p in ipairs(out) do if name:find(p) then return true end end
    return false
  end
end

--- Compile one entry of such a list. A plain entry names a module, one above it, or the last part of its name.
---@param entry string
---@return fun(name: string): boolean
function M.compile(entry)
  if entry:sub(1, 3) == "re:" then return from_regex(entry:sub(4)) end
  local body = entry:gsub(magic, "%%%0"):gsub("%%%*", ".*")
  local whole, above, tail = "^" .. body .. "$", "^" .. body .. "%.", "%." .. body .. "$"
  local inside = "%." .. body .. "%."
  return function(name)
    return name:find(whole) ~= nil or name:find(above) ~= nil or name:find(tail) ~= nil or name:find(inside) ~= nil
  end
end

--- Compile a list of entries into one test.
---@param list string[]
---@return fun(name: string): boolean
function M.any(list)
  local tests = {}
  for _, entry in ipairs(list) do
    if type(entry) == "string" then tests[#tests + 1] = M.compile(entry) end
  end
  return function(name)
    for _, f in ipairs(tests) do if f(name) then return true end end
    return false
  end
end

return M
