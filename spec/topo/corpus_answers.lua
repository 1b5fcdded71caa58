-- SPDX-License-Identifier: Apache-2.0
--- The worked answers of ../shared/data/topologies/INDEX.md, one entry for each of its files. Written from that page, not from what tpl prints.
--
-- Devices are named by a number (index of the GPU) or by a part of their PCI address. Fields, all optional:
--   gpus        how many GPUs the file shows
--   first       which pairs may be the best one (P2); ties are listed
--   pairs       the pairs of the suggestion, in any order, where the page gives a partition
--   inside      sets within which every suggested pair must lie, where the page only says that much
--   quads       which groups of four may be the best one (P4), given as sets
--   islands     NVLink domains (ISL); {} where the page says none. Not given: "not stated"
--   full        whether every pair of all islands is joined; nil where the page does not say
--   numa        GPUs by NUMA number; split: GPUs by socket or node where the page infers it
--   nics        nearest NICs that the page names, by GPU; {} for none nearer than SYS
--   advice      where the page says how to use the machine
--   unusable    devices that must not be chosen, with the code
--   doubts      texts (patterns) of which one must be among code and message of a doubt
--   refused     patterns that the refusal must hold
local M = {}

local q8 = { { 0, 1, 2, 3 }, { 4, 5, 6, 7 } }
local pairs8 = { { 0, 1 }, { 2, 3 }, { 4, 5 }, { 6, 7 } }
local all4 = { { 0, 1, 2, 3 } }
local all8 = { { 0, 1, 2, 3, 4, 5, 6, 7 } }
local two_nodes = { [0] = { 0, 1, 2, 3 }, [1] = { 4, 5, 6, 7 } }

-- -- NCCL topology XML -----------------------------------------------------------------------------------------------

M["01-azure-ndv2-8xV100.nccl.xml"] = {
  gpus = 8, inside = { { "0001:", "0002:", "0003:", "0004:" }, { "0005:", "0006:", "0007:", "0008:" } },
  quads = { { "0001:", "0002:", "0003:", "0004:" }, { "0005:", "0006:", "0007:", "0008:" } }, islands = {},
  numa = { [0] = { "0001:", "0002:", "0003:", "0004:" }, [1] = { "0005:", "0006:", "0007:", "0008:" } },
  nics = { ["0001:"] = { "0101" }, ["0004:"] = { "0101" }, ["0005:"] = {} }, doubts = { "[Nn][Vv][Ll]ink" },
}
M["02-azure-ndv4-8xA100.nccl.xml"] = {
  gpus = 8, pairs = { { "0003:", "0004:" }, { "0001:", "0002:" }, { "000d:", "000e:" }, { "000b:", "000c:" } },
  quads = { { "0003:", "0004:", "0001:", "0002:" }, { "000d:", "000e:", "000b:", "000c:" } }, islands = {},
  numa = { [0] = { "0003:", "0004:" }, [1] = { "0001:", "0002:" }, [2] = { "000d:", "000e:" }, [3] = { "000b:", "000c:" } },
  nics = { ["0003:"] = { "0103", "0104" }, ["000c:"] = { "0105", "0106" } },
}
M["03-azure-ndv5-8xH100.nccl.xml"] = {
  gpus = 8, first = { { "0001:", "0002:" } },
  inside = { { "0001:", "0002:", "0003:", "0008:" }, { "0009:", "000a:", "000b:", "000c:" } },
  quads = { { "0001:", "0002:", "0003:", "0008:" }, { "0009:", "000a:", "000b:", "000c:" } }, islands = {},
  numa = { [0] = { "0001:", "0002:", "0003:", "0008:" }, [1] = { "0009:", "000a:", "000b:", "000c:" } },
  nics = { ["0001:"] = { "0101" }, ["0002:"] = { "0102" }, ["0003:"] = { "0103" }, ["0008:"] = { "0104" }, ["0009:"] = { "0105" } },
}
M["04-azure-ncv4-4xA100pcie-selflink.nccl.xml"] = {
  gpus = 4, first = { { 0, 1 } }, quads = all4, islands = {}, numa = { [0] = { 0 }, [1] = { 1 }, [2] = { 2 }, [3] = { 3 } }, doubts = { "self" },
}
M["05-azure-ncv4-graph.nccl-graph.xml"] = { refused = { "NCCL graph file", "topology" } }
M["06-azure-nc48v4-2xA100.nccl.xml"] = {
  gpus = 2, first = { { 0, 1 } }, islands = { { 0, 1 } }, full = true, quads = {}, numa = { [0] = { 0 }, [1] = { 1 } }, advice = "tp2",
}
for _, name in ipairs { "07-aws-p4d-8xA100.nccl.xml", "08-aws-p4de-8xA100-80.nccl.xml" } do
  M[name] = {
    gpus = 8, pairs = { { "10:1c", "10:1d" }, { "20:1c", "20:1d" }, { "90:1c", "90:1d" }, { "a0:1c", "a0:1d" } }, islands = {},
    quads = { { "10:1c", "10:1d", "20:1c", "20:1d" }, { "90:1c", "90:1d", "a0:1c", "a0:1d" } },
    numa = { [0] = { "10:1c", "10:1d", "20:1c", "20:1d" }, [1] = { "90:1c", "90:1d", "a0:1c", "a0:1d" } },
    nics = { ["10:1c"] = { "10:1b" }, ["20:1d"] = { "20:1b" }, ["90:1c"] = { "90:1b" }, ["a0:1d"] = { "a0:1b" } },
  }
