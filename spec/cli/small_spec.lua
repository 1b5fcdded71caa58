-- SPDX-License-Identifier: Apache-2.0
-- The small helpers of the command line. Expected values by hand.
local report = require("tpl.report")
local schema = require("tpl.schema")
local script = require("tpl.script")
local suggest = require("tpl.suggest")

describe("tpl.suggest", function()
  it("counts edits, a swap as one", function()
    assert.same({ 0, 1, 1, 3 }, { suggest.distance("plan", "plan"), suggest.distance("plna", "plan"), suggest.distance("pla", "plan"), suggest.distance("kitten", "sitting") })
  end)

  it("gives the nearest word, or nil when none is near", function()
    assert.equal("layout", suggest.nearest("layuot", { "model", "layout" }))
    assert.is_nil(suggest.nearest("xyz", { "model", "layout" }))
  end)
end)

describe("tpl.schema", function()
  it("names the path of the field that is wrong", function()
    local rule = schema.fields { a = schema.fields { b = schema.list(schema.int(1, 3)) } }
    local value, message, field = rule { a = { b = { 1, 9 } } }
    assert.is_nil(value)
    assert.equal("a.b.[2]", field)
    assert.matches("9, a whole number from 1 to 3", message)
  end)

  it("copies what it checks, so that defaults never reach the user's table", function()
    local given = { x = 1 }
    local value = schema.fields({ x = schema.int(0, 5), y = schema.int(0, 5) }, { y = 2 })(given)
    assert.same({ x = 1, y = 2 }, value)
    assert.same({ x = 1 }, given)
  end)
end)

describe("tpl.script", function()
  it("finds the line of a field above the call's last line", function()
    local text = "local a = f { model = 1 }\nreturn g {\n  -- model = old\n  model = a,\n}\nlocal model = 2\n"
    assert.equal(4, script.line_of(text, "model", 5))
    assert.equal(1, script.line_of(text, "model", 2))
    assert.equal(4, script.line_of(text, "x.model", 5))
    assert.is_nil(script.line_of(text, "other", 5))
  end)

  it("gives what a script prints to whoever runs it: standard output is the command's", function()
    local name, real, said = os.tmpname(), script.print, {}
    local f = assert(io.open(name, "w"))
    f:write("print('to be', 1, nil)\nreturn 7\n")
    f:close()
    script.print = function(...) said = { n = select("#", ...), ... } end
    local ok, value = pcall(script.run, name)
    script.print = real
    os.remove(name)
    assert.same({ true, 7, { n = 3, "to be", 1 } }, { ok, value, said })
  end)
end)

describe("tpl.report", function()
  it("writes counts and sizes as people do", function()
    assert.same({ "0", "999", "1,000", "12,345", "123,456", "1,234,567", "-" }, {
      report.commas(0), report.commas(999), report.commas(1000), report.commas(12345), report.commas(123456), report.commas(1234567), report.commas(nil),
    })
    assert.same({ "0 B", "1023 B", "1.0 KiB", "1.5 MiB", "2.0 GiB" }, {
      report.bytes(0), report.bytes(1023), report.bytes(1024), report.bytes(1.5 * 2 ^ 20), report.bytes(2 ^ 31),
    })
  end)
end)

describe("tpl", function()
  local tpl = require("tpl")

  it("says which parts come later, and nothing of unknown names", function()
    assert.is_nil(tpl.nothing)
    for _, name in ipairs { "router", "op" } do
      local ok, e = pcall(function() return tpl[name] end)
      assert.is_false(ok)
      assert.same({ 2, "not_in_version" }, { e.exit, e.code })
    end
  end)

  it("loads its parts", function()
    for _, name in ipairs { "R", "S", "mesh", "gqa", "use", "layout", "model", "partition", "pairs", "args", "deploy", "json", "tokenizer", "template", "npy", "plan",
      "topo", "yaml", "cost",
      "policy" } do
      assert.is_not_nil(tpl[name], name)
    end
  end)
end)
