-- SPDX-License-Identifier: Apache-2.0
-- A 70B in FP8 on 8 x RTX 4090: 24 GB each, no NVLink, and the driver refuses peer access, so that all traffic goes through host memory.
-- TP would wait for it in every layer; a pipeline sends activations once a stage. A small model gets a replica on each card instead.
--
--   tpl plan examples/placement/rtx4090x8.lua --topo examples/machines/rtx4090x8.yaml
--   tpl plan examples/placement/rtx4090x8.lua --topo examples/machines/rtx4090x8.yaml --why-not "tp=8"
--   tpl plan examples/placement/rtx4090x8.lua --topo examples/machines/rtx4090x8.yaml model=../models/llama-3.1-8b concurrency=4
local a = tpl.args { model = "../models/llama-3.3-70b-fp8", context = 4096, concurrency = 8 }

return tpl.deploy {
  model = a.model,
  want  = { context = a.context, concurrency = a.concurrency },
}
