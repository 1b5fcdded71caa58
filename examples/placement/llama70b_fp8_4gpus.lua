-- SPDX-License-Identifier: Apache-2.0
-- The same model on four H100: one replica of four where 20 requests of 32768 tokens must fit, two replicas of two for 8192 tokens.
--
--   tpl plan examples/placement/llama70b_fp8_4gpus.lua --topo examples/machines/h100x4.yaml                # TP=4
--   tpl plan examples/placement/llama70b_fp8_4gpus.lua --topo examples/machines/h100x4.yaml context=8192   # 2 x TP=2
--   tpl plan examples/placement/llama70b_fp8_4gpus.lua --topo examples/machines/h100x4.yaml context=8192 goal=latency
local a = tpl.args { model = "../models/llama-3.3-70b-fp8", context = 32768, concurrency = 20, goal = "throughput" }

return tpl.deploy {
  model = a.model,
  want  = { context = a.context, concurrency = a.concurrency, goal = a.goal },
}
