/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops that are not matrix products, on every instruction set this machine has and with 1, 2 and 3 real
 * threads. Expected values come from naive double-precision code in this file, written from the definitions
 * in kernels/ops.h and kernels/sampler.h. Where the contract says "the same result", the test compares
 * bits.
 */
#include "seq_step.h"

/* -- Vectors ---- */

static void test_exp(void **state)
{
    (void)state;
    double worst = 0;
    for (float x = -86.9f; x < 88.2f; x += 0.000713f) {
        vf y = vf_exp(vf_set(x));
        double e = fabs((double)y[0] / exp((double)x) - 1);
        if (e > worst) worst = e;
    }
    assert_true(worst < 2e-7);
    assert_true(vf_exp(vf_set(-INFINITY))[0] == 0);
    assert_true(vf_exp(vf_set(-1000))[0] == 0);
    assert_true(vf_exp(vf_set(0))[0] == 1);
    assert_true(vf_exp(vf_set(1000))[0] > 1e38f);
    assert_true(isnan(vf_exp(vf_set(NAN))[0]));
}

static double half_value(int h)
{
    int e = h >> 10 & 31, m = h & 1023;
    double x = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -x : x;
}

static void test_halves(void **state)
{
    (void)state;
    for (int h = 0; h < 0x10000; h++) {
        bool is_finite = (h >> 10 & 31) != 31;
        float x = vec_from_half((uint16_t)h);
        if (is_finite) {
            assert_true((double)x == half_value(h));
            assert_int_equal(vec_to_half(x), h);
        } else {
            assert_true(h & 0x3ff ? isnan(x) : isinf(x));
            assert_true(h & 0x3ff ? (vec_to_half(x) & 0x7fff) > 0x7c00 : vec_to_half(x) == h);
        }
        uint16_t many[VW] = { (uint16_t)h };
        assert_true(is_finite ? vf_load_half(many)[0] == x : isnan(vf_load_half(many)[0]) == isnan(x));
    }
    for (int h = 0; h < 0x7bff; h++) { /* around the middle of each pair of neighbours */
        double mid = (half_value(h) + half_value(h + 1)) / 2;
        assert_int_equal(vec_to_half((float)mid), h & 1 ? h + 1 : h);
        assert_int_equal(vec_to_half(nextafterf((float)mid, 0)), h);
        assert_int_equal(vec_to_half(nextafterf((float)mid, 1e9f)), h + 1);
    }
    assert_int_equal(vec_to_half(65519.99f), 0x7bff);
    assert_int_equal(vec_to_half(65520.0f), 0x7c00);
    assert_int_equal(vec_to_half(-1e30f), 0xfc00);
}

/* -- Rows ---- */

static double silu(double g) { return g / (1 + exp(-g)); }

static void want_norm(double *y, const float *a, const float *b, const float *w, int64_t n, double eps)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += ((double)a[i] + (b ? b[i] : 0)) * ((double)a[i] + (b ? b[i] : 0));
    for (int64_t i = 0; i < n; i++)
        y[i] = ((double)a[i] + (b ? b[i] : 0)) / sqrt(sum / (double)n + eps) * w[i];
}

/* One op on rows x cols of random data: all thread counts give the bits of one thread, and those are near
 * the oracle. In place too. */
