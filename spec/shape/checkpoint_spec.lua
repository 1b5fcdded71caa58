-- SPDX-License-Identifier: Apache-2.0
--- The shape of models that tpl opens: made from the normalised configuration, exact with the checkpoint's own list of tensors.
local config = require("tpl.config")
local models = require("spec.support.models")
local shape = require("tpl.shape")

describe("tpl.shape of an opened model", function()
  for _, name in ipairs(models.own) do
    it("adds up the tensors of " .. name, function()
      local fixture = models.own_fixture(name)
      local kind = fixture.target:find("%.gguf$") and "file" or "dir"
      local model = assert(config.open({ path = fixture.target, kind = kind }))
      local last, tensors, bytes, layer = model.config.n_layer - 1, model.checkpoint:tensors(), 0, 0
      for _, t in ipairs(tensors) do
        bytes = bytes + t.bytes
        if t.name:find("layers." .. last .. ".", 1, true) or t.name:find("blk." .. last .. ".", 1, true) then layer = layer + t.bytes end
      end
      local s = assert(shape.of(model.config, tensors))
      assert.equal(bytes, s.weight_bytes)
      assert.equal(layer, s.layers[last + 1].weight_bytes)
      assert.is_true(layer > 0)
      assert.same({ model.config.n_layer, model.config.n_kv, model.config.head_dim }, { s.n_layer, s.n_kv, s.head_dim })
      assert.equal(2 * 2 * model.config.n_kv * model.config.head_dim, s.layers[1].kv_bytes)
      local sum = s.embed_bytes + s.norm_bytes + (s.tied and 0 or s.head_bytes)
      for _, l in ipairs(s.layers) do sum = sum + l.weight_bytes end
      assert.equal(bytes, sum)
      model.checkpoint:close()
    end)
  end
end)
