/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoders of tokenizer.json, as what they make of one token: the bytes it shows. Known: ByteLevel,
 * Replace by a string, ByteFallback, Fuse, Strip of leading characters, Metaspace, Sequence; any other
 * is TPL_ERR_UNSUPPORTED by name. The bytes of all tokens of an output follow each other; only its
 * beginning is special, which tpl_decoder_first and n_strip say. Built while loading, then any thread.
 */
#ifndef TPL_TOKEN_DECODER_H
#define TPL_TOKEN_DECODER_H

#include <jansson.h>

#include "base/err.h"
#include "token/buf.h"
#include "base/str.h"

typedef struct tpl_decoder {
    bool byte_level;    /* spellings are in the alphabet of byte_level.h */
    bool byte_fallback; /* <0xHH> is a byte */
    bool is_fused;      /* seen Fuse: what comes after acts on the whole output */
    bool has_metaspace; /* `from` is the mark that becomes a space */
    bool drop_first;    /* METASPACE: the marks of the first token show nothing */
    bool spaced;        /* no decoder at all: a space between tokens */
    int n_strip;        /* leading `strip` characters of the output that are dropped */
    char strip;
    tpl_buf from, to; /* Replace */
} tpl_decoder;

/* json: the "decoder" member, NULL or null for none. */
TPL_NODISCARD tpl_status tpl_decoder_from_json(tpl_decoder *d, const json_t *json, const char *where,
                                               tpl_err *err);
/* Sets Replace by hand, for formats that imply it. */
TPL_NODISCARD tpl_status tpl_decoder_set_replace(tpl_decoder *d, tpl_str from, tpl_str to,
                                                 const char *where, tpl_err *err);
void tpl_decoder_free(tpl_decoder *d);

/* Appends the bytes that a token shows. */
TPL_NODISCARD tpl_status tpl_decoder_show(const tpl_decoder *d, tpl_str spelling, bool is_first,
                                          tpl_buf *out, tpl_err *err);

#endif