static void check_rows(tpl_isa isa, tpl_op_kind kind, int rows, int64_t cols)
{
    const int64_t n = rows * cols;
    float *a = random_floats(n, 2), *b = random_floats(n, 2), *w = random_floats(cols, 1);
    double *want = calloc((size_t)n, 8), *sum = calloc((size_t)n, 8);
    tpl_weight weight = { "w", TPL_DTYPE_F32, 1, cols, w };
    tpl_step *s = new_step(rows, 1, 1, 1, 1, 1, 1, 1);
    for (int64_t i = 0; i < n; i++) sum[i] = (double)a[i] + b[i];
    for (int r = 0; r < rows; r++) {
        double *y = want + r * cols;
        const float *x = a + r * cols, *u = b + r * cols;
        if (kind == TPL_OP_ID_NORM) want_norm(y, x, NULL, w, cols, 1e-5);
        if (kind == TPL_OP_ID_ADD_NORM) want_norm(y, x, u, w, cols, 1e-5);
        for (int64_t c = 0; c < cols; c++) {
            if (kind == TPL_OP_ID_ADD) y[c] = (double)x[c] + u[c];
            if (kind == TPL_OP_ID_BIAS) y[c] = (double)x[c] + w[c];
            if (kind == TPL_OP_ID_SILU_MUL) y[c] = silu(x[c]) * u[c];
        }
    }
    float *first = NULL;
    for (int in_place = 0; in_place < 2; in_place++)
        for (int nth = 1; nth <= MAX_NTH; nth++) {
            const tpl_op_info *info = &tpl_op_infos[kind];
            float *x = copy_floats(a, n), *u = copy_floats(b, n), *y = in_place ? x : random_floats(n, 1),
                  *x2 = NULL;
            tpl_bound op = {
                .kind = kind, .n_out = info->n_out, .n_in = info->n_in, .n_w = info->n_w, .w = { &weight }
            };
            op.in[0] = toks(x, cols);
            op.in[1] = toks(u, cols);
            op.out[0] = toks(y, cols);
            if (kind == TPL_OP_ID_ADD_NORM) { /* x, y */
                x2 = y;
                op.out[1] = toks(y = random_floats(n, 1), cols);
            }
            if (kind == TPL_OP_ID_BIAS)
                op.imm[0].i = 1;
            else
                op.imm[0].f = 1e-5;
            bind_op(isa, &op);
            run_op(&op, s, nth);
            assert_near(y, want, n, 2e-6);
            if (x2) assert_near(x2, sum, n, 1e-7);
            if (!first) first = copy_floats(y, n);
            assert_memory_equal(y, first, (size_t)n * 4);
            if (x2 && x2 != x) free(x2);
            if (y != x) free(y);
            free(x);
            free(u);
        }
    free(first), free(a), free(b), free(w), free(want), free(sum), free(s);
}

static void test_rows_ops(void **state)
{
    (void)state;
    static const tpl_op_kind kinds[] = { TPL_OP_ID_NORM, TPL_OP_ID_ADD_NORM, TPL_OP_ID_ADD, TPL_OP_ID_BIAS,
                                         TPL_OP_ID_SILU_MUL };
    static const int64_t widths[] = { 1, 7, 16, 64, 100, 576, 1030 };
    static const int rows[] = { 1, 2, 5, 17 };
    FOR_ISA(isa)
        for (int k = 0; k < 5; k++)
            for (int c = 0; c < 7; c++)
                for (int r = 0; r < 4; r++) check_rows(isa, kinds[k], rows[r], widths[c]);
}

static void test_silu_far_out(void **state)
{
    (void)state;
    float g[8] = { -1000, -100, -88, -20, 0, 20, 88, 1000 }, u[8] = { 1, 1, 1, 1, 1, 1, 1, 1 }, h[8];
    double want[8];
    for (int i = 0; i < 8; i++) want[i] = silu(g[i]);
    tpl_step *s = new_step(1, 1, 1, 1, 1, 1, 1, 1);
    FOR_ISA(isa) {
        tpl_bound op = { .kind = TPL_OP_ID_SILU_MUL,
                         .n_out = 1,
                         .n_in = 2,
                         .in = { toks(g, 8), toks(u, 8) },
                         .out = { toks(h, 8) } };
        bind_op(isa, &op);
        run_op(&op, s, 1);
        assert_near(h, want, 8, 1e-6);
    }
    free(s);
}

static void test_bias_off(void **state)
{
    (void)state;
    float x[20], y[20] = { 0 }, w[10];
    for (int i = 0; i < 20; i++) x[i] = w[i % 10] = spread(1);
    tpl_weight weight = { "b", TPL_DTYPE_F32, 1, 10, w };
    tpl_step *s = new_step(2, 1, 1, 1, 1, 1, 1, 1);
    tpl_bound op = { .kind = TPL_OP_ID_BIAS,
                     .n_out = 1,
                     .n_in = 1,
                     .n_w = 1,
                     .w = { &weight },
                     .in = { toks(x, 10) },
                     .out = { toks(y, 10) } };
    bind_op(TPL_ISA_PORTABLE, &op);
    run_op(&op, s, 2);
    assert_memory_equal(x, y, sizeof x);
    free(s);
}

