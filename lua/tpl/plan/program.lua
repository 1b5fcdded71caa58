-- SPDX-License-Identifier: Apache-2.0
--- Write the static program of a stage as text, in the format of core/exec/program.h. The text is what is
--- hashed, printed by `plan --text`, handed to C and compared in reviews; equal plans give equal bytes.
local M = {}

local VERSION = 1

local Writer = {}
Writer.__index = Writer

-- Gives equal things one id, in order of first use.
local function intern(self, kind, key, make)
  local set = self[kind]
  if not set.by[key] then
    set.by[key] = set.n
    set.n = set.n + 1
    set.lines[#set.lines + 1] = make(set.by[key])
  end
  return set.by[key]
end

local function set() return { by = {}, n = 0, lines = {} } end

local function whole(x) return ("%d"):format(x) end

-- A number, or a rank constant where ranks differ.
function Writer:number(x)
  if type(x) ~= "table" then return whole(x) end
  local is_equal = true
  for r = 2, self.n do is_equal = is_equal and x[r] == x[1] end
  if is_equal then return whole(x[1]) end
  local words = {}
  for r = 1, self.n do words[r] = whole(x[r]) end
  local key = table.concat(words, " ")
  return "$" .. intern(self, "consts", key, function(id) return ("k %d %s"):format(id, key) end)
end

local function range_text(ranges)
  local words = {}
  for i, g in ipairs(ranges) do words[i] = ("%d:%d"):format(g[1], g[2]) end
  return #words > 0 and table.concat(words, ",") or "-"
end

function Writer:index(per_rank)
  if self.indexed[per_rank] then return self.indexed[per_rank] end -- layers share their lists
  local ids = {}
  for r = 1, self.n do
    local text = range_text(per_rank[r])
    ids[r] = intern(self, "indices", text, function(id) return ("index %d %s"):format(id, text) end)
  end
  self.indexed[per_rank] = self:number(ids)
  return self.indexed[per_rank]
end

local function float(x)
  local s = ("%.17g"):format(x)
  if not s:find("[%.en]") then s = s .. ".0" end -- so that it is read as a float
  return s
end

function Writer:table(name)
  return intern(self, "tables", name, function(id)
    local words = {}
    for i, f in ipairs(self.config[name].freqs) do words[i] = ("%.17g"):format(f) end
    return ("table %d %s %d %s"):format(id, name, #words, table.concat(words, " "))
  end)
end

function Writer:group(axes)
  local name = table.concat(axes, "+")
  return intern(self, "groups", name, function(id)
    local groups = {}
    for i, g in ipairs(self.mesh:groups(axes)) do
      local ranks = {}
      for k, r in ipairs(g) do ranks[k] = whole(self.first_rank + r) end
      groups[i] = table.concat(ranks, ",")
    end
    return ("group %d %s %s"):format(id, name, table.concat(groups, ";"))
  end)
end

function Writer:value(v)
  return intern(self, "values", v, function(id)
    return ("value %d %s %s %s/%d %s @%d"):format(id, v.name, v.act, v.sym, v.div, self:number(v.cols),
      self.memory.offset[v])
  end)
end

function Writer:weight(w)
  return intern(self, "weights", w, function(id)
    return ("weight %d %s %s %s %s %d %d %s %s"):format(id, w.name, w.kind, w.tensor, w.dtype, w.rows, w.cols,
      self:index(w.row_index),
      self:index(w.col_index))
  end)
end

function Writer:state(s)
  return intern(self, "states", s, function(id)
    return ("state %d %s %d %s %d"):format(id, s.name, s.layer, self:number(s.kvh), s.hd)
  end)
end

function Writer:immediate(x)
  if x.f then return float(x.f) end
  if x.table then return whole(self:table(x.table)) end
  if x.index then return self:index(x.index) end
  return self:number(x.i)
end

-- folder/file:line, so that the hash does not depend on where tpl is installed.
local function short_path(src)
  local short = (src:match("[^/]+/[^/]+$") or src):gsub("%s", "_")
  return short
end

local function ids(self, what, list)
  local out = {}
  for i, x in ipairs(list) do out[i] = whole(self[what](self, x)) end
  return table.concat(out, ",")
end

function Writer:op(op)
  local flags = (op.barrier and "b" or "") .. (op.root and "r" or "")
  local words = { "op", op.name, op.kind, whole(op.layer), op.mark, flags ~= "" and flags or "-" }
  local function add(key, text) words[#words + 1] = key .. "=" .. text end
  if #op.outs > 0 then add("out", ids(self, "value", op.outs)) end
  if #op.ins > 0 then add("in", ids(self, "value", op.ins)) end
  if #op.ws > 0 then add("w", ids(self, "weight", op.ws)) end
  if op.state then add("state", whole(self:state(op.state))) end
  if op.axes then
    local g = self:group(op.axes)
    self.cseq[g] = (self.cseq[g] or -1) + 1
    op.cseq = self.cseq[g]
    add("group", whole(g))
    add("cseq", whole(op.cseq))
  end
  if #op.imm > 0 then
    local list = {}
    for i, x in ipairs(op.imm) do list[i] = self:immediate(x) end
    add("imm", table.concat(list, ","))
  end
  if op.src then add("src", short_path(op.src)) end
  return table.concat(words, " ")
end

---@class tpl.ProgramSpec
---@field stage integer
---@field first_rank integer    global number of the stage's first rank
---@field caps {tok: integer, seq: integer, out: integer, vocab: integer}
---@field memory tpl.MemoryPlan
---@field kinds string          "decode,mixed"

--- Write a program.
---@param lowered tpl.Lowered
---@param spec tpl.ProgramSpec
---@return string
function M.text(lowered, spec)
  local self = setmetatable({ mesh = lowered.mesh, n = lowered.mesh.n, config = lowered.config,
    memory = spec.memory, first_rank = spec.first_rank,
    indexed = {}, consts = set(), indices = set(), tables = set(), groups = set(), values = set(), weights = set(),
      states = set(), cseq = {} }, Writer)
  local ops, out = {}, {}
  for i, op in ipairs(lowered.ops) do ops[i] = self:op(op) end
  local c = spec.caps
  out[1] = ("tpl-program %d\nstage %d %s\nranks %d %d"):format(VERSION, spec.stage, spec.kinds, spec.first_rank,
    self.n)
  out[2] = ("caps tok %d seq %d out %d vocab %d\narena %d"):format(c.tok, c.seq, c.out, c.vocab, spec.memory.arena)
  for _, kind in ipairs { "tables", "indices", "consts", "groups", "values", "weights", "states" } do
    for _, line in ipairs(self[kind].lines) do out[#out + 1] = line end
  end
  for _, line in ipairs(ops) do out[#out + 1] = line end
  return table.concat(out, "\n") .. "\n"
end

return M
