-- SPDX-License-Identifier: Apache-2.0
--- Formats a local date and time as Python's strftime does in the C locale.
local errors = require("tpl.jinja.errors")

local M = {}

local weekdays = { "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday" }
local months = { "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
  "November", "December" }

-- Days since 1970-01-01 of a Gregorian date (Howard Hinnant, "chrono-compatible date algorithms").
local function days_from_civil(year, month, day)
  if month <= 2 then year = year - 1 end
  local era = math.floor(year / 400)
  local year_of_era = year - era * 400
  local day_of_year = math.floor((153 * (month + (month > 2 and -3 or 9)) + 2) / 5) + day - 1
  local day_of_era = year_of_era * 365 + math.floor(year_of_era / 4) - math.floor(year_of_era / 100) + day_of_year
  return era * 146097 + day_of_era - 719468
end

--- Complete a date {year, month, day, hour, min, sec} with its weekday (0 = Sunday) and day of the year.
local function complete(t)
  local days = days_from_civil(t.year, t.month, t.day)
  return {
    year = t.year, month = t.month, day = t.day, hour = t.hour or 0, min = t.min or 0, sec = t.sec or 0,
    usec = t.usec or 0, wday = (days + 4) % 7, yday = days - days_from_civil(t.year, 1, 1) + 1,
  }
end

--- Parse "2025-07-06T09:05:03", with " " for "T", without seconds or time, with a fraction.
---@return table? date, string? err
function M.parse(s)
  local year, month, day, rest = s:match("^(%d%d%d%d)-(%d%d)-(%d%d)(.*)$")
  if not year then return nil, "now: '" .. s .. "' is no ISO 8601 local time" end
  local hour, min, after = rest:match("^[T ](%d%d):(%d%d)(.*)$")
  local sec, fraction = (after or ""):match("^:(%d%d)%.?(%d*)$")
  local date = { year = tonumber(year), month = tonumber(month), day = tonumber(day), hour = tonumber(hour or 0),
    min = tonumber(min or 0), sec = tonumber(sec or 0), usec = 0 }
  if fraction and fraction ~= "" then date.usec = tonumber((fraction .. "00000"):sub(1, 6)) end
  local whole = rest == "" or after == "" or sec ~= nil
  if not whole or date.month < 1 or date.month > 12 or date.day < 1 or date.day > 31 or date.hour > 23
    or date.min > 59 or date.sec > 60 then
    return nil, "now: '" .. s .. "' is no ISO 8601 local time"
  end
  return date
end

local function two(n) return ("%02d"):format(n) end

-- ISO 8601 week: the week of the year's first Thursday is week 1.
local function iso_week(t)
  local weekday = (t.wday + 6) % 7
  local thursday = days_from_civil(t.year, t.month, t.day) - weekday + 3
  local year = t.year
  if thursday < days_from_civil(year, 1, 1) then year = year - 1 end
  if thursday >= days_from_civil(year + 1, 1, 1) then year = year + 1 end
  return math.floor((thursday - days_from_civil(year, 1, 1)) / 7) + 1, year
end

local codes = {
  Y = function(t) return ("%d"):format(t.year) end,
  C = function(t) return two(math.floor(t.year / 100)) end,
  y = function(t) return two(t.year % 100) end,
  m = function(t) return two(t.month) end,
  d = function(t) return two(t.day) end,
  e = function(t) return ("%2d"):format(t.day) end,
  H = function(t) return two(t.hour) end,
  I = function(t) return two((t.hour + 11) % 12 + 1) end,
  k = function(t) return ("%2d"):format(t.hour) end,
  l = function(t) return ("%2d"):format((t.hour + 11) % 12 + 1) end,
  M = function(t) return two(t.min) end,
  S = function(t) return two(t.sec) end,
  f = function(t) return ("%06d"):format(t.usec) end,
  p = function(t) return t.hour < 12 and "AM" or "PM" end,
  P = function(t) return t.hour < 12 and "am" or "pm" end,
  A = function(t) return weekdays[t.wday + 1] end,
  a = function(t) return weekdays[t.wday + 1]:sub(1, 3) end,
  B = function(t) return months[t.month] end,
  b = function(t) return months[t.month]:sub(1, 3) end,
  j = function(t) return ("%03d"):format(t.yday) end,
  w = function(t) return ("%d"):format(t.wday) end,
  u = function(t) return ("%d"):format((t.wday + 6) % 7 + 1) end,
  U = function(t) return two(math.floor((t.yday + 6 - t.wday) / 7)) end,
  W = function(t) return two(math.floor((t.yday + 6 - (t.wday + 6) % 7) / 7)) end,
  V = function(t) return two((iso_week(t))) end,
  G = function(t) return ("%d"):format(select(2, iso_week(t))) end,
  Z = function() return "" end,
  z = function() return "" end,
  n = function() return "\n" end,
  t = function() return "\t" end,
  ["%"] = function() return "%" end,
}
codes.h = codes.b

local combined = { D = "%m/%d/%y", x = "%m/%d/%y", F = "%Y-%m-%d", T = "%H:%M:%S", X = "%H:%M:%S", R = "%H:%M",
  r = "%I:%M:%S %p", c = "%a %b %e %H:%M:%S %Y" }

local function expand(format, t)
  return (format:gsub("%%([-_0^#]?)(.)", function(flag, code)
    local s
    if combined[code] then s = expand(combined[code], t) elseif codes[code] then s = codes[code](t) end
    if not s then return nil end
    if flag == "-" then return (s:gsub("^[ 0]+(.)", "%1")) end
    if flag == "_" then return (s:gsub("^0+%f[%d]", function(zeros) return (" "):rep(#zeros) end)) end
    if flag == "0" then return (s:gsub("^ +", function(blanks) return ("0"):rep(#blanks) end)) end
    if flag == "^" or flag == "#" then return s:upper() end
    return s
  end))
end

--- Format a date table {year, month, day, hour, min, sec}.
function M.format(format, date)
  if type(format) ~= "string" then errors.raise("TypeError", "strftime() argument 1 must be str") end
  return expand(format, complete(date))
end

return M
