-- SPDX-License-Identifier: Apache-2.0
--- Run a model definition once and keep what it said: the list of its ops over named dims, with no layout in sight.
--- Typing walks this list, as often as it likes; the model's Lua is not called again. A trace holds the whole model,
--- a stage types a part of it. Values are numbered; every record has the file:line of the call that made it.
local err = require "tpl.err"
local util = require "tpl.util"

local M = {}

---@class tpl.Trace
---@field ops table[]                   {kind, name, scope, layer, src, ins, out, dims, weight, attrs}
---@field weights table<string, table>  name -> {name, dims, n_out, kind, layer, uses}
---@field weight_list table[]           the same, in order of first use
---@field mark_dims table<string, table> short mark name -> list of the dims lists seen there
---@field mark_names string[]           full names, in order, each once
---@field sizes table<string, integer>  dim -> size (not tok, out)
---@field soft table<string, integer>
---@field sections table                embed, head, and 0-based layers: {first, last, entry} into ops; entry = value id

local function fail(m, text, ...)
  err.throw { code = "model_error", message = "model: " .. text:format(...), where = err.position(2), exit = m and 3 }
end

---@class tpl.Builder
---@field c table       the model's config
---@field config table  the same
local Builder = {}
Builder.__index = Builder

local Value = {}
Value.__index = Value
function Value.__add(a, b) return (getmetatable(a) == Value and a or b).m:add(a, b) end

local function check_value(m, x, what)
  if getmetatable(x) ~= Value then fail(m, "%s expects a value of this model, got %s", what, type(x)) end
  return x
end

