-- SPDX-License-Identifier: Apache-2.0
--- Write a topology for people: devices, the matrix of links, NICs, islands, the suggestion, doubts.
-- Pure: takes the object, gives text. Colours are asked for; sizes are powers of 1024 and say so; unknown is "?".
local groups = require("tpl.topo.groups")
local near = require("tpl.topo.near")
local pair = require("tpl.topo.pair")
local report = require("tpl.report")

local M = {}

local MOST_HOSTS, MOST_GROUPS, MOST_DOUBTS = 4, 8, 40

local codes = { green = "32", cyan = "36", yellow = "33", red = "31", dim = "2", bold = "1" }

--- Give the function that colours a text, or leaves it alone.
---@param on boolean
---@return fun(colour: string, text: string): string
function M.painter(on)
  return function(colour, text)
    if not on or not codes[colour] or text == "" then return text end
    return "\27[" .. codes[colour] .. "m" .. text .. "\27[0m"
  end
end

--- Give the short name of a device inside its host: GPU0, MIG0, cpu0.
---@param d table
---@return string
function M.short(d)
  if d.kind == "mig" then return "MIG" .. (d.index or "?") end
  if d.kind == "cpu" then return "cpu" .. (d.numa or d.index or "?") end
  return "GPU" .. (d.index or "?")
end