end
M["09-aws-g5.48xl-8xA10G-busid-only.nccl.xml"] = {
  gpus = 8, first = { { ":16.", ":17." } }, inside = { { ":16.", ":17.", ":18.", ":19." }, { ":1a.", ":1b.", ":1c.", ":1d." } }, islands = {},
  quads = { { ":16.", ":17.", ":18.", ":19." }, { ":1a.", ":1b.", ":1c.", ":1d." } },
  numa = { [0] = { ":16.", ":17.", ":18.", ":19." }, [1] = { ":1a.", ":1b.", ":1c.", ":1d." } },
  nics = { [":1a."] = { "00:15" }, [":1d."] = { "00:15" }, [":16."] = {} }, doubts = { "class" },
}
M["10-oci-bm-h100-8.nccl.xml"] = {
  gpus = 8, first = { { 0, 1 } }, inside = q8, islands = all8, full = true, quads = q8, numa = two_nodes,
  nics = { [0] = { "mlx5_0", "mlx5_1" }, [1] = { "mlx5_3", "mlx5_4" }, [2] = { "mlx5_5", "mlx5_6" }, [3] = { "mlx5_7", "mlx5_8" },
    [4] = { "mlx5_9", "mlx5_10" }, [5] = { "mlx5_12", "mlx5_13" }, [6] = { "mlx5_14", "mlx5_15" }, [7] = { "mlx5_16", "mlx5_17" } },
  doubts = { "5%.0 GT/s" },
}
local function two_switches(second, third)
  return {
    gpus = 8, first = { { "0000:0f:", "0000:15:" } },
    pairs = { { "0000:0f:", "0000:15:" }, second, third, { "0000:d6:", "0000:da:" } }, islands = {},
    quads = { { "0000:0f:", "0000:15:", second[1], second[2] }, { third[1], third[2], "0000:d6:", "0000:da:" } },
    numa = { [3] = { "0000:0f:", "0000:15:" }, [1] = second, [7] = third, [5] = { "0000:d6:", "0000:da:" } },
    nics = { ["0000:0f:"] = { "0c:00", "16:00" }, ["0000:da:"] = { "c3:00", "d1:00" } },
  }
