-- SPDX-License-Identifier: Apache-2.0
-- Expected values: interface.md section 3 (envelope, errors, exit codes).
local commands = require("tpl.cli.commands")
local helper = require("cli.helper")
local json = require("tpl.json")

local run = helper.run

local function keys_of(value) return getmetatable(value).keys end

describe("tpl.cli", function()
  it("prints the overview without a command, with exit 2", function()
    local r = run {}
    assert.equal(2, r.code)
    assert.matches("usage: tpl COMMAND", r.stdout)
  end)

  it("explains every command with usage and an example", function()
    for _, name in ipairs(commands.names()) do
      for _, argv in ipairs { { "help", name }, { name, "--help" } } do
        local r = run(argv)
        assert.equal(0, r.code, name)
        assert.matches("usage: ", r.stdout)
        assert.matches("Examples\n  %S", r.stdout)
      end
      assert.matches("\n  " .. name .. " ", run({ "help" }).stdout, 1, true)
    end
  end)

  it("exits 2 with the nearest command for an unknown one", function()
    local r = run { "plann" }
    assert.equal(2, r.code)
    assert.equal("tpl: tpl plann: unknown command (did you mean 'plan'?)\n", r.stderr)
    assert.equal("", r.stdout)
    assert.equal(2, run({ "help", "plann" }).code)
  end)

  it("exits 2 with `not in this version` for what comes later", function()
    for _, argv in ipairs {
      { "repl" }, { "chat" }, { "sim", "router" }, { "bench", "comm" }, { "bench", "serve" }, { "plan", "a.lua", "b.lua" }, { "help", "chat" },
    } do
      local r = run(argv)
      assert.equal(2, r.code)
      assert.matches("not in this version", r.stderr)
    end
  end)

  it("prints an envelope for every failure when --json is there", function()
    for _, argv in ipairs { { "plan", "--json" }, { "plan", "m", "--json", "--bogus" }, { "chat", "--json" }, { "plan", "m", "--json", "tp=x" } } do
      local r = run(argv)
      assert.equal(2, r.code)
      assert.equal(1, #r.lines)
      local envelope = r.lines[1]
      assert.same({ "schema", "version", "ok", "error", "warnings", "knobs", "result" }, keys_of(envelope))
      assert.equal("tpl." .. argv[1] .. "/1", envelope.schema)
      assert.is_false(envelope.ok)
      assert.same({ "code", "message", "where", "hint" }, keys_of(envelope.error))
      assert.equal(json.array_mt, getmetatable(envelope.warnings))
      assert.matches("^tpl: ", r.stderr)
    end
  end)

  it("prints nothing on stdout for a failure without --json", function()
    assert.equal("", run({ "plan", "m", "--bogus" }).stdout)
  end)

  it("names the nearest option", function()
    assert.matches("did you mean '%-%-explain'", run({ "plan", "m", "--explian" }).stderr)
  end)

  it("refuses malformed options with exit 2", function()
    for _, argv in ipairs {
      { "logits", "m", "--in", "x", "--out", "y", "--chunk", "0" }, { "logits", "m", "--in", "x", "--out", "y", "--positions", "some" },
      { "score", "m", "--in", "x", "--top", "x" }, { "run", "m", "--temperature", "hot", "--", "x" }, { "plan", "m", "--json=1" },
      { "score", "m", "--in" }, { "plan", "m", "--", "x" }, { "version", "extra" }, { "plan" }, { "run" }, { "score", "m" }, { "plan", "m", "--tune=x" },
    } do
      assert.equal(2, run(argv).code, table.concat(argv, " "))
    end
  end)

  it("passes FILE|MODEL and its words on", function()
    local r = run { "plan", "m.gguf", "tp=2", "act=f32" }
    assert.equal(0, r.code)
    assert.equal("m.gguf", r.deploy.model)
    assert.equal("tp=2", tostring(r.deploy.mesh))
  end)

  it("prints the exit code of the error that the planner gives", function()
    local err = require("tpl.err")
    for code, exit in pairs { layout_conflict = 3, no_fit = 4, format = 6, unsupported = 6, usage = 2, comm = 1 } do
      local r = run({ "plan", "m", "--json" }, { make = function()
        return nil, err.new { code = code, message = "message", where = "deploy.lua:3", hint = "hint", op = "q_proj", axis = "tp", fixes = { "{at={}}" } }
      end })
      assert.equal(exit, r.code)
      assert.equal("tpl: deploy.lua:3: message (hint)\n", r.stderr)
      local more = code == "layout_conflict" and { "axis", "fixes", "mark", "op", "w", "x" } or { "axis", "fixes", "op" }
      assert.same({ "code", "message", "where", "hint", unpack(more) }, keys_of(r.lines[1].error))
      assert.same({ "{at={}}" }, r.lines[1].error.fixes)
    end
  end)

  it("says the place once", function()
    local r = run({ "plan", "m" }, { make = function()
      return nil, require("tpl.err").new { code = "io", message = "a/b: No such file", where = "a/b" }
    end })
    assert.equal("tpl: a/b: No such file\n", r.stderr)
  end)

  it("turns a programming error into exit 1, not into a crash", function()
    local r = run({ "plan", "m", "--json" }, { make = function() error("boom") end })
    assert.is_true(r.code == 1 or r.code == 3) -- 3: this spec counts as a script
    assert.matches("boom", r.lines[1].error.message)
  end)

  it("prints shell lines for env", function()
    local r = run { "env" }
    assert.equal(0, r.code)
    assert.matches("\nexport LUA_PATH='[^']+/%?%.lua;", r.stdout)
    assert.matches("\nexport LUA_CPATH='[^']+/%?%.so;", r.stdout)
    assert.matches("^export PATH=", r.stdout)
  end)
end)

describe("tpl plan", function()
  it("prints the report with the capacity in the words users know", function()
    local r = run { "plan", "m" }
    assert.equal(0, r.code)
    assert.matches("\nKV cache size: 1,234,567 tokens\n", r.stdout)
    assert.matches("\nMaximum concurrency for 64 tokens per request: 19290.11x\n", r.stdout)
    assert.matches("kvh is cut 2/1", r.stdout)
    assert.matches("1 all_reduce over tp", r.stdout)
  end)

  it("adds the journey with --explain, and prints only the program with --text", function()
    assert.matches("first line\nsecond line\n$", run({ "plan", "m", "--explain" }).stdout)
    assert.equal("program text\n", run({ "plan", "m", "--text" }).stdout)
  end)

  it("prints every promised field with --json, null or [] where unknown", function()
    local result = run({ "plan", "m", "--json", "--explain", "--text" }).lines[1].result
    for _, name in ipairs {
      "plan_hash", "program_hash", "model", "stages", "ranks", "kv", "collectives", "cost", "choice", "env", "fits", "moves", "replicas", "degrees", "emit",
      "why_not",
    } do
      assert.is_not_nil(result[name], name)
    end
    for _, name in ipairs { "env", "moves", "replicas" } do assert.equal(json.array_mt, getmetatable(result[name]), name) end
    assert.equal(json.null, result.ranks[1].bytes.capacity)
    assert.equal(json.null, result.collectives[1].us.decode)
    assert.same({ "first line", "second line" }, result.explain)
    assert.equal("program text\n", result.text)
    assert.equal(json.array_mt, getmetatable(result.choice.reasons))
  end)

  it("exits 4 with both result and error when the plan does not fit", function()
    local report = helper.plan({}).report
    report.fits, report.moves = false, { { what = "kv.dtype=f16" } }
    local r = run({ "plan", "m", "--json" }, { plan = { report = report } })
    assert.equal(4, r.code)
    assert.is_false(r.lines[1].ok)
    assert.equal("no_fit", r.lines[1].error.code)
    assert.is_false(r.lines[1].result.fits)
    assert.equal(4, run({ "plan", "m" }, { plan = { report = report } }).code)
  end)

  it("carries warnings and knobs", function()
    local r = run({ "plan", "m", "--json", "--no-fuse=add_norm" }, { plan = { warnings = { { code = "fill", message = "half empty", where = "stage 0" } } } })
    assert.same({ "half empty" }, { r.lines[1].warnings[1].message })
    assert.equal("add_norm", r.lines[1].knobs.no_fuse)
    assert.matches("tpl: warning: stage 0: half empty\n", r.stderr)
  end)

  it("refuses an unknown fusion pass", function()
    local r = run { "plan", "m", "--json", "--no-fuse=addnorm" }
    assert.same({ 2, "usage", "--no-fuse", "did you mean 'add_norm'?" }, { r.code, r.lines[1].error.code, r.lines[1].error.where, r.lines[1].error.hint })
  end)

  it("gives a refused layout all its fields, null where they say nothing", function()
    local r = run({ "plan", "m", "--json" }, { make = function()
      return nil, require("tpl.err").new { code = "layout_conflict", message = "message", axis = "tp", mark = "?", unit_error = true }
    end })
    assert.same({ "code", "message", "where", "hint", "axis", "fixes", "mark", "op", "w", "x" }, keys_of(r.lines[1].error))
    assert.same({ "tp", 0, json.null, json.null }, { r.lines[1].error.axis, #r.lines[1].error.fixes, r.lines[1].error.mark, r.lines[1].error.op })
  end)
end)

describe("tpl verify", function()
  local function verify(argv, result)
    return run(argv, { verify = function() return result end })
  end

  it("runs act=f32 unless told otherwise", function()
    local result = { passed = true, ops_compared = 3, max_nmse = 0, tolerance = 1e-10 }
    assert.equal("f32", verify({ "verify", "m" }, result).deploy.act)
    assert.equal("auto", verify({ "verify", "m", "act=auto" }, result).deploy.act)
  end)

  it("exits 5 and names op, rank and axis when something differs", function()
    local diff = { op = "blk.0.o_proj", layer = 0, rank = 1, axis = "tp", nmse = 0.5, max_abs = 1 }
    local r = verify({ "verify", "m", "--json" }, { passed = false, first_diff = diff, tolerance = 1e-10 })
    assert.equal(5, r.code)
    assert.matches("blk.0.o_proj", r.stderr, 1, true)
    assert.matches("rank 1, axis tp", r.stderr, 1, true)
    assert.equal("blk.0.o_proj", r.lines[1].result.first_diff.op)
    assert.is_false(r.lines[1].ok)
    assert.equal(5, verify({ "verify", "m" }, { passed = false, first_diff = diff }).code)
  end)

  it("prints null where nothing differs", function()
    local r = verify({ "verify", "m", "--json" }, { passed = true })
    assert.equal(0, r.code)
    assert.equal(json.null, r.lines[1].result.first_diff)
  end)
end)
