/* SPDX-License-Identifier: Apache-2.0 */
#include "base/numa.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MODE_BIND = 2, BITS = 8 * sizeof(unsigned long) }; /* MPOL_BIND: linux/mempolicy.h */

typedef struct node_set {
    unsigned long bits[TPL_NUMA_MAX_NODES / BITS];
} node_set;

static int set_of(node_set *s, int node)
{
    if (node < 0 || node >= TPL_NUMA_MAX_NODES) return EINVAL;
    memset(s, 0, sizeof *s);
    s->bits[node / BITS] |= 1UL << node % BITS;
    return 0;
}

/* The kernel takes the number of bits plus one (set_mempolicy(2), notes). */
int tpl_numa_bind_self(int node)
{
    node_set s;
    int sys = set_of(&s, node);
    if (sys) return sys;
    return syscall(SYS_set_mempolicy, MODE_BIND, s.bits, (unsigned long)TPL_NUMA_MAX_NODES + 1) ? errno : 0;
}

int tpl_numa_bind_range(void *p, size_t bytes, int node)
{
    node_set s;
    int sys = set_of(&s, node);
    if (sys || !p || !bytes) return sys;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    return syscall(SYS_mbind, p, whole, MODE_BIND, s.bits, (unsigned long)TPL_NUMA_MAX_NODES + 1, 0u) ? errno : 0;
}
