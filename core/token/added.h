/* SPDX-License-Identifier: Apache-2.0
 *
 * Added tokens: spellings that are cut out of a text before anything else looks at it. Matching is
 * leftmost-longest over all of a set (as Hugging Face tokenizers do); a set is a trie over bytes. Two
 * sets exist: matched in the raw text, and matched in the normalised text. Built while loading, then any
 * thread.
 */
#ifndef TPL_TOKEN_ADDED_H
#define TPL_TOKEN_ADDED_H

#include "base/err.h"
#include "base/hash.h"
#include "base/str.h"

/* Bytes of an added token. Text that begins like one at every place costs so many steps a byte. */
#define TPL_ADDED_MAX 512

typedef struct tpl_added_token {
    int32_t id;
    bool special;     /* skipped unless special tokens are asked for */
    bool single_word; /* no word character on either side */
    bool lstrip;      /* takes white space in front with it */
    bool rstrip;      /* takes white space behind with it */
} tpl_added_token;

typedef struct tpl_added {
    size_t n, n_cap;
    tpl_added_token *tokens;
    struct tpl_added_edge *edges; /* hash table: (node, byte) -> node */
    tpl_hash_key key;
    uint32_t edge_mask, n_edges, n_nodes;
    size_t node_cap;
    int32_t *ends; /* [node] index of the token that ends here, or -1 */
    bool first[256];
} tpl_added;

TPL_NODISCARD tpl_status tpl_added_add(tpl_added *set, tpl_str spelling, tpl_added_token token,
                                       const char *where, tpl_err *err);
void tpl_added_free(tpl_added *set);

typedef struct tpl_added_match {
    size_t start, end; /* with the white space it takes */
    const tpl_added_token *token;
} tpl_added_match;

/* The next match at or after *scan; white space before `done` is taken already. False: none is left. */
bool tpl_added_next(const tpl_added *set, tpl_str text, bool special, size_t *scan, size_t done,
                    tpl_added_match *m);

#endif