end
M["11-oci-bm-a100-flattened.nccl.xml"] = two_switches({ "0000:51:", "0000:54:" }, { "0000:8d:", "0000:92:" })
M["12-oci-bm-a100-b4-bad-affinity.nccl.xml"] = two_switches({ "0000:50:", "0000:53:" }, { "0000:8c:", "0000:91:" })
M["12-oci-bm-a100-b4-bad-affinity.nccl.xml"].doubts = { "affinity" }
M["91-baremetal-h200-3gpu-unclosed.nccl.xml"] = {
  gpus = 3, first = { { 0, 1 }, { 0, 2 }, { 1, 2 } }, islands = { { 0, 1, 2 } }, full = true, quads = {}, numa = { [0] = { 0, 1, 2 } },
  nics = { [0] = { "mlx5_0" }, [1] = { "mlx5_1" }, [2] = { "mlx5_2" } }, doubts = { "breaks off", "truncated" },
}
M["92-aws-p5-autogen-first-gpu.nccl.xml"] = {
  gpus = 1, pairs = {}, quads = {}, advice = "single", nics = { [0] = { "rdmap82s0" } }, doubts = { "breaks off", "truncated" },
}
M["93-2xa100-direct-12-links-nic-other-socket.nccl.xml"] = {
  gpus = 2, first = { { 0, 1 } }, islands = { { 0, 1 } }, full = true, numa = { [0] = { 0, 1 } }, nics = { [0] = {}, [1] = {} }, doubts = { "quote" },
  links = { { 0, 1, 12 } },
}
M["94-invented-schema-gpu-under-system.negative.nccl.xml"] = { refused = { "gpu", "pci" } }
M["103-rccl-8xMI200-xgmi.negative.nccl.xml"] = { refused = { "AMD" } }
M["104-rccl-8xMI60-pcie-switch-2nic.negative.nccl.xml"] = { refused = { "AMD" } }
M["113-vm-4xa800-no-nvlink-numa-minus1.nccl.xml"] = {
  gpus = 4, first = { { 0, 1 } }, islands = {}, quads = all4, numa = {}, doubts = { "hypervisor" },
}

-- -- hwloc and lstopo ------------------------------------------------------------------------------------------------

M["13-dgx2-16xV100.hwloc.xml"] = {
  gpus = 16, first = { { 0, 1 } }, pairs = { { 0, 1 }, { 2, 3 }, { 4, 5 }, { 6, 7 }, { 8, 9 }, { 10, 11 }, { 12, 13 }, { 14, 15 } },
  islands = { { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 } }, full = true,
  quads = { { 0, 1, 2, 3 }, { 4, 5, 6, 7 }, { 8, 9, 10, 11 }, { 12, 13, 14, 15 } },
  numa = { [0] = { 0, 1, 2, 3, 4, 5, 6, 7 }, [1] = { 8, 9, 10, 11, 12, 13, 14, 15 } },
}
M["14-power8-minsky-4xP100.hwloc.xml"] = {
  gpus = 4, first = { { 0, 1 }, { 2, 3 } }, pairs = { { 0, 1 }, { 2, 3 } }, islands = { { 0, 1 }, { 2, 3 } }, full = true, quads = all4,
  advice = "tp2xpp2", split = { { 0, 1 }, { 2, 3 } }, links = { { 0, 1, 2 }, { 2, 3, 2 } },
}
M["15-dgx-spark-gb10.hwloc.xml"] = { gpus = 0, pairs = {}, quads = {}, islands = {}, doubts = { "no GPU information" } }
for _, name in ipairs { "16-power9-gpu-numa-nodes-kept.lstopo.txt", "17-power9-gpu-numa-nodes-ignored.lstopo.txt" } do
  M[name] = {
    gpus = 6, islands = {},
    numa = { [0] = { "0004:05", "0004:06", "0006:00" }, [8] = { "0007:00", "0035:04", "0035:05" } },
  }
end

-- -- nvidia-smi topo: NVSwitch and full mesh -------------------------------------------------------------------------

