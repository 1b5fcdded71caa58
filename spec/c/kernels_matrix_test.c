/* SPDX-License-Identifier: Apache-2.0
 *
 * The products of matrices against an oracle (matrix_problem.h) and sums in double precision. Every ISA this machine
 * has; odd shapes; every result must have the same bits whatever the batch and the thread count.
 */
#include "matrix_problem.h"

#include "kernels/cpu/linear.h"
#include "kernels/cpu/quant.h"

static tpl_bound linear_op(const problem *p, tpl_view x, float *const *y, int epi)
{
    tpl_bound op = {
        .name = "test", .kind = TPL_OP_ID_LINEAR, .n_in = 1, .n_w = p->n_w, .n_out = epi ? 1 : p->n_w
    };
    op.in[0] = x;
    op.imm[0].i = epi;
    for (int i = 0; i < p->n_w; i++) op.w[i] = &p->w[i];
    for (int i = 0; i < op.n_out; i++) op.out[i] = view_of(y[i], TPL_ACT_F32, p->w[i].rows);
    return op;
}

/* y of T rows by (isa, nth), canaries checked, as a fresh array of all outputs after each other. */
static void multiply(const problem *p, tpl_isa isa, tpl_view x, int T, int nth, int epi, float **y)
{
    tpl_err err = { 0 };
    for (int i = 0; i < (epi ? 1 : p->n_w); i++) {
        const size_t n = (size_t)(p->w[i].rows * T);
        y[i] = malloc((n + 16) * sizeof(float));
        memset(y[i], 0x7f, (n + 16) * sizeof(float));
    }
    tpl_bound op = linear_op(p, x, y, epi);
    assert_int_equal(tpl_cpu_bind_linear(isa, &op, &err), TPL_OK);
    assert_non_null(op.variant);
    run_op(&op, T, nth);
    for (int i = 0; i < op.n_out; i++) {
        uint32_t canary[16];
        memset(canary, 0x7f, sizeof canary);
        assert_memory_equal(y[i] + p->w[i].rows * T, canary, sizeof canary);
    }
}

/* Row t of x, whose rows are stored as `form`, as numbers. */
static void x_row(const tpl_view *x, tpl_act form, int t, double *out)
{
    char *row = (char *)x->data + (size_t)t * x->stride;
    for (int64_t k = 0; k < x->cols; k++)
        switch (form) {
        case TPL_ACT_F32: out[k] = ((float *)(void *)row)[k]; break;
        case TPL_ACT_BF16: {
            const uint32_t bits = (uint32_t)((uint16_t *)(void *)row)[k] << 16;
            float f;
            memcpy(&f, &bits, 4);
            out[k] = f;
            break;
        }
        default: out[k] = (((int8_t *)row)[k] + ((int8_t *)row)[x->cols + k] / 254.0) * tpl_q8_d(row, x->cols)[k / 32];
        }
}

/* Products of bf16 on an ISA that has them also round the weights to bf16. */
static double weight_error(const problem *p, int i, tpl_act form, bool has_bf16, int T)
{
    const bool is_wide = form == TPL_ACT_BF16 && has_bf16 && T >= TPL_BF16_ROWS;
    return is_wide && p->w[i].dtype != TPL_DTYPE_BF16 ? 0x1p-8 : 0;
}

static void check_values(const problem *p, int i, const tpl_view *x, tpl_act form, int T, const float *y, tpl_isa isa)
{
    const double error = 4e-6 + weight_error(p, i, form, tpl_isa_has_bf16(isa), T);

    double *xr = malloc((size_t)x->cols * sizeof(double));
    for (int t = 0; t < T; t++) {
        x_row(x, form, t, xr);
        for (int64_t r = 0; r < p->w[i].rows; r++) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < x->cols; k++) {
                const double v = xr[k] * p->exact[i][r * x->cols + k];
                sum += v, size += fabs(v);
            }
            const double got = y[t * p->w[i].rows + r];
            if (!(fabs(got - sum) <= error * size + 1e-30))
                fail_msg("%s %s rows, %s: row %d output %d: %.9g, expected %.9g (size %.3g)", tpl_isa_name(isa),
                         tpl_act_names[x->act], tpl_dtypes[p->w[i].dtype].name, t, (int)r, got, sum, size);
        }
    }
    free(xr);
}

