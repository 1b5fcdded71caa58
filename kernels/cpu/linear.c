/* SPDX-License-Identifier: Apache-2.0
 *
 * The linear op: y_i = x * w_i^T for the weights of one op, which share x. This file cuts the work; the
 * multiplying is in the tile functions of linear_f32*.c and linear_q8*.c.
 *
 * Work items are panels (16 outputs) of all weights in one list, cut into contiguous shares by cost: bytes
 * when few rows stream the weights, inputs when many rows reuse them. Where a big batch meets few panels,
 * the rows are cut too. Within a share: panels in groups that stay in L2, rows in chunks that stay near
 * L1, so each weight byte comes from memory once however many rows there are. Where the ISA has a wide way
 * (AMX), whole groups of 16 rows go that way and the rest through the tile functions. With epi = 1 (gate,
 * up) an item is the same panel of both, and silu(gate) * up is taken while both tiles are in L1. Any
 * thread of a team; no barrier inside.
 */
#include "kernels/cpu/linear.h"

#include "kernels/cpu/cpu_ops.h"

enum {
    ROW_CHUNK = 64, /* rows of x per tile call, at most: two tiles of 64 x 16 floats are 8 KB of scratch */
    ROW_CHUNK_BYTES = 32 << 10, /* and about as many bytes of x */
    GROUP_BYTES = 256 << 10,    /* packed panels kept in L2 while all row chunks pass */
    FEW_ROWS = 8,               /* below: weights streamed, cost is bytes */
    WIDE_MAX_BLOCKS = 512,      /* longest row of the wide way, in blocks: 16384 inputs */
    WIDE_GROUP = 160 << 10,     /* expanded panels kept in L2 while all rows pass */
};

/* Scratch: two tiles, then the areas of the wide way: its own, the scales of 16 rows, expanded panels. */
enum {
    TILE_BYTES = ROW_CHUNK * TPL_PANEL_ROWS * 4,
    WORK_AT = 2 * TILE_BYTES,
    SCALES_AT = WORK_AT + TPL_WIDE_WORK,
    WIDE_AT = SCALES_AT + WIDE_MAX_BLOCKS * TPL_WIDE_SCALES * 4,
    WIDE_BYTES = TPL_CPU_SCRATCH_BYTES - WIDE_AT
};
_Static_assert(WIDE_BYTES >= 2 * (14336 / 32) * TPL_WIDE_BLOCK, "gate and up of 14336 inputs must fit");

typedef struct job {
    const tpl_lin_kernels *kernels;
    const tpl_bound *op;
    int64_t rows;
    char *scratch;
} job;

static tpl_lin_tile tile_of(const job *j, const tpl_weight *w)
{
    return (j->op->in[0].act == TPL_ACT_Q8 ? j->kernels->q8 : j->kernels->f32)[w->dtype];
}

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

static const char *x_row(const job *j, int64_t t)
{
    return (const char *)j->op->in[0].data + (size_t)t * j->op->in[0].stride;
}

static const char *panel_of(const tpl_weight *w, int64_t p)
{
    return (const char *)w->data + (size_t)p * tpl_panel_bytes(w->dtype, w->cols);
}

/* The tile of gate (or the only one) and of up. */
static float *tile_at(const job *j, int k)
{
    return (float *)(j->scratch + k * TILE_BYTES);
}

/* Weights per item: gate and up, or one. */
static int n_sides(const job *j)
{
    return j->op->imm[0].i ? 2 : 1;
}

/* Puts the finished tile of panel p of weight i and rows [t, t + n) in its place. */
static void store_tile(const job *j, int i, int64_t p, int64_t t, int n)
{
    const tpl_view *out = &j->op->out[i];
    const int64_t first = p * TPL_PANEL_ROWS, left = j->op->w[i]->rows - first;
    const size_t bytes = (size_t)(left < TPL_PANEL_ROWS ? left : TPL_PANEL_ROWS) * sizeof(float);
    float *tile = tile_at(j, 0);
    if (n_sides(j) == 2) j->kernels->silu_mul(tile, tile_at(j, 1), tile, n * TPL_PANEL_ROWS);
    copy_tile(tile, n, (char *)out->data + (size_t)t * out->stride + (size_t)first * sizeof(float),
              out->stride, bytes);
}

