-- SPDX-License-Identifier: Apache-2.0
--- Read `nvidia-smi topo -m` (and -mp): devices, links, NICs and affinities of every such table of a page.
--- NV# in a cell is the number of NVLinks and hides the PCIe path of that pair; -mp shows the PCIe path and hides NVLink.
---
--- Contents: facts of one table (pairs, NICs, affinities) - switch rule - which host a table belongs to - fill
local affinity = require("tpl.topo.import.grid_affinity")
local columns = require("tpl.topo.import.grid_columns")
local grid_of = require("tpl.topo.import.grid")
local words = require("tpl.topo.import.words")

local M = {}

-- -- One table -------------------------------------------------------------------------------------------------------

-- Both cells of each pair of labels become one: the worse, with a doubt where they differ.
local function pairs_of(aligned, note)
  local by_key, list = {}, {}
  for _, f in ipairs(aligned.facts) do
    if f.cell.type == "path" and f.row.name ~= f.column.name then
      local a, b = f.row, f.column
      if b.name < a.name then a, b = b, a end
      local key = a.name .. " " .. b.name
      local pair = by_key[key]
      if not pair then
        pair = { a = a, b = b, cell = f.cell, no = f.no }
        by_key[key], list[#list + 1] = pair, pair
      elseif not words.same(pair.cell, f.cell) then
        local worse = words.worse(pair.cell, f.cell)
        note(f.no, "asymmetric", ("%s to %s is %s one way and %s the other: %s counts"):format(
          pair.a.name, pair.b.name, words.show(pair.cell), words.show(f.cell), words.show(worse)))
        pair.cell = worse
      end
    end
  end
  return list
end

-- The pair of a cell whose row's own X is missing or which is marked X off the diagonal says nothing; X cells are not facts.
local function add_links(host, list)
  for _, pair in ipairs(list) do
    if pair.a.kind == "gpu" and pair.b.kind == "gpu" then
      local link = host:link(host:device(pair.a.index), host:device(pair.b.index))
      if pair.cell.kind == "nvlink" then
        link.kind, link.nvlinks = "nvlink", pair.cell.nvlinks
      else
        link.pcie = pair.cell.kind
        if link.kind ~= "nvlink" then link.kind = pair.cell.kind end
      end
    end
  end
end

local function add_nics(host, grid, aligned, list, note)
  local unnamed = {}
  for _, label in ipairs(aligned.labels) do
    if label.kind == "nic" and not (grid.glued_at and grid.dropped[label.name]) then
      local nic = host:nic(label.name)
      nic.device = nic.device or grid.legend[label.name] or (not label.index and label.name) or nil
      if not nic.device and grid.has_legend then unnamed[#unnamed + 1] = label.name end
    end
  end
  if not grid.has_legend then
    local n = 0
    for _, label in ipairs(aligned.labels) do n = n + (label.kind == "nic" and label.index and 1 or 0) end
    if n > 0 then note(grid.line, "nic_unnamed", "there is no NIC legend: the devices of " .. n .. " NICs are not named") end
  end
  if #unnamed > 0 then note(grid.line, "nic_unnamed", "the NIC legend does not name the device of " .. table.concat(unnamed, ", ")) end
  for _, pair in ipairs(list) do
    local gpu, nic = pair.a, pair.b
    if gpu.kind == "nic" then gpu, nic = nic, gpu end
    if gpu.kind == "gpu" and nic.kind == "nic" and host.by_nic[nic.name] and pair.cell.kind ~= "nvlink" then
      host.by_nic[nic.name].to[host:device(gpu.index)] = pair.cell.kind
    end
  end
end

-- The text ends in the middle of the table: the last word of its last row may be half of one.
local function drop_cut_tail(grid, aligned, note)
  local row, have = grid.rows[#grid.rows], {}
  for _, r in ipairs(grid.rows) do
    if r.label then have[r.label.name] = true end
  end
  local missing = false
  for _, l in ipairs(aligned.labels) do missing = missing or (l.kind == "gpu" and not have[l.name]) end
  if grid.at_end and missing and #row.tail > 0 and row.label then
    row.tail[#row.tail] = nil
    grid.at_end = false
    note(row.no, "affinity_cut", row.label.name .. ": the text ends in its affinity, which is not used")
  end
end

local function add_affinities(host, grid, aligned, note)
  drop_cut_tail(grid, aligned, note)
  for _, row in ipairs(grid.rows) do
    if row.label and row.label.kind == "gpu" then
      local d, found = host:device(row.label.index), affinity.read(row, grid.header)
      d.cpus, d.numa = d.cpus or found.cpus, d.numa or found.numa
      if found.guessed then note(row.no, "affinity_guessed", row.label.name .. ": a single number behind the cells is taken for the NUMA node") end
      if found.numa_list then
        note(row.no, "numa_list", ("%s: NUMA affinity %s names several nodes: unknown"):format(row.label.name, found.numa_list))
      end
    end
  end
end

local function note_missing_rows(grid, aligned, note)
  local have, missing, short, tails = {}, {}, {}, 0
  for _, row in ipairs(grid.rows) do
    if row.label then
      have[row.label.name] = true
      if #row.tail > 0 then tails = tails + 1 end
      if #row.cells < aligned.width and #row.tail == 0 and not grid.glued_at then short[#short + 1] = row end
    end
  end
  local last = grid.rows[#grid.rows]
  local whole = last.label and last.label.kind == "gpu" and #last.cells == aligned.width
  if grid.at_end and tails > 0 and grid.header and grid.header.tail and whole and #last.tail == 0 then
    note(last.no, "affinity_cut", last.label.name .. ": the row ends before its affinity")
  end
  for _, l in ipairs(aligned.labels) do
    if l.kind == "gpu" and not have[l.name] then missing[#missing + 1] = l.name end
  end
  for _, row in ipairs(short) do
    note(row.no, "row_cut", ("%s: the row ends after %d of %d cells"):format(row.label.name, #row.cells, aligned.width))
  end
  if #missing > 0 then
    local names = table.concat(missing, ", ")
    note(last.no, "rows_missing", "no row for " .. names .. ": links among them, CPUs and NUMA nodes are unknown")
  end
end

local function note_repairs(grid, note)
  if grid.header and grid.header.wrapped then note(grid.line, "header_wrapped", "the header goes on in the next line") end
  for _, row in ipairs(grid.rows) do
    if row.prefixed then
      note(row.no, "prefix", "words before the labels of the rows were taken away")
      break
    end
  end
end

-- -- Switch rule -----------------------------------------------------------------------------------------------------

-- No GPU up to Blackwell has more than 18 NVLink ports. On a switch each pair shows the full count, so the counts of a GPU's row add
-- up to more than that: then its links go through switches for certain. Two GPUs with NV18, or four with NV6, may be either.
local most_ports = 18

-- A GPU whose pairs show different counts (cube mesh), or two of whose peers have no NVLink between them (ring), is wired directly:
-- a switch joins all of its GPUs, with the same count on every pair.
local function wiring_of(host, device)
  local sum, counts, n, peers = 0, {}, 0, {}
  for _, other in ipairs(host.devices) do
    local link = other ~= device and host:has_link(device, other)
    if link and link.kind == "nvlink" and link.nvlinks then
      sum, peers[#peers + 1] = sum + link.nvlinks, other
      if not counts[link.nvlinks] then counts[link.nvlinks], n = true, n + 1 end
    end
  end
  if sum > most_ports then return true end
  for i, a in ipairs(peers) do
    for k = i + 1, #peers do
      local link = host:has_link(a, peers[k])
      if link and link.kind and link.kind ~= "nvlink" then return false end
    end
  end
  if n > 1 then return false end
  return nil
end

--- Say of each NVLink pair whether it goes through a switch, where the counts leave no other reading.
---@param host table  of a draft
function M.infer_switches(host)
  for _, device in ipairs(host.devices) do
    local wiring = wiring_of(host, device)
    if wiring ~= nil then
      for _, other in ipairs(host.devices) do
        local link = other ~= device and host:has_link(device, other)
        if link and link.kind == "nvlink" and link.nvlinks and link.via_switch ~= true then link.via_switch = wiring end
      end
    end
  end
end

-- -- Hosts -----------------------------------------------------------------------------------------------------------

local function signature(list, labels)
  local parts, seen = {}, {}
  for _, l in ipairs(labels) do
    if l.kind == "gpu" then seen[#seen + 1] = l.name end
  end
  for _, p in ipairs(list) do
    if p.a.kind == "gpu" and p.b.kind == "gpu" then parts[#parts + 1] = p.a.name .. p.b.name .. words.show(p.cell) end
  end
  table.sort(parts)
  table.sort(seen)
  return table.concat(seen, " ") .. "|" .. table.concat(parts, " ")
end

-- Is this a table of PCIe paths of the same GPUs (topo -m and topo -mp of one host)? Pairs that are no NVLink must agree.
local function same_but_nvlink(one, two)
  local known, hidden, agree = {}, 0, 0
  for _, p in ipairs(one.list) do known[p.a.name .. p.b.name] = p.cell end
  for _, p in ipairs(two.list) do
    local cell = known[p.a.name .. p.b.name]
    if cell and (cell.kind == "nvlink") ~= (p.cell.kind == "nvlink") then
      hidden = hidden + 1
    elseif cell and words.same(cell, p.cell) then
      agree = agree + 1
    elseif cell then
      return false
    end
  end
  return hidden > 0 and #one.list == #two.list and hidden + agree == #two.list
end

-- Choose the host of a table: the page's, unless that one already has other cells for the same GPUs.
local function host_for(draft, first, table_, note)
  if not first.matrix then return first end
  if first.matrix.signature == table_.signature then
    note(table_.grid.line, "table_repeated", "the same table stands in the text twice: counted once")
    return nil
  end
  if same_but_nvlink(first.matrix, table_) then return first end
  note(table_.grid.line, "several_hosts", "a second, different table: taken for another host")
  return draft:add_host(nil)
end

local function add_table(draft, first, grid)
  local function note(...) draft:doubt(...) end
  note_repairs(grid, note)
  local aligned = columns.align(grid, note)
  if #aligned.facts == 0 then return end
  local table_ = { grid = grid, list = pairs_of(aligned, note) }
  table_.signature = signature(table_.list, aligned.labels)
  local host = host_for(draft, first, table_, note)
  if not host then return end
  grid.dropped = {}
  for i, l in ipairs(grid.glued_at and grid.header.labels or {}) do
    if i >= grid.glued_at then grid.dropped[l.name] = true end
  end
  for _, l in ipairs(aligned.labels) do
    if l.kind == "gpu" then host:device(l.index) end
  end
  add_links(host, table_.list)
  add_nics(host, grid, aligned, table_.list, note)
  add_affinities(host, grid, aligned, note)
  note_missing_rows(grid, aligned, note)
  host.matrix = host.matrix or table_
  draft:found("matrix")
end

-- -- Public ----------------------------------------------------------------------------------------------------------

-- A host of which only PCIe paths were shown may have NVLink all the same.
local function note_hidden(draft, grids)
  local hidden
  for _, grid in ipairs(grids) do
    local pcie = grid.command and (grid.command:find("^%-mp") or grid.command:find("^%-%-matrix_pci"))
    if grid.class == "matrix" and not pcie then return end
    hidden = hidden or (pcie and grid)
  end
  if hidden then draft:doubt(hidden.line, "mp_hides_nvlink", "topo -mp shows PCIe paths only and hides NVLink: give the output of topo -m") end
end

--- Write every matrix of the lines into a draft.
---@param draft tpl.topo.Draft
---@param host table               the host that the lines speak of
---@param lines tpl.topo.Line[]
function M.fill(draft, host, lines)
  local grids, before = grid_of.find(lines), #draft.hosts
  for _, grid in ipairs(grids) do
    if grid.class == "matrix" then add_table(draft, host, grid) end
  end
  note_hidden(draft, grids)
  M.infer_switches(host)
  for i = before + 1, #draft.hosts do M.infer_switches(draft.hosts[i]) end
end

return M
