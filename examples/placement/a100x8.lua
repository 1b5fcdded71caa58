-- SPDX-License-Identifier: Apache-2.0
-- A 70B in bfloat16 on 8 x A100 behind NVSwitch: replicas of the smallest group that holds the requests, or all eight for one request's speed.
--
--   tpl plan examples/placement/a100x8.lua --topo examples/machines/a100x8.yaml
--   tpl plan examples/placement/a100x8.lua --topo examples/machines/a100x8.yaml goal=latency               # TP=8
--   tpl plan examples/placement/a100x8.lua --topo examples/machines/a100x8.yaml place=spare_pairs          # keep pairs for the next tenant
local a = tpl.args { model = "../models/llama-3.3-70b", context = 8192, concurrency = 16, goal = "throughput", place = "auto" }

return tpl.deploy {
  model = a.model,
  place = a.place,
  want  = { context = a.context, concurrency = a.concurrency, goal = a.goal },
}
