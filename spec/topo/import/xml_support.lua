-- SPDX-License-Identifier: Apache-2.0
--- Fixtures and the shared corpus for the specs of the importers, and short forms of what records hold.
local files = require("spec.support.files")

local M = {}

function M.fixture(name) return assert(files.read("spec/fixtures/topologies/" .. name)) end

--- Give the text of a file of the corpus, or nil where the shared folder is absent.
function M.corpus(name) return files.read((os.getenv("TPL_SHARED") or "../shared") .. "/data/topologies/" .. name) end

local function digits(record, uid)
  for _, d in ipairs(record.devices) do if d.uid == uid then return d.index end end
end

--- Write the links of a record as {["0-1"] = "nvlink 12 sys", ["0-2"] = "node"}: indices, kind, number of NVLinks, * for switches, PCIe word.
function M.links(record)
  local out = {}
  for _, l in ipairs(record.links) do
    local text = l.kind
    if l.kind == "nvlink" then text = ("nvlink %d%s %s"):format(l.nvlinks, l.via_switch and "*" or "", tostring(l.pcie)) end
    out[digits(record, l.a) .. "-" .. digits(record, l.b)] = text
  end
  return out
end

--- List one field of all devices; "-" where it is unknown.
function M.each(record, field)
  local out = {}
  for i, d in ipairs(record.devices) do out[i] = d[field] == nil and "-" or d[field] end
  return out
end

--- The NUMA split as "0 0 1 1".
function M.numa(record) return table.concat(M.each(record, "numa"), " ") end

--- Say whether a record has a doubt of a code, in a line where one is given.
function M.doubt(record, code, line)
  for _, d in ipairs(record.doubts) do
    if d.code == code and (not line or d.line == line) then return d end
  end
end

--- The path words of a NIC to all devices, in their order.
function M.nic(record, name)
  for _, n in ipairs(record.nics) do
    if n.name == name then
      local out = {}
      for i, d in ipairs(record.devices) do out[i] = n.to and n.to[d.uid] or "-" end
      return table.concat(out, " ")
    end
  end
end

--- Cut a text at `n` places and call f with each piece.
function M.cuts(text, n, f)
  local step = math.max(1, math.floor(#text / n))
  for at = 0, #text, step do f(text:sub(1, at), at) end
end

return M
