/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/simple.h"
#include "kernels/kv.h"

enum { MAX_ROT = 256 };

static tpl_status check_turn(const tpl_bound *op, int64_t hd, int64_t rot, int64_t mode, tpl_err *err)
{
    if (hd < 1 || rot < 0 || rot > hd || rot % 2)
        return tpl_fail(err, TPL_ERR_ARG, 0, "",
                        "kernels: %s: turns %lld of %lld columns, expected an even number of them", op->name,
                        (long long)rot, (long long)hd);
    if (rot > MAX_ROT || mode < 0 || mode > 1)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, "",
                        "kernels: %s: %lld turned columns (at most %d), mode %lld (0 or 1)", op->name,
                        (long long)rot, MAX_ROT, (long long)mode);
    if (rot && !op->freqs)
        return tpl_fail(err, TPL_ERR_ARG, 0, "", "kernels: %s: no table of frequencies is bound", op->name);
    return TPL_OK;
}

tpl_status tpl_cpu_bind_rope(tpl_isa isa, tpl_bound *op, tpl_err *err)
{
    static const tpl_simple_code codes[3] = TPL_SIMPLE_CODES(rope);
    const int64_t cols = op->imm[0].i * op->imm[1].i;
    TPL_TRY(tpl_simple_check(op, err));
    TPL_TRY(check_turn(op, op->imm[1].i, op->imm[2].i, op->imm[3].i, err));
    TPL_TRY(tpl_simple_equal(op, "the width of x", op->in[0].cols, cols, err));
    TPL_TRY(tpl_simple_equal(op, "the width of y", op->out[0].cols, cols, err));
    TPL_TRY(tpl_simple_equal(op, "the cut of y", op->out[0].div, op->in[0].div, err));
    return tpl_simple_pick(isa, op, codes);
}

tpl_status tpl_cpu_bind_rope_kv(tpl_isa isa, tpl_bound *op, tpl_err *err)
{
    static const tpl_simple_code codes[3] = TPL_SIMPLE_CODES(rope_kv);
    const int64_t heads = op->imm[0].i, kvh = op->imm[1].i, hd = op->imm[2].i;
    TPL_TRY(tpl_simple_check(op, err));
    TPL_TRY(tpl_kv_check(op, kvh, hd, err));
    TPL_TRY(check_turn(op, hd, op->imm[3].i, op->imm[4].i, err));
    TPL_TRY(tpl_simple_equal(op, "the width of q", op->in[0].cols, heads * hd, err));
    TPL_TRY(tpl_simple_equal(op, "the width of the turned q", op->out[0].cols, heads * hd, err));
    TPL_TRY(tpl_simple_equal(op, "the width of k", op->in[1].cols, kvh * hd, err));
    TPL_TRY(tpl_simple_equal(op, "the width of v", op->in[2].cols, kvh * hd, err));
    for (int i = 1; i < 3; i++)
        TPL_TRY(tpl_simple_equal(op, "the cut of k and v", op->in[i].div, op->in[0].div, err));
    TPL_TRY(tpl_simple_equal(op, "the cut of the turned q", op->out[0].div, op->in[0].div, err));
    return tpl_simple_pick(isa, op, codes);
}
