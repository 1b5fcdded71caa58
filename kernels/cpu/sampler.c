/* SPDX-License-Identifier: Apache-2.0
 *
 * No cut sorts the row. What a cut keeps is a floor under the logits (and, for top-p, how many of those on
 * the floor), found by a radix selection over the bits of the floats, by count or by probability mass:
 * three sweeps with 2048 sums, whatever the row looks like. Sweeps look first only at logits near the best
 * one, where the floor nearly always is.
 */
#include "kernels/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SUMS = 2048 };

static const float greedy_below = 1e-5f;

/* -- Work memory ---- */

static size_t seen_bytes(int64_t n) { return (size_t)((n + 63) / 64) * 8; }

size_t tpl_sampler_work_bytes(int64_t vocab)
{
    return SUMS * sizeof(double) + seen_bytes(vocab) + (size_t)vocab * sizeof(tpl_edit);
}

void tpl_sampler_init(tpl_sampler *s, const tpl_row_code *code, float *z, int64_t n, void *work)
{
    *s = (tpl_sampler){ .code = code, .z = z, .n = n, .sums = work };
    s->seen = (uint64_t *)(s->sums + SUMS);
    s->edits = (tpl_edit *)((char *)s->seen + seen_bytes(n));
}

/* -- Edits ---- */

static bool log_edit(tpl_sampler *s, uint32_t id)
{
    uint64_t bit = 1ull << (id & 63);
    if (s->seen[id / 64] & bit) return false;
    s->seen[id / 64] |= bit;
    s->edits[s->n_edits++] = (tpl_edit){ (int32_t)id, s->z[id], 0 };
    return true;
}

/* Logs each id of the prior once and counts it; until `penalise`, its place in the row holds the number of
 * its log entry. */
static void count_prior(tpl_sampler *s, const tpl_sampling *p, const uint32_t *prior)
{
    for (uint32_t i = 0; i < p->n_prior; i++) {
        const uint32_t id = prior[i];
        if (id >= (uint64_t)s->n) continue;
        uint32_t at = (uint32_t)s->n_edits;
        if (log_edit(s, id)) memcpy(&s->z[id], &at, 4);
        memcpy(&at, &s->z[id], 4);
        if (i >= p->n_prompt) s->edits[at].n_out++;
    }
}

static void penalise(tpl_sampler *s, const tpl_sampling *p)
{
    for (int64_t i = 0; i < s->n_edits; i++) {
        const tpl_edit *e = &s->edits[i];
        float z = e->raw;
        if (p->repetition != 1.0f) z = z > 0 ? z / p->repetition : z * p->repetition;
        if (e->n_out && p->frequency != 0) z -= (float)e->n_out * p->frequency;
        if (e->n_out && p->presence != 0) z -= p->presence;
        s->z[e->id] = z;
    }
}

void tpl_sampler_edit(tpl_sampler *s, const tpl_sampling *p, const uint32_t *pool)
{
    const bool has_penalty = p->n_prior && (p->repetition != 1.0f || p->frequency != 0 || p->presence != 0);
    s->n_edits = 0;
    if (!has_penalty && !p->n_bias) return;
    memset(s->seen, 0, seen_bytes(s->n));
    if (has_penalty) {
        count_prior(s, p, pool + p->prior0);
        penalise(s, p);
    }
    const uint32_t *bias = pool + p->bias0;
    for (uint32_t i = 0; i < p->n_bias; i++, bias += 2) {
        if (bias[0] >= (uint64_t)s->n) continue;
        float by;
        memcpy(&by, &bias[1], 4);
        log_edit(s, bias[0]);
        s->z[bias[0]] += by;
    }
}

float tpl_sampler_raw(const tpl_sampler *s, int32_t id)
{
    for (int64_t i = 0; i < s->n_edits; i++)
        if (s->edits[i].id == id) return s->edits[i].raw;
    return s->z[id];
}

/* -- Cuts ---- */

/* Unsigned keys in the order of the floats; both zeros are one. */
static uint32_t key_of(float z)
{
    uint32_t bits;
    z += 0.0f;
    memcpy(&bits, &z, 4);
    return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}

static float of_key(uint32_t key)
{
    uint32_t bits = key ^ (key >> 31 ? 0x80000000u : 0xffffffffu);
    float z;
    memcpy(&z, &bits, 4);
    return z;
}

