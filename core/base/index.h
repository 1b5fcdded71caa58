/* SPDX-License-Identifier: Apache-2.0
 *
 * Index lists: which global indices of a dim (or of flattened dims) a rank holds, as ranges in local order. Local i is the i-th index
 * of the concatenated ranges. Lists, not single ranges, because head maps and experts need them. Read-only after load.
 */
#ifndef TPL_BASE_INDEX_H
#define TPL_BASE_INDEX_H

#include <stdint.h>

typedef struct tpl_range {
    int64_t first, count;
} tpl_range;

typedef struct tpl_index {
    int32_t n;     /* ranges */
    int64_t total; /* sum of the counts */
    const tpl_range *ranges;
} tpl_index;

#endif
