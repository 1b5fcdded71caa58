/* SPDX-License-Identifier: Apache-2.0
 *
 * The linear op: y_i = x * w_i^T for the weights of one op, which share x. This file cuts the work into shares and
 * sends each its way; it also binds.
 *
 * Work items are panels (16 outputs) of all weights in one list, cut into contiguous shares by cost: bytes
 * when few rows stream the weights, inputs when many rows reuse them. Where a big batch meets few panels,
 * the rows are cut too. The ways: bf16 rows on an ISA that multiplies them (linear_bf16.c), q8 rows on one with
 * integer tiles (linear_q8_wide.c), and tile functions for everything else (linear_tiles.c). With epi = 1 (gate, up) an
 * item is the same panel of both. Any thread of a team; no barrier inside.
 */
#include "kernels/cpu/linear_job.h"
#include "kernels/cpu/quant.h"

enum {
    FEW_ROWS = 8,               /* below: weights streamed, cost is bytes */
    AHEAD_BYTES = 4096,         /* asked for before the barrier (on two cores of a guest no gain was to be seen) */
    LONGEST_ROW = 1 << 16,      /* inputs: a row must fit into the scratch as floats, beside its q8 form */
};

static int64_t n_panels(const tpl_weight *w)
{
    return (w->rows + TPL_PANEL_ROWS - 1) / TPL_PANEL_ROWS;
}

/* -- Shares ---- */

/* The way depends on the step and the op alone, not on the share, so neither do the bits. */
static void run_share(lin_job *j, const lin_share *s)
{
    if (s->p0 >= s->p1 || s->t0 >= s->t1) return;
    if (j->form == TPL_ACT_BF16 && j->kernels->bf16 && j->rows >= TPL_BF16_ROWS)
        lin_run_bf16(j, s);
    else if (j->form == TPL_ACT_Q8 && !j->is_own && lin_goes_q8_wide(j, s->t1 - s->t0)) /* the same bits */
        lin_run_q8_wide(j, s);
    else
        lin_run_tiles(j, s);
}

static int64_t panel_cost(const lin_job *j, int i)
{
    const tpl_weight *w = j->op->w[i];
    return j->rows < FEW_ROWS ? (int64_t)tpl_panel_bytes(w->dtype, w->cols) : w->cols;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a <= 0 ? 0 : (a + b - 1) / b;
}

/* Into how many pieces the rows are cut: more than one only when panels alone would leave threads with
 * uneven shares. */
static int64_t row_pieces(int64_t rows, int64_t panels, int nth)
{
    if (nth == 1 || panels >= 8 * (int64_t)nth) return 1;
    return lin_least(nth, ceil_div(rows, 2 * LIN_TILE_ROWS));
}

/* Weights that are lists of items of their own: with epi = 1 the up panels go with those of gate. */
static int n_lists(const tpl_bound *op)
{
    return op->imm[0].i ? 1 : op->n_w;
}

static int64_t total_cost(const lin_job *j)
{
    int64_t cost = 0;
    for (int i = 0; i < n_lists(j->op); i++) cost += n_panels(j->op->w[i]) * panel_cost(j, i);
    return cost;
}

static void linear_run(const tpl_op_ctx *ctx, const tpl_bound *op, const tpl_lin_kernels *kernels)
{
    const int64_t rows = tpl_view_rows(&op->in[0], ctx->step);
    lin_job j = { .kernels = kernels,
                  .op = op,
                  .form = tpl_rows_form(op->in[0].act, kernels->bf16, rows),
                  .is_own = op->n_in == 2 && rows < TPL_BF16_ROWS,
                  .rows = rows,
                  .scratch = ctx->scratch };
    int64_t panels = 0;
    for (int i = 0; i < n_lists(op); i++) panels += n_panels(op->w[i]);
    const int64_t cost = total_cost(&j);
    const int64_t pieces = row_pieces(j.rows, panels, ctx->nth);
    const int64_t lo = cost * pieces * ctx->ith / ctx->nth, hi = cost * pieces * (ctx->ith + 1) / ctx->nth;
    int64_t start = 0; /* cost of all items before this weight's first panel */
    for (int64_t piece = 0; piece < pieces; piece++)
        for (int i = 0; i < n_lists(op); i++) {
            const int64_t c = panel_cost(&j, i), n = n_panels(op->w[i]);
            const int64_t p0 = lin_least(ceil_div(lo - start, c), n), p1 = lin_least(ceil_div(hi - start, c), n);
            const lin_share share = { i, p0, p1, j.rows * piece / pieces, j.rows * (piece + 1) / pieces };
            run_share(&j, &share);
            start += n * c;
        }
}

