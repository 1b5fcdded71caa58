/* SPDX-License-Identifier: Apache-2.0
 *
 * How many bytes of heap are in use, and the most that were since the last call of tpl_heap_restart; through the allocator of the address
 * sanitizer, which also sees what shared libraries allocate. Without that sanitizer tpl_heap_is_counted is false. One thread.
 */
#ifndef TPL_SPEC_FUZZ_HEAP_H
#define TPL_SPEC_FUZZ_HEAP_H

#include <stdbool.h>
#include <stddef.h>

bool tpl_heap_is_counted(void);
void tpl_heap_restart(void);
size_t tpl_heap_in_use(void);
size_t tpl_heap_peak(void); /* above what was in use at the restart */

#endif
