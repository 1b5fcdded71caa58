-- SPDX-License-Identifier: Apache-2.0
-- A small model, sharded: tpl run examples/hello.lua tp=3 -- "Why is the sky blue?"
local a = tpl.args { model = "smollm2", tp = 1, pp = 1, act = "auto" }

return tpl.deploy {
  model  = a.model,             -- a path, file.gguf, folder, org/name, or a name in the model cache
  mesh   = "tp=" .. a.tp,       -- tensor-parallel ranks; 9 heads over 2 or 3 of them is fine
  pp     = a.pp,                -- pipeline stages
  layout = "megatron",          -- how tensors are cut: a built-in name, a file, or a table
  act    = a.act,               -- "f32": the same text however it is cut
  want   = { context = 2048, concurrency = 4 },
}
