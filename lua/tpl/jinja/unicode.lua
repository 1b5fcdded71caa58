-- SPDX-License-Identifier: Apache-2.0
--- Answers Python's questions about characters: case mapping, isalpha, isprintable and so on.
--- ASCII is answered without tables; the tables of unicode_data.lua are unpacked at first use.
local text = require("tpl.jinja.text")
local data = require("tpl.jinja.unicode_data")

local M = {}

local sets, maps = {}, {}

--- Unpack a set into the sorted list first1, end1, first2, end2, ...
local function unpack_set(name)
  local out, at, is_gap = {}, 0, true
  for word in data[name]:gmatch("%S+") do
    at = at + tonumber(word, 36)
    out[#out + 1] = at
    is_gap = not is_gap
  end
  assert(is_gap)
  sets[name] = out
  return out
end

--- Whether code point c lies in a set: the number of bounds at or below c is odd.
local function in_set(name, c)
  local list = sets[name] or unpack_set(name)
  local lo, hi = 0, #list
  while lo < hi do
    local mid = math.floor((lo + hi + 1) / 2)
    if list[mid] <= c then lo = mid else hi = mid - 1 end
  end
  return lo % 2 == 1
end

local function base36(word)
  if word:sub(1, 1) == "-" then return -tonumber(word:sub(2), 36) end
  return tonumber(word, 36)
end

local function unpack_map(name)
  local out, at = {}, 0
  for gap, count, step, delta in data[name]:gmatch("(%S+) (%S+) (%S+) (%S+)") do
    at = at + base36(gap)
    for i = 0, base36(count) - 1 do
      local c = at + i * base36(step)
      out[text.char(c)] = text.char(c + base36(delta))
    end
  end
  for c, many in pairs(data[name .. "_many"]) do out[text.char(c)] = many end
  maps[name] = out
  return out
end

local function map_of(name)
  return maps[name] or unpack_map(name)
end

--- Whether all characters satisfy a predicate; false for the empty string.
local function all(s, test)
  if s == "" then return false end
  for c in text.each(s) do
    if not test(c) then return false end
  end
  return true
end

local function ascii_or(pattern, ...)
  local names = { ... }
  return function(c)
    if #c == 1 then return c:find(pattern) ~= nil end
    local code = text.code(c)
    for i = 1, #names do
      if in_set(names[i], code) then return true end
    end
    return false
  end
end

local alpha = ascii_or("^%a$", "alpha")
local alnum = ascii_or("^%w$", "alpha", "decimal", "digit", "numeric")
local decimal = ascii_or("^%d$", "decimal")
local digit = ascii_or("^%d$", "decimal", "digit")
local numeric = ascii_or("^%d$", "decimal", "digit", "numeric")
local lower = ascii_or("^%l$", "lower")
local upper = ascii_or("^%u$", "upper")
local printable = ascii_or("^[ -~]$", "printable")

--- Whether one character can stand in a name; the first one may not be a digit.
function M.is_word(c, first)
  return c == "_" or alpha(c) or not first and decimal(c)
end

M.is_printable = printable
M.is_alnum_char = alnum
function M.is_alpha(s) return all(s, alpha) end
function M.is_alnum(s) return all(s, alnum) end
function M.is_decimal(s) return all(s, decimal) end
function M.is_digit(s) return all(s, digit) end
function M.is_numeric(s) return all(s, numeric) end
function M.is_space(s) return all(s, text.is_space) end
function M.is_all_printable(s) return s == "" or all(s, printable) end

--- islower/isupper: at least one cased character, and none of the other case.
local function one_case(s, want, other)
  local seen = false
  for c in text.each(s) do
    if other(c) then return false end
    seen = seen or want(c)
  end
  return seen
end

-- Titlecase letters (U+01C5 and the like) are cased, but neither lower nor upper.
local function titlecase(c)
  return #c > 1 and not lower(c) and not upper(c) and map_of("to_lower")[c] ~= nil
end

local function cased(c)
  return lower(c) or upper(c) or titlecase(c)
end

function M.is_lower(s)
  return one_case(s, lower, function(c) return upper(c) or titlecase(c) end)
end

function M.is_upper(s)
  return one_case(s, upper, function(c) return lower(c) or titlecase(c) end)
end

function M.is_title(s)
  local seen, in_word = false, false
  for c in text.each(s) do
    if upper(c) or titlecase(c) then
      if in_word then return false end
      seen, in_word = true, true
    elseif lower(c) then
      if not in_word then return false end
      seen = true
    else
      in_word = false
    end
  end
  return seen
end

function M.upper(s)
  if text.is_ascii(s) then return s:upper() end
  local map = map_of("to_upper")
  return (s:gsub("[%z\1-\127\192-\255][\128-\191]*", map))
end

-- Final sigma: after a cased letter and before none (Unicode 3.13). Marks between are not skipped.
local function lower_sigma(chars, i)
  local before, after = chars[i - 1], chars[i + 1]
  local final = before and cased(before) and not (after and cased(after))
  return final and "\207\130" or "\207\131"
end

local function lower_chars(chars, from, to)
  local map, out = map_of("to_lower"), {}
  for i = from, to do
    local c = chars[i]
    out[#out + 1] = c == "\206\163" and lower_sigma(chars, i) or map[c] or c
  end
  return table.concat(out)
end

function M.lower(s)
  if text.is_ascii(s) then return s:lower() end
  local chars = text.chars(s)
  return lower_chars(chars, 1, #chars)
end

local title_map

--- Title-case form of one character.
local function title_char(c)
  if not title_map then
    title_map = {}
    for code, t in pairs(data.to_title) do title_map[text.char(code)] = t end
  end
  return title_map[c] or map_of("to_upper")[c] or c
end

--- Raise the first character and lower the others, as str.capitalize does.
function M.capitalize(s)
  if s == "" then return s end
  if text.is_ascii(s) then return s:sub(1, 1):upper() .. s:sub(2):lower() end
  local chars = text.chars(s)
  return title_char(chars[1]) .. lower_chars(chars, 2, #chars)
end

--- str.title: a letter after a letter is lowered, any other is raised.
function M.title(s)
  local chars, out, in_word = text.chars(s), {}, false
  for i, c in ipairs(chars) do
    if in_word then
      out[i] = lower_chars(chars, i, i)
    else
      out[i] = title_char(c)
    end
    in_word = cased(c)
  end
  return table.concat(out)
end

function M.swapcase(s)
  local chars, out = text.chars(s), {}
  for i, c in ipairs(chars) do
    if upper(c) then
      out[i] = lower_chars(chars, i, i)
    else
      out[i] = lower(c) and M.upper(c) or c
    end
  end
  return table.concat(out)
end

function M.casefold(s)
  if text.is_ascii(s) then return s:lower() end
  local map, out = map_of("to_lower"), {}
  for c in text.each(s) do
    out[#out + 1] = data.fold[text.code(c)] or map[c] or c
  end
  return table.concat(out)
end

return M
