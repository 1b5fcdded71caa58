-- SPDX-License-Identifier: Apache-2.0
--- `tpl verify` finds planted faults and names op, rank and axis; without a fault every layout passes.
local json = require("tpl.json")
local models = require("spec.support.models")

local function verify(model, fault, words)
  local args = { "verify", model, "--json" }
  for _, w in ipairs(words) do args[#args + 1] = w end
  local r = models.tpl { args = args, env = fault and { "TPL_FAULT=" .. fault } }
  return r, json.decode((r.out:gsub("\n$", ""))) or {}
end

local OWN = models.own_fixture("bf16").target

describe("tpl verify", function()
  for _, words in ipairs { { "tp=2" }, { "tp=3" }, { "tp=4" }, { "tp=6" }, { "pp=2" }, { "tp=2", "pp=2" }, { "tp=2", "shares=2,1" }, { "tp=3", "layout=megatron_sp" } } do
    it("passes with " .. table.concat(words, " "), function()
      local r, envelope = verify(OWN, nil, words)
      assert.equal(0, r.code, r.err)
      assert.is_true(envelope.ok)
      assert.is_true(envelope.result.passed)
      assert.is_true(envelope.result.fused_passed)
      assert.is_true(envelope.result.max_nmse <= 1e-10)
    end)
  end

  it("passes with every type of weight that blocks are cut in", function()
    for _, name in ipairs { "f16-sharded", "gguf-q8_0", "gguf-q4_1" } do
      assert.equal(0, verify(models.own_fixture(name).target, nil, { "tp=3" }).code, name)
    end
  end)

  -- {fault, op it must be found at, rank}
  local faults = {
    { "swap_shard:1:blk.1.k_proj", "blk.1.k_proj", 1 },
    { "swap_shard:0:blk.0.down_proj", "blk.0.down_proj", 0 },
    { "drop_all_reduce:0:blk.1.mlp.out.all_reduce", "blk.1.mlp.out.all_reduce", 0 },
    { "drop_all_reduce:*:blk.0.attn.out.all_reduce", "blk.0.attn.out.all_reduce" }, -- on every rank
    { "wrong_head_map:1", "blk.0.attn", 1 },
    { "stale_position:1", "blk.0.rope", 1 },
  }
  for _, fault in ipairs(faults) do
    it("fails on " .. fault[1] .. ", naming op, rank and axis, with exit 5", function()
      local r, envelope = verify(OWN, fault[1], { "tp=2" })
      assert.equal(5, r.code, r.err)
      assert.is_false(envelope.ok)
      assert.is_false(envelope.result.passed)
      local diff = envelope.result.first_diff
      assert.same({ fault[2], fault[3] or diff.rank, "tp" }, { diff.op, diff.rank, diff.axis })
      assert.is_number(diff.rank)
      assert.matches(fault[2]:gsub("%p", "%%%0"), envelope.error.message)
    end)
  end

  it("passes on the quickstart model, cut unevenly", function()
    local path, missing = models.smollm2()
    if not path then return pending(missing) end
    local r = verify(path, nil, { "tp=2" })
    assert.equal(0, r.code, r.err)
  end)
end)
