-- SPDX-License-Identifier: Apache-2.0
--- Find the tables of `nvidia-smi topo` in a page: -m, -mp and -p2p look alike, so they share everything but the meaning of cells.
--- A table is a header (whole, glued, wrapped, or missing) and the rows behind it; the NIC legend belongs to the table before it.
---
--- Contents: what a table is made of - the walk over the lines (M.find)
local err = require("tpl.err")
local line_of = require("tpl.topo.import.grid_line")

local M = {}

local max_rows = 4096

---@class tpl.topo.Grid
---@field header table?        {labels, glued, tail, ..}; nil when the paste starts behind it
---@field rows tpl.topo.Row[]
---@field legend table<string,string>
---@field has_legend boolean?
---@field command string?      the option of `topo` in the lines before
---@field class "matrix"|"p2p"
---@field at_end boolean        nothing stands behind the last row: the paste may have been cut there
---@field line integer         of the header, or of the first row
---@field host string?

local function known_names(header)
  local names = {}
  for _, l in ipairs(header and header.labels or {}) do names[l.name] = true end
  return names
end

local function limit_of(grid) return grid and grid.header and #grid.header.labels > 0 and #grid.header.labels or nil end

-- -- Parts of a table ------------------------------------------------------------------------------------------------

local function new_grid(state, line)
  local grid = { rows = {}, legend = {}, line = line.no, host = line.host, command = state.command, by_label = {}, wrapped = {} }
  state.grids[#state.grids + 1] = grid
  state.grid, state.command = grid, nil
  return grid
end

-- A header may go on in the next line: labels that were not there yet, or titles.
local function extends(header, more)
  if more.odd then return false end
  local names = known_names(header)
  for _, l in ipairs(more.labels) do
    if names[l.name] then return false end
  end
  return not (header.tail and #more.labels > 0)
end

local function append_header(header, more)
  for _, l in ipairs(more.labels) do header.labels[#header.labels + 1] = l end
  for name in pairs(more.glued) do header.glued[name] = true end
  header.tail = (header.tail and header.tail .. " " or "") .. (more.tail or "")
  header.tail_tokens = more.tail_tokens or header.tail_tokens
  header.last_col, header.tail_col, header.wrapped = nil, nil, true
  if header.tail == "" then header.tail = nil end
end

local function add_row(state, line, row)
  local grid = state.grid
  local again = grid and row.label and grid.by_label[row.label.name]
  if not grid or (again and #grid.rows > 1 and grid.rows[1].label and grid.rows[1].label.name == row.label.name) then
    grid = new_grid(state, line)
  end
  state.n_rows = state.n_rows + 1
  if state.n_rows > max_rows then
    err.throw { code = "format", message = "more than " .. max_rows .. " rows of tables in one text", line = line.no }
  end
  row.no = line.no
  grid.rows[#grid.rows + 1] = row
  if row.label then grid.by_label[row.label.name] = row end
end

-- The rest of the last row, when that one is not complete yet.
local function continue_row(grid, more)
  local last = grid and grid.rows[#grid.rows]
  local limit = limit_of(grid)
  if not last or not limit or #last.tail > 0 or #last.cells >= limit or #last.cells + #more.cells > limit then return false end
  for _, c in ipairs(more.cells) do last.cells[#last.cells + 1] = { text = c.text, cell = c.cell } end
  last.tail, last.wrapped = more.tail, true
  return true
end

-- -- The walk --------------------------------------------------------------------------------------------------------

local function next_text(lines, i)
  for k = i + 1, math.min(i + 3, #lines) do
    if lines[k].text ~= "" then return lines[k].text, k end
  end
  return nil
end

local function is_row(text, header) return text ~= nil and line_of.row(text, known_names(header), header and #header.labels or nil) ~= nil end

-- Take a line as header; true when it was one.
local function take_header(state, lines, i)
  local line, grid = lines[i], state.grid
  local header = line_of.header(line.text)
  if not header then return false end
  if grid and grid.header and #grid.rows == 0 and extends(grid.header, header) then
    append_header(grid.header, header)
    return true
  end
  if not line_of.starts_table(header) then return false end
  local follows = next_text(lines, i)
  local more = follows and line_of.header(follows)
  local wraps = more and extends(header, more) and #more.labels + (more.tail and 1 or 0) > 0
  local rows_follow = is_row(follows, header) or follows and line_of.lone_label(follows)
  if not rows_follow and (header.odd or not wraps) and #header.labels < 2 then return false end
  if header.odd and not is_row(follows, header) then return false end
  new_grid(state, line).header = header
  return true
end

-- A label on a line of its own, its cells on the next one.
local function take_split_row(state, lines, i)
  local label = state.grid and line_of.lone_label(lines[i].text)
  if not label then return nil end
  local text, k = next_text(lines, i)
  if text and line_of.continuation(text, limit_of(state.grid)) then
    local row = line_of.row(label.name .. "\t" .. text, known_names(state.grid.header), limit_of(state.grid))
    if row then
      add_row(state, lines[i], row)
      return k
    end
  end
  return nil
end

local function take_row(state, line)
  local grid = state.grid
  local row = line_of.row(line.text, known_names(grid and grid.header), limit_of(grid))
  if row then
    add_row(state, line, row)
    return true
  end
  if not grid then return false end
  local more = line_of.continuation(line.text, limit_of(grid))
  if more then
    if continue_row(grid, more) then return true end
    if limit_of(grid) and #more.cells >= 2 and #more.cells >= limit_of(grid) - 1 then
      add_row(state, line, more)
      return true
    end
  end
  local last = grid.rows[#grid.rows]
  if last and last.label and last.label.kind == "gpu" and #last.tail == 0 and #last.cells == (limit_of(grid) or -1) and grid.header.tail then
    local tail = line_of.tail_only(line.text)
    if tail then
      last.tail, last.wrapped = tail, true
      return true
    end
  end
  return false
end

local function take_legend(state, line)
  if line.text:find("^%W*NIC Legend") then state.grid.has_legend = true end
  for nic, device in pairs(line_of.legend(line.text) or {}) do
    state.grid.has_legend = true
    state.grid.legend[nic] = device
  end
end

local function classify(grid)
  local status, path = 0, 0
  for _, row in ipairs(grid.rows) do
    for _, c in ipairs(row.cells) do
      if c.cell and c.cell.type == "p2p" then status = status + 1 end
      if c.cell and c.cell.type == "path" then path = path + 1 end
    end
  end
  if status > path then return "p2p" end
  return path == 0 and grid.command and grid.command:find("^%-%-?p2p") and "p2p" or "matrix"
end

--- Find every table of the lines, in order.
---@param lines tpl.topo.Line[]
---@return tpl.topo.Grid[]
function M.find(lines)
  local state = { grids = {}, n_rows = 0 }
  local i = 1
  while i <= #lines do
    local line = lines[i]
    if line.text ~= "" then
      if state.grid and line.host ~= state.grid.host then state.grid = nil end
      local command = line.text:match("topo%s+(%-%-?[%w_%-]+[ =]?%a*)")
      if command then state.command, state.grid = command, nil end
      local skip = not command and take_split_row(state, lines, i)
      if skip then
        i = skip
      elseif not command and not take_row(state, line) and not take_header(state, lines, i) and state.grid then
        take_legend(state, line)
      end
    end
    i = i + 1
  end
  local out, last = {}, 0
  for k, line in ipairs(lines) do
    if line.text ~= "" then last = lines[k].no end
  end
  for _, grid in ipairs(state.grids) do
    if #grid.rows > 0 then
      grid.class = classify(grid)
      grid.at_end = grid.rows[#grid.rows].no == last
      out[#out + 1] = grid
    end
  end
  return out
end

return M
