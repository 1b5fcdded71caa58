/* SPDX-License-Identifier: Apache-2.0
 *
 * The way of linear for bf16 rows: a blocked matrix product. Panels are taken in groups that stay in L2 expanded to
 * bf16 (bf16 weights as they lie), and against a group all rows pass in blocks of 32 that stay in L1, so each weight
 * is read from memory and expanded once however many rows there are. The next group is fetched meanwhile. Where a pair of panels is too long for the
 * scratch, its inputs are cut into chunks and the sums of up to 512 rows are kept between them. Any thread.
 */
#include "kernels/cpu/linear_job.h"

enum {
    ACC_ROWS = 512, /* rows whose sums are kept between chunks of inputs, for two panels */
    ACC_AT = LIN_WORK_AT,
    PANELS_AT = ACC_AT + ACC_ROWS * 2 * TPL_PANEL_ROWS * 4,
    PANELS_BYTES = TPL_CPU_SCRATCH_BYTES - PANELS_AT,
    GROUP_BYTES = 384 << 10,
    BYTES_PER_INPUT = TPL_PANEL_ROWS * 2, /* of an expanded panel */
    CHUNK = PANELS_BYTES / (2 * BYTES_PER_INPUT) / 256 * 256
};

/* One or two panels that are multiplied together: neighbours, or gate and up. */
typedef struct pair {
    int n;
    int64_t p[2];
    const tpl_weight *w[2];
} pair;

static int64_t n_pairs(const lin_job *j, const lin_share *s)
{
    return lin_n_sides(j) == 2 ? s->p1 - s->p0 : (s->p1 - s->p0 + 1) / 2;
}

static pair pair_at(const lin_job *j, const lin_share *s, int64_t k)
{
    const tpl_weight *const *w = j->op->w + s->i;
    if (lin_n_sides(j) == 2) return (pair){ 2, { s->p0 + k, s->p0 + k }, { w[0], w[1] } };
    const int64_t p = s->p0 + 2 * k;
    return (pair){ p + 1 < s->p1 ? 2 : 1, { p, p + 1 }, { w[0], w[0] } };
}

/* bf16 panels of whole tiles need no expanding. */
static bool lies_ready(const tpl_weight *w)
{
    return w->dtype == TPL_DTYPE_BF16 && w->cols % 32 == 0;
}

/* Inputs [k0, k1) of the pair: where they lie, or expanded to `to`. Gives the bytes used there. */
static size_t get_panels(const lin_job *j, const pair *u, int64_t k0, int64_t k1, uint8_t *to, const uint8_t *at[2])
{
    size_t used = 0;
    for (int k = 0; k < u->n; k++) {
        const uint8_t *panel = lin_panel(u->w[k], u->p[k]);
        at[k] = lies_ready(u->w[k]) ? panel + k0 * BYTES_PER_INPUT : to + used;
        if (lies_ready(u->w[k])) continue;
        j->kernels->bf16->expand(u->w[k]->dtype, panel, u->w[k]->cols, k0, k1, to + used);
        used += (size_t)(k1 - k0) * BYTES_PER_INPUT;
    }
    return used;
}

/* Puts finished sums, rows of 16, in their places. */
static void store(const lin_job *j, const lin_share *s, const pair *u, int64_t t, int n, float *const y[2])
{
    if (lin_n_sides(j) == 2)
        lin_store_tile(j, s->i, u->p[0], t, n, y[0], y[1]);
    else
        for (int k = 0; k < u->n; k++) lin_store_tile(j, s->i, u->p[k], t, n, y[k], NULL);
}

/* Rows [t, t + n) of all inputs: full panels go straight to the output. */
static void multiply_rows(const lin_job *j, const lin_share *s, const pair *u, const uint8_t *const at[2], int64_t cols,
                          int64_t t, int n)
{
    const tpl_view *in = &j->op->in[0], *out = &j->op->out[s->i];
    const bool is_direct = lin_n_sides(j) == 1 && (u->p[u->n - 1] + 1) * TPL_PANEL_ROWS <= u->w[0]->rows;
    float *y[2] = { lin_tile_at(j, 0), lin_tile_at(j, 1) };
    size_t stride[2] = { TPL_PANEL_ROWS * 4, TPL_PANEL_ROWS * 4 };
    for (int k = 0; is_direct && k < u->n; k++) {
        y[k] = (float *)(void *)((char *)out->data + (size_t)t * out->stride) + u->p[k] * TPL_PANEL_ROWS;
        stride[k] = out->stride;
    }
    j->kernels->bf16->multiply(at, u->n, cols, lin_x_row(j, t), in->stride, n, y, stride, false);
    if (!is_direct) store(j, s, u, t, n, y);
}

