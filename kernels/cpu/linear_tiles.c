/* SPDX-License-Identifier: Apache-2.0
 *
 * The way of linear through the tile functions (linear_f32*.c, linear_q8*.c): panels in groups that stay in L2, rows in
 * chunks that stay near L1, so each weight byte comes from memory once however many rows there are. Rows in a form for
 * which the ISA has no tile function are made float first; those of a step of few rows, which nobody rounded before, are
 * rounded here. With epi = 1, silu(gate) * up is taken while both tiles are in L1. Any thread.
 */
#include "kernels/cpu/linear_job.h"
#include "kernels/cpu/quant.h"

enum {
    ROW_CHUNK_BYTES = 32 << 10, /* of x per tile call, about */
    GROUP_BYTES = 256 << 10     /* packed panels kept in L2 while all row chunks pass */
};

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
    const int64_t cols = j->op->in[0].cols, form = (int64_t)tpl_row_bytes(TPL_ACT_Q8, cols);
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
        char *formed = j->scratch + TPL_CPU_SCRATCH_BYTES - tpl_row_bytes(TPL_ACT_Q8, cols);
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

void lin_run_tiles(lin_job *j, const lin_share *s)
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
