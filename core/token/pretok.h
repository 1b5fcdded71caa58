/* SPDX-License-Identifier: Apache-2.0
 *
 * Pre-tokenizers of tokenizer.json: steps that cut a text into the pieces inside which a model may
 * merge. Known: ByteLevel, Split, Digits, Punctuation, Metaspace, Sequence; any other is
 * TPL_ERR_UNSUPPORTED by name. Split patterns that scan.h knows run there, others by PCRE2. Built while
 * loading, then any thread. Running recurses over the steps (16 at most), never over the text.
 */
#ifndef TPL_TOKEN_PRETOK_H
#define TPL_TOKEN_PRETOK_H

#include <jansson.h>

#include "base/err.h"
#include "token/buf.h"
#include "token/scan.h"
#include "token/split_regex.h"

typedef enum tpl_pretok_kind {
    TPL_PRETOK_SCAN,         /* cut by a scanner */
    TPL_PRETOK_REGEX,        /* matches of a regex */
    TPL_PRETOK_STRING,       /* occurrences of a text */
    TPL_PRETOK_NUMBERS,      /* characters of category N */
    TPL_PRETOK_PUNCTUATION,  /* characters of category P, and the ASCII symbols */
    TPL_PRETOK_PREFIX_SPACE, /* a space in front if there is none */
    TPL_PRETOK_METASPACE,    /* spaces become a mark, a mark in front, cut before marks */
} tpl_pretok_kind;

/* What becomes of matches: a piece of their own, dropped, joined with the piece before, after, or with
 * adjoining matches. */
typedef enum tpl_split_behavior {
    TPL_SPLIT_ISOLATED,
    TPL_SPLIT_REMOVED,
    TPL_SPLIT_MERGED_WITH_PREVIOUS,
    TPL_SPLIT_MERGED_WITH_NEXT,
    TPL_SPLIT_CONTIGUOUS,
} tpl_split_behavior;

typedef enum tpl_prepend_scheme {
    TPL_PREPEND_ALWAYS,
    TPL_PREPEND_FIRST, /* only at the very start of the input */
    TPL_PREPEND_NEVER,
} tpl_prepend_scheme;

typedef struct tpl_pretok_step {
    tpl_pretok_kind kind;
    tpl_split_behavior behavior;
    bool invert; /* matches and gaps change places */
    bool split;  /* METASPACE: cut at all */
    tpl_prepend_scheme scheme;
    tpl_scan_fn scan;
    tpl_regex *regex;
    tpl_buf text; /* STRING: what to find; METASPACE: the mark */
} tpl_pretok_step;

#define TPL_PRETOK_STEPS_MAX 16

typedef struct tpl_pretok {
    int n;
    bool byte_level; /* pieces are then spelt in the alphabet of byte_level.h */
    tpl_pretok_step steps[TPL_PRETOK_STEPS_MAX];
} tpl_pretok;

/* json: the "pre_tokenizer" member, NULL or null for none. */
TPL_NODISCARD tpl_status tpl_pretok_from_json(tpl_pretok *p, const json_t *json, const char *where,
                                              tpl_err *err);
/* Adds a step for formats that imply it: digits one by one, or an isolating regex. */
TPL_NODISCARD tpl_status tpl_pretok_add_digits(tpl_pretok *p, const char *where, tpl_err *err);
TPL_NODISCARD tpl_status tpl_pretok_add_split(tpl_pretok *p, tpl_str regex, const char *where,
                                              tpl_err *err);
void tpl_pretok_free(tpl_pretok *p);

/* "always" | "first" | "never" of Metaspace, also in its older spelling as add_prefix_space. */
TPL_NODISCARD tpl_status tpl_pretok_scheme(const json_t *json, const char *what, tpl_prepend_scheme *out,
                                           const char *where, tpl_err *err);

typedef struct tpl_pretok_run {
    const tpl_pretok *p;
    tpl_regex_work **work;
    tpl_status (*piece)(void *ctx, tpl_str piece, tpl_err *err);
    void *ctx;
    tpl_buf scratch[TPL_PRETOK_STEPS_MAX]; /* the caller frees them, with tpl_pretok_run_free */
} tpl_pretok_run;

/* Calls run->piece for each piece of text, in order; none is empty. at_start: text begins where the
 * input begins. */
TPL_NODISCARD tpl_status tpl_pretok_cut(tpl_pretok_run *run, tpl_str text, bool at_start, tpl_err *err);
void tpl_pretok_run_free(tpl_pretok_run *run);

#endif
