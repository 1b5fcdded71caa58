-- SPDX-License-Identifier: Apache-2.0
--- Build GGUF files as strings, well-formed or deliberately wrong, without any tpl code.
--- The layout is written from the format description (v2/v3), so that it can serve as an independent source in tests.
local bit = require("bit")
local ffi = require("ffi")

local M = {}

--- Value types of GGUF keys.
M.kv_types = { u8 = 0, i8 = 1, u16 = 2, i16 = 3, u32 = 4, i32 = 5, f32 = 6, bool = 7, str = 8, array = 9, u64 = 10, i64 = 11, f64 = 12 }

--- Tensor types: id, elements per block, bytes per block.
M.types = {
  f32 = { 0, 1, 4 }, f16 = { 1, 1, 2 }, bf16 = { 30, 1, 2 }, i8 = { 24, 1, 1 }, i16 = { 25, 1, 2 }, i32 = { 26, 1, 4 }, i64 = { 27, 1, 8 },
  q4_0 = { 2, 32, 18 }, q4_1 = { 3, 32, 20 }, q5_0 = { 6, 32, 22 }, q5_1 = { 7, 32, 24 }, q8_0 = { 8, 32, 34 },
  q2_k = { 10, 256, 84 }, q3_k = { 11, 256, 110 }, q4_k = { 12, 256, 144 }, q5_k = { 13, 256, 176 }, q6_k = { 14, 256, 210 },
  iq4_nl = { 20, 32, 18 }, mxfp4 = { 39, 32, 17 },
}

--- Write the low `n` bytes of an integer, little endian. Accepts a Lua number (also negative), or int64_t/uint64_t cdata.
---@param x number|ffi.cdata*
---@param n integer
---@return string
function M.int(x, n)
  local v = ffi.new("uint64_t[1]")
  if type(x) == "number" and x < 0 then
    v[0] = ffi.cast("uint64_t", ffi.cast("int64_t", x))
  else
    v[0] = x
  end
  local bytes = {}
  for i = 1, n do
    bytes[i] = string.char(tonumber(bit.band(v[0], 0xffULL)))
    v[0] = bit.rshift(v[0], 8)
  end
  return table.concat(bytes)
end

--- Write IEEE floats, little endian.
function M.f32(x)
  return ffi.string(ffi.new("float[1]", x), 4)
end

function M.f64(x)
  return ffi.string(ffi.new("double[1]", x), 8)
end

--- Write a GGUF string; `len` overrides the length that is claimed.
function M.str(s, len)
  return M.int(len or #s, 8) .. s
end

local sizes = { u8 = 1, i8 = 1, u16 = 2, i16 = 2, u32 = 4, i32 = 4, u64 = 8, i64 = 8 }

--- Write the bytes of one scalar of a type.
function M.scalar(type_name, v)
  if type_name == "str" then return M.str(v) end
  if type_name == "bool" then return string.char(type(v) == "number" and v or (v and 1 or 0)) end
  if type_name == "f32" then return M.f32(v) end
  if type_name == "f64" then return M.f64(v) end
  return M.int(v, assert(sizes[type_name], type_name))
end

--- Write one key. kv = {key, type, value}; an array is {key, "array", element type, {values}}; {key, "raw", bytes} is taken as it is.
function M.kv(kv)
  local key, kind, v = M.str(kv[1]), kv[2], kv[3]
  if kind == "raw" then return key .. v end
  if kind ~= "array" then return key .. M.int(assert(M.kv_types[kind], kind), 4) .. M.scalar(kind, v) end
  local parts = { key, M.int(9, 4), M.int(M.kv_types[v], 4), M.int(#kv[4], 8) }
  for _, x in ipairs(kv[4]) do parts[#parts + 1] = M.scalar(v, x) end
  return table.concat(parts)
end

local function align_up(n, a)
  return math.ceil(n / a) * a
end

local function tensor_bytes(t)
  local ty = assert(M.types[t.dtype], t.dtype)
  local n = 1
  for _, d in ipairs(t.dims) do n = n * tonumber(d) end
  return n / ty[2] * ty[3]
end

--- Write one tensor description. dims in C order (slowest first); they are reversed here.
local function info(t, offset)
  local parts = { M.str(t.name), M.int(t.n_dims or #t.dims, 4) }
  for i = #t.dims, 1, -1 do parts[#parts + 1] = M.int(t.dims[i], 8) end
  parts[#parts + 1] = M.int(t.type_id or M.types[t.dtype][1], 4)
  parts[#parts + 1] = M.int(t.offset or offset, 8)
  return table.concat(parts)
end

---@class spec.GgufTensor
---@field name string
---@field dims number[]      C order
---@field dtype string       key of M.types
---@field data string?       raw bytes; zeros when nil; "" for none
---@field type_id integer?   instead of the id of dtype
---@field offset number?     instead of the next aligned one
---@field n_dims integer?    the number claimed

--- Build a file.
--- o.kv: list for M.kv; o.tensors: list of spec.GgufTensor; o.align (32): used, and written as general.alignment when given;
--- o.version (3); o.magic; o.n_kv, o.n_tensors: the counts claimed; o.pad (true): pad after the last tensor too.
---@return string
function M.build(o)
  local kvs, tensors = {}, o.tensors or {}
  local align = o.align or 32
  for i, kv in ipairs(o.kv or {}) do kvs[i] = M.kv(kv) end
  if o.align then kvs[#kvs + 1] = M.kv({ "general.alignment", "u32", o.align }) end
  local infos, data, at = {}, {}, 0
  for i, t in ipairs(tensors) do
    infos[i] = info(t, at)
    local bytes = t.data or string.rep("\0", tensor_bytes(t))
    local last = i == #tensors and o.pad == false
    local padded = last and #bytes or align_up(#bytes, align)
    data[i] = bytes .. string.rep("\0", padded - #bytes)
    at = at + padded
  end
  local head = (o.magic or "GGUF") .. M.int(o.version or 3, 4) .. M.int(o.n_tensors or #tensors, 8) .. M.int(o.n_kv or #kvs, 8)
    .. table.concat(kvs) .. table.concat(infos)
  if #tensors > 0 then head = head .. string.rep("\0", align_up(#head, align) - #head) end
  return head .. table.concat(data)
end

return M