-- Appends a record; its result is a new value over `dims`.
local function emit(m, op)
  local t = m.trace
  op.scope, op.layer, op.src = m.scope, m.layer, err.position(2)
  if op.src == t.caller then op.src = t.model.where end -- the model's function ended in a tail call and left no frame
  op.ins = util.map(op.ins, function(x) return x.id end)
  t.n_values = t.n_values + 1
  op.out = t.n_values
  op.short, op.index = op.name, #t.ops + 1
  op.name = m.scope .. op.name
  if op.kind ~= "mark" then -- names are unique: the second add of a block is add.2
    local n = (t.named[op.name] or 0) + 1
    t.named[op.name] = n
    if n > 1 then op.name = op.name .. "." .. n end
  end
  t.ops[#t.ops + 1] = op
  return setmetatable({ m = m, id = op.out, dims = op.dims }, Value)
end

local function add_weight(m, name, dims, n_out, kind, use)
  local t = m.trace
  for _, d in ipairs(dims) do
    if not t.sizes[d] then fail(m, "weight '%s' has dim '%s', which dims() does not list", name, d) end
  end
  local w = t.weights[name]
  if not w then
    w = { name = name, dims = dims, n_out = n_out, kind = kind, layer = name:match("^blk%.") and m.layer or -1, uses = {} }
    t.weights[name] = w
    t.weight_list[#t.weight_list + 1] = w
  elseif not util.same(w.dims, dims) or w.n_out ~= n_out then
    fail(m, "weight '%s' is used as [%s] and as [%s]", name, table.concat(w.dims, ","), table.concat(dims, ","))
  end
  w.uses[use] = true
  return name
end

local function split_names(text)
  local out = {}
  for d in text:gmatch("[^%.]+") do out[#out + 1] = d end
  return out
end

--- Look rows of a table up. ids: the token ids (default), or m.pos for their positions.
---@param name string
---@param ids table
---@param vocab string?  the looked-up dim of the table, default "vocab"
function Builder:embed(name, ids, vocab)
  vocab = vocab or "vocab"
  if ids ~= self.ids and ids ~= self.pos then fail(self, "embed expects the token ids or m.pos") end
  local w = add_weight(self, self.scope .. name, { vocab, "embd" }, 1, "embed", "embed")
  return emit(self, { kind = "embed", name = name, ins = {}, dims = { "tok", "embd" }, weight = w,
    attrs = { ids = ids == self.pos and "pos" or "tok", vocab = vocab } })
end

--- Multiply by a weight: "a.b -> c.d" contracts dims a and b of x and appends c and d.
---@param name string
---@param x table
---@param sig string
---@param opt {bias: boolean?, tied: string?}?  tied: the full name of the weight to use instead
function Builder:linear(name, x, sig, opt)
  check_value(self, x, "linear")
  opt = opt or {}
  local left, right = sig:match("^%s*(%S+)%s*%->%s*(%S+)%s*$")
  if not left then fail(self, "linear '%s': '%s' is not of the form \"a.b -> c.d\"", name, sig) end
  local con, out, dims, wd = split_names(left), split_names(right), {}, {}
  for _, d in ipairs(con) do
    if not util.has(x.dims, d) then fail(self, "linear '%s' contracts '%s', but x is [%s]", name, d, table.concat(x.dims, ",")) end
  end
  for _, d in ipairs(x.dims) do if not util.has(con, d) then dims[#dims + 1] = d end end
  for _, d in ipairs(out) do
    if util.has(dims, d) then fail(self, "linear '%s' would give x a second dim '%s'", name, d) end
    dims[#dims + 1], wd[#wd + 1] = d, d
  end
  for _, d in ipairs(con) do wd[#wd + 1] = d end
  local w = add_weight(self, opt.tied or self.scope .. name, wd, #out, "matrix", "linear")
  local y = emit(self, { kind = "linear", name = name, ins = { x }, dims = dims, weight = w, attrs = { con = con, out = out } })
  if not opt.bias then return y end
  local b = add_weight(self, self.scope .. name .. ".bias", out, #out, "vector", "bias")
  return emit(self, { kind = "bias", name = name .. ".bias", ins = { y }, dims = dims, weight = b, attrs = { out = out } })
end

--- Normalise (RMS) over dims `over`, default embd, and scale by the weight `name`.
function Builder:norm(name, x, over)
  check_value(self, x, "norm")
  over = over or { "embd" }
  for _, d in ipairs(over) do
    if not util.has(x.dims, d) then fail(self, "norm '%s' is over '%s', but x is [%s]", name, d, table.concat(x.dims, ",")) end
  end
  local w = add_weight(self, self.scope .. name, over, #over, "vector", "norm")
  return emit(self, { kind = "norm", name = name, ins = { x }, dims = x.dims, weight = w, attrs = { over = over, eps = self.c.eps } })
end

--- Turn pairs inside each head by the position, by the table `name` of the config (default "rope").
function Builder:rope(x, name)
  check_value(self, x, "rope")
  return emit(self, { kind = "rope", name = "rope", ins = { x }, dims = x.dims, attrs = { table = name or "rope" } })
end

--- Attend: q [tok,kvh,grp,hd] over the keys and values of its own sequence, causal.
---@param opt {scale: number?, window: integer?}?
function Builder:attend(name, q, k, v, opt)
  for _, x in ipairs { q, k, v } do check_value(self, x, "attend") end
  if util.has(k.dims, "grp") or util.has(v.dims, "grp") then fail(self, "attend: keys and values have no 'grp'") end
  opt = opt or {}
  local scale = opt.scale or self.c.attn_scale or 1 / math.sqrt(self.trace.sizes.hd)
  return emit(self, { kind = "attend", name = name, ins = { q, k, v }, dims = q.dims, attrs = { scale = scale, window = opt.window or 0 } })
end

local function both(m, kind, name, x, y)
  check_value(m, x, kind)
  check_value(m, y, kind)
  if not util.same(x.dims, y.dims) then
    fail(m, "%s of [%s] and [%s]", kind, table.concat(x.dims, ","), table.concat(y.dims, ","))
  end
  return emit(m, { kind = kind, name = name, ins = { x, y }, dims = x.dims, attrs = {} })
end

--- Multiply silu(x) by y.
function Builder:silu_mul(x, y) return both(self, "silu_mul", "silu_mul", x, y) end

--- Add; the same as x + y.
function Builder:add(x, y) return both(self, "add", "add", x, y) end

--- Apply an elementwise function of one operand that is not linear ("gelu", "softcap").
function Builder:act(name, x)
  check_value(self, x, "act")
  return emit(self, { kind = "act", name = name, ins = { x }, dims = x.dims, attrs = {} })
end

--- Keep the rows whose logits are wanted: tok becomes out.
function Builder:rows(x)
  check_value(self, x, "rows")
  if x.dims[1] ~= "tok" then fail(self, "rows expects tok first, x is [%s]", table.concat(x.dims, ",")) end
  local dims = util.copy(x.dims)
  dims[1] = "out"
  return emit(self, { kind = "rows", name = "rows", ins = { x }, dims = dims, attrs = {} })
end

--- Name a point of the model. A layout may say what x must be here, and only here may communication be inserted.
function Builder:mark(name, x)
  check_value(self, x, "mark")
  local t = self.trace
  local y = emit(self, { kind = "mark", name = name, ins = { x }, dims = x.dims, attrs = {} })
  local full = self.scope .. name
  if not t.mark_seen[full] then
    t.mark_seen[full] = true
    t.mark_names[#t.mark_names + 1] = full
  end
  t.mark_dims[name] = t.mark_dims[name] or {}
  for _, dims in ipairs(t.mark_dims[name]) do if util.same(dims, x.dims) then return y end end
  table.insert(t.mark_dims[name], x.dims)
  return y
end

function Builder:moe() fail(self, "moe: not in this version") end

local function read_dims(model, config)
  local sizes, soft = {}, {}
  for d, n in util.pairs(model.dims(config)) do
    local size, unit = n, nil
    if type(n) == "table" then size, unit = n[1], n.soft end
    if type(d) ~= "string" or d == "tok" or d == "out" or d == "req" then fail(nil, "dims: '%s' is not a name for a dim", tostring(d)) end
    if type(size) ~= "number" or size < 1 or size % 1 ~= 0 then
      fail(nil, "dims: '%s' is %s, expected a whole number from 1", d, tostring(size))
    end
    sizes[d], soft[d] = size, unit
  end
  return sizes, soft
end

local function section(m, scope, layer, fn)
  m.scope, m.layer = scope, layer
  local s = { first = #m.trace.ops + 1, layer = layer }
  local out = fn()
  s.last = #m.trace.ops
  return s, out
end

--- Run a model definition for a config.
---@param model table   as tpl.model makes it
---@param config table  normalised config; n_layer blocks are traced
---@return tpl.Trace
function M.run(model, config)
  local sizes, soft = read_dims(model, config)
  local t = {
    ops = {}, named = {}, n_values = 0, weights = {}, weight_list = {}, mark_dims = {}, mark_names = {}, mark_seen = {}, globs = {},
    sizes = sizes, soft = soft, sections = { layers = {} }, n_layer = config.n_layer, config = config, model = model,
    caller = err.position(2),
  }
  local m = setmetatable({ trace = t, c = config, config = config, ids = {}, pos = {}, scope = "", layer = -1 }, Builder)
  local x
  t.sections.embed, x = section(m, "", -1, function() return m:mark("embed.out", model.embed(m, m.ids)) end)
  for i = 0, config.n_layer - 1 do
    local entry = check_value(m, x, "block").id
    t.sections.layers[i], x = section(m, ("blk.%d."):format(i), i, function() return model.block(m, x, i) end)
    t.sections.layers[i].entry = entry
  end
  local last = check_value(m, x, "head")
  t.sections.head, x = section(m, "", -1, function()
    local logits = check_value(m, model.head(m, last), "sample")
    return emit(m, { kind = "sample", name = "sample", ins = { logits }, dims = { logits.dims[1] }, attrs = {} })
  end)
  t.sections.head.entry, t.result = last.id, x.id
  return t
end

return M
