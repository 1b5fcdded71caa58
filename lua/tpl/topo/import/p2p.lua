-- SPDX-License-Identifier: Apache-2.0
--- Read `nvidia-smi topo -p2p r|w|n|a|p|rw`: whether the driver lets one GPU reach another one directly.
--- A status is a fact of its own beside the path: NV4 with NS, and PHB with OK, both exist. Row to column is the direction.
---
--- Contents: what a table is about - one table - fill
local columns = require("tpl.topo.import.grid_columns")
local grid_of = require("tpl.topo.import.grid")

local M = {}

-- Which capabilities the letters of -p2p stand for (nvidia-smi topo --help).
local capabilities = {
  r = { "read" }, w = { "write" }, rw = { "read", "write" }, wr = { "read", "write" }, n = { "nvlink" }, a = { "atomics" }, p = { "pcie" },
}

-- What the table is about: read and write where nothing says so.
local function asked(grid, note)
  local letters = grid.command and grid.command:match("^%-%-?p2p[%w_]*[ =](%a+)")
  if letters and capabilities[letters] then return capabilities[letters] end
  note(grid.line, "p2p_kind_unknown", "a P2P table without its command: taken for read and write")
  return capabilities.rw
end

local function add_table(draft, host, grid)
  local function note(...) draft:doubt(...) end
  local kinds = asked(grid, note)
  local aligned = columns.align(grid, note)
  local added = false
  for _, l in ipairs(aligned.labels) do
    if l.kind == "gpu" then host:device(l.index) end
  end
  for _, f in ipairs(aligned.facts) do
    if f.row.kind == "gpu" and f.column.kind == "gpu" and f.row.name ~= f.column.name and f.cell.type == "p2p" then
      local a, b = host:device(f.row.index), host:device(f.column.index)
      local from = host:link(a, b).from[a]
      from.p2p = from.p2p or {}
      for _, kind in ipairs(kinds) do from.p2p[kind] = f.cell.kind end
      added = true
    end
  end
  if added then draft:found("p2p") end
end

--- Write every P2P table of the lines into a draft.
---@param draft tpl.topo.Draft
---@param host table               the host that the lines speak of
---@param lines tpl.topo.Line[]
function M.fill(draft, host, lines)
  for _, grid in ipairs(grid_of.find(lines)) do
    if grid.class == "p2p" then add_table(draft, host, grid) end
  end
  for _, link in pairs(host.links) do
    if link.kind == "nvlink" and (link.from[link.a].p2p or link.from[link.b].p2p) then M.doubt_refused(draft, link) end
  end
end

--- Note an NVLink pair whose P2P the driver refuses: the link is reported but must not be counted on.
function M.doubt_refused(draft, link)
  for _, d in ipairs { link.a, link.b } do
    local p2p = link.from[d].p2p
    local bad = p2p and ((p2p.read ~= nil and p2p.read ~= "ok" and p2p.read) or (p2p.write ~= nil and p2p.write ~= "ok" and p2p.write))
    if bad then
      draft:doubt(nil, "nvlink_p2p_refused", ("%s to %s is NV%s, but P2P is refused (%s): not usable as NVLink until it is tried"):format(
        draft.label(link.a), draft.label(link.b), link.nvlinks or "#", bad:upper()))
      return
    end
  end
end

return M
