/* SPDX-License-Identifier: Apache-2.0
 *
 * The wide way of linear on q8 rows: 16 rows at a time on panels expanded to bytes. The rows left over go through the
 * tile functions, with the same bits. Any thread.
 */
#include "kernels/cpu/linear_job.h"

enum {
    MAX_BLOCKS = 512,      /* longest row, in blocks: 16384 inputs */
    GROUP_BYTES = 160 << 10, /* expanded panels kept in L2 while all rows pass */
    /* Scratch: the way's own area, the scales of 16 rows, expanded panels. */
    SCALES_AT = LIN_WORK_AT + TPL_WIDE_WORK,
    PANELS_AT = SCALES_AT + MAX_BLOCKS * TPL_WIDE_SCALES * 4,
    PANELS_BYTES = TPL_CPU_SCRATCH_BYTES - PANELS_AT
};
_Static_assert(PANELS_BYTES >= 2 * (14336 / 32) * TPL_WIDE_BLOCK, "gate and up of 14336 inputs must fit");

/* Panels [pa, pb) of weight i, already expanded, times the 16 rows from t on. */
static void multiply(const lin_job *j, int i, int64_t pa, int64_t pb, int64_t t)
{
    const tpl_lin_wide *wide = j->kernels->wide;
    const int64_t cols = j->op->in[0].cols;
    const size_t stride = j->op->in[0].stride, size = (size_t)(cols / 32) * TPL_WIDE_BLOCK;
    float *scales = (float *)(void *)(j->scratch + SCALES_AT);
    const uint8_t *at = (const uint8_t *)j->scratch + PANELS_AT;
    wide->scales(lin_x_row(j, t), stride, cols, scales);
    for (int64_t p = pa; p < pb; p++) {
        for (int k = 0; k < lin_n_sides(j); k++, at += size)
            wide->multiply(j->op->w[i + k]->dtype, at, cols, lin_x_row(j, t), stride, scales,
                           j->scratch + LIN_WORK_AT, lin_tile_at(j, k));
        lin_store_tile(j, i, p, t, TPL_WIDE_ROWS, lin_tile_at(j, 0), lin_tile_at(j, 1));
    }
}

/* In groups of panels that the scratch holds expanded. */
void lin_run_q8_wide(const lin_job *j, const lin_share *s)
{
    const tpl_lin_wide *wide = j->kernels->wide;
    const int64_t cols = j->op->in[0].cols, size = cols / 32 * TPL_WIDE_BLOCK;
    const int64_t group = size * lin_n_sides(j) < GROUP_BYTES ? GROUP_BYTES / (size * lin_n_sides(j)) : 1;
    const int64_t whole = s->t0 + (s->t1 - s->t0) / TPL_WIDE_ROWS * TPL_WIDE_ROWS;
    wide->begin();
    for (int64_t pa = s->p0; pa < s->p1; pa += group) {
        const int64_t pb = lin_least(pa + group, s->p1);
        uint8_t *at = (uint8_t *)j->scratch + PANELS_AT;
        for (int64_t p = pa; p < pb; p++)
            for (int k = 0; k < lin_n_sides(j); k++, at += size) {
                const tpl_weight *w = j->op->w[s->i + k];
                wide->expand(w->dtype, lin_panel(w, p), cols, at);
            }
        for (int64_t t = s->t0; t < whole; t += TPL_WIDE_ROWS) multiply(j, s->i, pa, pb, t);
        for (int64_t p = pa; whole < s->t1 && p < pb; p++)
            lin_run_tile(j, s->i, p, whole, (int)(s->t1 - whole));
    }
    wide->end();
}

bool lin_goes_q8_wide(const lin_job *j, int64_t rows)
{
    const tpl_view *in = &j->op->in[0];
    const tpl_lin_tile *tiles = j->kernels->q8;
    bool has_tiles = true;
    for (int i = 0; i < j->op->n_w; i++) has_tiles = has_tiles && tiles[j->op->w[i]->dtype];
    return j->kernels->wide && has_tiles && rows >= TPL_WIDE_ROWS &&
           in->cols / 32 * TPL_WIDE_BLOCK * lin_n_sides(j) <= PANELS_BYTES && in->cols <= 32 * MAX_BLOCKS;
}
