/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokens lie in a trie over bytes whose nodes are numbered breadth first, so that the children of a
 * node are neighbours and their bytes one short string to search. Ties go to the path found first, as in
 * Hugging Face tokenizers: among tokens that end at the same place, to the longest.
 */
#include "token/unigram.h"

#include <stdlib.h>
#include <string.h>

#include "base/ck.h"
#include "token/buf.h"
#include "token/utf8.h"

#define UNK_PENALTY 10.0 /* below the lowest score, SentencePiece's kUnkPenalty */
#define PIECE_MAX (1 << 28)

typedef struct node {
    int32_t id;     /* token that ends here, or -1 */
    uint32_t first; /* its children are nodes first .. first + n - 1 */
    uint32_t n;
} node;

typedef struct unigram {
    tpl_model model; /* first: a tpl_model * is a unigram * */
    tpl_unigram_options o;
    double unk_score;
    double *scores; /* [vocab.n] */
    node *nodes;
    uint8_t *bytes; /* [node] the byte that leads to it */
    size_t n_nodes;
    int32_t byte_id[256]; /* <0xHH>, or -1 */
    bool has_bytes;       /* byte_fallback, and there is any */
} unigram;

/* The best way to reach a place; while the result is read out, the way on from it. */
typedef struct arc {
    double score;
    int32_t id;
    uint32_t len; /* 0: not reached */
} arc;

typedef struct work {
    arc *arcs;
    size_t cap;
} work;

/* -- Encoding --------------------------------------------------------------------------------- */

static uint32_t child_of(const unigram *u, uint32_t at, uint8_t byte)
{
    const node *x = &u->nodes[at];
    const uint8_t *b = u->bytes + x->first, *hit = x->n ? memchr(b, byte, x->n) : NULL;
    return hit ? x->first + (uint32_t)(hit - b) : 0; /* nothing leads to the root */
}

static inline void offer(arc *to, double score, int32_t id, size_t len)
{
    if (!to->len || score > to->score) *to = (arc){ score, id, (uint32_t)len };
}

/* Offers every token that begins at pos, where a character of n_char bytes stands. */
static void extend(const unigram *u, tpl_str piece, size_t pos, size_t n_char, arc *arcs)
{
    double here = arcs[pos].score;
    bool has_single = false;
    uint32_t at = 0;
    for (size_t end = pos; end < piece.len && (at = child_of(u, at, (uint8_t)piece.s[end]));) {
        int32_t id = u->nodes[at].id;
        end++;
        if (id < 0) continue;
        offer(&arcs[end], here + u->scores[id], id, end - pos);
        if (end - pos == n_char) has_single = true;
    }
    if (!has_single) offer(&arcs[pos + n_char], here + u->unk_score, u->o.unk_id, n_char);
}

static void find_best(const unigram *u, tpl_str piece, arc *arcs)
{
    memset(arcs, 0, (piece.len + 1) * sizeof *arcs);
    for (size_t pos = 0, next = 0; pos < piece.len; pos = next) {
        tpl_utf8_next(piece.s, &next);
        extend(u, piece, pos, next - pos, arcs);
    }
}

/* Turns the links of the best path round, so that it can be read from the start. */
static void turn_round(arc *arcs, size_t end)
{
    arc in = arcs[end];
    while (end > 0) {
        size_t start = end - in.len;
        arc before = arcs[start];
        arcs[start] = in;
        in = before;
        end = start;
    }
}

/* An unknown stretch: a token after all (its parts had lower scores), bytes, or the unknown token. */
static void put_unknown(const unigram *u, tpl_str s, tpl_ids *out)
{
    int32_t id = tpl_vocab_find_model(u->o.vocab, s.s, s.len);
    bool bytes = id < 0 && u->has_bytes;
    for (size_t i = 0; bytes && i < s.len; i++) bytes = u->byte_id[(uint8_t)s.s[i]] >= 0;
    if (!bytes) tpl_ids_put(out, id < 0 ? u->o.unk_id : id);
    for (size_t i = 0; bytes && i < s.len; i++) tpl_ids_put(out, u->byte_id[(uint8_t)s.s[i]]);
}

static void put_path(const unigram *u, tpl_str piece, const arc *arcs, tpl_ids *out)
{
    for (size_t pos = 0, end; pos < piece.len; pos = end) {
        end = pos + arcs[pos].len;
        if (arcs[pos].id != u->o.unk_id) {
            tpl_ids_put(out, arcs[pos].id);
            continue;
        }
        while (end < piece.len && arcs[end].id == u->o.unk_id) end += arcs[end].len;
        put_unknown(u, (tpl_str){ piece.s + pos, end - pos }, out);
    }
}

static tpl_status encode(const tpl_model *m, tpl_str piece, void **work_slot, tpl_ids *out, tpl_err *err)
{
    const unigram *u = (const unigram *)m;
    work *w = *work_slot ? *work_slot : (*work_slot = calloc(1, sizeof *w));
    if (piece.len > PIECE_MAX)
        return tpl_fail(err, TPL_ERR_ARG, 0, "", "text has a piece of %zu bytes, at most %d", piece.len,
                        PIECE_MAX);
    if (!w || !tpl_grow((void **)&w->arcs, &w->cap, piece.len + 1, sizeof *w->arcs))
        return tpl_fail(err, TPL_ERR_MEM, 0, "", "out of memory for a piece of %zu bytes", piece.len);
    find_best(u, piece, w->arcs);
    turn_round(w->arcs, piece.len);
    put_path(u, piece, w->arcs, out);
    return TPL_OK;
}

static void work_free(void *p)
{
    work *w = p;
    if (w) free(w->arcs);
    free(w);
}