typedef struct pick {
    const float *z; /* looks at these n only, and of them at z >= low */
    int64_t n;
    float low;
    float max, inv_t;
    bool by_mass; /* each weighs exp((z - max) * inv_t), else 1 */
    double want;
    double above; /* result: what lies above the picked value */
} pick;

static double weight_of(const pick *p, float z)
{
    return p->by_mass ? (double)expf((z - p->max) * p->inv_t) : 1.0;
}

/* Adds up the weights of the keys that start with `prefix`, by their next `bits` bits. Returns the sum. */
static double sum_by_digit(const tpl_sampler *s, const pick *p, uint32_t prefix, uint32_t mask, int shift,
                           int bits)
{
    double all = 0;
    memset(s->sums, 0, SUMS * sizeof(double));
    for (int64_t i = 0; i < p->n; i++) {
        if (!(p->z[i] >= p->low)) continue;
        uint32_t key = key_of(p->z[i]);
        if ((key ^ prefix) & mask) continue;
        double w = weight_of(p, p->z[i]);
        s->sums[key >> shift & ((1u << bits) - 1)] += w;
        all += w;
    }
    return all;
}

/* The first digit from the top at which the sum reaches what is wanted; the last with a token in it if
 * rounding kept it below. */
static uint32_t find_digit(const tpl_sampler *s, pick *p, int bits)
{
    int found = -1;
    double before = p->above;
    for (int d = (1 << bits) - 1; d >= 0; d--) {
        if (s->sums[d] == 0) continue;
        p->above = before;
        found = d;
        if (before + s->sums[d] >= p->want) break;
        before += s->sums[d];
    }
    return found < 0 ? 0 : (uint32_t)found;
}

/* The largest value v such that all z >= v weigh at least `want`. False when those from p->low on weigh
 * less. */
static bool pick_value(const tpl_sampler *s, pick *p, float *value)
{
    static const struct {
        int shift, bits;
    } digits[] = { { 21, 11 }, { 10, 11 }, { 0, 10 } };
    uint32_t key = 0, mask = 0;
    p->above = 0;
    for (int i = 0; i < 3; i++) {
        double all = sum_by_digit(s, p, key, mask, digits[i].shift, digits[i].bits);
        if (i == 0 && all < p->want) return false;
        key |= find_digit(s, p, digits[i].bits) << digits[i].shift;
        mask |= ((1u << digits[i].bits) - 1) << digits[i].shift;
    }
    *value = of_key(key);
    return true;
}

/* Copies the logits >= low behind the log of edits, so that the sweeps run over them alone; where they do
 * not fit, over the row. */
static void collect(const tpl_sampler *s, pick *p, float low)
{
    float *out = (float *)(s->edits + s->n_edits);
    const int64_t cap = (s->n - s->n_edits) * (int64_t)(sizeof(tpl_edit) / sizeof(float));
    int64_t n = 0;
    p->low = low;
    p->z = s->z;
    p->n = s->n;
    for (int64_t i = 0; (i = s->code->seek(s->z, i, s->n, low)) < s->n; i += TPL_ROW_BLOCK) {
        if (n + TPL_ROW_BLOCK > cap) return;
        for (int64_t j = i; j < s->n && j < i + TPL_ROW_BLOCK; j++)
            if (s->z[j] >= low) out[n++] = s->z[j];
    }
    p->z = out;
    p->n = n;
}

/* Looks near the best logit first, `near` below it, then twice and four times as far, then everywhere above
 * the floor. */
static bool pick_near(const tpl_sampler *s, pick *p, float near, float floor, float *value)
{
    for (int i = 0; i < 3 && p->max - near > floor; i++, near *= 2) {
        collect(s, p, p->max - near);
        if (pick_value(s, p, value)) return true;
    }
    collect(s, p, floor);
    return pick_value(s, p, value);
}

void tpl_sampler_top_k(tpl_sampler *s, float max, int32_t k, tpl_keep *keep)
{
    if (k <= 0 || k >= s->n) return;
    pick p = { .max = max, .want = k };
    float value;
    if (pick_near(s, &p, 8.0f, keep->floor, &value)) *keep = (tpl_keep){ value, INT64_MAX };
}