M["18-h100x8-11nic-ansi.topo.txt"] = {
  gpus = 8, first = { { 0, 1 } }, inside = q8, islands = all8, full = true, quads = q8, numa = two_nodes,
  nics = { [0] = { "NIC0" }, [1] = { "NIC1" }, [2] = { "NIC2" }, [3] = { "NIC3" }, [4] = { "NIC6" }, [5] = { "NIC7" }, [6] = { "NIC8" }, [7] = { "NIC8" } },
  names = { NIC9 = "mlx5_10", NIC10 = "mlx5_11" },
}
M["19-h100x4-vm-ansi.topo.txt"] = { gpus = 4, first = { { 0, 1 } }, islands = all4, full = true, quads = all4, split = all4, advice = "tp4" }
M["20-rtx3090x1-ansi.topo.txt"] = { gpus = 1, pairs = {}, quads = {}, islands = {}, advice = "single" }
M["37-8xa100-4nic-half-without-nic.topo.txt"] = {
  gpus = 8, first = { { 0, 1 } }, inside = q8, islands = all8, full = true, quads = q8, quads_nic = { { 0, 1, 2, 3 } }, numa = two_nodes,
  nics = { [0] = { "NIC0", "NIC1" }, [1] = { "NIC0", "NIC1" }, [2] = { "NIC2", "NIC3" }, [3] = { "NIC2", "NIC3" }, [4] = {}, [5] = {}, [6] = {}, [7] = {} },
  doubts = { "legend" },
}
M["39-polaris-4xa100-header-spaces.topo.txt"] = {
  gpus = 4, first = { { 0, 1 } }, first_nic = { { 1, 3 } }, islands = all4, full = true, quads = all4,
  numa = { [3] = { 0 }, [2] = { 1 }, [1] = { 2 }, [0] = { 3 } }, nics = { [3] = { "mlx5_0" }, [1] = { "mlx5_1" }, [0] = {}, [2] = {} },
}
M["40-2xa100-sxm-nv4-numa3-5-no-leading-tab.topo.txt"] = {
  gpus = 2, first = { { 0, 1 } }, islands = { { 0, 1 } }, full = true, numa = { [3] = { 0 }, [5] = { 1 } }, links = { { 0, 1, 4 } },
}
M["51-h100-quad-nv6-interleaved-cpus.topo.txt"] = {
  gpus = 4, pairs = { { 0, 1 }, { 2, 3 } }, islands = all4, full = true, quads = all4, numa = { [3] = { 0 }, [1] = { 1 }, [7] = { 2 }, [5] = { 3 } },
  nics = { [0] = { "NIC0" }, [1] = { "NIC1" }, [2] = { "NIC2" }, [3] = { "NIC3" } },
}
M["53-2xh20-nv18-cross-numa-10nic-ragged.topo.txt"] = {
  gpus = 2, first = { { 0, 1 } }, islands = { { 0, 1 } }, full = true, numa = { [0] = { 0 }, [1] = { 1 } }, nics = { [0] = { "NIC5" }, [1] = { "NIC6" } },
}
local one_each = {}
for i = 0, 7 do one_each[i] = { "NIC" .. i } end
M["54-b300-8nic-bond-cx8.topo.txt"] = {
  gpus = 8, first = { { 0, 1 } }, inside = q8, islands = all8, full = true, quads = q8, numa = two_nodes, nics = one_each,
}
M["58-4xnv18-container-empty-cpu-affinity.topo.txt"] = {
  gpus = 4, first = { { 1, 2 } }, islands = all4, full = true, quads = all4, numa = { [0] = { 0 }, [1] = { 1, 2, 3 } },
}
M["66-leonardo-booster-4xa100-nv4-4nic.topo.txt"] = {
  gpus = 4, first = { { 0, 1 } }, islands = all4, full = true, quads = all4, split = all4,
  nics = { [0] = { "NIC0" }, [1] = { "NIC1" }, [2] = { "NIC2" }, [3] = { "NIC3" } }, doubts = { "ends after", "row_cut" },
}
M["67-4xa100-sxm40-nv4-2nic-numa2-6.topo.txt"] = {
  gpus = 4, pairs = { { 0, 1 }, { 2, 3 } }, first = { { 0, 1 } }, islands = all4, full = true, quads = all4, numa = { [2] = { 0, 1 }, [6] = { 2, 3 } },
  nics = { [0] = { "NIC0" }, [1] = { "NIC0" }, [2] = { "NIC1" }, [3] = { "NIC1" } }, names = { NIC0 = "mlx5_0", NIC1 = "mlx5_1" },
}
local mlx = {}
for i = 0, 7 do mlx[i] = { "mlx5_" .. i } end
M["68-h100-mlx5-columns.topo.txt"] = {
  gpus = 8, first = { { 0, 1 } }, inside = q8, islands = all8, full = true, quads = q8, nics = mlx, far_nics = { "mlx5_8", "mlx5_9" },
}
M["69-oci-h100x4-nic-legend.topo.txt"] = {
  gpus = 4, first = { { 0, 1 } }, islands = all4, full = true, quads = all4, nics = { [0] = { "NIC0" }, [1] = { "NIC3" }, [2] = { "NIC2" }, [3] = { "NIC1" } },
}
M["71-preamble-line-mentions-gpu0.topo.txt"] = { gpus = 2, first = { { 0, 1 } }, islands = { { 0, 1 } }, full = true, links = { { 0, 1, 18 } } }
M["72-wrapped-header-8gpu-oci.topo.txt"] = {
  gpus = 8, first = { { 0, 1 } }, inside = q8, islands = all8, full = true, quads = q8, numa = two_nodes, nics = { [0] = { "NIC0" }, [1] = { "NIC1" } },
}
M["73-gb200-4gpu-nic-all-SYS.topo.txt"] = {
  gpus = 4, pairs = { { 0, 1 }, { 2, 3 } }, islands = all4, full = true, quads = all4, numa = {}, split = { { 0, 1 }, { 2, 3 } },
  nics = { [0] = {}, [1] = {}, [2] = {}, [3] = {} },
}
M["74-partial-nic-legend.topo.txt"] = { gpus = 2, first = { { 0, 1 } }, names = { NIC1 = false }, doubts = { "NIC1" } }
M["76-header-NIC28NIC29-concatenated.topo.txt"] = { gpus = 2, first = { { 0, 1 } }, doubts = { "NIC28NIC29" } }
M["77-single-gpu-with-nic.topo.txt"] = { gpus = 1, pairs = {}, quads = {}, advice = "single", nics = { [0] = { "mlx5_0" } }, word = { "mlx5_0", 0, "pix" } }
M["79-b200-header-NIC11NIC12-glued.topo.txt"] = {
  gpus = 8, first = { { 0, 1 } }, islands = all8, quads = { { 0, 1, 2, 3 } }, not_full = true,
  nics = { [0] = { "NIC11" }, [1] = { "NIC10" }, [2] = { "NIC9" }, [3] = { "NIC8" }, [4] = { "NIC7" } }, doubts = { "GPU5" },
}
M["83-dgx2-16gpu-10nic-truncated.topo.txt"] = {
  gpus = 16, first = { { 0, 1 } }, islands = { { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 } }, not_full = true, quads = { { 0, 1, 2, 3 } },
  nics = { [0] = { "mlx5_0" }, [1] = { "mlx5_0" }, [2] = { "mlx5_1" }, [3] = { "mlx5_1" }, [4] = { "mlx5_2" } }, doubts = { "GPU5" },
}
M["84-h100-1264-10nic-sys-within-socket.topo.txt"] = {
  gpus = 8, first = { { 0, 1 } }, inside = q8, islands = all8, full = true, quads = q8, far_nics = { "NIC3", "NIC4" },
  nics = { [0] = { "NIC0" }, [1] = { "NIC1" }, [2] = { "NIC2" }, [3] = { "NIC5" }, [4] = { "NIC6" }, [5] = { "NIC7" }, [6] = { "NIC8" }, [7] = { "NIC9" } },
  doubts = { "NIC3" },
}
M["86-topo-mp-pcie-only-hides-nvlink.topo.txt"] = {
  gpus = 8, first = { { 0, 1 } }, islands = {}, quads = q8, nics = { [0] = { "NIC0" }, [1] = { "NIC1" }, [2] = { "NIC2" }, [3] = { "NIC7" } },
  doubts = { "hides NVLink" },
}
M["105-a100x8-retyped-two-space.topo.txt"] = {
  gpus = 8, first = { { 0, 1 } }, inside = q8, islands = all8, full = true, quads = q8, split = q8,
}
M["112-h100-snc-8numa-headless-tail.topo.txt"] = {
  gpus = 8, first = { { 4, 5 }, { 4, 6 }, { 4, 7 }, { 5, 6 }, { 5, 7 }, { 6, 7 } }, islands = all8, not_full = true, quads = { { 4, 5, 6, 7 } },
  numa = { [1] = { 3 }, [4] = { 4 }, [6] = { 5 }, [7] = { 6 }, [5] = { 7 } },
  nics = { [0] = { "NIC0" }, [1] = { "NIC7" }, [2] = { "NIC3" }, [4] = { "NIC4" }, [6] = { "NIC5" }, [5] = { "NIC6" }, [3] = {}, [7] = {} },
  doubts = { "GPU0" },
}

