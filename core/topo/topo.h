/* SPDX-License-Identifier: Apache-2.0
 *
 * What the operating system says of a machine: NUMA nodes, PCI devices with the bridges above them, network
 * cards. Two readers fill the same struct: hwloc for the machine that this process runs on, sysfs for it and
 * for a recorded tree (a folder that holds proc/ and sys/). Nothing is judged here: lua/tpl/topo/probe.lua
 * makes the record. Setup only; the caller owns the facts.
 */
#ifndef TPL_TOPO_TOPO_H
#define TPL_TOPO_TOPO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { TPL_BDF_CAP = 20, TPL_NIC_NAME_CAP = 32 };

typedef struct tpl_topo_node {
    int id;              /* the system's number */
    int package;         /* the system's number of the socket, -1 unknown */
    uint64_t mem_bytes;  /* 0 unknown */
    uint64_t free_bytes; /* free, and what the kernel gives back when asked (file cache); 0 unknown */
    char *cpus;          /* "0-3,8", "" for none */
} tpl_topo_node;

typedef struct tpl_topo_pci {
    char bdf[TPL_BDF_CAP];             /* "0000:0f:00.0" */
    uint32_t class_id, vendor, device; /* class_id has 24 bits (base, sub, interface) */
    int numa;                          /* -1 unknown */
    char *cpus;                        /* cores near it, "" unknown */
    char *path; /* "pci0000:00/0000:00:01.0/0000:0f:00.0", root complex first; "" unknown */
} tpl_topo_pci;

typedef struct tpl_topo_nic {
    char name[TPL_NIC_NAME_CAP]; /* "mlx5_0", "eth0" */
    bool is_ib;                  /* of class infiniband (InfiniBand, RoCE, EFA), else of class net */
    char bdf[TPL_BDF_CAP];       /* "" for a device without one */
} tpl_topo_nic;

typedef struct tpl_topo_facts {
    tpl_topo_node *nodes;
    tpl_topo_pci *pcis;
    tpl_topo_nic *nics;
    int n_nodes, n_pcis, n_nics;
    char *cpus_allowed; /* of this process, "" unknown */
    char *mems_allowed; /* NUMA nodes it may take memory from, "" unknown */
} tpl_topo_facts;

/* This machine through libhwloc. Disallowed cores (cgroup) are not in its sets. */
TPL_NODISCARD tpl_status tpl_topo_hwloc(tpl_topo_facts **out, tpl_err *err);
/* Through /sys and /proc below `root` ("" or NULL: this machine). What is not there is left out; fails only without
 * memory. */
TPL_NODISCARD tpl_status tpl_topo_sysfs(tpl_topo_facts **out, const char *root, tpl_err *err);
/* NULL allowed. */
void tpl_topo_free(tpl_topo_facts *f);
/* hwloc's version, static storage. */
const char *tpl_topo_hwloc_version(void);

#endif