/* x as floats, and the same as q8 or bf16 by the library's op (checked on its own below). */
static tpl_view make_x(tpl_act act, tpl_act form, int64_t cols, int T)
{
    float *x = tpl_mem_alloc((size_t)(cols * T) * 4);
    for (int64_t i = 0; i < cols * T; i++) x[i] = rnd_float() + (rnd() % 64 ? 0 : 4 * rnd_float());
    if (act == TPL_ACT_F32) return view_of(x, act, cols);
    tpl_view q = view_of(tpl_mem_alloc(tpl_row_bytes(act, cols) * (size_t)T), act, cols);
    for (int t = 0; t < T; t++) {
        void *row = (char *)q.data + (size_t)t * q.stride;
        if (form == TPL_ACT_BF16)
            tpl_bf16_of_floats_portable(x + t * cols, cols, row);
        else
            tpl_quant_blocks_portable(x + t * cols, cols / 32, row, (int8_t *)row + cols, tpl_q8_d(row, cols), tpl_q8_ds(row, cols));
    }
    tpl_mem_free(x);
    return q;
}

static const int batches[] = { 1, 2, 3, 7, 8, 9, 16, 33, 48, 64 };

/* Values once per batch of `most` rows, then bits: other thread counts, and each row alone; for batches of `least` rows on. */
static void check_batches(const problem *p, tpl_isa isa, tpl_act act, int least, int most)
{
    const tpl_act form = tpl_rows_form(act, tpl_isa_has_bf16(isa), most);
    tpl_view x = make_x(act, form, p->cols, most);
    float *base[3] = { 0 };
    multiply(p, isa, x, most, 1, 0, base);
    for (int i = 0; i < p->n_w; i++) check_values(p, i, &x, form, most, base[i], isa);
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
        for (int nth = 1; nth <= 3; nth++) {
            const int T = batches[b], first = most - T;
            if (T < least || T > most) continue;
            tpl_view part = x;
            part.data = (char *)x.data + (size_t)first * x.stride;
            float *y[3] = { 0 };
            multiply(p, isa, part, T, nth, 0, y);
            for (int i = 0; i < p->n_w; i++) {
                assert_memory_equal(y[i], base[i] + first * p->w[i].rows, (size_t)(p->w[i].rows * T) * 4);
                free(y[i]);
            }
        }
    for (int i = 0; i < p->n_w; i++) free(base[i]);
    tpl_mem_free(x.data);
}

/* A batch of many rows may go another way than one of few only where bf16 is multiplied. */
static void check_problem(const problem *p, tpl_isa isa, tpl_act act)
{
    const bool has_two = tpl_isa_has_bf16(isa) && (act == TPL_ACT_BF16 || act == TPL_ACT_Q8_BF16);
    if (has_two) check_batches(p, isa, act, 1, TPL_BF16_ROWS - 1);
    check_batches(p, isa, act, has_two ? TPL_BF16_ROWS : 1, MAX_ROWS);
}

static void every_isa(tpl_act act, const tpl_dtype *types, int n_types)
{
    static const int64_t rows[] = { 1, 17, 48, 35 };
    for (int isa = 0; isa < TPL_N_ISAS; isa++) {
        if (!tpl_isa_usable((tpl_isa)isa)) continue;
        for (int t = 0; t < n_types; t++)
            for (int i = 0; i < 4; i++) {
                problem p = { .cols = odd_cols(types[t], i) };
                add_weight(&p, types[t], rows[i]);
                check_problem(&p, (tpl_isa)isa, act);
                free_problem(&p);
            }
    }
}

