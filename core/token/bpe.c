/* SPDX-License-Identifier: Apache-2.0
 *
 * Merging. A piece of up to SHORT_MAX symbols (nearly every word) is merged in place by looking for the
 * lowest rank again and again: for so few that beats any structure. A longer one is first cut at its seams:
 * two characters are one where no merge has a left part that ends with the first and a right part that begins with
 * the second, so that nothing ever merges across, and what lies between seams can be merged by itself (the words of a
 * text that no pre-tokenizer splits). A run that is still long becomes a doubly linked
 * list with a queue of candidates keyed (rank, position); an entry is stale when its symbol is gone or
 * its pair has another rank by now, which is found out when it is popped. Every merge removes a symbol
 * and adds at most two entries, so n symbols cost O(n log n), and there is no recursion.
 */
#include "token/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/ck.h"
#include "base/hash.h"
#include "token/buf.h"
#include "token/byte_level.h"
#include "token/merge_queue.h"
#include "token/utf8.h"

#define SHORT_MAX 40
#define NO_RANK UINT32_MAX
/* Positions are 32-bit; a text this long is refused before it gets here. */
#define PIECE_MAX (1 << 28)

typedef struct pair {
    int32_t left, right; /* left = -1: free */
    int32_t merged;
    uint32_t rank;
} pair;

struct tpl_bpe {
    tpl_model model; /* first: a tpl_model * is a tpl_bpe * */
    tpl_bpe_options o;
    int32_t byte_id[256]; /* byte_level: the symbol of a byte; byte_fallback: <0xHH>; -1 = none */
    uint32_t longest;     /* bytes of the longest token */
    pair *pairs;          /* open addressing */
    uint64_t *joins;      /* as many slots: what is no seam, join_key or 0 */
    bool has_seams;       /* no: a token is not UTF-8, and its ends need not be those of its symbols */
    uint32_t pair_mask;
    tpl_hash_key key;
    size_t n_pairs;
    size_t n_ranks; /* highest rank + 1 */
};

typedef struct node {
    int32_t id; /* -1: merged into its left neighbour */
    int32_t prev, next;
    int32_t merged; /* what this and the next symbol give */
    uint32_t rank;  /* of that merge, NO_RANK: none */
} node;

typedef struct work {
    int32_t *ids; /* symbols of the piece */
    node *nodes;
    size_t ids_cap, nodes_cap;
    tpl_merge_queue queue;
    tpl_buf spelt;
} work;

/* -- Pairs ------------------------------------------------------------------------------------ */

static uint32_t pair_slot(const tpl_bpe *b, int32_t left, int32_t right)
{
    uint32_t i = (uint32_t)tpl_hash_u64(b->key, (uint64_t)(uint32_t)left << 32 | (uint32_t)right) & b->pair_mask;
    while (b->pairs[i].left >= 0 && (b->pairs[i].left != left || b->pairs[i].right != right))
        i = (i + 1) & b->pair_mask;
    return i;
}

/* The rank of merging left with right, and the result; NO_RANK: they do not merge. */
static inline uint32_t rank_of(const tpl_bpe *b, int32_t left, int32_t right, int32_t *merged)
{
    const pair *p = &b->pairs[pair_slot(b, left, right)];
    *merged = p->merged;
    return p->left >= 0 ? p->rank : NO_RANK;
}

/* -- Seams ------------------------------------------------------------------------------------ */

static uint64_t join_key(uint32_t last, uint32_t first)
{
    return ((uint64_t)last << 32 | first) + 1;
}

static uint32_t first_char(const tpl_bpe *b, int32_t id)
{
    size_t pos = 0;
    return b->o.vocab->tokens[id].len ? tpl_utf8_next(b->o.vocab->tokens[id].s, &pos) : 0;
}

static uint32_t last_char(const tpl_bpe *b, int32_t id)
{
    const tpl_token *t = &b->o.vocab->tokens[id];
    if (!t->len) return 0;
    size_t pos = tpl_utf8_prev(t->s, t->len);
    return tpl_utf8_next(t->s, &pos);
}

static uint64_t *join_slot(const tpl_bpe *b, uint64_t key)
{
    uint32_t i = (uint32_t)tpl_hash_u64(b->key, key) & b->pair_mask;
    while (b->joins[i] && b->joins[i] != key) i = (i + 1) & b->pair_mask;
    return &b->joins[i];
}

static bool is_seam(const tpl_bpe *b, int32_t left, int32_t right)
{
    return b->has_seams && !*join_slot(b, join_key(last_char(b, left), first_char(b, right)));
}

