/* SPDX-License-Identifier: Apache-2.0
 *
 * The lists of ops and of row forms as tables, and the lookup by name. Any thread; read-only.
 */
#include "kernels/ops.h"

#include <string.h>

const tpl_op_info tpl_op_infos[TPL_N_OPS] = {
#define X(id, name, o, i, w, imm, flags) [TPL_OP_ID_##id] = { name, o, i, w, imm, flags },
    TPL_OPS(X)
#undef X
};

int tpl_op_find(const char *name)
{
    for (int i = 0; i < TPL_N_OPS; i++)
        if (!strcmp(name, tpl_op_infos[i].name)) return i;
    return -1;
}

const char *const tpl_act_names[TPL_N_ACTS] = {
#define X(id, name) [TPL_ACT_##id] = name,
    TPL_ACTS(X)
#undef X
};

int tpl_act_find(const char *name)
{
    for (int i = 0; i < TPL_N_ACTS; i++)
        if (!strcmp(name, tpl_act_names[i])) return i;
    return -1;
}
