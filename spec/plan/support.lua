-- SPDX-License-Identifier: Apache-2.0
--- Help the plan specs: configs, a variant model in the product's words, loading the oracle (not a spec itself).
local M = {}

M.R, M.S = require("tpl.plan.layout").R, require("tpl.plan.layout").S

--- Make a normalised llama config; SmolLM2-135M's sizes unless told.
function M.config(t)
  local c = {
    arch = "llama", vocab = 49152, hidden = 576, n_layer = 2, n_head = 9, n_kv = 3, head_dim = 64, ffn = 1536, eps = 1e-5, tied = true,
    attention_bias = false, mlp_bias = false, context = 2048, rope = { theta = 1e4, dim = 64, mode = "half" }, names = "hf", dtype = "f32",
  }
  for k, v in pairs(t or {}) do c[k] = v end
  return c
end

--- Sizes of Llama 3 70B.
function M.llama70b(t)
  local c = M.config { vocab = 128256, hidden = 8192, n_head = 64, n_kv = 8, head_dim = 128, ffn = 28672, tied = false }
  for k, v in pairs(t or {}) do c[k] = v end
  return c
end

--- The Megatron layout as a plain table, with some fields replaced.
function M.mega(t)
  local R, S = M.R, M.S
  local l = { split = { kvh = "tp", ffn = "tp", vocab = "tp" }, at = { ["*.out"] = R, ["*.in"] = R, logits = S { vocab = "tp" } } }
  for k, v in pairs(t or {}) do l[k] = v end
  return l
end

--- Where the shared folder is, or nil.
function M.shared()
  for _, dir in ipairs { os.getenv("TPL_SHARED") or "../shared" } do
    local f = io.open(dir .. "/prototype/layout/tpl.lua")
    if f then
      f:close()
      return dir
    end
  end
end

--- Load the prototype: its modules require each other by names that the product also uses, so they get their own require.
function M.oracle(dir)
  local loaded, folder = {}, dir .. "/prototype/layout/"
  local function need(name)
    if loaded[name] == nil then
      local chunk = assert(loadfile(folder .. name .. ".lua"))
      setfenv(chunk, setmetatable({ require = need }, { __index = _G }))
      loaded[name] = chunk()
    end
    return loaded[name]
  end
  return need("tpl"), need("models")
end

--- Write the prototype's model variant v in the product's words.
function M.variant(v)
  return require("tpl.model").new {
    dims = function(c)
      return { vocab = { c.vocab, soft = c.vu }, ffn = { c.ffn, soft = c.fu }, embd = c.embd, kvh = c.kvh, grp = c.grp, hd = c.hd,
        npos = v.pos == "learned" and c.npos or nil }
    end,
    embed = function(m, ids)
      local x = m:embed("embed_tokens", ids)
      if v.pos ~= "learned" then return x end
      return m:mark("embed.out", x) + m:mark("embed.out", m:embed("embed_positions", m.pos, "npos"))
    end,
    block = function(m, x)
      local opt = { bias = m.c.bias }
      local function norm(name, y, where) return v.norm == where and m:norm(name, y) or y end
      local function attention(h, twin)
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
      local function mixed(h)
        local o = attention(h, "")
        if v.mix == "twin" then o = o + attention(h, "2") end
        if v.mix == "skip" then o = o + m:mark("attn.q", m:linear("skip_proj", h, "embd -> kvh.grp.hd", opt)) end
        o = m:mark("attn.core", o)
        if v.mix == "gate" then o = m:silu_mul(m:mark("attn.q", m:linear("attn_gate", h, "embd -> kvh.grp.hd", opt)), o) end
        return m:linear("o_proj", o, "kvh.grp.hd -> embd", opt)
      end
      local function mlp(h)
        h = m:mark("mlp.in", h)
        local u = m:mark("mlp.up", m:linear("up_proj", h, "embd -> ffn", opt))
        if v.mlp == "plain" then u = m:act("gelu", u)
        else u = m:silu_mul(m:mark("mlp.up", m:linear("gate_proj", h, "embd -> ffn", opt)), u) end
        return m:linear("down_proj", u, "ffn -> embd", opt)
      end
      local n = norm("input_layernorm", x, "pre")
      local a = norm("post_attn_norm", m:mark("attn.out", mixed(m:mark("attn.in", n))), "post")
      if v.par then return x + m:mark("block.out", a + m:mark("mlp.out", mlp(n))) end
      x = x + a
      return x + norm("post_mlp_norm", m:mark("mlp.out", mlp(norm("post_attention_layernorm", x, "pre"))), "post")
    end,
    head = function(m, x)
      x = m:mark("head.in", m:rows(x))
      if v.norm ~= "none" then x = m:norm("norm", x) end
      x = m:mark("logits", m:linear("lm_head", x, "embd -> vocab", { tied = v.tied and "embed_tokens", bias = m.c.bias }))
      return v.softcap and m:act("softcap", x) or x
    end,
  }
end

return M
