-- SPDX-License-Identifier: Apache-2.0
--- Write values as YAML that reads back as the same values, here (YAML 1.2) and in the parsers of YAML 1.1 that sites run.
-- A text is written plain only where no parser could take it for something else; quoting is never wrong.
local json = require("tpl.json")
local util = require("tpl.util")

local M = {}

local MAX_DEPTH = 64 -- what tpl.yaml.decode reads; also what ends a cycle
local MAX_KEY = 200  -- longer keys are written with '?': YAML reads "key:" only within 1024 characters
local FLOW_WIDTH = 160

-- Words of YAML 1.1 and 1.2 that are not texts, lower case.
local words = {}
for word in ("null true false yes no on off y n nan inf"):gmatch("%a+") do words[word] = true end

-- Printable, and no line break in any version of YAML: what may stand in a text as it is. Takes UTF-8 code points.
local function is_printable(c)
  return c >= 0x20 and c < 0x7f or c >= 0xa0 and c ~= 0x2028 and c ~= 0x2029 and c ~= 0xfeff and c < 0xfffe or c > 0xffff
end

--- Iterate over the code points of a text: position, code point, bytes. Raises where it is not UTF-8.
local function codes(s)
  local at = 1
  return function()
    local b = s:byte(at)
    if not b then return nil end
    local n = b < 0x80 and 1 or b >= 0xc2 and b < 0xe0 and 2 or b >= 0xe0 and b < 0xf0 and 3 or b >= 0xf0 and b < 0xf5 and 4
    local c = n and b % ({ 0x80, 0x20, 0x10, 0x08 })[n]
    for i = 1, (n or 1) - 1 do
      local t = s:byte(at + i) or 0
      if t < 0x80 or t > 0xbf then n = nil break end
      c = c * 64 + t % 64
    end
    if not n or c > 0x10ffff or (c >= 0xd800 and c < 0xe000) or (n == 3 and c < 0x800) or (n == 4 and c < 0x10000) then
      error(("yaml: a text is not UTF-8 at byte %d"):format(at), 0)
    end
    local from = at
    at = at + n
    return from, c, s:sub(from, at - 1)
  end
end

local escapes = { [0] = "\\0", [7] = "\\a", [8] = "\\b", [9] = "\\t", [10] = "\\n", [11] = "\\v", [12] = "\\f", [13] = "\\r", [27] = "\\e",
  [34] = '\\"', [92] = "\\\\" }