/* -- Positions and the cache ---- */

/* By the layout in ops.h, not by the accessor the kernels use. */
static float kv_get(const tpl_kv_pool *kv, const void *base, int64_t page, int h, int in_page, int d)
{
    int64_t at = ((page * kv->kvh + h) * kv->page + in_page) * kv->hd + d;
    return kv->dtype == TPL_DTYPE_F32 ? ((const float *)base)[at]
                                      : vec_from_half(((const uint16_t *)base)[at]);
}

static double turned(const float *x, int i, int hd, int rot, int mode, int pos, const float *freqs,
                     double mscale)
{
    if (i >= rot) return x[i];
    int pair = mode ? i / 2 : i % (rot / 2);
    bool is_second = mode ? i % 2 : i >= rot / 2;
    double a = x[mode ? 2 * pair : pair], b = x[mode ? 2 * pair + 1 : pair + rot / 2];
    double angle =
        (double)((float)pos * freqs[pair]); /* the product is taken in float: facts/models.md 0.3 */
    (void)hd;
    return mscale * (is_second ? b * cos(angle) + a * sin(angle) : a * cos(angle) - b * sin(angle));
}

static void check_rope(tpl_isa isa, int heads, int kvh, int hd, int rot, int mode, tpl_dtype dtype, int page)
{
    const chunk chunks[] = { { 0, 5 }, { 700, 1 }, { 33, 3 } };
    const int n_seq = 3, per_seq = 704 / page + 1;
    int *order = shuffled(n_seq * per_seq);
    tpl_step *s = seq_step(chunks, n_seq, page, order, per_seq);
    const int T = s->pad_tok;
    float *q = random_floats(T * heads * hd, 1), *k = random_floats(T * kvh * hd, 1),
          *v = random_floats(T * kvh * hd, 1), freqs[64];
    double *want = calloc((size_t)(T * heads * hd), 8);
    for (int i = 0; i < rot / 2; i++) freqs[i] = (float)pow(10000, -2.0 * i / rot);
    for (int64_t i = 0; i < (int64_t)T * heads * hd; i++) {
        int t = (int)(i / (heads * hd)), pos = t < s->n_tok ? tpl_step_pos(s)[t] : 0;
        want[i] = turned(q + i / hd * hd, (int)(i % hd), hd, rot, mode, pos, freqs, 1.25);
    }
    for (int nth = 1; nth <= MAX_NTH; nth++) {
        float *y = copy_floats(q, T * heads * hd); /* in place */
        tpl_bound op = { .kind = TPL_OP_ID_ROPE,
                         .n_out = 1,
                         .n_in = 1,
                         .in = { toks(y, heads * hd) },
                         .out = { toks(y, heads * hd) },
                         .freqs = freqs,
                         .imm = { { heads }, { hd }, { rot }, { mode }, { 0 }, { .f = 1.25 }, { 0 } } };
        bind_op(isa, &op);
        run_op(&op, s, nth);
        assert_near(y, want, T * heads * hd, 5e-7);

        tpl_kv_pool kv = new_kv(dtype, page, kvh, hd, n_seq * per_seq);
        float *q2 = copy_floats(q, T * heads * hd);
        tpl_bound both = { .kind = TPL_OP_ID_ROPE_KV,
                           .n_out = 1,
                           .n_in = 3,
                           .kv = &kv,
                           .freqs = freqs,
                           .in = { toks(q2, heads * hd), toks(k, kvh * hd), toks(v, kvh * hd) },
                           .out = { toks(q2, heads * hd) },
                           .imm = {
                               { heads }, { kvh }, { hd }, { rot }, { mode }, { 0 }, { .f = 1.25 }, { 0 } } };
        bind_op(isa, &both);
        run_op(&both, s, nth);
        assert_memory_equal(q2, y, (size_t)(T * heads * hd) * 4);
        int64_t written = 0;
        const double tolerance = dtype == TPL_DTYPE_F32 ? 5e-7 : 5e-4;
        for (int t = 0; t < s->n_tok - 1; t++)
            for (int h = 0; h < kvh; h++)
                for (int d = 0; d < hd; d++, written++) {
                    const tpl_step_seq *seq = tpl_step_seqs(s) + tpl_step_tok_seq(s)[t];
                    int pos = tpl_step_pos(s)[t];
                    int64_t p = tpl_step_pages(s)[(int)seq->page0 + pos / page];
                    float have[2] = { kv_get(&kv, kv.k, p, h, pos % page, d),
                                      kv_get(&kv, kv.v, p, h, pos % page, d) };
                    double w[2] = { turned(k + (t * kvh + h) * hd, d, hd, rot, mode, pos, freqs, 1.25),
                                    v[(t * kvh + h) * hd + d] };
                    assert_near(have, w, 2, tolerance);
                }
        int64_t filled = 0; /* and nothing else: the rest is still poison */
        for (int64_t p = 0; p < kv.n_pages; p++)
            for (int i = 0; i < kvh * page * hd; i++) filled += !isnan(kv_get(&kv, kv.v, p, 0, 0, i));
        assert_int_equal(filled, written);
        free(kv.k), free(kv.v), free(y), free(q2);
    }
    free(q), free(k), free(v), free(want), free(order), free(s);
}