/* -- Symbols ---------------------------------------------------------------------------------- */

typedef struct symbols {
    int32_t *ids;
    size_t n;
    bool unk_pending;
} symbols;

static void put_symbol(const tpl_bpe *b, symbols *s, int32_t id)
{
    if (s->unk_pending) s->ids[s->n++] = b->o.unk_id;
    s->unk_pending = false;
    s->ids[s->n++] = id;
}

/* A character without a token. Without an unknown token it vanishes before merging, so that its
 * neighbours may merge. */
static void put_unknown(const tpl_bpe *b, symbols *s)
{
    if (b->o.unk_id < 0) return;
    if (s->unk_pending && !b->o.fuse_unk) s->ids[s->n++] = b->o.unk_id;
    s->unk_pending = true;
}

static bool put_bytes(const tpl_bpe *b, symbols *s, const char *c, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (b->byte_id[(uint8_t)c[i]] < 0) return false;
    /* an unknown token that is pending stays so and comes behind the bytes, as in Hugging Face
     * tokenizers */
    for (size_t i = 0; i < len; i++) s->ids[s->n++] = b->byte_id[(uint8_t)c[i]];
    return true;
}

static void put_chars(const tpl_bpe *b, symbols *s, tpl_str piece)
{
    for (size_t pos = 0, start; pos < piece.len;) {
        start = pos;
        tpl_utf8_next(piece.s, &pos);
        int32_t id = tpl_vocab_find_model(b->o.vocab, piece.s + start, pos - start);
        if (id >= 0) put_symbol(b, s, id);
        else if (!b->o.byte_fallback || !put_bytes(b, s, piece.s + start, pos - start))
            put_unknown(b, s);
    }
}

/* Fills ids[] (room for piece.len + 1) with the symbols to merge; returns how many. */
static size_t symbols_of(const tpl_bpe *b, tpl_str piece, int32_t *ids)
{
    symbols s = { .ids = ids };
    if (!b->o.byte_level) put_chars(b, &s, piece);
    else
        for (size_t i = 0; i < piece.len; i++) {
            int32_t id = b->byte_id[(uint8_t)piece.s[i]];
            if (id >= 0) put_symbol(b, &s, id);
            else put_unknown(b, &s);
        }
    if (s.unk_pending) s.ids[s.n++] = b->o.unk_id;
    return s.n;
}

/* -- Merging few symbols ---------------------------------------------------------------------- */

static size_t merge_short(const tpl_bpe *b, int32_t *ids, size_t n)
{
    uint32_t rank[SHORT_MAX];
    int32_t merged[SHORT_MAX];
    for (size_t i = 0; i + 1 < n; i++) rank[i] = rank_of(b, ids[i], ids[i + 1], &merged[i]);
    while (n > 1) {
        size_t at = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[at]) at = i;
        if (rank[at] == NO_RANK) break;
        ids[at] = merged[at];
        n--;
        for (size_t i = at + 1; i < n; i++) {
            ids[i] = ids[i + 1];
            rank[i - 1] = rank[i]; /* that of at is looked up again below */
            merged[i - 1] = merged[i];
        }
        if (at > 0) rank[at - 1] = rank_of(b, ids[at - 1], ids[at], &merged[at - 1]);
        if (at + 1 < n) rank[at] = rank_of(b, ids[at], ids[at + 1], &merged[at]);
    }
    return n;
}

/* -- Merging many ----------------------------------------------------------------------------- */

/* Ranks the pair that begins at node i; true when it merges. */
static bool rank_node(const tpl_bpe *b, node *nodes, int32_t i)
{
    node *x = &nodes[i];
    x->rank = x->next < 0 ? NO_RANK : rank_of(b, x->id, nodes[x->next].id, &x->merged);
    return x->rank != NO_RANK;
}

/* Queues the pair that begins at node i, if it merges. */
static void push_node(const tpl_bpe *b, work *w, int32_t i)
{
    if (i >= 0 && rank_node(b, w->nodes, i))
        tpl_merge_queue_push(&w->queue, w->nodes[i].rank, (uint32_t)i);
}

static void build_list(const tpl_bpe *b, work *w, const int32_t *ids, size_t n)
{
    node *nodes = w->nodes;
    for (size_t i = 0; i < n; i++)
        nodes[i] =
            (node){ .id = ids[i], .prev = (int32_t)i - 1, .next = i + 1 < n ? (int32_t)i + 1 : -1 };
    for (size_t i = 0; i < n; i++) push_node(b, w, (int32_t)i);
}

