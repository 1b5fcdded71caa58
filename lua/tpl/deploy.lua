-- SPDX-License-Identifier: Apache-2.0
--- Read deploy.lua: tpl.args declares what the command line may set, tpl.deploy checks the description and fills in defaults.
-- Nothing is touched here: no device, no file but the script itself. The fields are those of interface.md section 1.
local err = require("tpl.err")
local find = require("tpl.find")
local mesh = require("tpl.plan.mesh")
local schema = require("tpl.schema")
local script = require("tpl.script")
local suggest = require("tpl.suggest")
local util = require("tpl.util")

local M = {}

---@class tpl.Deploy
---@field model string
---@field place string|function
---@field mesh? tpl.Mesh               nil: the placement policy decides
---@field pp integer
---@field layout string|table
---@field stages? table[]|function     {layers = {first, last}|"all", mesh =, layout =, devices =}
---@field shares? table<string, number[]>
---@field threads? integer
---@field kv {tokens?: integer, page: integer, dtype: "auto"|"f32"|"f16"}
---@field step {tokens: integer, chunk?: integer}
---@field act "auto"|"f32"|"bf16"
---@field want {context?: integer, concurrency: integer, goal: string}
---@field require {link?: string, same_numa?: boolean, same_gpu?: boolean, kv_tokens?: number, itl_ms?: number}
---@field devices {only?: string[], exclude?: string[], usable?: number}   usable: part of a GPU's memory that may be filled (0.90)
---@field replicas? integer
---@field serve? table
---@field origin {file?: string, dir?: string, where?: string, args: table<string, any>}   where it came from; where: "file:line"
---@field given table                  what was written, before defaults

local Deploy = { __name = "tpl.deploy" }

-- -- The fields ------------------------------------------------------------------------------------------------------

local function mesh_rule(v)
  if type(v) ~= "string" and type(v) ~= "table" then
    return nil, string.format("is a %s, a text like \"dp=2,tp=2\" or a list of axes is needed", type(v))
  end
  local m, e = err.try(mesh.new, v)
  if m then return m end
  return nil, "is refused: " .. e.message:gsub("^mesh: ", "")
end

local function layers_rule(v)
  if v == "all" then return v end
  local first, last = type(v) == "table" and v[1], type(v) == "table" and v[2]
  local is_ok = type(first) == "number" and type(last) == "number" and first >= 0 and last >= first
    and first == math.floor(first) and last == math.floor(last) and v[3] == nil
  if is_ok then return { first, last } end
  return nil, "must be {first, last} (from 0, both included) or \"all\""
end

local layout_rule = schema.any(schema.type("table"), schema.text())
local texts = schema.list(schema.text())
local count = schema.int(1, 2 ^ 31)

local stages_rule = schema.list(schema.fields {
  layers = layers_rule, mesh = mesh_rule, layout = layout_rule, devices = texts,
  shares = schema.map(schema.list(schema.num(1e-9, 1e9), 1)),
}, 1)

local function kv_rule(v)
  local kv, message, field, hint = schema.fields({
    tokens = schema.int(1, 2 ^ 40), page = schema.int(1, 4096), dtype = schema.oneof("auto", "f32", "f16"),
  }, { page = 16, dtype = "auto" })(v)
  return kv, message, field, hint
end

local function step_rule(v)
  local step, message, field, hint = schema.fields({
    tokens = schema.int(1, 65536), chunk = schema.int(1, 65536),
  }, { tokens = 512 })(v)
  if step and step.chunk and step.chunk > step.tokens then
    return nil, string.format("is %d, more than the %d tokens of a step", step.chunk, step.tokens), "chunk"
  end
  return step, message, field, hint
end

local serve_rule = schema.fields({
  host = schema.text(), port = schema.int(0, 65535), socket = schema.text(), key_file = schema.text(),
  limits = schema.map(schema.type("number")), queue = schema.int(0, 1e6), drain_s = schema.num(0, 86400),
  metrics = schema.type("boolean"), route = schema.text(), policies = schema.map(schema.text()),
}, { host = "127.0.0.1", port = 8000, limits = {}, queue = 256, drain_s = 25, metrics = true })

