/* SPDX-License-Identifier: Apache-2.0
 *
 * What NVIDIA's management library says of the GPUs of this machine, as plain facts. The library is opened when asked
 * and closed again; nothing of it is needed to build. A symbol that it lacks counts as "not supported", and what is
 * unknown says so (-1, "", 0 where a comment says so): lua/tpl/topo/probe.lua decides what it means. Setup only; the
 * caller owns the facts.
 */
#ifndef TPL_TOPO_NVML_H
#define TPL_TOPO_NVML_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "topo/nvml_abi.h"

enum { TPL_NVML_SET_WORDS = 64, TPL_NVML_MAX_GPUS = 256, TPL_NVML_MAX_SLICES = 64 };

typedef struct tpl_nvml_link {
    int number, version; /* version: NVML's enum, -1 unknown */
    int type;            /* NV_LINK_*, -1 unknown */
    char bus_id[32];     /* of the other end, "" when the driver hides it */
} tpl_nvml_link;

typedef struct tpl_nvml_slice {
    char uuid[NV_UUID_CAP], name[NV_NAME_CAP];
    uint64_t total, free, used; /* bytes; total 0: unknown */
    int gpu_slices;             /* of the GPU's compute slices, -1 unknown */
} tpl_nvml_slice;

typedef struct tpl_nvml_gpu {
    int index;     /* NVML's; not CUDA's */
    int open_code; /* what opening answered; other than 0, nothing else is known */
    int bad_code;  /* NV_GPU_IS_LOST or NV_RESET_REQUIRED when some call said so, else 0 */
    char uuid[NV_UUID_CAP], bus_id[32], name[NV_NAME_CAP], vbios[NV_VBIOS_CAP];
    int sm_major, sm_minor;
    uint64_t total, reserved, free, used; /* bytes; total 0: unknown (also where memory is the host's) */
    int gen_max, width_max, width_now;
    int mig_now, mig_pending; /* 0 off, 1 on, -1 no MIG */
    tpl_nvml_slice *slices;
    int n_slices;
    int fabric_state; /* 0 not supported .. 3 completed; -1 unknown */
    int fabric_status, fabric_summary, fabric_mask; /* summary and mask -1 unknown */
    unsigned fabric_clique;
    unsigned char fabric_cluster[16];
    unsigned long cpus[TPL_NVML_SET_WORDS], nodes[TPL_NVML_SET_WORDS]; /* all zero: unknown */
    int own_node; /* NUMA node that its memory is, -1 none */
    int *pids;
    int n_pids;
    uint64_t process_bytes;
    bool knows_processes;
    int remapped_uncorrected, remap_pending, remap_failed; /* -1 unknown */
    int64_t ecc_uncorrected;                               /* since the driver was loaded, -1 unknown */
    tpl_nvml_link links[NV_MAX_LINKS];                     /* active, and able to carry peer traffic */
    int n_links;
    bool knows_links;
    int c2c_links;     /* active links to the CPU, 0 none or unknown */
    double c2c_gb_s;   /* of all of them, one way */
} tpl_nvml_gpu;

typedef struct tpl_nvml_pair { /* from GPU a to GPU b of the list */
    int level;             /* 0 10 20 30 40 50 (facts/topology.md section 2), -1 unknown */
    int read, write, nvlink; /* P2P status 0..6, -1 unknown */
} tpl_nvml_pair;

typedef struct tpl_nvml {
    bool is_loaded;     /* the library was there */
    int init_code;      /* what it answered to init; meaningless unless loaded */
    char message[256];  /* why it could not be loaded, "" */
    char driver[NV_VERSION_CAP];
    int cuda; /* 12040 = 12.4; 0 unknown */
    int n_gpus;
    tpl_nvml_gpu *gpus;
    tpl_nvml_pair *pairs; /* [n_gpus][n_gpus] */
    char missing[512];  /* names of calls that the library lacks, ' ' between */
} tpl_nvml;

/* library NULL: the one that TPL_NVML names, else libnvidia-ml.so.1. No library, no driver and no GPU are facts, not
 * failures; fails MEM only. */
TPL_NODISCARD tpl_status tpl_nvml_read(tpl_nvml **out, const char *library, tpl_err *err);
/* NULL allowed. */
void tpl_nvml_free(tpl_nvml *n);
/* "GPU_IS_LOST" for 15; a number without a name is written into buf as "error 77". */
const char *tpl_nvml_code_name(int code, char buf[24]);

#endif