static void test_rope(void **state)
{
    (void)state;
    FOR_ISA(isa) {
        check_rope(isa, 9, 3, 64, 64, 0, TPL_DTYPE_F32, 16);
        check_rope(isa, 3, 1, 64, 64, 1, TPL_DTYPE_F16, 1);
        check_rope(isa, 2, 2, 20, 12, 0, TPL_DTYPE_F16, 64);
        check_rope(isa, 2, 1, 6, 4, 1, TPL_DTYPE_F32, 16);
    }
}

static void test_kv_write(void **state)
{
    (void)state;
    const chunk chunks[] = { { 15, 3 }, { 0, 2 } };
    enum { KVH = 2, HD = 24, PAGE = 16, PER = 2 };
    int order[] = { 3, 0, 2, 1 };
    tpl_step *s = seq_step(chunks, 2, PAGE, order, PER);
    float *k = random_floats(s->pad_tok * KVH * HD, 1), *v = random_floats(s->pad_tok * KVH * HD, 1);
    uint16_t *first = NULL;
    FOR_ISA(isa) {
        tpl_kv_pool kv = new_kv(TPL_DTYPE_F16, PAGE, KVH, HD, 4);
        tpl_bound op = { .kind = TPL_OP_ID_KV_WRITE,
                         .n_in = 2,
                         .kv = &kv,
                         .imm = { { KVH }, { HD }, { 0 } },
                         .in = { toks(k, KVH * HD), toks(v, KVH * HD) } };
        bind_op(isa, &op);
        run_op(&op, s, 2);
        /* token 1 is position 16 of sequence 0: its second page, number 0, first place */
        for (int d = 0; d < HD; d++)
            assert_int_equal(((uint16_t *)kv.k)[PAGE * HD + d], vec_to_half(k[KVH * HD + HD + d]));
        /* token 4 is position 1 of sequence 1: page 2 */
        for (int d = 0; d < HD; d++)
            assert_int_equal(((uint16_t *)kv.v)[(2 * KVH * PAGE + 1) * HD + d],
                             vec_to_half(v[4 * KVH * HD + d]));
        if (!first) first = memcpy(malloc(4 * KVH * PAGE * HD * 2), kv.k, 4 * KVH * PAGE * HD * 2);
        assert_memory_equal(first, kv.k, 4 * KVH * PAGE * HD * 2); /* hardware and portable rounding agree */
        free(kv.k), free(kv.v);
    }
    free(first), free(k), free(v), free(s);
}

/* -- Picking ---- */

