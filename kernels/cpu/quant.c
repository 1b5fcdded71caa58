/* SPDX-License-Identifier: Apache-2.0
 *
 * The quant op: float rows to q8 rows. The blocks of all rows form one list, cut evenly, so that one row
 * splits over the team as well as many do. Any thread of a team.
 */
#define VEC_ISA portable
#include "kernels/cpu/quant_rows.inc"

#include "kernels/cpu/cpu_ops.h"

typedef void (*quant_fn)(const float *x, int64_t n, int8_t *q, int8_t *r, float *d, float *ds);

static void quant_run(const tpl_op_ctx *ctx, const tpl_bound *op, quant_fn blocks)
{
    const tpl_view *in = &op->in[0], *out = &op->out[0];
    const int64_t per_row = in->cols / 32, total = tpl_view_rows(in, ctx->step) * per_row;
    const int64_t hi = total * (ctx->ith + 1) / ctx->nth;
    for (int64_t i = total * ctx->ith / ctx->nth; i < hi;) {
        const int64_t row = i / per_row, b = i % per_row, n = hi - i < per_row - b ? hi - i : per_row - b;
        char *q = (char *)out->data + (size_t)row * out->stride;
        const float *x = (const float *)((const char *)in->data + (size_t)row * in->stride);
        blocks(x + 32 * b, n, (int8_t *)q + 32 * b, (int8_t *)q + in->cols + 32 * b, tpl_q8_d(q, in->cols) + b,
               tpl_q8_ds(q, in->cols) + b);
        i += n;
    }
}

static void run_portable(const tpl_op_ctx *ctx, const tpl_bound *op)
{
    quant_run(ctx, op, tpl_quant_blocks_portable);
}
#if TPL_CPU_X86
static void run_avx2(const tpl_op_ctx *ctx, const tpl_bound *op)
{
    quant_run(ctx, op, tpl_quant_blocks_avx2);
}
static void run_avx512(const tpl_op_ctx *ctx, const tpl_bound *op)
{
    quant_run(ctx, op, tpl_quant_blocks_avx512);
}
#endif
#if TPL_CPU_ARM
static void run_neon(const tpl_op_ctx *ctx, const tpl_bound *op)
{
    quant_run(ctx, op, tpl_quant_blocks_neon);
}
#endif

static const struct {
    void (*run)(const tpl_op_ctx *ctx, const tpl_bound *op);
    const char *name;
} isas[TPL_N_ISAS] = {
    [TPL_ISA_PORTABLE] = { run_portable, "quant_portable" },
#if TPL_CPU_X86
    [TPL_ISA_AVX2] = { run_avx2, "quant_avx2" },
    [TPL_ISA_AVX512] = { run_avx512, "quant_avx512" },
    [TPL_ISA_AMX] = { run_avx512, "quant_avx512" },
#endif
#if TPL_CPU_ARM
    [TPL_ISA_NEON] = { run_neon, "quant_neon" },
#endif
};

tpl_status tpl_cpu_bind_quant(tpl_isa isa, tpl_bound *op, tpl_err *err)
{
    const tpl_view *in = &op->in[0], *out = &op->out[0];
    if ((unsigned)isa >= TPL_N_ISAS || !isas[isa].run)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, op->name, "quant: no code for %s in this build",
                        tpl_isa_name(isa));
    if (op->n_in != 1 || op->n_out != 1 || in->act != TPL_ACT_F32 || out->act != TPL_ACT_Q8)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, op->name,
                        "quant: takes one float value and gives one q8 value");
    if (in->cols != out->cols || in->cols % 32 || in->sym != out->sym || in->div != out->div)
        return tpl_fail(err, TPL_ERR_ARG, 0, op->name,
                        "quant: %lld columns into %lld, expected equal and a multiple of 32",
                        (long long)in->cols, (long long)out->cols);
    op->run = isas[isa].run;
    op->variant = isas[isa].name;
    return TPL_OK;
}
