/* SPDX-License-Identifier: Apache-2.0
 *
 * The one list of ops, and how a backend runs them. A program (core/exec) names ops by this list; a backend fills a table with
 * check, bind (once, at load) and run. On the CPU every thread of a rank's team walks the op list and calls run (SPMD): run splits its
 * work by ctx->ith / ctx->nth, may use tpl_team_barrier inside, and the executor puts a barrier before ops flagged so by the
 * planner (inputs written by other threads are visible then). Results must not depend on nth, nor on which other rows share the step.
 */
#ifndef TPL_KERNELS_OPS_H
#define TPL_KERNELS_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/err.h"
#include "base/index.h"
#include "base/step.h"
#include "base/team.h"

/* X(ENUM, name, most outs, most ins, most weights, immediates in order (name:i integer, name:f double), flags)
 * Rows are tokens (or output rows after `rows`); a row is contiguous, its columns are the local pieces of the value's other dims.
 * Immediates called `part` give this rank's piece index on the axes that cut the tokens (0 if none does). `index` is an index list.
 *
 *  embed           x[T,embd] = table row of each token; tokens whose id is not in `index` (the vocab rows held here) give zero rows
 *  norm            y = x * rsqrt(mean(x^2) + eps) * w           RMS norm over all columns (Zhang & Sennrich 2019, arXiv:1910.07467)
 *  add             out = a + b                                  out may alias a
 *  add_norm        x = a + b; y = norm(x)                       outs x, y; x may alias a
 *  quant           q = x as q8 rows (blocks of 32: int8 twice, value and what its rounding left; scale; sum) or as bf16 rows; left out in a step
 *                  of few rows (tpl_op_idles), where each thread of linear rounds x for itself rather than wait for the others
 *  linear          y_i = x * w_i^T                              in: q (any tpl_act), and with quant in front x as floats; n weights, n outs; epi=1: silu(y_0) * y_1, one out
 *  bias            y = y + b where on=1, y unchanged where on=0; in place
 *  silu_mul        h = silu(g) * u
 *  rope            y = rotate(x): heads of hd columns, the first rot of each turned by pos * freq[i] (freqs = constant table), mode 0
 *                  pairs (i, i + rot/2), mode 1 pairs (2i, 2i+1); cos and sin are multiplied by mscale; may be in place
 *  kv_write        writes k[T, kvh*hd] and v[T, kvh*hd] of each token to the paged cache
 *  rope_kv         rope of q (in place) and of k, then kv_write
 *  attend          o[T, kvh*grp*hd]: causal softmax(q k^T * scale) v over the pages of each token's sequence, window 0 = no limit;
 *                  exact=1: products of floats only, the same bits whatever shares the step
 *  rows            out[O, cols] = x rows picked by step.out; rows not in this rank's piece (cut=1) are zero
 *  slice           out columns: [rows][outer][n][inner] -> the entries of `index` of the middle dim
 *  slice_tok       out rows: this rank's piece of the rows
 *  sample          logits[O, vocab] -> step results (sampler.h); copies the rows that TPL_SEQ_LOGITS asks for
 *  all_reduce .. recv   collectives and transfers: bound by core/exec through core/comm, never by a kernel table
 */
#define TPL_OPS(X)                                                                            \
    X(EMBED, "embed", 1, 0, 1, "index:i part:i", TPL_OP_KERNEL)                               \
    X(NORM, "norm", 1, 1, 1, "eps:f", TPL_OP_KERNEL)                                          \
    X(ADD, "add", 1, 2, 0, "", TPL_OP_KERNEL)                                                 \
    X(ADD_NORM, "add_norm", 2, 2, 1, "eps:f", TPL_OP_KERNEL)                                  \
    X(QUANT, "quant", 1, 1, 0, "", TPL_OP_KERNEL)                                             \
    X(LINEAR, "linear", 4, 2, 4, "epi:i", TPL_OP_KERNEL)                                      \
    X(BIAS, "bias", 1, 1, 1, "on:i", TPL_OP_KERNEL)                                           \
    X(SILU_MUL, "silu_mul", 1, 2, 0, "", TPL_OP_KERNEL)                                       \
    X(ROPE, "rope", 1, 1, 0, "heads:i hd:i rot:i mode:i freqs:i mscale:f part:i", TPL_OP_KERNEL) \
    X(KV_WRITE, "kv_write", 0, 2, 0, "kvh:i hd:i part:i", TPL_OP_KERNEL | TPL_OP_STATE)       \
    X(ROPE_KV, "rope_kv", 1, 3, 0, "heads:i kvh:i hd:i rot:i mode:i freqs:i mscale:f part:i", \
      TPL_OP_KERNEL | TPL_OP_STATE)                                                           \
    X(ATTEND, "attend", 1, 1, 0, "kvh:i grp:i hd:i scale:f window:i part:i exact:i", TPL_OP_KERNEL | TPL_OP_STATE) \
    X(ROWS, "rows", 1, 1, 0, "cut:i part:i", TPL_OP_KERNEL)                                   \
    X(SLICE, "slice", 1, 1, 0, "outer:i n:i inner:i index:i", TPL_OP_KERNEL)                  \
    X(SLICE_TOK, "slice_tok", 1, 1, 0, "part:i", TPL_OP_KERNEL)                               \
    X(SAMPLE, "sample", 0, 1, 0, "", TPL_OP_KERNEL)                                           \
    X(ALL_REDUCE, "all_reduce", 1, 1, 0, "", TPL_OP_COLL)                                     \
    X(REDUCE_SCATTER, "reduce_scatter", 1, 1, 0, "outer:i n:i inner:i index:i", TPL_OP_COLL)  \
    X(ALL_GATHER, "all_gather", 1, 1, 0, "outer:i n:i inner:i index:i", TPL_OP_COLL)          \
    X(ALL_TO_ALL, "all_to_all", 1, 1, 0, "outer:i n:i inner:i index:i outer2:i n2:i inner2:i index2:i", TPL_OP_COLL) \
    X(GATHER, "gather", 1, 1, 0, "outer:i n:i inner:i index:i", TPL_OP_COLL)                  \
    X(SEND, "send", 0, 1, 0, "cut:i", TPL_OP_XFER)                                            \
    X(RECV, "recv", 1, 0, 0, "cut:i", TPL_OP_XFER)

