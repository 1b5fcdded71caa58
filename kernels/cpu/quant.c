/* SPDX-License-Identifier: Apache-2.0
 *
 * The quant op: float rows to q8 or bf16 rows, by the form that the value has in this step. The pieces of all rows
 * form one list, cut evenly, so that one row splits over the team as well as many do. Any thread of a team.
 */
#define VEC_ISA portable
#include "kernels/cpu/quant_rows.inc"
#include "kernels/cpu/bf16.inc"

#include "kernels/cpu/cpu_ops.h"

typedef struct quant_code {
    void (*blocks)(const float *x, int64_t n, int8_t *q, int8_t *r, float *d, float *ds);
    void (*bf16)(const float *x, int64_t n, uint16_t *out);
    bool has_bf16; /* of the products to come: what tpl_rows_form asks */
} quant_code;

enum { BF16_PIECE = 64 }; /* elements */

/* Pieces [at, at + n) of a row. */
static void quant_pieces(const quant_code *code, const tpl_view *in, const float *x, char *row, int64_t at, int64_t n)
{
    code->blocks(x + 32 * at, n, (int8_t *)row + 32 * at, (int8_t *)row + in->cols + 32 * at,
                 tpl_q8_d(row, in->cols) + at, tpl_q8_ds(row, in->cols) + at);
}

static void bf16_pieces(const quant_code *code, const tpl_view *in, const float *x, char *row, int64_t at, int64_t n)
{
    const int64_t from = at * BF16_PIECE, to = (at + n) * BF16_PIECE < in->cols ? (at + n) * BF16_PIECE : in->cols;
    uint16_t *out = (uint16_t *)(void *)row;
    code->bf16(x + from, to - from, out + from);
    if (to == in->cols) memset(out + to, 0, (size_t)(-to & 31) * 2);
}

static void quant_run(const tpl_op_ctx *ctx, const tpl_bound *op, const quant_code *code)
{
    const tpl_view *in = &op->in[0], *out = &op->out[0];
    const int64_t rows = tpl_view_rows(in, ctx->step);
    const bool is_bf16 = tpl_rows_form(out->act, code->has_bf16, rows) == TPL_ACT_BF16;
    const int64_t per_row = is_bf16 ? (in->cols + BF16_PIECE - 1) / BF16_PIECE : in->cols / 32;
    const int64_t hi = rows * per_row * (ctx->ith + 1) / ctx->nth;
    for (int64_t i = rows * per_row * ctx->ith / ctx->nth; i < hi;) {
        const int64_t row = i / per_row, at = i % per_row, n = hi - i < per_row - at ? hi - i : per_row - at;
        const float *x = (const float *)(const void *)((const char *)in->data + (size_t)row * in->stride);
        (is_bf16 ? bf16_pieces : quant_pieces)(code, in, x, (char *)out->data + (size_t)row * out->stride, at, n);
        i += n;
    }
}

/* X(NAME, ISA of the code, whether products of bf16 follow) */
#if TPL_CPU_X86
#define CODES(X) X(portable, portable, false) X(avx2, avx2, false) X(avx512, avx512, false) X(avx512bf16, avx512, true)
#elif TPL_CPU_ARM
#define CODES(X) X(portable, portable, false) X(neon, neon, false)
#else
#define CODES(X) X(portable, portable, false)
#endif
#define X(name, isa, has_bf16)                                                                                      \
    static void run_##name(const tpl_op_ctx *ctx, const tpl_bound *op)                                              \
    {                                                                                                               \
        static const quant_code code = { tpl_quant_blocks_##isa, tpl_bf16_of_floats_##isa, has_bf16 };              \
        quant_run(ctx, op, &code);                                                                                  \
    }
CODES(X)
#undef X

static bool pick(tpl_isa isa, tpl_bound *op)
{
    switch (isa) {
    case TPL_ISA_PORTABLE: op->run = run_portable, op->variant = "quant_portable"; return true;
#if TPL_CPU_X86
    case TPL_ISA_AVX2: op->run = run_avx2, op->variant = "quant_avx2"; return true;
    case TPL_ISA_AVX512:
    case TPL_ISA_AMX:
        op->run = tpl_isa_has_bf16(isa) ? run_avx512bf16 : run_avx512, op->variant = "quant_avx512";
        return true;
#endif
#if TPL_CPU_ARM
    case TPL_ISA_NEON: op->run = run_neon, op->variant = "quant_neon"; return true;
#endif
    default: return false;
    }
}

tpl_status tpl_cpu_bind_quant(tpl_isa isa, tpl_bound *op, tpl_err *err)
{
    const tpl_view *in = &op->in[0], *out = &op->out[0];
    if (op->n_in != 1 || op->n_out != 1 || in->act != TPL_ACT_F32 || out->act == TPL_ACT_F32)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, op->name,
                        "quant: takes one float value and gives one q8 or bf16 value");
    if (in->cols != out->cols || (tpl_act_in_blocks(out->act) && in->cols % 32) || in->sym != out->sym || in->div != out->div)
        return tpl_fail(err, TPL_ERR_ARG, 0, op->name,
                        "quant: %lld columns into %lld, expected equal and, for q8, a multiple of 32",
                        (long long)in->cols, (long long)out->cols);
    if (!pick(isa, op))
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, op->name, "quant: no code for %s in this build",
                        tpl_isa_name(isa));
    return TPL_OK;
}
