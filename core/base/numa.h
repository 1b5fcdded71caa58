/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of one NUMA node, by the system calls themselves: libnuma would be a dependency for three numbers. A container
 * may forbid them (EPERM, unless it has SYS_NICE), and a kernel may lack them (ENOSYS): callers go on without. Any thread.
 */
#ifndef TPL_BASE_NUMA_H
#define TPL_BASE_NUMA_H

#include <stddef.h>

enum { TPL_NUMA_MAX_NODES = 1024 };

/* What the calling thread allocates from now on comes from `node` only. Returns 0 or errno. */
int tpl_numa_bind_self(int node);
/* Pages of a page-aligned range that were not touched yet come from `node` only. Returns 0 or errno; bytes 0 is 0. */
int tpl_numa_bind_range(void *p, size_t bytes, int node);

#endif
