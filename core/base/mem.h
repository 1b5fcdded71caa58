/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the load and session lives: big zeroed mappings on 2 MB pages where the system has them, small
 * 64-byte aligned blocks, and what the process and the machine use. Any thread; the caller owns what it gets.
 * Not for the step path.
 */
#ifndef TPL_BASE_MEM_H
#define TPL_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Zeroed pages, which the system provides when they are first touched (so by the thread, and on the NUMA
 * node, that uses them). From 2 MB on: 2 MB aligned with huge pages asked for. bytes 0 gives NULL. Fails
 * MEM. */
TPL_NODISCARD tpl_status tpl_mem_map(void **out, size_t bytes, tpl_err *err);
void tpl_mem_unmap(void *p, size_t bytes);
/* Gives the pages back to the system; they read as zero when touched again. p and bytes as mapped, or a
 * page-aligned part. */
void tpl_mem_discard(void *p, size_t bytes);

/* Zeroed, 64-byte aligned; NULL when out of memory. */
void *tpl_mem_alloc(size_t bytes);
void tpl_mem_free(void *p);

/* Resident bytes of the process now and at most (VmRSS, VmHWM); 0 = unknown. */
uint64_t tpl_mem_rss_bytes(void);
uint64_t tpl_mem_rss_peak_bytes(void);
/* Starts VmHWM again from the present value; false where the system does not let us. */
int tpl_mem_rss_peak_reset(void);
/* What this process may still take without swapping or being killed: the smaller of MemAvailable and the
 * room below the control group's limit (page cache of the group counts as room). 0 = unknown. */
uint64_t tpl_mem_available_bytes(void);
uint64_t tpl_mem_total_bytes(void);

#endif
