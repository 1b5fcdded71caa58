-- SPDX-License-Identifier: Apache-2.0
--- What lowering refuses although it types: there is no kernel for it, which is exit 6 and names the op.
local err = require "tpl.err"
local lower = require "tpl.plan.lower"
local support = dofile("spec/plan/support.lua")
local typing = require "tpl.plan.typing"

local model = require("tpl.model").load("llama")

local function lowered(layout, mesh)
  local config = support.config()
  local graph = typing.build { model = model, config = config, mesh = mesh, layout = layout }
  return err.try(lower.graph, graph, config, function(name) return name end)
end

describe("lowering", function()
  it("refuses to sample rows that are cut: the stage's first rank samples them all", function() -- found by the layout fuzz
    local low, e = lowered({ split = {}, at = { logits = support.S { out = "tp" } } }, "tp=2")
    assert.is_nil(low)
    assert.same({ "unsupported", 6 }, { e.code, e.exit })
    assert.matches("op 'sample' .*output rows that are cut", e.message)
    assert.is_table((lowered({ split = {}, at = { logits = support.S { out = "tp" } } }, "tp=1"))) -- nothing is cut
  end)
end)