-- -- Cube mesh, POWER ------------------------------------------------------------------------------------------------

M["23-nv1-pairs-custom-legend.topo.txt"] = {
  gpus = 4, pairs = { { 0, 1 }, { 2, 3 } }, islands = { { 0, 1 }, { 2, 3 } }, full = true, quads = all4, advice = "tp2xpp2",
  numa = {}, split = { { 0, 1 }, { 2, 3 } },
}
M["27-dgx1-p100-SOC-glued-header.topo.txt"] = {
  gpus = 8, inside = q8, pairs_nic = { { 0, 1 }, { 2, 3 }, { 4, 5 }, { 6, 7 } }, islands = all8, full = false, quads = q8, split = q8,
  nics = { [0] = { "mlx5_0" }, [1] = { "mlx5_0" }, [2] = { "mlx5_1" }, [3] = { "mlx5_1" }, [4] = { "mlx5_2" }, [5] = { "mlx5_2" },
    [6] = { "mlx5_3" }, [7] = { "mlx5_3" } },
}
local mesh_first = { { 0, 3 }, { 1, 2 }, { 2, 3 }, { 4, 7 }, { 5, 6 }, { 6, 7 } }
M["28-dgx1-v100-mlx5-outoforder.topo.txt"] = {
  gpus = 8, first = mesh_first, pairs = { { 0, 3 }, { 1, 2 }, { 4, 7 }, { 5, 6 } }, islands = all8, full = false, quads = q8, split = q8,
  links = { { 0, 3, 2 }, { 0, 4, 2 }, { 1, 5, 2 }, { 0, 1, 1 }, { 4, 6, 1 }, { 0, 5, 0 } },
}
M["29-v100-sxm2-8-cubemesh-1nic-node.topo.txt"] = {
  gpus = 8, first = mesh_first, pairs = { { 0, 3 }, { 1, 2 }, { 4, 7 }, { 5, 6 } }, islands = all8, full = false, quads = q8,
  quads_nic = { { 0, 1, 2, 3 } }, numa = two_nodes,
}
M["33-ac922-power9-4xv100-nv3-numa8.topo.txt"] = {
  gpus = 4, pairs = { { 0, 1 }, { 2, 3 } }, islands = { { 0, 1 }, { 2, 3 } }, full = true, quads = all4, advice = "tp2xpp2",
  numa = { [0] = { 0, 1 }, [8] = { 2, 3 } },
  nics = { [0] = { "mlx5_0", "mlx5_1" }, [1] = { "mlx5_0", "mlx5_1" }, [2] = { "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5" } },
}

