/* SPDX-License-Identifier: Apache-2.0
 *
 * The normalizer Precompiled: SentencePiece's character map as Hugging Face tokenizers apply it. A map
 * is the number of bytes of a double-array trie, the trie, and the replacements, each ended by NUL; all
 * numbers are little-endian. Any thread; nothing is kept.
 */
#ifndef TPL_TOKEN_PRECOMPILED_H
#define TPL_TOKEN_PRECOMPILED_H

#include "base/err.h"
#include "base/str.h"
#include "token/buf.h"

/* Appends the map that a file spells in base64; a map that is not well formed: TPL_ERR_FORMAT. */
TPL_NODISCARD tpl_status tpl_precompiled_read(tpl_str base64, tpl_buf *map, const char *where,
                                              tpl_err *err);

/* Appends the text with every grapheme cluster of less than 6 bytes, else every character, replaced;
 * false: no memory. It stops once out has more than `most` bytes. `map` is one that tpl_precompiled_read gave. */
bool tpl_precompiled_run(const tpl_buf *map, tpl_str text, size_t most, tpl_buf *out);

#endif
