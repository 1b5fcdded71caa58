/* SPDX-License-Identifier: Apache-2.0
 *
 * How weight matrices lie in memory: panels of 16 output rows, so that one vector lane (or one of 16 scalars) owns one row, sums
 * run over the inputs in order, and the same packed bytes serve every ISA and both activation forms. Blocks stay quantised; a panel
 * has the size of its 16 rows in the file format. The last panel is filled up with zero rows. Any thread.
 */
#ifndef TPL_KERNELS_PACK_H
#define TPL_KERNELS_PACK_H

#include "base/dtype.h"
#include "kernels/ops.h"

enum { TPL_PANEL_ROWS = 16 };

/* Bytes of a packed matrix, 64-byte multiple; false on overflow or partial blocks. `plan` prices weights by this rule. */
bool tpl_pack_bytes(tpl_dtype dtype, uint64_t rows, uint64_t cols, uint64_t *out);

/* Packs n <= 16 rows (file layout, row_bytes each, contiguous) as panel number `panel` of dst. Missing rows become zero. */
void tpl_pack_panel(tpl_dtype dtype, int64_t cols, const void *rows, int n, int64_t panel, void *dst);

/* n elements of a file row (plain or whole blocks) to float, exactly. */
void tpl_dequant_row(tpl_dtype dtype, const void *src, int64_t n, float *dst);

/* One row of a packed matrix to float (embedding lookup, tests). */
void tpl_unpack_row(const tpl_weight *w, int64_t row, float *dst);

#endif
