-- SPDX-License-Identifier: Apache-2.0
--- Treats Lua byte strings as sequences of Unicode code points, as Python's str does.
--- Pure ASCII takes the fast path. Indices are Python's (from 0) where a function says so.
local ffi = require("ffi")
local bit = require("bit")

local state = require("tpl.jinja.state")

local M = {}

local byte, char, find, sub = string.byte, string.char, string.find, string.sub
local CHAR = "[%z\1-\127\192-\255][\128-\191]*"

-- Long strings are tested a word at a time: prompts are scanned often, and a pattern costs 16 ns a byte.
local word_ptr = ffi.typeof("const uint32_t *")
local band = bit.band

local function is_ascii(s)
  local words = #s >= 64 and math.floor(#s / 4) or 0
  if words > 0 then
    local p = ffi.cast(word_ptr, s)
    for i = 0, words - 1 do
      if band(p[i], 0x80808080) ~= 0 then return false end
    end
  end
  return not find(s, "[\128-\255]", words * 4 + 1)
end
M.is_ascii = is_ascii

local byte_ptr = ffi.typeof("const uint8_t *")

--- Say whether a string is UTF-8 (RFC 3629: no overlong forms, no surrogates, at most U+10FFFF).
function M.is_utf8(s)
  local at = s:find("[\128-\255]")
  while at do
    local _, last = s:find("^[\194-\223][\128-\191]", at)
    if not last then _, last = s:find("^\224[\160-\191][\128-\191]", at) end
    if not last then _, last = s:find("^[\225-\236\238\239][\128-\191][\128-\191]", at) end
    if not last then _, last = s:find("^\237[\128-\159][\128-\191]", at) end
    if not last then _, last = s:find("^\240[\144-\191][\128-\191][\128-\191]", at) end
    if not last then _, last = s:find("^[\241-\243][\128-\191][\128-\191][\128-\191]", at) end
    if not last then _, last = s:find("^\244[\128-\143][\128-\191][\128-\191]", at) end
    if not last then return false end
    at = s:find("[\128-\255]", last + 1)
  end
  return true
end

--- Number of code points: bytes that do not continue a character.
function M.len(s)
  if is_ascii(s) then return #s end
  local p, n = ffi.cast(byte_ptr, s), 0
  for i = 0, #s - 1 do
    if band(p[i], 0xC0) ~= 0x80 then n = n + 1 end
  end
  return n
end

