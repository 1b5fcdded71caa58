/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix kernels against an oracle of their own: element e of a file row by the formulas of
 * facts/models.md 2.6 (GGUF block layouts), written again here in that table's form, and sums in double
 * precision. Every ISA this machine has; odd shapes; every result must have the same bits whatever the batch
 * and the thread count.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/quant.h"
#include "kernels/pack.h"

static const tpl_dtype all_types[] = { TPL_DTYPE_F32,  TPL_DTYPE_F16,  TPL_DTYPE_BF16, TPL_DTYPE_Q4_0,
                                       TPL_DTYPE_Q4_1, TPL_DTYPE_Q5_0, TPL_DTYPE_Q5_1, TPL_DTYPE_Q8_0,
                                       TPL_DTYPE_Q4_K, TPL_DTYPE_Q5_K, TPL_DTYPE_Q6_K };
static const tpl_dtype *const block_types = all_types + 3; /* those with scales */
enum { N_ALL = sizeof all_types / sizeof *all_types, N_BLOCK = N_ALL - 3, N_Q8 = 5 /* of blocks of 32 */ };

/* -- Random numbers and file rows ---- */

static uint64_t state = 88172645463325252ull;

static uint32_t rnd(void) /* xorshift64* */
{
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (uint32_t)(state * 2685821657736338717ull >> 32);
}

static float rnd_float(void)
{
    return (float)((int32_t)rnd() * 0x1p-31);
}

static uint16_t rnd_half(void) /* magnitude 2^-7 .. 2^-3 */
{
    return (uint16_t)((rnd() & 0x8000) | (8 + rnd() % 4) << 10 | (rnd() & 0x3ff));
}

static void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v, p[1] = (uint8_t)(v >> 8);
}

static uint8_t *rnd_rows(tpl_dtype type, int64_t rows, int64_t cols)
{
    const size_t block = tpl_dtypes[type].n_bytes, n = (size_t)(rows * cols / tpl_dtypes[type].n_elem);
    uint8_t *p = malloc(n * block);
    for (size_t b = 0; b < n; b++) {
        uint8_t *q = p + b * block;
        for (size_t i = 0; i < block; i++) q[i] = (uint8_t)rnd();
        float f = rnd_float();
        uint32_t bits;
        memcpy(&bits, &f, 4);
        switch (type) {
        case TPL_DTYPE_F32: memcpy(q, &f, 4); break;
        case TPL_DTYPE_F16: put16(q, rnd_half()); break;
        case TPL_DTYPE_BF16: put16(q, (uint16_t)(bits >> 16)); break;
        case TPL_DTYPE_Q6_K: put16(q + 208, rnd_half()); break;
        case TPL_DTYPE_Q4_1:
        case TPL_DTYPE_Q5_1:
        case TPL_DTYPE_Q4_K:
        case TPL_DTYPE_Q5_K: put16(q + 2, rnd_half()); /* fall through */
        default: put16(q, rnd_half());
        }
    }
    return p;
}

/* Blocks of 32 whose quants, as stored, are as large as they can be; scale 1, no min. */
static uint8_t *largest_rows(tpl_dtype type, int64_t rows, int64_t cols)
{
    const size_t block = tpl_dtypes[type].n_bytes, n = (size_t)(rows * cols / 32);
    uint8_t *p = malloc(n * block);
    memset(p, type == TPL_DTYPE_Q8_0 ? 0x80 : 0xff, n * block);
    for (size_t b = 0; b < n; b++) {
        put16(p + b * block, 0x3c00);
        if (type == TPL_DTYPE_Q4_1 || type == TPL_DTYPE_Q5_1) put16(p + b * block + 2, 0);
    }
    return p;
}

/* -- The oracle ---- */

static double half_value(unsigned h)
{
    const int e = h >> 10 & 31, m = h & 1023;
    const double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -v : v;
}

static double half_of(const uint8_t *p)
{
    return half_value((unsigned)p[0] | (unsigned)p[1] << 8);
}

static double k45(const uint8_t *b, int e, const uint8_t *qh, const uint8_t *qs)
{
    const int u = e / 32, t = e % 32, byte = qs[32 * (u / 2) + t];
    const uint8_t *s = b + 4;
    int q = u % 2 ? byte >> 4 : byte & 15, sc, m;
    if (qh) q += 16 * (qh[t] >> u & 1);
    if (u < 4)
        sc = s[u] & 63, m = s[u + 4] & 63;
    else
        sc = (s[u + 4] & 15) | (s[u - 4] >> 6) << 4, m = (s[u + 4] >> 4) | (s[u] >> 6) << 4;
    return half_of(b) * sc * q - half_of(b + 2) * m;
}

static double k6(const uint8_t *p, int e)
{
    const int n = e / 128, g = e % 128 / 32, l = e % 32, byte = p[64 * n + l + 32 * (g & 1)];
    const int q = ((g < 2 ? byte & 15 : byte >> 4) | (p[128 + 32 * n + l] >> 2 * g & 3) << 4) - 32;
    return half_of(p + 208) * (int8_t)p[192 + 8 * n + 2 * g + l / 16] * q;
}

static int nibble(const uint8_t *qs, int e)
{
    return e < 16 ? qs[e] & 15 : qs[e - 16] >> 4;
}