/* Rows of the block at t; announced when they are not as many as before. */
static int block_rows(const lin_job *j, int64_t t, int64_t end, int *set)
{
    const int n = (int)lin_least(end - t, TPL_BF16_BLOCK);
    if (*set != n) j->kernels->bf16->begin(n);
    return *set = n;
}

/* Part `part` of `parts` of the packed panels of pairs [from, to), on their way to L2 while others are multiplied. */
static void ask_for(const lin_job *j, const lin_share *s, int64_t from, int64_t to, int64_t part, int64_t parts)
{
    const int sides = lin_n_sides(j);
    const int64_t p0 = s->p0 + from * (sides == 2 ? 1 : 2), p1 = lin_least(s->p0 + to * (sides == 2 ? 1 : 2), s->p1);
    for (int k = 0; k < sides; k++) {
        const tpl_weight *w = j->op->w[s->i + k];
        const int64_t bytes = (p1 - p0) * (int64_t)tpl_panel_bytes(w->dtype, w->cols);
        const uint8_t *at = lin_panel(w, p0);
        for (int64_t b = bytes * part / parts & ~INT64_C(63); b < bytes * (part + 1) / parts; b += 64)
            __builtin_prefetch(at + b, 0, 2);
    }
}

/* Pairs [from, to) with all their inputs in the scratch; the next ones are asked for, up to `next`. */
static void run_group(const lin_job *j, const lin_share *s, int64_t from, int64_t to, int64_t next, int64_t cols)
{
    const uint8_t *at[GROUP_BYTES / (32 * 2 * BYTES_PER_INPUT)][2];
    uint8_t *free_at = (uint8_t *)j->scratch + PANELS_AT;
    int set = 0;
    for (int64_t k = from; k < to; k++) {
        const pair u = pair_at(j, s, k);
        free_at += get_panels(j, &u, 0, cols, free_at, at[k - from]);
    }
    int64_t part = 0;
    const int64_t parts = (s->t1 - s->t0 + TPL_BF16_BLOCK - 1) / TPL_BF16_BLOCK * (to - from);
    for (int64_t t = s->t0; t < s->t1; t += TPL_BF16_BLOCK) {
        const int n = block_rows(j, t, s->t1, &set);
        for (int64_t k = from; k < to; k++, part++) {
            const pair u = pair_at(j, s, k);
            if (next > to) ask_for(j, s, to, next, part, parts);
            multiply_rows(j, s, &u, at[k - from], cols, t, n);
        }
    }
}

/* A pair in chunks of its inputs. */
static void run_long(const lin_job *j, const lin_share *s, const pair *u, int64_t cols, int64_t t0, int64_t t1)
{
    const size_t stride[2] = { TPL_PANEL_ROWS * 4, TPL_PANEL_ROWS * 4 };
    float *acc[2];
    int set = 0;
    for (int k = 0; k < 2; k++) acc[k] = (float *)(void *)(j->scratch + ACC_AT) + k * ACC_ROWS * TPL_PANEL_ROWS;
    for (int64_t k0 = 0; k0 < cols; k0 += CHUNK) {
        const int64_t k1 = lin_least(k0 + CHUNK, cols);
        const uint8_t *at[2];
        get_panels(j, u, k0, k1, (uint8_t *)j->scratch + PANELS_AT, at);
        for (int64_t t = t0; t < t1; t += TPL_BF16_BLOCK) {
            const int n = block_rows(j, t, t1, &set);
            float *y[2] = { acc[0] + (t - t0) * TPL_PANEL_ROWS, acc[1] + (t - t0) * TPL_PANEL_ROWS };
            j->kernels->bf16->multiply(at, u->n, k1 - k0, lin_x_row(j, t) + 2 * k0, j->op->in[0].stride, n, y,
                                       stride, k0 > 0);
            if (k1 == cols) store(j, s, u, t, n, y);
        }
    }
}

void lin_run_bf16(const lin_job *j, const lin_share *s)
{
    const int64_t cols = (j->op->in[0].cols + 31) / 32 * 32, n = n_pairs(j, s);
    const int64_t size = cols * 2 * BYTES_PER_INPUT, group = size < GROUP_BYTES ? GROUP_BYTES / size : 1;
    if (cols <= CHUNK)
        for (int64_t k = 0; k < n; k += group) run_group(j, s, k, lin_least(k + group, n), lin_least(k + 2 * group, n), cols);
    else
        for (int64_t t = s->t0; t < s->t1; t += ACC_ROWS)
            for (int64_t k = 0; k < n; k++) {
                const pair u = pair_at(j, s, k);
                run_long(j, s, &u, cols, t, lin_least(t + ACC_ROWS, s->t1));
            }
    j->kernels->bf16->end();
}