static void test_linear_f32(void **unused)
{
    every_isa(TPL_ACT_F32, all_types, N_ALL);
}

static void test_linear_q8(void **unused)
{
    every_isa(TPL_ACT_Q8, block_types, N_BLOCK);
}

static void test_linear_q8_bf16(void **unused)
{
    every_isa(TPL_ACT_Q8_BF16, block_types, N_BLOCK);
}

static void test_linear_bf16(void **unused)
{
    every_isa(TPL_ACT_BF16, all_types, N_ALL);
}

/* In a step of few rows each thread rounds the floats for itself, with the bits of the quant op. */
static void test_linear_own_rows(void **unused)
{
    static const tpl_dtype types[] = { TPL_DTYPE_Q4_1, TPL_DTYPE_Q6_K, TPL_DTYPE_F16 };
    enum { COLS = 512, ROWS = 50 };
    for (int isa = 0; isa < TPL_N_ISAS; isa++)
        for (int act = TPL_ACT_Q8; tpl_isa_usable((tpl_isa)isa) && act < TPL_N_ACTS; act++)
            for (size_t i = 0; i < 3; i++)
                for (int T = 1; T < TPL_BF16_ROWS; T += 3) {
                    problem p = { .cols = COLS };
                    tpl_err err = { 0 };
                    add_weight(&p, types[i], ROWS);
                    tpl_view x = make_x(TPL_ACT_F32, TPL_ACT_F32, COLS, T);
                    tpl_view q = view_of(tpl_mem_alloc(tpl_row_bytes((tpl_act)act, COLS) * (size_t)T), (tpl_act)act, COLS);
                    tpl_bound quant = { .name = "quant", .kind = TPL_OP_ID_QUANT, .n_in = 1, .n_out = 1, .in = { x }, .out = { q } };
                    const tpl_step step = { .n_tok = T, .pad_tok = T };
                    assert_true(tpl_op_idles(&quant, &step));
                    assert_int_equal(tpl_cpu_bind_quant((tpl_isa)isa, &quant, &err), TPL_OK);
                    run_op(&quant, T, 1);
                    float *want[3], own[TPL_BF16_ROWS * ROWS], *y[3] = { own };
                    multiply(&p, (tpl_isa)isa, q, T, 1, 0, want);
                    memset(q.data, 0x7f, q.stride * (size_t)T); /* nobody reads it */
                    tpl_bound op = linear_op(&p, q, y, 0);
                    op.n_in = 2, op.in[1] = x;
                    assert_int_equal(tpl_cpu_bind_linear((tpl_isa)isa, &op, &err), TPL_OK);
                    for (int nth = 1; nth <= 3; nth += 2) {
                        memset(own, 0, sizeof own);
                        run_op(&op, T, nth);
                        assert_memory_equal(own, want[0], (size_t)(T * ROWS) * 4);
                    }
                    free(want[0]);
                    tpl_mem_free(x.data), tpl_mem_free(q.data);
                    free_problem(&p);
                }
}

/* Rows too long for the scratch: their inputs are cut, and so are batches whose sums it cannot hold. */
static void test_linear_long_rows(void **unused)
{
    enum { COLS = 12800, T = 1100 };
    for (int isa = 0; isa < TPL_N_ISAS; isa++) {
        if (!tpl_isa_usable((tpl_isa)isa) || !tpl_isa_has_bf16((tpl_isa)isa)) continue;
        problem p = { .cols = COLS };
        add_weight(&p, TPL_DTYPE_Q8_0, 19);
        tpl_view x = make_x(TPL_ACT_BF16, TPL_ACT_BF16, COLS, T);
        float *y[3], *alone[3];
        multiply(&p, (tpl_isa)isa, x, T, 1, 0, y);
        x.data = (char *)x.data + (size_t)(T - 40) * x.stride;
        multiply(&p, (tpl_isa)isa, x, 40, 2, 0, alone);
        assert_memory_equal(alone[0], y[0] + (T - 40) * 19, 40 * 19 * 4);
        check_values(&p, 0, &x, TPL_ACT_BF16, 40, alone[0], (tpl_isa)isa);
        x.data = (char *)x.data - (size_t)(T - 40) * x.stride;
        free(y[0]), free(alone[0]);
        tpl_mem_free(x.data);
        free_problem(&p);
    }
}

