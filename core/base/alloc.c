/* SPDX-License-Identifier: Apache-2.0
 *
 * With -Wl,--wrap=malloc the linker turns `malloc` into __wrap_malloc and __real_malloc into `malloc`. The
 * __real_ names are weak, so that programs linked without the option get NULL for them and still link; the
 * wrappers are then never called. The two totals are the only mutable globals of base: a wrapper is called
 * without any context, so there is no place else to count.
 */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stddef.h>

#define REAL __attribute__((weak)) extern
REAL void *__real_malloc(size_t bytes);
REAL void *__real_calloc(size_t n, size_t bytes);
REAL void *__real_realloc(void *p, size_t bytes);
REAL void *__real_reallocarray(void *p, size_t n, size_t bytes);
REAL int __real_posix_memalign(void **out, size_t align, size_t bytes);
REAL void *__real_aligned_alloc(size_t align, size_t bytes);
REAL void *__real_memalign(size_t align, size_t bytes);
REAL char *__real_strdup(const char *s);
REAL char *__real_strndup(const char *s, size_t n);
REAL void __real_free(void *p);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);
void *__wrap_reallocarray(void *p, size_t n, size_t bytes);
int __wrap_posix_memalign(void **out, size_t align, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
void *__wrap_memalign(size_t align, size_t bytes);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
void __wrap_free(void *p);

static _Thread_local bool watched;
static _Atomic uint64_t n_allocs, n_frees;

static void note(_Atomic uint64_t *total)
{
    if (watched) atomic_fetch_add_explicit(total, 1, memory_order_relaxed);
}

void *__wrap_malloc(size_t bytes)
{
    note(&n_allocs);
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    note(&n_allocs);
    return __real_calloc(n, bytes);
}

void *__wrap_realloc(void *p, size_t bytes)
{
    note(&n_allocs);
    return __real_realloc(p, bytes);
}

void *__wrap_reallocarray(void *p, size_t n, size_t bytes)
{
    note(&n_allocs);
    return __real_reallocarray(p, n, bytes);
}

int __wrap_posix_memalign(void **out, size_t align, size_t bytes)
{
    note(&n_allocs);
    return __real_posix_memalign(out, align, bytes);
}

void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
    note(&n_allocs);
    return __real_aligned_alloc(align, bytes);
}

void *__wrap_memalign(size_t align, size_t bytes)
{
    note(&n_allocs);
    return __real_memalign(align, bytes);
}

char *__wrap_strdup(const char *s)
{
    note(&n_allocs);
    return __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t n)
{
    note(&n_allocs);
    return __real_strndup(s, n);
}

void __wrap_free(void *p)
{
    if (p) note(&n_frees);
    __real_free(p);
}

bool tpl_alloc_is_wrapped(void)
{
    return __real_malloc != NULL;
}

bool tpl_alloc_watch(bool on)
{
    bool before = watched;
    watched = on;
    return before;
}

uint64_t tpl_alloc_count(void)
{
    return atomic_load_explicit(&n_allocs, memory_order_relaxed);
}

uint64_t tpl_alloc_free_count(void)
{
    return atomic_load_explicit(&n_frees, memory_order_relaxed);
}
