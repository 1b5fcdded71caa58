-- SPDX-License-Identifier: Apache-2.0
--- Describe the weights of a model as a short list of modules per layer, without their values: what the families in
--- families.lua are written with. A module says what it is cut by under tensor parallelism and how large it is.
--- Pure.
local M = {}

---@class tpl.shape.Module
---@field part "attn"|"kv"|"mlp"|"expert"|"rep"|"embed"|"head"   what cuts it: heads, KV heads, FFN columns, experts, nothing, the vocabulary
---@field name string      as in the checkpoint, without the prefix of its layer; experts are named as expert 0
---@field out integer      rows of one copy
---@field inn integer      columns of one copy; 1 for a vector
---@field n integer        copies (experts)
---@field linear boolean   a matrix that quantisation may touch
---@field bias integer     elements of its bias, all copies
---@field f32 boolean?     kept in float32 whatever the model's type is
---@field used number      share of it that one token reads (experts)

--- Make a matrix.
---@param part string
---@param name string
---@param out integer
---@param inn integer
---@param more {bias: boolean?, n: integer?, used: number?, plain: boolean?}?   plain: quantisation never touches it
---@return tpl.shape.Module
function M.matrix(part, name, out, inn, more)
  more = more or {}
  local n = more.n or 1
  return { part = part, name = name, out = out, inn = inn, n = n, linear = not more.plain, bias = more.bias and n * out or 0,
    used = more.used or 1, is_matrix = true }
end

--- Make a vector: a norm, a bias of its own, sinks.
---@return tpl.shape.Module
function M.vector(part, name, size, more)
  return { part = part, name = name, out = size, inn = 1, n = 1, linear = false, bias = 0, used = 1, f32 = more and more.f32 }
end

--- Count the elements of a module, bias included.
function M.elements(m) return m.n * m.out * m.inn + m.bias end

return M
