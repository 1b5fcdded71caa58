-- SPDX-License-Identifier: Apache-2.0
--- YAML for Lua: shapes of values, errors, and that whatever is written is read back. What scalars mean is in spec/c/yaml_test.c.
local json = require("tpl.json")
local yaml = require("tpl.yaml")

-- A value and what it must be written as: by hand, from YAML 1.2.2 and from what YAML 1.1 would misread (yaml.org/type).
local written = {
  { "yes", '"yes"\n' }, { "a b", '"a b"\n' }, { json.null, "null\n" }, { true, "true\n" }, { 12, "12\n" }, { -0.5, "-0.5\n" },
  { 1e300, "1.0e+300\n" }, { 2 ^ 53, "9007199254740992.0\n" }, { 2 ^ 53 - 1, "9007199254740991\n" }, { {}, "{}\n" }, { json.array(), "[]\n" },
  { { a = "plain text" }, "a: plain text\n" }, { { a = "no" }, 'a: "no"\n' }, { { a = "Null" }, 'a: "Null"\n' }, { { a = "12" }, 'a: "12"\n' },
  { { a = "12:30" }, 'a: "12:30"\n' }, { { a = "0x1" }, 'a: "0x1"\n' }, { { a = "1e3" }, 'a: "1e3"\n' }, { { a = "2001-12-14" }, 'a: "2001-12-14"\n' },
  { { a = "" }, 'a: ""\n' }, { { a = "~" }, 'a: "~"\n' }, { { a = "x: y" }, 'a: "x: y"\n' }, { { a = "x #y" }, 'a: "x #y"\n' },
  { { a = "x:" }, 'a: "x:"\n' }, { { a = " x" }, 'a: " x"\n' }, { { a = "-" }, 'a: "-"\n' }, { { a = "[x" }, 'a: "[x"\n' }, { { a = "nvidia.com/gpu" }, "a: nvidia.com/gpu\n" },
  { { a = "*x" }, 'a: "*x"\n' }, { { a = "!x" }, 'a: "!x"\n' }, { { a = "\226\128\168" }, 'a: "\\u2028"\n' }, { { a = "\195\169" }, 'a: "\195\169"\n' },
  { { a = "x\ny\n" }, "a: |\n  x\n  y\n" }, { { a = "x\ny" }, "a: |-\n  x\n  y\n" }, { { a = "x\n\ny\n\n" }, 'a: "x\\n\\ny\\n\\n"\n' },
  { { a = "x \ny" }, 'a: "x \\ny"\n' }, { { a = " x\ny" }, 'a: " x\\ny"\n' }, { { a = "x\r\ny" }, 'a: "x\\r\\ny"\n' }, { { a = "x\0y" }, 'a: "x\\0y"\n' }, { "\0", '"\\0"\n' },
  { { yes = { 1, 2 }, b = { { c = 1, d = { 2 } }, { 3, { e = 4 } } } }, "b:\n  - c: 1\n    d: [2]\n  -\n    - 3\n    - e: 4\n\"yes\": [1, 2]\n" },
}

-- Strings and numbers that tend to go wrong.
local odd = {
  "", " ", "\n", "\t", "a\n", "\na", "a\n\nb", "a\n \nb", "a\n\n", "- a", "? a", "a:", ": a", "a: b\nc: d", "#", "a#b", "a #b", "'", '"', "\\", "a\\nb", "%", "%YAML",
  "---", "...", "--- a", "a\n---\nb", "a\n...\n", "&a", "*a", "!a", "!!str", "|", ">", "|\n", "@", "`", "{", "}", "[", "]", ",", "a, b", "{a: b}", "<<", "=",
  "true", "TRUE", "True", "False", "null", "~", "Null", "y", "N", "on", "Off", "nan", ".nan", ".inf", "-.Inf", "inf", "0", "-1", "+1", "1.", ".5", "1e5", "0o7", "0x1f", "0b1",
  "1_0", "1:2", "1:2:3", "2020-01-01", "9007199254740993", "00:0f.0", "0000:0f:00.0", "0-23", "0-3,8", "\1\31\127\27", "\194\133", "\226\128\168", "\226\128\169",
  "\239\187\191", "\239\191\191", "\240\159\152\128", "caf\195\169", ("x"):rep(300), ("long words "):rep(40), "a  b", "a ", "\ta", "a\tb", "a\tb\nc\n", "tab\n\tx\n",
}

local function keys_of(t) return getmetatable(t).keys end

