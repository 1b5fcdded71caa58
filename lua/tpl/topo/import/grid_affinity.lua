-- SPDX-License-Identifier: Apache-2.0
--- Read what stands behind the cells of a row: CPU Affinity, NUMA Affinity, GPU NUMA ID, any of them blank or absent.
--- Tabs decide where there are any; else the columns under the titles; else the form of the words. GPU NUMA ID is the node of the
--- GPU's own memory (Grace, POWER9) and is never taken for the node of the host.
---
--- Contents: titles - by tabs - by columns - by form - M.read
local M = {}

-- -- Titles ----------------------------------------------------------------------------------------------------------

-- Titles of the header in order, each with the screen column it starts in: "cpu", "numa", "gpu_numa", or false for others.
local function titles_of(header)
  local out, list, i = {}, header and header.tail_tokens or {}, 1
  while list[i] do
    local word, nxt = list[i].text:upper(), list[i + 1] and list[i + 1].text:upper() or ""
    local name, used = false, 1
    if word == "CPU" then
      name, used = "cpu", nxt:find("^AFF") and 2 or 1
    elseif word == "NUMA" then
      name, used = "numa", nxt:find("^AFF") and 2 or 1
    elseif word == "GPU" and nxt == "NUMA" then
      name, used = "gpu_numa", 3
    elseif nxt:find("^AFF") then
      used = 2
    end
    out[#out + 1] = { name = name, col = list[i].col, field = list[i].field }
    i = i + used
  end
  return out
end

local function is_list(word) return word:find("^%d[%d,%-]*$") ~= nil end
local function is_cpus(word) return is_list(word) and word:find("[,%-]") ~= nil end
local function fits(name, word)
  if name == "cpu" then return is_list(word) or word == "N/A" end
  return is_list(word) or word == "N/A"
end

-- CPU lists with a blank behind a comma are one word.
local function words_of(tail)
  local out = {}
  for _, t in ipairs(tail) do
    local last = out[#out]
    if last and last.text:find("^%d[%d,%-]*,$") and t.text:find("^%d") then
      last.text = last.text .. t.text
    else
      out[#out + 1] = { text = t.text, col = t.col, field = t.field }
    end
  end
  for _, w in ipairs(out) do w.text = w.text:gsub(",$", "") end
  return out
end

-- -- Three ways to read ----------------------------------------------------------------------------------------------

-- By tabs: field k behind the last cell belongs to title k; the tool writes one empty field before GPU NUMA ID.
local function by_tabs(words, titles, last_field, step)
  local out, tabbed = {}, false
  for i, w in ipairs(words) do
    local k = (w.field - last_field) / step
    if k < 1 or k % 1 ~= 0 or (i > 1 and w.field == words[i - 1].field) then return nil end
    tabbed = true
    local title = titles[k]
    if title and title.name == "gpu_numa" and w.text ~= "N/A" and not titles[k + 1] and i < #words then title = nil end
    local name = title and title.name or (#titles == 0 and (k == 1 and "cpu" or k == 2 and "numa")) or nil
    if name then
      if not fits(name, w.text) then return nil end
      out[name] = w.text
    end
  end
  return tabbed and out or nil
end

-- Tabs between the cells of a row: one, or as many as a paste doubled them to.
local function tab_step(row)
  local step, last = nil, row.label_field
  for _, c in ipairs(row.cells) do
    if not c.field or not last then return 1 end
    step, last = math.min(step or 99, c.field - last), c.field
  end
  return math.max(step or 1, 1)
end

-- By columns: the title whose start is nearest and near enough, once the rows' shift against the header is taken off.
local function by_columns(words, titles, shift)
  local out = {}
  for _, w in ipairs(words) do
    local best, distance
    for _, t in ipairs(titles) do
      local d = t.col and math.abs(w.col - shift - t.col)
      if d and (not distance or d < distance) then best, distance = t, d end
    end
    -- A CPU list may stand a little beside its title; a lone number has to stand under one to say which it belongs to.
    if not best or distance > (is_cpus(w.text) and 4 or 2) or out[best.name] then return nil end
    if best.name and not fits(best.name, w.text) then return nil end
    if best.name then out[best.name] = w.text end
  end
  return out
end

-- By form: a list is CPUs, a number is a node, N/A at the end is GPU NUMA ID where that column is.
local function by_form(words, titles)
  local has, out, i = {}, {}, 1
  for _, t in ipairs(titles) do has[t.name or ""] = true end
  if #titles == 0 then has = { cpu = true, numa = true } end
  local guess = false
  -- The tool never leaves GPU NUMA ID blank, so a lone number is that one.
  if has.gpu_numa and #words == 1 and not is_cpus(words[1].text) then return { gpu_numa = words[1].text }, false end
  if #words >= #titles and #titles > 0 then
    local clean = true
    for k, t in ipairs(titles) do clean = clean and (not t.name or fits(t.name, words[k].text)) end
    if clean then
      for k, t in ipairs(titles) do
        if t.name then out[t.name] = words[k].text end
      end
      return out, false
    end
  end
  if words[i] and has.cpu and is_cpus(words[i].text) then
    out.cpu, i = words[i].text, i + 1
  elseif words[i] and is_list(words[i].text) then
    guess = has.cpu and has.numa
  end
  if words[i] and has.numa and is_list(words[i].text) then
    out.numa, i = words[i].text, i + 1
  elseif words[i] and has.numa and words[i].text == "N/A" and (words[i + 1] or not has.gpu_numa) then
    out.numa, i = "N/A", i + 1
  elseif words[i] and has.cpu and not has.numa and not out.cpu and is_list(words[i].text) then
    out.cpu, i = words[i].text, i + 1
  end
  if words[i] and has.gpu_numa then out.gpu_numa = words[i].text end
  return out, guess
end

-- -- The tail of a row -----------------------------------------------------------------------------------------------

---@class tpl.topo.Affinity
---@field cpus string?
---@field numa integer?
---@field numa_list string?  where the column names several nodes
---@field guessed boolean?   the words alone decided which column a number belongs to

--- Read the tail of a row.
---@param row tpl.topo.Row
---@param header table?
---@return tpl.topo.Affinity
function M.read(row, header)
  local titles, words = titles_of(header), words_of(row.tail)
  local kept = {}
  for _, w in ipairs(words) do
    if not is_list(w.text) and w.text ~= "N/A" then break end
    kept[#kept + 1] = w
  end
  if #kept == 0 then return {} end
  local last = row.cells[#row.cells]
  local found, guessed
  if last.field and kept[1].field and kept[1].field > last.field then found = by_tabs(kept, titles, last.field, tab_step(row)) end
  if not found and last.col and header and header.last_col and kept[1].col then found = by_columns(kept, titles, last.col - header.last_col) end
  if not found then found, guessed = by_form(kept, titles) end
  local cpus, numa = found.cpu, found.numa
  return {
    cpus = cpus ~= "N/A" and cpus or nil, numa = numa and tonumber(numa) or nil,
    numa_list = numa and numa ~= "N/A" and not tonumber(numa) and numa or nil, guessed = guessed or nil,
  }
end

return M
