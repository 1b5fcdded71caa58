-- SPDX-License-Identifier: Apache-2.0
-- gpt-oss-120b in MXFP4 on 4 x H100. How many cards make a replica follows from the KV cache: 20 requests of 131072 tokens need all four,
-- of 65536 or less two, so there are two replicas. Half of the layers keep 128 positions only, which the plan credits.
--
--   tpl plan examples/placement/gpt_oss_h100.lua --topo examples/machines/h100x4.yaml                      # TP=4
--   tpl plan examples/placement/gpt_oss_h100.lua --topo examples/machines/h100x4.yaml context=65536        # 2 x TP=2
--   tpl plan examples/placement/gpt_oss_h100.lua --topo examples/machines/h100x4.yaml --why-not "tp=2"     # the bytes that are missing
local a = tpl.args { model = "../models/gpt-oss-120b", context = 131072, concurrency = 20 }

return tpl.deploy {
  model = a.model,
  want  = { context = a.context, concurrency = a.concurrency },
}
