-- SPDX-License-Identifier: Apache-2.0
--- Draw a topology as SVG: a row of devices for each host in boxes of their NUMA nodes, NVLinks as arcs above, PCIe ways as arcs below, NICs under
-- the devices they are near to. With a placement, devices have the colour of their stage and the name of their rank.
-- Pure: takes the object, gives the text of a well-formed document. All text from inputs is escaped.
local order = require("tpl.topo.order")
local pair = require("tpl.topo.pair")
local text = require("tpl.topo.text")

local M = {}

local DEVICE_W, DEVICE_H, GAP, BOX_PAD, MARGIN = 92, 58, 18, 12, 24
local MOST_HOSTS, MOST_ARCS = 16, 600

local stage_colours = { "#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#eeca3b", "#9d755d" }
local link_colours = { nvlink = "#3a8f3a", c2c = "#3a8f3a", pix = "#2f7fb8", pxb = "#6aa5cf", phb = "#c99a2e", node = "#d6b86a", sys = "#c65b5b",
  shm = "#c99a2e", net = "#8a5bb8", refused = "#c0392b" }

local entities = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;" }

--- Escape a text for XML: markup becomes entities; control characters and bytes that are not UTF-8 become "?".
---@param s any
---@return string
function M.escape(s)
  s = tostring(s)
  local out, at = {}, 1
  while at <= #s do
    local b = s:byte(at)
    local n = b < 0x80 and 1 or b >= 0xc2 and b < 0xe0 and 2 or b >= 0xe0 and b < 0xf0 and 3 or b >= 0xf0 and b < 0xf5 and 4 or 0
    local piece = n > 0 and s:sub(at, at + n - 1) or ""
    local ok = n > 0 and #piece == n and (n == 1 or piece:sub(2):find("^[\128-\191]+$") ~= nil)
    if ok and n == 3 then ok = not (piece:find("^\224[\128-\159]") or piece:find("^\237[\160-\191]") or piece:find("^\239\191[\190\191]")) end
    if ok and n == 4 then ok = not (piece:find("^\240[\128-\143]") or piece:find("^\244[\144-\191]")) end
    if n == 1 and (b < 0x20 or b == 0x7f) then ok = false end
    out[#out + 1] = ok and (entities[piece] or piece) or "?"
    at = at + (ok and n or 1)
  end
  return table.concat(out)
end

local function new_page()
  local page = { parts = {} }
  function page.add(format, ...) page.parts[#page.parts + 1] = format:format(...) end
  function page.text(x, y, s, style)
    page.add('<text x="%.1f" y="%.1f" %s>%s</text>', x, y, style or "", M.escape(s))
  end
  function page.box(x, y, w, h, style, title)
    page.add('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" %s>%s</rect>', x, y, w, h, style,
      title and "<title>" .. M.escape(title) .. "</title>" or "")
  end
  return page
end

local function clip(s, n)
  s = tostring(s)
  if #s <= n then return s end
  local cut = n - 1
  while cut > 0 and s:byte(cut + 1) >= 0x80 and s:byte(cut + 1) < 0xc0 do cut = cut - 1 end -- not inside a character
  return s:sub(1, cut) .. ".."
end

-- -- Where things stand ----------------------------------------------------------------------------------------------

--- Order the devices of a host by socket and NUMA node, so that nodes are boxes of neighbours. MIG slices are drawn in their parent.
local function row_of(t, host)
  local row, slices = {}, {}
  for _, d in ipairs(t.devices) do
    if d.host == host.id then
      local parent = d.kind == "mig" and d.mig and d.mig.parent
      if parent and t:dev(parent) then
        slices[parent] = slices[parent] or {}
        table.insert(slices[parent], d)
      else
        row[#row + 1] = { d = d, socket = t:socket(d.uid) or "~", node = t:numa_node(d.uid) or "~", i = #row }
      end
    end
  end
  table.sort(row, function(a, b)
    if a.socket ~= b.socket then return order.before(a.socket, b.socket) end
    if a.node ~= b.node then return order.before(a.node, b.node) end
    return a.i < b.i
  end)
  return row, slices
end

local function place(row)
  local x, previous = MARGIN + 2 * BOX_PAD, nil
  for _, entry in ipairs(row) do
    if previous and entry.node ~= previous then x = x + 2 * BOX_PAD end
    entry.x, previous = x, entry.node
    x = x + DEVICE_W + GAP
  end
  return x - GAP + BOX_PAD
end

-- -- Arcs ------------------------------------------------------------------------------------------------------------

local function arc_style(link)
  if pair.is_nvlink(link) then
    if pair.refused(link) then return link_colours.refused, 2, "4 3" end
    return link_colours.nvlink, math.min(4, 0.8 + (link.nvlinks or 1) / 6), nil
  end
  local word = pair.word(link) or link.kind
  local width = ({ pix = 2.2, pxb = 1.8, phb = 1.4, node = 1.1, sys = 0.8 })[word] or 1
  return link_colours[word] or "#888888", width, pair.refused(link) and "4 3" or nil
end

local function arc_height(a, b) return math.min(150, 14 + math.abs(b.x - a.x) * 0.16) end

local function draw_arc(page, a, b, link, y, up)
  local colour, width, dash = arc_style(link)
  local xa, xb = a.x + DEVICE_W / 2, b.x + DEVICE_W / 2
  local h = arc_height(a, b) * 1.33 * (up and -1 or 1)
  page.add('<path d="M %.1f %.1f C %.1f %.1f, %.1f %.1f, %.1f %.1f" fill="none" stroke="%s" stroke-width="%.1f" stroke-opacity="%.2f"%s><title>%s</title></path>',
    xa, y, xa, y + h, xb, y + h, xb, y, colour, width, (a.d.usable == false or b.d.usable == false) and 0.25 or 0.8, dash and (' stroke-dasharray="%s"'):format(dash) or "",
    M.escape(("%s - %s: %s%s"):format(text.short(a.d), text.short(b.d), (text.cell(link)),
      link.gb_s and (", %.1f GB/s one way (%s)"):format(link.gb_s, link.source or "stated") or "")))
end

--- List the arcs of a host and how much room they need above and below. Ways across sockets are left out where a nearer kind tells enough.
local function arcs_of(t, row)
  local up, down, above, below = {}, {}, 0, 0
  for i, a in ipairs(row) do
    for j = i + 1, #row do
      local b = row[j]
      local link = t:either(a.d.uid, b.d.uid)
      if link then
        local list = pair.is_nvlink(link) and up or down
        list[#list + 1] = { a = a, b = b, link = link }
      end
    end
  end
  if #down > 24 then
    local near = {}
    for _, arc in ipairs(down) do
      if pair.rank(arc.link) < pair.rank_of.sys then near[#near + 1] = arc end
    end
    down = near
  end
  if #up + #down > MOST_ARCS then up, down = {}, {} end
  for _, arc in ipairs(up) do above = math.max(above, arc_height(arc.a, arc.b)) end
  for _, arc in ipairs(down) do below = math.max(below, arc_height(arc.a, arc.b)) end
  return up, down, above, below
end

-- -- Placement -------------------------------------------------------------------------------------------------------

--- Index what is placed where: by uid the ranks that have it.
local function placed(placement)
  local by_uid = {}
  for _, rank in ipairs(placement or {}) do
    local uid = rank.uid
    if type(uid) == "string" then
      by_uid[uid] = by_uid[uid] or {}
      table.insert(by_uid[uid], rank)
    end
  end
  return by_uid
end

local function number(x, default) return type(x) == "number" and x or default end

local function stage_colour(rank)
  local stage = number(rank.stage, 0)
  local replica = number(rank.replica, 0)
  return stage_colours[(stage + 3 * replica) % #stage_colours + 1]
end

local function rank_label(ranks)
  local parts = {}
  for i, rank in ipairs(ranks) do parts[i] = ("rank %d stage %d"):format(number(rank.rank, i - 1), number(rank.stage, 0)) end
  return table.concat(parts, ", ")
end

-- -- Parts of the picture --------------------------------------------------------------------------------------------

local function device_title(d)
  local lines = { d.uid }
  for _, key in ipairs { "name", "pci", "cpus" } do
    if d[key] then lines[#lines + 1] = key .. " " .. tostring(d[key]) end
  end
  for _, why in ipairs(d.why_not or {}) do lines[#lines + 1] = tostring(why.message or why.code) end
  return table.concat(lines, "; ")
end

local function draw_device(page, entry, y, slices, ranks)
  local d = entry.d
  local fill, ink = "#ffffff", "#222222"
  if d.usable == false then fill, ink = "#e3e3e3", "#777777" end
  if ranks then fill, ink = stage_colour(ranks[1]), "#ffffff" end
  page.box(entry.x, y, DEVICE_W, DEVICE_H, ('rx="6" fill="%s" stroke="#444444"%s'):format(fill, d.usable == false and ' stroke-dasharray="5 3"' or ""),
    device_title(d))
  local centre = entry.x + DEVICE_W / 2
  local style = ('text-anchor="middle" fill="%s"'):format(ink)
  page.text(centre, y + 17, text.short(d), style .. ' font-weight="bold"')
  page.text(centre, y + 32, clip(ranks and rank_label(ranks) or (d.name or ""):gsub("^NVIDIA ", ""), 16), style .. ' font-size="9"')
  local below = d.mem_bytes and ("%.0f GiB"):format(d.mem_bytes / 2 ^ 30) or ""
  if d.usable == false and d.why_not and d.why_not[1] then below = d.why_not[1].code end
  if slices then below = ("MIG x %d"):format(#slices) end
  page.text(centre, y + 47, clip(below, 17), style .. ' font-size="9"')
end

local function draw_nodes(page, row, y)
  local i = 1
  while i <= #row do
    local j = i
    while row[j + 1] and row[j + 1].node == row[i].node do j = j + 1 end
    if row[i].node ~= "~" then
      local x = row[i].x - BOX_PAD
      page.box(x, y - BOX_PAD, row[j].x + DEVICE_W + BOX_PAD - x, DEVICE_H + 2 * BOX_PAD, 'rx="8" fill="#f2f4f7" stroke="#b8c0cc"')
      page.text(x + 6, y + DEVICE_H + BOX_PAD - 2, row[i].d.numa and "NUMA " .. row[i].d.numa or "cpus " .. tostring(row[i].d.cpus), 'font-size="8" fill="#666666"')
    end
    i = j + 1
  end
end

local function draw_nics(page, t, row, host, y)
  local near, names = {}, 0
  for _, entry in ipairs(row) do near[entry.d.uid] = entry end
  for _, nic in ipairs(t.nics) do
    local x, n = 0, 0
    for _, uid in ipairs(nic.near or {}) do
      if near[uid] then x, n = x + near[uid].x + DEVICE_W / 2, n + 1 end
    end
    if n > 0 then
      local centre, level = x / n, names % 3
      page.box(centre - 34, y + level * 18, 68, 15, 'rx="3" fill="#fff7e0" stroke="#b99a4a"', ("%s on %s"):format(nic.name or nic.device or "?", host.id))
      page.text(centre, y + level * 18 + 11, clip(nic.device or nic.name or nic.pci or "?", 13), 'text-anchor="middle" font-size="9"')
      names = names + 1
    end
  end
  return names > 0 and math.min(names, 3) * 18 + 6 or 0
end

local function draw_host(page, t, host, y, by_uid)
  local row, slices = row_of(t, host)
  local width = math.max(place(row) + BOX_PAD, 320)
  local up, down, above, below = arcs_of(t, row)
  local devices_y = y + 34 + above
  local nics_y = devices_y + DEVICE_H + BOX_PAD + below + 10
  local frame = #page.parts + 1
  page.add("") -- the frame, when its height is known
  page.text(MARGIN + 8, y + 18, clip("host " .. host.id .. (host.cpu and host.cpu.model and ", " .. host.cpu.model or ""), 90), 'font-weight="bold"')
  draw_nodes(page, row, devices_y)
  for _, arc in ipairs(up) do draw_arc(page, arc.a, arc.b, arc.link, devices_y, true) end
  for _, arc in ipairs(down) do draw_arc(page, arc.a, arc.b, arc.link, devices_y + DEVICE_H, false) end
  for _, entry in ipairs(row) do
    local ranks = by_uid[entry.d.uid]
    for _, slice in ipairs(slices[entry.d.uid] or {}) do ranks = ranks or by_uid[slice.uid] end
    draw_device(page, entry, devices_y, slices[entry.d.uid], ranks)
  end
  local height = nics_y + draw_nics(page, t, row, host, nics_y) - y + 8
  page.parts[frame] = ('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="10" fill="#fbfbfc" stroke="#8a94a3"></rect>'):format(
    MARGIN, y, width - MARGIN, height)
  return height, width
end

local legend_words = { { "nvlink", "NVLink (wider: more links)" }, { "pix", "PIX" }, { "pxb", "PXB" }, { "phb", "PHB" }, { "node", "NODE" }, { "sys", "SYS" },
  { "refused", "peer access refused" } }

local function draw_legend(page, y)
  local x = MARGIN
  for _, entry in ipairs(legend_words) do
    page.add('<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="%s" stroke-width="3"%s/>', x, y, x + 22, y, link_colours[entry[1]],
      entry[1] == "refused" and ' stroke-dasharray="4 3"' or "")
    page.text(x + 27, y + 4, entry[2], 'font-size="10"')
    x = x + 42 + 6 * #entry[2]
  end
  return x
end

local function draw_stages(page, placement, y)
  local x, seen = MARGIN, {}
  for _, rank in ipairs(placement) do
    local name = ("replica %d stage %d"):format(number(rank.replica, 0), number(rank.stage, 0))
    if not seen[name] and x < 900 then
      seen[name] = true
      page.box(x, y - 8, 14, 10, ('fill="%s"'):format(stage_colour(rank)))
      page.text(x + 19, y, name, 'font-size="10"')
      x = x + 130
    end
  end
end

-- -- Public ----------------------------------------------------------------------------------------------------------

--- Draw a topology.
---@param t tpl.Topo
---@param opts? {placement?: {rank: integer, stage: integer, replica?: integer, uid: string}[], title?: string}  placement: the ranks of a plan
---@return string svg
function M.draw(t, opts)
  opts = opts or {}
  local page, by_uid = new_page(), placed(opts.placement)
  local y, width = MARGIN, 760
  local advice = t.suggest and t.suggest.advice and ("suggestion " .. t.suggest.advice .. ": " .. text.advice(t.suggest.advice)) or ""
  page.text(MARGIN, y + 4, clip(opts.title or advice, 120), 'font-size="13" font-weight="bold"')
  y = y + 18
  for i, host in ipairs(t.hosts) do
    if i > MOST_HOSTS then
      page.text(MARGIN, y + 12, ("and %d more hosts"):format(#t.hosts - MOST_HOSTS))
      y = y + 26
      break
    end
    local h, w = draw_host(page, t, host, y, by_uid)
    y, width = y + h + 16, math.max(width, w + MARGIN)
  end
  for _, network in ipairs(t.networks or {}) do
    page.text(MARGIN, y + 10, ("network %s%s over %d hosts"):format(network.kind or "", network.gb_s and (" %.1f GB/s"):format(network.gb_s) or "",
      #(network.hosts or {})), ('fill="%s"'):format(link_colours.net))
    y = y + 20
  end
  draw_legend(page, y + 10)
  y = y + 30
  if opts.placement and opts.placement[1] then
    draw_stages(page, opts.placement, y + 6)
    y = y + 24
  end
  local head = ('<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="11">')
    :format(width, y + 10, width, y + 10)
  return '<?xml version="1.0" encoding="UTF-8"?>\n' .. head .. '\n<rect width="100%" height="100%" fill="#ffffff"></rect>\n'
    .. table.concat(page.parts, "\n") .. "\n</svg>\n"
end

return M
