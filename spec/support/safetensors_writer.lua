-- SPDX-License-Identifier: Apache-2.0
--- Build safetensors files and their index as strings, well-formed or deliberately wrong, without any tpl code.
local gguf = require("spec.support.gguf_writer")

local M = {}

M.sizes = { BOOL = 1, U8 = 1, I8 = 1, F8_E4M3 = 1, F8_E5M2 = 1, I16 = 2, U16 = 2, F16 = 2, BF16 = 2, I32 = 4, U32 = 4, F32 = 4,
  I64 = 8, U64 = 8, F64 = 8 }

--- Put a header text before data: u64 length, text, data. `len` overrides the length that is claimed.
---@return string
function M.raw(header, data, len)
  return gguf.int(len or #header, 8) .. header .. (data or "")
end

local function quote(s)
  return '"' .. s:gsub('[%c"\\]', function(c) return string.format("\\u%04x", c:byte()) end) .. '"'
end

---@class spec.SafeTensor
---@field name string
---@field dtype string        as in the format: "F32"
---@field dims number[]
---@field data string?        raw bytes, zeros when nil

--- Build a file from tensors in the order of their data. o.metadata: map of strings; o.pad (true): header padded to 8 bytes.
---@return string
function M.build(tensors, o)
  o = o or {}
  local entries, data, at = {}, {}, 0
  if o.metadata then
    local m = {}
    for k, v in pairs(o.metadata) do m[#m + 1] = quote(k) .. ":" .. quote(v) end
    entries[1] = '"__metadata__":{' .. table.concat(m, ",") .. "}"
  end
  for _, t in ipairs(tensors) do
    local n = 1
    for _, d in ipairs(t.dims) do n = n * d end
    local bytes = t.data or string.rep("\0", n * assert(M.sizes[t.dtype], t.dtype))
    entries[#entries + 1] = string.format('%s:{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}', quote(t.name), t.dtype,
      table.concat(t.dims, ","), at, at + #bytes)
    data[#data + 1] = bytes
    at = at + #bytes
  end
  local header = "{" .. table.concat(entries, ",") .. "}"
  if o.pad ~= false then header = header .. string.rep(" ", -(#header + 8) % 8) end
  return M.raw(header, table.concat(data))
end

--- Build an index from a list of {tensor, file}.
---@return string
function M.index(map)
  local parts = {}
  for i, e in ipairs(map) do parts[i] = quote(e[1]) .. ":" .. quote(e[2]) end
  return '{"metadata":{"total_size":1},"weight_map":{' .. table.concat(parts, ",") .. "}}"
end

return M
