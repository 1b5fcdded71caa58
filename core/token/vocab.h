/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of tokens: id -> spelling and flags, spelling -> id. Ids may have holes, as in files whose
 * padding ids carry no text. Built by one thread while loading, then read by any thread. Owns the
 * spellings.
 */
#ifndef TPL_TOKEN_VOCAB_H
#define TPL_TOKEN_VOCAB_H

#include "base/err.h"
#include "base/hash.h"
#include "base/str.h"

/* More than any published vocabulary (about 262 thousand) by far; bounds what a lying file can make us
 * allocate. */
#define TPL_VOCAB_MAX (1 << 22)
/* Ids without a token that any vocabulary may have; beyond these, three holes for each token. A small file with one huge id would
 * otherwise make the table of ids large. */
#define TPL_VOCAB_HOLES (1 << 16)

enum {
    TPL_TOKEN_USED = 1,  /* the id has a spelling */
    TPL_TOKEN_MODEL = 2, /* belongs to the model's own vocabulary: merging can give it */
    TPL_TOKEN_ADDED = 4, /* cut out of the text before the model sees it */
    TPL_TOKEN_SPECIAL =
        8,              /* a control token: cut out only on request, may be left out of decoded text */
    TPL_TOKEN_EOG = 16, /* ends a generation */
};

typedef struct tpl_token {
    const char *s; /* spelling, as in the file */
    uint32_t len;
    uint32_t flags;
} tpl_token;

typedef struct tpl_vocab {
    tpl_token *tokens; /* [n], n = highest id + 1 */
    int32_t n;
    size_t cap;
    int32_t *slots; /* open addressing, id or -1 */
    uint32_t slot_mask;
    tpl_hash_key key;
    int32_t id_end; /* ids are below */
    uint32_t n_used;
    char *text; /* all spellings */
    size_t text_len, text_cap;
} tpl_vocab;

/* Makes room for n_tokens with spellings of text_bytes in total: both are known before loading starts,
 * so that nothing moves. */
TPL_NODISCARD tpl_status tpl_vocab_init(tpl_vocab *v, size_t n_tokens, size_t text_bytes,
                                        const char *where, tpl_err *err);
void tpl_vocab_free(tpl_vocab *v);

/* Adds a token. A taken id, a taken spelling, an id that is negative or far above the number of
 * tokens: TPL_ERR_FORMAT. */
TPL_NODISCARD tpl_status tpl_vocab_add(tpl_vocab *v, int64_t id, tpl_str s, uint32_t flags,
                                       const char *where, tpl_err *err);

/* The id of a spelling, or -1. */
int32_t tpl_vocab_find(const tpl_vocab *v, const char *s, size_t len);
/* The same among the model's own tokens only. */
int32_t tpl_vocab_find_model(const tpl_vocab *v, const char *s, size_t len);

/* The value of a byte token, exactly "<0xHH>" with upper-case digits, or -1. Looser parsing has been a
 * memory error elsewhere (reliability.md A10). */
int tpl_vocab_byte(const char *s, size_t len);
/* True for spellings that are meant as byte tokens, well formed or not: "<0x..>". */
bool tpl_vocab_is_byte_like(const char *s, size_t len);

/* "'text'" for messages: printable, shortened. */
typedef struct tpl_shown {
    char s[48];
} tpl_shown;
tpl_shown tpl_show(const char *s, size_t len);

#endif