/* The start of this thread's share: what memory can fetch while the barrier in front is waited for. */
static void linear_ahead(const tpl_op_ctx *ctx, const tpl_bound *op)
{
    const lin_job j = { .op = op, .rows = tpl_view_rows(&op->in[0], ctx->step) };
    if (j.rows >= FEW_ROWS) return;
    int64_t left = total_cost(&j) * ctx->ith / ctx->nth;
    for (int i = 0; i < n_lists(op); i++) {
        const int64_t c = panel_cost(&j, i), n = n_panels(op->w[i]), p = ceil_div(left, c);
        left -= n * c;
        if (p >= n) continue;
        for (int side = 0; side < lin_n_sides(&j); side++)
            for (int at = 0; at < AHEAD_BYTES; at += 64) __builtin_prefetch(lin_panel(op->w[i + side], p) + at);
        return;
    }
}

/* -- Binding ---- */

/* The sets of kernels. X(NAME, ISA of the tile functions, wide way, bf16 way, what the code is called by the form of
 * the rows: f32, q8, bf16, q8_bf16) */
#define PORTABLE_SET(X) X(portable, portable, NULL, NULL, "f32_portable", "q8_portable", "bf16_portable", "q8_portable")
#if TPL_CPU_X86
#define SETS(X)                                                                                                     \
    PORTABLE_SET(X)                                                                                                 \
    X(avx2, avx2, NULL, NULL, "f32_avx2", "q8_avx2", "bf16_avx2", "q8_avx2")                                        \
    X(avx512, avx512, NULL, NULL, "f32_avx512", "q8_avx512vnni", "bf16_avx512", "q8_avx512vnni")                    \
    X(avx512bf16, avx512, NULL, &tpl_lin_bf16_avx512bf16, "f32_avx512", "q8_avx512vnni", "bf16_avx512bf16",         \
      "q8_avx512vnni+bf16_avx512bf16")                                                                              \
    X(amx, avx512, &tpl_lin_wide_amx, &tpl_lin_bf16_amx, "f32_avx512", "q8_amx", "bf16_amx", "q8_avx512vnni+bf16_amx")
#elif TPL_CPU_ARM
/* Where the machine has dot products of bytes, q8 rows take these; all else is the same. */
#define tpl_lin_f32_dotprod tpl_lin_f32_neon
#define tpl_lin_silu_dotprod tpl_lin_silu_neon
#define tpl_quant_blocks_dotprod tpl_quant_blocks_neon
#define SETS(X)                                                            \
    PORTABLE_SET(X)                                                        \
    X(neon, neon, NULL, NULL, "f32_neon", "q8_neon", "bf16_neon", "q8_neon") \
    X(dotprod, dotprod, NULL, NULL, "f32_neon", "q8_neon_dotprod", "bf16_neon", "q8_neon_dotprod")
#else
#define SETS(X) PORTABLE_SET(X)
#endif