/* The largest quants times the largest bytes of x, of both signs: no sum of products may leave its integers. */
static void test_linear_largest(void **unused)
{
    enum { COLS = 96, T = 6 };
    const size_t stride = tpl_q8_row_bytes(COLS);
    tpl_view x = view_of(tpl_mem_alloc(stride * T), TPL_ACT_Q8, COLS);
    for (int t = 0; t < T; t++) {
        char *row = (char *)x.data + (size_t)t * stride;
        const int sign = t % 2 ? -1 : 1;
        memset(row, sign * 127, 2 * COLS);
        for (int b = 0; b < COLS / 32; b++) {
            tpl_q8_d(row, COLS)[b] = 1;
            tpl_q8_ds(row, COLS)[b] = (float)sign * 32 * (127 + 127 * TPL_Q8_FINE);
        }
    }
    for (int isa = 0; isa < TPL_N_ISAS; isa++) {
        if (!tpl_isa_usable((tpl_isa)isa)) continue;
        for (int t = 0; t < N_Q8; t++) {
            problem p = { .cols = COLS };
            add_file(&p, block_types[t], 16, largest_rows(block_types[t], 16, COLS));
            for (int rows = 1; rows <= T; rows += T - 1) {
                float *y[3];
                multiply(&p, (tpl_isa)isa, x, rows, 1, 0, y);
                check_values(&p, 0, &x, TPL_ACT_Q8, rows, y[0], (tpl_isa)isa);
                free(y[0]);
            }
            free_problem(&p);
        }
    }
    tpl_mem_free(x.data);
}

#if TPL_CPU_ARM
/* With sdot and without, q8 rows give the same bits: the integer sums are exact, the rest is one code. Where the
 * machine has sdot this is the only test of the code without, which the op then never takes. */
static void test_dotprod_is_neon(void **unused)
{
    enum { COLS = 160, T = 9 };
    if (!tpl_cpu_has_dotprod()) skip();
    tpl_view x = make_x(TPL_ACT_Q8, TPL_ACT_Q8, COLS, T);
    for (int t = 0; t < N_Q8; t++)
        for (int largest = 0; largest < 2; largest++)
            for (int n = 1; n <= T; n += 4) {
                _Alignas(64) float with[T * TPL_PANEL_ROWS], without[T * TPL_PANEL_ROWS], *y[3] = { with };
                tpl_err err = { 0 };
                problem p = { .cols = COLS };
                add_file(&p, block_types[t], 16, (largest ? largest_rows : rnd_rows)(block_types[t], 16, COLS));
                tpl_bound op = linear_op(&p, x, y, 0);
                assert_int_equal(tpl_cpu_bind_linear(TPL_ISA_NEON, &op, &err), TPL_OK);
                assert_non_null(strstr(op.variant, "_dotprod"));
                tpl_lin_q8_dotprod[block_types[t]](p.w[0].data, COLS, x.data, x.stride, n, with);
                tpl_lin_q8_neon[block_types[t]](p.w[0].data, COLS, x.data, x.stride, n, without);
                assert_memory_equal(with, without, (size_t)n * TPL_PANEL_ROWS * 4);
                free_problem(&p);
            }
    tpl_mem_free(x.data);
}
#endif

/* The tiles of AMX do the float operations of AVX-512 in the same order: equal bits, also with a row too few or
 * too many for whole tiles and with one block, an odd and an even number of them. */
