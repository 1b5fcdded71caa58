-- SPDX-License-Identifier: Apache-2.0
--- Make topology records by hand: a square of words as `nvidia-smi topo -m` prints them, without going through an importer.
local topo = require("tpl.topo")

local M = {}

--- Make a record of a square: NV# or a PCIe word, "." for the device itself, "?" for a pair that is not told.
---@param rows string[]   one line for each device
---@param fields? table   numa: numbers by device; device: function(i) -> further fields; nics: {name = "PIX SYS .."}
function M.record(rows, fields)
  fields = fields or {}
  local record = { hosts = { { id = "host0" } }, devices = {}, links = {}, nics = {} }
  for i in ipairs(rows) do
    local d = { uid = "GPU" .. i - 1, kind = "gpu", index = i - 1, host = "host0", numa = fields.numa and fields.numa[i] }
    for key, value in pairs(fields.device and fields.device(i - 1) or {}) do d[key] = value end
    record.devices[i] = d
  end
  for i, row in ipairs(rows) do
    local j = 0
    for word in row:gmatch("%S+") do
      j = j + 1
      if j > i and word ~= "?" then
        local n = tonumber(word:match("^NV(%d+)$"))
        record.links[#record.links + 1] = {
          a = record.devices[i].uid, b = record.devices[j].uid, kind = n and "nvlink" or word:lower(), nvlinks = n, pcie = not n and word:lower() or nil,
        }
      end
    end
    assert(j == #rows, "row " .. i .. " has " .. j .. " words")
  end
  for name, words in pairs(fields.nics or {}) do
    local to, i = {}, 0
    for word in words:gmatch("%S+") do
      i = i + 1
      to[record.devices[i].uid] = word:lower()
    end
    table.insert(record.nics, { name = name, to = to })
  end
  return record
end

--- Make a finished topology of a square.
function M.topo(rows, fields) return assert(topo.from_record(M.record(rows, fields))) end

--- Read a fixture of spec/fixtures/topologies.
function M.fixture(name) return assert(topo.read("spec/fixtures/topologies/" .. name)) end

--- Write groups as text: "01 23"; devices by their index.
function M.text(t, list)
  local out = {}
  for i, group in ipairs(list) do
    local indices = {}
    for k, uid in ipairs(group) do indices[k] = t:dev(uid).index end
    table.sort(indices)
    out[i] = table.concat(indices, ",")
  end
  return table.concat(out, " ")
end

return M