static int nibble5(const uint8_t *qs, const uint8_t *qh, int e)
{
    return nibble(qs, e) | (qh[e / 8] >> (e % 8) & 1) << 4;
}

/* Element i of a file row, as an exact number. */
static double element(tpl_dtype type, const uint8_t *row, int64_t i)
{
    const int n = (int)tpl_dtypes[type].n_elem, e = (int)(i % n);
    const uint8_t *b = row + i / n * tpl_dtypes[type].n_bytes;
    float f;
    switch (type) {
    case TPL_DTYPE_F32: memcpy(&f, b, 4); return f;
    case TPL_DTYPE_F16: return half_of(b);
    case TPL_DTYPE_BF16: {
        const uint32_t bits = (uint32_t)b[0] << 16 | (uint32_t)b[1] << 24;
        memcpy(&f, &bits, 4);
        return f;
    }
    case TPL_DTYPE_Q4_0: return (nibble(b + 2, e) - 8) * half_of(b);
    case TPL_DTYPE_Q4_1: return nibble(b + 4, e) * half_of(b) + half_of(b + 2);
    case TPL_DTYPE_Q5_0: return (nibble5(b + 6, b + 2, e) - 16) * half_of(b);
    case TPL_DTYPE_Q5_1: return nibble5(b + 8, b + 4, e) * half_of(b) + half_of(b + 2);
    case TPL_DTYPE_Q8_0: return (int8_t)b[2 + e] * half_of(b);
    case TPL_DTYPE_Q4_K: return k45(b, e, NULL, b + 16);
    case TPL_DTYPE_Q5_K: return k45(b, e, b + 16, b + 48);
    case TPL_DTYPE_Q6_K: return k6(b, e);
    default: abort();
    }
}

/* -- One problem: some weights, one x ---- */

enum { MAX_ROWS = 64 };

typedef struct problem {
    int n_w;
    int64_t cols;
    tpl_weight w[3];
    uint8_t *file[3];
    double *exact[3]; /* [rows][cols] */
} problem;

static void add_file(problem *p, tpl_dtype type, int64_t rows, uint8_t *file)
{
    const int i = p->n_w++;
    const size_t row_bytes = (size_t)(p->cols / tpl_dtypes[type].n_elem) * tpl_dtypes[type].n_bytes;
    uint64_t bytes;
    assert_true(tpl_pack_bytes(type, (uint64_t)rows, (uint64_t)p->cols, &bytes));
    uint8_t *data = tpl_mem_alloc(bytes);
    memset(data, 0xff, bytes); /* missing rows must be written too */
    p->file[i] = file;
    for (int64_t r = 0; r < rows; r += 16)
        tpl_pack_panel(type, p->cols, p->file[i] + (size_t)r * row_bytes,
                       rows - r < 16 ? (int)(rows - r) : 16, r / 16, data);
    p->exact[i] = malloc((size_t)(rows * p->cols) * sizeof(double));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < p->cols; k++)
            p->exact[i][r * p->cols + k] = element(type, p->file[i] + (size_t)r * row_bytes, k);
    p->w[i] = (tpl_weight){ .name = "w", .dtype = type, .rows = rows, .cols = p->cols, .data = data };
}

static void add_weight(problem *p, tpl_dtype type, int64_t rows)
{
    add_file(p, type, rows, rnd_rows(type, rows, p->cols));
}

static void free_problem(problem *p)
{
    for (int i = 0; i < p->n_w; i++) {
        tpl_mem_free((void *)(uintptr_t)p->w[i].data);
        free(p->file[i]);
        free(p->exact[i]);
    }
}

static tpl_view view_of(void *data, tpl_act act, int64_t cols)
{
    return (tpl_view){ data, act,  TPL_SYM_TOK,
                       1,    cols, tpl_row_bytes(act, cols) };
}

/* Runs a bound op for T rows as nth members one after the other (no op here has a barrier inside). */
static void run_op(const tpl_bound *op, int T, int nth)
{
    tpl_step step = { .n_tok = T, .pad_tok = T };
    void *scratch = tpl_mem_alloc(TPL_CPU_SCRATCH_BYTES);
    for (int i = 0; i < nth; i++) {
        const tpl_op_ctx ctx = { i, nth, &step, NULL, scratch };
        op->run(&ctx, op);
    }
    tpl_mem_free(scratch);
}

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

static int64_t odd_cols(tpl_dtype type, int i)
{
    static const int64_t plain[] = { 1, 7, 40, 129 }, small[] = { 32, 96, 160, 576 },
                         big[] = { 256, 512, 768, 256 };
    const uint32_t n = tpl_dtypes[type].n_elem;
    return (n == 1 ? plain : n == 32 ? small : big)[i];
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
    tpl_step_res_tok(before)[0] = -2; /* no finite logit there: any row will do */
    op.run(&(tpl_op_ctx){ .nth = 1, .step = step, .before = before }, &op);
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
        cmocka_unit_test(test_half),
        cmocka_unit_test(test_pack_bytes),
        cmocka_unit_test(test_dequant_and_unpack),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_quant),
        cmocka_unit_test(test_quant_bf16),
        cmocka_unit_test(test_quant_not_finite),
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
