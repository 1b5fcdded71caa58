/* SPDX-License-Identifier: Apache-2.0 */
#include "heap.h"


#if defined(__SANITIZE_ADDRESS__)
#define COUNTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COUNTED 1
#endif
#endif

static size_t in_use, start, peak;

#ifdef COUNTED
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t), void (*on_free)(const volatile void *));
size_t __sanitizer_get_allocated_size(const volatile void *p);

static void on_malloc(const volatile void *p, size_t n)
{
    if (!p) return;
    in_use += n;
    if (in_use > peak) peak = in_use;
}

static void on_free(const volatile void *p)
{
    if (p) in_use -= __sanitizer_get_allocated_size(p);
}

bool tpl_heap_is_counted(void)
{
    static bool installed;
    if (!installed) __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
    installed = true;
    return true;
}
#else
bool tpl_heap_is_counted(void)
{
    return false;
}
#endif

void tpl_heap_restart(void)
{
    start = peak = in_use;
}

size_t tpl_heap_in_use(void)
{
    return in_use;
}

size_t tpl_heap_peak(void)
{
    return peak - start;
}
