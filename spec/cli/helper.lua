-- SPDX-License-Identifier: Apache-2.0
--- Run the command line inside the spec, with an engine that answers from a table: no weights, no threads.
local json = require("tpl.json")
local main = require("tpl.cli.main")
local out = require("tpl.cli.out")
local sys = require("tpl.core").sys

local M = {}

--- Make a folder that the system's cleaner or M.remove takes away.
function M.folder()
  local path = os.tmpname()
  os.remove(path)
  assert(sys.mkdir_p(path))
  return path
end

function M.remove(path)
  for _, name in ipairs(sys.list(path) or {}) do
    local inner = path .. "/" .. name
    if sys.is_dir(inner) then M.remove(inner) else os.remove(inner) end
  end
  sys.remove(path)
end

function M.write(path, text)
  assert(sys.mkdir_p(path:match("^(.*)/") or "."))
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  return path
end

M.read = require("spec.support.files").slurp

--- The folder of shared fixtures, or nil.
function M.shared()
  local path = os.getenv("TPL_SHARED") or "../shared"
  return sys.is_dir(path) and path or nil
end

--- The folder of a shared model fixture; the spec is pending without it.
function M.model(name)
  local shared = M.shared()
  return shared and shared .. "/fixtures/models/" .. name or nil
end

--- A plan as the planner makes it, as far as the command line looks at it.
function M.plan(deploy, changes)
  local plan = {
    deploy = deploy, config = { vocab = 100, n_layer = 2, tied = true }, warnings = {}, tokenizer_path = nil,
    report = {
      plan_hash = "p1", program_hash = "h1", fits = true, model = { arch = "llama", params = 1000, weight_bytes = 4000, format = "gguf" },
      stages = { { i = 0, layers = { 0, 1 }, axes = { { name = "tp", size = 2 } }, ranks = { 0, 1 }, programs = {} } },
      ranks = {
        { rank = 0, stage = 0, coord = { tp = 0 }, shards = { kvh = { { 0, 2 } } }, bytes = { weights = 2048, kv = 1024, total = 4096 }, read_bytes = 10 },
        { rank = 1, stage = 0, coord = { tp = 1 }, shards = { kvh = { { 2, 1 } } }, bytes = { weights = 2048, kv = 1024, total = 4096 }, read_bytes = 10 },
      },
      kv = { tokens = 1234567, page = 16, max_len = 64, max_concurrency = 19290.109375 },
      collectives = { { i = 0, kind = "all_reduce", stage = 0, axes = { "tp" }, group = { 0, 1 }, bytes = { decode = 512, prefill = 1024 } } },
    },
  }
  function plan.text() return "program text\n" end
  function plan.explain() return { "first line", "second line" } end
  for key, value in pairs(changes or {}) do plan[key] = value end
  return plan
end

--- An engine that repeats the last prompt id; `calls` keeps what it was asked.
function M.engine(changes)
  local fake = { calls = {}, closed = 0, isa = "fake" }
  function fake.generate(self, opts)
    self.calls[#self.calls + 1] = { "generate", opts }
    local results = {}
    for i, row in ipairs(opts.rows) do
      local last = row.prompt_ids[#row.prompt_ids]
      if opts.on_token then opts.on_token(i, { id = last, text = "t" .. last, logprob = -0.5 }) end
      results[i] = { ids = { last }, prompt_ids = row.prompt_ids, text = "t" .. last, finish = "length", ttft_us = 5, itl_us = { p50 = 1, p99 = 2 } }
    end
    return results
  end
  function fake.close(self) self.closed = self.closed + 1 end
  function fake.stats() return {} end
  for key, value in pairs(changes or {}) do fake[key] = value end
  return fake
end

---@param argv string[]
---@param opts? {plan?: table, engine?: table, stdin_tty?: boolean, make?: function}
---@return {code: integer, stdout: string, stderr: string, lines: table[], deploy: table}
function M.run(argv, opts)
  opts = opts or {}
  local result = { stdout = "", stderr = "" }
  local writer = out.new {
    stdout = function(s) result.stdout = result.stdout .. s end, stderr = function(s) result.stderr = result.stderr .. s end,
    is_tty = false, stdout_tty = false,
  }
  local engine = {
    make = opts.make or function(deploy)
      result.deploy = deploy
      return M.plan(deploy, opts.plan)
    end,
    open = function(_, more)
      for _, rank in ipairs { 0, 1 } do more.progress(rank, 10, 10) end
      return opts.engine or M.engine()
    end,
  }
  function engine.verify(deploy, more)
    result.deploy = deploy
    return opts.verify(deploy, more)
  end
  result.code = main.main(argv, { out = writer, engine = engine, stdin_tty = opts.stdin_tty or false })
  result.lines = {}
  for line in result.stdout:gmatch("[^\n]+") do
    result.lines[#result.lines + 1] = json.decode(line) or line
  end
  return result
end

return M
