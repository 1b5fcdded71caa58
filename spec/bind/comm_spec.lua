-- SPDX-License-Identifier: Apache-2.0
--- tpl.core.comm: timings are only checked for being plausible, the sums behind them for being right.
local comm = require("tpl.core").comm

describe("tpl.core.comm", function()
  it("names its transports", function()
    assert.same({ "shm" }, comm.transports())
  end)

  it("times an all-reduce on more ranks than cores, and checks its sums", function()
    local r = assert(comm.time_all_reduce { ranks = 9, threads = 1, bytes = 2304, iters = 5 })
    assert.is_true(r.checked)
    assert.is_true(r.us_min > 0 and r.us_min <= r.us and r.us <= r.us_max)
  end)

  it("times a barrier", function()
    assert.is_true(comm.time_barrier({ threads = 2, iters = 20 }).us > 0)
  end)

  it("refuses impossible counts with nil, message, code", function()
    local value, message, code = comm.time_all_reduce { ranks = 0 }
    assert.is_nil(value)
    assert.matches("0 ranks", message)
    assert.equal("arg", code)
  end)

  it("raises for an unknown option", function()
    assert.has_error(function() comm.time_all_reduce { rank = 1 } end)
  end)
end)
