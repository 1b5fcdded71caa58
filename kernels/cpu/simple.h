/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ops other than matrix products share: how threads cut the work, the checks at bind, and the run
 * functions that exist once per instruction set (elem_<isa>.c, attend_<isa>.c). All of them take and give
 * f32 rows. Any thread.
 */
#ifndef TPL_KERNELS_CPU_SIMPLE_H
#define TPL_KERNELS_CPU_SIMPLE_H

#include "kernels/cpu/cpu_ops.h"

typedef void tpl_run_fn(const tpl_op_ctx *ctx, const tpl_bound *op);

/* Bytes of ctx->scratch that the ops here want at most: attention of 256 columns with room for split
 * sequences, and sampling from 262,144 ids. bind fails where the backend's scratch is smaller than what one
 * op needs at least. */
enum { TPL_SIMPLE_SCRATCH_BYTES = 4 << 20 };
size_t tpl_cpu_attend_scratch(int64_t hd);
size_t tpl_cpu_sample_scratch(int64_t vocab);

#define TPL_SIMPLE_RUNS(X) \
    X(norm) X(add_norm) X(add) X(bias) X(silu_mul) X(rope) X(kv_write) X(rope_kv) X(attend) X(sample)
#define X(name)                       \
    tpl_run_fn tpl_##name##_portable; \
    tpl_run_fn tpl_##name##_avx2;     \
    tpl_run_fn tpl_##name##_avx512;   \
    tpl_run_fn tpl_##name##_neon;
TPL_SIMPLE_RUNS(X)
#undef X
tpl_run_fn tpl_attend_amx;

typedef struct tpl_simple_code {
    tpl_run_fn *run;
    const char *variant;
} tpl_simple_code;

/* The codes of an op, for tpl_simple_pick: portable first. */
#if TPL_CPU_X86
#define TPL_SIMPLE_CODES(name)                          \
    { { tpl_##name##_portable, #name "_portable" },     \
      { tpl_##name##_avx2, #name "_avx2" },             \
      { tpl_##name##_avx512, #name "_avx512" } }
#elif TPL_CPU_ARM
#define TPL_SIMPLE_CODES(name)                          \
    { { tpl_##name##_portable, #name "_portable" },     \
      { tpl_##name##_neon, #name "_neon" },             \
      { tpl_##name##_neon, #name "_neon" } }
#else
#define TPL_SIMPLE_CODES(name)                          \
    { { tpl_##name##_portable, #name "_portable" },     \
      { tpl_##name##_portable, #name "_portable" },     \
      { tpl_##name##_portable, #name "_portable" } }
#endif

/* Sets op->run and op->variant from the op's three codes. */
tpl_status tpl_simple_pick(tpl_isa isa, tpl_bound *op, const tpl_simple_code codes[3]);
/* Counts as in the op list for this kind (least = most), every view f32 with contiguous rows, every weight
 * an f32 vector. */
tpl_status tpl_simple_check(const tpl_bound *op, tpl_err *err);
/* Every view has the width and the cut of in[0]. */
tpl_status tpl_simple_same(const tpl_bound *op, tpl_err *err);
/* Fails ARG with "kernels: NAME: WHAT is A, expected B" unless a == b. */
tpl_status tpl_simple_equal(const tpl_bound *op, const char *what, int64_t a, int64_t b, tpl_err *err);

/* The piece [*begin, *end) of n units that thread ith of nth does. */
static inline void tpl_cut(const tpl_op_ctx *ctx, int64_t n, int64_t *begin, int64_t *end)
{
    *begin = n * ctx->ith / ctx->nth;
    *end = n * (ctx->ith + 1) / ctx->nth;
}

/* The same for n floats, cut at cache lines. */
static inline void tpl_cut_floats(const tpl_op_ctx *ctx, int64_t n, int64_t *begin, int64_t *end)
{
    int64_t lines = (n + 15) / 16;
    *begin = lines * ctx->ith / ctx->nth * 16;
    *end = lines * (ctx->ith + 1) / ctx->nth * 16;
    if (*end > n) *end = n;
    if (*begin > *end) *begin = *end;
}

static inline float *tpl_row(const tpl_view *v, int64_t row)
{
    return (float *)((char *)v->data + (size_t)row * v->stride);
}

/* The sequence of token t of the step, or -1: padding. */
static inline int32_t tpl_tok_seq_of(const tpl_step *s, int64_t t)
{
    return t < s->n_tok ? tpl_step_tok_seq(s)[t] : -1;
}

#endif
