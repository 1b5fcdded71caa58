/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing a token from one row of logits: pure functions, shared by the op `sample` and by `tpl sample`.
 * Any thread; no allocation; the caller owns the row (edits change it in place) and the work memory.
 *
 * Order of processing, unless the caller of tpl_sampler_apply gives another:
 *   repetition, frequency and presence penalty, logit bias, temperature, top-k, top-p, min-p; then the draw.
 *   repetition   each id of prompt or output, once: z > 0 ? z / r : z * r
 *   frequency    z - f * (times the id occurs in the output);   presence: z - p if it occurs there
 *   temperature  z / T; below 1e-5 (0 is the usual way to say it) the best token is taken instead, the
 *                lowest id among equals
 *   top-k        keeps all that equal the k-th
 *   top-p        keeps the tokens before which the sum of probabilities, best first and equal ones by id, is
 *                below p: at least one, and the one that crosses p. Probabilities are those of what top-k left
 *   min-p        drops what has less than min_p times the best probability
 * This is the order of transformers; other engines take min-p first.
 *
 * The draw is Gumbel-max: the kept token with the largest z / T + g, g = -log(E), E an exponential variate
 * made from a hash of (seed, request, position, id). The winner has softmax probability, depends on nothing
 * but its inputs, and is the same however the vocabulary is cut over ranks. The hash is SplitMix64 (Steele,
 * Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014): its output function on key +
 * (id + 1) * 0x9e3779b97f4a7c15, where the key hashes the other three the same way.
 */
#ifndef TPL_KERNELS_SAMPLER_H
#define TPL_KERNELS_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/step.h"

typedef struct tpl_row_stats {
    float max;     /* of the finite logits; -inf if there is none */
    int32_t best;  /* lowest id that has it, or -1 */
    bool has_bad;  /* a NaN or +inf is in the row */
} tpl_row_stats;

/* Sweeps over a whole row; they exist once per instruction set. */
typedef struct tpl_row_code {
    void (*stats)(const float *z, int64_t n, tpl_row_stats *out);
    /* sum of exp((z - max) * inv_t) over z >= floor */
    double (*sum_exp)(const float *z, int64_t n, float max, float floor, float inv_t);
    /* The first block from i on (a multiple of TPL_ROW_BLOCK) that may hold a z >= low, or n: rows are
     * searched by blocks */
    int64_t (*seek)(const float *z, int64_t i, int64_t n, float low);
} tpl_row_code;
enum { TPL_ROW_BLOCK = 128 };
extern const tpl_row_code tpl_row_code_portable;

/* Bytes of work memory for a vocabulary, 64-byte aligned. */
size_t tpl_sampler_work_bytes(int64_t vocab);

typedef struct tpl_edit {
    int32_t id;
    float raw;      /* the logit before all edits */
    uint32_t n_out; /* times in the output */
} tpl_edit;

typedef struct tpl_sampler {
    const tpl_row_code *code;
    float *z;
    int64_t n;
    double *sums;     /* [2048] of the selection */
    uint64_t *seen;   /* a bit per id: in edits */
    tpl_edit *edits;  /* [n] */
    int64_t n_edits;
} tpl_sampler;

/* Which tokens are left: z > floor, and of those that equal floor the first n_ties ids. */
typedef struct tpl_keep {
    float floor;
    int64_t n_ties;
} tpl_keep;

/* Starts on a row of n logits. */
void tpl_sampler_init(tpl_sampler *s, const tpl_row_code *code, float *z, int64_t n, void *work);
/* Penalties of p, then the biases; ids outside the row are ignored. Logs what it changes: call once per
 * init. */
void tpl_sampler_edit(tpl_sampler *s, const tpl_sampling *p, const uint32_t *pool);
/* The logit of id before the edits. */
float tpl_sampler_raw(const tpl_sampler *s, int32_t id);
/* Cuts, at temperature 1 / inv_t; max is the largest finite logit. keep starts as tpl_keep_all(). */
static inline tpl_keep tpl_keep_all(void) { return (tpl_keep){ -3.402823466e38f, INT64_MAX }; }
void tpl_sampler_top_k(tpl_sampler *s, float max, int32_t k, tpl_keep *keep);
void tpl_sampler_top_p(tpl_sampler *s, float max, float inv_t, float top_p, tpl_keep *keep);
void tpl_sampler_min_p(float max, float inv_t, float min_p, tpl_keep *keep);
/* The draw among what is left. */
int32_t tpl_sampler_draw(const tpl_sampler *s, const tpl_row_stats *stats, float inv_t, const tpl_keep *keep,
                         uint64_t key);
uint64_t tpl_sampler_key(uint64_t seed, uint64_t request, uint64_t position);
/* All of the above in the default order on the row, whose stats before the edits are `raw`: the chosen id,
 * or -1 when no logit is finite after them. */
int32_t tpl_sampler_choose(tpl_sampler *s, const tpl_row_stats *raw, const tpl_sampling *p,
                           const uint32_t *pool, uint64_t position);
/* The n best ids of the row (n <= 20), equal logits by id; -1 filled. */
void tpl_sampler_best(const tpl_sampler *s, int n, int32_t *ids);

/* X(ENUM, name as in request parameters) */
#define TPL_SAMPLER_STEPS(X)            \
    X(REPETITION, "repetition_penalty") \
    X(FREQUENCY, "frequency_penalty")   \
    X(PRESENCE, "presence_penalty")     \
    X(BIAS, "logit_bias")               \
    X(TEMPERATURE, "temperature")       \
    X(TOP_K, "top_k")                   \
    X(TOP_P, "top_p")                   \
    X(MIN_P, "min_p")

typedef enum tpl_sampler_step {
#define X(id, name) TPL_SAMPLER_##id,
    TPL_SAMPLER_STEPS(X)
#undef X
    TPL_N_SAMPLER_STEPS
} tpl_sampler_step;

/* `tpl sample`: applies the steps in this order (a neutral parameter does nothing) and lists what is left,
 * best first, equal logits by id, with its probabilities. ids and probs hold s->n. Returns how many are
 * left. A temperature below 1e-5 leaves the best token only. */
int64_t tpl_sampler_apply(tpl_sampler *s, const tpl_sampling *p, const uint32_t *pool, const uint8_t *order,
                          int n_order, int32_t *ids, double *probs);

#endif
