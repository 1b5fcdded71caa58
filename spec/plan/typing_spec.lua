-- SPDX-License-Identifier: Apache-2.0
-- The typed graph of the named layouts. Expected placements and collectives are worked out by hand from the rules in
-- layout.md 2.4 and 2.5; counts of collectives from layout.md 3.2 ("2 all_reduce per layer + 1 at embed + gather").
local support = dofile("spec/plan/support.lua")
local err = require "tpl.err"
local layout = require "tpl.plan.layout"
local marks = require "tpl.plan.marks"
local mesh = require "tpl.plan.mesh"
local model = require "tpl.model"
local partition = require "tpl.plan.partition"
local trace = require "tpl.plan.trace"
local typing = require "tpl.plan.typing"
local R, S, mega = layout.R, layout.S, support.mega

local llama = model.load("llama")

local function build(m, l, opt)
  local o = { model = llama, config = support.config(), mesh = m, layout = l }
  for k, v in pairs(opt or {}) do o[k] = v end
  local g, e = err.try(typing.build, o)
  if not g then error(e.text or tostring(e)) end
  return g
end
local function kinds(g)
  local n = {}
  for _, op in ipairs(g.ops) do n[op.kind] = (n[op.kind] or 0) + 1 end
  return n
end
local function comms(g)
  local out = {}
  for _, op in ipairs(g.ops) do
    if op.attrs.axes then
      out[#out + 1] = ("%s %s %s"):format(op.kind, table.concat(op.attrs.axes, "+"), op.kind == "gather" and "sample" or op.mark)
    end
  end
  return out
end
local function shows(g)
  local out = {}
  for _, m in ipairs(g.marks) do out[m.full] = m.show end
  return out
end
local function counts(g, dim, axes)
  local out = {}
  for i, ranges in ipairs(g.parts(dim, axes)) do out[i] = partition.count(ranges) end
  return table.concat(out, "/")
end
local function find(g, name)
  for _, op in ipairs(g.ops) do if op.name == name then return op end end
end

describe("megatron", function()
  it("has two all_reduce per layer, one after the embedding and a gather", function()
    local g = build("tp=2", "megatron")
    assert.are.same({
      "all_reduce tp embed.out", "all_reduce tp blk.0.attn.out", "all_reduce tp blk.0.mlp.out",
      "all_reduce tp blk.1.attn.out", "all_reduce tp blk.1.mlp.out", "gather tp sample",
    }, comms(g))
    local show = shows(g)
    assert.are.equal("[tok,embd]", show["embed.out"])
    assert.are.equal("[tok,kvh@tp,grp,hd]", show["blk.0.attn.core"])
    assert.are.equal("[tok,ffn@tp]", show["blk.0.mlp.up"])
    assert.are.equal("[out,embd]", show["head.in"])
    assert.are.equal("[out,vocab@tp]", show.logits)
  end)

  it("splits SmolLM2's three KV heads 2/1, its nine heads 6/3", function()
    local g = build("tp=2", "megatron", { dtype = function(n) return n:find("norm") and "f32" or "q4_1" end })
    assert.are.equal("2/1", counts(g, "kvh", { "tp" }))
    assert.are.same({ { { 0, 2 } }, { { 2, 1 } } }, g.parts("kvh", { "tp" }))
    assert.are.equal("768/768", counts(g, "ffn", { "tp" }))
    assert.are.equal("24576/24576", counts(g, "vocab", { "tp" }))
    assert.is_nil(g.parts("tok", { "tp" }))
    assert.are.equal("q4_1", g.weights["blk.0.q_proj"].dtype)
  end)

  it("plans Llama 70B over three", function()
    local g = build("tp=3", "megatron", { config = support.llama70b { n_layer = 80 } })
    assert.are.equal("3/3/2", counts(g, "kvh", { "tp" }))
    assert.are.equal("9600/9600/9472", counts(g, "ffn", { "tp" }))
    assert.are.equal("42752/42752/42752", counts(g, "vocab", { "tp" }))
    assert.are.equal(161, kinds(g).all_reduce)
  end)

  it("follows shares and maps", function()
    local c = support.config { n_head = 16, n_kv = 4, hidden = 1024 }
    assert.are.equal("4/2/2", counts(build("tp=3", mega { shares = { tp = { 2, 1, 1 } } }, { config = support.llama70b() }), "kvh", { "tp" }))
    local map = { ["kvh@tp"] = { { { 0, 1 }, { 3, 1 } }, { { 1, 1 } }, { { 2, 1 } } } }
    assert.are.same(map["kvh@tp"], build("tp=3", mega { map = map }, { config = c }).parts("kvh", { "tp" }))
    assert.are.equal("2/1", counts(build("tp=2", mega(), { shares = { tp = { 2, 1 } } }), "kvh", { "tp" }))
  end)

  it("types axes of size 1 and leaves them out of the graph", function()
    local g = build("dp=1,tp=1", mega())
    assert.are.same({}, comms(g))
    for _, v in ipairs(g.values) do assert.are.same({}, v.pl) end
    for _, w in pairs(g.weights) do assert.are.same({}, w.pl) end
    local wrong = mega { at = { ["embed.out"] = R } }
    local _, e = err.try(typing.build, { model = llama, config = support.config(), mesh = "tp=1", layout = wrong })
    assert.are.equal("layout_conflict", e.code)
  end)
end)

describe("sequence parallel", function()
  it("turns all_reduce into reduce_scatter and all_gather", function()
    local g = build("tp=2", "megatron_sp")
    assert.are.same({
      "reduce_scatter tp embed.out",
      "all_gather tp blk.0.attn.in", "reduce_scatter tp blk.0.attn.out", "all_gather tp blk.0.mlp.in", "reduce_scatter tp blk.0.mlp.out",
      "all_gather tp blk.1.attn.in", "reduce_scatter tp blk.1.attn.out", "all_gather tp blk.1.mlp.in", "reduce_scatter tp blk.1.mlp.out",
      "all_reduce tp head.in", "gather tp sample",
    }, comms(g))
    local op = find(g, "blk.0.attn.out.reduce_scatter")
    assert.are.equal("tok", op.attrs.dim)
    assert.are.equal("sum", op.attrs.op)
    assert.are.same({ tp = { k = "P", op = "sum" } }, op.ins[1].pl)
    assert.are.same({ tp = { k = "S", dim = "tok" } }, op.outs[1].pl)
    assert.are.same({ tp = { k = "P", op = "sum" } }, find(g, "rows").outs[1].pl)
    assert.are.equal("tok", find(g, "blk.0.attn.in.all_gather").attrs.from)
  end)
end)

describe("other layouts", function()
  it("puts the residual on one axis and the heads on another (2D)", function()
    local l = { split = { kvh = "tx", ffn = "tx", vocab = "tx", embd = "ty" }, norm_stats = true, weights = { ["*norm"] = R },
      at = { ["*.out"] = S { embd = "ty" }, ["*.in"] = S { embd = "ty" }, ["attn.q"] = S { kvh = "tx" }, ["attn.kv"] = S { kvh = "tx" },
        ["mlp.up"] = S { ffn = "tx" }, logits = S { vocab = "tx" } } }
    local g = build("tx=2,ty=2", l, { config = support.config { n_layer = 1, n_kv = 4, n_head = 16 } })
    assert.is_true(g.needs.norm_stats)
    assert.are.same({
      "all_reduce tx embed.out", "all_reduce ty blk.0.attn.q", "all_reduce ty blk.0.attn.kv", "all_reduce ty blk.0.attn.kv",
      "all_reduce tx blk.0.attn.out", "all_reduce ty blk.0.mlp.up", "all_reduce ty blk.0.mlp.up", "all_reduce tx blk.0.mlp.out",
      "all_reduce ty logits", "gather tx sample",
    }, comms(g))
    local norm = find(g, "blk.0.input_layernorm")
    assert.are.same({ "ty" }, norm.attrs.stats)
    -- the vector is R in the layout and met by a split x: it is loaded cut
    assert.are.same({ ty = { k = "S", dim = "embd" } }, g.weights["blk.0.input_layernorm"].pl)
  end)

  it("gathers KV where tokens are cut inside requests", function()
    local tok = S { tok = "cp" }
    local l = { split = { kvh = "tp", ffn = "tp", vocab = "tp" }, input = tok, at = { ["*.out"] = tok, ["*.in"] = tok,
      ["attn.q"] = S { tok = "cp", kvh = "tp" }, ["attn.kv"] = S { kvh = "tp" }, ["attn.core"] = S { tok = "cp", kvh = "tp" }, ["head.in"] = R,
      logits = S { vocab = "tp" } } }
    local g = build("cp=2,tp=2", l, { config = support.config { n_layer = 1 } })
    assert.are.same({
      "all_reduce tp embed.out", "all_gather cp blk.0.attn.kv", "all_gather cp blk.0.attn.kv", "all_reduce tp blk.0.attn.out",
      "all_reduce tp blk.0.mlp.out", "all_reduce cp head.in", "gather tp sample",
    }, comms(g))
    local attn = find(g, "blk.0.attn")
    assert.are.equal("[tok@cp,kvh@tp,grp,hd]", marks.show(g.mesh, attn.ins[1].dims, attn.ins[1].pl))
    assert.are.equal("[tok,kvh@tp,hd]", marks.show(g.mesh, attn.ins[2].dims, attn.ins[2].pl))
  end)

  it("keeps requests apart on a batch axis", function()
    local tok = S { tok = "dp" }
    local l = { input = tok, at = { ["*"] = tok, ["head.in"] = S { req = "dp" }, logits = S { req = "dp" } } }
    local g = build("dp=2:batch", l)
    assert.are.same({}, comms(g))
    assert.are.equal("[out@dp,vocab]", shows(g).logits)
    assert.are.same({ dp = { k = "S", dim = "out" } }, find(g, "sample").outs[1].pl)
  end)

  it("merges a cache that is cut by position", function()
    local l = { split = { kvh = "tp", ffn = "tp", vocab = "tp" }, kv = { pos = "cp" },
      at = { ["attn.core"] = S { kvh = "tp" }, ["*.out"] = R, ["*.in"] = R, logits = S { vocab = "tp" } } }
    local g = build("cp=2,tp=2", l, { config = support.config { n_layer = 1 } })
    assert.is_true(g.needs.lse)
    assert.are.equal("lse", find(g, "blk.0.attn.core.all_reduce").attrs.op)
    assert.are.equal("all_reduce cp blk.0.attn.core", comms(g)[2])
  end)

  it("does Helix: the merge scatters query heads, o_proj sums over both axes", function()
    local l = { mesh = mesh.new({ { "cp", 2 }, { "ta", 2 } }, { tp = { "cp", "ta" } }), kv = { pos = "cp" },
      split = { kvh = "ta", ffn = "tp", vocab = "tp" }, weights = { ["*o_proj"] = S { kvh = "ta", grp = "cp" } },
      at = { ["attn.core"] = S { kvh = "ta", grp = "cp" }, ["*.in"] = R, ["*.out"] = R, logits = S { vocab = "tp" } } }
    local g = build(nil, l, { config = support.config { n_layer = 1 } })
    assert.are.same({ "all_reduce cp+ta embed.out", "reduce_scatter cp blk.0.attn.core", "all_reduce cp+ta blk.0.attn.out",
      "all_reduce cp+ta blk.0.mlp.out", "gather cp+ta sample" }, comms(g))
  end)

  it("swaps tokens for heads with all_to_all", function()
    local tok = S { tok = "cp" }
    local l = { input = tok, split = { kvh = "cp" }, weights = { ["*_proj"] = R }, at = { ["*.out"] = tok, ["*.in"] = tok,
      ["attn.q"] = S { kvh = "cp" }, ["attn.kv"] = S { kvh = "cp" }, ["attn.core"] = tok, ["head.in"] = R, logits = R } }
    local g = build("cp=3", l, { config = support.config { n_layer = 1 } })
    local op = find(g, "blk.0.attn.q.all_to_all")
    assert.are.equal("kvh", op.attrs.dim)
    assert.are.equal("tok", op.attrs.from)
    assert.are.equal("tok", find(g, "blk.0.attn.core.all_to_all").attrs.dim)
  end)

  it("slices for free where a whole value meets a split one", function()
    local l = mega { at = { ["*.in"] = R, ["embed.out"] = R, ["attn.out"] = R, ["mlp.out"] = S { tok = "tp" }, logits = S { vocab = "tp" } } }
    local op = find(build("tp=2", l, { config = support.config { n_layer = 1 } }), "blk.0.add.2.slice")
    assert.are.same({ axis = "tp", dim = "tok" }, op.attrs)
  end)
end)

describe("the graph", function()
  it("is well formed: values are made once, before they are used", function()
    for _, case in ipairs { { "tp=2", "megatron" }, { "tp=4", "megatron_sp" }, { "tp=1", "megatron" } } do
      local g, made = build(case[1], case[2]), {}
      for _, op in ipairs(g.ops) do
        for _, v in ipairs(op.ins) do assert(made[v.id], op.name) end
        for _, v in ipairs(op.outs) do
          assert(not made[v.id], op.name)
          made[v.id] = true
          assert.are.equal(v, g.values[v.id])
        end
        for _, w in ipairs(op.ws) do assert.are.equal(w, g.weights[w.name]) end
      end
      assert.are.equal(#g.values, #made)
    end
  end)

  it("gives every op a name of its own, the layer, the last mark and the model's line", function()
    local g, seen = build("tp=2", "megatron"), {}
    for _, op in ipairs(g.ops) do
      assert(not seen[op.name], op.name)
      seen[op.name] = true
      assert(op.src:find("models/llama.lua:%d+$"), op.src)
    end
    local q = find(g, "blk.1.q_proj")
    assert.are.equal(1, q.layer)
    assert.are.equal("blk.1.attn.in", q.mark)
    assert.are.same({ "embd" }, q.attrs.con)
    assert.are.same({ "kvh", "grp", "hd" }, q.attrs.out)
    assert.are.equal(-1, find(g, "lm_head").layer)
    local a = find(g, "blk.0.attn").attrs
    assert.are.same({ scale = 0.125, window = 0 }, a)
    assert.are.same({ over = { "embd" }, eps = 1e-5 }, find(g, "norm").attrs)
  end)

  it("shares a tied head's weight", function()
    local g = build("tp=2", "megatron")
    local w = g.weights.embed_tokens
    assert.are.same({ "vocab", "embd" }, w.dims)
    assert.are.equal(1, w.n_out)
    assert.are.equal("embed", w.kind)
    assert.are.same({ embed = true, linear = true }, w.uses)
    assert.are.equal(w, find(g, "lm_head").ws[1])
    assert.is_nil(g.weights.lm_head)
    local untied = build("tp=2", "megatron", { config = support.config { tied = false } })
    assert.are.equal("matrix", untied.weights.lm_head.kind)
  end)

  it("adds a bias once where the sum is still partial", function()
    local g = build("tp=2", "megatron", { config = support.config { attention_bias = true, mlp_bias = true } })
    assert.are.same({ "tp" }, find(g, "blk.0.o_proj.bias").attrs.first_only)
    assert.are.same({}, find(g, "blk.0.q_proj.bias").attrs.first_only)
    assert.are.same({ tp = { k = "S", dim = "kvh" } }, g.weights["blk.0.q_proj.bias"].pl)
    assert.are.same({ "kvh", "grp", "hd" }, g.weights["blk.0.q_proj.bias"].dims)
    assert.are.same({}, g.weights["blk.0.o_proj.bias"].pl)
  end)

  it("cuts a pipeline with a mesh for each stage", function()
    local first = build("tp=2", "megatron_sp", { first = 0, last = 0 })
    local second = build("tp=1", "megatron", { first = 1, last = 1 })
    assert.are.equal("output", first.ops[#first.ops].kind)
    assert.are.equal("stage.out", first.ops[#first.ops - 1].mark)
    assert.are.equal("all_gather", first.ops[#first.ops - 1].kind)
    assert.are.same({}, first.ops[#first.ops].ins[1].pl)
    assert.are.equal("input", second.ops[1].kind)
    assert.are.same({ "tok", "embd" }, second.ops[1].outs[1].dims)
    assert.are.equal("sample", second.ops[#second.ops].kind)
    assert.is_nil(second.weights["blk.0.q_proj"])
    assert.is_nil(first.weights.norm)
    assert.is_truthy(second.weights.embed_tokens)
    assert.are.same({ first = 1, last = 1, embed = false, head = true }, second.stage)
  end)

  it("is the same twice", function()
    local function text(g)
      local out = {}
      for _, op in ipairs(g.ops) do
        local function ids(list) return table.concat(require("tpl.util").map(list, function(v) return v.id end), ",") end
        out[#out + 1] = ("%s %s %s>%s"):format(op.kind, op.name, ids(op.ins), ids(op.outs))
      end
      return table.concat(out, "\n")
    end
    assert.are.equal(text(build("tp=4", "megatron_sp")), text(build("tp=4", "megatron_sp")))
  end)
end)

describe("model definitions", function()
  local function refused(t, text)
    local base = { dims = function() return { vocab = 8, embd = 4, kvh = 1, grp = 1, hd = 4 } end,
      embed = function(m, ids) return m:embed("e", ids) end, block = function(_, x) return x end,
      head = function(m, x) return m:linear("h", m:rows(x), "embd -> vocab") end }
    for k, v in pairs(t) do base[k] = v end
    local out, e = err.try(function() return trace.run(model.new(base), { n_layer = 1, eps = 1e-5 }) end)
    assert.is_nil(out)
    assert(e.message:find(text, 1, true), e.message)
    assert.are.equal("model_error", e.code)
    assert.is_truthy(e.where:find("typing_spec.lua:%d+$"))
    return e
  end
  it("are checked", function()
    refused({ dims = function() return { tok = 3 } end }, "'tok' is not a name for a dim")
    refused({ dims = function() return { embd = 1.5 } end }, "expected a whole number")
    refused({ block = function(m, x) return m:linear("w", x, "ffn -> embd") end }, "contracts 'ffn'")
    refused({ block = function(m, x) return m:linear("w", x, "embd -> ffn") end }, "dims() does not list")
    refused({ block = function(m, x) return m:linear("w", x, "embd") end }, "not of the form")
    refused({ block = function(m, x) return x + m:rows(x) end }, "add of [tok,embd] and [out,embd]")
    refused({ block = function(m, x) return m:norm("n", x, { "hd" }) end }, "is over 'hd'")
    refused({ block = function(m, x) return m:moe("mlp", x, 2) end }, "not in this version")
    refused({ block = function() return 3 end }, "got number")
    refused({ embed = function(m) return m:embed("e", {}) end }, "token ids")
    refused({ mark = 3 }, "no field 'mark'")
    local _, e = err.try(model.new, { dims = function() end })
    assert.is_truthy(e.message:find("is missing", 1, true))
  end)
  it("name the tensors of a checkpoint", function()
    assert.are.equal("blk.7.attn_q.weight", llama:tensor("gguf", "blk.7.q_proj"))
    assert.are.equal("model.layers.7.self_attn.q_proj.bias", llama:tensor("hf", "blk.7.q_proj.bias"))
    assert.are.equal("output_norm.weight", llama:tensor("gguf", "norm"))
    assert.is_nil(llama:tensor("gguf", "blk.7.nope"))
    for _, style in ipairs { "hf", "gguf" } do
      for _, w in ipairs(trace.run(llama, support.config { attention_bias = true, mlp_bias = true, tied = false }).weight_list) do
        assert(llama:tensor(style, w.name), w.name)
      end
    end
  end)
end)