local require_fields = { link = schema.text(), same_numa = schema.type("boolean"), same_gpu = schema.type("boolean"),
  kv_tokens = schema.num(1, 2 ^ 50), itl_ms = schema.num(1e-6, 1e9) }

-- What is not known here is kept: planning refuses it (exit 4), so that no requirement is passed over.
local function require_rule(v)
  if type(v) ~= "table" then return nil, "must be a table, such as { link = \"nvlink\" }" end
  local own, other = {}, {}
  for key, value in pairs(v) do
    if require_fields[key] then own[key] = value else other[tostring(key)] = value end
  end
  local out, message, field, hint = schema.fields(require_fields)(own)
  if not out then return nil, message, field, hint end
  for key, value in pairs(other) do out[key] = value end
  return out
end

local deploy_rule = schema.fields({
  model = schema.text(),
  place = schema.any(schema.type("function"), schema.text()),
  mesh = mesh_rule,
  pp = schema.int(1, 1024),
  layout = layout_rule,
  stages = schema.any(schema.type("function"), stages_rule),
  shares = schema.map(schema.list(schema.num(1e-9, 1e9), 1)),
  threads = schema.int(1, 4096),
  kv = kv_rule,
  step = step_rule,
  act = schema.oneof("auto", "f32", "bf16"),
  want = schema.fields({ context = count, concurrency = schema.int(1, 1e6), goal = schema.oneof("throughput", "latency") },
    { concurrency = 16, goal = "throughput" }),
  require = require_rule,
  devices = schema.fields { only = texts, exclude = texts, usable = schema.num(0.05, 1) },
  replicas = schema.int(1, 65536),
  serve = serve_rule,
}, { place = "auto", pp = 1, layout = "megatron", act = "auto" })

--- Check a list of stages, as `stages` holds it or a function of deploy.lua returned it.
---@return table[]? stages
---@return string? message
---@return string? field
function M.stages(list)
  return stages_rule(list)
end

--- Check everything and fill in defaults; nil, message, field, hint when something is wrong.
local function build(given)
  local d, message, field, hint = deploy_rule(given)
  if not d then return nil, message, field, hint end
  if d.model == nil then return nil, "is missing", "model" end
  d.kv = d.kv or kv_rule {}
  d.step = d.step or step_rule {}
  d.want = d.want or { concurrency = 16, goal = "throughput" }
  d.require, d.devices = d.require or {}, d.devices or {}
  d.given = given
  return d
end

-- -- tpl.args and tpl.deploy -----------------------------------------------------------------------------------------

-- What is being loaded: the words of the command line, and the defaults that the script declared. nil between loads.
local loading

local booleans = { ["true"] = true, ["1"] = true, yes = true, on = true, ["false"] = false, ["0"] = false, no = false, off = false }

