/* SPDX-License-Identifier: Apache-2.0
 *
 * A call of linear on one thread, as linear.c hands it to its ways: which cut the same share of work (panels times
 * rows) into pieces that suit them. Any thread; each has a job of its own.
 */
#ifndef TPL_KERNELS_CPU_LINEAR_JOB_H
#define TPL_KERNELS_CPU_LINEAR_JOB_H

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/linear.h"

/* Rows of x as tile functions read them: as they lie, or rounded or made float in the scratch. */
typedef struct lin_rows {
    const char *at;
    size_t stride;
    bool is_float;
} lin_rows;

typedef struct lin_job {
    const tpl_lin_kernels *kernels;
    const tpl_bound *op;
    tpl_act form; /* of the rows of x in this step */
    bool is_own;  /* few rows: they are still floats, in in[1] */
    int64_t rows;
    char *scratch; /* TPL_CPU_SCRATCH_BYTES: two tiles, then what the way wants */
    lin_rows kept; /* rows [kept_t, kept_t + kept_n) that get_rows made; kept_n = 0: none */
    int64_t kept_t, kept_n;
} lin_job;

/* Panels [p0, p1) of weight i times rows [t0, t1). With epi = 1 weight 0 is the gate, and panel p of weight 1 goes
 * with it. */
typedef struct lin_share {
    int i;
    int64_t p0, p1, t0, t1;
} lin_share;

enum {
    LIN_TILE_ROWS = 64, /* rows of x per tile, at most: two tiles of 64 x 16 floats are 8 KB of scratch */
    LIN_TILE_BYTES = LIN_TILE_ROWS * TPL_PANEL_ROWS * 4,
    LIN_WORK_AT = 2 * LIN_TILE_BYTES
};

/* The ways: tile functions, blocks of 16 q8 rows, blocks of 32 bf16 rows. */
void lin_run_tiles(lin_job *j, const lin_share *s);
bool lin_goes_q8_wide(const lin_job *j, int64_t rows);
void lin_run_q8_wide(const lin_job *j, const lin_share *s);
void lin_run_bf16(const lin_job *j, const lin_share *s);
/* Panel p of weight i times up to LIN_TILE_ROWS rows from t on, by the tile functions, to its place. */
void lin_run_tile(const lin_job *j, int i, int64_t p, int64_t t, int n);

/* Puts a finished tile [n][16] of panel p of weight i, rows [t, t + n), in its place; with epi = 1 gate and up. */
void lin_store_tile(const lin_job *j, int i, int64_t p, int64_t t, int n, float *tile, const float *up);

TPL_INLINE const char *lin_x_row(const lin_job *j, int64_t t)
{
    return (const char *)j->op->in[0].data + (size_t)t * j->op->in[0].stride;
}

TPL_INLINE const uint8_t *lin_panel(const tpl_weight *w, int64_t p)
{
    return (const uint8_t *)w->data + (size_t)p * tpl_panel_bytes(w->dtype, w->cols);
}

/* The tile of gate (or the only one) and of up. */
TPL_INLINE float *lin_tile_at(const lin_job *j, int k)
{
    return (float *)(void *)(j->scratch + k * LIN_TILE_BYTES);
}

/* Weights per item: gate and up, or one. */
TPL_INLINE int lin_n_sides(const lin_job *j)
{
    return j->op->imm[0].i ? 2 : 1;
}

TPL_INLINE int64_t lin_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
