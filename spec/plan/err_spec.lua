-- SPDX-License-Identifier: Apache-2.0
-- Exit codes: interface.md section 3.
local err = require "tpl.err"

describe("tpl.err", function()
  it("prints where, message and hint", function()
    local e = err.new { code = "x", message = "no such axis", where = "a.lua:3", hint = "write tp" }
    assert.are.equal("a.lua:3: no such axis (write tp)", tostring(e))
    assert.are.equal("no such axis", tostring(err.new { code = "x", message = "no such axis" }))
  end)

  it("keeps further fields and knows its own kind", function()
    local e = err.new { code = "layout_conflict", message = "m", op = "blk.0.q_proj", fixes = { "{}" } }
    assert.are.equal("blk.0.q_proj", e.op)
    assert.are.same({ "{}" }, e.fixes)
    assert.is_true(err.is(e))
    assert.is_false(err.is({ code = "x" }))
    assert.is_false(err.is("text"))
  end)

  it("maps C statuses to exit codes", function()
    local want = { arg = 3, mem = 4, format = 6, unsupported = 6, device = 1, comm = 1, canceled = 130, io = 1 }
    for code, exit in pairs(want) do assert.are.equal(exit, err.from_c("m", code).exit, code) end
    assert.are.equal(2, err.from_c("x.gguf: No such file or directory", "io").exit)
    assert.are.equal("format", err.from_c("bad", "FORMAT", "x.gguf:8", "get it again").code)
    assert.are.equal(3, err.new { code = "layout_conflict", message = "m" }.exit)
  end)

  it("gives results through, and nil for what is thrown", function()
    assert.are.same({ 1, nil, 3 }, { err.try(function(...) return ... end, 1, nil, 3) })
    local out, e = err.try(err.throw, { code = "layout_error", message = "m" })
    assert.is_nil(out)
    assert.are.equal("layout_error", e.code)
  end)

  it("blames a script for its own errors, with file and line", function()
    local chunk = loadstring("local x = nil\nreturn x.field", "@/tmp/a_rather_long_folder_name_so_that_lua_cuts_the_front_of_it_off/deploy.lua")
    local _, e = err.try(chunk)
    assert.are.equal("internal", e.code)
    assert.are.equal(3, e.exit)
    assert.are.equal("/tmp/a_rather_long_folder_name_so_that_lua_cuts_the_front_of_it_off/deploy.lua:2", e.where)
    assert.is_truthy(e.message:find("attempt to index", 1, true))
  end)

  it("calls an error inside the library a failure", function()
    local _, e = err.try(require("tpl.util").glob, nil)
    assert.are.equal("internal", e.code)
    assert.are.equal(1, e.exit)
    assert.is_truthy(e.where:find("util.lua", 1, true))
  end)

  it("takes values that are no strings", function()
    local _, e = err.try(error, { 1 })
    assert.are.equal("internal", e.code)
  end)
end)
