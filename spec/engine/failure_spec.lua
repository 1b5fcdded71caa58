-- SPDX-License-Identifier: Apache-2.0
--- What a user sees when something goes wrong while running or loading: one line that names the place, the right exit code, in time.
local json = require("tpl.json")
local models = require("spec.support.models")
local sys = require("tpl.core").sys
local tmpdir = require("spec.support.tmpdir")

local MODEL = models.own_fixture("bf16").target
local ROW = '{"id":"a","ids":[5,6,7],"max_tokens":4}\n'

local function generate(model, fault, words)
  local args = { "generate", model, "act=f32", "--in", "-" }
  for _, w in ipairs(words or {}) do table.insert(args, 3, w) end
  local started = sys.now_us()
  local r = models.tpl { args = args, stdin = ROW, env = fault and { "TPL_FAULT=" .. fault } }
  r.seconds = (sys.now_us() - started) / 1e6
  return r
end

--- Gives the only line on stderr that is an error.
local function error_line(r)
  local found
  for line in r.err:gmatch("[^\n]+") do
    if line:find("^tpl: ") then
      assert.is_nil(found, "two error lines: " .. r.err)
      found = line
    else
      assert.matches("^loading ", line)
    end
  end
  return assert(found, "no error line: " .. r.err)
end

local function n_threads()
  local p = assert(io.popen("ls /proc/" .. io.open("/proc/self/stat"):read("*n") .. "/task | wc -l"))
  local n = p:read("*n")
  p:close()
  return n
end

describe("a rank that stalls", function()
  it("ends the run within 5 s with one line that names rank, op, layer, group, sequence number and bytes, and exit 1", function()
    local r = generate(MODEL, "stall:1:blk.1.o_proj", { "tp=2" })
    assert.equal(1, r.code)
    assert.is_true(r.seconds < 5.5, ("%.1f s with starting and loading"):format(r.seconds))
    local line = error_line(r)
    for _, part in ipairs { "rank 1", "blk%.1%.o_proj", "layer 1", "group tp{0,1}", "seq %d+", "%d+ bytes" } do assert.matches(part, line) end
  end)

  it("is not found sooner because the whole process was stopped for a while", function()
    local script = ([[
      echo '{"id":"a","ids":[5,6,7],"max_tokens":4}' | TPL_FAULT=stall:1:blk.1.o_proj build/tpl generate %s act=f32 tp=2 --in - >/dev/null 2>&1 & p=$!
      sleep 1; kill -STOP $p; sleep 4; kill -CONT $p; wait $p]]):format(MODEL)
    local started = sys.now_us()
    os.execute(script)
    local seconds = (sys.now_us() - started) / 1e6
    assert.is_true(seconds > 6.5, ("%.1f s: 3 s to find it, 4 s stopped"):format(seconds))
  end)

  it("is named when its stage waits for the one before", function()
    local r = generate(MODEL, "stall:0", { "pp=2" })
    assert.equal(1, r.code)
    assert.matches("rank 0", error_line(r))
  end)

  it("leaves no thread behind, and the next engine runs", function()
    local before = n_threads()
    local engine = models.engine(MODEL, { "act=f32", "tp=3" }, { fault = "stall:2:blk.0.down_proj", stall_s = 0.5 })
    local results, e = engine:generate { rows = { { prompt_ids = { 5, 6, 7 }, max_tokens = 2 } } }
    assert.is_nil(results)
    assert.matches("blk.0.down_proj", tostring(e))
    engine:close()
    engine:close() -- may be called twice
    assert.equal(before, n_threads())
    models.with(MODEL, { "act=f32", "tp=3" }, nil, function(other) assert.equal(3, #models.greedy(other, { { 5, 6, 7 } }, 3)[1]) end)
  end)
end)

describe("TPL_FAULT", function()
  it("of an unknown kind is exit 2", function()
    local r = generate(MODEL, "frobnicate:1")
    assert.equal(2, r.code)
    assert.matches("TPL_FAULT", error_line(r))
  end)
end)

describe("a model file that is not what it should be", function()
  local dir
  lazy_setup(function() dir = tmpdir.new() end)
  lazy_teardown(function() dir:close() end)

  local slurp = require("spec.support.files").slurp

  local gguf = slurp("spec/fixtures/models/gguf-q8_0/model.gguf")
  local cases = {
    { "cut off in its header", gguf:sub(1, 300) },
    { "cut off in its tensors", gguf:sub(1, #gguf - 1000) },
    { "empty", "" },
    { "of another kind", "\127ELF" .. ("\1"):rep(5000) },
    { "claiming more heads than its tensors have", (gguf:gsub("llama.attention.head_count\4%z%z%z\6", "llama.attention.head_count\4\0\0\0\12", 1)) },
    { "claiming more layers than it has", (gguf:gsub("llama.block_count\4%z%z%z\1", "llama.block_count\4\0\0\0\2", 1)) },
    { "of an architecture nobody knows", (gguf:gsub("general.architecture\8%z%z%z\5%z%z%z%z%z%z%zllama", "general.architecture\8\0\0\0\5\0\0\0\0\0\0\0lamma", 1)) },
  }
  for i, case in ipairs(cases) do
    it("because it is " .. case[1] .. " ends in one line that names it, and exit 6", function()
      if i > 4 then assert.are_not.equal(gguf, case[2]) end
      local path = dir:write("case" .. i .. ".gguf", case[2])
      local r = generate(path)
      assert.equal(6, r.code, r.err)
      assert.matches("case" .. i .. "%.gguf", error_line(r))
      local line = assert(json.decode((r.out:gsub("\n$", ""))))
      assert.is_false(line.ok)
    end)
  end

  it("because a quantised format is not in this version is exit 6", function()
    local fixture, missing = models.shared_fixture("llama-awq-g128")
    if not fixture then return pending(missing) end
    local r = generate(fixture.target)
    assert.equal(6, r.code)
    assert.matches("awq", error_line(r))
  end)

  it("because it is not there is exit 2", function()
    local r = generate(dir.path .. "/nowhere.gguf")
    assert.equal(2, r.code)
    assert.matches("no such model", error_line(r))
  end)

  it("because a shard is missing is exit 2 (a missing file) and names the shard", function()
    dir:sh("cp -r " .. sys.realpath("spec/fixtures/models/f16-sharded") .. " sharded && rm sharded/model-00002-of-00003.safetensors")
    local r = generate(dir.path .. "/sharded")
    assert.equal(2, r.code)
    assert.matches("model%-00002%-of%-00003", error_line(r))
  end)
end)
