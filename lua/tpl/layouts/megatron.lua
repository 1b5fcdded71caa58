-- SPDX-License-Identifier: Apache-2.0
--- Megatron tensor parallel (Shoeybi et al. 2019, arXiv:1909.08053): heads, FFN and vocabulary over axis tp, two
--- all_reduce per layer, one after the embedding, a candidate gather at the end. With more ranks than KV heads
--- tpl.gqa factors tp into tk (KV heads) and tg (query heads of one KV head), and KV heads repeat along tg.
-- luacheck: globals tpl R S

return tpl.layout {
  split = { kvh = tpl.gqa "tp", ffn = "tp", vocab = "tp" },
  at = { ["*.in"] = R, ["*.out"] = R, logits = S { vocab = "tp" } },
}