enum { TPL_OP_KERNEL = 1, TPL_OP_COLL = 2, TPL_OP_XFER = 4, TPL_OP_STATE = 8 };

typedef enum tpl_op_kind {
#define X(id, name, o, i, w, imm, flags) TPL_OP_ID_##id,
    TPL_OPS(X)
#undef X
    TPL_N_OPS
} tpl_op_kind;

typedef struct tpl_op_info {
    const char *name;
    uint8_t n_out, n_in, n_w; /* most */
    const char *imm;
    uint32_t flags;
} tpl_op_info;

extern const tpl_op_info tpl_op_infos[TPL_N_OPS];
int tpl_op_find(const char *name); /* or -1 */
int tpl_op_imm(tpl_op_kind kind, const char *name); /* place of a named immediate in the op's list, or -1 */

/* Instruction sets a CPU backend may use, ordered; portable is always there. */
typedef enum tpl_isa { TPL_ISA_PORTABLE, TPL_ISA_AVX2, TPL_ISA_AVX512, TPL_ISA_AMX, TPL_ISA_NEON, TPL_N_ISAS } tpl_isa;

typedef enum tpl_sym { TPL_SYM_TOK, TPL_SYM_OUT } tpl_sym;

/* How a value's rows are stored: floats; q8 rows; bf16 rows; or q8 rows in a step of few rows and bf16 rows in one of many, on CPUs that
 * multiply bf16 fast (tpl_rows_form). X(ENUM, name in the program's text) */
#define TPL_ACTS(X) X(F32, "f32") X(Q8, "q8") X(BF16, "bf16") X(Q8_BF16, "q8_bf16")
typedef enum tpl_act {
#define X(id, name) TPL_ACT_##id,
    TPL_ACTS(X)
#undef X
    TPL_N_ACTS
} tpl_act;
extern const char *const tpl_act_names[TPL_N_ACTS];
int tpl_act_find(const char *name); /* or -1 */

/* A value on this rank: rows(step) rows, each `stride` bytes apart. data is fixed at load. */
typedef struct tpl_view {
    void *data;
    tpl_act act;
    tpl_sym sym;
    uint32_t div;   /* rows here = padded count of sym / div */
    int64_t cols;   /* elements per row */
    size_t stride;  /* bytes per row: tpl_row_bytes(act, cols) */
} tpl_view;

static inline int64_t tpl_view_rows(const tpl_view *v, const tpl_step *s)
{
    return (v->sym == TPL_SYM_TOK ? s->pad_tok : s->pad_out) / (int64_t)v->div;
}

/* A q8 row: int8 q[cols], int8 r[cols], then float d[cols/32], then float ds[cols/32]; cols % 32 == 0. x = d * (q + r / 254): q is x / d rounded,
 * r the 254th parts that this leaves, so that products with integer weights keep 15 bits of x. ds = d * sum of (q + r / 254) over the block. */
#define TPL_Q8_FINE (1.0f / 254.0f)
static inline size_t tpl_q8_row_bytes(int64_t cols)
{
    return ((size_t)cols * 2 + (size_t)(cols / 32) * 8 + 63) & ~(size_t)63;
}
/* A bf16 row: bf16 x[cols], then zeros up to a multiple of 64 bytes. An odd number of cache lines, so that the same column of many rows does
 * not fall into the same set of L1. */
