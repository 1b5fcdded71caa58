/* SPDX-License-Identifier: Apache-2.0
 *
 * A hash index over n names that live elsewhere: 4 to 8 bytes per name, so that a million entries stay inside
 * the memory rule of reliability.md C-FILE. The hash is keyed per index with random bits, so a hostile file
 * cannot choose colliding names (A11). Built once, then read by any thread.
 */
#ifndef TPL_MODEL_NAMES_H
#define TPL_MODEL_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/str.h"

/* The i-th name of the collection ctx. */
typedef tpl_str (*tpl_name_of)(const void *ctx, uint32_t i);

typedef struct tpl_names {
    uint32_t *slots; /* i + 1, 0 = empty */
    uint32_t mask;
    uint32_t n_dup_first, n_dup_second; /* after TPL_NAMES_DUPLICATE */
    tpl_hash_key key;
} tpl_names;

typedef enum tpl_names_result { TPL_NAMES_OK, TPL_NAMES_NO_MEMORY, TPL_NAMES_DUPLICATE } tpl_names_result;

/* Indexes names 0..n-1, n < 2^30. On a duplicate the two positions are in n_dup_first < n_dup_second. */
tpl_names_result tpl_names_build(tpl_names *x, uint32_t n, tpl_name_of name_of, const void *ctx);
/* Position of the name, -1 if it is not there. */
int64_t tpl_names_find(const tpl_names *x, tpl_name_of name_of, const void *ctx, const char *s, size_t len);
void tpl_names_free(tpl_names *x);

#endif
