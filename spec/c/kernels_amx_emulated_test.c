/* SPDX-License-Identifier: Apache-2.0
 *
 * The AMX source of linear on emulated tiles (amx_emulated.h), so that it is tested on machines without
 * AMX too: 16 rows of random x times random panels must have the bits of the AVX-512 tile functions, which
 * kernels_matrix_test.c holds against an oracle. Skipped where there is no AVX-512.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512cd,avx2,fma,f16c,bmi2")
#include <immintrin.h>

#include "amx_emulated.h"
#define tpl_lin_wide_amx emulated_wide
#include "kernels/cpu/linear_q8_amx.c"
#undef tpl_lin_wide_amx
#pragma GCC pop_options

#include "base/mem.h"
#include "kernels/cpu/quant.h"

static uint64_t state = 2463534242ull;

static uint32_t rnd(void) /* xorshift64* */
{
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (uint32_t)(state * 2685821657736338717ull >> 32);
}

/* 16 q8 rows of random floats. */
static char *random_x(int64_t cols)
{
    const size_t stride = tpl_q8_row_bytes(cols);
    char *x = tpl_mem_alloc(stride * TPL_WIDE_ROWS);
    float *row = malloc((size_t)cols * sizeof *row);
    for (int t = 0; t < TPL_WIDE_ROWS; t++) {
        char *q = x + (size_t)t * stride;
        for (int64_t k = 0; k < cols; k++) row[k] = (float)((int32_t)rnd() * 0x1p-31);
        tpl_quant_blocks_portable(row, cols / 32, (int8_t *)q, (int8_t *)q + cols, tpl_q8_d(q, cols),
                                  tpl_q8_ds(q, cols));
    }
    free(row);
    return x;
}

/* Random bytes, except that the 16 or 32 half-precision scales in front of a block are of moderate size. */
static uint8_t *random_panel(tpl_dtype type, int64_t cols)
{
    const size_t size = tpl_panel_bytes(type, 32);
    const int halves = type == TPL_DTYPE_Q4_1 || type == TPL_DTYPE_Q5_1 ? 32 : 16;
    uint8_t *panel = tpl_mem_alloc(size * (size_t)(cols / 32));
    for (int64_t b = 0; b < cols / 32; b++) {
        uint8_t *p = panel + (size_t)b * size;
        for (size_t i = 0; i < size; i++) p[i] = (uint8_t)rnd();
        for (int i = 0; i < halves; i++) p[2 * i + 1] = (uint8_t)((p[2 * i + 1] & 0x83) | 0x28);
    }
    return panel;
}

static void check(tpl_dtype type, int64_t cols)
{
    const size_t stride = tpl_q8_row_bytes(cols), bytes = TPL_WIDE_ROWS * TPL_PANEL_ROWS * sizeof(float);
    char *x = random_x(cols);
    uint8_t *panel = random_panel(type, cols), *wide = tpl_mem_alloc((size_t)(cols / 32) * TPL_WIDE_BLOCK);
    float *scales_ = tpl_mem_alloc((size_t)(cols / 32) * TPL_WIDE_SCALES * sizeof(float));
    float *want = tpl_mem_alloc(bytes), *got = tpl_mem_alloc(bytes);
    void *work = tpl_mem_alloc(TPL_WIDE_WORK);
    tpl_lin_q8_avx512[type](panel, cols, x, stride, TPL_WIDE_ROWS, want);
    emulated_wide.begin();
    emulated_wide.expand(type, panel, cols, wide);
    emulated_wide.scales(x, stride, cols, scales_);
    emulated_wide.multiply(type, wide, cols, x, stride, scales_, work, got);
    emulated_wide.end();
    assert_memory_equal(got, want, bytes);
    tpl_mem_free(x), tpl_mem_free(panel), tpl_mem_free(wide), tpl_mem_free(scales_);
    tpl_mem_free(want), tpl_mem_free(got), tpl_mem_free(work);
}

static void test_emulated_amx(void **unused)
{
    static const tpl_dtype types[] = { TPL_DTYPE_Q4_0, TPL_DTYPE_Q4_1, TPL_DTYPE_Q5_0, TPL_DTYPE_Q5_1,
                                       TPL_DTYPE_Q8_0 };
    if (!tpl_isa_usable(TPL_ISA_AVX512)) skip();
    for (int i = 0; i < 5; i++)
        for (int64_t blocks = 1; blocks < 9; blocks++) check(types[i], 32 * blocks);
}
#else
static void test_emulated_amx(void **unused)
{
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_emulated_amx) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
