-- SPDX-License-Identifier: Apache-2.0
--- Replaces and centres text, for the str methods and the filters of these names.
local state = require("tpl.jinja.state")
local text = require("tpl.jinja.text")

local M = {}

--- Replace occurrences of `old`, at most `max` of them if max is not negative.
function M.replace(s, old, new, max)
  if max == 0 then return s end
  if old == "" then
    state.chars(#s)
    local out, n = { new }, 1
    for c in text.each(s) do
      out[#out + 1] = c
      if n ~= max then
        out[#out + 1] = new
        n = n + 1
      end
    end
    state.bytes(#s + n * #new)
    return table.concat(out)
  end
  local parts = text.split(s, old, max)
  state.bytes(#s + #parts * #new)
  return table.concat(parts, new)
end

--- str.center: the odd blank goes left when both the width and the padding are odd.
function M.center(s, width, fill)
  local missing = width - text.len(s)
  if missing <= 0 then return s end
  local left = math.floor(missing / 2) + (missing % 2 == 1 and width % 2 == 1 and 1 or 0)
  state.bytes(#s + missing * #fill)
  return fill:rep(left) .. s .. fill:rep(missing - left)
end

return M