-- -- Bridge pairs and mixed PCIe -------------------------------------------------------------------------------------

M["34-6xa100-pcie-bridge-crosses-numa.topo.txt"] = {
  gpus = 6, first = { { 1, 2 } }, pairs = { { 1, 2 }, { 4, 5 }, { 0, 3 } }, in_order = true, islands = { { 0, 3 }, { 1, 2 }, { 4, 5 } }, full = true,
  quads = { { 0, 1, 2, 3 } }, advice = "tp2xpp3", numa = { [0] = { 0, 1, 2 }, [1] = { 3, 4, 5 } },
}
M["35-4xa100-azure-ncv4-each-own-numa.topo.txt"] = {
  gpus = 4, pairs = { { 0, 1 }, { 2, 3 } }, islands = { { 0, 1 }, { 2, 3 } }, full = true, advice = "tp2xpp2",
  numa = { [0] = { 0 }, [1] = { 1 }, [2] = { 2 }, [3] = { 3 } },
}
M["36-4xa100-pcie-80-nvl-bridge-pairs.topo.txt"] = {
  gpus = 4, pairs = { { 0, 1 }, { 2, 3 } }, islands = { { 0, 1 }, { 2, 3 } }, full = true, advice = "tp2xpp2", numa = { [0] = { 0, 1 }, [1] = { 2, 3 } },
}
M["42-4xa5500-bridged-03-12-annotated.topo.txt"] = {
  gpus = 4, pairs = { { 0, 3 }, { 1, 2 } }, islands = { { 0, 3 }, { 1, 2 } }, full = true, quads = all4, numa = {}, links = { { 0, 3, 4 }, { 0, 1, 0 } },
}
M["43-8xa40-nv4-pairs-ellipsis.topo.txt"] = {
  gpus = 8, pairs = pairs8, islands = pairs8, full = true, quads = q8, split = q8, numa = {},
}
M["44-3xa6000-one-pair-bridged.topo.txt"] = { gpus = 3, pairs = { { 0, 1 } }, islands = { { 0, 1 } }, full = true, quads = {}, split = { { 0, 1, 2 } } }
M["46-2xrtx-nv2.topo.txt"] = { gpus = 2, first = { { 0, 1 } }, islands = { { 0, 1 } }, full = true }
M["49-4gpu-PXB-vs-PIX-acs-hang.topo.txt"] = {
  gpus = 4, pairs = { { 2, 3 }, { 0, 1 } }, in_order = true, islands = {}, quads = all4, advice = "tp2xpp2", numa = { [0] = { 0, 1 }, [1] = { 2, 3 } },
}
M["50-8gpu-pix-pxb-truncated-numa-na.topo.txt"] = {
  gpus = 8, first = { { 0, 1 }, { 4, 5 } }, has_pairs = { { 0, 1 }, { 4, 5 } }, islands = {}, quads = { { 0, 1, 2, 3 }, { 4, 5, 6, 7 } }, numa = {}, split = q8,
  doubts = { "GPU7" },
}
M["60-4xa4000-all-node.topo.txt"] = { gpus = 4, first = { { 0, 1 } }, islands = {}, quads = all4, split = all4 }
M["61-4xv100-pcie-pix-pairs-phb.topo.txt"] = { gpus = 4, pairs = { { 0, 1 }, { 2, 3 } }, islands = {}, quads = all4, split = all4 }
M["109-8xa6000-nv4-pairs-2nic-phb.topo.txt"] = {
  gpus = 8, pairs = pairs8, islands = pairs8, full = true, quads = q8, first_nic = { { 6, 7 } }, quads_nic = { { 4, 5, 6, 7 } }, numa = two_nodes,
}
M["114-8gpu-pix-pairs-node-sys-truncated.topo.txt"] = {
  gpus = 8, first = { { 0, 1 } }, has_pairs = { { 0, 1 }, { 2, 3 }, { 4, 5 } }, islands = {}, quads = { { 0, 1, 2, 3 } }, split = q8, doubts = { "GPU5" },
}

