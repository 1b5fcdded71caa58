-- SPDX-License-Identifier: Apache-2.0
-- Expected values: interface.md section 1 and 3 (fields, defaults, exit codes).
local deploy = require("tpl.deploy")
local helper = require("cli.helper")

describe("tpl.deploy", function()
  local folder
  setup(function() folder = helper.folder() end)
  teardown(function() helper.remove(folder) end)

  local function script(text) return helper.write(folder .. "/deploy.lua", text) end

  local function fails(text, words)
    local d, e = deploy.open(script(text), words)
    assert.is_nil(d)
    return e
  end

  it("fills in the defaults of the interface", function()
    local d = assert(deploy.open(script("return tpl.deploy { model = 'm' }")))
    assert.equal("m", d.model)
    assert.equal("auto", d.place)
    assert.equal("megatron", d.layout)
    assert.equal("auto", d.act)
    assert.equal(1, d.pp)
    assert.same({ page = 16, dtype = "auto" }, d.kv)
    assert.same({ tokens = 512 }, d.step)
    assert.same({ concurrency = 16, goal = "throughput" }, d.want)
    assert.is_nil(d.mesh)
    assert.is_nil(d.serve)
    assert.equal(folder, d.origin.dir)
  end)

  it("fills in the defaults of serve when it is given", function()
    local d = assert(deploy.open(script("return tpl.deploy { model = 'm', serve = { port = 9000 } }")))
    assert.equal(9000, d.serve.port)
    assert.equal("127.0.0.1", d.serve.host)
    assert.equal(256, d.serve.queue)
    assert.equal(25, d.serve.drain_s)
  end)

  it("reads a mesh as text, as a list and as one axis", function()
    for _, mesh in ipairs { '"tp=2"', '{{"tp", 2}}', "{tp = 2}" } do
      local d = assert(deploy.open(script("return tpl.deploy { model = 'm', mesh = " .. mesh .. " }")))
      assert.equal("tp=2", tostring(d.mesh))
    end
  end)

  it("converts words by the type of the default", function()
    local text = "local a = tpl.args { tp = 1, model = 'x', fast = false, list = {1} }\n"
      .. "return tpl.deploy { model = a.model, mesh = 'tp=' .. a.tp, threads = a.fast and 2 or 1, shares = { tp = a.list } }"
    local d = assert(deploy.open(script(text), { "tp=2", "model=y=z", "fast=yes", "list=2,1" }))
    assert.equal("tp=2", tostring(d.mesh))
    assert.equal("y=z", d.model)
    assert.equal(2, d.threads)
    assert.same({ tp = { 2, 1 } }, d.shares)
    assert.equal(2, d.origin.args.tp)
  end)

  it("refuses an unknown key with exit 2 and the nearest one", function()
    local e = fails("local a = tpl.args { tp = 1 } return tpl.deploy { model = 'm' }", { "tpp=2" })
    assert.equal(2, e.exit)
    assert.equal("tpp=2", e.where)
    assert.matches("did you mean 'tp'", e.hint)
  end)

  it("refuses words that are no key=value, or whose value is malformed, with exit 2", function()
    local text = "local a = tpl.args { tp = 1, on = true } return tpl.deploy { model = 'm' }"
    for _, word in ipairs { "tp=x", "tp=", "on=maybe", "tp", "=2", "tp=nan" } do
      assert.equal(2, fails(text, { word }).exit, word)
    end
  end)

  it("refuses any word when the file declares none", function()
    assert.equal(2, fails("return tpl.deploy { model = 'm' }", { "tp=2" }).exit)
  end)

  it("refuses an unknown field with exit 3, its line and the nearest name", function()
    local e = fails("return tpl.deploy {\n  model = 'm',\n  layuot = 'x',\n}")
    assert.equal(3, e.exit)
    assert.equal(folder .. "/deploy.lua:3", e.where)
    assert.matches("layuot", e.message)
    assert.matches("did you mean 'layout'", e.hint)
  end)

  it("refuses unknown fields inside tables too", function()
    for field, text in pairs {
      page_size = "kv = { page_size = 1 }", token = "step = { token = 1 }", ctx = "want = { ctx = 1 }", only_ = "devices = { only_ = {} }",
      prot = "serve = { prot = 1 }", layer = "stages = { { layer = {0, 1} } }",
    } do
      local e = fails("return tpl.deploy { model = 'm', " .. text .. " }")
      assert.equal(3, e.exit)
      assert.matches(field, e.message, 1, true)
    end
  end)

  it("refuses values out of range with exit 3", function()
    for _, text in ipairs {
      "act = 'f16'", "pp = 0", "pp = 1.5", "threads = 0", "kv = { page = 0 }", "kv = { dtype = 'q8' }", "kv = 5", "step = { chunk = 513 }",
      "want = { goal = 'fun' }", "mesh = 'tp=0'", "mesh = 'tp:2'", "mesh = 'tp=2,tp=2'", "shares = { 1, 2 }", "shares = { tp = { 0 } }",
      "stages = {}", "stages = { { layers = { 3, 1 } } }", "layout = 5", "place = 5", "require = { link = 1 }", "model = ''",
    } do
      local e = fails("return tpl.deploy { model = 'm', " .. text .. " }")
      assert.equal(3, e.exit, text)
      assert.matches("deploy.lua:1$", e.where)
    end
  end)

  it("needs a model", function()
    assert.matches("model", fails("return tpl.deploy {}").message)
  end)

  it("gives file:line of errors in the script, also of the syntax", function()
    assert.equal(folder .. "/deploy.lua:2", fails("local x\nreturn x.y.z").where)
    assert.equal(folder .. "/deploy.lua:2", fails("local x = 1\nretrun x").where)
    local e = fails("\n\nreturn tpl.deploy { model = modle }")
    assert.equal(folder .. "/deploy.lua:3", e.where)
    assert.matches("undefined global 'modle'", e.message)
    assert.equal(3, e.exit)
  end)

  it("refuses a file that returns something else", function()
    assert.equal(3, fails("return { model = 'm' }").exit)
    assert.equal(3, fails("").exit)
  end)

  it("refuses bytecode, a folder and a missing file", function()
    assert.equal(3, fails(string.dump(function() end)).exit)
    helper.write(folder .. "/dir.lua/x", "")
    local _, e = deploy.open(folder .. "/dir.lua")
    assert.equal(2, e.exit)
    _, e = deploy.open(folder .. "/none.lua")
    assert.equal(2, e.exit)
  end)

  it("keeps what a script defines out of the globals", function()
    assert(deploy.open(script("leaked_by_spec = 1 return tpl.deploy { model = 'm' }")))
    assert.is_nil(rawget(_G, "leaked_by_spec"))
  end)

  it("makes a deployment of a MODEL with the keys of the interface", function()
    local d = assert(deploy.open("m.gguf", {
      "act=f32", "tp=3", "pp=2", "layout=megatron_sp", "shares=2,1,1", "threads=2", "kv.tokens=4e3", "kv.page=64", "kv.dtype=f32", "step.tokens=64",
      "step.chunk=7", "want.context=100", "want.concurrency=2",
    }))
    assert.equal("tp=3", tostring(d.mesh))
    assert.equal(2, d.pp)
    assert.same({ tp = { 2, 1, 1 } }, d.shares)
    assert.same({ tokens = 4000, page = 64, dtype = "f32" }, d.kv)
    assert.same({ tokens = 64, chunk = 7 }, d.step)
    assert.equal(100, d.want.context)
    assert.equal("dp=2:batch,tp=2", tostring(assert(deploy.open("m", { "mesh=dp=2:batch,tp=2" })).mesh))
  end)

  it("refuses bad words for a MODEL with exit 2", function()
    for _, word in ipairs { "tp=0", "tp=1.5", "mesh=tp", "act=f16", "kv.page=x", "kv.pages=1", "model=x", "step.chunk=9999", "deploy.tp=2", "pp=0", "shares=a" } do
      local d, e = deploy.open("m.gguf", { word })
      assert.is_nil(d, word)
      assert.equal(2, e.exit, word)
    end
    local _, e = deploy.open("m", { "tp=2", "mesh=tp=2" })
    assert.equal(2, e.exit)
  end)

  it("takes the same keys for a FILE with the prefix deploy.", function()
    local text = "local a = tpl.args { tp = 1 } return tpl.deploy { model = 'm', mesh = 'tp=' .. a.tp, kv = { page = 4, dtype = 'f32' } }"
    local d = assert(deploy.open(script(text), { "deploy.act=f32", "deploy.kv.page=64", "deploy.tp=2" }))
    assert.equal("f32", d.act)
    assert.same({ page = 64, dtype = "f32" }, d.kv)
    assert.equal("tp=2", tostring(d.mesh))
    assert.equal(2, fails(text, { "deploy.acts=f32" }).exit)
    assert.equal(2, fails(text, { "act=f32" }).exit)
  end)

  it("takes a table of args from Lua", function()
    local d = assert(deploy.open(script("local a = tpl.args { tp = 1 } return tpl.deploy { model = 'm', pp = a.tp }"), { tp = 3 }))
    assert.equal(3, d.pp)
  end)

  it("works without a script file, with tpl.args giving its defaults", function()
    local a = deploy.args { tp = 2 }
    assert.equal(2, a.tp)
    assert.equal("m", deploy { model = "m" }.model)
    assert.has_error(function() deploy { model = "m", modle = 1 } end)
  end)

  it("accepts the hello example", function()
    local d = assert(deploy.open("examples/hello.lua", { "tp=3" }))
    assert.equal("smollm2", d.model)
    assert.equal("tp=3", tostring(d.mesh))
  end)
end)
