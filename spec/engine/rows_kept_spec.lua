-- SPDX-License-Identifier: Apache-2.0
--- How long the engine keeps the logit rows of a request, and how many places a planted fault acts on.
local models = require("spec.support.models")

local MODEL = models.own_fixture("bf16").target

local function run(box)
  while not box:idle() do assert(box:pump()) end
end

local function with_box(options, f)
  models.with(MODEL, { "act=f32", "tp=2" }, options, function(engine) f(engine.box) end)
end

describe("rows of logits", function()
  it("cannot be taken or dropped while the request runs", function()
    with_box(nil, function(box)
      local h = assert(box:add { ids = { 1, 2, 3 }, max_tokens = 4, ignore_eos = true, rows = "last", sink = { memory = true } })
      assert.has_error(function() box:take_rows(h) end, "request 1 still runs")
      assert.has_error(function() box:drop_rows(h) end, "request 1 still runs")
      run(box)
      assert.equal(1, box:take_rows(h).rows) -- the decode steps ask for no room beyond it
    end)
  end)

  it("in memory can be taken until they are dropped", function()
    with_box(nil, function(box)
      local h = assert(box:add { ids = { 1, 2, 3 }, rows = "all", sink = { memory = true } })
      run(box)
      assert.equal(3, box:take_rows(h).rows)
      assert.equal(3, box:take_rows(h).rows)
      box:drop_rows(h)
      box:drop_rows(h) -- nothing is left to do
      assert.has_error(function() box:take_rows(h) end, "no rows are kept for request 1")
    end)
  end)

  it("that are only scored can be taken once", function()
    with_box(nil, function(box)
      local h = assert(box:add { ids = { 1, 2, 3 }, rows = "all", sink = { top = 2 } })
      run(box)
      assert.equal(3, #box:take_rows(h).top)
      assert.has_error(function() box:take_rows(h) end, "no rows are kept for request 1")
    end)
  end)

  it("that could not be written say so, once", function()
    with_box(nil, function(box)
      local h = assert(box:add { ids = { 1, 2, 3 }, rows = "all", sink = { file = "/dev/full" } })
      run(box)
      local rows, message, code = box:take_rows(h)
      assert.is_nil(rows)
      assert.matches("writing failed", message)
      assert.equal("io", code)
      assert.has_error(function() box:take_rows(h) end, "no rows are kept for request 1")
    end)
  end)
end)

describe("fault_hits", function()
  local cases = { { nil, 0 }, { "drop_all_reduce:7", 0 }, { "stall:1:no.such.op", 0 }, { "stall:1:blk.1.o_proj:1000", 1 }, { "swap_shard:*:blk.0.o_proj", 2 } }
  for _, case in ipairs(cases) do
    it(("is %d for %s"):format(case[2], case[1] or "no fault"), function()
      with_box({ fault = case[1] }, function(box) assert.equal(case[2], box:fault_hits()) end)
    end)
  end
end)
