-- SPDX-License-Identifier: Apache-2.0
--- Decodes the inside of a string literal by Python's "unicode-escape" rules, which Jinja uses.
local errors = require("tpl.jinja.errors")
local text = require("tpl.jinja.text")

local M = {}

local simple = { n = "\n", t = "\t", r = "\r", b = "\b", f = "\f", v = "\v", a = "\a",
  ["\\"] = "\\", ["'"] = "'", ['"'] = '"', ["\n"] = "" }
local hex_width = { x = 2, u = 4, U = 8 }
local hex_name = { x = "\\xXX", u = "\\uXXXX", U = "\\UXXXXXXXX" }

-- Surrogate pairs written as two escapes are joined; Python would keep two lone surrogates, which
-- no output encoding accepts.
local function surrogate_tail(s, p, high)
  if high < 0xD800 or high > 0xDBFF then return nil end
  local low = tonumber(s:match("^\\u(%x%x%x%x)", p) or "0", 16)
  if low < 0xDC00 or low > 0xDFFF then return nil end
  return 0x10000 + (high - 0xD800) * 1024 + low - 0xDC00
end

local function hex_escape(s, p, c, line)
  local digits = s:match("^" .. ("%x"):rep(hex_width[c]), p)
  if not digits then errors.raise_at(line, "TemplateSyntaxError", "truncated %s escape", hex_name[c]) end
  local code, after = tonumber(digits, 16), p + hex_width[c]
  if code > 0x10FFFF then errors.raise_at(line, "TemplateSyntaxError", "illegal Unicode character") end
  local joined = surrogate_tail(s, after, code)
  if joined then return text.char(joined), after + 6 end
  return text.char(code), after
end

-- Python first writes characters beyond ASCII as escapes, so a backslash before one is left alone
-- and the character's own escape turns up as text.
local function escaped_wide(s, p)
  local c = s:match("^[\192-\255][\128-\191]*", p) or s:sub(p, p)
  local code = text.code(c)
  local form = code < 256 and "\\x%02x" or code < 65536 and "\\u%04x" or "\\U%08x"
  return form:format(code), p + #c
end

--- Value of the literal's inside.
---@param s string      without the quotes; line ends already normalised
---@param line integer  for messages
function M.decode(s, line)
  if not s:find("\\", 1, true) then return s end
  local out, p = {}, 1
  while true do
    local q = s:find("\\", p, true)
    out[#out + 1] = s:sub(p, (q or 0) - 1)
    if not q then break end
    local c = s:sub(q + 1, q + 1)
    local value, after
    if simple[c] then
      value, after = simple[c], q + 2
    elseif hex_width[c] then
      value, after = hex_escape(s, q + 2, c, line)
    elseif c:find("[0-7]") then
      local digits = s:match("^[0-7][0-7]?[0-7]?", q + 1)
      value, after = text.char(tonumber(digits, 8)), q + 1 + #digits
    elseif c:byte() >= 128 then
      value, after = escaped_wide(s, q + 1)
    elseif c == "N" then
      errors.raise_at(line, "TemplateSyntaxError", "unknown Unicode character name")
    else
      value, after = "\\" .. c, q + 2
    end
    out[#out + 1] = value
    p = after
  end
  return table.concat(out)
end

return M