local function label(t, uid)
  local d = t:dev(uid)
  if not d then return uid end
  return (#t.hosts > 1 and d.host .. "/" or "") .. M.short(d)
end

local colour_of = { pix = "cyan", pxb = "cyan", phb = "yellow", node = "yellow", sys = "red", net = "red", shm = "yellow", c2c = "green" }

--- Give the cell of a pair and its colour: "NV18", "PIX", "NV4!" where peer access is refused, "?" where nothing is known.
---@param link table?
---@return string text
---@return string colour
function M.cell(link)
  if not link then return "?", "dim" end
  local refused = pair.refused(link) and "!" or ""
  if pair.is_nvlink(link) then return "NV" .. (link.nvlinks or "") .. refused, refused == "" and "green" or "red" end
  local word = pair.word(link) or link.kind or "?"
  return word:upper() .. refused, refused == "" and colour_of[word] or "red"
end

local function pad(text, width) return text .. (" "):rep(width - #text) end

--- Lay rows out in columns. A cell is a text, or {text, colour}.
local function table_of(lines, rows, paint, indent)
  local widths = {}
  for _, row in ipairs(rows) do
    for i, cell in ipairs(row) do
      local text = type(cell) == "table" and cell[1] or cell
      widths[i] = math.max(widths[i] or 0, #text)
    end
  end
  for _, row in ipairs(rows) do
    local cells = {}
    for i, cell in ipairs(row) do
      local text, colour = cell, nil
      if type(cell) == "table" then text, colour = cell[1], cell[2] end
      cells[i] = paint(colour, i < #row and pad(text, widths[i]) or text)
    end
    lines[#lines + 1] = ((indent or "  ") .. table.concat(cells, "  ")):gsub("%s+$", "")
  end
end

--- Leave out columns about which nothing is known in any row, but those named in `keep`.
local function without_empty(rows, keep)
  local filled = {}
  for i = 2, #rows do
    for at, cell in ipairs(rows[i]) do
      local text = type(cell) == "table" and cell[1] or cell
      if text ~= "?" and text ~= "-" and text ~= "" then filled[at] = true end
    end
  end
  local out = {}
  for i, row in ipairs(rows) do
    out[i] = {}
    for at, cell in ipairs(row) do
      if filled[at] or keep[at] then table.insert(out[i], cell) end
    end
  end
  return out
end

-- -- Parts -----------------------------------------------------------------------------------------------------------

local function host_line(host, paint)
  local parts = {}
  if host.cpu and host.cpu.model then parts[#parts + 1] = host.cpu.model end
  if host.driver then parts[#parts + 1] = "driver " .. host.driver end
  if host.cuda then parts[#parts + 1] = "CUDA " .. host.cuda end
  return paint("bold", "host " .. host.id) .. (parts[1] and "  " .. table.concat(parts, ", ") or "")
end

local function memory(d)
  if not d.mem_bytes then return d.free_bytes and report.bytes(d.free_bytes) .. " free" or "?" end
  return report.bytes(d.mem_bytes) .. (d.free_bytes and (" (%s free)"):format(report.bytes(d.free_bytes)) or "")
end

local function state(d)
  if d.usable == false then
    local whys = {}
    for i, why in ipairs(d.why_not or {}) do whys[i] = why.code end
    return { "not usable: " .. table.concat(whys, ", "), "red" }
  end
  local notes = {}
  if d.busy and d.busy.pids and d.busy.pids[1] then notes[#notes + 1] = ("%d processes"):format(#d.busy.pids) end
  for _, name in ipairs(d.labels or {}) do notes[#notes + 1] = tostring(name) end
  return notes[1] and { table.concat(notes, ", "), "yellow" } or ""
end

local function device_rows(t, host)
  local rows = { { { "device", "dim" }, { "name", "dim" }, { "memory", "dim" }, { "numa", "dim" }, { "cpus", "dim" }, { "pci", "dim" }, { "uid", "dim" } } }
  for _, d in ipairs(t.devices) do
    if d.host == host.id then
      local name = d.name or (d.kind == "mig" and d.mig and d.mig.profile) or "?"
      rows[#rows + 1] = { M.short(d), name .. (d.sm and " sm " .. d.sm or ""), memory(d), d.numa and tostring(d.numa) or "?", d.cpus or "?",
        d.pci or "?", d.uid ~= M.short(d) and d.uid or "-", state(d) }
    end
  end
  return rows
end

local function matrix_rows(t, uids, words)
  local rows = { { "" } }
  for i, a in ipairs(uids) do
    rows[1][i + 1] = { M.short(t:dev(a)), "dim" }
    local row = { { M.short(t:dev(a)), "dim" } }
    for j, b in ipairs(uids) do
      if a == b then
        row[j + 1] = { ".", "dim" }
      else
        local text, colour = M.cell(t:link(a, b))
        row[j + 1] = { text, colour }
        words[text:match("^NV") or text:gsub("!", "")] = true
        if text:find("!", 1, true) then words["!"] = true end
      end
    end
    rows[#rows + 1] = row
  end
  return rows
end

local meaning = {
  { "NV", "NVLink, and how many links" }, { "C2C", "chip to chip" }, { "PIX", "one PCIe switch" }, { "PXB", "several PCIe switches" },
  { "PHB", "PCIe host bridge" }, { "NODE", "within a NUMA node" }, { "SYS", "across sockets" }, { "SHM", "shared memory" }, { "NET", "network" },
  { "?", "not told" }, { "!", "peer access refused" },
}

local function legend(words)
  local parts = {}
  for _, entry in ipairs(meaning) do
    if words[entry[1]] then parts[#parts + 1] = entry[1] .. " " .. entry[2] end
  end
  return table.concat(parts, "; ")
end

local function measured_rows(t, host)
  local rows = {}
  for _, link in ipairs(t.links) do
    local d = t:dev(link.a)
    if link.source == "measured" and d.host == host.id and link.gb_s then
      local function way(gb_s, us) return ("%s GB/s%s"):format(gb_s and ("%.1f"):format(gb_s) or "?", us and (", %.1f us"):format(us) or "") end
      rows[#rows + 1] = { M.short(d) .. " - " .. M.short(t:dev(link.b)), way(link.gb_s, link.us), link.gb_s_ba and "back " .. way(link.gb_s_ba, link.us_ba) or "",
        link.data_ok == false and { "DATA WRONG", "red" } or "" }
    end
  end
  return rows
end

local function nic_rows(t, host)
  local rows, known = {}, #t.hosts <= 1
  for _, nic in ipairs(t.nics) do
    local here = {}
    for _, uid in ipairs(nic.near or {}) do
      local d = t:dev(uid)
      if d and d.host == host.id then here[#here + 1] = M.short(d) .. (nic.to and nic.to[uid] and " (" .. nic.to[uid]:upper() .. ")" or "") end
    end
    if here[1] or nic.host == host.id or known then
      local name = nic.device and nic.device ~= nic.name and ("%s (%s)"):format(nic.name, nic.device) or nic.name or nic.device or nic.pci or "?"
      rows[#rows + 1] = { name, nic.numa and "numa " .. nic.numa or "", here[1] and "near " .. table.concat(here, ", ") or { "near no device", "dim" } }
    end
  end
  return rows
end

local function host_part(t, host, lines, paint)
  lines[#lines + 1] = host_line(host, paint)
  for _, node in ipairs(host.numa or {}) do
    lines[#lines + 1] = ("  NUMA %s: cpus %s%s"):format(tostring(node.id), node.cpus or "?", node.mem_bytes and ", " .. report.bytes(node.mem_bytes) or "")
  end
  table_of(lines, without_empty(device_rows(t, host), { true, false, false, true }), paint)
  local uids = {}
  for _, d in ipairs(t.devices) do
    if d.host == host.id and d.kind ~= "mig" then uids[#uids + 1] = d.uid end
  end
  if #uids > 1 then
    local words = {}
    lines[#lines + 1] = paint("bold", "  links")
    table_of(lines, matrix_rows(t, uids, words), paint, "    ")
    lines[#lines + 1] = "    " .. paint("dim", legend(words))
  end
  local measured = measured_rows(t, host)
  if measured[1] then
    lines[#lines + 1] = paint("bold", "  measured, one way")
    table_of(lines, measured, paint, "    ")
  end
  local nics = nic_rows(t, host)
  if nics[1] then
    lines[#lines + 1] = paint("bold", "  NICs")
    table_of(lines, nics, paint, "    ")
  end
end

local function names(t, uids)
  local out = {}
  for i, uid in ipairs(uids) do out[i] = label(t, uid) end
  return table.concat(out, " ")
end

local function island_lines(t, lines, paint)
  if not t.islands[1] then return end
  lines[#lines + 1] = paint("bold", "NVLink islands")
  for i, island in ipairs(t.islands) do
    if i > MOST_GROUPS then
      lines[#lines + 1] = ("  and %d more"):format(#t.islands - MOST_GROUPS)
      break
    end
    local full = island.full and "every pair is joined" or island.full == false and "not every pair is joined" or "whether every pair is joined is not told"
    lines[#lines + 1] = ("  {%s}  %s%s"):format(names(t, island.devices), full, island.fabric and ", fabric " .. island.fabric or "")
  end
end

local function group_line(t, title, list)
  if not list[1] then return nil end
  local parts = {}
  for i, group in ipairs(list) do
    if i > MOST_GROUPS then
      parts[i] = ("and %d more"):format(#list - MOST_GROUPS)
      break
    end
    local weakest = M.cell((groups.weakest(t, group)))
    parts[i] = ("(%s) %s"):format(names(t, group), weakest)
  end
  return ("  %s  %s"):format(title, table.concat(parts, ", "))
end

local advice_text = {
  none = "no device can be used", single = "one device: no parallelism to choose",
}

--- Say in words what the advice means.
---@param word string?
---@return string
function M.advice(word)
  if not word then return "?" end
  if advice_text[word] then return advice_text[word] end
  local tp, pp = word:match("^tp(%d+)xpp(%d+)$")
  if tp then return ("tensor parallel over groups of %s, pipeline or replicas over the %s groups"):format(tp, pp) end
  tp = word:match("^tp(%d+)$")
  if tp then return ("tensor parallel over %s devices"):format(tp) end
  pp = word:match("^pp(%d+)$")
  return pp and ("pipeline or replicas over %s devices"):format(pp) or word
end

local function suggestion_lines(t, lines, paint)
  local s = t.suggest
  if not s.advice then return end
  lines[#lines + 1] = paint("bold", "suggestion") .. "  " .. paint("green", s.advice) .. ": " .. M.advice(s.advice)
  lines[#lines + 1] = group_line(t, "tp=2", s.tp2 or {})
  lines[#lines + 1] = group_line(t, "tp=4", s.tp4 or {})
end

local function doubt_lines(t, lines, paint)
  if not t.doubts[1] then return end
  lines[#lines + 1] = paint("bold", "doubts")
  for i, doubt in ipairs(t.doubts) do
    if i > MOST_DOUBTS then
      lines[#lines + 1] = ("  and %d more"):format(#t.doubts - MOST_DOUBTS)
      break
    end
    lines[#lines + 1] = ("  %s%s %s"):format(doubt.line and ("line %d: "):format(doubt.line) or "", doubt.message or "",
      paint("dim", "[" .. tostring(doubt.code) .. "]"))
  end
end

-- -- Public ----------------------------------------------------------------------------------------------------------

--- Say which NICs are nearest to a device, as text.
---@param t tpl.Topo
---@param uid string
---@return string? names  nil when none is nearer than SYS
function M.near(t, uid)
  local found = near.nearest(t, t:dev(uid))
  if not found[1] then return nil end
  local out = {}
  for i, nic in ipairs(found) do out[i] = nic.device or nic.name end
  return table.concat(out, ", ")
end

--- Write a topology.
---@param t tpl.Topo
---@param opts? {colour?: boolean}
---@return string  lines, the last one ended
function M.write(t, opts)
  local paint, lines = M.painter(opts and opts.colour or false), {}
  local files = t.source and t.source.files or {}
  lines[1] = paint("bold", "source") .. "  " .. tostring(t.source and t.source.kind or "?") .. (files[1] and ": " .. table.concat(files, ", ") or "")
  for i, host in ipairs(t.hosts) do
    if i > MOST_HOSTS then
      lines[#lines + 1] = ("and %d more hosts: %d devices in all"):format(#t.hosts - MOST_HOSTS, #t.devices)
      break
    end
    host_part(t, host, lines, paint)
  end
  for _, network in ipairs(t.networks or {}) do
    lines[#lines + 1] = ("%s  %s%s%s between %d hosts"):format(paint("bold", "network"), network.kind or "?",
      network.gb_s and (", %.1f GB/s"):format(network.gb_s) or "", network.us and (", %.1f us"):format(network.us) or "", #(network.hosts or {}))
  end
  island_lines(t, lines, paint)
  suggestion_lines(t, lines, paint)
  doubt_lines(t, lines, paint)
  return table.concat(lines, "\n") .. "\n"
end

return M
