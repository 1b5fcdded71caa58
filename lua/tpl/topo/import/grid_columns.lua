-- SPDX-License-Identifier: Apache-2.0
--- Decide which cell of a row belongs to which column. Three witnesses are compared: the header, the number of cells, and the "X",
--- which stands where a row crosses its own column. Cells are read from the left and trusted until the first disagreement; what
--- cannot be trusted is left out and reported, never guessed.
---
--- Contents: the column names (columns_of) - one row (place_row) - the whole table (M.align)
local M = {}

local function x_position(row)
  for i, c in ipairs(row.cells) do
    if c.cell and c.cell.type == "self" then return i end
  end
  return nil
end

-- -- Column names ----------------------------------------------------------------------------------------------------

-- Does the header agree with where the rows have their X? Counts of rows for and against.
local function votes(header, rows)
  local at, yes, no = {}, 0, 0
  for i, l in ipairs(header.labels) do at[l.name] = i end
  for _, row in ipairs(rows) do
    local x = row.label and x_position(row)
    if x then
      if at[row.label.name] == x then yes = yes + 1 else no = no + 1 end
    end
  end
  return yes, no
end

local function widest(rows)
  local n = 0
  for _, row in ipairs(rows) do n = math.max(n, #row.cells) end
  return n
end

-- Columns where a row of that name has its X.
local function from_rows(rows)
  local columns = {}
  for _, row in ipairs(rows) do
    local x = row.label and x_position(row)
    if x and not columns[x] then columns[x] = { label = row.label, sure = true } end
  end
  return columns
end

local function has_nvlink(rows, at)
  for _, row in ipairs(rows) do
    local c = row.cells[at] and row.cells[at].cell
    if c and c.kind == "nvlink" then return true end
  end
  return false
end

local function gpu_label(index) return { kind = "gpu", name = "GPU" .. index, index = index } end

-- Columns without a row of their own: GPUs count up by one; behind the last known GPU only an NV# cell proves a GPU.
local function fill_gaps(columns, rows, n)
  local first, last_gpu
  for p = 1, n do
    local l = columns[p] and columns[p].label
    if l and l.kind == "gpu" then
      first = first or p
      last_gpu = { at = p, index = l.index }
    elseif not l and last_gpu and has_nvlink(rows, p) then
      columns[p] = { label = gpu_label(last_gpu.index + p - last_gpu.at) }
    end
  end
  if not first then return end
  local index = columns[first].label.index
  for p = first - 1, 1, -1 do
    if index - (first - p) >= 0 and not columns[p] then columns[p] = { label = gpu_label(index - (first - p)) } end
  end
  local at = first
  for p = first + 1, last_gpu.at do
    local l = columns[p] and columns[p].label
    if l and l.kind == "gpu" then
      at = p
    elseif not l then
      columns[p] = { label = gpu_label(columns[at].label.index + p - at) }
    end
  end
end

local function headless(grid, note)
  local columns = from_rows(grid.rows)
  -- Rows that were cut before their X stand where they count.
  for i, row in ipairs(grid.rows) do
    if i == 1 and row.label and row.label.kind == "gpu" and not x_position(row) and not next(columns) then
      columns[row.label.index + 1] = { label = row.label }
    end
  end
  local n = widest(grid.rows)
  fill_gaps(columns, grid.rows, n)
  local unnamed, first_column = 0, columns[1] == nil
  for p = 1, n do
    if not columns[p] then unnamed = unnamed + 1 end
  end
  note(grid.line, "header_missing", "the table has no header: columns are named after the rows" .. (first_column and "" or ", counting from the left"))
  if unnamed > 0 then note(grid.line, "columns_unnamed", unnamed .. " columns have no name and are left out") end
  return columns, n
end

-- A header that disagrees with the rows (a label got lost): the X of the rows is right; other columns keep their name only
-- where the shift to the header is the same on both sides.
local function repaired(grid, note)
  local columns, n = from_rows(grid.rows), widest(grid.rows)
  local at = {}
  for i, l in ipairs(grid.header.labels) do at[l.name] = i end
  local taken = {}
  for _, c in pairs(columns) do taken[c.label.name] = true end
  local shift
  for p = 1, n do
    if columns[p] then
      shift = at[columns[p].label.name] and p - at[columns[p].label.name]
    elseif shift then
      local l = grid.header.labels[p - shift]
      if l and not taken[l.name] then columns[p] = { label = l } end
    end
  end
  note(grid.line, "header_repaired", "the header does not fit the rows: columns are named after the cells marked X")
  return columns, n
end

local function columns_of(grid, note)
  if not grid.header then return headless(grid, note) end
  local yes, no = votes(grid.header, grid.rows)
  if no > yes then return repaired(grid, note) end
  local columns = {}
  for i, l in ipairs(grid.header.labels) do columns[i] = { label = l } end
  return columns, #grid.header.labels
end

-- -- Rows ------------------------------------------------------------------------------------------------------------

-- Cells by tab stops: an empty field between two cells is a cell that says nothing.
local function by_fields(row)
  if row.wrapped then return nil end
  local cells, last = {}, 0
  for _, c in ipairs(row.cells) do
    local at = c.field and c.field - row.label_field
    if not at or at <= last then return nil end
    cells[at], last = c, at
  end
  for i = 1, last do cells[i] = cells[i] or { text = "", cell = { type = "unknown" } } end
  return cells
end

local function position_in(columns, n, label)
  for p = 1, n do
    if columns[p] and columns[p].label.name == label.name then return p end
  end
  return nil
end

-- A row without a label is the row of the column in which it has its X, if no other row claims that.
local function find_label(grid, columns, row, note)
  local x = x_position(row)
  local label = x and columns[x] and columns[x].label
  if not label then return false end
  for _, other in ipairs(grid.rows) do
    if other.label and other.label.name == label.name then return false end
  end
  row.label = label
  note(row.no, "label_missing", "the row has no label: its X says " .. label.name)
  return true
end

-- Which positions of a row can be trusted: {from, to, shift}; cell i stands in column i + shift.
local function trusted(grid, columns, n, row, note)
  local want, x = position_in(columns, n, row.label), x_position(row)
  -- A row that goes on with a CPU list or a node has all its cells; one that ends, or ends in "..", was cut.
  local complete = row.tail[1] ~= nil and (row.tail[1].text:find("^%d") ~= nil or row.tail[1].text == "N/A")
  if want and x and want ~= x then
    local fields = by_fields(row)
    if fields and fields[want] and fields[want].cell and fields[want].cell.type == "self" then
      row.cells = fields
      return { { 1, math.min(#fields, n), 0 } }
    end
    note(row.no, "cells_lost", ("%s: the X is cell %d, not %d: cells left of it are not used"):format(row.label.name, x, want))
    if #row.cells - x == n - want then return { { x, #row.cells, want - x } } end
    return {}
  end
  if #row.cells > n then
    note(row.no, "cells_extra", ("%s: %d cells for %d columns: those behind the last column are left out"):format(row.label.name, #row.cells, n))
    return { { 1, n, 0 } }
  end
  if #row.cells < n and complete then
    if grid.glued_at and (x or want) then return { { 1, math.min(#row.cells, grid.glued_at - 1), 0 } } end
    local fields = by_fields(row)
    if fields and #fields == n then
      row.cells = fields
      return { { 1, n, 0 } }
    end
    note(row.no, "cells_lost", ("%s: %d cells for %d columns: cells right of the X are not used"):format(row.label.name, #row.cells, n))
    return x and { { 1, x, 0 } } or {}
  end
  return { { 1, #row.cells, 0 } }
end

local function place_row(grid, columns, n, row, note)
  local facts = {}
  for _, span in ipairs(trusted(grid, columns, n, row, note)) do
    for i = span[1], span[2] do
      local column, c = columns[i + span[3]], row.cells[i]
      if column and c and c.cell then
        if c.glued then note(row.no, "cells_glued", row.label.name .. ": cells without a blank between them were taken apart") end
        facts[#facts + 1] = { row = row.label, column = column.label, cell = c.cell, no = row.no }
      elseif column and c then
        note(row.no, "cell_unreadable", ("%s to %s: the cell %q is no path"):format(row.label.name, column.label.name, c.text))
      end
    end
  end
  return facts
end

-- -- The table -------------------------------------------------------------------------------------------------------

-- The last cell of a row at which the text ends may be cut: "NV1" of "NV18".
local function drop_cut_cell(grid, n)
  local row = grid.at_end and grid.rows[#grid.rows]
  local last = row and #row.tail == 0 and #row.cells < n and row.cells[#row.cells]
  if last and last.cell and last.cell.kind == "nvlink" and #last.text < 4 then last.cell = nil end
end

-- Glued header labels whose columns the rows do not have: from the first of them on no column is trusted.
local function check_glue(grid, note)
  local header = grid.header
  if not header or not next(header.glued) then return end
  local short = 0
  for _, row in ipairs(grid.rows) do
    if #row.tail > 0 and #row.cells < #header.labels then short = short + 1 end
  end
  local names, first = {}, nil
  for i, l in ipairs(header.labels) do
    if header.glued[l.name] then
      first = first or i
      names[#names + 1] = l.name
    end
  end
  if short == 0 then
    note(grid.line, "header_glued", ("header labels without a blank between them were taken apart: %s to %s"):format(names[1], names[#names]))
    return
  end
  grid.glued_at = first
  note(grid.line, "columns_ambiguous", ("the header runs %s together and rows have fewer cells: columns from %s on are not used"):format(
    table.concat(names, "", 1, math.min(2, #names)), names[1]))
end

---@class tpl.topo.GridFacts
---@field labels tpl.topo.Label[]   every row and column, in the order of the columns
---@field facts table[]             {row, column, cell, no}

--- Place every cell of a table.
---@param grid tpl.topo.Grid
---@param note fun(line: integer?, code: string, message: string)
---@return tpl.topo.GridFacts
function M.align(grid, note)
  check_glue(grid, note)
  local columns, n = columns_of(grid, note)
  drop_cut_cell(grid, n)
  local labels, seen, facts = {}, {}, {}
  for p = 1, n do
    local l = columns[p] and columns[p].label
    if l and not seen[l.name] then labels[#labels + 1], seen[l.name] = l, true end
  end
  for _, row in ipairs(grid.rows) do
    if row.label or find_label(grid, columns, row, note) then
      if row.wrapped then note(row.no, "row_wrapped", row.label.name .. ": the row goes on in the next line") end
      if not seen[row.label.name] then labels[#labels + 1], seen[row.label.name] = row.label, true end
      for _, f in ipairs(place_row(grid, columns, n, row, note)) do facts[#facts + 1] = f end
    end
  end
  return { labels = labels, facts = facts, width = n }
end

return M
