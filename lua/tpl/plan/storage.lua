-- SPDX-License-Identifier: Apache-2.0
--- Sizes of the storage types that this version computes with: elements and bytes per block (the GGUF format).
--- core/base/dtype.h holds the same figures for C; spec/plan/storage_spec.lua compares them.
local M = {}

---@type table<string, {elements: integer, bytes: integer}>
M.types = {
  f32 = { elements = 1, bytes = 4 }, f16 = { elements = 1, bytes = 2 }, bf16 = { elements = 1, bytes = 2 },
  q4_0 = { elements = 32, bytes = 18 }, q4_1 = { elements = 32, bytes = 20 },
  q5_0 = { elements = 32, bytes = 22 }, q5_1 = { elements = 32, bytes = 24 }, q8_0 = { elements = 32, bytes = 34 },
  q4_k = { elements = 256, bytes = 144 }, q5_k = { elements = 256, bytes = 176 }, q6_k = { elements = 256, bytes = 210 },
}

--- Elements per block, 1 for a type that is not stored in blocks.
function M.elements(dtype)
  local t = M.types[dtype]
  return t and t.elements or 1
end

--- Bytes of n elements in whole blocks.
function M.bytes(dtype, n)
  local t = M.types[dtype]
  return n / t.elements * t.bytes
end

return M
