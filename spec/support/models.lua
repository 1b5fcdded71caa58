-- SPDX-License-Identifier: Apache-2.0
--- Find model fixtures, run plans on them, compare logits: what the engine specs share (not a spec itself).
local ffi = require("ffi")
local json = require("tpl.json")

local M = {}

local read_file = require("spec.support.files").read

-- -- Fixtures --------------------------------------------------------------------------------------------------------

local Fixture = {}
Fixture.__index = Fixture

--- Open a folder with expected.json.
---@param folder string
---@return table? fixture   {folder, name, target, expected}
function M.fixture(folder)
  local text = read_file(folder .. "/expected.json")
  if not text then return nil end
  local expected = assert(json.decode(text))
  local target = expected.file and folder .. "/" .. expected.file or folder
  return setmetatable({ folder = folder, name = folder:match("[^/]+$"), target = target, expected = expected }, Fixture)
end

--- Give the reference logits of a prompt: float array, count. The text that holds them is kept by the fixture.
function Fixture:logits(prompt)
  self.texts = self.texts or {}
  local text = self.texts[prompt.logits] or assert(read_file(self.folder .. "/" .. prompt.logits))
  self.texts[prompt.logits] = text
  local n = prompt.shape[1] * prompt.shape[2]
  assert(#text == 4 * n, prompt.logits .. ": unexpected size")
  return ffi.cast("const float *", text), n
end

M.own = { "bf16", "f16-sharded", "gguf-f32", "gguf-q8_0", "gguf-q4_1" }

--- Open one of the project's own fixtures.
function M.own_fixture(name) return assert(M.fixture("spec/fixtures/models/" .. name), name) end

--- Give the path of the shared folder.
function M.shared() return os.getenv("TPL_SHARED") or "../shared" end

--- Open a fixture of ../shared/fixtures/models; nil and the reason when it is not there.
function M.shared_fixture(name)
  local folder = M.shared() .. "/fixtures/models/" .. name
  local fixture = M.fixture(folder)
  if fixture then return fixture end
  return nil, folder .. " is not there (TPL_SHARED names the shared folder)"
end

--- Give the path of the quickstart model in the model cache; nil and the reason.
function M.smollm2()
  local path = require("tpl.find").cache() .. "/models/smollm2.gguf"
  local f = io.open(path, "rb")
  if not f then return nil, path .. " is not there (sh examples/fetch_smollm2.sh)" end
  f:close()
  return path
end

-- -- Engines ---------------------------------------------------------------------------------------------------------

local function checked(value, e)
  if value == nil then error(tostring(e) .. (type(e) == "table" and e.traceback and "\n" .. e.traceback or ""), 2) end
  return value
end

--- Open an engine for a model or a table of deploy fields.
---@param target string|table     a path, or what tpl.deploy takes
---@param words? string[]         key=value words, with a path
---@param options? table          for tpl.engine.open; its field plan: for the planner
function M.engine(target, words, options)
  local deploy = require("tpl.deploy")
  local d = type(target) == "table" and deploy.new(target) or checked(deploy.open(target, words))
  local plan = checked(require("tpl.plan.make").make(d, options and options.plan))
  return checked(require("tpl.engine").open(plan, options or {})), plan
end

--- Run f(engine), close the engine whatever happens, and give what f gave.
function M.with(target, words, options, f)
  local engine = M.engine(target, words, options)
  local ok, result = pcall(f, engine)
  engine:close()
  if not ok then error(result, 0) end
  return result
end

--- Give a copy of the logits of ids that outlives the engine: {data = double array, n, rows, vocab}.
function M.copy_logits(l)
  local n = l.rows * l.vocab
  local data = ffi.new("double[?]", n)
  local from = ffi.cast("const float *", l.data)
  for i = 0, n - 1 do data[i] = from[i] end
  return { data = data, n = n, rows = l.rows, vocab = l.vocab }
end

--- Give the logits of several id lists, each alone (solo) or all in shared steps (together).
---@param engine table
---@param lists integer[][]
---@param together? boolean
---@return table[]   as copy_logits gives them
function M.logits(engine, lists, together)
  local rows, out = {}, {}
  for i, ids in ipairs(lists) do rows[i] = { ids = ids } end
  checked(engine:each_logits { rows = rows, together = together or false, on_row = function(i, r)
    assert(not r.error, r.error and r.error.message)
    out[i] = M.copy_logits(r)
  end })
  return out
end

--- Continue prompts greedily, ignoring the end of text; gives a list of id lists.
function M.greedy(engine, prompts, n)
  local rows, out = {}, {}
  for i, ids in ipairs(prompts) do rows[i] = { prompt_ids = ids, max_tokens = type(n) == "table" and n[i] or n, ignore_eos = true } end
  for i, r in ipairs(checked(engine:generate { rows = rows })) do
    assert(not r.error, r.error and r.error.message)
    out[i] = r.ids
  end
  return out
end

-- -- Comparing -------------------------------------------------------------------------------------------------------

--- Largest absolute difference; NaN counts as infinite.
function M.max_abs(a, b, n)
  local worst = 0
  for i = 0, n - 1 do
    local d = math.abs(a[i] - b[i])
    if d ~= d then return math.huge end
    if d > worst then worst = d end
  end
  return worst
end

--- Sum of squared differences over sum of squares of the reference b; NaN counts as infinite.
function M.nmse(a, b, n)
  local num, den = 0, 0
  for i = 0, n - 1 do
    local d = a[i] - b[i]
    num, den = num + d * d, den + b[i] * b[i]
  end
  local x = num / den
  return x == x and x or math.huge
end

--- Largest NMSE over lists of logits.
function M.worst_nmse(got, want)
  local worst = 0
  for i, w in ipairs(want) do
    assert(got[i].rows == w.rows and got[i].vocab == w.vocab, "another shape")
    worst = math.max(worst, M.nmse(got[i].data, w.data, w.n))
  end
  return worst
end

--- Give the number of greedy ids to compare: those before the first step whose best two logits are closer than twice the tolerance.
function M.comparable(prompt, tolerance)
  for k, gap in ipairs(prompt.greedy_gap) do
    if gap < 2 * tolerance then return k - 1 end
  end
  return #prompt.greedy
end

--- Give n ids that depend on a seed only (Park and Miller 1988).
function M.ids(seed, n, vocab)
  local s, out = seed, {}
  for i = 1, n do
    s = s * 48271 % 2147483647
    out[i] = s % vocab
  end
  return out
end

-- -- The program -----------------------------------------------------------------------------------------------------

local function quote(s) return "'" .. s:gsub("'", "'\\''") .. "'" end

--- Run build/tpl. o: args, env (list of NAME=value), stdin, limit in seconds (20).
---@return {code: integer, out: string, err: string}
function M.tpl(o)
  local base = os.tmpname()
  local words = { "env" }
  for _, e in ipairs(o.env or {}) do words[#words + 1] = quote(e) end
  words[#words + 1] = "timeout -k 1 " .. (o.limit or 20) .. " build/tpl"
  for _, a in ipairs(o.args) do words[#words + 1] = quote(a) end
  local input = "/dev/null"
  if o.stdin then
    input = base .. ".in"
    local f = assert(io.open(input, "wb"))
    f:write(o.stdin)
    f:close()
  end
  local p = assert(io.popen(table.concat(words, " ") .. " <" .. input .. " >" .. base .. ".out 2>" .. base .. ".err; echo $?"))
  local code = tonumber(p:read("*a"))
  p:close()
  local r = { code = code, out = read_file(base .. ".out"), err = read_file(base .. ".err") }
  for _, suffix in ipairs { "", ".in", ".out", ".err" } do os.remove(base .. suffix) end
  return r
end

return M
