-- SPDX-License-Identifier: Apache-2.0
--- Llama 2 and 3, SmolLM2 and whatever else has the same block: RMS norm before attention and MLP, rope, grouped
--- KV heads, a gated MLP. Biases and a tied head are read from the config.
-- luacheck: globals tpl

return tpl.model {
  archs = { "llama", "LlamaForCausalLM" },
  dims = function(c)
    return {
      vocab = { c.vocab, soft = 64 }, embd = c.hidden, kvh = c.n_kv, grp = c.n_head / c.n_kv, hd = c.head_dim,
      ffn = { c.ffn, soft = 128 },
    }
  end,
  embed = function(m, ids) return m:embed("embed_tokens", ids) end, -- the planner sets the mark embed.out
  block = function(m, x)
    local attn, mlp = { bias = m.c.attention_bias }, { bias = m.c.mlp_bias }
    local h = m:mark("attn.in", m:norm("input_layernorm", x))
    local q = m:mark("attn.q", m:linear("q_proj", h, "embd -> kvh.grp.hd", attn))
    local k = m:mark("attn.kv", m:linear("k_proj", h, "embd -> kvh.hd", attn))
    local v = m:mark("attn.kv", m:linear("v_proj", h, "embd -> kvh.hd", attn))
    q, k = m:rope(q), m:rope(k)
    local o = m:mark("attn.core", m:attend("attn", q, k, v))
    x = x + m:mark("attn.out", m:linear("o_proj", o, "kvh.grp.hd -> embd", attn))
    h = m:mark("mlp.in", m:norm("post_attention_layernorm", x))
    local g = m:mark("mlp.up", m:linear("gate_proj", h, "embd -> ffn", mlp))
    local u = m:mark("mlp.up", m:linear("up_proj", h, "embd -> ffn", mlp))
    return x + m:mark("mlp.out", m:linear("down_proj", m:silu_mul(g, u), "ffn -> embd", mlp))
  end,
  head = function(m, x)
    x = m:norm("norm", m:mark("head.in", m:rows(x)))
    return m:mark("logits", m:linear("lm_head", x, "embd -> vocab", { tied = m.c.tied and "embed_tokens" }))
  end,
  names = {
    hf = {
      embed_tokens = "model.embed_tokens.weight", norm = "model.norm.weight", lm_head = "lm_head.weight",
      input_layernorm = "model.layers.{i}.input_layernorm.weight",
      post_attention_layernorm = "model.layers.{i}.post_attention_layernorm.weight",
      q_proj = "model.layers.{i}.self_attn.q_proj.weight", ["q_proj.bias"] = "model.layers.{i}.self_attn.q_proj.bias",
      k_proj = "model.layers.{i}.self_attn.k_proj.weight", ["k_proj.bias"] = "model.layers.{i}.self_attn.k_proj.bias",
      v_proj = "model.layers.{i}.self_attn.v_proj.weight", ["v_proj.bias"] = "model.layers.{i}.self_attn.v_proj.bias",
      o_proj = "model.layers.{i}.self_attn.o_proj.weight", ["o_proj.bias"] = "model.layers.{i}.self_attn.o_proj.bias",
      gate_proj = "model.layers.{i}.mlp.gate_proj.weight", ["gate_proj.bias"] = "model.layers.{i}.mlp.gate_proj.bias",
      up_proj = "model.layers.{i}.mlp.up_proj.weight", ["up_proj.bias"] = "model.layers.{i}.mlp.up_proj.bias",
      down_proj = "model.layers.{i}.mlp.down_proj.weight", ["down_proj.bias"] = "model.layers.{i}.mlp.down_proj.bias",
    },
    gguf = {
      embed_tokens = "token_embd.weight", norm = "output_norm.weight", lm_head = "output.weight",
      input_layernorm = "blk.{i}.attn_norm.weight", post_attention_layernorm = "blk.{i}.ffn_norm.weight",
      q_proj = "blk.{i}.attn_q.weight", ["q_proj.bias"] = "blk.{i}.attn_q.bias",
      k_proj = "blk.{i}.attn_k.weight", ["k_proj.bias"] = "blk.{i}.attn_k.bias",
      v_proj = "blk.{i}.attn_v.weight", ["v_proj.bias"] = "blk.{i}.attn_v.bias",
      o_proj = "blk.{i}.attn_output.weight", ["o_proj.bias"] = "blk.{i}.attn_output.bias",
      gate_proj = "blk.{i}.ffn_gate.weight", ["gate_proj.bias"] = "blk.{i}.ffn_gate.bias",
      up_proj = "blk.{i}.ffn_up.weight", ["up_proj.bias"] = "blk.{i}.ffn_up.bias",
      down_proj = "blk.{i}.ffn_down.weight", ["down_proj.bias"] = "blk.{i}.ffn_down.bias",
    },
  },
}
