-- SPDX-License-Identifier: Apache-2.0
-- 405B in FP8 over two hosts of eight: TP inside a host, where NVSwitch is, and a pipeline across, where each token's activations cross
-- the network once instead of twice a layer.
--
--   tpl plan examples/placement/two_hosts.lua --topo examples/machines/h100x8-two-hosts.yaml
--   tpl plan examples/placement/two_hosts.lua --topo examples/machines/h100x8-two-hosts.yaml --why-not "tp=16"
--   tpl plan examples/placement/two_hosts.lua --topo examples/machines/h100x8-two-hosts.yaml --emit slurm
local a = tpl.args { model = "../models/llama-3.1-405b-fp8", context = 32768, concurrency = 32 }

return tpl.deploy {
  model = a.model,
  want  = { context = a.context, concurrency = a.concurrency },
}