--- All code points as a list of strings.
function M.chars(s)
  state.chars(#s)
  local out, n = {}, 0
  for c in s:gmatch(CHAR) do
    n = n + 1
    out[n] = c
  end
  return out
end

--- Iterate over the code points as strings.
function M.each(s)
  return s:gmatch(CHAR)
end

--- Code point number of a one-character string.
function M.code(c)
  local a, b, d, e = byte(c, 1, 4)
  if not b or a < 0xC0 then return a end
  if a < 0xE0 then return (a - 0xC0) * 64 + b - 128 end
  if not d then return 0xFFFD end
  if a < 0xF0 then return ((a - 0xE0) * 64 + b - 128) * 64 + d - 128 end
  if not e then return 0xFFFD end
  return (((a - 0xF0) * 64 + b - 128) * 64 + d - 128) * 64 + e - 128
end

--- One-character string of a code point number.
function M.char(c)
  if c < 0x80 then return char(c) end
  local function tail(shift)
    return 128 + math.floor(c / shift) % 64
  end
  if c < 0x800 then return char(192 + math.floor(c / 64), tail(1)) end
  if c < 0x10000 then return char(224 + math.floor(c / 4096), tail(64), tail(1)) end
  return char(240 + math.floor(c / 262144), tail(4096), tail(64), tail(1))
end

-- Byte offset (from 0) at which character i (from 0) begins; `p` has n bytes, search from `at`, which
-- is the offset of character `from`.
local function offset_of(p, n, i, at, from)
  local count = from - 1
  for k = at, n - 1 do
    if band(p[k], 0xC0) ~= 0x80 then
      count = count + 1
      if count == i then return k end
    end
  end
  return n
end

--- Code points i to j (Python indices, j exclusive, both already clamped).
function M.slice(s, i, j)
  if i >= j then return "" end
  if is_ascii(s) then return sub(s, i + 1, j) end
  local p = ffi.cast(byte_ptr, s)
  local first = offset_of(p, #s, i, 0, 0)
  return sub(s, first + 1, offset_of(p, #s, j, first, i))
end

--- Python index of the character at byte position p.
function M.index_of(s, p)
  return M.len(sub(s, 1, p - 1))
end

-- White space of Python's str.isspace beyond ASCII, as UTF-8.
local wide_space = {}
for _, c in ipairs({ 0x85, 0xA0, 0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007,
  0x2008, 0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000 }) do
  wide_space[M.char(c)] = true
end

--- Whether the character is white space for Python.
function M.is_space(c)
  if #c == 1 then return find(c, "^[\t-\r\28-\31 ]$") ~= nil end
  return wide_space[c] == true
end

--- Byte position after the white space that begins at byte p.
function M.skip_space(s, p)
  while true do
    p = find(s, "[^\t-\r\28-\31 ]", p)
    if not p then return #s + 1 end
    if byte(s, p) < 0x80 then return p end
    local c = s:match("^" .. CHAR, p)
    if not c or not wide_space[c] then return p end
    p = p + #c
  end
end

--- Byte position of the last byte that is not trailing white space, searching back from byte p.
function M.skip_space_back(s, p)
  while p > 0 do
    local b = byte(s, p)
    if b >= 0x80 then
      local q = p
      while q > 1 and byte(s, q) < 0xC0 do q = q - 1 end
      if not wide_space[sub(s, q, p)] then return p end
      p = q - 1
    elseif b == 32 or (b >= 9 and b <= 13) or (b >= 28 and b <= 31) then
      p = p - 1
    else
      return p
    end
  end
  return 0
end

-- Byte position after the characters of `drop` that begin at byte p.
local function skip_set(s, p, drop)
  while p <= #s do
    local c = s:match("^" .. CHAR, p) or sub(s, p, p)
    if not drop[c] then break end
    p = p + #c
  end
  return p
end

-- Byte position of the last byte before the characters of `drop` that end at byte p.
local function skip_set_back(s, p, drop)
  while p > 0 do
    local q = p
    while q > 1 and byte(s, q) >= 128 and byte(s, q) < 192 do q = q - 1 end
    if not drop[sub(s, q, p)] then break end
    p = q - 1
  end
  return p
end

--- Strip the characters of `set` (a string, nil: white space) from the left and/or the right.
function M.strip(s, set, left, right)
  local from, to = 1, #s
  if not set then
    if left then from = M.skip_space(s, 1) end
    if right then to = M.skip_space_back(s, to) end
    return sub(s, from, to)
  end
  local drop = {}
  for c in M.each(set) do drop[c] = true end
  if left then from = skip_set(s, 1, drop) end
  if right then to = skip_set_back(s, to, drop) end
  return sub(s, from, to)
end

--- Parts between occurrences of `sep`, at most max + 1 of them if max is not negative.
function M.split(s, sep, max)
  local out, p = {}, 1
  while #out ~= max do
    local q = find(s, sep, p, true)
    if not q then break end
    out[#out + 1] = sub(s, p, q - 1)
    p = q + #sep
  end
  out[#out + 1] = sub(s, p)
  return out
end

local line_end = { ["\n"] = true, ["\v"] = true, ["\f"] = true, ["\28"] = true, ["\29"] = true,
  ["\30"] = true, ["\194\133"] = true, ["\226\128\168"] = true, ["\226\128\169"] = true }

--- Lines as str.splitlines gives them.
function M.lines(s, keep_ends)
  local out, from, p = {}, 1, 1
  while true do
    p = find(s, "[\n-\r\28-\30\194\226]", p)
    if not p then break end
    local c = s:match("^\r\n?", p) or s:match("^" .. CHAR, p)
    if byte(c) == 13 or line_end[c] then
      out[#out + 1] = sub(s, from, keep_ends and p + #c - 1 or p - 1)
      from = p + #c
    end
    p = p + #c
  end
  if from <= #s then out[#out + 1] = sub(s, from) end
  return out
end

return M
