/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts heap allocations, to prove that a step makes none. An executable or module that links the CMake
 * target tpl_alloc_wrap has every call to malloc and its relatives from OUR static code sent through counting
 * wrappers (ld --wrap); calls inside shared libraries are not seen, and sanitizers still get every call below
 * the wrappers. Without that target nothing is counted and tpl_alloc_is_wrapped is false. Costs one
 * thread-local test per allocation. Any thread.
 */
#ifndef TPL_BASE_ALLOC_H
#define TPL_BASE_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

bool tpl_alloc_is_wrapped(void);
/* Starts or ends watching the calling thread; returns whether it was watched before. A rank turns it on for
 * the length of a step. */
bool tpl_alloc_watch(bool on);
/* Allocations by watched threads since the process started: malloc, calloc, realloc, reallocarray,
 * posix_memalign, aligned_alloc, memalign, strdup, strndup. Frees are counted apart. */
uint64_t tpl_alloc_count(void);
uint64_t tpl_alloc_free_count(void);

#endif
