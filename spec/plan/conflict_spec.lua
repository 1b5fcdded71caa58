-- SPDX-License-Identifier: Apache-2.0
-- Refusals: the cases of layout.md 2.7 and of the prototype's run.lua that have no experts. Every fix that is listed must
-- parse as the argument of extend and type when applied (interface.md section 4).
local support = dofile("spec/plan/support.lua")
local err = require "tpl.err"
local layout = require "tpl.plan.layout"
local model = require "tpl.model"
local typing = require "tpl.plan.typing"
local R, S, mega = layout.R, layout.S, support.mega

local llama = model.load("llama")
local smol, even = support.config(), support.config { n_head = 16, n_kv = 4, hidden = 1024 }

-- Refused, with op, axis and a word of the reason; all fixes work. `fix`: one that must be among them.
local function refused(t)
  local l = layout.new(t.layout, "site.lua:12")
  local opt = { model = t.model or llama, config = t.config or even, mesh = t.mesh, layout = l }
  local g, e = err.try(typing.build, opt)
  assert.is_nil(g)
  assert(e.code == "layout_conflict", tostring(e) .. (e.traceback or ""))
  assert.are.equal(3, e.exit)
  assert.are.equal("site.lua:12", e.where)
  assert.are.equal(t.op, e.op)
  assert.are.equal(t.axis, e.axis)
  if t.mark then assert.are.equal(t.mark, e.mark) end
  assert(e.message:find(t.why, 1, true), e.message)
  assert.is_nil(e.message:find("\n", 1, true))
  local found = not t.fix
  for _, text in ipairs(e.fixes) do
    found = found or text == t.fix
    opt.layout = l:extend(layout.parse(text))
    local ok, e2 = err.try(typing.build, opt)
    assert(ok, text .. " is not accepted: " .. tostring(e2))
  end
  assert(found, "no fix " .. tostring(t.fix) .. " in " .. table.concat(e.fixes, " | "))
  if t.some ~= false then assert(#e.fixes > 0, "no fixes: " .. e.message) end
  return e
end

describe("a refusal", function()
  it("reads as in layout.md 2.7", function()
    local e = refused { mesh = "tp=2", layout = mega { at = { ["*.out"] = S { tok = "tp" }, ["*.in"] = R, ["attn.in"] = S { tok = "tp" } } },
      op = "blk.0.q_proj", axis = "tp", mark = "attn.in", why = "both use this axis for different things (S(tok) vs S(kvh))",
      fix = '{at={["attn.in"]=R}}' }
    assert.are.equal("[tok@tp,embd]", e.x)
    assert.are.equal("[kvh@tp,grp,hd,embd]", e.w)
    assert.is_truthy(e.src:find("models/llama.lua:%d+$"))
    local lines = {}
    for line in e.text:gmatch("[^\n]+") do lines[#lines + 1] = line end
    assert.are.equal("layout conflict in op 'q_proj' on axis 'tp' (blk.0.)", lines[1])
    assert.are.equal("  x [tok@tp,embd]  with  blk.0.q_proj [kvh@tp,grp,hd,embd]: "
      .. "both use this axis for different things (S(tok) vs S(kvh))", lines[2])
    assert.are.equal("  last mark: attn.in", lines[3])
    assert.is_truthy(lines[4]:find("model: .*llama.lua:%d+"))
    assert.is_truthy(lines[5]:find('  fixes: {at={["attn.in"]=R}}', 1, true))
    assert.is_truthy(tostring(e):find("^site.lua:12: layout conflict"))
    assert.is_truthy(tostring(e):find('(fixes: {at={["attn.in"]=R}}', 1, true))
  end)
end)

describe("refused:", function()
  it("the gather before q, k and v forgotten", function()
    refused { mesh = "tp=4", layout = mega { at = { ["*.out"] = S { tok = "tp" }, logits = S { vocab = "tp" } } }, op = "blk.0.q_proj", axis = "tp",
      why = "both use this axis", fix = '{at={["*.in"]=R}}' }
  end)
  it("the reduce forgotten", function()
    refused { mesh = "tp=4", layout = mega { at = { ["embed.out"] = R } }, op = "blk.0.add", axis = "tp", mark = "attn.out",
      why = "a partial sum and a value that is whole", fix = '{at={["*.out"]=R}}' }
    refused { mesh = "tp=4", layout = mega { at = { ["embed.out"] = R, ["mlp.out"] = R } }, op = "blk.0.add", axis = "tp", mark = "attn.out",
      why = "a partial sum", fix = '{at={["attn.out"]=R}}' }
    refused { mesh = "tp=4", layout = mega { at = {} }, op = "blk.0.input_layernorm", axis = "tp", mark = "embed.out", why = "norm of a partial sum",
      fix = '{at={["*.out"]=R}}' }
  end)
  it("two dims on one axis", function()
    refused { mesh = "tp=2", layout = mega { split = { kvh = "tp", grp = "tp" } }, axis = "tp", why = "would split two dims (grp and kvh)",
      fix = "{split={grp=R}}" }
    refused { mesh = "tp=2", layout = mega { at = { ["*.in"] = R, ["*.out"] = R, logits = S { vocab = "tp", req = "tp" } } }, axis = "tp",
      why = "would split two dims (out and vocab)", fix = '{at={logits=S{vocab="tp"}}}' }
  end)
  it("half a head", function()
    refused { mesh = "tp=2", layout = mega { split = { hd = "tp" } }, op = "blk.0.rope", axis = "tp", why = "rope turns pairs inside a head",
      fix = '{split={hd=R, kvh="tp"}}' }
    refused { mesh = "tp=2", layout = mega { split = { hd = "tp" }, at = { ["*.out"] = R, ["*.in"] = R } },
      config = { n_layer = 1, vocab = 8, vu = 1, embd = 4, kvh = 2, grp = 2, hd = 2, ffn = 4, fu = 1, eps = 1e-5 },
      model = support.variant { pos = "none", norm = "pre", mlp = "gated" }, op = "blk.0.attn", axis = "tp",
      why = "a score is a sum over the whole head" }
  end)
  it("tokens cut inside requests and no exchange of KV", function()
    local tok = S { tok = "cp" }
    local e = refused { mesh = "cp=2", layout = { input = tok, at = { ["*"] = tok, ["head.in"] = R, logits = R } }, op = "blk.0.attn", axis = "cp",
      mark = "attn.kv", why = "this axis cuts inside requests", fix = '{at={["attn.kv"]=R}}' }
    assert.are.equal("[tok@cp,kvh,grp,hd]", e.x)
  end)
  it("more ranks than KV heads", function()
    refused { mesh = "tp=8", layout = mega(), axis = "tp", why = "dim 'kvh' (4 units) cannot feed 8 ranks on axis tp: rank 4 would be empty",
      fix = '{split={kvh=tpl.gqa("tp")}}' }
    local e = refused { mesh = "tp=5", layout = mega(), config = smol, axis = "tp", why = "dim 'kvh' (3 units) cannot feed 5 ranks" }
    assert.is_nil(e.op)
    assert.are.equal("kvh", e.dim)
    assert.is_truthy(e.hint:find("4 = 2x2, 6 = 3x2, 9 = 3x3", 1, true))
    refused { mesh = "tp=2", layout = mega { shares = { tp = { 9, 1 } } }, config = smol, axis = "tp", why = "rank 1 would be empty",
      fix = "{shares={tp=false}}" }
  end)
  it("the contracted dim split on one side only", function()
    refused { mesh = "tp=2", layout = mega { weights = { ["*o_proj"] = R } }, op = "blk.0.o_proj", axis = "tp", mark = "attn.core",
      why = "x is split on the contracted dim 'kvh' but the weight is not", fix = '{weights={["*o_proj"]=S{kvh="tp"}}}' }
  end)
  it("a normalised dim split without stats", function()
    refused { mesh = "tp=2", layout = { at = { ["*.out"] = S { embd = "tp" }, ["*.in"] = R } }, op = "blk.0.input_layernorm",
      axis = "tp", why = "the normalised dim 'embd' is split", fix = "{norm_stats=true}" }
  end)
  it("an outer axis changed alone", function()
    local both = S { tok = { "a", "b" } }
    local l = { input = both, at = { ["*"] = both, ["attn.in"] = S { tok = "b" }, ["attn.kv"] = R, ["head.in"] = R, logits = R } }
    refused { mesh = "a=2,b=2", layout = l, axis = "a", op = "blk.0.attn.in", fix = '{at={["attn.in"]=R}}',
      why = "axis 'a' is outside 'b' on dim 'tok'; only the innermost axis of a dim can change alone" }
  end)
  it("a batch axis inside another", function()
    refused { mesh = "tp=2,dp=2:batch", axis = "dp", fix = '{mesh="dp=2:batch,tp=2"}',
      why = "batch axis 'dp' is inside 'tp', which cuts inside requests",
      layout = { input = S { tok = { "tp", "dp" } }, at = { ["attn.kv"] = S { tok = "dp" }, ["head.in"] = S { req = "dp" } } } }
  end)
  it("partial logits", function()
    refused { mesh = "tp=2", config = support.config { tied = false }, layout = { weights = { lm_head = S { embd = "tp" } } }, op = "sample",
      axis = "tp", mark = "logits", why = "partial logits", fix = "{at={logits=R}}" }
  end)
  it("attention partials that nobody merged", function()
    refused { mesh = "cp=2", layout = { kv = { pos = "cp" } }, op = "blk.0.o_proj", axis = "cp", mark = "attn.core",
      why = "unmerged attention partial", fix = '{at={["attn.core"]=R}}' }
  end)
end)

describe("the search for fixes", function()
  it("puts several steps together and keeps what holds on other axes", function()
    local e = refused { mesh = "cp=2,tp=2", config = even, layout = { split = { kvh = "tp", ffn = "tp", vocab = "tp" }, input = S { tok = "cp" },
      at = { ["*.out"] = S { tok = "cp" }, ["*.in"] = S { tok = "cp" }, ["attn.core"] = S { tok = "cp", kvh = "tp" }, ["head.in"] = R,
        logits = S { vocab = "tp" } } }, op = "blk.0.attn", axis = "cp", why = "cuts inside requests", fix = '{at={["attn.kv"]=S{kvh="tp"}}}' }
    assert.is_true(#e.fixes >= 1)
    refused { mesh = "tp=2", layout = mega { at = { ["attn.*"] = S { tok = "tp" }, ["embed.out"] = R } }, op = "blk.0.q_proj", axis = "tp",
      why = "both use this axis" }
  end)
  it("can be left out", function()
    local _, e = err.try(typing.build, { model = llama, config = even, mesh = "tp=2", layout = mega { at = {} }, fixes = false })
    assert.are.same({}, e.fixes)
    assert.is_truthy(e.hint)
  end)
end)
