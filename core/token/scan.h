/* SPDX-License-Identifier: Apache-2.0
 *
 * Hand-written scanners for the split patterns that most models use. Each is a loop over characters:
 * linear time, no recursion and no backtracking stack, Unicode 16.0 classes. A scanner returns the end
 * of the piece that begins at pos < len of valid UTF-8; the pieces tile the text. Any thread.
 */
#ifndef TPL_TOKEN_SCAN_H
#define TPL_TOKEN_SCAN_H

#include "base/str.h"

typedef size_t (*tpl_scan_fn)(const char *s, size_t len, size_t pos);

/* GPT-2, and ByteLevel's own:
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t tpl_scan_gpt2(const char *s, size_t len, size_t pos);

/* Llama 3:
 *   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
 *   |\s*[\r\n]+|\s+(?!\S)|\s+ */
size_t tpl_scan_llama3(const char *s, size_t len, size_t pos);

/* Qwen 2 to 3: the same with single digits, \p{N} for \p{N}{1,3} */
size_t tpl_scan_qwen2(const char *s, size_t len, size_t pos);

/* The scanner whose pattern is exactly this text, or NULL. */
tpl_scan_fn tpl_scan_find(tpl_str pattern);

#endif
