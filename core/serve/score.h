/* SPDX-License-Identifier: Apache-2.0
 *
 * What a row of logits says: log probability of a given id, the best ids. Sums in double. Any thread; no allocation.
 */
#ifndef TPL_SERVE_SCORE_H
#define TPL_SERVE_SCORE_H

#include <stdint.h>

/* The id of the largest logit, the lowest on ties; -1 when none is a number. */
int32_t tpl_row_argmax(const float *row, int64_t vocab);
/* log(sum(exp(row))); NaN when any logit is. */
double tpl_row_logsumexp(const float *row, int64_t vocab);
/* The k best ids, best first, equal logits by id, and their logits. k <= vocab. */
void tpl_row_top(const float *row, int64_t vocab, int k, int32_t *ids, float *logits);

#endif