void tpl_sampler_top_p(tpl_sampler *s, float max, float inv_t, float top_p, tpl_keep *keep)
{
    if (top_p >= 1.0f) return;
    double all = s->code->sum_exp(s->z, s->n, max, keep->floor, inv_t);
    pick p = { .max = max, .inv_t = inv_t, .by_mass = true, .want = (double)top_p * all };
    float value;
    if (!pick_near(s, &p, 12.0f / inv_t, keep->floor, &value)) return;
    double ties = ceil((p.want - p.above) / weight_of(&p, value));
    *keep = (tpl_keep){ value, ties < 1 ? 1 : ties > (double)s->n ? s->n : (int64_t)ties };
}

void tpl_sampler_min_p(float max, float inv_t, float min_p, tpl_keep *keep)
{
    if (min_p <= 0) return;
    double floor = (double)max + log((double)min_p) / (double)inv_t;
    float low = floor < (double)max ? (float)floor : max;
    if (low > keep->floor) *keep = (tpl_keep){ low, INT64_MAX };
}

/* -- The draw ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static const uint64_t golden = 0x9e3779b97f4a7c15u;

uint64_t tpl_sampler_key(uint64_t seed, uint64_t request, uint64_t position)
{
    uint64_t key = mix(seed + golden);
    key = mix(key + (request + 1) * golden);
    return mix(key + (position + 1) * golden);
}

static const double ln2 = 0x1.62e42fefa39efp-1;

/* g of a 64-bit hash: v = (its top 53 bits + 1/2) / 2^53 lies in (0, 1), E = -log(1 - v). */
static double gumbel(uint64_t x)
{
    double v = ((double)(x >> 11) + 0.5) * 0x1p-53;
    return -log(-log1p(-v));
}

/* Not less than gumbel(x), without a logarithm: E >= v >= 2^-(leading zeros + 1). */
static double gumbel_bound(uint64_t x)
{
    int zeros = __builtin_clzll(x | 1ull << 10);
    return (zeros + 1) * ln2;
}

typedef struct race {
    uint64_t key;
    double max, inv_t;
    double best; /* score so far */
    int64_t id;
} race;

/* Lets token i run, whose logit is z. Most need no logarithm to lose. */
static inline void run_one(race *r, int64_t i, float z)
{
    const double above = ((double)z - r->max) * r->inv_t;
    const uint64_t x = mix(r->key + ((uint64_t)i + 1) * golden);
    if (above + gumbel_bound(x) < r->best) return;
    const double score = above + gumbel(x);
    if (score < r->best || (score == r->best && i > r->id)) return;
    r->best = score;
    r->id = i;
}

int32_t tpl_sampler_draw(const tpl_sampler *s, const tpl_row_stats *stats, float inv_t, const tpl_keep *keep,
                         uint64_t key)
{
    race r = { .key = key, .max = stats->max, .inv_t = inv_t, .best = -INFINITY, .id = s->n };
    run_one(&r, stats->best, stats->max); /* a good score to beat; the best token is always among the kept */
    int64_t ties = keep->n_ties;
    for (int64_t i = 0; (i = s->code->seek(s->z, i, s->n, keep->floor)) < s->n; i += TPL_ROW_BLOCK)
        for (int64_t j = i; j < s->n && j < i + TPL_ROW_BLOCK; j++) {
            if (!(s->z[j] >= keep->floor) || (s->z[j] == keep->floor && ties-- <= 0)) continue;
            run_one(&r, j, s->z[j]);
        }
    return (int32_t)r.id;
}

int32_t tpl_sampler_choose(tpl_sampler *s, const tpl_row_stats *raw, const tpl_sampling *p,
                           const uint32_t *pool, uint64_t position)
{
    tpl_row_stats stats = *raw;
    tpl_sampler_edit(s, p, pool);
    if (s->n_edits) s->code->stats(s->z, s->n, &stats);
    if (stats.best < 0 || stats.has_bad) return -1;
    if (p->temperature < greedy_below || p->top_k == 1) return stats.best;
    const float inv_t = 1.0f / p->temperature;
    tpl_keep keep = tpl_keep_all();
    tpl_sampler_top_k(s, stats.max, p->top_k, &keep);
    tpl_sampler_top_p(s, stats.max, inv_t, p->top_p, &keep);
    tpl_sampler_min_p(stats.max, inv_t, p->min_p, &keep);
    return tpl_sampler_draw(s, &stats, inv_t, &keep, tpl_sampler_key(p->seed, p->request, position));
}

/* Puts id into the list of the `have` best (of at most n), behind those with an equal logit. Returns the
 * new count. */
