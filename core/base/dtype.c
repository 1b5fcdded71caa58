/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dtype.h"

#include <string.h>

#include "base/ck.h"

const tpl_dtype_info tpl_dtypes[TPL_N_DTYPES] = {
#define X(id, name, n, b, gguf) { name, n, b, gguf },
    TPL_DTYPES(X)
#undef X
};

int tpl_dtype_find(const char *name)
{
    for (int i = 0; i < TPL_N_DTYPES; i++)
        if (!strcmp(tpl_dtypes[i].name, name)) return i;
    return -1;
}

int tpl_dtype_from_gguf(uint32_t id)
{
    for (int i = 0; i < TPL_N_DTYPES; i++)
        if (tpl_dtypes[i].gguf >= 0 && (uint32_t)tpl_dtypes[i].gguf == id) return i;
    return -1;
}

bool tpl_dtype_row_bytes(tpl_dtype type, uint64_t n, uint64_t *out)
{
    const tpl_dtype_info *t = &tpl_dtypes[type];
    if (n % t->n_elem) return false;
    return ck_mul(n / t->n_elem, t->n_bytes, out);
}