-- -- Plain PCIe, consumer cards, small machines ----------------------------------------------------------------------

M["31-2xk80-SOC-legend-old.topo.txt"] = { gpus = 4, pairs = { { 0, 1 }, { 2, 3 } }, islands = {}, quads = all4, split = all4 }
M["47-8gpu-all-SYS-two-numa.topo.txt"] = { gpus = 8, first = { { 0, 1 } }, inside = q8, islands = {}, quads = q8, numa = two_nodes }
M["48-8x4090-node-sys.topo.txt"] = { gpus = 8, first = { { 0, 1 } }, inside = q8, islands = {}, quads = q8, numa = two_nodes }
M["57-gb10-single-shortlegend.topo.txt"] = { gpus = 1, pairs = {}, quads = {}, advice = "single" }
M["62-2xl4-sys-reversed-numa.topo.txt"] = { gpus = 2, first = { { 0, 1 } }, islands = {}, numa = { [1] = { 0 }, [0] = { 1 } }, doubts = { "SYS" } }
M["87-2x5090-phb-p2p-GNS.topo.txt"] = { gpus = 2, first = { { 0, 1 } }, islands = {}, split = { { 0, 1 } }, refused_p2p = { { 0, 1, "gns" } } }
M["88-2x3090-nv4-but-p2p-NS.topo.txt"] = {
  gpus = 2, first = { { 0, 1 } }, islands = {}, numa = {}, split = { { 0 }, { 1 } }, refused_p2p = { { 0, 1, "ns" } }, links = { { 0, 1, 4 } },
  doubts = { "refused" },
}
M["89-2x3090-nvlink-nv4-and-status.topo.txt"] = { gpus = 2, first = { { 0, 1 } }, islands = { { 0, 1 } }, full = true, links = { { 0, 1, 4 } } }
M["106-2gpu-nv2-numa-NA.topo.txt"] = { gpus = 2, first = { { 0, 1 } }, islands = { { 0, 1 } }, full = true, numa = {} }
M["107-2gpu-phb-numa-NA.topo.txt"] = { gpus = 2, first = { { 0, 1 } }, islands = {}, numa = {} }