static int insert_best(const float *z, int n, int have, int32_t *ids, int64_t id)
{
    if (have == n && !(z[id] > z[ids[n - 1]])) return have;
    int at = have < n ? have++ : n - 1;
    for (; at > 0 && z[id] > z[ids[at - 1]]; at--) ids[at] = ids[at - 1];
    ids[at] = (int32_t)id;
    return have;
}

void tpl_sampler_best(const tpl_sampler *s, int n, int32_t *ids)
{
    int have = 0;
    float low = tpl_keep_all().floor;
    for (int i = 0; i < n; i++) ids[i] = -1;
    for (int64_t i = 0; n > 0 && (i = s->code->seek(s->z, i, s->n, low)) < s->n; i += TPL_ROW_BLOCK) {
        for (int64_t j = i; j < s->n && j < i + TPL_ROW_BLOCK; j++)
            if (s->z[j] >= low) have = insert_best(s->z, n, have, ids, j);
        if (have == n) low = s->z[ids[n - 1]];
    }
}

/* -- In any order, with the list of what is left ---- */

static void drop_rest(tpl_sampler *s, const tpl_keep *keep)
{
    int64_t ties = keep->n_ties;
    for (int64_t i = 0; i < s->n; i++)
        if (!(s->z[i] >= keep->floor) || (s->z[i] == keep->floor && ties-- <= 0)) s->z[i] = -INFINITY;
}

/* One step of the penalties and biases: the others of p made neutral. */
static void edit_only(tpl_sampler *s, const tpl_sampling *p, const uint32_t *pool, tpl_sampler_step step)
{
    tpl_sampling one = { .repetition = 1,
                         .prior0 = p->prior0,
                         .n_prior = p->n_prior,
                         .n_prompt = p->n_prompt,
                         .bias0 = p->bias0 };
    if (step == TPL_SAMPLER_REPETITION) one.repetition = p->repetition;
    if (step == TPL_SAMPLER_FREQUENCY) one.frequency = p->frequency;
    if (step == TPL_SAMPLER_PRESENCE) one.presence = p->presence;
    if (step == TPL_SAMPLER_BIAS) one.n_bias = p->n_bias;
    tpl_sampler_edit(s, &one, pool);
}

static void apply_step(tpl_sampler *s, const tpl_sampling *p, const uint32_t *pool, tpl_sampler_step step)
{
    tpl_row_stats stats;
    tpl_keep keep = tpl_keep_all();
    s->code->stats(s->z, s->n, &stats);
    if (stats.best < 0) return;
    switch (step) {
    case TPL_SAMPLER_TEMPERATURE:
        if (p->temperature < greedy_below) {
            keep = (tpl_keep){ stats.max, 1 };
            break;
        }
        for (int64_t i = 0; i < s->n; i++) s->z[i] /= p->temperature;
        return;
    case TPL_SAMPLER_TOP_K: tpl_sampler_top_k(s, stats.max, p->top_k, &keep); break;
    case TPL_SAMPLER_TOP_P: tpl_sampler_top_p(s, stats.max, 1, p->top_p, &keep); break;
    case TPL_SAMPLER_MIN_P: tpl_sampler_min_p(stats.max, 1, p->min_p, &keep); break;
    default: edit_only(s, p, pool, step); return;
    }
    drop_rest(s, &keep);
}

typedef struct entry {
    float z;
    int32_t id;
} entry;

static int by_rank(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->z != y->z) return x->z > y->z ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

int64_t tpl_sampler_apply(tpl_sampler *s, const tpl_sampling *p, const uint32_t *pool, const uint8_t *order,
                          int n_order, int32_t *ids, double *probs)
{
    for (int i = 0; i < n_order; i++) apply_step(s, p, pool, (tpl_sampler_step)order[i]);
    /* the log is not needed any more, and an entry is smaller than an edit */
    entry *left = (entry *)s->edits;
    int64_t n = 0;
    for (int64_t i = 0; i < s->n; i++)
        if (s->z[i] > -INFINITY) left[n++] = (entry){ s->z[i], (int32_t)i };
    qsort(left, (size_t)n, sizeof *left, by_rank);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        ids[i] = left[i].id;
        probs[i] = exp((double)left[i].z - (double)left[0].z);
        sum += probs[i];
    }
    for (int64_t i = 0; i < n; i++) probs[i] /= sum;
    return n;
}
