-- SPDX-License-Identifier: Apache-2.0
-- A 70B in bfloat16 on three cards: two do not hold it, and 8 groups of KV heads over three ranks are 3, 3 and 2. By PCIe a pipeline is
-- cheaper than such a cut; the report has the price of both.
--
--   tpl plan examples/placement/llama70b_3gpus.lua --topo examples/machines/a100x3.yaml                    # PP=3
--   tpl plan examples/placement/llama70b_3gpus.lua --topo examples/machines/a100x3.yaml tp=3               # uneven TP, on demand
--   tpl plan examples/placement/llama70b_3gpus.lua --topo examples/machines/a100x3.yaml tp=3 --emit vllm   # refused: vLLM needs 1, 2, 4 or 8
local a = tpl.args { model = "../models/llama-3.3-70b", context = 8192, concurrency = 16, tp = 0 }

return tpl.deploy {
  model = a.model,
  mesh  = a.tp > 0 and "tp=" .. a.tp or nil,   -- 0: the policy decides
  want  = { context = a.context, concurrency = a.concurrency },
}
