/* SPDX-License-Identifier: Apache-2.0
 *
 * The linear op: y_i = x * w_i^T for the weights of one op, which share x. This file cuts the work into shares and
 * sends each its way; the multiplying is in the tile functions of linear_f32*.c and linear_q8*.c.
 *
 * Work items are panels (16 outputs) of all weights in one list, cut into contiguous shares by cost: bytes
 * when few rows stream the weights, inputs when many rows reuse them. Where a big batch meets few panels,
 * the rows are cut too. The ways: bf16 rows on an ISA that multiplies them (linear_bf16.c), q8 rows on one with
 * integer tiles (linear_q8_wide.c), and here, through the tile functions: panels in groups that stay in L2, rows in
 * chunks that stay near L1, so each weight byte comes from memory once however many rows there are. With epi = 1
 * (gate, up) an item is the same panel of both, and silu(gate) * up is taken while both tiles are in L1. Any
 * thread of a team; no barrier inside.
 */
#include "kernels/cpu/linear_job.h"
#include "kernels/cpu/quant.h"

enum {
    ROW_CHUNK_BYTES = 32 << 10, /* of x per tile call, about */
    GROUP_BYTES = 256 << 10,    /* packed panels kept in L2 while all row chunks pass */
    FEW_ROWS = 8,               /* below: weights streamed, cost is bytes */
    AHEAD_BYTES = 4096,         /* asked for before the barrier (on two cores of a guest no gain was to be seen) */
    LONGEST_ROW = 1 << 16,      /* inputs: a row must fit into the scratch as floats, beside its q8 form */
};

static int64_t n_panels(const tpl_weight *w)
{
    return (w->rows + TPL_PANEL_ROWS - 1) / TPL_PANEL_ROWS;
}

/* A full panel's rows are copied by a few moves each, not by calls. */
static void copy_tile(const float *tile, int n, char *y, size_t stride, size_t bytes)
{
    const size_t full = TPL_PANEL_ROWS * sizeof(float);
    if (bytes == full)
        for (int r = 0; r < n; r++) memcpy(y + (size_t)r * stride, tile + r * TPL_PANEL_ROWS, full);
    else
        for (int r = 0; r < n; r++) memcpy(y + (size_t)r * stride, tile + r * TPL_PANEL_ROWS, bytes);
}

void lin_store_tile(const lin_job *j, int i, int64_t p, int64_t t, int n, float *tile, const float *up)
{
    const tpl_view *out = &j->op->out[i];
    const int64_t first = p * TPL_PANEL_ROWS, left = lin_least(j->op->w[i]->rows - first, TPL_PANEL_ROWS);
    if (lin_n_sides(j) == 2) j->kernels->silu_mul(tile, up, tile, n * TPL_PANEL_ROWS);
    copy_tile(tile, n, (char *)out->data + (size_t)t * out->stride + (size_t)first * sizeof(float),
              out->stride, (size_t)left * sizeof(float));
}

/* -- Tiles ---- */

static void run_tile(const lin_job *j, int i, int64_t p, int64_t t, int n, const lin_rows *x)
{
    const tpl_lin_tile *tiles = x->is_float ? j->kernels->f32 : j->kernels->q8;
    for (int k = 0; k < lin_n_sides(j); k++) {
        const tpl_weight *w = j->op->w[i + k];
        tiles[w->dtype](lin_panel(w, p), w->cols, x->at, x->stride, n, lin_tile_at(j, k));
    }
    lin_store_tile(j, i, p, t, n, lin_tile_at(j, 0), lin_tile_at(j, 1));
}

void lin_run_tile(const lin_job *j, int i, int64_t p, int64_t t, int n)
{
    const lin_rows x = { lin_x_row(j, t), j->op->in[0].stride, j->form == TPL_ACT_F32 };
    run_tile(j, i, p, t, n, &x);
}

static void floats_of_bf16(const uint16_t *x, int64_t n, float *out)
{
    for (int64_t k = 0; k < n; k++) {
        const uint32_t bits = (uint32_t)x[k] << 16;
        memcpy(out + k, &bits, 4);
    }
}

static void floats_of_q8(const char *row, int64_t n, float *out)
{
    const int8_t *q = (const int8_t *)row, *r = q + n;
    const float *d = (const float *)(const void *)(row + 2 * n);
    for (int64_t b = 0; b < n / 32; b++)
        for (int64_t k = 32 * b; k < 32 * b + 32; k++) out[k] = d[b] * ((float)q[k] + (float)r[k] * TPL_Q8_FINE);
}

/* Row t in the job's form: as it lies, or rounded to `room` (tpl_row_bytes). */
static const char *formed_row(const lin_job *j, int64_t t, char *room)
{
    const int64_t n = j->op->in[0].cols;
    if (!j->is_own) return lin_x_row(j, t);
    const float *x = (const float *)(const void *)((const char *)j->op->in[1].data + (size_t)t * j->op->in[1].stride);
    if (j->form == TPL_ACT_BF16)
        tpl_bf16_of_floats_portable(x, n, (uint16_t *)(void *)room);
    else
        j->kernels->quant(x, n / 32, (int8_t *)room, (int8_t *)room + n, tpl_q8_d(room, n), tpl_q8_ds(room, n));
    return room;
}

