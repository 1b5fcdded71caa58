/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/cpu/simple.h"
#include "kernels/kv.h"

void tpl_kv_poison(const tpl_kv_pool *kv, int64_t page)
{
    const int64_t at = tpl_kv_at(kv, page, 0, 0), n = tpl_kv_at(kv, page + 1, 0, 0) - at;
    for (int i = 0; i < 2; i++) {
        void *p = i ? kv->v : kv->k;
        for (int64_t j = at; j < at + n; j++) {
            if (kv->dtype == TPL_DTYPE_F32)
                ((uint32_t *)p)[j] = 0x7fc00000;
            else
                ((uint16_t *)p)[j] = 0x7e00;
        }
    }
}

tpl_status tpl_kv_check(const tpl_bound *op, int64_t kvh, int64_t hd, tpl_err *err)
{
    if (!op->kv) return tpl_fail(err, TPL_ERR_ARG, 0, "", "kernels: %s: no KV cache is bound", op->name);
    if (op->kv->dtype != TPL_DTYPE_F32 && op->kv->dtype != TPL_DTYPE_F16)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, "", "kernels: %s: a KV cache of %s, expected f32 or f16",
                        op->name, tpl_dtypes[op->kv->dtype].name);
    if (op->kv->page < 1 || hd < 1 || kvh < 1)
        return tpl_fail(err, TPL_ERR_ARG, 0, "",
                        "kernels: %s: pages of %d positions, %lld heads of %lld columns", op->name,
                        op->kv->page, (long long)kvh, (long long)hd);
    TPL_TRY(tpl_simple_equal(op, "the number of KV heads in the cache", op->kv->kvh, kvh, err));
    return tpl_simple_equal(op, "the width of a head in the cache", op->kv->hd, hd, err);
}

tpl_status tpl_cpu_bind_kv_write(tpl_isa isa, tpl_bound *op, tpl_err *err)
{
    static const tpl_simple_code codes[3] = TPL_SIMPLE_CODES(kv_write);
    const int64_t kvh = op->imm[0].i, hd = op->imm[1].i;
    TPL_TRY(tpl_simple_check(op, err));
    TPL_TRY(tpl_kv_check(op, kvh, hd, err));
    TPL_TRY(tpl_simple_equal(op, "the width of k", op->in[0].cols, kvh * hd, err));
    TPL_TRY(tpl_simple_equal(op, "the width of v", op->in[1].cols, kvh * hd, err));
    TPL_TRY(tpl_simple_equal(op, "the cut of v", op->in[1].div, op->in[0].div, err));
    return tpl_simple_pick(isa, op, codes);
}
