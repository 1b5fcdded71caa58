/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing and unpacking of weights, the embedding look-up and the rounding of activations, against the oracle of
 * matrix_problem.h and by hand.
 */
#include "matrix_problem.h"

#include "kernels/cpu/panel.h"
#include "kernels/cpu/quant.h"

/* -- Packing, expanding, embedding ---- */

static void test_half(void **unused)
{
    for (unsigned h = 0; h < 65536; h++) {
        const float got = tpl_half_to_float((uint16_t)h), want = (float)half_value(h);
        assert_true(isnan(want) ? isnan(got) : got == want && !signbit(got) == !signbit(want));
    }
}

static void test_dequant_and_unpack(void **unused)
{
    float a[768], b[768];
    for (int t = 0; t < N_ALL; t++)
        for (int i = 0; i < 4; i++) {
            problem p = { .cols = odd_cols(all_types[t], i) };
            add_weight(&p, all_types[t], 21);
            for (int64_t r = 0; r < 21; r++) {
                const size_t row_bytes =
                    (size_t)(p.cols / tpl_dtypes[all_types[t]].n_elem) * tpl_dtypes[all_types[t]].n_bytes;
                tpl_dequant_row(all_types[t], p.file[0] + (size_t)r * row_bytes, p.cols, a);
                tpl_unpack_row(&p.w[0], r, b);
                assert_memory_equal(a, b, (size_t)p.cols * 4);
                for (int64_t k = 0; k < p.cols; k++) assert_true(a[k] == (float)p.exact[0][r * p.cols + k]);
            }
            tpl_unpack_row(&p.w[0], 31, b); /* a row added to fill the panel */
            for (int64_t k = 0; k < p.cols; k++) assert_true(b[k] == 0);
            free_problem(&p);
        }
}

static void test_pack_bytes(void **unused)
{
    uint64_t n = 7;
    assert_true(tpl_pack_bytes(TPL_DTYPE_Q4_1, 576, 576, &n));
    assert_int_equal(n, 576 * 18 * 20);
    assert_true(tpl_pack_bytes(TPL_DTYPE_Q4_0, 1, 32, &n));
    assert_int_equal(n, 320); /* 16 x 18 = 288, to a multiple of 64 */
    assert_false(tpl_pack_bytes(TPL_DTYPE_Q4_0, 1, 33, &n));
    assert_false(tpl_pack_bytes(TPL_DTYPE_I32, 1, 32, &n));
    assert_false(tpl_pack_bytes(TPL_DTYPE_F32, UINT64_MAX / 2, 64, &n));
    assert_false(tpl_pack_bytes(TPL_DTYPE_F32, UINT64_MAX, 1, &n));
}

