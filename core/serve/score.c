/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/score.h"

#include <math.h>

int32_t tpl_row_argmax(const float *row, int64_t vocab)
{
    int32_t best = -1;
    for (int64_t i = 0; i < vocab; i++)
        if (row[i] == row[i] && (best < 0 || row[i] > row[best])) best = (int32_t)i;
    return best;
}

double tpl_row_logsumexp(const float *row, int64_t vocab)
{
    int32_t best = tpl_row_argmax(row, vocab);
    if (best < 0) return NAN;
    double top = row[best], sum = 0;
    for (int64_t i = 0; i < vocab; i++)
        sum += row[i] == row[best] ? 1 : exp((double)row[i] - top); /* inf - inf would be NaN */
    return top + log(sum);
}

void tpl_row_top(const float *row, int64_t vocab, int k, int32_t *ids, float *logits)
{
    int n = 0;
    if (k < 1) return;
    for (int64_t i = 0; i < vocab; i++) {
        if (row[i] != row[i] || (n == k && row[i] <= logits[n - 1])) continue;
        int at = n < k ? n++ : k - 1;
        for (; at > 0 && row[i] > logits[at - 1]; at--) {
            ids[at] = ids[at - 1];
            logits[at] = logits[at - 1];
        }
        ids[at] = (int32_t)i;
        logits[at] = row[i];
    }
    for (; n < k; n++) {
        ids[n] = -1;
        logits[n] = -INFINITY;
    }
}