/* Scratch for rows: floats of a chunk in front, one row in its form behind; or a chunk in its form. */
static int64_t rows_that_fit(const lin_job *j)
{
    const int64_t cols = j->op->in[0].cols, form = (int64_t)tpl_row_bytes(TPL_ACT_Q8, cols) + 64;
    const int64_t n = (TPL_CPU_SCRATCH_BYTES - LIN_WORK_AT - form) / (cols * (int64_t)sizeof(float));
    return n < 1 ? 1 : n;
}

static bool wants_floats(const lin_job *j, int i)
{
    bool has_q8 = j->form == TPL_ACT_Q8;
    for (int k = 0; k < lin_n_sides(j); k++) has_q8 = has_q8 && j->kernels->q8[j->op->w[i + k]->dtype];
    return !has_q8;
}

/* Rows [t, t + n) as the tile functions of weight i take them, kept for the next call that wants the same. */
static const lin_rows *get_rows(lin_job *j, int i, int64_t t, int64_t n)
{
    const int64_t cols = j->op->in[0].cols;
    const bool is_float = wants_floats(j, i);
    if (j->kept_n == n && j->kept_t == t && j->kept.is_float == is_float) return &j->kept;
    char *room = j->scratch + LIN_WORK_AT;
    size_t stride = is_float ? (size_t)cols * sizeof(float) : tpl_row_bytes(TPL_ACT_Q8, cols);
    if (j->form == TPL_ACT_F32 || (!is_float && !j->is_own)) {
        room = (char *)(uintptr_t)lin_x_row(j, t), stride = j->op->in[0].stride;
    } else {
        char *formed = j->scratch + TPL_CPU_SCRATCH_BYTES - tpl_row_bytes(TPL_ACT_Q8, cols) / 64 * 64 - 64;
        for (int64_t r = 0; r < n; r++) {
            char *to = room + (size_t)r * stride;
            const char *row = formed_row(j, t + r, is_float ? formed : to);
            if (is_float && j->form == TPL_ACT_BF16)
                floats_of_bf16((const uint16_t *)(const void *)row, cols, (float *)(void *)to);
            else if (is_float)
                floats_of_q8(row, cols, (float *)(void *)to);
        }
    }
    j->kept = (lin_rows){ room, stride, is_float };
    j->kept_t = t, j->kept_n = n;
    return &j->kept;
}

static void run_tiles(lin_job *j, const lin_share *s)
{
    const tpl_view *in = &j->op->in[0];
    const tpl_weight *w = j->op->w[s->i];
    int64_t chunk = lin_least(ROW_CHUNK_BYTES / (int64_t)in->stride & ~INT64_C(7), LIN_TILE_ROWS);
    if (chunk < 16) chunk = 16;
    if (j->form != TPL_ACT_F32) chunk = lin_least(chunk, rows_that_fit(j));
    int64_t group = GROUP_BYTES / (int64_t)(tpl_panel_bytes(w->dtype, w->cols) + 1);
    if (group < 1) group = 1;
    for (int64_t pa = s->p0; pa < s->p1; pa += group)
        for (int64_t t = s->t0; t < s->t1; t += chunk) {
            const int64_t n = lin_least(chunk, s->t1 - t);
            const lin_rows *x = get_rows(j, s->i, t, n);
            for (int64_t p = pa; p < lin_least(pa + group, s->p1); p++) run_tile(j, s->i, p, t, (int)n, x);
        }
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
        run_tiles(j, s);
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

static void linear_run(const tpl_op_ctx *ctx, const tpl_bound *op, const tpl_lin_kernels *kernels)
{
    const int64_t rows = tpl_view_rows(&op->in[0], ctx->step);
    lin_job j = { .kernels = kernels,
                  .op = op,
                  .form = tpl_rows_form(op->in[0].act, kernels->bf16, rows),
                  .is_own = op->n_in == 2 && rows < TPL_BF16_ROWS,
                  .rows = rows,
                  .scratch = ctx->scratch };
    const int n_lists = op->imm[0].i ? 1 : op->n_w;
    int64_t cost = 0, panels = 0;
    for (int i = 0; i < n_lists; i++) {
        panels += n_panels(op->w[i]);
        cost += n_panels(op->w[i]) * panel_cost(&j, i);
    }
    const int64_t pieces = row_pieces(j.rows, panels, ctx->nth);
    const int64_t lo = cost * pieces * ctx->ith / ctx->nth, hi = cost * pieces * (ctx->ith + 1) / ctx->nth;
    int64_t start = 0; /* cost of all items before this weight's first panel */
    for (int64_t piece = 0; piece < pieces; piece++)
        for (int i = 0; i < n_lists; i++) {
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
    const int n_lists = op->imm[0].i ? 1 : op->n_w;
    int64_t cost = 0;
    if (j.rows >= FEW_ROWS) return;
    for (int i = 0; i < n_lists; i++) cost += n_panels(op->w[i]) * panel_cost(&j, i);
    int64_t left = cost * ctx->ith / ctx->nth;
    for (int i = 0; i < n_lists; i++) {
        const int64_t c = panel_cost(&j, i), n = n_panels(op->w[i]), p = ceil_div(left, c);
        left -= n * c;
        if (p >= n) continue;
        for (int side = 0; side < (op->imm[0].i ? 2 : 1); side++)
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
                                                 tpl_lin_silu_##tiles, tpl_quant_blocks_##tiles };                                             \
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
