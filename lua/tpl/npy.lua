-- SPDX-License-Identifier: Apache-2.0
--- Write and read float32 arrays as .npy files (NumPy format 1.0: numpy/lib/format.py, "little-endian float32, C order").
local ffi = require("ffi")

local M = {}

local CHUNK_ELEMS = 2 ^ 18

--- Give the header of an array of these dims: magic, version, length, then a Python dict padded so that data starts at 64 bytes.
---@param dims integer[]
---@return string
function M.header(dims)
  local shape = {}
  for i, n in ipairs(dims) do shape[i] = string.format("%d", n) end
  local text = string.format("{'descr': '<f4', 'fortran_order': False, 'shape': (%s%s), }",
    table.concat(shape, ", "), #dims == 1 and "," or "")
  local pad = -(10 + #text + 1) % 64
  text = text .. (" "):rep(pad) .. "\n"
  return "\147NUMPY\1\0" .. string.char(#text % 256, math.floor(#text / 256)) .. text
end

local function count(dims)
  local n = 1
  for _, d in ipairs(dims) do n = n * d end
  return n
end

--- Give elements [from, from + n) as bytes; data is an FFI array or pointer of float or double (0-based) or a list (1-based).
local function bytes(data, from, n)
  local is_list = type(data) == "table"
  if not is_list and not tostring(ffi.typeof(data)):find("double", 1, true) then
    return ffi.string(ffi.cast("const float *", data) + from, n * 4)
  end
  local buffer = ffi.new("float[?]", n)
  for i = 0, n - 1 do buffer[i] = data[from + i + (is_list and 1 or 0)] end
  return ffi.string(buffer, n * 4)
end

--- Begin a file with its header; whoever makes the data appends it.
---@param path string
---@param dims integer[]
---@return true?
---@return string? message
function M.begin(path, dims)
  local file, message = io.open(path, "wb")
  if not file then return nil, message end
  local ok, written = file:write(M.header(dims))
  return file:close() and ok and true or nil, written
end

--- Write an array. Readers see all of it or nothing: it is renamed into place.
---@param path string
---@param data ffi.cdata*|number[]
---@param dims integer[]
---@return true?
---@return string? message
function M.write(path, data, dims)
  local temp = path .. ".part"
  local file, message = io.open(temp, "wb")
  if not file then return nil, message end
  local n, at = count(dims), 0
  local ok
  ok, message = file:write(M.header(dims))
  while ok and at < n do
    local some = math.min(CHUNK_ELEMS, n - at)
    ok, message = file:write(bytes(data, at, some))
    at = at + some
  end
  local closed, close_message = file:close()
  if ok and closed then ok, message = os.rename(temp, path) end
  if ok and closed then return true end
  os.remove(temp)
  return nil, message or close_message
end

--- Read a float32 array back; gives an FFI array and its dims.
---@param path string
---@return ffi.cdata*? data
---@return integer[]|string dims_or_message
function M.read(path)
  local file, message = io.open(path, "rb")
  if not file then return nil, message end
  local text = file:read("*a")
  file:close()
  if text:sub(1, 8) ~= "\147NUMPY\1\0" then return nil, path .. ": is no .npy file of version 1.0" end
  local length = text:byte(9) + 256 * text:byte(10)
  local header = text:sub(11, 10 + length)
  if not header:find("'descr': '<f4'", 1, true) or not header:find("'fortran_order': False", 1, true) then
    return nil, path .. ": holds no float32 array in C order"
  end
  local dims = {}
  for n in header:match("'shape': %(([^)]*)%)"):gmatch("%d+") do dims[#dims + 1] = tonumber(n) end
  local n = count(dims)
  if #text - 10 - length ~= 4 * n then return nil, path .. ": holds another number of bytes than its shape says" end
  local data = ffi.new("float[?]", math.max(n, 1))
  ffi.copy(data, text:sub(11 + length), 4 * n)
  return data, dims
end

return M
