-- SPDX-License-Identifier: Apache-2.0
--- Writes values as json.dumps does, the tojson filter of transformers: not escaped for HTML,
--- separators ", " and ": ", with indent "," and a line break.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local text = require("tpl.jinja.text")
local repr = require("tpl.jinja.repr")
local values = require("tpl.jinja.values")
local compare = require("tpl.jinja.compare")

local M = {}

-- Nesting that json.dumps would only end by its recursion limit.
local MAX_DEPTH = 200

local short = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\b"] = "\\b",
  ["\f"] = "\\f" }

local function escape_code(c)
  local code = text.code(c)
  if code < 0x10000 then return ("\\u%04x"):format(code) end
  code = code - 0x10000
  return ("\\u%04x\\u%04x"):format(0xD800 + math.floor(code / 1024), 0xDC00 + code % 1024)
end

local function quote(s, ascii)
  s = s:gsub('[%z\1-\31"\\]', function(c) return short[c] or escape_code(c) end)
  if ascii then
    s = s:gsub("\127", "\\u007f")
    if not text.is_ascii(s) then s = s:gsub("[\192-\255][\128-\191]*", escape_code) end
  end
  return '"' .. s .. '"'
end

local function float_text(x)
  if x ~= x then return "NaN" end
  if x == math.huge then return "Infinity" end
  if x == -math.huge then return "-Infinity" end
  return repr.float(x)
end

-- Text of None, a bool or a number; nil for other values.
local function scalar(v)
  if v == values.none then return "null" end
  if type(v) == "boolean" then return v and "true" or "false" end
  if values.is_int(v) then return repr.int(v) end
  if values.is_float(v) then return float_text(v.value) end
  return nil
end

local function key_text(key)
  local s = values.text(key) or scalar(key)
  if not s then
    errors.raise("TypeError", "keys must be str, int, float, bool or None, not %s", values.kind(key))
  end
  return s
end

local Writer = {}
Writer.__index = Writer

function Writer:put(s)
  local n = self.n + 1
  self.n, self[n] = n, s
  self.size = self.size + #s
  if self.size > self.limit then state.bytes(self.size) end
end

function Writer:line_break(depth)
  if self.indent then self:put("\n" .. self.indent:rep(depth)) end
end

function Writer:sequence(v, depth)
  if #v == 0 then return self:put("[]") end
  self:put("[")
  for i = 1, #v do
    if i > 1 then self:put(self.comma) end
    self:line_break(depth)
    self:value(v[i], depth)
  end
  self:line_break(depth - 1)
  self:put("]")
end

function Writer:dict(d, depth)
  if d.n == 0 then return self:put("{}") end
  local order = {}
  for i = 1, d.n do order[i] = i end
  if self.sort_keys then order = compare.sorted(order, function(i) return d.keys[i] end) end
  self:put("{")
  for i = 1, d.n do
    if i > 1 then self:put(self.comma) end
    self:line_break(depth)
    self:put(quote(key_text(d.keys[order[i]]), self.ascii) .. self.colon)
    self:value(d.vals[order[i]], depth)
  end
  self:line_break(depth - 1)
  self:put("}")
end

function Writer:value(v, depth)
  local s = values.text(v)
  if s then return self:put(quote(s, self.ascii)) end
  s = scalar(v)
  if s then return self:put(s) end
  state.spend(1)
  depth = depth + 1
  if depth > MAX_DEPTH then
    errors.raise("RecursionError", "maximum recursion depth exceeded while encoding a JSON object")
  end
  if values.is_list(v) or values.is_tuple(v) then return self:sequence(v, depth) end
  if values.is_dict(v) then return self:dict(v, depth) end
  return errors.raise("TypeError", "Object of type %s is not JSON serializable", values.kind(v))
end

local function indent_text(indent)
  if indent == nil or indent == values.none then return nil end
  local s = values.text(indent)
  if s then return s end
  local n = compare.number(indent)
  if not n then errors.raise("TypeError", "indent must be None, an integer or a string") end
  state.bytes(n)
  return (" "):rep(n)
end

---@param opts {ascii: boolean?, indent: any, separators: any, sort_keys: boolean?}
function M.encode(v, opts)
  local w = setmetatable({ n = 0, size = 0, limit = state.current().output }, Writer)
  w.indent = indent_text(opts.indent)
  w.comma, w.colon = w.indent and "," or ", ", ": "
  local separators = opts.separators
  if separators ~= nil and separators ~= values.none then
    w.comma, w.colon = values.text(separators[1]), values.text(separators[2])
    if not w.comma or not w.colon then errors.raise("TypeError", "separators must be a pair of strings") end
  end
  w.ascii, w.sort_keys = opts.ascii, opts.sort_keys
  w:value(v, 0)
  state.bytes(w.size)
  return table.concat(w, "", 1, w.n)
end

return M
