/* SPDX-License-Identifier: Apache-2.0
 *
 * Checked size arithmetic. Every size computed from a file's or a request's numbers goes through these functions; a spec
 * greps core/model and core/token for raw size arithmetic. Each returns true and stores the result, or returns false on overflow
 * and leaves *out alone. Any thread.
 */
#ifndef TPL_BASE_CK_H
#define TPL_BASE_CK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool ck_add(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

static inline bool ck_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

/* Rounds a up to a multiple of align, a power of two > 0. */
static inline bool ck_align(uint64_t a, uint64_t align, uint64_t *out)
{
    uint64_t r;
    if (!align || (align & (align - 1)) || __builtin_add_overflow(a, align - 1, &r)) return false;
    *out = r & ~(align - 1);
    return true;
}

/* True when [begin, begin + len) lies inside [0, size). */
static inline bool ck_range(uint64_t begin, uint64_t len, uint64_t size)
{
    return begin <= size && len <= size - begin;
}

/* A u64 that must become a size_t (a no-op on 64-bit machines). */
static inline bool ck_size(uint64_t a, size_t *out)
{
    if (a > SIZE_MAX) return false;
    *out = (size_t)a;
    return true;
}

#endif
