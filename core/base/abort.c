/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/team.h"

enum { CLEAR = 0, WRITING = 1, SET = 2 };

struct tpl_abort {
    _Atomic uint32_t state;
    tpl_err why; /* written by the thread that took the state from CLEAR to WRITING, read once it is SET */
};

tpl_abort *tpl_abort_new(void)
{
    return calloc(1, sizeof(tpl_abort));
}

void tpl_abort_free(tpl_abort *a)
{
    free(a);
}

/* Sleepers poll the word between slices of their sleep (wait.c), so there is nobody to wake by name. */
void tpl_abort_raise(tpl_abort *a, const tpl_err *why)
{
    uint32_t expected = CLEAR;
    if (!atomic_compare_exchange_strong(&a->state, &expected, WRITING)) return;
    if (why)
        a->why = *why;
    else
        a->why = (tpl_err){ .code = TPL_ERR_CANCELED, .msg = "aborted" };
    atomic_store_explicit(&a->state, SET, memory_order_release);
}

bool tpl_abort_is_set(const tpl_abort *a)
{
    return atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)&a->state, memory_order_acquire) == SET;
}

void tpl_abort_get(const tpl_abort *a, tpl_err *out)
{
    if (tpl_abort_is_set(a))
        *out = a->why;
    else
        memset(out, 0, sizeof *out);
}

void tpl_abort_clear(tpl_abort *a)
{
    atomic_store_explicit(&a->state, CLEAR, memory_order_release);
}
