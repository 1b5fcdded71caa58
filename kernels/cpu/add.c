/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/simple.h"

tpl_status tpl_cpu_bind_add(tpl_isa isa, tpl_bound *op, tpl_err *err)
{
    static const tpl_simple_code codes[3] = TPL_SIMPLE_CODES(add);
    TPL_TRY(tpl_simple_check(op, err));
    TPL_TRY(tpl_simple_same(op, err));
    return tpl_simple_pick(isa, op, codes);
}
