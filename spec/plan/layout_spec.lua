-- SPDX-License-Identifier: Apache-2.0
-- What a layout may say, and what is refused: layout.md 2.1 to 2.3 and 5.11 (typos are errors), interface.md section 1.
local support = dofile("spec/plan/support.lua")
local err = require "tpl.err"
local layout = require "tpl.plan.layout"
local model = require "tpl.model"
local typing = require "tpl.plan.typing"
local R, S = layout.R, layout.S

local llama = model.load("llama")

local function build(mesh, l, opt)
  local o = { model = llama, config = support.config(), mesh = mesh, layout = l, where = "deploy.lua:7" }
  for k, v in pairs(opt or {}) do o[k] = v end
  return err.try(typing.build, o)
end
local function refused(mesh, l, text, opt)
  local g, e = build(mesh, l, opt)
  assert.is_nil(g)
  assert(e.message:find(text, 1, true), e.message)
  assert.are.equal(3, e.exit)
  return e
end

describe("layout words", function()
  it("print as Lua text", function()
    assert.are.equal("R", tostring(R))
    assert.are.equal('S{ffn="tp", tok={"dp", "tp"}}', tostring(S { tok = { "dp", "tp" }, ffn = "tp" }))
    assert.are.equal('{at={["attn.in"]=R}, norm_stats=true, split={kvh=tpl.gqa("tp")}}',
      layout.text { split = { kvh = layout.gqa "tp" }, at = { ["attn.in"] = R }, norm_stats = true })
  end)
  it("read back", function()
    local patch = layout.parse('{at={["attn.in"]=R, logits=S{vocab="tp"}}, shares={tp={2, 1}}}')
    assert.are.equal(R, patch.at["attn.in"])
    assert.are.same({ vocab = "tp" }, patch.at.logits.split)
    assert.are.same({ 2, 1 }, patch.shares.tp)
  end)
end)

describe("layout objects", function()
  it("know where they were written", function()
    local l = layout { split = { kvh = "tp" } }
    assert.is_truthy(layout.where(l):find("layout_spec.lua:%d+$"))
  end)
  it("extend field by field and stay as they were", function()
    local a = layout { split = { kvh = "tp", ffn = "tp" }, at = { ["*.in"] = R, ["*.out"] = R } }
    local b = a:extend { split = { ffn = false }, at = { ["*.out"] = S { tok = "tp" } }, norm_stats = true }
    assert.are.same({ kvh = "tp" }, b.split)
    assert.are.equal(R, b.at["*.in"])
    assert.are.same({ tok = "tp" }, b.at["*.out"].split)
    assert.is_true(b.norm_stats)
    assert.are.same({ kvh = "tp", ffn = "tp" }, a.split)
    assert.are.equal(R, a.at["*.out"])
  end)
  it("refuse unknown fields and wrong kinds", function()
    for text, t in pairs {
      ["layout has no field 'att'"] = { att = {} }, ["layout.at expects a table"] = { at = R },
      ["layout.at['*.in'] expects R or S{..}"] = { at = { ["*.in"] = "tp" } },
      ["layout.split['kvh'] expects an axis"] = { split = { kvh = 3 } },
      ["layout.norm_stats expects true or false"] = { norm_stats = 1 },
      ["layout.phase: 'warmup'"] = { phase = { warmup = {} } },
      ["layout.phase.decode has no field 'x'"] = { phase = { decode = { x = 1 } } },
    } do
      local _, e = err.try(layout.new, t)
      assert.are.equal("layout_error", e.code)
      assert(e.message:find(text, 1, true), e.message)
      assert.is_truthy(e.where:find("layout_spec.lua", 1, true))
    end
  end)
end)