/* Panel p of weight i times rows [t, t + n). */
static void run_tile(const job *j, int i, int64_t p, int64_t t, int n)
{
    for (int k = 0; k < n_sides(j); k++) {
        const tpl_weight *w = j->op->w[i + k];
        tile_of(j, w)(panel_of(w, p), w->cols, x_row(j, t), j->op->in[0].stride, n, tile_at(j, k));
    }
    store_tile(j, i, p, t, n);
}

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* -- The wide way ---- */

/* Panels [pa, pb), already expanded, times the 16 rows from t on. */
static void multiply_wide(const job *j, int i, int64_t pa, int64_t pb, int64_t t)
{
    const tpl_lin_wide *wide = j->kernels->wide;
    const int64_t cols = j->op->in[0].cols;
    const size_t stride = j->op->in[0].stride, size = (size_t)(cols / 32) * TPL_WIDE_BLOCK;
    float *scales = (float *)(j->scratch + SCALES_AT);
    const uint8_t *at = (const uint8_t *)j->scratch + WIDE_AT;
    wide->scales(x_row(j, t), stride, cols, scales);
    for (int64_t p = pa; p < pb; p++) {
        for (int k = 0; k < n_sides(j); k++, at += size)
            wide->multiply(j->op->w[i + k]->dtype, at, cols, x_row(j, t), stride, scales,
                           j->scratch + WORK_AT, tile_at(j, k));
        store_tile(j, i, p, t, TPL_WIDE_ROWS);
    }
}

/* Panels [p0, p1) of weight i times rows [t0, t1), in groups of panels that the scratch holds expanded. */
static void run_wide(const job *j, int i, int64_t p0, int64_t p1, int64_t t0, int64_t t1)
{
    const tpl_lin_wide *wide = j->kernels->wide;
    const int64_t cols = j->op->in[0].cols, size = cols / 32 * TPL_WIDE_BLOCK;
    const int64_t group = size * n_sides(j) < WIDE_GROUP ? WIDE_GROUP / (size * n_sides(j)) : 1;
    const int64_t whole = t0 + (t1 - t0) / TPL_WIDE_ROWS * TPL_WIDE_ROWS;
    wide->begin();
    for (int64_t pa = p0; pa < p1; pa += group) {
        const int64_t pb = at_most(pa + group, p1);
        uint8_t *at = (uint8_t *)j->scratch + WIDE_AT;
        for (int64_t p = pa; p < pb; p++)
            for (int k = 0; k < n_sides(j); k++, at += size)
                wide->expand(j->op->w[i + k]->dtype, panel_of(j->op->w[i + k], p), cols, at);
        for (int64_t t = t0; t < whole; t += TPL_WIDE_ROWS) multiply_wide(j, i, pa, pb, t);
        for (int64_t p = pa; whole < t1 && p < pb; p++) run_tile(j, i, p, whole, (int)(t1 - whole));
    }
    wide->end();
}

static bool goes_wide(const job *j, int64_t rows)
{
    const tpl_view *in = &j->op->in[0];
    return j->kernels->wide && in->act == TPL_ACT_Q8 && rows >= TPL_WIDE_ROWS &&
           in->cols / 32 * TPL_WIDE_BLOCK * n_sides(j) <= WIDE_BYTES && in->cols <= 32 * WIDE_MAX_BLOCKS;
}

/* -- Shares ---- */

