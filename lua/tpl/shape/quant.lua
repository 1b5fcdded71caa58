-- SPDX-License-Identifier: Apache-2.0
--- Say how many bytes a matrix takes in a quantised checkpoint, scales and zeros included, and which matrices the
--- quantisation leaves alone: from `quantization_config` of config.json. Layouts of the tensors: facts/models.md
--- section 2. Pure.
local parts = require "tpl.shape.parts"
local pattern = require "tpl.shape.pattern"
local reader = require "tpl.config.reader"

local M = {}

local ceil = math.ceil

---@class tpl.shape.Format
---@field dtype string                                      "bf16", "fp8", "awq", ..
---@field bytes fun(out: integer, inn: integer): integer    of one matrix
---@field unit integer                                      columns that must stay together when they are cut (in)

local function list_of(q, ...)
  for _, key in ipairs { ... } do
    local value = reader.member(q, key)
    if type(value) == "table" then return value end
  end
  return {}
end

local function number(q, key, default)
  local value = reader.member(q, key)
  return type(value) == "number" and value or default
end

-- -- Formats -----------------------------------------------------------------------------------------------------------

local function fp8_block(rows, cols)
  return { dtype = "fp8", unit = cols, bytes = function(out, inn) return out * inn + ceil(out / rows) * ceil(inn / cols) * 4 end }
end

-- scale: bytes per matrix; per_row: bytes per row
local function eight_bit(dtype, scale, per_row)
  return { dtype = dtype, unit = 1, bytes = function(out, inn) return out * inn + scale + out * per_row end }
end

local function awq(q)
  local bits, group = number(q, "bits", 4), number(q, "group_size", 128)
  return { dtype = "awq", unit = group > 0 and group or 1, bytes = function(out, inn)
    local groups = group > 0 and ceil(inn / group) or 1
    return out * inn * bits / 8 + groups * out * bits / 8 + groups * out * 2
  end }
end

local function gptq(q)
  local bits, group = number(q, "bits", 4), number(q, "group_size", 128)
  return { dtype = "gptq", unit = group > 0 and group or 1, bytes = function(out, inn)
    local groups = group > 0 and ceil(inn / group) or 1
    return ceil(inn * bits / 32) * out * 4 + groups * ceil(out * bits / 32) * 4 + groups * out * 2 + inn * 4
  end }
end

local function packed(w)
  local bits, group = number(w, "num_bits", 4), number(w, "group_size", 0)
  local has_zeros, has_order = reader.member(w, "symmetric") == false, reader.member(w, "actorder") ~= nil
  return { dtype = bits == 4 and "int4" or "int" .. bits, unit = group > 0 and group or 1, bytes = function(out, inn)
    local groups = group > 0 and ceil(inn / group) or 1
    return out * ceil(inn * bits / 32) * 4 + 16 + out * groups * 2 + (has_zeros and ceil(out * bits / 32) * groups * 4 or 0)
      + (has_order and inn * 4 or 0)
  end }
end

local function four_bit_float(dtype, group, extra)
  return { dtype = dtype, unit = group, bytes = function(out, inn) return out * (ceil(inn / 2) + ceil(inn / group)) + extra end }
end

local function compressed(r, q)
  local groups = reader.member(q, "config_groups")
  local _, group = next(type(groups) == "table" and groups or {})
  local w = type(group) == "table" and reader.member(group, "weights")
  if type(w) ~= "table" then r:bad("quantization_config", "has no config_groups with weights") end
  local format = reader.member(group, "format") or reader.member(q, "format")
  if format == "nvfp4-pack-quantized" then return four_bit_float("nvfp4", 16, 4) end
  if format == "mxfp4-pack-quantized" then return four_bit_float("mxfp4", 32, 0) end
  if format == "pack-quantized" then return packed(w) end
  local is_static = type(reader.member(group, "input_activations")) == "table"
    and reader.member(reader.member(group, "input_activations"), "dynamic") == false
  local dtype = reader.member(w, "type") == "float" and "fp8" or "i8"
  local strategy = reader.member(w, "strategy")
  if strategy == "block" then
    local block = reader.member(w, "block_structure")
    return fp8_block(type(block) == "table" and block[1] or 128, type(block) == "table" and block[2] or 128)
  end
  local per_row = strategy == "channel" and 2 or 0
  return eight_bit(dtype, (per_row == 0 and 4 or 0) + (is_static and 4 or 0), per_row)
