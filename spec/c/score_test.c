/* SPDX-License-Identifier: Apache-2.0
 *
 * What rows of logits say, against values worked out by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "serve/score.h"

static void argmax_takes_the_lowest_id_of_equals(void **state)
{
    assert_int_equal(tpl_row_argmax((float[]){ 1, 3, 3, 2 }, 4), 1);
    assert_int_equal(tpl_row_argmax((float[]){ -5, -5 }, 2), 0);
    assert_int_equal(tpl_row_argmax((float[]){ -0.0f, 0.0f }, 2), 0);
    assert_int_equal(tpl_row_argmax((float[]){ -INFINITY, -INFINITY }, 2), 0);
    assert_int_equal(tpl_row_argmax((float[]){ 0, INFINITY, 1 }, 3), 1);
}

static void argmax_passes_over_what_is_no_number(void **state)
{
    assert_int_equal(tpl_row_argmax((float[]){ NAN, 1, NAN, 2, NAN }, 5), 3);
    assert_int_equal(tpl_row_argmax((float[]){ NAN, -INFINITY }, 2), 1);
    assert_int_equal(tpl_row_argmax((float[]){ NAN, NAN }, 2), -1);
    assert_int_equal(tpl_row_argmax(NULL, 0), -1);
}

static void expect_near(double got, double want)
{
    if (fabs(got - want) > 1e-12 * fmax(1, fabs(want))) fail_msg("%.17g, expected %.17g", got, want);
}

static void logsumexp_by_hand(void **state)
{
    expect_near(tpl_row_logsumexp((float[]){ 0, 0 }, 2), 0.69314718055994531);        /* ln 2 */
    expect_near(tpl_row_logsumexp((float[]){ 0, 1, 2 }, 3), 2.4076059644443806);      /* ln(1 + e + e^2) */
    expect_near(tpl_row_logsumexp((float[]){ 1000, 1000, 1000, 1000 }, 4), 1001.3862943611199); /* 1000 + ln 4: no overflow */
    expect_near(tpl_row_logsumexp((float[]){ -1000, -1000 }, 2), -999.30685281944005);
    expect_near(tpl_row_logsumexp((float[]){ 3, -INFINITY }, 2), 3);
    expect_near(tpl_row_logsumexp((float[]){ 7.5f }, 1), 7.5);
}

static void logsumexp_of_infinities(void **state)
{
    assert_true(tpl_row_logsumexp((float[]){ -INFINITY, -INFINITY }, 2) == -INFINITY);
    assert_true(tpl_row_logsumexp((float[]){ 1, INFINITY }, 2) == INFINITY);
    assert_true(isnan(tpl_row_logsumexp((float[]){ 1, NAN }, 2)));
    assert_true(isnan(tpl_row_logsumexp((float[]){ NAN }, 1)));
}

static void top_is_in_order_and_equals_by_id(void **state)
{
    int32_t ids[4];
    float logits[4];
    tpl_row_top((float[]){ 1, 5, 3, 5, 3, NAN, 0 }, 7, 4, ids, logits);
    const int32_t want[4] = { 1, 3, 2, 4 };
    assert_memory_equal(ids, want, sizeof want);
    assert_true(logits[0] == 5 && logits[1] == 5 && logits[2] == 3 && logits[3] == 3);
    tpl_row_top((float[]){ NAN, 2 }, 2, 2, ids, logits);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], -1);
    assert_true(logits[1] == -INFINITY);
    tpl_row_top((float[]){ 2 }, 1, 0, NULL, NULL); /* nothing is asked for */
}

/* The k best of random rows with many equals, by picking the best k times. */
static void top_equals_repeated_argmax(void **state)
{
    srand(1);
    for (int round = 0; round < 200; round++) {
        enum { V = 57, K = 20 };
        float row[V], left[V], logits[K];
        int32_t ids[K];
        for (int i = 0; i < V; i++) left[i] = row[i] = (float)(rand() % 30) - 15;
        tpl_row_top(row, V, K, ids, logits);
        for (int k = 0; k < K; k++) {
            int best = 0;
            for (int i = 1; i < V; i++)
                if (left[i] > left[best]) best = i;
            assert_int_equal(ids[k], best);
            assert_true(logits[k] == row[best]);
            left[best] = -100;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(argmax_takes_the_lowest_id_of_equals),
        cmocka_unit_test(argmax_passes_over_what_is_no_number),
        cmocka_unit_test(logsumexp_by_hand),
        cmocka_unit_test(logsumexp_of_infinities),
        cmocka_unit_test(top_is_in_order_and_equals_by_id),
        cmocka_unit_test(top_equals_repeated_argmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