static void test_embed(void **unused)
{
    static const tpl_range ranges[] = { { 100, 10 }, { 3, 5 }, { 50, 20 } };
    static const tpl_index index = { 3, 35, ranges };
    static const int32_t ids[] = { 3, 99, 100, 109, 110, 7, 8, 50, 69, 70, -1, 5 };
    static const int held[] = { 10, -1, 0, 9, -1, 14, -1, 15, 34, -1, -1, 12 };
    enum { N = sizeof ids / sizeof *ids };
    problem p = { .cols = 64 };
    add_weight(&p, TPL_DTYPE_Q8_0, 35);
    const tpl_step_caps caps = { .tok = 16, .seq = 1, .out = 1, .pages = 1, .pool = 1, .vocab = 1 };
    tpl_step *step = tpl_mem_alloc(tpl_step_bytes(&caps));
    tpl_step_init(step, &caps);
    memcpy(tpl_step_tok(step), ids, sizeof ids);
    step->n_tok = N, step->pad_tok = 16;
    float x[16 * 64];
    tpl_err err = { 0 };
    tpl_bound op = {
        .name = "embed", .kind = TPL_OP_ID_EMBED, .n_out = 1, .n_w = 1, .index = &index, .w = { &p.w[0] }
    };
    op.out[0] = view_of(x, TPL_ACT_F32, 64);
    assert_int_equal(tpl_cpu_bind_embed(TPL_ISA_PORTABLE, &op, &err), TPL_OK);
    for (int nth = 1; nth < 4; nth++) {
        memset(x, 0x7f, sizeof x);
        for (int i = 0; i < nth; i++) op.run(&(tpl_op_ctx){ i, nth, step, NULL, NULL }, &op);
        for (int r = 0; r < 16; r++)
            for (int k = 0; k < 64; k++)
                assert_true(x[r * 64 + k] ==
                            (r < N && held[r] >= 0 ? (float)p.exact[0][held[r] * 64 + k] : 0));
    }
    tpl_step *before = tpl_mem_alloc(tpl_step_bytes(&caps)); /* negative tokens are output rows of the step before */
    tpl_step_init(before, &caps);
    tpl_step_res_tok(before)[0] = 105;
    tpl_step_tok(step)[1] = -1;
    op.run(&(tpl_op_ctx){ .nth = 1, .step = step, .before = before }, &op);
    for (int k = 0; k < 64; k++) assert_true(x[64 + k] == (float)p.exact[0][5 * 64 + k]);
    tpl_step_res_tok(before)[0] = -2; /* no finite logit there */
    op.run(&(tpl_op_ctx){ .nth = 1, .step = step, .before = before }, &op);
    for (int k = 0; k < 64; k++) assert_true(x[64 + k] == 0);
    tpl_step_tok(step)[1] = 99;
    tpl_mem_free(before);
    op.out[0].div = 2, op.imm[1].i = 1; /* the second half of the tokens */
    op.run(&(tpl_op_ctx){ 0, 1, step, NULL, NULL }, &op);
    for (int k = 0; k < 64; k++) assert_true(x[3 * 64 + k] == (float)p.exact[0][12 * 64 + k]);
    tpl_mem_free(step);
    free_problem(&p);
}

/* -- Quantising ---- */

static void test_quant(void **unused)
{
    enum { COLS = 224, T = 5 };
    float *x = tpl_mem_alloc(COLS * T * 4);
    for (int i = 0; i < COLS * T; i++) x[i] = rnd_float() * (i / COLS + 1);
    for (int i = 0; i < 32; i++) x[32 + i] = 0, x[64 + i] = 1e-42f, x[96 + i] = (float)(i - 16) / 2;
    x[96] = 127; /* d = 1: ties */
    const size_t bytes = tpl_q8_row_bytes(COLS);
    char *first = NULL;
    for (int isa = 0; isa < TPL_N_ISAS; isa++) {
        if (!tpl_isa_usable((tpl_isa)isa)) continue;
        for (int nth = 1; nth <= 3; nth++) {
            tpl_err err = { 0 };
            char *q = tpl_mem_alloc(bytes * T);
            tpl_bound op = { .name = "quant", .kind = TPL_OP_ID_QUANT, .n_in = 1, .n_out = 1 };
            op.in[0] = view_of(x, TPL_ACT_F32, COLS), op.out[0] = view_of(q, TPL_ACT_Q8, COLS);
            assert_int_equal(tpl_cpu_bind_quant((tpl_isa)isa, &op, &err), TPL_OK);
            run_op(&op, T, nth);
            if (!first) first = q;
            assert_memory_equal(q, first, bytes * T);
            if (q != first) tpl_mem_free(q);
        }
    }
    for (int b = 0; b < COLS * T / 32; b++) {
        char *row = first + (size_t)(b / (COLS / 32)) * bytes;
        const int8_t *q = (int8_t *)row + 32 * (b % (COLS / 32)), *r = q + COLS;
        const float d = tpl_q8_d(row, COLS)[b % (COLS / 32)], ds = tpl_q8_ds(row, COLS)[b % (COLS / 32)];
        float amax = 0;
        double sum = 0;
        for (int i = 0; i < 32; i++) amax = fmaxf(amax, fabsf(x[32 * b + i])), sum += q[i] + r[i] / 254.0;
        assert_true(b == 2 ? d == 0 : d == amax / 127);
        assert_true(fabs(ds - d * sum) <= 1e-6 * amax * 32);
        for (int i = 0; i < 32; i++) {
            const double at = d == 0 ? 0 : (double)x[32 * b + i] / d;
            assert_true(fabs(q[i] - at) <= 0.5001);
            assert_true(fabs(q[i] + r[i] / 254.0 - at) <= 0.5001 / 254); /* what the second byte leaves */
            assert_in_range(r[i] + 127, 0, 254);
        }
        if (b == 3)
            for (int i = 1; i < 32; i++) assert_int_equal(q[i], (int)nearbyintf(x[96 + i]));
    }
    tpl_mem_free(first);
    tpl_mem_free(x);
}