/* Takes the symbol behind node i into it. */
static void merge_at(const tpl_bpe *b, work *w, int32_t i)
{
    node *x = &w->nodes[i], *y = &w->nodes[x->next];
    x->id = x->merged;
    x->next = y->next;
    y->id = -1;
    if (x->next >= 0) w->nodes[x->next].prev = i;
    push_node(b, w, i);
    push_node(b, w, x->prev);
}

static size_t merge_long(const tpl_bpe *b, work *w, int32_t *ids, size_t n)
{
    uint64_t top;
    (void)tpl_merge_queue_start(&w->queue, n, b->n_ranks); /* make_room did for the whole piece: nothing grows */
    build_list(b, w, ids, n);
    while ((top = tpl_merge_queue_pop(&w->queue)) != TPL_MERGE_NONE) {
        const node *x = &w->nodes[(uint32_t)top];
        if (x->id >= 0 && x->rank == top >> 32) merge_at(b, w, (int32_t)(uint32_t)top); /* else stale */
    }
    size_t n_out = 0;
    for (int32_t i = 0; i >= 0; i = w->nodes[i].next) ids[n_out++] = w->nodes[i].id;
    return n_out;
}

/* Merges each run between seams in place and closes the gaps. */
static size_t merge_runs(const tpl_bpe *b, work *w, size_t n)
{
    size_t n_out = 0;
    for (size_t start = 0, end; start < n; start = end) {
        for (end = start + 1; end < n && !is_seam(b, w->ids[end - 1], w->ids[end]);) end++;
        int32_t *run = w->ids + start;
        size_t left = end - start;
        left = left <= SHORT_MAX ? merge_short(b, run, left) : merge_long(b, w, run, left);
        memmove(w->ids + n_out, run, left * sizeof *run);
        n_out += left;
    }
    return n_out;
}

/* -- The model -------------------------------------------------------------------------------- */

/* The token that a whole piece is, or -1. */
static int32_t whole(const tpl_bpe *b, tpl_str piece, work *w)
{
    char c[4];
    if (piece.len > b->longest) return -1;
    if (!b->o.byte_level) return tpl_vocab_find_model(b->o.vocab, piece.s, piece.len);
    w->spelt.len = 0;
    for (size_t i = 0; i < piece.len; i++) {
        int n = tpl_utf8_put(c, tpl_byte_level_char((uint8_t)piece.s[i]));
        if (!tpl_buf_add(&w->spelt, c, (size_t)n)) return -1;
    }
    return tpl_vocab_find_model(b->o.vocab, w->spelt.s, w->spelt.len);
}

/* Room for a piece whose symbols are no more than its bytes, plus one. A merge replaces two symbols and
 * leaves two new candidates at most, so that no more than three a symbol are ever queued. */
static bool make_room(const tpl_bpe *b, work *w, size_t n_bytes)
{
    size_t n = n_bytes + 1;
    if (!tpl_grow((void **)&w->ids, &w->ids_cap, n, sizeof *w->ids)) return false;
    if (n <= SHORT_MAX) return true;
    return tpl_grow((void **)&w->nodes, &w->nodes_cap, n, sizeof *w->nodes) &&
           tpl_merge_queue_start(&w->queue, n, b->n_ranks);
}

static tpl_status encode(const tpl_model *m, tpl_str piece, void **work_slot, tpl_ids *out, tpl_err *err)
{
    const tpl_bpe *b = (const tpl_bpe *)m;
    work *w = *work_slot ? *work_slot : (*work_slot = calloc(1, sizeof *w));
    if (piece.len > PIECE_MAX)
        return tpl_fail(err, TPL_ERR_ARG, 0, "text", "text has a piece of %zu bytes, at most %d", piece.len,
                        PIECE_MAX);
    if (!w || !make_room(b, w, piece.len))
        return tpl_fail(err, TPL_ERR_MEM, 0, "", "out of memory for a piece of %zu bytes", piece.len);
    int32_t id = b->o.ignore_merges ? whole(b, piece, w) : -1;
    if (id >= 0) {
        tpl_ids_put(out, id);
        return TPL_OK;
    }
    size_t n = symbols_of(b, piece, w->ids);
    n = n <= SHORT_MAX ? merge_short(b, w->ids, n) : merge_runs(b, w, n);
    for (size_t i = 0; i < n; i++) tpl_ids_put(out, w->ids[i]);
    return TPL_OK;
}

static void work_free(void *p)
{
    work *w = p;
    if (!w) return;
    free(w->ids);
    free(w->nodes);
    tpl_merge_queue_free(&w->queue);
    tpl_buf_free(&w->spelt);
    free(w);
}

static void model_free(tpl_model *m) { tpl_bpe_free((tpl_bpe *)m); }