static void test_amx_is_avx512(void **unused)
{
    static const int64_t cols[] = { 32, 64, 96, 128, 160, 2080 };
    if (!tpl_isa_usable(TPL_ISA_AMX)) skip();
    for (int t = 0; t < N_Q8; t++)
        for (size_t c = 0; c < sizeof cols / sizeof *cols; c++) {
            problem p = { .cols = cols[c] };
            add_weight(&p, block_types[t], 37);
            tpl_view x = make_x(TPL_ACT_Q8, TPL_ACT_Q8, p.cols, MAX_ROWS);
            for (int T = 15; T <= 49; T += 17) { /* 15, 32, 49 */
                float *tiles[3], *vectors[3];
                multiply(&p, TPL_ISA_AMX, x, T, 2, 0, tiles);
                multiply(&p, TPL_ISA_AVX512, x, T, 1, 0, vectors);
                assert_memory_equal(tiles[0], vectors[0], (size_t)(37 * T) * 4);
                free(tiles[0]), free(vectors[0]);
            }
            tpl_mem_free(x.data);
            free_problem(&p);
        }
}

/* Several weights of different types and heights in one op, shared out as one list. */
static void test_linear_many_weights(void **unused)
{
    for (int isa = 0; isa < TPL_N_ISAS; isa++) {
        if (!tpl_isa_usable((tpl_isa)isa)) continue;
        for (int act = 0; act < TPL_N_ACTS; act++) {
            problem p = { .cols = 96 };
            add_weight(&p, TPL_DTYPE_Q4_1, 70);
            add_weight(&p, TPL_DTYPE_Q8_0, 24);
            add_weight(&p, tpl_act_in_blocks((tpl_act)act) ? TPL_DTYPE_Q5_0 : TPL_DTYPE_F16, 5);
            check_problem(&p, (tpl_isa)isa, (tpl_act)act);
            free_problem(&p);
        }
    }
}

/* Every share of every (threads, batch) covers each output once: more threads than panels, batches that are
 * cut by rows too. */
static void test_linear_shares(void **unused)
{
    problem p = { .cols = 32 };
    add_weight(&p, TPL_DTYPE_Q4_1, 40);
    add_weight(&p, TPL_DTYPE_Q4_1, 16);
    const int T = 700;
    tpl_view x = make_x(TPL_ACT_Q8, TPL_ACT_Q8, p.cols, T);
    float *base[3], *y[3];
    multiply(&p, TPL_ISA_PORTABLE, x, T, 1, 0, base);
    for (int nth = 2; nth < 40; nth += 3)
        for (int n = 1; n <= T; n += 233) {
            multiply(&p, TPL_ISA_PORTABLE, x, n, nth, 0, y);
            for (int i = 0; i < 2; i++) {
                assert_memory_equal(y[i], base[i], (size_t)(p.w[i].rows * n) * 4);
                free(y[i]);
            }
        }
    free(base[0]), free(base[1]);
    tpl_mem_free(x.data);
    free_problem(&p);
}

/* silu(gate) * up against the two products apart, activation in double precision. */
static void test_linear_epi(void **unused)
{
    for (int isa = 0; isa < TPL_N_ISAS; isa++) {
        if (!tpl_isa_usable((tpl_isa)isa)) continue;
        for (int act = 0; act < TPL_N_ACTS; act++) {
        problem p = { .cols = 64 };
        add_weight(&p, TPL_DTYPE_Q4_1, 41);
        add_weight(&p, TPL_DTYPE_Q4_1, 41);
        const int T = 70;
        tpl_view x = make_x((tpl_act)act, tpl_rows_form((tpl_act)act, tpl_isa_has_bf16((tpl_isa)isa), T), p.cols, T);
        float *apart[3], *h[3], *h3[3];
        multiply(&p, (tpl_isa)isa, x, T, 1, 0, apart);
        multiply(&p, (tpl_isa)isa, x, T, 1, 1, h);
        multiply(&p, (tpl_isa)isa, x, T, 3, 1, h3);
        assert_memory_equal(h[0], h3[0], (size_t)(41 * T) * 4);
        for (int i = 0; i < 41 * T; i++) {
            const double g = apart[0][i], want = g / (1 + exp(-g)) * apart[1][i];
            assert_true(fabs(h[0][i] - want) <= 4e-7 * fabs(want) + 1e-36);
        }
        free(apart[0]), free(apart[1]), free(h[0]), free(h3[0]);
        tpl_mem_free(x.data);
        free_problem(&p);
        }
    }
}

