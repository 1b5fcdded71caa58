-- SPDX-License-Identifier: Apache-2.0
--- Megatron with sequence parallel (Korthikanti et al. 2022, arXiv:2205.05198): between the blocks each rank of tp
--- holds a part of the tokens; all_reduce becomes reduce_scatter after and all_gather before each half of a block.
-- luacheck: globals tpl R S

return tpl.use("megatron", { at = { ["*.out"] = S { tok = "tp" } } })
