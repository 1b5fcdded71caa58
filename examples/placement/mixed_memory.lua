-- SPDX-License-Identifier: Apache-2.0
-- One TP group on cards of 80, 40 and 40 GB: the shares follow the memory, so the large card takes 4 of the 8 groups of KV heads and the
-- small ones 2 each. The report prints what stays stranded, and what an even cut would hold.
--
--   tpl plan examples/placement/mixed_memory.lua --topo examples/machines/a100-80-40-40.yaml
--   tpl plan examples/placement/mixed_memory.lua --topo examples/machines/a100-80-40-40.yaml place=auto    # by price
--   tpl plan examples/placement/mixed_memory.lua --topo examples/machines/a100-80-40-40.yaml --emit vllm   # refused: no uneven TP there
local a = tpl.args { model = "../models/llama-3.3-70b-fp8", context = 8192, concurrency = 16, place = "uneven_by_memory" }

return tpl.deploy {
  model = a.model,
  place = a.place,
  want  = { context = a.context, concurrency = a.concurrency },
}
