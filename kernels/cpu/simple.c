/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/simple.h"

tpl_status tpl_simple_pick(tpl_isa isa, tpl_bound *op, const tpl_simple_code codes[3])
{
    int i = isa == TPL_ISA_AVX512 || isa == TPL_ISA_AMX ? 2 : isa == TPL_ISA_AVX2 || isa == TPL_ISA_NEON ? 1 : 0;
    op->run = codes[i].run;
    op->variant = codes[i].variant;
    return TPL_OK;
}

tpl_status tpl_simple_equal(const tpl_bound *op, const char *what, int64_t a, int64_t b, tpl_err *err)
{
    if (a == b) return TPL_OK;
    return tpl_fail(err, TPL_ERR_ARG, 0, "", "kernels: %s: %s is %lld, expected %lld", op->name, what,
                    (long long)a, (long long)b);
}

static tpl_status check_view(const tpl_bound *op, const tpl_view *v, const char *what, int i, tpl_err *err)
{
    if (v->act != TPL_ACT_F32)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, "", "kernels: %s: %s takes f32 rows only, %s %d is q8",
                        op->name, tpl_op_infos[op->kind].name, what, i);
    if (v->stride != 4 * (size_t)v->cols || v->div < 1)
        return tpl_fail(err, TPL_ERR_ARG, 0, "",
                        "kernels: %s: %s %d has rows of %zu bytes, expected %lld floats", op->name, what, i,
                        v->stride, (long long)v->cols);
    return TPL_OK;
}

tpl_status tpl_simple_check(const tpl_bound *op, tpl_err *err)
{
    const tpl_op_info *info = &tpl_op_infos[op->kind];
    TPL_TRY(tpl_simple_equal(op, "the number of outs", op->n_out, info->n_out, err));
    TPL_TRY(tpl_simple_equal(op, "the number of ins", op->n_in, info->n_in, err));
    TPL_TRY(tpl_simple_equal(op, "the number of weights", op->n_w, info->n_w, err));
    for (int i = 0; i < op->n_out; i++) TPL_TRY(check_view(op, &op->out[i], "out", i, err));
    for (int i = 0; i < op->n_in; i++) TPL_TRY(check_view(op, &op->in[i], "in", i, err));
    for (int i = 0; i < op->n_w; i++) {
        if (op->w[i]->dtype != TPL_DTYPE_F32)
            return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, "", "kernels: %s: weight %s is %s, expected f32",
                            op->name, op->w[i]->name, tpl_dtypes[op->w[i]->dtype].name);
        TPL_TRY(tpl_simple_equal(op, "the number of rows of the weight", op->w[i]->rows, 1, err));
    }
    return TPL_OK;
}

tpl_status tpl_simple_same(const tpl_bound *op, tpl_err *err)
{
    const tpl_view *first = &op->in[0];
    for (int i = 0; i < op->n_in + op->n_out; i++) {
        const tpl_view *v = i < op->n_in ? &op->in[i] : &op->out[i - op->n_in];
        TPL_TRY(tpl_simple_equal(op, "the width of an operand", v->cols, first->cols, err));
        TPL_TRY(tpl_simple_equal(op, "the cut of an operand", v->div, first->div, err));
        TPL_TRY(tpl_simple_equal(op, "the kind of rows of an operand", v->sym, first->sym, err));
    }
    return TPL_OK;
}
