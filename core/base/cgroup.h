/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits that the control group (a container, a systemd unit, a batch job) puts on this process: cores and
 * memory. Versions 1 and 2; the tightest limit from the process's own group up to the root counts. Any
 * thread; setup only.
 */
#ifndef TPL_BASE_CGROUP_H
#define TPL_BASE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Cores' worth of time per period; false without a limit. */
bool tpl_cgroup_cpus(double *out);
bool tpl_cgroup_mem_limit(uint64_t *out);
/* Bytes left below the tightest limit, the group's inactive file cache counted as free. */
bool tpl_cgroup_mem_room(uint64_t *out);

/* Reads a small file whole (cut at cap - 1) and terminates it; false when it cannot be read. */
bool tpl_read_small(const char *path, char *text, size_t cap);

#endif
