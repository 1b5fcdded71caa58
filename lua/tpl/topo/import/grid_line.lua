-- SPDX-License-Identifier: Apache-2.0
--- Read one line of a `nvidia-smi topo` table: is it a header, a row, the rest of a wrapped row, an entry of the NIC legend?
--- Nothing is known of other lines here, so positions are only candidates; grid_columns.lua decides which ones to trust.
---
--- Contents: tokens - header lines (M.header) - rows (M.row, M.continuation) - legend (M.legend)
local words = require("tpl.topo.import.words")

local M = {}

local title_words = { CPU = true, NUMA = true, GPU = true, ID = true, AFFINITY = true, MEM = true, MEMORY = true, NODE = true }

-- -- Tokens ----------------------------------------------------------------------------------------------------------

local function expand_tabs(text)
  local out, col = {}, 0
  for piece, tab in text:gmatch("([^\t]*)(\t?)") do
    out[#out + 1] = piece
    col = col + #piece
    if tab ~= "" then
      local pad = 8 - col % 8
      out[#out + 1] = (" "):rep(pad)
      col = col + pad
    end
  end
  return table.concat(out)
end

---@class tpl.topo.Token
---@field text string
---@field col integer     0-based column on a screen with tabs of 8
---@field field integer   1 + tabs before it

-- Tokens of a text; one of several glued cells becomes several.
local function tokens(text)
  local out, cols, at = {}, {}, 1
  local wide = expand_tabs(text)
  for from in wide:gmatch("()%S+") do cols[#cols + 1] = from - 1 end
  local field, i = 1, 0
  for tabs, word in text:gmatch("(%s*)(%S+)") do
    local _, n = tabs:gsub("\t", "")
    field, i = field + n, i + 1
    local parts = not words.cell(word) and words.split(word)
    for k, part in ipairs(parts or { word }) do
      out[at] = { text = part, col = cols[i] + k - 1, field = field, glued = parts and true or nil }
      at = at + 1
    end
  end
  return out
end

-- "GPU 0", "GPU-0" and "GPU_0" for "GPU0", where such a word is a label and not the start of a -L line.
local function join_labels(text)
  if text:find("GPU %d+:%s*%a") and not text:find("GPU %d+:%s+[XNPS][%s%dVIXYOH]") then return text end
  return (text:gsub("GPU[ _%-](%d+)", "GPU%1"):gsub("NIC[ _%-](%d+)", "NIC%1"))
end

-- -- Header ----------------------------------------------------------------------------------------------------------

---@class tpl.topo.HeaderLine
---@field labels tpl.topo.Label[]
---@field tail string?     text from the first title on
---@field tail_col integer? its screen column
---@field last_col integer? screen column of the last label
---@field glued table<string,boolean>
---@field odd boolean?     has words that are neither labels nor titles: needs a row right behind it

--- Read a line as a header or a part of a wrapped one; nil when it is none.
---@param text string
---@return tpl.topo.HeaderLine?
function M.header(text)
  if #text > 8192 then return nil end
  local spaced, glued = words.unglue(join_labels(text))
  local list = tokens(spaced)
  local out = { labels = {}, glued = glued }
  local i, skipped = 1, 0
  while list[i] and not words.label(list[i].text) and not title_words[list[i].text:upper()] and skipped < 6 do
    i, skipped = i + 1, skipped + 1
  end
  while list[i] do
    local label = words.label(list[i].text)
    if not label then break end
    out.labels[#out.labels + 1], out.last_col = label, list[i].col
    i = i + 1
  end
  local rest = list[i]
  if rest then
    out.tail_col = rest.col
    local parts = {}
    for k = i, #list do parts[#parts + 1] = list[k].text end
    out.tail = table.concat(parts, " ")
    out.tail_tokens = { unpack(list, i) }
    if not title_words[rest.text:upper()] and not rest.text:find("^%.+$") and rest.text ~= "\226\128\166" then out.odd = true end
    if words.cell(rest.text) then return nil end
  end
  if #out.labels == 0 and not rest then return nil end
  if skipped > 0 then out.odd = true end
  return out
end

--- Say whether the labels of a header line are enough to start a table with.
function M.starts_table(header)
  local gpus = 0
  for _, l in ipairs(header.labels) do gpus = gpus + (l.kind == "gpu" and 1 or 0) end
  if gpus == 0 then return false end
  return not header.odd or gpus >= 2
end

-- -- Rows ------------------------------------------------------------------------------------------------------------

-- A cell that was cut or misprinted: short, capitals; it keeps its place and says nothing.
local function broken_cell(text) return #text <= 5 and text:find("^[%u#%?]+%d*$") ~= nil and not words.label(text) and not title_words[text] end

---@class tpl.topo.Row
---@field no integer
---@field label tpl.topo.Label?
---@field cells table[]    in the order of the line; fields text, cell (nil for a broken one), field, col
---@field tail table[]     tokens behind the last cell
---@field text string      the line from the label on

-- No host has as many columns; what is longer is no table.
local max_cells = 256

-- Cells from the left until the first word that is none; at most `limit` of them.
local function take_cells(list, from, limit)
  local cells, i = {}, from
  while list[i] and #cells < math.min(limit or max_cells, max_cells) do
    local cell = words.cell(list[i].text)
    if not cell and not (limit and broken_cell(list[i].text)) then break end
    cells[#cells + 1] = { text = list[i].text, cell = cell, field = list[i].field, col = list[i].col }
    i = i + 1
  end
  -- An "N/A" right before the end belongs to the columns behind the cells where no header says how many there are.
  while not limit and #cells > 0 and cells[#cells].cell.type == "unknown" do
    cells[#cells], i = nil, i - 1
  end
  return cells, { unpack(list, i) }
end

-- Without a header a row has to begin with a word that says something.
local function starts_cells(text, limit, at)
  local cell = words.cell(text)
  if cell then return limit ~= nil or cell.type ~= "unknown" end
  return limit ~= nil and at == 1 and broken_cell(text)
end

--- Read a line as a row: a label and at least one cell behind it. Words before a GPU's label are taken for a prefix.
---@param text string
---@param known table<string,boolean>?  names of the header's columns
---@param limit integer?                number of columns, where a header names them
---@return tpl.topo.Row?
function M.row(text, known, limit)
  if #text > 8192 then return nil end
  text = join_labels(text)
  local list = tokens(text)
  for i, t in ipairs(list) do
    local label = words.label(t.text)
    local usable = label and (label.kind == "gpu" or i == 1 and (label.kind == "nic" or known and known[label.name]))
    if usable and list[i + 1] and starts_cells(list[i + 1].text, limit, i) then
      local cells, tail = take_cells(list, i + 1, limit)
      if #cells > 0 then return { label = label, cells = cells, tail = tail, prefixed = i > 1 or nil, label_field = t.field, tokens = list } end
    end
    if i > 12 then break end
  end
  return nil
end

--- Read a line that starts with cells: the rest of a wrapped row, or a row that lost its label.
---@return tpl.topo.Row?
function M.continuation(text, limit)
  if #text > 8192 then return nil end
  local list = tokens(text)
  if not list[1] or not words.cell(list[1].text) or (list[2] and list[2].text == "=") then return nil end
  local cells, tail = take_cells(list, 1, limit)
  if #cells == 0 then return nil end
  return { cells = cells, tail = tail, label_field = 0, tokens = list }
end

--- Give the tokens of a line that holds only what stands behind the cells of a row; nil otherwise.
function M.tail_only(text)
  local list = tokens(text)
  if not list[1] or not list[1].text:find("^%d[%d,%-]*$") then return nil end
  for _, t in ipairs(list) do
    if not t.text:find("^[%d,%-]+$") and t.text ~= "N/A" then return nil end
  end
  return list
end

--- Say whether a line holds one label and nothing else.
function M.lone_label(text)
  local word = join_labels(text):match("^%s*(%S+)%s*$")
  local label = word and words.label(word)
  return label and label.kind ~= "other" and label or nil
end

-- -- Legend ----------------------------------------------------------------------------------------------------------

--- Read a line of the NIC legend, one entry or several; nil when it is none.
---@param text string
---@return table<string,string>?  "NIC0" -> "mlx5_0"
function M.legend(text)
  if not text:find("^%W*NIC%d%d?%d?%s*[:=]") then return nil end
  local out
  for n, device in text:gmatch("NIC(%d%d?%d?)%s*[:=]%s*([%w_%.%-]+)") do
    out = out or {}
    out["NIC" .. tonumber(n)] = device
  end
  return out
end

return M
