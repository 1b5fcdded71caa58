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

local MOST_GROUP = 2 ^ 20

-- Names that are left alone, under the first of these keys that there is.
local function list_of(q, ...)
  for _, key in ipairs { ... } do
    local value = q:table(key)
    if value then return value end
  end
  return {}
end

local function group_of(q, default)
  local group = q:int("group_size", -1, MOST_GROUP, default)
  return group > 0 and group or nil
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
  local bits, group = q:int("bits", 1, 8, 4), group_of(q, 128)
  return { dtype = "awq", unit = group or 1, bytes = function(out, inn)
    local groups = group and ceil(inn / group) or 1
    return out * inn * bits / 8 + groups * out * bits / 8 + groups * out * 2
  end }
end

local function gptq(q)
  local bits, group = q:int("bits", 1, 8, 4), group_of(q, 128)
  return { dtype = "gptq", unit = group or 1, bytes = function(out, inn)
    local groups = group and ceil(inn / group) or 1
    return ceil(inn * bits / 32) * out * 4 + groups * ceil(out * bits / 32) * 4 + groups * out * 2 + inn * 4
  end }
end

local function packed(w)
  local bits, group = w:int("num_bits", 1, 8, 4), group_of(w, 0)
  local has_zeros, has_order = w.get("symmetric") == false, w.get("actorder") ~= nil
  return { dtype = "int" .. bits, unit = group or 1, bytes = function(out, inn)
    local groups = group and ceil(inn / group) or 1
    return out * ceil(inn * bits / 32) * 4 + 16 + out * groups * 2 + (has_zeros and ceil(out * bits / 32) * groups * 4 or 0)
      + (has_order and inn * 4 or 0)
  end }
end

local function four_bit_float(dtype, group, extra)
  return { dtype = dtype, unit = group, bytes = function(out, inn) return out * (ceil(inn / 2) + ceil(inn / group)) + extra end }
end

-- Rows and columns of a block under a key; 128 x 128 where the file does not say.
local function block_of(q, key)
  local block = q:table(key)
  if not block then return fp8_block(128, 128) end
  local inside = q:inside(key, block)
  return fp8_block(inside:int(1, 1, MOST_GROUP), inside:int(2, 1, MOST_GROUP))
end

local function compressed(q)
  local groups = q:object("config_groups")
  local name = next(groups or {})
  local group = type(name) == "string" and q:inside("config_groups", groups) or nil
  group = group and group:object(name) and group:inside(name, group:object(name))
  local weights = group and group:object("weights")
  if not weights then q:bad("config_groups", "has no group with weights") end
  local w, format = group:inside("weights", weights), group:str("format") or q:str("format")
  if format == "nvfp4-pack-quantized" then return four_bit_float("nvfp4", 16, 4) end
  if format == "mxfp4-pack-quantized" then return four_bit_float("mxfp4", 32, 0) end
  if format == "pack-quantized" then return packed(w) end
  local input = group:object("input_activations")
  local is_static = input ~= nil and reader.member(input, "dynamic") == false
  if w:str("strategy") == "block" then return block_of(w, "block_structure") end
  local per_row = w:str("strategy") == "channel" and 2 or 0
  return eight_bit(w:str("type") == "float" and "fp8" or "i8", (per_row == 0 and 4 or 0) + (is_static and 4 or 0), per_row)
end

local function fp8(q)
  if q.get("weight_block_size") ~= nil then return block_of(q, "weight_block_size") end
  return eight_bit("fp8", q:str("activation_scheme") == "static" and 8 or 4, 0)
end

local function modelopt(q)
  local algo = q:str("quant_algo")
  if algo == "FP8" then return eight_bit("fp8", 8, 0) end
  if algo == "NVFP4" then return four_bit_float("nvfp4", 16, 8) end
  q:unsupported("quant_algo", ("is %s, whose memory is not known here"):format(tostring(algo)), "known: FP8, NVFP4")
end

local methods = {}

methods["fp8"] = function(q) return fp8(q), list_of(q, "ignored_layers", "modules_to_not_convert") end
methods["fbgemm_fp8"] = function(q) return eight_bit("fp8", 0, 4), list_of(q, "modules_to_not_convert") end
methods["awq"] = function(q) return awq(q), list_of(q, "modules_to_not_convert") end
methods["gptq"] = function(q) return gptq(q), list_of(q, "modules_to_not_convert") end
methods["compressed-tensors"] = function(q) return compressed(q), list_of(q, "ignore") end
methods["modelopt"] = function(q) return modelopt(q), list_of(q, "ignore", "exclude_modules") end
methods["mxfp4"] = function(q) return four_bit_float("mxfp4", 32, 0), list_of(q, "modules_to_not_convert") end

-- What these methods never touch, listed or not: they replace the linear layers of the blocks.
local keeps_head = { fp8 = true, fbgemm_fp8 = true, awq = true, gptq = true, mxfp4 = true }

--- Give a function from a matrix and its full name to its format.
---@param r tpl.config.Reader        of config.json
---@param plain string               type of what is not quantised: "bf16", "f16", "f32"
---@return fun(m: tpl.shape.Module, name: string): tpl.shape.Format
function M.read(r, plain)
  local width = plain == "f32" and 4 or 2
  local as_is = { dtype = plain, unit = 1, bytes = function(out, inn) return out * inn * width end }
  if r.get("quantization_config") == nil then return function() return as_is end end
  local q = r:inside("quantization_config", r:object("quantization_config"))
  local method = q:str("quant_method")
  if not methods[method] then
    local names = {}
    for name in pairs(methods) do names[#names + 1] = name end
    table.sort(names)
    r:unsupported("quantization_config", ("(quant_method %s) has a memory layout that is not known here"):format(tostring(method)),
      "known: " .. table.concat(names, ", "))
  end
  local format, ignore = methods[method](q)
  local ignored = pattern.any(ignore)
  return function(m, name)
    if not m.linear or ignored(name) then return as_is end
    if m.part == "head" and keeps_head[method] and q.get("lm_head") ~= true then return as_is end
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