static inline size_t tpl_bf16_row_bytes(int64_t cols) { return (((size_t)cols * 2 + 63) & ~(size_t)63) | 64; }
static inline size_t tpl_row_bytes(tpl_act act, int64_t cols)
{
    return act == TPL_ACT_F32 ? (size_t)cols * 4 : act == TPL_ACT_BF16 ? tpl_bf16_row_bytes(cols) : tpl_q8_row_bytes(cols);
}
static inline bool tpl_act_in_blocks(tpl_act act) { return act == TPL_ACT_Q8 || act == TPL_ACT_Q8_BF16; } /* cols % 32 == 0 */
/* The form of a Q8_BF16 value in a step with so many rows here. Expanding the weights to bf16 costs about as
 * much as their integer products with 8 rows, by a count of instructions; the number is not tuned. */
enum { TPL_BF16_ROWS = 8 };
static inline tpl_act tpl_rows_form(tpl_act act, bool has_bf16, int64_t rows)
{
    return act != TPL_ACT_Q8_BF16 ? act : has_bf16 && rows >= TPL_BF16_ROWS ? TPL_ACT_BF16 : TPL_ACT_Q8;
}
static inline float *tpl_q8_d(void *row, int64_t cols) { return (float *)((char *)row + 2 * cols); }
static inline float *tpl_q8_ds(void *row, int64_t cols) { return (float *)((char *)row + 2 * cols) + cols / 32; }

/* One rank's shard of a matrix, packed in panels of 16 rows (pack.h), or of a vector (rows == 1, f32). */
typedef struct tpl_weight {
    const char *name;
    tpl_dtype dtype;     /* of the packed data; vectors are always f32 */
    int64_t rows, cols;  /* outputs x inputs; the packed data covers rows rounded up to 16 */
    const void *data;    /* 64-byte aligned */
} tpl_weight;

/* One layer's paged cache on this rank. Page p, kv head h: k + ((p * kvh + h) * page) * hd elements, [page][hd]; v the same. */
typedef struct tpl_kv_pool {
    void *k, *v;
    tpl_dtype dtype;     /* F32 or F16 */
    int32_t page, kvh, hd;
    int64_t n_pages;
} tpl_kv_pool;

enum { TPL_MAX_OPERANDS = 4, TPL_MAX_IMM = 10 };

typedef union tpl_imm { int64_t i; double f; } tpl_imm;

/* An op with everything resolved for one rank. Filled by the executor, then completed by the backend's bind. */
typedef struct tpl_bound tpl_bound;
typedef struct tpl_op_ctx {
    int ith, nth;
    const tpl_step *step;
    tpl_team *team;
    void *scratch;         /* this thread's own scratch memory, tpl_backend.scratch_bytes, 64-byte aligned */
    const tpl_step *before; /* the step before, done, where step->continues */
} tpl_op_ctx;

struct tpl_bound {
    void (*run)(const tpl_op_ctx *ctx, const tpl_bound *op);
    void (*ahead)(const tpl_op_ctx *ctx, const tpl_bound *op); /* or NULL: asks for the weights that this thread reads first, before the barrier */
    const char *name;       /* "blk.3.o_proj" */
    const char *variant;    /* which code was chosen, e.g. "linear_q8_avx512vnni+bf16_amx"; static storage */
    tpl_op_kind kind;
    int layer;
    int n_out, n_in, n_w;
    tpl_view out[TPL_MAX_OPERANDS], in[TPL_MAX_OPERANDS];
    const tpl_weight *w[TPL_MAX_OPERANDS];
    const tpl_kv_pool *kv;
    tpl_imm imm[TPL_MAX_IMM];
    const tpl_index *index; /* of the `index` immediate, or NULL */
    const float *freqs;     /* of the `freqs` immediate, rot/2 of them, or NULL */
};

/* Whether an op has nothing to do in this step. The op behind it begins with a barrier, so its own is left out too. */
static inline bool tpl_op_idles(const tpl_bound *op, const tpl_step *s)
{
    return op->kind == TPL_OP_ID_QUANT && tpl_view_rows(&op->in[0], s) < TPL_BF16_ROWS;
}

typedef struct tpl_backend {
    const char *name;        /* "cpu" */
    size_t scratch_bytes;    /* per thread */
    /* Completes op->run and op->variant for this ISA, or fails UNSUPPORTED naming op and types, ARG for shapes. No allocation. */
    tpl_status (*bind)(tpl_isa isa, tpl_bound *op, tpl_err *err);
    /* The form in which linear on this weight type takes its operand when act is auto. */
    tpl_act (*wants)(tpl_dtype weight);
} tpl_backend;

const tpl_backend *tpl_backend_cpu(void);
/* Best ISA of this machine that the build has, and whether one is usable. */
tpl_isa tpl_isa_best(void);
bool tpl_isa_usable(tpl_isa isa);
/* Whether code for `isa` multiplies bf16 fast here: AMX does; of the CPUs with vdpbf16ps those of AMD do (twice the rate of float products;
 * on Intel's half of it: facts/perf.md 0). */
bool tpl_isa_has_bf16(tpl_isa isa);
const char *tpl_isa_name(tpl_isa isa);
int tpl_isa_find(const char *name); /* or -1 */

#endif