/* Panels [p0, p1) of weight i times rows [t0, t1). */
static void run_panels(const job *j, int i, int64_t p0, int64_t p1, int64_t t0, int64_t t1)
{
    const tpl_weight *w = j->op->w[i];
    if (goes_wide(j, t1 - t0)) {
        if (p0 < p1) run_wide(j, i, p0, p1, t0, t1);
        return;
    }
    int64_t chunk = at_most(ROW_CHUNK_BYTES / (int64_t)j->op->in[0].stride & ~INT64_C(7), ROW_CHUNK);
    if (chunk < 16) chunk = 16;
    int64_t group = GROUP_BYTES / (int64_t)(tpl_panel_bytes(w->dtype, w->cols) + 1);
    if (group < 1) group = 1;
    for (int64_t pa = p0; pa < p1; pa += group)
        for (int64_t t = t0; t < t1; t += chunk)
            for (int64_t p = pa; p < at_most(pa + group, p1); p++)
                run_tile(j, i, p, t, (int)at_most(chunk, t1 - t));
}

static int64_t panel_cost(const job *j, int i)
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
    return at_most(nth, ceil_div(rows, 2 * ROW_CHUNK));
}

static void linear_run(const tpl_op_ctx *ctx, const tpl_bound *op, const tpl_lin_kernels *kernels)
{
    const job j = { kernels, op, tpl_view_rows(&op->in[0], ctx->step), ctx->scratch };
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
            const int64_t p0 = at_most(ceil_div(lo - start, c), n), p1 = at_most(ceil_div(hi - start, c), n);
            run_panels(&j, i, p0, p1, j.rows * piece / pieces, j.rows * (piece + 1) / pieces);
            start += n * c;
        }
}

/* -- Binding ---- */

/* Per ISA: the kernels (tile functions of ISA `tiles`, a wide way or NULL), the run function, the names of
 * the variants. */
