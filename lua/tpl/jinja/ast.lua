-- SPDX-License-Identifier: Apache-2.0
--- Walks syntax trees: the children of each node type, in the order in which Jinja visits them.
local M = {}

--- Make a node.
function M.node(t, line, fields)
  fields.t, fields.line = t, line
  return fields
end

local function each(list, fn)
  for i = 1, #list do fn(list[i]) end
end

local function call_parts(call, fn)
  each(call.args, fn)
  for i = 1, #call.kwargs do fn(call.kwargs[i].value) end
  if call.star then fn(call.star) end
  if call.star_star then fn(call.star_star) end
end

local function params(list, fn)
  for i = 1, #list do fn({ t = "Name", name = list[i].name, ctx = "param" }) end
  for i = 1, #list do
    if list[i].default then fn(list[i].default) end
  end
end

local function nothing() end

local function binary(n, fn)
  fn(n.left)
  fn(n.right)
end

local function value(n, fn)
  fn(n.value)
end

local function items(n, fn)
  each(n.items, fn)
end

local function body(n, fn)
  each(n.body, fn)
end

local children = {
  Data = nothing, Const = nothing, Name = nothing, NSRef = nothing, Jump = nothing,
  Print = value, Neg = value, Pos = value, Not = value, Load = value,
  Tuple = items, List = items, Concat = items,
  Add = binary, Sub = binary, Mul = binary, Div = binary, Floordiv = binary, Mod = binary, Pow = binary,
  And = binary, Or = binary,
  Group = body, Block = body, Generation = body,
}

function children.Dict(n, fn)
  for i = 1, #n.keys do
    fn(n.keys[i])
    fn(n.vals[i])
  end
end

function children.Getattr(n, fn) fn(n.target) end

function children.Getitem(n, fn)
  fn(n.target)
  fn(n.key)
end

function children.Slice(n, fn)
  if n.first then fn(n.first) end
  if n.last then fn(n.last) end
  if n.step then fn(n.step) end
end

function children.Call(n, fn)
  fn(n.callee)
  call_parts(n.call, fn)
end

function children.Filter(n, fn)
  if n.target then fn(n.target) end
  call_parts(n.call, fn)
end
children.Test = children.Filter

function children.Compare(n, fn)
  fn(n.first)
  for i = 1, #n.ops do fn(n.ops[i].value) end
end

function children.Cond(n, fn)
  fn(n.test)
  fn(n.yes)
  if n.no then fn(n.no) end
end

function children.If(n, fn)
  for _, branch in ipairs(n.branches) do
    fn(branch.test)
    each(branch.body, fn)
  end
  if n.otherwise then each(n.otherwise, fn) end
end

function children.For(n, fn)
  fn(n.target)
  fn(n.iter)
  each(n.body, fn)
  if n.otherwise then each(n.otherwise, fn) end
  if n.test then fn(n.test) end
end

function children.Set(n, fn)
  fn(n.target)
  fn(n.value)
end

function children.SetBlock(n, fn)
  fn(n.target)
  if n.filter then fn(n.filter) end
  each(n.body, fn)
end

function children.Macro(n, fn)
  params(n.params, fn)
  each(n.body, fn)
end

function children.CallBlock(n, fn)
  fn(n.call)
  params(n.params, fn)
  each(n.body, fn)
end

function children.FilterBlock(n, fn)
  each(n.body, fn)
  fn(n.filter)
end

function children.With(n, fn)
  each(n.targets, fn)
  each(n.values, fn)
  each(n.body, fn)
end

function children.Autoescape(n, fn)
  fn(n.value)
  each(n.body, fn)
end

--- Call fn for each direct child.
function M.each_child(n, fn)
  children[n.t](n, fn)
end

--- Which of `names` the nodes read before they set them, at any depth (blocks excepted).
---@param nodes table[]
---@param names string[]
---@return table<string, boolean>
function M.undeclared(nodes, names)
  local watched, found = {}, {}
  for _, name in ipairs(names) do watched[name] = true end
  local function visit(n)
    if n.t == "Name" then
      if not watched[n.name] then return end
      if n.ctx == "load" then
        found[n.name] = true
      else
        watched[n.name] = nil
      end
    elseif n.t ~= "Block" then
      M.each_child(n, visit)
    end
  end
  each(nodes, visit)
  return found
end

return M
