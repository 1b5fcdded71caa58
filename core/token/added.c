/* SPDX-License-Identifier: Apache-2.0 */
#include "token/added.h"

#include <stdlib.h>
#include <string.h>

#include "token/buf.h"
#include "token/unicode.h"
#include "token/utf8.h"

typedef struct tpl_added_edge {
    uint32_t from, to; /* to = 0: free, since nothing leads to the root */
    uint8_t byte;
} edge;

static edge *edge_of(tpl_hash_key key, edge *edges, uint32_t mask, uint32_t from, uint8_t byte)
{
    uint32_t i = (uint32_t)tpl_hash_u64(key, (uint64_t)from << 8 | byte) & mask;
    while (edges[i].to && (edges[i].from != from || edges[i].byte != byte)) i = (i + 1) & mask;
    return &edges[i];
}

static bool grow_edges(tpl_added *set)
{
    uint32_t n = set->edges ? (set->edge_mask + 1) * 2 : 256;
    if (!set->edges) set->key = tpl_hash_key_new();
    if (set->edges && set->n_edges * 2 < set->edge_mask) return true;
    edge *e = n ? calloc(n, sizeof *e) : NULL;
    if (!e) return false;
    for (uint32_t i = 0; set->edges && i <= set->edge_mask; i++)
        if (set->edges[i].to) *edge_of(set->key, e, n - 1, set->edges[i].from, set->edges[i].byte) = set->edges[i];
    free(set->edges);
    set->edges = e;
    set->edge_mask = n - 1;
    return true;
}

/* A new node, or 0: no memory. */
static uint32_t new_node(tpl_added *set)
{
    if (set->n_nodes == set->node_cap) {
        if (!tpl_grow((void **)&set->ends, &set->node_cap, (size_t)set->n_nodes + 64, sizeof *set->ends))
            return 0;
    }
    set->ends[set->n_nodes] = -1;
    return set->n_nodes++;
}

static uint32_t child(tpl_added *set, uint32_t node, uint8_t byte)
{
    if (!grow_edges(set)) return 0;
    edge *e = edge_of(set->key, set->edges, set->edge_mask, node, byte);
    if (e->to) return e->to;
    uint32_t to = new_node(set);
    if (!to) return 0;
    *e = (edge){ node, to, byte };
    set->n_edges++;
    return to;
}

static bool push_token(tpl_added *set, tpl_added_token token)
{
    if (!tpl_grow((void **)&set->tokens, &set->n_cap, set->n + 1, sizeof *set->tokens)) return false;
    set->tokens[set->n++] = token;
    return true;
}

tpl_status tpl_added_add(tpl_added *set, tpl_str spelling, tpl_added_token token, const char *where,
                         tpl_err *err)
{
    uint32_t node = 0;
    if (!spelling.len)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, where, "added token %d is empty", token.id);
    if (spelling.len > TPL_ADDED_MAX)
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, where, "added token %d has %zu bytes, at most %d", token.id, spelling.len,
                        TPL_ADDED_MAX);
    bool ok = push_token(set, token);
    if (ok && !set->n_nodes) { /* the root, node 0 */
        new_node(set);
        ok = set->n_nodes == 1;
    }
    for (size_t i = 0; ok && i < spelling.len; i++) {
        node = child(set, node, (uint8_t)spelling.s[i]);
        ok = node != 0;
    }
    if (!ok) return tpl_fail(err, TPL_ERR_MEM, 0, where, "out of memory for added tokens");
    set->first[(uint8_t)spelling.s[0]] = true;
    if (set->ends[node] < 0)
        set->ends[node] = (int32_t)(set->n - 1); /* of equal spellings the first counts */
    return TPL_OK;
}

void tpl_added_free(tpl_added *set)
{
    free(set->tokens);
    free(set->edges);
    free(set->ends);
    *set = (tpl_added){ 0 };
}

/* -- Matching --------------------------------------------------------------------------------- */

/* The longest token at pos; its end in *end. */
static const tpl_added_token *longest(const tpl_added *set, tpl_str text, size_t pos, size_t *end)
{
    const tpl_added_token *best = NULL;
    for (uint32_t node = 0; pos < text.len;) {
        node = edge_of(set->key, set->edges, set->edge_mask, node, (uint8_t)text.s[pos])->to;
        if (!node) break;
        pos++;
        if (set->ends[node] >= 0) {
            best = &set->tokens[set->ends[node]];
            *end = pos;
        }
    }
    return best;
}

static uint8_t class_at(tpl_str text, size_t pos)
{
    return tpl_unicode_get(tpl_utf8_next(text.s, &pos));
}

static bool stands_alone(tpl_str text, size_t start, size_t end)
{
    if (start > 0 && class_at(text, tpl_utf8_prev(text.s, start)) & TPL_UC_IS_WORD) return false;
    return end == text.len || !(class_at(text, end) & TPL_UC_IS_WORD);
}

static size_t spaces_before(tpl_str text, size_t pos, size_t done)
{
    while (pos > done) {
        size_t before = tpl_utf8_prev(text.s, pos);
        if (!(class_at(text, before) & TPL_UC_IS_SPACE)) break;
        pos = before;
    }
    return pos;
}

static size_t spaces_after(tpl_str text, size_t pos)
{
    while (pos < text.len && class_at(text, pos) & TPL_UC_IS_SPACE) tpl_utf8_next(text.s, &pos);
    return pos;
}

bool tpl_added_next(const tpl_added *set, tpl_str text, bool special, size_t *scan, size_t done,
                    tpl_added_match *m)
{
    size_t pos = *scan, end = 0;
    if (!set->n) return false;
    while (pos < text.len) {
        const tpl_added_token *t =
            set->first[(uint8_t)text.s[pos]] ? longest(set, text, pos, &end) : NULL;
        if (!t) {
            pos++;
            continue;
        }
        size_t start = pos;
        pos = end; /* a match that is not wanted is passed over whole, as in Hugging Face tokenizers */
        if ((t->special && !special) || (t->single_word && !stands_alone(text, start, end))) continue;
        *scan = pos;
        *m = (tpl_added_match){ t->lstrip ? spaces_before(text, start, done) : start,
                                t->rstrip ? spaces_after(text, end) : end, t };
        return true;
    }
    *scan = pos;
    return false;
}
