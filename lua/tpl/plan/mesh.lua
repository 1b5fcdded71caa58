-- SPDX-License-Identifier: Apache-2.0
--- Describe how the ranks of a stage are arranged: named axes, outermost first, each with a size and a kind.
--- An alias names a set of axes. Kind "batch" says that the axis cuts between requests, never inside one.
--- A mesh is a value: nothing changes it, `factor` and `bind` give a new one.
local err = require "tpl.err"
local util = require "tpl.util"

local M = {}

---@class tpl.Mesh
---@field axes string[]                   names, outermost first
---@field size table<string, integer>
---@field kind table<string, string>      "batch" or absent
---@field alias table<string, string[]>   name -> axes, in mesh order
---@field stride table<string, integer>   ranks between neighbours on the axis
---@field n integer                       ranks

local Mesh = {}
Mesh.__index = Mesh

local function refuse(text, ...)
  err.throw { code = "layout_error", message = "mesh: " .. text:format(...), where = err.position(3) }
end

local function is_name(s) return type(s) == "string" and s:match("^[%a][%w_]*$") ~= nil end

local function add_axis(m, name, size, kind)
  if not is_name(name) then refuse("'%s' is not a name for an axis", tostring(name)) end
  if name == "pp" then refuse("a pipeline is not an axis: use pp = N, or stages") end
  if type(size) ~= "number" or size < 1 or size % 1 ~= 0 or size > 65536 then
    refuse("axis '%s' has size %s, expected a whole number from 1", name, tostring(size))
  end
  if kind ~= nil and kind ~= "batch" then refuse("axis '%s' has kind '%s', only 'batch' is known", name, tostring(kind)) end
  if m.size[name] then refuse("axis '%s' is given twice", name) end
  m.axes[#m.axes + 1], m.size[name], m.kind[name] = name, size, kind
end

local function add_alias(m, name, axes)
  if not is_name(name) or m.size[name] then refuse("'%s' cannot be an alias: it is no name or already an axis", tostring(name)) end
  if type(axes) == "string" then axes = { axes } end
  for _, a in ipairs(axes) do
    if not m.size[a] then refuse("alias '%s' names axis '%s', which the mesh does not have", name, tostring(a)) end
  end
  m.alias[name] = axes
end

-- "dp=2:batch,tp=2" -> {{"dp", 2, "batch"}, {"tp", 2}}
local function from_text(text)
  local list = {}
  for part in (text .. ","):gmatch("%s*([^,]*),") do
    local name, size, kind = part:match("^([%a][%w_]*)%s*=%s*(%d+)%s*(.-)%s*$")
    if not name or kind ~= "" and not kind:match("^:%a+$") then
      refuse("'%s' is not of the form name=size or name=size:batch", part)
    end
    list[#list + 1] = { name, tonumber(size), kind ~= "" and kind:sub(2) or nil }
  end
  return list
end

local function from_table(t)
  if t[1] ~= nil or next(t) == nil then return t end
  local keys = util.keys(t)
  if #keys > 1 then refuse("{%s} has no order: write {{\"%s\",..},{\"%s\",..}}", table.concat(keys, ","), keys[1], keys[2]) end
  return { { keys[1], t[keys[1]] } }
end

--- Make a mesh from a list of {name, size, kind?}, a text like "dp=2:batch,tp=2", {tp=2} for one axis, or a mesh.
---@param axes table|string
---@param alias table<string, string|string[]>?
---@return tpl.Mesh
function M.new(axes, alias)
  if getmetatable(axes) == Mesh and not alias then return axes end
  if type(axes) == "string" then axes = from_text(axes) end
  if type(axes) ~= "table" then refuse("expected a list of axes or a text, got %s", type(axes)) end
  local m = setmetatable({ axes = {}, size = {}, kind = {}, alias = {}, stride = {}, n = 1 }, Mesh)
  for _, a in ipairs(from_table(axes)) do
    if type(a) ~= "table" then refuse("an axis is {name, size} or {name, size, \"batch\"}") end
    add_axis(m, a[1], a[2], a[3])
  end
  for name, list in util.pairs(alias or {}) do add_alias(m, name, list) end
  for i = #m.axes, 1, -1 do
    m.stride[m.axes[i]] = m.n
    m.n = m.n * m.size[m.axes[i]]
  end
  for name, list in pairs(m.alias) do m.alias[name] = m:ordered(list) end
  return m
end

--- Say whether a value is a mesh.
function M.is(x) return getmetatable(x) == Mesh end

--- Put a list of axes into mesh order, each once.
function Mesh:ordered(list)
  local out = {}
  for _, a in ipairs(self.axes) do if util.has(list, a) then out[#out + 1] = a end end
  return out
end

--- Resolve an axis, an alias, or a list of them to axes in mesh order; nil and the unknown name if one is unknown.
---@return string[]? axes
---@return string? unknown
function Mesh:expand(what)
  local list = {}
  for _, name in ipairs(type(what) == "table" and what or { what }) do
    local axes = self.size[name] and { name } or self.alias[name]
    if not axes then return nil, tostring(name) end
    for _, a in ipairs(axes) do list[#list + 1] = a end
  end
  return self:ordered(list)
end

--- Give the 0-based coordinate of a 0-based rank on one axis.
function Mesh:coord(rank, axis) return math.floor(rank / self.stride[axis]) % self.size[axis] end

--- Give the 0-based place of a rank in the pieces cut by `axes` (outer first).
function Mesh:index(rank, axes)
  local i = 0
  for _, a in ipairs(axes) do i = i * self.size[a] + self:coord(rank, a) end
  return i
end

--- Give the number of pieces that `axes` cut.
function Mesh:pieces(axes)
  local n = 1
  for _, a in ipairs(axes) do n = n * self.size[a] end
  return n
end

--- List the groups of ranks that differ on `axes` only, members in index order, groups by their first rank.
---@return integer[][]
function Mesh:groups(axes)
  local groups, by = {}, {}
  for r = 0, self.n - 1 do
    local base = r
    for _, a in ipairs(axes) do base = base - self:coord(r, a) * self.stride[a] end
    if not by[base] then
      by[base] = {}
      groups[#groups + 1] = by[base]
    end
    by[base][self:index(r, axes) + 1] = r
  end
  return groups
end

--- Replace one axis by several whose product is its size; the old name becomes an alias of them.
---@param axis string
---@param parts table[]  {{name, size}, ..} outer first
---@return tpl.Mesh
function Mesh:factor(axis, parts)
  local list, alias, n = {}, {}, 1
  for _, p in ipairs(parts) do n = n * p[2] end
  if n ~= self.size[axis] then refuse("axis '%s' of %s cannot be cut into %d", axis, tostring(self.size[axis]), n) end
  for _, a in ipairs(self.axes) do
    for _, p in ipairs(a == axis and parts or { { a, self.size[a] } }) do list[#list + 1] = { p[1], p[2], self.kind[a] } end
  end
  for name, axes in pairs(self.alias) do
    local out = {}
    for _, a in ipairs(axes) do
      for _, p in ipairs(a == axis and parts or { { a } }) do out[#out + 1] = p[1] end
    end
    alias[name] = out
  end
  alias[axis] = util.map(parts, function(p) return p[1] end)
  return M.new(list, alias)
end

--- Give a mesh whose ranks lie on these devices, rank 0 first.
---@param devices any[]
---@return tpl.Mesh
function Mesh:bind(devices)
  if #devices ~= self.n then refuse("%d devices for the %d ranks of %s", #devices, self.n, tostring(self)) end
  local m = util.copy(self)
  m.devices = devices
  return setmetatable(m, Mesh)
end

--- Write the mesh as the text that `new` reads.
function Mesh:__tostring()
  local out = {}
  for i, a in ipairs(self.axes) do out[i] = a .. "=" .. self.size[a] .. (self.kind[a] and ":" .. self.kind[a] or "") end
  return table.concat(out, ",")
end

return M
