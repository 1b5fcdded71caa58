-- SPDX-License-Identifier: Apache-2.0
-- Expected values: interface.md section 1 (what a placement is, order of search), issue "Topology and placement" (an error is one line with the
-- policy's file and line), layout.md section 4 (budget of the hook `place`). Line numbers are counted by hand.
local helper = require("cli.helper")
local machines = require("policy.machines")
local policy = require("tpl.policy")

local gpu = machines.gpu

describe("tpl.policy", function()
  local folder
  before_each(function() folder = helper.folder() end)
  after_each(function() helper.remove(folder) end)

  local topo = machines.machine { gpu(0), gpu(1), gpu(2), gpu(3) }
  local model = machines.model(4)

  local function file(text, name) return helper.write(folder .. "/" .. (name or "p.lua"), text) end

  -- Runs the text of a policy; gives the placement, or nil and the error.
  local function try(text, o, t)
    local p, e = policy.load(file(text))
    if not p then return nil, e end
    return policy.run(p, t or topo, model, {}, o)
  end

  local function fails(text, line, message, o, t)
    local placement, e = try(text, o, t)
    assert.is_nil(placement)
    assert.equal("policy_error", e.code, tostring(e))
    assert.equal(3, e.exit)
    assert.equal(folder .. "/p.lua:" .. line, e.where, tostring(e))
    assert.matches(message, e.message)
    assert.is_nil(tostring(e):find("\n", 1, true))
    return e
  end

  describe("load", function()
    it("takes a file that returns a function, or a table with one as place", function()
      local text = "return function() return { replicas = { { devices = { 'GPU1' } } } } end"
      local p = assert(policy.load(file(text)))
      assert.same({ folder .. "/p.lua:1", "path" }, { p.where, p.from })
      p = assert(policy.load(file("local M = {}\nfunction M.place() return { replicas = { { devices = { 'GPU1' } } } } end\nreturn M")))
      assert.equal(folder .. "/p.lua:2", p.where)
      assert.same({ { stages = { { devices = { "GPU1" }, layers = { 0, 3 } } } } }, assert(policy.run(p, topo, model, {})).replicas)
    end)

    it("searches a name beside deploy.lua in policies/, a text with / or .lua from that folder", function()
      local path = file("return function() end", "policies/mine.lua")
      local p = assert(policy.load("mine", folder))
      assert.same({ path, "beside deploy.lua", "mine" }, { p.file, p.from, p.name })
      assert.equal(path, assert(policy.load("policies/mine.lua", folder)).file)
    end)

    it("finds the policies that come with tpl", function()
      local sys = require("tpl.core").sys
      local name = "spec_of_policy_" .. sys.pid()
      helper.write("policies/" .. name .. ".lua", "return function() end")
      local p, e = policy.load(name, folder)
      os.remove("policies/" .. name .. ".lua")
      assert(p, e)
      assert.equal("policies/" .. name .. ".lua", p.file) -- the working folder of the specs is the source tree
    end)

    it("refuses an unknown name with exit 3 and what is known", function()
      file("return function() end", "policies/pairs_first.lua")
      local p, e = policy.load("pairs_frist", folder)
      assert.is_nil(p)
      assert.same({ "policy_error", 3, "did you mean 'pairs_first'?" }, { e.code, e.exit, e.hint })
    end)

    it("refuses a file that does not compile, fails, or returns no function, with its line", function()
      local function refused(text, line, message)
        local p, e = policy.load(file(text))
        assert.is_nil(p)
        assert.same({ "policy_error", 3, folder .. "/p.lua:" .. line }, { e.code, e.exit, e.where })
        assert.matches(message, e.message)
      end
      refused("\nreturn function(\n", 3, "expected")
      refused("\nlocal x = nil\nreturn x.y", 3, "index local 'x'")
      refused("\nreturn undefined_name", 2, "undefined_name")
      refused("\n\nreturn 7", 3, "got a number")
      refused("local x = 1", 1, "got nothing")
      refused("return { plaec = print }", 1, "a table without one")
      refused("return { place = function() end, except = { 'unchosen_free' } }", 1, "except")
    end)

    it("refuses values that are no policy", function()
      assert.equal("policy_error", select(2, policy.load(7)).code)
      assert.equal("policy_error", select(2, policy.load(print)).code)
    end)
  end)

  describe("run", function()
    it("gives stages in long form, and joins reasons of both results", function()
      local p = assert(try [[return function(topo, model, want)
        return { replicas = { { devices = { "GPU0", "GPU1" }, mesh = "tp=2" },
          { stages = { { devices = { "GPU3" }, layers = { 0, 1 } }, { devices = { "GPU2" }, layers = { 2, 3 } } } } },
          reasons = { "a" }, excluded = {} }, { "b" }
      end]])
      assert.same({ "a", "b" }, p.reasons)
      assert.same({ devices = { "GPU0", "GPU1" }, mesh = "tp=2", layers = { 0, 3 } }, p.replicas[1].stages[1])
      assert.same({ { 0, 1 }, { 2, 3 } }, { p.replicas[2].stages[1].layers, p.replicas[2].stages[2].layers })
    end)

    it("names file and line of a Lua error, in the function or in a helper of the file", function()
      fails("return function(topo)\n  local x\n  return x.y\nend", 3, "index local 'x'")
      fails("local function help(t)\n  return t.a.b\nend\nreturn function(topo)\n  local r = help({})\n  return r\nend", 2, "index field 'a'")
      fails("return function(topo)\n  error('no way', 0)\nend", 2, "^no way$")
      fails("return function(topo)\n  error({})\nend", 2, "a value of type table")
      fails("return function(topo)\n  require('tpl.err').throw { code = 'usage', message = 'odd' }\nend", 2, "^odd$")
      fails("return function(topo)\n  local n = nothing_of_this_name\nend", 2, "undefined global 'nothing_of_this_name'")
    end)

    it("names the line of the return for what is returned", function()
      fails("return function(topo)\n  if topo then\n    return 7\n  end\n  return nil\nend", 3, "is the number 7")
      fails("return function(topo)\n  return {\n    replicas = {},\n  }\nend", 2, "replicas is empty")
    end)

    it("takes nil with a reason for a refusal: exit 4", function()
      local placement, e = try("return function()\n  return nil, 'no two whole GPUs'\nend")
      assert.is_nil(placement)
      assert.same({ "no_fit", 4, folder .. "/p.lua:2", "no two whole GPUs" }, { e.code, e.exit, e.where, e.message })
    end)

    it("takes nil without one for an error", function()
      fails("return function()\n  return nil\nend", 2, "gave nil and no reason")
      fails("\nlocal function place()\nend\nreturn place", 3, "gave nil and no reason")
    end)

    it("gives the policy copies: nothing it writes is seen outside", function()
      local before = machines.machine { gpu(0), gpu(1) }
      local shared = machines.machine { gpu(0), gpu(1) }
      assert(try([[return function(topo, model, want)
        topo.devices[1].uid, topo.links[1].kind, model.n_layer, want.goal = "x", "nvlink", 1, "y"
        table.remove(topo.devices, 1)
        return { replicas = { { devices = { "GPU1" } } } }
      end]], nil, shared))
      assert.same(before, shared)
      assert.equal(4, model.n_layer)
    end)

    it("keeps methods, and what they find is in the copy", function()
      local class = { __index = { dev = function(self, uid) return self.by[uid] end } }
      local t = setmetatable(machines.machine { gpu(0) }, class)
      t.by = { GPU0 = t.devices[1] }
      assert(try([[return function(topo)
        assert(topo:dev("GPU0") == topo.devices[1])
        topo:dev("GPU0").usable = false
        return { replicas = { { devices = { "GPU0" } } } }
      end]], nil, t))
      assert.is_true(t.devices[1].usable)
    end)

    it("draws the same random numbers each time, and leaves the caller's alone", function()
      local text = "return function() return { replicas = { { devices = { 'GPU0' } } }, reasons = { tostring(math.random(1e9)) } } end"
      local a, b = try(text), try(text)
      assert.same(a.reasons, b.reasons)
      math.randomseed(5)
      local first = math.random(1e9)
      try(text)
      local second = math.random(1e9)
      assert.are_not.equal(first, second)
    end)

    it("stops an endless loop, also one that catches errors", function()
      for _, text in ipairs {
        "return function()\n  while true do end\nend",
        "local function spin()\n  while true do end\nend\nreturn function()\n  for i = 1, 1e3 do pcall(spin) end\n  while true do pcall(spin) end\nend",
        "local t = { f = function() local n = 0 repeat n = n + 1 until n < 0 end }\nreturn function() t.f() end",
        "return function()\n  local co = coroutine.wrap(function() while true do end end)\n  co()\nend",
      } do
        local start = os.clock()
        local placement, e = try(text, { hard_s = 0.1 })
        assert.is_nil(placement)
        assert.matches("^it ran for more than 0.1 s", e.message)
        assert.equal(3, e.exit)
        assert.matches("/p.lua:%d+$", e.where)
        assert.is_true(os.clock() - start < 5)
      end
    end)

    it("warns of a slow one", function()
      local now = 0
      local function clock() now = now + 6 return now end
      local p = assert(policy.load(file("return function() return { replicas = { { devices = { 'GPU0' } } } } end")))
      local _, warnings = policy.run(p, topo, model, {}, { clock = clock })
      assert.equal("policy_slow", warnings[1].code)
    end)

    it("leaves a hook of the caller in place", function()
      local hook = function() end
      debug.sethook(hook, "", 1e6)
      try("return function() return { replicas = { { devices = { 'GPU0' } } } } end")
      local now = debug.gethook()
      debug.sethook()
      assert.equal(hook, now)
    end)

    it("lets through what the library says about machine and model", function()
      local _, e = try("return function()\n  require('tpl.err').throw { code = 'missing_model', exit = 6, message = 'name a GPU', hint = '--assume' }\nend")
      assert.same({ "missing_model", 6, folder .. "/p.lua:2" }, { e.code, e.exit, e.where })
    end)

    it("stays cheap on 1,024 devices", function()
      local devices, links = {}, {}
      for h = 0, 127 do
        for i = 0, 7 do
          devices[#devices + 1] = gpu(i, { uid = "host" .. h .. "/GPU" .. i, host = "host" .. h, uuid = "GPU-" .. h .. "-" .. i, mig = { mode = "off" },
            fabric = { state = "completed" }, pcie = { gen = 5, width = 16 }, busy = { pids = {} }, labels = {}, health = {} })
          for j = i + 1, 7 do
            links[#links + 1] = { a = "host" .. h .. "/GPU" .. i, b = "host" .. h .. "/GPU" .. j, kind = "nvlink", p2p = { read = "ok", write = "ok" } }
          end
        end
      end
      local cluster = machines.machine {}
      cluster.devices, cluster.links = devices, links
      local start = os.clock()
      assert(try("return function() return { replicas = { { devices = { 'host7/GPU3' } } } } end", nil, cluster))
      assert.is_true(os.clock() - start < 0.5) -- 10 ms here, most of it the copy
    end)
  end)
end)
