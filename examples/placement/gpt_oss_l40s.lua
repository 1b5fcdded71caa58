-- SPDX-License-Identifier: Apache-2.0
-- gpt-oss-120b in AWQ on L40S, which have no NVLink and 48 GB. Two cards hold the weights and little more. The report lists what two, three
-- and four cards would do, so it says what the third and the fourth buy.
--
--   tpl plan examples/placement/gpt_oss_l40s.lua --topo examples/machines/l40sx4.yaml
--   tpl plan examples/placement/gpt_oss_l40s.lua --topo examples/machines/l40sx4.yaml context=65536
--   tpl plan examples/placement/gpt_oss_l40s.lua --topo examples/machines/l40sx4.yaml --why-not "tp=4"     # PCIe: communication
local a = tpl.args { model = "../models/gpt-oss-120b-awq", context = 8192, concurrency = 16 }

return tpl.deploy {
  model = a.model,
  want  = { context = a.context, concurrency = a.concurrency },
}
