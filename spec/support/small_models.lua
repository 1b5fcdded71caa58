-- SPDX-License-Identifier: Apache-2.0
--- Write a drawn case of the layout fuzz as files that the real engine runs: config.json, random float32 weights, the model definition, and a
--- deploy.lua with the layout's text (not a spec itself).
local draw = require("tpl.fuzz.draw")
local ffi = require("ffi")
local json = require("tpl.json")
local layouts = require("tpl.plan.layout")
local safetensors = require("spec.support.safetensors_writer")
local util = require("tpl.util")

local M = {}

local function config_of(v, c)
  return json.encode { architectures = { "LlamaForCausalLM" }, model_type = "llama", vocab_size = c.vocab, hidden_size = c.embd, intermediate_size = c.ffn,
    num_hidden_layers = v.layers or 1, num_attention_heads = c.kvh * c.grp, num_key_value_heads = c.kvh, head_dim = c.hd, hidden_act = "silu",
    max_position_embeddings = 64, rms_norm_eps = 1e-5, rope_theta = 10000, attention_bias = false, mlp_bias = false, tie_word_embeddings = v.tied }
end

-- The tensors of a trace; every row is contiguous, as the engine wants it.
local function tensors_of(case, t)
  local weights, out = draw.weights(case, t), {}
  for _, w in ipairs(t.weight_list) do
    local rows, cols = 1, 1
    for i, d in ipairs(w.dims) do
      if w.kind ~= "vector" and i <= w.n_out then rows = rows * t.sizes[d] else cols = cols * t.sizes[d] end
    end
    local data = ffi.new("float[?]", rows * cols)
    for i = 0, rows * cols - 1 do data[i] = weights[w.name][i] end
    out[#out + 1] = { name = w.name, dtype = "F32", dims = w.kind == "vector" and { cols } or { rows, cols }, data = ffi.string(data, rows * cols * 4) }
  end
  return out
end

local function mesh_text(axes)
  local out = {}
  for i, a in ipairs(axes) do out[i] = ("{%q, %d}"):format(a[1], a[2]) end
  return "{" .. table.concat(out, ", ") .. "}"
end

--- Write the files of a case into a folder; gives the path of its deploy.lua.
---@param dir table              of spec.support.tmpdir
---@param case tpl.fuzz.Case     no batch axes
---@param layout string?         Lua text of another layout
---@return string
function M.write(dir, case, layout)
  local aliases = util.map(case.axes, function(a) return ("%q"):format(a[1]) end)
  dir:sh("mkdir -p m/models")
  dir:write("m/config.json", config_of(case.v, case.c))
  dir:write("m/model.safetensors", safetensors.build(tensors_of(case, draw.model(case).trace)))
  dir:write("m/models/llama.lua", ("return require('tpl.fuzz.model').make(%s, %s)\n"):format(layouts.text(case.v), layouts.text(case.c)))
  return dir:write("m/deploy.lua", ([[
local layout = tpl.layout(%s):extend { mesh = tpl.mesh(%s, { all = { %s } }) }
return tpl.deploy { model = %q, mesh = %s, layout = layout, act = "f32", threads = 1, want = { context = 64, concurrency = 2 } }
]]):format(layout or layouts.text(draw.words(case)), mesh_text(case.axes), table.concat(aliases, ", "), dir.path .. "/m", mesh_text(case.axes)))
end

return M