static void test_rows(void **state)
{
    (void)state;
    enum { COLS = 21 };
    tpl_step *s = new_step(8, 1, 3, 1, 1, 1, 1, 1);
    float *x = random_floats(8 * COLS, 1), y[4 * COLS];
    s->pad_out = 4;
    const int32_t pick[] = { 5, 1, 5 };
    memcpy(tpl_step_out(s), pick, sizeof pick);
    for (int nth = 1; nth <= MAX_NTH; nth++) {
        tpl_bound op = { .kind = TPL_OP_ID_ROWS,
                         .n_out = 1,
                         .n_in = 1,
                         .in = { toks(x, COLS) },
                         .out = { view(y, TPL_SYM_OUT, 1, COLS) } };
        bind_op(TPL_ISA_PORTABLE, &op);
        run_op(&op, s, nth);
        for (int i = 0; i < 4; i++)
            for (int c = 0; c < COLS; c++)
                assert_true(y[i * COLS + c] == (i < 3 ? x[pick[i] * COLS + c] : 0));
        op.in[0].div = 2; /* x is now the second half: tokens 4 to 7 */
        op.imm[0].i = op.imm[1].i = 1;
        bind_op(TPL_ISA_PORTABLE, &op);
        run_op(&op, s, nth);
        for (int i = 0; i < 4; i++)
            for (int c = 0; c < COLS; c++)
                assert_true(y[i * COLS + c] == (i < 3 && pick[i] >= 4 ? x[(pick[i] - 4) * COLS + c] : 0));
    }
    free(x), free(s);
}

static void test_slice(void **state)
{
    (void)state;
    enum { OUTER = 2, N = 7, INNER = 3, ROWS = 4 };
    static const tpl_range ranges[] = { { 5, 2 }, { 0, 1 }, { 3, 1 } };
    static const int picked[] = { 5, 6, 0, 3 };
    const tpl_index index = { 3, 4, ranges };
    tpl_step *s = new_step(ROWS, 1, 1, 1, 1, 1, 1, 1);
    float *x = random_floats(ROWS * OUTER * N * INNER, 1), y[ROWS * OUTER * 4 * INNER];
    for (int nth = 1; nth <= MAX_NTH; nth++) {
        tpl_bound op = { .kind = TPL_OP_ID_SLICE,
                         .n_out = 1,
                         .n_in = 1,
                         .index = &index,
                         .imm = { { OUTER }, { N }, { INNER }, { 0 } },
                         .in = { toks(x, OUTER * N * INNER) },
                         .out = { toks(y, OUTER * 4 * INNER) } };
        bind_op(TPL_ISA_PORTABLE, &op);
        run_op(&op, s, nth);
        for (int i = 0; i < ROWS * OUTER; i++)
            for (int k = 0; k < 4; k++)
                for (int c = 0; c < INNER; c++)
                    assert_true(y[(i * 4 + k) * INNER + c] == x[(i * N + picked[k]) * INNER + c]);

        float half[2 * OUTER * N * INNER];
        tpl_bound tok = { .kind = TPL_OP_ID_SLICE_TOK,
                          .n_out = 1,
                          .n_in = 1,
                          .imm = { { 1 } },
                          .in = { toks(x, OUTER * N * INNER) },
                          .out = { view(half, TPL_SYM_TOK, 2, OUTER * N * INNER) } };
        bind_op(TPL_ISA_PORTABLE, &tok);
        run_op(&tok, s, nth);
        assert_memory_equal(half, x + 2 * OUTER * N * INNER, sizeof half);
    }
    free(x), free(s);
}

static void test_refusals(void **state)
{
    (void)state;
    float x[32], w[16];
    tpl_weight weight = { "w", TPL_DTYPE_F32, 1, 15, w };
    tpl_err err = { 0 };
    tpl_bound op = { .name = "blk.0.norm",
                     .kind = TPL_OP_ID_NORM,
                     .n_out = 1,
                     .n_in = 1,
                     .n_w = 1,
                     .w = { &weight },
                     .in = { toks(x, 16) },
                     .out = { toks(x, 16) } };
    assert_int_equal(tpl_cpu_bind_norm(TPL_ISA_PORTABLE, &op, &err), TPL_ERR_ARG);
    assert_string_equal(err.msg, "kernels: blk.0.norm: the length of the weight is 15, expected 16");
    err = (tpl_err){ 0 };
    op.in[0].act = TPL_ACT_Q8;
    assert_int_equal(tpl_cpu_bind_norm(TPL_ISA_PORTABLE, &op, &err), TPL_ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),          cmocka_unit_test(test_halves),
        cmocka_unit_test(test_rows_ops),     cmocka_unit_test(test_silu_far_out),
        cmocka_unit_test(test_bias_off),     cmocka_unit_test(test_rope),
        cmocka_unit_test(test_kv_write),    cmocka_unit_test(test_rows),
        cmocka_unit_test(test_slice),        cmocka_unit_test(test_refusals),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    free_scratch();
    return rc;
}