describe("binding", function()
  local mega = support.mega
  it("refuses names that nothing has", function()
    refused("tp=2", mega { split = { kvh = "tp", fnn = "tp" } }, "layout.split: the model has no dim 'fnn' (dims: embd,ffn,grp,hd,kvh,vocab)")
    refused("dp=2", mega(), "layout.split: the mesh has no axis 'tp' (axes: dp)")
    refused("tp=2", mega { at = { ["*.inn"] = R } }, "layout.at['*.inn'] matches no mark")
    refused("tp=2", mega { at = { ["mlp.in"] = S { ffn = "tp" } } }, "layout.at['mlp.in']: nothing there has dim 'ffn'")
    refused("tp=2", mega { at = { ["mlp.in"] = S { fnn = "tp" } } }, "the model has no dim 'fnn'")
    refused("tp=2", mega { weights = { ["*.kproj"] = R } }, "layout.weights['*.kproj'] matches no weight")
    refused("tp=2", mega { input = S { embd = "tp" } }, "layout.input: nothing there has dim 'embd'")
    refused("tp=2", mega { kv = { pos = "cp" } }, "layout.kv.pos: the mesh has no axis 'cp'")
    refused("tp=2", mega { kv = { tok = "tp" } }, "only 'pos' is known")
    refused("tp=2", mega { map = { kvh = {} } }, "a key is dim@axis")
    refused("tp=2", mega { map = { ["tok@tp"] = {} } }, "no dim 'tok'")
    local e = refused("tp=2", mega { att = {} }, "layout has no field 'att'")
    assert.are.equal("deploy.lua:7", e.where)
  end)
  it("lets the longest glob win and refuses a tie", function()
    local g = build("tp=2", mega { at = { ["*.in"] = R, ["*.out"] = R, ["mlp.out"] = S { tok = "tp" }, logits = S { vocab = "tp" } } })
    local show = {}
    for _, m in ipairs(g.marks) do show[m.full] = m.show end
    assert.are.equal("[tok@tp,embd]", show["blk.0.mlp.out"])
    assert.are.equal("[tok,embd]", show["blk.0.attn.out"])
    refused("tp=2", mega { at = { ["*.in"] = R, ["a*in"] = R } }, "'*.in' and 'a*in' both match 'attn.in' and are equally long")
  end)
  it("takes the full name of a mark for one layer", function()
    local g = build("tp=2", mega { at = { ["*.in"] = R, ["*.out"] = R, ["blk.1.mlp.out"] = S { tok = "tp" } } })
    local show = {}
    for _, m in ipairs(g.marks) do show[m.full] = m.show end
    assert.are.equal("[tok,embd]", show["blk.0.mlp.out"])
    assert.are.equal("[tok@tp,embd]", show["blk.1.mlp.out"])
  end)
  it("checks shares, and refuses them on an alias with its axes named", function()
    assert.is_truthy(build("tp=2", mega { shares = { tp = { 2, 1 } } }))
    refused("tp=2", mega { shares = { tp = { 2, 1, 1 } } }, "3 shares for 2 ranks")
    refused("tp=2", mega { shares = { tp = { 2, 0 } } }, "above 0")
    refused("tp=2", mega { shares = { cp = { 2, 1 } } }, "no axis 'cp'")
    refused("tp=4", layout.use("megatron", { shares = { tp = { 1, 1, 2, 2 } } }), "'tp' is an alias, give shares for its axes tk, tg")
    assert.is_truthy(build("tp=4", layout.use("megatron", { shares = { tk = { 2, 1 } } })))
  end)
  it("refuses what this version does not have, in so many words", function()
    refused("tp=2", mega { replace = { attend = function() end } }, "not in this version")
    refused("tp=2", mega { at = { ["attn.out"] = function() end } }, "not in this version")
  end)
  it("changes activations by phase and nothing else", function()
    local base = layout(mega())
    local two = layout { split = base.split, phase = { decode = base, prefill = base:extend { at = { ["*.out"] = S { tok = "tp" } } } } }
    local function comms(phase)
      local n = {}
      for _, op in ipairs(build("tp=2", two, { phase = phase }).ops) do n[op.kind] = (n[op.kind] or 0) + 1 end
      return n
    end
    assert.are.equal(5, comms("decode").all_reduce)
    assert.are.equal(5, comms("prefill").reduce_scatter)
    refused("tp=2", layout { split = base.split, phase = { decode = base, prefill = base:extend { split = { ffn = R } } } },
      "layout.phase.prefill.split: state is placed alike in all phases", { phase = "decode" })
  end)
  it("takes functions of ctx, and a mesh of the layout's own", function()
    local seen
    local g = build("tp=4", function(ctx)
      seen = { ctx.mesh.n, ctx:units("kvh"), ctx.dims.ffn, ctx.layers.last }
      return layout { mesh = "ta=2,tb=2", split = { ffn = "ta" }, at = { ["*.out"] = R } }
    end)
    assert.are.same({ 4, 3, 1536, 1 }, seen)
    assert.are.equal("ta=2,tb=2", tostring(g.mesh))
    refused("tp=4", layout { mesh = "ta=3" }, "has 3 ranks")
  end)
end)

