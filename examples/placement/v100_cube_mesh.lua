-- SPDX-License-Identifier: Apache-2.0
-- A 70B on 8 x V100 in a hybrid cube mesh: every card has NVLink to four of the others only. A group of eight has pairs that talk through both
-- sockets, which `require` refuses, so it is two groups of four, each joined in full. Planned, priced and emitted for engines that run there;
-- tpl has no kernels for such cards, and says so when it is to run there.
--
--   tpl plan examples/placement/v100_cube_mesh.lua --topo examples/machines/v100x8-cube-mesh.yaml
--   tpl plan examples/placement/v100_cube_mesh.lua --topo examples/machines/v100x8-cube-mesh.yaml --svg mesh.svg
--   tpl plan examples/placement/v100_cube_mesh.lua --topo examples/machines/v100x8-cube-mesh.yaml --emit slurm
local a = tpl.args { model = "../models/llama-3.3-70b", context = 4096, concurrency = 8 }

return tpl.deploy {
  model   = a.model,
  want    = { context = a.context, concurrency = a.concurrency },
  require = { link = "nvlink" },
}