#define X(set, tiles, wide, bf16, ...)                                                                               \
    static void run_##set(const tpl_op_ctx *ctx, const tpl_bound *op)                                                \
    {                                                                                                                \
        static const tpl_lin_kernels kernels = { tpl_lin_f32_##tiles, tpl_lin_q8_##tiles, wide, bf16,                \
                                                 tpl_lin_silu_##tiles, tpl_quant_blocks_##tiles };                           \
        linear_run(ctx, op, &kernels);                                                                               \
    }
SETS(X)
#undef X

typedef enum kernel_set {
#define X(set, ...) SET_##set,
    SETS(X)
#undef X
    NO_SET
} kernel_set;

static const struct {
    void (*run)(const tpl_op_ctx *ctx, const tpl_bound *op);
    const char *names[TPL_N_ACTS];
} sets[] = {
#define X(set, tiles, wide, bf16, f32_name, q8_name, bf16_name, both_name) \
    [SET_##set] = { run_##set, { "linear_" f32_name, "linear_" q8_name, "linear_" bf16_name, "linear_" both_name } },
    SETS(X)
#undef X
};

static kernel_set set_of(tpl_isa isa)
{
    switch (isa) {
    case TPL_ISA_PORTABLE: return SET_portable;
#if TPL_CPU_X86
    case TPL_ISA_AVX2: return SET_avx2;
    case TPL_ISA_AVX512: return tpl_isa_has_bf16(isa) ? SET_avx512bf16 : SET_avx512;
    case TPL_ISA_AMX: return SET_amx;
#endif
#if TPL_CPU_ARM
    case TPL_ISA_NEON: return tpl_cpu_has_dotprod() ? SET_dotprod : SET_neon;
#endif
    default: return NO_SET;
    }
}

static tpl_status check_weight(const tpl_bound *op, int i, tpl_err *err)
{
    const tpl_weight *w = op->w[i];
    const tpl_view *in = &op->in[0];
    const bool plain = lin_block_elems(w->dtype) == 1;
    if (w->cols != in->cols)
        return tpl_fail(err, TPL_ERR_ARG, 0, op->name, "linear: %s has %lld inputs, its operand %lld",
                        w->name, (long long)w->cols, (long long)in->cols);
    if (w->rows < 1 || w->cols < 1 || (!plain && w->cols % lin_block_elems(w->dtype)))
        return tpl_fail(err, TPL_ERR_ARG, 0, op->name,
                        "linear: %s is %lld x %lld, not whole blocks of %d inputs", w->name,
                        (long long)w->rows, (long long)w->cols, lin_block_elems(w->dtype));
    if (w->cols > LONGEST_ROW)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, op->name, "linear: %s has %lld inputs, at most %d", w->name,
                        (long long)w->cols, LONGEST_ROW);
    if ((uintptr_t)w->data % 64)
        return tpl_fail(err, TPL_ERR_ARG, 0, op->name, "linear: %s is not 64-byte aligned", w->name);
    return TPL_OK;
}

static tpl_status check_out(const tpl_bound *op, int i, tpl_err *err)
{
    const tpl_view *out = &op->out[i], *in = &op->in[0];
    if (out->act != TPL_ACT_F32 || out->cols != op->w[i]->rows || out->sym != in->sym || out->div != in->div)
        return tpl_fail(err, TPL_ERR_ARG, 0, op->name,
                        "linear: output %d has %lld columns, %s gives %lld floats per row", i,
                        (long long)out->cols, op->w[i]->name, (long long)op->w[i]->rows);
    return TPL_OK;
}

static tpl_status check_counts(const tpl_bound *op, tpl_err *err)
{
    const bool epi = op->imm[0].i != 0;
    const bool counts = (op->n_in == 1 || op->n_in == 2) && op->n_w >= 1 && op->n_w <= TPL_MAX_OPERANDS &&
                        op->n_out == (epi ? 1 : op->n_w);
    if (!counts || (epi && op->n_w != 2))
        return tpl_fail(err, TPL_ERR_ARG, 0, op->name,
                        "linear: %d inputs, %d weights and %d outputs with epi=%lld", op->n_in, op->n_w,
                        op->n_out, (long long)op->imm[0].i);
    if (epi && op->w[0]->rows != op->w[1]->rows)
        return tpl_fail(err, TPL_ERR_ARG, 0, op->name,
                        "linear: gate has %lld outputs, up %lld; epi=1 needs equal shapes",
                        (long long)op->w[0]->rows, (long long)op->w[1]->rows);
    if (tpl_act_in_blocks(op->in[0].act) && op->in[0].cols % 32)
        return tpl_fail(err, TPL_ERR_ARG, 0, op->name,
                        "linear: a q8 operand of %lld columns, not a multiple of 32",
                        (long long)op->in[0].cols);
    const tpl_view *q = &op->in[0], *x = &op->in[1];
    if (op->n_in == 2 && (q->act == TPL_ACT_F32 || x->act != TPL_ACT_F32 || x->cols != q->cols || x->div != q->div))
        return tpl_fail(err, TPL_ERR_ARG, 0, op->name, "linear: a second operand that is not the floats of the first");
    return TPL_OK;
}

tpl_status tpl_cpu_bind_linear(tpl_isa isa, tpl_bound *op, tpl_err *err)
{
    const kernel_set set = set_of(isa);
    if (set == NO_SET)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, op->name, "linear: no code for %s in this build",
                        tpl_isa_name(isa));
    TPL_TRY(check_counts(op, err));
    for (int i = 0; i < op->n_w; i++) {
        const tpl_dtype type = op->w[i]->dtype;
        if ((unsigned)type >= TPL_N_DTYPES || !tpl_lin_f32_portable[type])
            return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, op->name, "linear: %s is %s, which is no type of weights",
                            op->w[i]->name, (unsigned)type < TPL_N_DTYPES ? tpl_dtypes[type].name : "?");
        TPL_TRY(check_weight(op, i, err));
    }
    for (int i = 0; i < op->n_out; i++) TPL_TRY(check_out(op, i, err));
    op->run = sets[set].run;
    op->ahead = linear_ahead;
    op->variant = sets[set].names[op->in[0].act];
    return TPL_OK;
}