static const tpl_model_ops ops = { encode, work_free, model_free };

/* -- Loading ---------------------------------------------------------------------------------- */

static int32_t find_byte_symbol(const tpl_bpe_options *o, int byte)
{
    char s[8] = "<0x00>";
    if (o->byte_level)
        return tpl_vocab_find_model(o->vocab, s,
                                    (size_t)tpl_utf8_put(s, tpl_byte_level_char((uint8_t)byte)));
    s[3] = "0123456789ABCDEF"[byte >> 4];
    s[4] = "0123456789ABCDEF"[byte & 15];
    return tpl_vocab_find_model(o->vocab, s, 6);
}

tpl_status tpl_bpe_new(tpl_bpe **out, const tpl_bpe_options *o, size_t n_merges, const char *where,
                       tpl_err *err)
{
    uint64_t n_slots = 16, bytes;
    *out = NULL;
    if (n_merges > (size_t)TPL_VOCAB_MAX * 4)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "vocabulary has %zu merges, at most %d", n_merges,
                        TPL_VOCAB_MAX * 4);
    while (n_slots < n_merges + n_merges / 2 + 1) n_slots *= 2;
    tpl_bpe *b = calloc(1, sizeof *b);
    if (b && ck_mul(n_slots, sizeof *b->pairs, &bytes)) b->pairs = malloc(bytes);
    if (b) b->joins = calloc(n_slots, sizeof *b->joins);
    if (!b || !b->pairs || !b->joins) {
        tpl_bpe_free(b);
        return tpl_fail(err, TPL_ERR_MEM, 0, where, "out of memory for %zu merges", n_merges);
    }
    b->model.ops = &ops;
    b->has_seams = true;
    b->o = *o;
    b->pair_mask = (uint32_t)(n_slots - 1);
    b->key = tpl_hash_key_new();
    for (uint64_t i = 0; i < n_slots; i++) b->pairs[i] = (pair){ -1, -1, -1, NO_RANK };
    for (int i = 0; i < 256; i++) b->byte_id[i] = find_byte_symbol(o, i);
    for (int32_t i = 0; i < o->vocab->n; i++) {
        const tpl_token *t = &o->vocab->tokens[i];
        if (t->len > b->longest) b->longest = t->len;
        if (t->len && tpl_utf8_valid(t->s, t->len) != t->len) b->has_seams = false;
    }
    *out = b;
    return TPL_OK;
}

void tpl_bpe_add_ids(tpl_bpe *b, int32_t left, int32_t right, int32_t merged, uint32_t rank)
{
    pair *p = &b->pairs[pair_slot(b, left, right)];
    if (p->left >= 0 || b->n_pairs >= b->pair_mask) return; /* there already; or more than announced */
    *p = (pair){ left, right, merged, rank };
    if (b->has_seams) {
        const uint64_t key = join_key(last_char(b, left), first_char(b, right));
        *join_slot(b, key) = key;
    }
    b->n_pairs++;
    if (rank >= b->n_ranks) b->n_ranks = (size_t)rank + 1;
}

tpl_status tpl_bpe_add(tpl_bpe *b, tpl_str left, tpl_str right, uint32_t rank, const char *where,
                       tpl_err *err)
{
    char small[256], *both = small;
    const tpl_vocab *v = b->o.vocab;
    int32_t l = tpl_vocab_find(v, left.s, left.len), r = tpl_vocab_find(v, right.s, right.len);
    if (l < 0 || r < 0) {
        tpl_str bad = l < 0 ? left : right;
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "merge %u names %s, which is not a token", rank,
                        tpl_show(bad.s, bad.len).s);
    }
    uint64_t len;
    if (!ck_add(left.len, right.len, &len))
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "merge %u is too long", rank);
    if (len > sizeof small && !(both = malloc(len)))
        return tpl_fail(err, TPL_ERR_MEM, 0, where, "out of memory for merges");
    memcpy(both, left.s, left.len);
    memcpy(both + left.len, right.s, right.len);
    int32_t merged = tpl_vocab_find(v, both, len);
    tpl_shown shown = tpl_show(both, len);
    if (both != small) free(both);
    if (merged < 0)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "merge %u gives %s, which is not a token", rank,
                        shown.s);
    tpl_bpe_add_ids(b, l, r, merged, rank);
    return TPL_OK;
}

tpl_model *tpl_bpe_model(tpl_bpe *b) { return &b->model; }

void tpl_bpe_free(tpl_bpe *b)
{
    if (b) {
        free(b->pairs);
        free(b->joins);
    }
    free(b);
}
