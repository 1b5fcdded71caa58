-- SPDX-License-Identifier: Apache-2.0
-- Llama 3.3 70B in FP8 on two H100: 68 GiB of weights leave one card no room for a cache, so both make one replica by NVLink.
--
--   tpl plan examples/placement/llama70b_fp8_2gpus.lua --topo examples/machines/h100x2.yaml
--   tpl plan examples/placement/llama70b_fp8_2gpus.lua --topo examples/machines/h100x2.yaml context=32768  # what fits of it
--   tpl plan examples/placement/llama70b_fp8_2gpus.lua --topo examples/machines/h100x2.yaml --emit vllm
local a = tpl.args { model = "../models/llama-3.3-70b-fp8", context = 8192, concurrency = 20 }

return tpl.deploy {
  model   = a.model,
  want    = { context = a.context, concurrency = a.concurrency },
  require = { link = "nvlink", kv_tokens = 8192 },
}
