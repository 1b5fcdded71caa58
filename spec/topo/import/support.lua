-- SPDX-License-Identifier: Apache-2.0
--- Look into partial records: what the specs of the topology importers share (not a spec itself).
local err = require("tpl.err")
local files = require("spec.support.files")
local import = require("tpl.topo.import")

local M = {}

local order = { nvlink = 1, pix = 2, pxb = 3, phb = 4, node = 5, sys = 6 }

--- Give the folder of the shared corpus; nil and why when it is not there.
function M.corpus()
  local folder = (os.getenv("TPL_SHARED") or "../shared") .. "/data/topologies"
  if files.read(folder .. "/INDEX.md") then return folder end
  return nil, folder .. " is not there (TPL_SHARED names the shared folder)"
end

function M.fixture_text(name) return files.slurp("spec/fixtures/topologies/" .. name) end

--- Import one of the project's own files.
function M.fixture(name) return import.read(M.fixture_text(name), name) end

--- Import a text that must be refused; gives the error.
function M.refusal(text, name)
  local record, e = err.try(import.read, text, name or "input")
  assert(record == nil, "was accepted")
  return e
end

--- Name the devices of a record "0", "1", .. by their index, and links by both names.
function M.names(record)
  local by_uid = {}
  for _, d in ipairs(record.devices) do by_uid[d.uid] = d end
  return by_uid
end

--- Find the link of two GPU indices; nil when the record does not say.
function M.link(record, a, b)
  local by_uid = M.names(record)
  for _, l in ipairs(record.links) do
    local x, y = by_uid[l.a].index, by_uid[l.b].index
    if (x == a and y == b) or (x == b and y == a) then return l end
  end
  return nil
end

--- Write the links as "0-1 NV12" lines in order, one text.
function M.links(record)
  local by_uid, out = M.names(record), {}
  for i, l in ipairs(record.links) do
    out[i] = ("%d-%d %s"):format(by_uid[l.a].index, by_uid[l.b].index, l.kind == "nvlink" and "NV" .. tostring(l.nvlinks) or tostring(l.kind))
  end
  return table.concat(out, ", ")
end

--- Give the sets of GPU indices joined by NVLink, two or more, as "0,1 2,3".
function M.islands(record)
  local by_uid, group = M.names(record), {}
  for _, d in ipairs(record.devices) do group[d.uid] = { d.index } end
  for _, l in ipairs(record.links) do
    if l.kind == "nvlink" and group[l.a] ~= group[l.b] then
      local old = group[l.b]
      for _, index in ipairs(old) do table.insert(group[l.a], index) end
      for uid, g in pairs(group) do
        if g == old then group[uid] = group[l.a] end
      end
    end
  end
  local seen, out = {}, {}
  for _, d in ipairs(record.devices) do
    local g = group[d.uid]
    if #g > 1 and not seen[g] then
      seen[g] = true
      table.sort(g)
      out[#out + 1] = table.concat(g, ",")
    end
  end
  assert(by_uid)
  return table.concat(out, " ")
end

--- Give one field of every GPU in order; "-" where it is unknown.
function M.column(record, field)
  local out = {}
  for _, d in ipairs(record.devices) do
    if d.kind == "gpu" then out[#out + 1] = d[field] == nil and "-" or tostring(d[field]) end
  end
  return table.concat(out, " ")
end

--- Give the NICs nearest to each GPU, nearer than SYS: "NIC0,NIC1 - NIC2".
function M.nearest(record)
  local out = {}
  for i, d in ipairs(record.devices) do
    local best, names = order.sys, {}
    for _, nic in ipairs(record.nics) do
      local rank = nic.to and nic.to[d.uid] and order[nic.to[d.uid]]
      if rank and rank < best then best, names = rank, {} end
      if rank and rank == best and rank < order.sys then names[#names + 1] = nic.name end
    end
    out[i] = #names > 0 and table.concat(names, ",") or "-"
  end
  return table.concat(out, " ")
end

--- Find the first doubt with a code.
function M.doubt(record, code)
  for _, d in ipairs(record.doubts) do
    if d.code == code then return d end
  end
  return nil
end

return M
