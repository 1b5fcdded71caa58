-- SPDX-License-Identifier: Apache-2.0
-- One host, two uses: GPU 0 and 1 serve a model together, GPU 2 and 3 are cut into MIG slices for small services (an embedder, a reranker).
-- A card in MIG mode can be in no group of ranks, so the two whole cards are what is left, by UUID, whatever their indices are after a
-- reboot. `require` refuses a host where these two are not joined by NVLink or are not equal.
--
--   tpl plan examples/placement/reference_host.lua --topo examples/machines/h100x4-mig.yaml
--   tpl plan examples/placement/reference_host.lua --topo examples/machines/h100x4-mig.yaml --emit k8s     # with the slices' claims
--   tpl plan examples/placement/reference_host.lua --topo examples/machines/h100x4.yaml                    # without MIG: a second replica
local a = tpl.args { model = "../models/llama-3.3-70b-fp8", context = 8192, concurrency = 20 }

return tpl.deploy {
  model   = a.model,
  place   = "exclude",          -- besides MIG parents: leave busy and labelled cards alone
  mesh    = "tp=2",
  want    = { context = a.context, concurrency = a.concurrency },
  require = { link = "nvlink", same_gpu = true },
}
