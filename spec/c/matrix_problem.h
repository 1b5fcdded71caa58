/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of matrix kernels: random weights of every type in the layout of files, an oracle of their elements by the
 * formulas of facts/models.md 2.6 (GGUF block layouts), written again here in that table's form, and running an op by
 * several threads one after the other. Each test executable includes it once.
 */
#ifndef TPL_SPEC_MATRIX_PROBLEM_H
#define TPL_SPEC_MATRIX_PROBLEM_H

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
#include "kernels/pack.h"

#define OWN static __attribute__((unused))

OWN const tpl_dtype all_types[] = { TPL_DTYPE_F32,  TPL_DTYPE_F16,  TPL_DTYPE_BF16, TPL_DTYPE_Q4_0,
                                       TPL_DTYPE_Q4_1, TPL_DTYPE_Q5_0, TPL_DTYPE_Q5_1, TPL_DTYPE_Q8_0,
                                       TPL_DTYPE_Q4_K, TPL_DTYPE_Q5_K, TPL_DTYPE_Q6_K };
OWN const tpl_dtype *const block_types = all_types + 3; /* those with scales */
enum { N_ALL = sizeof all_types / sizeof *all_types, N_BLOCK = N_ALL - 3, N_Q8 = 5 /* of blocks of 32 */ };

/* -- Random numbers and file rows ---- */

static uint64_t state = 88172645463325252ull;

OWN uint32_t rnd(void) /* xorshift64* */
{
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (uint32_t)(state * 2685821657736338717ull >> 32);
}

OWN float rnd_float(void)
{
    return (float)((int32_t)rnd() * 0x1p-31);
}

OWN uint16_t rnd_half(void) /* magnitude 2^-7 .. 2^-3 */
{
    return (uint16_t)((rnd() & 0x8000) | (8 + rnd() % 4) << 10 | (rnd() & 0x3ff));
}

OWN void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v, p[1] = (uint8_t)(v >> 8);
}

OWN uint8_t *rnd_rows(tpl_dtype type, int64_t rows, int64_t cols)
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
OWN uint8_t *largest_rows(tpl_dtype type, int64_t rows, int64_t cols)
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

OWN double half_value(unsigned h)
{
    const int e = h >> 10 & 31, m = h & 1023;
    const double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -v : v;
}

OWN double half_of(const uint8_t *p)
{
    return half_value((unsigned)p[0] | (unsigned)p[1] << 8);
}

OWN double k45(const uint8_t *b, int e, const uint8_t *qh, const uint8_t *qs)
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

OWN double k6(const uint8_t *p, int e)
{
    const int n = e / 128, g = e % 128 / 32, l = e % 32, byte = p[64 * n + l + 32 * (g & 1)];
    const int q = ((g < 2 ? byte & 15 : byte >> 4) | (p[128 + 32 * n + l] >> 2 * g & 3) << 4) - 32;
    return half_of(p + 208) * (int8_t)p[192 + 8 * n + 2 * g + l / 16] * q;
}

OWN int nibble(const uint8_t *qs, int e)
{
    return e < 16 ? qs[e] & 15 : qs[e - 16] >> 4;
}

OWN int nibble5(const uint8_t *qs, const uint8_t *qh, int e)
{
    return nibble(qs, e) | (qh[e / 8] >> (e % 8) & 1) << 4;
}

/* Element i of a file row, as an exact number. */
OWN double element(tpl_dtype type, const uint8_t *row, int64_t i)
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

OWN void add_file(problem *p, tpl_dtype type, int64_t rows, uint8_t *file)
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

OWN void add_weight(problem *p, tpl_dtype type, int64_t rows)
{
    add_file(p, type, rows, rnd_rows(type, rows, p->cols));
}

OWN void free_problem(problem *p)
{
    for (int i = 0; i < p->n_w; i++) {
        tpl_mem_free((void *)(uintptr_t)p->w[i].data);
        free(p->file[i]);
        free(p->exact[i]);
    }
}

OWN tpl_view view_of(void *data, tpl_act act, int64_t cols)
{
    return (tpl_view){ data, act,  TPL_SYM_TOK,
                       1,    cols, tpl_row_bytes(act, cols) };
}

/* Runs a bound op for T rows as nth members one after the other (no op here has a barrier inside). */
OWN void run_op(const tpl_bound *op, int T, int nth)
{
    tpl_step step = { .n_tok = T, .pad_tok = T };
    void *scratch = tpl_mem_alloc(TPL_CPU_SCRATCH_BYTES);
    for (int i = 0; i < nth; i++) {
        const tpl_op_ctx ctx = { i, nth, &step, NULL, scratch };
        op->run(&ctx, op);
    }
    tpl_mem_free(scratch);
}

OWN int64_t odd_cols(tpl_dtype type, int i)
{
    static const int64_t plain[] = { 1, 7, 40, 129 }, small[] = { 32, 96, 160, 576 },
                         big[] = { 256, 512, 768, 256 };
    const uint32_t n = tpl_dtypes[type].n_elem;
    return (n == 1 ? plain : n == 32 ? small : big)[i];
}

#endif
