-- SPDX-License-Identifier: Apache-2.0
--- Find the known word that a misspelt one most likely meant.
local M = {}

--- Count the edits (insert, delete, replace, swap of neighbours) between two words: the optimal string alignment distance.
---@param a string
---@param b string
---@return integer
function M.distance(a, b)
  local before, row = {}, {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local last = row
    row = { [0] = i }
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j)
      row[j] = math.min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (same and 0 or 1))
      if i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
        row[j] = math.min(row[j], before[j - 2] + 1)
      end
    end
    before = last
  end
  return row[#b]
end

--- Give the nearest of the known words, or nil when none is near (a third of its letters, at least one edit).
---@param word string
---@param known string[]
---@return string?
function M.nearest(word, known)
  local best, best_distance
  local lower = word:lower()
  for _, candidate in ipairs(known) do
    local d = M.distance(lower, candidate:lower())
    local near = math.max(1, math.floor(math.max(#word, #candidate) / 3))
    if d <= near and (not best or d < best_distance) then
      best, best_distance = candidate, d
    end
  end
  return best
end

--- Give a hint: "did you mean 'x'?", else the list of what is known.
---@param word string
---@param known string[]
---@param what? string   what the known words are called, "fields"
---@return string
function M.hint(word, known, what)
  local near = M.nearest(word, known)
  if near then return string.format("did you mean '%s'?", near) end
  return (what or "known") .. ": " .. table.concat(known, ", ")
end

return M