local function quoted(s)
  local out = { '"' }
  for _, c, bytes in codes(s) do
    if escapes[c] then out[#out + 1] = escapes[c]
    elseif is_printable(c) then out[#out + 1] = bytes
    else out[#out + 1] = (c < 0x100 and "\\x%02x" or "\\u%04x"):format(c)
    end
  end
  out[#out + 1] = '"'
  return table.concat(out)
end

--- Say whether a text may stand unquoted, also inside [ ] and { }: a letter first, then harmless characters.
local function is_plain(s)
  if not s:find("^[%a_/][%w_./+@%%%-: ]*$") or s:find(": ") or s:find("[: ]$") or s:find("  ") then return false end
  return not words[s:lower()]
end

local function text_of(s)
  if #s <= FLOW_WIDTH and is_plain(s) then return s end
  return quoted(s)
end

local function number_text(x)
  if x ~= x or x == math.huge or x == -math.huge then error("yaml: " .. tostring(x) .. " is no number that is written", 0) end
  local s = json.encode(x)
  if s:find("^%-?%d+$") then
    return math.abs(x) >= 2 ^ 53 and s .. ".0" or s -- a whole number of 2^53 or more would be refused when read
  end
  return s:find(".", 1, true) and s or (s:gsub("e", ".0e")) -- YAML 1.1 wants a point in every real number
end

local function kind_of(v)
  local mt = getmetatable(v)
  local name = type(mt) == "table" and rawget(mt, "__name")
  if name == "json.array" or name == "json.object" or name == "json.real" then return name, mt end
  local n = 0
  for _ in pairs(v) do n = n + 1 end
  return n > 0 and n == #v and "json.array" or "json.plain"
end

--- List the keys in the order in which they are written: an object's own, then those added later, sorted.
local function keys_of(v, kind, mt, sort)
  local out, seen = {}, {}
  for _, k in ipairs(kind == "json.object" and not sort and mt.keys or {}) do
    if v[k] ~= nil and not seen[k] then out[#out + 1], seen[k] = k, true end
  end
  for _, k in ipairs(util.keys(v)) do
    if type(k) ~= "string" then error("yaml: a key is a " .. type(k) .. ", expected a string", 0) end
    if not seen[k] then out[#out + 1] = k end
  end
  return out
end

local function key_text(k)
  if k:find("%z") then error("yaml: a key with a NUL byte, which is not read back", 0) end
  return text_of(k)
end

local function scalar(v)
  local t = type(v)
  if v == nil or v == json.null then return "null" end
  if t == "boolean" then return tostring(v) end
  if t == "number" then return number_text(v) end
  if t == "string" then return text_of(v) end
  error("yaml: cannot write a " .. t, 0)
end

local function is_leaf(v)
  if type(v) ~= "table" then return true end
  local kind = kind_of(v)
  return kind == "json.real" or next(v) == nil
end

local function leaf(v)
  if type(v) ~= "table" then return scalar(v) end
  local kind = kind_of(v)
  if kind == "json.real" then return number_text(v.value) end
  return kind == "json.array" and "[]" or "{}"
end

--- Write a value on one line, or give nil where that is not readable.
local function one_line(v, opts, levels)
  if is_leaf(v) then return leaf(v) end
  if levels == 0 then return nil end
  local kind, mt = kind_of(v)
  local out = {}
  if kind == "json.array" then
    for i = 1, #v do
      out[i] = one_line(v[i], opts, levels - 1)
      if not out[i] then return nil end
    end
    out = "[" .. table.concat(out, ", ") .. "]"
  else
    for i, k in ipairs(keys_of(v, kind, mt, opts.sort_keys)) do
      local inner = one_line(v[k], opts, levels - 1)
      if not inner then return nil end
      out[i] = key_text(k) .. ": " .. inner
    end
    out = "{" .. table.concat(out, ", ") .. "}"
  end
  return #out <= FLOW_WIDTH and out or nil
end

--- Give the lines of a text that may be written as a block ("|"), else nil: some lines, none of them odd.
local function block_lines(s)
  if not s:find("\n", 1, true) or s:find("^[ \n\t]") or s:find("\n\n$") or s:find("%s\n") and s:find("[ \t]\n") or s:find("[ \t]$") then
    return nil
  end
  for _, c in codes(s) do
    if c ~= 10 and not is_printable(c) then return nil end
  end
  local out = {}
  for line in (s:gsub("\n$", "") .. "\n"):gmatch("(.-)\n") do out[#out + 1] = line end
  return out, s:find("\n$") and "|" or "|-"
end

local write

--- Write what follows "key:" or "-"; `indent` is the indentation of that line's contents.
local function write_after(out, v, indent, depth, opts)
  if type(v) == "string" then
    local lines, mark = block_lines(v)
    if lines then
      out[#out + 1] = " " .. mark .. "\n"
      for _, line in ipairs(lines) do out[#out + 1] = (line == "" and "" or indent .. line) .. "\n" end
      return
    end
  end
  if is_leaf(v) then
    out[#out + 1] = " " .. leaf(v) .. "\n"
    return
  end
  local kind = kind_of(v)
  local line = (kind == "json.array" or opts.flow) and one_line(v, opts, 1)
  if line then
    out[#out + 1] = " " .. line .. "\n"
    return
  end
  out[#out + 1] = "\n"
  write(out, v, indent, depth, opts)
end

local function write_list(out, v, indent, depth, opts)
  for i = 1, #v do
    local item = v[i]
    local line = opts.flow and type(item) == "table" and one_line(item, opts, 2)
    local kind = not line and not is_leaf(item) and kind_of(item)
    if line then
      out[#out + 1] = indent .. "- " .. line .. "\n"
    elseif kind and kind ~= "json.array" then -- the first key stands on the line of the dash
      local at = #out + 1
      write(out, item, indent .. "  ", depth + 1, opts)
      out[at] = indent .. "- " .. out[at]:sub(#indent + 3)
    else
      out[#out + 1] = indent .. "-"
      write_after(out, item, indent .. "  ", depth + 1, opts)
    end
  end
end

local function write_map(out, v, kind, mt, indent, depth, opts)
  for _, k in ipairs(keys_of(v, kind, mt, opts.sort_keys)) do
    local key = key_text(k)
    out[#out + 1] = #key > MAX_KEY and ("%s? %s\n%s:"):format(indent, key, indent) or indent .. key .. ":"
    write_after(out, v[k], indent .. "  ", depth + 1, opts)
  end
end

function write(out, v, indent, depth, opts)
  if depth > MAX_DEPTH then error(("yaml: nested more than %d levels deep, or a cycle"):format(MAX_DEPTH), 0) end
  local kind, mt = kind_of(v)
  if kind == "json.array" then write_list(out, v, indent, depth, opts) else write_map(out, v, kind, mt, indent, depth, opts) end
end

--- Write a value; see tpl.yaml.encode.
function M.encode(value, options)
  local opts = options or {}
  for k in pairs(opts) do
    if k ~= "sort_keys" and k ~= "flow" then error("unknown option '" .. tostring(k) .. "'", 2) end
  end
  if type(value) == "string" then return quoted(value) .. "\n" end
  if is_leaf(value) then return leaf(value) .. "\n" end
  local out = {}
  write(out, value, "", 1, opts)
  return table.concat(out)
end

return M
