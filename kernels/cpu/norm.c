/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/simple.h"

static tpl_status check_norm(const tpl_bound *op, tpl_err *err)
{
    TPL_TRY(tpl_simple_check(op, err));
    TPL_TRY(tpl_simple_same(op, err));
    return tpl_simple_equal(op, "the length of the weight", op->w[0]->cols, op->in[0].cols, err);
}

tpl_status tpl_cpu_bind_norm(tpl_isa isa, tpl_bound *op, tpl_err *err)
{
    static const tpl_simple_code codes[3] = TPL_SIMPLE_CODES(norm);
    TPL_TRY(check_norm(op, err));
    return tpl_simple_pick(isa, op, codes);
}

tpl_status tpl_cpu_bind_add_norm(tpl_isa isa, tpl_bound *op, tpl_err *err)
{
    static const tpl_simple_code codes[3] = TPL_SIMPLE_CODES(add_norm);
    TPL_TRY(check_norm(op, err));
    return tpl_simple_pick(isa, op, codes);
}
