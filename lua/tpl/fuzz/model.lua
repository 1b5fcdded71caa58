-- SPDX-License-Identifier: Apache-2.0
--- Small model definitions for the layout fuzz: one function of a variant and of sizes. A variant says which parts a model has.
local models = require "tpl.model"

local M = {}

---@class tpl.fuzz.Variant
---@field pos string        "rope" | "learned" | "none"
---@field norm string       "pre" | "post" | "none"
---@field mlp string        "gated" | "plain"
---@field qk string|false   "head" | "all": RMS norm of q and k per head, or over all heads
---@field mix string|false  "twin" | "skip" | "gate": a second attention, a linear or a gate joins the attention output
---@field par boolean       attention and MLP read the same input
---@field tied boolean      the head uses the embedding
---@field softcap boolean   a function that is not linear after the logits
---@field bias boolean      on every linear

---@class tpl.fuzz.Sizes
---@field vocab integer
---@field vu integer   soft unit of vocab
---@field embd integer
---@field kvh integer
---@field grp integer
---@field hd integer
---@field ffn integer
---@field fu integer   soft unit of ffn
---@field npos integer rows of the table of learned positions
---@field block integer?  quantisation blocks along every contracted row

local bases = { "embed_tokens", "embed_positions", "norm", "lm_head", "input_layernorm", "post_attn_norm", "post_attention_layernorm",
  "post_mlp_norm", "q_proj", "k_proj", "v_proj", "q_proj2", "k_proj2", "v_proj2", "q_norm", "k_norm", "q_norm2", "k_norm2", "skip_proj",
  "attn_gate", "o_proj", "up_proj", "gate_proj", "down_proj" }
local outside = { embed_tokens = true, embed_positions = true, norm = true, lm_head = true }

-- Tensors of a checkpoint are called like the weights.
local function names()
  local out = {}
  for _, b in ipairs(bases) do
    for _, suffix in ipairs { "", ".bias" } do out[b .. suffix] = (outside[b] and "" or "blk.{i}.") .. b .. suffix end
  end
  return out
end

local function attention(m, v, h, twin, opt)
  local q = m:mark("attn.q", m:linear("q_proj" .. twin, h, "embd -> kvh.grp.hd", opt))
  local k = m:mark("attn.kv", m:linear("k_proj" .. twin, h, "embd -> kvh.hd", opt))
  local val = m:mark("attn.kv", m:linear("v_proj" .. twin, h, "embd -> kvh.hd", opt))
  if v.qk then
    q = m:norm("q_norm" .. twin, q, v.qk == "all" and { "kvh", "grp", "hd" } or { "hd" })
    k = m:norm("k_norm" .. twin, k, v.qk == "all" and { "kvh", "hd" } or { "hd" })
  end
  if v.pos == "rope" then q, k = m:rope(q), m:rope(k) end
  return m:attend("attn" .. twin, q, k, val)
end

local function mixed(m, v, h, opt)
  local o = attention(m, v, h, "", opt)
  if v.mix == "twin" then o = o + attention(m, v, h, "2", opt) end
  if v.mix == "skip" then o = o + m:mark("attn.q", m:linear("skip_proj", h, "embd -> kvh.grp.hd", opt)) end
  o = m:mark("attn.core", o)
  if v.mix == "gate" then o = m:silu_mul(m:mark("attn.q", m:linear("attn_gate", h, "embd -> kvh.grp.hd", opt)), o) end
  return m:linear("o_proj", o, "kvh.grp.hd -> embd", opt)
end

local function mlp(m, v, h, opt)
  h = m:mark("mlp.in", h)
  if v.mlp == "plain" then
    return m:linear("down_proj", m:act("gelu", m:mark("mlp.up", m:linear("up_proj", h, "embd -> ffn", opt))), "ffn -> embd", opt)
  end
  local g = m:mark("mlp.up", m:linear("gate_proj", h, "embd -> ffn", opt))
  local u = m:mark("mlp.up", m:linear("up_proj", h, "embd -> ffn", opt))
  return m:linear("down_proj", m:silu_mul(g, u), "ffn -> embd", opt)
end

--- Make the definition of a variant; the sizes are these, whatever a config says.
---@param v tpl.fuzz.Variant
---@param c tpl.fuzz.Sizes
---@return tpl.Model
function M.make(v, c)
  local opt = { bias = v.bias }
  local function norm(m, name, x, where) return v.norm == where and m:norm(name, x) or x end
  return models.new {
    dims = function()
      return { vocab = { c.vocab, soft = c.vu }, ffn = { c.ffn, soft = c.fu }, embd = c.embd, kvh = c.kvh, grp = c.grp, hd = c.hd,
        npos = v.pos == "learned" and c.npos or nil }
    end,
    embed = function(m, ids)
      local x = m:embed("embed_tokens", ids)
      if v.pos ~= "learned" then return x end
      return m:mark("embed.out", x) + m:mark("embed.out", m:embed("embed_positions", m.pos, "npos"))
    end,
    block = function(m, x)
      local n = norm(m, "input_layernorm", x, "pre")
      local a = norm(m, "post_attn_norm", m:mark("attn.out", mixed(m, v, m:mark("attn.in", n), opt)), "post")
      if v.par then return x + m:mark("block.out", a + m:mark("mlp.out", mlp(m, v, n, opt))) end
      x = x + a
      return x + norm(m, "post_mlp_norm", m:mark("mlp.out", mlp(m, v, norm(m, "post_attention_layernorm", x, "pre"), opt)), "post")
    end,
    head = function(m, x)
      x = m:mark("head.in", m:rows(x))
      if v.norm ~= "none" then x = m:norm("norm", x) end
      x = m:mark("logits", m:linear("lm_head", x, "embd -> vocab", { tied = v.tied and "embed_tokens", bias = v.bias }))
      return v.softcap and m:act("softcap", x) or x
    end,
    names = { hf = names() },
  }
end

--- Give the config that goes with it: what ops read of a config.
---@param v tpl.fuzz.Variant
---@param c tpl.fuzz.Sizes
---@return table
function M.config(v, c)
  local freqs = {}
  for i = 0, c.hd / 2 - 1 do freqs[i + 1] = 0.7 ^ i end
  return { arch = "fuzz", n_layer = v.layers or 1, vocab = c.vocab, hidden = c.embd, eps = 1e-5,
    rope = { dim = c.hd, mode = v.interleaved and "interleaved" or "half", freqs = freqs } }
end

return M