--- Convert the text of a word to the type of a default.
local function convert(text, like)
  local kind = type(like)
  if kind == "number" then
    local n = tonumber(text)
    if n and n == n and n < math.huge and n > -math.huge then return n end
    return nil, "a number"
  elseif kind == "boolean" then
    local b = booleans[text:lower()]
    if b ~= nil then return b end
    return nil, "true or false"
  elseif kind == "table" then
    local list = {}
    for item in text:gmatch("[^,]+") do list[#list + 1] = tonumber(item) or item end
    if #list > 0 then return list end
    return nil, "a list with commas"
  end
  if text ~= "" then return text end
  return nil, "a text"
end

local function malformed(word, wanted)
  err.throw { code = "usage", where = word.text, message = string.format("malformed value for '%s', %s is needed", word.key, wanted) }
end

--- Declare what the command line may set, with defaults; gives the values.
---@param defaults table<string, any>
---@return table<string, any>
function M.args(defaults)
  local where = err.position(2)
  if type(defaults) ~= "table" then
    err.throw { code = "script", where = where, message = "tpl.args needs a table of names and defaults" }
  end
  local values = util.copy(defaults)
  for _, name in ipairs(util.keys(defaults)) do
    if type(name) ~= "string" or type(defaults[name]) == "function" then
      err.throw { code = "script", where = where, field = tostring(name), message = "tpl.args needs name = default, with a number, text, boolean or list" }
    end
  end
  if not loading then return values end
  for name, value in pairs(defaults) do loading.declared[name] = value end
  for _, word in ipairs(loading.words) do
    if defaults[word.key] ~= nil then
      local value, wanted = convert(word.value, defaults[word.key])
      if value == nil then malformed(word, wanted) end
      values[word.key] = value
    end
  end
  loading.values = loading.values or {}
  for name, value in pairs(values) do loading.values[name] = value end
  return values
end

--- Check the description of a deployment and fill in defaults. Throws a script error that names the field.
---@param given table
---@return tpl.Deploy
function M.new(given)
  local where = err.position(2)
  if type(given) ~= "table" then
    err.throw { code = "script", where = where, message = "tpl.deploy needs a table" }
  end
  local d, message, field, hint = build(given)
  if not d then
    err.throw { code = "script", where = where, field = field, message = "tpl.deploy: " .. field .. " " .. message, hint = hint }
  end
  d.origin = { args = {}, where = where }
  return setmetatable(d, Deploy)
end

--- Say whether a value came from tpl.deploy.
function M.is(x) return getmetatable(x) == Deploy end

-- -- Words of the command line ---------------------------------------------------------------------------------------

---@class tpl.Word
---@field key string
---@field value string
---@field text string    as typed

--- Read "key=value" words; also takes a table {key = value} from Lua.
---@param list? (string|tpl.Word)[]|table<string, any>
---@return tpl.Word[]
function M.words(list)
  local out = {}
  for key, value in util.pairs(list or {}) do
    local word = value
    if type(key) == "string" then
      word = { key = key, value = tostring(value), text = key .. "=" .. tostring(value) }
    elseif type(value) == "string" then
      local k, v = value:match("^([%a_][%w_.]*)=(.*)$")
      if not k then
        err.throw { code = "usage", where = value, message = "malformed argument, key=value is needed",
          hint = "a prompt goes after --, as in: tpl run FILE -- \"prompt\"; a file of rows after --in" }
      end
      word = { key = k, value = v, text = value }
    end
    out[#out + 1] = word
  end
  return out
end

--- Read "2,1" (for the axis tp) or "tp:2,1;ep:1,1".
local function parse_shares(word)
  local shares = {}
  for part in word.value:gmatch("[^;]+") do
    local axis, list = part:match("^([%a][%w_]*)[:=](.+)$")
    axis, list = axis or "tp", list or part
    shares[axis] = {}
    for item in list:gmatch("[^,]+") do
      local n = tonumber(item)
      if not n then malformed(word, "a list such as 2,1 or tp:2,1") end
      table.insert(shares[axis], n)
    end
  end
  if next(shares) == nil then malformed(word, "a list such as 2,1 or tp:2,1") end
  return shares
end

local function number(word)
  local n = tonumber(word.value)
  if not n or n ~= n then malformed(word, "a number") end
  return n
end

local function text(word)
  if word.value == "" then malformed(word, "a text") end
  return word.value
end

local function set_in(group, name)
  return function(given, word)
    given[group] = util.copy(given[group] or {})
    given[group][name] = name == "dtype" and text(word) or name ~= "dtype" and number(word) or nil
  end
end

-- What `key=value` may set on a MODEL, and `deploy.key=value` on a FILE.
local setters = {
  act = function(given, word) given.act = text(word) end,
  mesh = function(given, word) given.mesh = text(word) end,
  tp = function(given, word)
    local n = number(word)
    if n < 1 or n ~= math.floor(n) then malformed(word, "a whole number from 1") end
    given.mesh = string.format("tp=%d", n)
  end,
  pp = function(given, word) given.pp = number(word) end,
  layout = function(given, word) given.layout = text(word) end,
  shares = function(given, word) given.shares = parse_shares(word) end,
  threads = function(given, word) given.threads = number(word) end,
  ["kv.tokens"] = set_in("kv", "tokens"), ["kv.page"] = set_in("kv", "page"), ["kv.dtype"] = set_in("kv", "dtype"),
  ["step.tokens"] = set_in("step", "tokens"), ["step.chunk"] = set_in("step", "chunk"),
  ["want.context"] = set_in("want", "context"), ["want.concurrency"] = set_in("want", "concurrency"),
  ["want.goal"] = function(given, word)
    given.want = util.copy(given.want or {})
    given.want.goal = text(word)
  end,
  place = function(given, word) given.place = text(word) end,
  replicas = function(given, word) given.replicas = number(word) end,
}
local settable = util.keys(setters)

local function unknown_key(word, known)
  err.throw {
    code = "usage", where = word.text, message = string.format("unknown key '%s'", word.key),
    hint = #known > 0 and suggest.hint(word.key, known, "keys") or "the file declares none with tpl.args",
  }
end

--- Set fields of what was written; `prefix` is stripped from keys. Then check the whole again: a bad value is a usage error.
local function apply(given, words, prefix)
  given = util.copy(given)
  local by_key = {}
  for _, word in ipairs(words) do
    local key = word.key:sub(#prefix + 1)
    if not setters[key] then
      unknown_key(word, util.map(settable, function(name) return prefix .. name end))
    end
    setters[key](given, { key = word.key, value = word.value, text = word.text })
    by_key[key] = word
  end
  if by_key.tp and by_key.mesh then
    err.throw { code = "usage", where = by_key.tp.text, message = "tp and mesh both set the mesh", hint = "give one of them" }
  end
  if #words > 0 and given.stages and (by_key.tp or by_key.mesh or by_key.pp or by_key.layout) then
    given.stages = nil -- who asks for another cut on the command line means it
  end
  local d, message, field, hint = build(given)
  if d then return d end
  local word = by_key[field] or (field == "mesh" and by_key.tp) or words[#words]
  err.throw { code = "usage", where = word and word.text or field, message = field .. " " .. message, hint = hint }
end

-- -- Loading ---------------------------------------------------------------------------------------------------------

local function split_words(words)
  local own, overrides = {}, {}
  for _, word in ipairs(words) do
    local is_override = word.key:sub(1, 7) == "deploy."
    table.insert(is_override and overrides or own, word)
  end
  return own, overrides
end

--- Run a deploy.lua with the words of the command line.
---@param path string
---@param words? (string|tpl.Word)[]|table<string, any>
---@return tpl.Deploy   or throws: exit 2 for words, 3 for the script
function M.load(path, words)
  local own, overrides = split_words(M.words(words))
  local outer = loading
  loading = { words = own, declared = {} }
  local state = loading
  local ok, value, run = pcall(script.run, path)
  loading = outer
  if not ok then error(value, 0) end
  for _, word in ipairs(own) do
    if state.declared[word.key] == nil then unknown_key(word, util.keys(state.declared)) end
  end
  if not M.is(value) then
    err.throw {
      code = "script", where = path .. ":" .. (run.last_line or 1),
      message = string.format("must return tpl.deploy{..}, it returns %s", value == nil and "nothing" or "a " .. type(value)),
    }
  end
  local d = value
  if #overrides > 0 then d = setmetatable(apply(value.given, overrides, "deploy."), Deploy) end
  d.origin = { file = path, dir = find.dirname(path), args = state.values or {}, where = value.origin.where or script.returned_at(run) }
  return d
end

--- Describe a deployment of one model with the defaults and the words of the command line.
---@param model string
---@param words? (string|tpl.Word)[]|table<string, any>
---@return tpl.Deploy
function M.default(model, words)
  local d = setmetatable(apply({ model = model }, M.words(words), ""), Deploy)
  d.origin = { args = {} }
  return d
end

--- Give a deployment for FILE|MODEL: what ends in .lua is a script, anything else a model.
---@param target string
---@param words? (string|tpl.Word)[]|table<string, any>
---@return tpl.Deploy?
---@return tpl.Err?
function M.open(target, words)
  return err.try(target:find("%.lua$") and M.load or M.default, target, words)
end

return setmetatable(M, { __call = function(_, given) return M.new(given) end })