static void model_free(tpl_model *m)
{
    unigram *u = (unigram *)m;
    if (!u) return;
    free(u->scores);
    free(u->nodes);
    free(u->bytes);
    free(u);
}

static const tpl_model_ops ops = { encode, work_free, model_free };

/* -- Building --------------------------------------------------------------------------------- */

/* Tokens ids[from .. to) share the first `depth` bytes: those that lead to a node. */
typedef struct range {
    uint32_t from, to, depth;
} range;

static int by_spelling(const void *a, const void *b, void *ctx)
{
    const tpl_token *tokens = ctx, *x = &tokens[*(const int32_t *)a], *y = &tokens[*(const int32_t *)b];
    int order = memcmp(x->s, y->s, x->len < y->len ? x->len : y->len);
    return order ? order : x->len < y->len ? -1 : x->len > y->len;
}

/* The ids that take part, by spelling; *n_bytes: length of all. NULL: no memory. */
static int32_t *sorted_ids(const tpl_vocab *v, uint32_t *n, size_t *n_bytes)
{
    int32_t *ids = calloc((size_t)v->n + 1, sizeof *ids);
    *n = 0;
    *n_bytes = 0;
    for (int32_t i = 0; ids && i < v->n; i++) {
        if (!(v->tokens[i].flags & TPL_TOKEN_MODEL) || !v->tokens[i].len) continue;
        ids[(*n)++] = i;
        *n_bytes += v->tokens[i].len; /* no overflow: each lies in memory once */
    }
    if (ids) qsort_r(ids, *n, sizeof *ids, by_spelling, v->tokens);
    return ids;
}

/* Fills node `at` from its range and appends its children. */
static void fill_node(unigram *u, const int32_t *ids, range *ranges, size_t at)
{
    const tpl_token *tokens = u->o.vocab->tokens;
    range r = ranges[at];
    node *x = &u->nodes[at];
    *x = (node){ .id = -1, .first = (uint32_t)u->n_nodes };
    if (at && tokens[ids[r.from]].len == r.depth) x->id = ids[r.from++];
    while (r.from < r.to) {
        uint8_t byte = (uint8_t)tokens[ids[r.from]].s[r.depth];
        range c = { r.from, r.from, r.depth + 1 };
        while (c.to < r.to && (uint8_t)tokens[ids[c.to]].s[r.depth] == byte) c.to++;
        u->bytes[u->n_nodes] = byte;
        ranges[u->n_nodes++] = c;
        x->n++;
        r.from = c.to;
    }
}

static bool build_trie(unigram *u)
{
    uint32_t n;
    size_t n_bytes;
    int32_t *ids = sorted_ids(u->o.vocab, &n, &n_bytes);
    range *ranges = ids ? calloc(n_bytes + 1, sizeof *ranges) : NULL;
    u->nodes = ranges ? calloc(n_bytes + 1, sizeof *u->nodes) : NULL;
    u->bytes = ranges ? calloc(n_bytes + 1, 1) : NULL;
    bool ok = u->nodes && u->bytes && n_bytes < UINT32_MAX;
    if (ok) {
        ranges[0] = (range){ 0, n, 0 };
        u->n_nodes = 1;
        for (size_t at = 0; at < u->n_nodes; at++) fill_node(u, ids, ranges, at);
    }
    free(ids);
    free(ranges);
    return ok;
}

static void find_bytes(unigram *u)
{
    char s[] = "<0x00>";
    for (int i = 0; i < 256; i++) {
        s[3] = "0123456789ABCDEF"[i >> 4];
        s[4] = "0123456789ABCDEF"[i & 15];
        u->byte_id[i] = tpl_vocab_find_model(u->o.vocab, s, 6);
        if (u->o.byte_fallback && u->byte_id[i] >= 0) u->has_bytes = true;
    }
}

static tpl_status check_lengths(const tpl_vocab *v, const char *where, tpl_err *err)
{
    for (int32_t i = 0; i < v->n; i++)
        if (v->tokens[i].flags & TPL_TOKEN_MODEL && v->tokens[i].len > TPL_UNIGRAM_TOKEN_MAX)
            return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, where, "token %d has %u bytes, at most %d", i,
                            v->tokens[i].len, TPL_UNIGRAM_TOKEN_MAX);
    return TPL_OK;
}

/* The lowest score of all tokens, less the penalty. */
static double score_unknown(const unigram *u)
{
    const tpl_vocab *v = u->o.vocab;
    double lowest = 0;
    bool any = false;
    for (int32_t i = 0; i < v->n; i++) {
        if (!(v->tokens[i].flags & TPL_TOKEN_MODEL) || (any && u->scores[i] >= lowest)) continue;
        lowest = u->scores[i];
        any = true;
    }
    return lowest - UNK_PENALTY;
}

tpl_status tpl_unigram_new(tpl_model **out, const tpl_unigram_options *o, const char *where,
                           tpl_err *err)
{
    *out = NULL;
    TPL_TRY(check_lengths(o->vocab, where, err));
    unigram *u = calloc(1, sizeof *u);
    if (u) {
        *u = (unigram){ .model.ops = &ops, .o = *o };
        u->scores = calloc((size_t)o->vocab->n, sizeof *u->scores);
    }
    if (!u || !u->scores || !build_trie(u)) {
        if (u) model_free(&u->model);
        return tpl_fail(err, TPL_ERR_MEM, 0, where, "out of memory for %d tokens", o->vocab->n);
    }
    memcpy(u->scores, o->scores, (size_t)o->vocab->n * sizeof *u->scores);
    u->o.scores = u->scores;
    u->unk_score = score_unknown(u);
    find_bytes(u);
    *out = &u->model;
    return TPL_OK;
}
