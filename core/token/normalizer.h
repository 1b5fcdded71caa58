/* SPDX-License-Identifier: Apache-2.0
 *
 * Normalizers of tokenizer.json: a list of rewriting steps. Known: NFC, NFD, NFKC, NFKD, Lowercase,
 * Strip, Prepend, Replace, Precompiled, Sequence; any other is TPL_ERR_UNSUPPORTED by name. Unicode
 * forms are those of Unicode 9.0, as Hugging Face tokenizers have them. Built while loading, then any
 * thread.
 */
#ifndef TPL_TOKEN_NORMALIZER_H
#define TPL_TOKEN_NORMALIZER_H

#include <jansson.h>

#include "base/err.h"
#include "token/buf.h"
#include "token/split_regex.h"

typedef enum tpl_norm_kind {
    TPL_NORM_NFC,
    TPL_NORM_NFD,
    TPL_NORM_NFKC,
    TPL_NORM_NFKD,
    TPL_NORM_LOWERCASE,
    TPL_NORM_STRIP, /* white space at the ends */
    TPL_NORM_PRECOMPILED,
    TPL_NORM_PREPEND,
    TPL_NORM_REPLACE,
} tpl_norm_kind;

typedef struct tpl_norm_step {
    tpl_norm_kind kind;
    bool left, right; /* STRIP: which ends */
    tpl_regex *regex; /* REPLACE by regex, else NULL */
    tpl_buf from, to; /* REPLACE: from (without regex) and to; PREPEND: to; PRECOMPILED: from, the map */
} tpl_norm_step;

#define TPL_NORM_STEPS_MAX 16

typedef struct tpl_normalizer {
    int n;
    tpl_norm_step steps[TPL_NORM_STEPS_MAX];
} tpl_normalizer;

/* json: the "normalizer" member, NULL or null for none. */
TPL_NODISCARD tpl_status tpl_normalizer_from_json(tpl_normalizer *n, const json_t *json,
                                                  const char *where, tpl_err *err);
/* Adds one step by hand, for formats that imply it. */
TPL_NODISCARD tpl_status tpl_normalizer_add(tpl_normalizer *n, tpl_norm_kind kind, tpl_str from,
                                            tpl_str to, const char *where, tpl_err *err);
void tpl_normalizer_free(tpl_normalizer *n);

/* Rewrites *text. The result is *text itself or a part of it where nothing else changes, or else lies in
 * a or b, which are scratch. */
TPL_NODISCARD tpl_status tpl_normalizer_run(const tpl_normalizer *n, tpl_str *text, tpl_buf *a,
                                            tpl_buf *b, tpl_regex_work **work, tpl_err *err);

/* Appends text with every character in lower case by itself (no final sigma rule). */
bool tpl_normalize_lower(tpl_str text, tpl_buf *out);
/* Appends text in a Unicode normalization form, in time O(n log n) whatever the marks. */
TPL_NODISCARD tpl_status tpl_normalize_unicode(tpl_norm_kind form, tpl_str text, tpl_buf *out,
                                               tpl_err *err);
/* True when text is certainly in that form already. */
bool tpl_normalize_is_plain(tpl_norm_kind form, tpl_str text);

#endif