-- -- nvidia-smi -L, nvlink, -q, slurmd -------------------------------------------------------------------------------

M["25-mig-mixed-h100.smiL.txt"] = { gpus = 1, pairs = {}, quads = {}, unusable = { [0] = "mig_on" }, advice = "none" }
M["26-mig-index-gaps-rtxpro6000.smiL.txt"] = {
  gpus = 3, pairs = {}, quads = {}, unusable = { [4] = "mig_on", [7] = "mig_on" }, advice = "single", usable = { 0 },
}
M["45-3xa6000-nvlink-status-inactive.nvlink.txt"] = { gpus = 3, first = { { 0, 1 } } }
M["97-nvlink-R-h100-remote-switch-ports.nvlink.txt"] = { gpus = 2, islands = { { 5, 6 } }, first = { { 5, 6 } } }
M["102-gb200-nvlink-status.nvlink.txt"] = { gpus = 2 }
M["98-fabric-insufficient-resources.smiq.txt"] = { gpus = 1, pairs = {}, unusable = { [0] = "fabric_insufficient_resources" } }
M["100-fabric-in-progress-and-na.smiq.txt"] = { gpus = 1, pairs = {}, unusable = { [0] = "fabric_not_ready" } }
M["101-fabric-na-a40.smiq.txt"] = { gpus = 1, pairs = {}, usable = { 0 } }
M["110-8xa6000-slurmd-G-links.slurm.txt"] = { gpus = 8, pairs = pairs8, islands = pairs8, full = true, quads = q8, split = q8 }

-- -- Other vendors ---------------------------------------------------------------------------------------------------

M["22-rocm-smi-showtopotype-8x.negative.txt"] = { refused = { "rocm" } }
M["95-gpustack-mthreads-topo-table.negative.txt"] = { refused = { "Moore Threads" } }
M["96-rocm-smi-showtopo-mi300a-weights.negative.txt"] = { refused = { "rocm" } }

return M
