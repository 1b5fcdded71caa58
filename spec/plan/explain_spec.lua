-- SPDX-License-Identifier: Apache-2.0
-- Bytes by hand: [tok,embd] of 576 f32 is 2304 bytes per token; over 512 tokens 1179648, cut in two by tokens 589824.
local support = dofile("spec/plan/support.lua")
local err = require "tpl.err"
local explain = require "tpl.plan.explain"
local model = require "tpl.model"
local order = require "tpl.plan.order"
local typing = require "tpl.plan.typing"

local llama = model.load("llama")
local function build(mesh, layout, opt)
  local o = { model = llama, config = support.config { n_layer = 3 }, mesh = mesh, layout = layout }
  for k, v in pairs(opt or {}) do o[k] = v end
  return typing.build(o)
end
local function has(lines, text)
  for _, line in ipairs(lines) do if line:find(text, 1, true) then return true end end
  error(("no '%s' in:\n%s"):format(text, table.concat(lines, "\n")))
end

describe("explain", function()
  it("tells the journey, like layers once", function()
    local lines = explain.lines(build("tp=2", "megatron_sp"))
    has(lines, "layouts/megatron_sp.lua")
    has(lines, "mesh tp=2: 2 ranks")
    has(lines, "    reduce_scatter over tp       at embed.out")
    has(lines, "  embed.out [tok@tp,embd]")
    has(lines, "    all_gather     over tp       at blk.0.attn.in")
    has(lines, "  blk.0.attn.core [tok,kvh@tp,grp,hd]")
    has(lines, "  blk.1 to blk.2: the same")
    local all = explain.lines(build("tp=2", "megatron_sp"), { all = true })
    has(all, "  blk.2.mlp.out [tok@tp,embd]")
  end)
  it("says why a cut is uneven", function()
    local lines = explain.lines(build("tp=2", "megatron"))
    has(lines, "kvh over tp: 2/1 of 3 KV heads, so 6/3 of 9 heads")
    has(lines, "uneven: 3 units over 2 ranks, by largest remainder")
    has(explain.lines(build("tp=3", "megatron", { config = support.llama70b() })), "uneven: 224 units of 128 over 3 ranks, by largest remainder")
    has(explain.lines(build("tp=2", support.mega { shares = { tp = { 2, 1 } } })), "uneven: by shares 2:1 on tp")
    has(explain.lines(build("tp=4", "megatron")), "tp is factored into tk x tg: KV heads repeat along tg")
    local q4 = build("tp=2", "megatron", { dtype = function() return "q4_1" end })
    has(explain.lines(q4), "cut in units of 32: a quantisation block stays on one rank")
    has(explain.lines(build("tp=1", "megatron")), "cuts: none")
  end)
  it("counts the bytes that a rank brings", function()
    local g = build("tp=2", "megatron_sp")
    local by = {}
    for _, op in ipairs(g.ops) do if op.attrs.axes then by[op.name] = op end end
    assert.are.equal(2304, explain.comm_bytes(g, by["embed.out.reduce_scatter"], 1))
    assert.are.equal(1179648, explain.comm_bytes(g, by["embed.out.reduce_scatter"], 512))
    assert.are.equal(589824, explain.comm_bytes(g, by["blk.0.attn.in.all_gather"], 512))
    assert.are.equal(589824 / 2, explain.comm_bytes(g, by["blk.0.attn.in.all_gather"], 512, 2))
    assert.are.equal(2304, explain.comm_bytes(g, by["head.in.all_reduce"], 512))
    has(explain.lines(g), "2304 B per decoded token, 1179.6 kB per 512-token chunk")
  end)
end)

describe("order", function()
  it("is the same for all members of a group", function()
    local g = build("tp=4", "megatron")
    assert.are.same({ ["0,1,2,3"] = 8 }, order.check(order.by_rank(g))) -- 3 layers of 2, embedding, gather
  end)
  it("finds a rank that leaves one out", function()
    local g = build("tp=2", "megatron")
    local by = order.by_rank(g, function(rank, op) return rank == 1 and op.name == "blk.1.attn.out.all_reduce" end)
    local _, e = err.try(order.check, by)
    assert.is_truthy(e.message:find("in group 0,1 collective 4 is 'all_reduce blk.1.attn.out.all_reduce", 1, true))
    assert.is_truthy(e.message:find("on rank 1", 1, true))
  end)
end)