describe("tpl.yaml.decode", function()
  it("gives the shapes of tpl.json: ordered objects, arrays, null", function()
    local t = yaml.decode("z: 1\na: [x, ~]\nm: {}\n")
    assert.same({ "z", "a", "m" }, keys_of(t))
    assert.equal(json.array_mt, getmetatable(t.a))
    assert.equal(json.null, t.a[2])
    assert.equal('{"z": 1, "a": ["x", null], "m": {}}', json.encode(t))
  end)
  it("refuses with an error value that names file and line", function()
    local v, e = yaml.decode("a: 1\nb: *x", { where = "box.yaml" })
    assert.is_nil(v)
    assert.equal("format", e.code)
    assert.equal(6, e.exit)
    assert.equal("box.yaml:2", e.where)
    assert.matches("aliases", e.message)
    assert.is_nil(select(2, yaml.decode("a:")))
  end)
  it("does not expand what a few hundred bytes could blow up", function()
    local lines = { "a: &a [x,x,x,x,x,x,x,x,x]" }
    for i = 1, 30 do lines[#lines + 1] = ("%s%d: &%s%d [*a,*a,*a]"):format("k", i, "k", i) end
    local v, e = yaml.decode(table.concat(lines, "\n"))
    assert.is_nil(v)
    assert.matches("anchors", e.message)
  end)
  it("bounds nesting, also as asked", function()
    assert.truthy(yaml.decode(("["):rep(64) .. ("]"):rep(64)))
    assert.matches("deep", select(2, yaml.decode(("["):rep(65) .. ("]"):rep(65))).message)
    assert.matches("deep", select(2, yaml.decode("[[1]]", { depth = 1 })).message)
    assert.has_error(function() yaml.decode("1", { dept = 3 }) end, "unknown option 'dept'")
  end)
  it("reads several documents where that is asked for", function()
    local docs = yaml.decode_all("kind: Pod\n---\nkind: Service\n---\n")
    assert.equal(3, #docs)
    assert.equal("Service", docs[2].kind)
    assert.equal(json.null, docs[3])
    assert.same({}, { unpack(yaml.decode_all("# nothing\n")) })
    assert.matches("second document", select(2, yaml.decode("a: 1\n---\nb: 2\n")).message)
  end)
  it("finds the line of a value, in JSON too", function()
    assert.equal(3, yaml.line("devices:\n- {uid: a}\n- uid: b\n  numa: x\n", "devices[2].uid"))
    assert.equal(2, yaml.line('{"a": 1,\n"b": 2}', "b"))
    assert.is_nil(yaml.line("a: 1", "c"))
  end)
end)

describe("tpl.yaml.encode", function()
  it("writes what is expected", function()
    for _, case in ipairs(written) do assert.equal(case[2], yaml.encode(case[1])) end
  end)
  it("reads back every text, as a value, a key and an item", function()
    for _, s in ipairs(odd) do
      for _, opts in ipairs { {}, { flow = true } } do
        local v = { { s = s, list = { s, s }, [s .. "k"] = 1, deep = { { a = s }, { b = { s } } } }, json.object { { s, s } }, s }
        local got, e = yaml.decode(yaml.encode(v, opts))
        if e then error(tostring(e) .. ("\n%q\n"):format(s) .. yaml.encode(v, opts)) end
        assert.equal(json.encode(v), json.encode(got))
      end
    end
  end)
  it("reads back random values", function()
    math.randomseed(7)
    local function pick(depth)
      local r = math.random(depth > 4 and 6 or 9)
      if r <= 2 then return odd[math.random(#odd)] end
      if r == 3 then return ({ 0, -1, 1.5, 1e-7, 123456789, 2 ^ 60, -2.5e-300, 1 / 3 })[math.random(8)] end
      if r == 4 then return ({ true, false, json.null })[math.random(3)] end
      if r == 5 then return json.array() end
      if r == 6 then return {} end
      local out = r == 7 and {} or json.array()
      for i = 1, math.random(4) do out[r == 7 and odd[math.random(#odd)] or i] = pick(depth + 1) end
      return out
    end
    for _ = 1, 400 do
      local v = pick(1)
      local text = yaml.encode(v, { flow = math.random(2) == 1 })
      local got, e = yaml.decode(text)
      assert.is_nil(e, text)
      assert.equal(json.encode(v, { sort_keys = true }), json.encode(got, { sort_keys = true }))
    end
  end)
  it("keeps the order of an object, and sorts where asked", function()
    local t = json.object { { "z", 1 }, { "a", 2 } }
    t.b = 3
    assert.equal("z: 1\na: 2\nb: 3\n", yaml.encode(t))
    assert.equal("a: 2\nb: 3\nz: 1\n", yaml.encode(t, { sort_keys = true }))
  end)
  it("puts small mappings of a list on one line each with flow", function()
    local v = json.object { { "links", { { a = "GPU0", b = "GPU1", p2p = { read = "ok" } } } }, { "name", { x = 1 } } }
    assert.equal("links:\n  - {a: GPU0, b: GPU1, p2p: {read: ok}}\nname: {x: 1}\n", yaml.encode(v, { flow = true }))
  end)
  it("writes keys that are too long for 'key:'", function()
    local v = { [("k"):rep(3000)] = { 1, { a = 1 } } }
    assert.same(json.encode(v), json.encode(yaml.decode(yaml.encode(v))))
  end)
  it("refuses what YAML cannot say", function()
    local cycle = {}
    cycle.a = cycle
    for _, v in ipairs { { a = 0 / 0 }, { 1 / 0 }, { a = print }, { a = "\255" }, { a = "\237\160\128" }, { [1] = 1, x = 2 }, cycle, { a = "\192\128" }, { ["a\0"] = 1 } } do
      assert.is_false(pcall(yaml.encode, v))
    end
    assert.has_error(function() yaml.encode(1, { indent = 2 }) end, "unknown option 'indent'")
  end)
end)