describe("gqa", function()
  local function factored(n, c)
    return tostring(build("tp=" .. n, "megatron", { config = support.config(c) }).mesh)
  end
  it("takes the largest divisor that KV heads allow", function()
    local smol = { n_head = 9, n_kv = 3 }
    for n, want in pairs { [1] = "tp=1", [2] = "tp=2", [3] = "tp=3", [4] = "tk=2,tg=2", [6] = "tk=3,tg=2", [9] = "tk=3,tg=3" } do
      assert.are.equal(want, factored(n, smol))
    end
    assert.are.equal("tk=4,tg=2", factored(8, { n_head = 16, n_kv = 4 }))
    assert.are.equal("tk=5,tg=2", factored(10, { n_head = 10, n_kv = 5, hidden = 640 }))
  end)
  it("repeats K and V along the inner axis", function()
    local g = build("tp=4", "megatron")
    local show = {}
    for _, m in ipairs(g.marks) do show[m.full] = m.show end
    assert.are.equal("[tok,kvh@tk,grp@tg,hd]", show["blk.0.attn.q"])
    assert.are.equal("[tok,kvh@tk,hd]", show["blk.0.attn.kv"])
    assert.are.same({ tk = { k = "S", dim = "kvh" } }, g.weights["blk.0.k_proj"].pl)
    assert.are.same({ tk = { k = "S", dim = "kvh" }, tg = { k = "S", dim = "grp" } }, g.weights["blk.0.o_proj"].pl)
    assert.are.same({ tk = { k = "S", dim = "ffn" }, tg = { k = "S", dim = "ffn" } }, g.weights["blk.0.up_proj"].pl)
  end)
  it("gives the plain message where no factoring exists", function()
    local e = refused("tp=5", "megatron", "dim 'kvh' (3 units) cannot feed 5 ranks on axis tp")
    assert.is_truthy(e.hint:find("4 = 2x2, 6 = 3x2, 9 = 3x3", 1, true))
    refused("tp=2", layout { split = { ffn = layout.gqa "tp" } }, "tpl.gqa is for dim kvh")
  end)
end)

describe("layout files", function()
  local dir
  before_each(function()
    dir = os.tmpname()
    os.remove(dir)
    os.execute("mkdir -p " .. dir .. "/layouts " .. dir .. "/more/layouts")
  end)
  after_each(function() os.execute("rm -r " .. dir) end)
  local function write(path, text)
    local f = assert(io.open(dir .. "/" .. path, "w"))
    f:write(text)
    f:close()
  end
  it("are found by name beside deploy.lua, in TPL_PATH, and built in", function()
    write("layouts/mine.lua", '-- a comment\nreturn tpl.use("megatron"):extend { at = { ["*.out"] = S { tok = "tp" } } }\n')
    write("more/layouts/other.lua", 'return { split = { ffn = "tp" }, at = { ["*.out"] = R } }\n')
    local g = build("tp=2", "mine", { find = { dir = dir } })
    assert.are.equal(dir .. "/layouts/mine.lua", g.file)
    assert.is_truthy(build("tp=2", "other", { find = { dir = dir, path = dir .. "/more" } }))
    assert.is_truthy(build("tp=2", dir .. "/layouts/mine.lua"))
    assert.is_truthy(build("tp=2", "layouts/mine.lua", { find = { dir = dir } }))
    assert.is_truthy(build("tp=2", "megatron_sp").file:find("layouts/megatron_sp.lua$"))
  end)
  it("fail with their file and line", function()
    local e = refused("tp=2", "nosuch", "unknown layout 'nosuch'", { find = { dir = dir } })
    assert.is_truthy(e.message:find(dir .. "/layouts/nosuch.lua", 1, true))
    write("layouts/broken.lua", "return {\n  at = = 3\n}\n")
    e = refused("tp=2", "broken", "unexpected symbol", { find = { dir = dir } })
    assert.are.equal(dir .. "/layouts/broken.lua:2", e.where)
    write("layouts/crash.lua", "local x\nreturn x.y\n")
    e = refused("tp=2", "crash", "attempt to index", { find = { dir = dir } })
    assert.are.equal(dir .. "/layouts/crash.lua:2", e.where)
    write("layouts/typo.lua", 'return tpl.layout {\n  split = { kvh = "tq" },\n}\n')
    e = refused("tp=2", "typo", "no axis 'tq'", { find = { dir = dir } })
    assert.are.equal(dir .. "/layouts/typo.lua:1", e.where)
  end)
end)