end

local function fp8(q)
  local block = reader.member(q, "weight_block_size")
  if type(block) == "table" then return fp8_block(block[1], block[2]) end
  return eight_bit("fp8", reader.member(q, "activation_scheme") == "static" and 8 or 4, 0)
end

local function modelopt(r, q)
  local algo = reader.member(q, "quant_algo")
  if algo == "FP8" then return eight_bit("fp8", 8, 0) end
  if algo == "NVFP4" then return four_bit_float("nvfp4", 16, 8) end
  r:unsupported("quantization_config", ("has quant_algo %s, whose memory is not known here"):format(tostring(algo)), "known: FP8, NVFP4")
end

local methods = {}

methods["fp8"] = function(_, q) return fp8(q), list_of(q, "ignored_layers", "modules_to_not_convert") end
methods["fbgemm_fp8"] = function(_, q) return eight_bit("fp8", 0, 4), list_of(q, "modules_to_not_convert") end
methods["awq"] = function(_, q) return awq(q), list_of(q, "modules_to_not_convert") end
methods["gptq"] = function(_, q) return gptq(q), list_of(q, "modules_to_not_convert") end
methods["compressed-tensors"] = function(r, q) return compressed(r, q), list_of(q, "ignore") end
methods["modelopt"] = function(r, q) return modelopt(r, q), list_of(q, "ignore", "exclude_modules") end
methods["mxfp4"] = function(_, q) return four_bit_float("mxfp4", 32, 0), list_of(q, "modules_to_not_convert") end

-- What these methods never touch, listed or not: they replace the linear layers of the blocks.
local keeps_head = { fp8 = true, fbgemm_fp8 = true, awq = true, gptq = true, mxfp4 = true }

--- Give a function from a matrix and its full name to its format.
---@param r tpl.config.Reader        of config.json
---@param plain string               type of what is not quantised: "bf16", "f16", "f32"
---@return fun(m: tpl.shape.Module, name: string): tpl.shape.Format
function M.read(r, plain)
  local width = plain == "f32" and 4 or 2
  local as_is = { dtype = plain, unit = 1, bytes = function(out, inn) return out * inn * width end }
  local q = r:object("quantization_config")
  if q == nil then return function() return as_is end end
  local method = reader.member(q, "quant_method")
  if not methods[method] then
    local names = {}
    for name in pairs(methods) do names[#names + 1] = name end
    table.sort(names)
    r:unsupported("quantization_config", ("(quant_method %s) has a memory layout that is not known here"):format(tostring(method)),
      "known: " .. table.concat(names, ", "))
  end
  local format, ignore = methods[method](r, q)
  local ignored = pattern.any(ignore)
  return function(m, name)
    if not m.linear or ignored(name) then return as_is end
    if m.part == "head" and keeps_head[method] and reader.member(q, "lm_head") ~= true then return as_is end
    if method == "mxfp4" and m.part ~= "expert" then return as_is end
    return format
  end
end

--- Count the bytes of a module.
---@param m tpl.shape.Module
---@param format tpl.shape.Format
---@param plain string
function M.bytes(m, format, plain)
  if not m.is_matrix then return m.out * (m.f32 and 4 or plain == "f32" and 4 or 2) end
  return m.n * format.bytes(m.out, m.inn) + m.bias * (plain == "f32" and 4 or 2)
end

M.elements = parts.elements

return M