/* -- Refusals, names ---- */

/* A set of another architecture. */
static const tpl_isa foreign_isa = TPL_CPU_ARM ? TPL_ISA_AVX2 : TPL_ISA_NEON;

static void test_refusals(void **unused)
{
    problem p = { .cols = 64 };
    add_weight(&p, TPL_DTYPE_F16, 16);
    add_weight(&p, TPL_DTYPE_Q4_0, 32);
    float y0[64], y1[64], *y[3] = { y0, y1 };
    tpl_err err = { 0 };
    char x[256];
    p.w[0].dtype = TPL_DTYPE_I32;
    tpl_bound op = linear_op(&p, view_of(x, TPL_ACT_Q8, 64), y, 0);
    assert_int_equal(tpl_cpu_bind_linear(TPL_ISA_PORTABLE, &op, &err), TPL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "i32"));
    p.w[0].dtype = TPL_DTYPE_F16;
    err = (tpl_err){ 0 };
    op = linear_op(&p, view_of(x, TPL_ACT_F32, 96), y, 0);
    assert_int_equal(tpl_cpu_bind_linear(TPL_ISA_PORTABLE, &op, &err),
                     TPL_ERR_ARG); /* 96 columns times 64 inputs */
    err = (tpl_err){ 0 };
    op = linear_op(&p, view_of(x, TPL_ACT_F32, 64), y, 1);
    assert_int_equal(tpl_cpu_bind_linear(TPL_ISA_PORTABLE, &op, &err), TPL_ERR_ARG); /* gate and up differ */
    err = (tpl_err){ 0 };
    op = linear_op(&p, view_of(x, TPL_ACT_F32, 64), y, 0);
    op.out[1].cols = 31;
    assert_int_equal(tpl_cpu_bind_linear(TPL_ISA_PORTABLE, &op, &err), TPL_ERR_ARG);
    err = (tpl_err){ 0 };
    op = linear_op(&p, view_of(x, TPL_ACT_F32, 64), y, 0);
    assert_int_equal(tpl_cpu_bind_linear(foreign_isa, &op, &err), TPL_ERR_UNSUPPORTED);
    free_problem(&p);
}

static void test_names(void **unused)
{
    for (int i = 0; i < TPL_N_ISAS; i++) assert_int_equal(tpl_isa_find(tpl_isa_name((tpl_isa)i)), i);
    for (int i = 0; i < TPL_N_OPS; i++) assert_int_equal(tpl_op_find(tpl_op_infos[i].name), i);
    assert_int_equal(tpl_isa_find("mmx"), -1);
    assert_int_equal(tpl_op_find("conv"), -1);
    assert_true(tpl_isa_usable(tpl_isa_best()) && tpl_isa_usable(TPL_ISA_PORTABLE) &&
                !tpl_isa_usable(foreign_isa));
    assert_int_equal(tpl_isa_usable(TPL_ISA_NEON), TPL_CPU_ARM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_linear_f32),
        cmocka_unit_test(test_linear_q8),
        cmocka_unit_test(test_linear_q8_bf16),
        cmocka_unit_test(test_linear_bf16),
        cmocka_unit_test(test_linear_own_rows),
        cmocka_unit_test(test_linear_long_rows),
        cmocka_unit_test(test_linear_largest),
        cmocka_unit_test(test_amx_is_avx512),
#if TPL_CPU_ARM
        cmocka_unit_test(test_dotprod_is_neon),
#endif
        cmocka_unit_test(test_linear_many_weights),
        cmocka_unit_test(test_linear_shares),
        cmocka_unit_test(test_linear_epi),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