#define LINEAR_ISA(isa, tiles, wide)                                                             \
    static const tpl_lin_kernels kernels_##isa = { tpl_lin_f32_##tiles, tpl_lin_q8_##tiles,      \
                                                   wide, tpl_lin_silu_##tiles };                 \
    static void run_##isa(const tpl_op_ctx *ctx, const tpl_bound *op)                            \
    {                                                                                            \
        linear_run(ctx, op, &kernels_##isa);                                                     \
    }                                                                                            \
    static const char *const names_##isa[2][TPL_N_DTYPES] = { { TPL_LIN_TYPES(NAME_F32_##isa) }, \
                                                              { TPL_LIN_Q8_TYPES(NAME_Q8_##isa) } };
#define NAME_F32_portable(id, name) [TPL_DTYPE_##id] = "linear_" #name "_f32_portable",
#define NAME_Q8_portable(id, name) [TPL_DTYPE_##id] = "linear_" #name "_q8_portable",
LINEAR_ISA(portable, portable, NULL)
#if TPL_CPU_X86
#define NAME_F32_avx2(id, name) [TPL_DTYPE_##id] = "linear_" #name "_f32_avx2",
#define NAME_Q8_avx2(id, name) [TPL_DTYPE_##id] = "linear_" #name "_q8_avx2",
#define NAME_F32_avx512(id, name) [TPL_DTYPE_##id] = "linear_" #name "_f32_avx512",
#define NAME_Q8_avx512(id, name) [TPL_DTYPE_##id] = "linear_" #name "_q8_avx512vnni",
#define NAME_F32_amx(id, name) [TPL_DTYPE_##id] = "linear_" #name "_f32_avx512",
#define NAME_Q8_amx(id, name) [TPL_DTYPE_##id] = "linear_" #name "_q8_amx",
LINEAR_ISA(avx2, avx2, NULL)
LINEAR_ISA(avx512, avx512, NULL)
LINEAR_ISA(amx, avx512, &tpl_lin_wide_amx)
#endif
#if TPL_CPU_ARM
#define NAME_F32_neon(id, name) [TPL_DTYPE_##id] = "linear_" #name "_f32_neon",
#define NAME_Q8_neon(id, name) [TPL_DTYPE_##id] = "linear_" #name "_q8_neon",
LINEAR_ISA(neon, neon, NULL)
/* Where the machine has dot products of bytes, q8 rows take these; all else is the same. */
#define NAME_F32_dotprod NAME_F32_neon
#define NAME_Q8_dotprod(id, name) [TPL_DTYPE_##id] = "linear_" #name "_q8_neon_dotprod",
#define tpl_lin_f32_dotprod tpl_lin_f32_neon
#define tpl_lin_silu_dotprod tpl_lin_silu_neon
LINEAR_ISA(dotprod, dotprod, NULL)
#endif

static const struct {
    const tpl_lin_kernels *kernels;
    void (*run)(const tpl_op_ctx *ctx, const tpl_bound *op);
    const char *const (*names)[TPL_N_DTYPES];
} isas[TPL_N_ISAS] = {
    [TPL_ISA_PORTABLE] = { &kernels_portable, run_portable, names_portable },
#if TPL_CPU_X86
    [TPL_ISA_AVX2] = { &kernels_avx2, run_avx2, names_avx2 },
    [TPL_ISA_AVX512] = { &kernels_avx512, run_avx512, names_avx512 },
    [TPL_ISA_AMX] = { &kernels_amx, run_amx, names_amx },
#endif
#if TPL_CPU_ARM
    [TPL_ISA_NEON] = { &kernels_neon, run_neon, names_neon },
#endif
};

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
    const bool counts =
        op->n_in == 1 && op->n_w >= 1 && op->n_w <= TPL_MAX_OPERANDS && op->n_out == (epi ? 1 : op->n_w);
    if (!counts || (epi && op->n_w != 2))
        return tpl_fail(err, TPL_ERR_ARG, 0, op->name,
                        "linear: %d inputs, %d weights and %d outputs with epi=%lld", op->n_in, op->n_w,
                        op->n_out, (long long)op->imm[0].i);
    if (epi && op->w[0]->rows != op->w[1]->rows)
        return tpl_fail(err, TPL_ERR_ARG, 0, op->name,
                        "linear: gate has %lld outputs, up %lld; epi=1 needs equal shapes",
                        (long long)op->w[0]->rows, (long long)op->w[1]->rows);
    if (op->in[0].act == TPL_ACT_Q8 && op->in[0].cols % 32)
        return tpl_fail(err, TPL_ERR_ARG, 0, op->name,
                        "linear: a q8 operand of %lld columns, not a multiple of 32",
                        (long long)op->in[0].cols);
    return TPL_OK;
}

tpl_status tpl_cpu_bind_linear(tpl_isa isa, tpl_bound *op, tpl_err *err)
{
    if ((unsigned)isa >= TPL_N_ISAS || !isas[isa].run)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, op->name, "linear: no code for %s in this build",
                        tpl_isa_name(isa));
    TPL_TRY(check_counts(op, err));
    const tpl_act act = op->in[0].act;
    for (int i = 0; i < op->n_w; i++) {
        const tpl_dtype type = op->w[i]->dtype;
        if ((unsigned)type >= TPL_N_DTYPES ||
            !(act == TPL_ACT_Q8 ? isas[isa].kernels->q8 : isas[isa].kernels->f32)[type])
            return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, op->name,
                            "linear: %s is %s, which has no %s kernel for %s rows", op->w[i]->name,
                            (unsigned)type < TPL_N_DTYPES ? tpl_dtypes[type].name : "?", tpl_isa_name(isa),
                            act == TPL_ACT_Q8 ? "q8" : "f32");
        TPL_TRY(check_weight(op, i, err));
    }
    for (int i = 0; i < op->n_out; i++) TPL_TRY(check_out(op, i, err));
    op->run = isas[isa].run;
    op->variant = isas[isa].names[act == TPL_ACT_Q8][op->w[0]->dtype];
#if TPL_CPU_ARM
    if (isa == TPL_ISA_NEON && act == TPL_ACT_Q8 && tpl_cpu_has_dotprod()) {
        op->run = run_dotprod;
        op->variant = names_dotprod[1][op->w[0]->dtype];
    }
#endif
    return TPL_OK;
}
