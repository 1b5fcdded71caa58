-- SPDX-License-Identifier: Apache-2.0
--- Escapes HTML as MarkupSafe does. Chat templates have autoescape off, so this serves the escape
--- filter, Markup values and the autoescape tag only.
local state = require("tpl.jinja.state")
local repr = require("tpl.jinja.repr")
local values = require("tpl.jinja.values")

local M = {}

local entities = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&#34;", ["'"] = "&#39;" }

--- Escaped text of a value; Markup is taken as it is.
function M.text(v)
  if values.is_markup(v) then return v.value end
  local s = repr.str(v)
  state.bytes(#s)
  return (s:gsub("[&<>\"']", entities))
end

--- Markup of a value.
function M.markup(v)
  return values.is_markup(v) and v or values.markup(M.text(v))
end

--- Escape the strings in a value, or in the items of a tuple or dict, for formatting into Markup.
function M.deep(v)
  if type(v) == "string" then return M.text(v) end
  if values.is_tuple(v) then
    local out = {}
    for i = 1, #v do out[i] = M.deep(v[i]) end
    return values.tuple(out)
  elseif values.is_dict(v) then
    local out = values.dict()
    for i = 1, v.n do values.dict_set(out, v.keys[i], M.deep(v.vals[i])) end
    return out
  end
  return v
end

return M