/* Rounding to bf16 as IEEE 754 has it (nearest, ties to even), written again as a search for the nearer neighbour; the op's zeros
 * behind the columns; the same bits by every ISA and thread count. */
static void test_quant_bf16(void **unused)
{
    enum { COLS = 203, T = 9 };
    float *x = tpl_mem_alloc(COLS * T * 4);
    static const float hard[] = { 1.00390625f, 1.01171875f, -1.00390625f, 0, -0.0f, 1e-42f, 3.4e38f, INFINITY, -INFINITY, NAN };
    for (int i = 0; i < COLS * T; i++) x[i] = i < 10 ? hard[i] : rnd_float() * (i / COLS + 1);
    const size_t bytes = tpl_bf16_row_bytes(COLS);
    char *first = NULL;
    for (int isa = 0; isa < TPL_N_ISAS; isa++)
        for (int nth = 1; tpl_isa_usable((tpl_isa)isa) && nth <= 3; nth++) {
            tpl_err err = { 0 };
            char *q = tpl_mem_alloc(bytes * T);
            for (int t = 0; t < T; t++) memset(q + (size_t)t * bytes + 2 * COLS, 0x7f, 42); /* up to whole 64 bytes */
            tpl_bound op = { .name = "quant", .kind = TPL_OP_ID_QUANT, .n_in = 1, .n_out = 1 };
            op.in[0] = view_of(x, TPL_ACT_F32, COLS), op.out[0] = view_of(q, TPL_ACT_BF16, COLS);
            assert_int_equal(tpl_cpu_bind_quant((tpl_isa)isa, &op, &err), TPL_OK);
            run_op(&op, T, nth);
            if (!first) first = q;
            assert_memory_equal(q, first, bytes * T);
            if (q != first) tpl_mem_free(q);
        }
    for (int i = 0; i < COLS * T; i++) {
        const uint16_t *row = (const uint16_t *)(const void *)(first + (size_t)(i / COLS) * bytes), got = row[i % COLS];
        uint32_t bits;
        memcpy(&bits, x + i, 4);
        const uint32_t low = bits & 0xffff0000, high = low + 0x10000; /* neighbours; high may be infinity */
        if (isnan(x[i])) {
            assert_true((got & 0x7f80) == 0x7f80 && (got & 0x7f));
            continue;
        }
        const uint32_t to_low = bits - low, to_high = high - bits;
        const uint32_t want = to_low < to_high || (to_low == to_high && !(low >> 16 & 1)) ? low >> 16 : high >> 16;
        assert_int_equal(got, want);
    }
    for (int t = 0; t < T; t++)
        for (int k = COLS; k < 224; k++) assert_int_equal(((uint16_t *)(void *)(first + (size_t)t * bytes))[k], 0);
    tpl_mem_free(first);
    tpl_mem_free(x);
}

static void test_quant_not_finite(void **unused)
{
    const float bad[] = { INFINITY, -INFINITY, NAN };
    for (int i = 0; i < 3; i++) {
        float x[32] = { 1, 2, 3 }, d, ds;
        int8_t q[32], r[32];
        x[9] = bad[i];
        tpl_quant_blocks_portable(x, 1, q, r, &d, &ds);
        assert_true(isnan(d) && isnan(ds));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half),
        cmocka_unit_test(test_pack_bytes),
        cmocka_unit_test(test_dequant_and_unpack),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_quant),
        cmocka_unit_test(test_quant_bf16),
        cmocka_unit_test(test_quant_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
