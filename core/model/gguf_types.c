/* SPDX-License-Identifier: Apache-2.0 */
#include "model/gguf_types.h"

#include <string.h>

const tpl_stored_type tpl_stored_types[] = {
#define X(id, name, n, b) { id, NULL, name, n, b },
    TPL_GGUF_TYPES(X)
#undef X
#define X(st, name, n, b) { -1, st, name, n, b },
        TPL_SAFETENSORS_TYPES(X)
#undef X
};

const int tpl_n_stored_types = sizeof tpl_stored_types / sizeof *tpl_stored_types;

int tpl_stored_type_from_gguf(uint32_t id)
{
    for (int i = 0; i < tpl_n_stored_types; i++)
        if (tpl_stored_types[i].gguf >= 0 && (uint32_t)tpl_stored_types[i].gguf == id) return i;
    return -1;
}

int tpl_stored_type_from_safetensors(const char *name)
{
    for (int i = 0; i < tpl_n_stored_types; i++)
        if (tpl_stored_types[i].safetensors && !strcmp(tpl_stored_types[i].safetensors, name)) return i;
    return -1;
}

int tpl_gguf_type_was_removed(uint32_t id)
{
    return id == 4 || id == 5 || (id >= 31 && id <= 33) || (id >= 36 && id <= 38);
}
