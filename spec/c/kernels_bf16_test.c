/* SPDX-License-Identifier: Apache-2.0
 *
 * The bf16 ways of linear by themselves, so that both are tested on every machine with AVX-512 BF16, whichever linear
 * would choose there: the AMX source on emulated tiles (amx_emulated.h), and the vdpbf16ps source. Expanded panels
 * against exact elements of the unpacked panel, products against sums in double precision, a row's bits against
 * those of the row alone.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512cd,avx512bf16,avx2,fma,f16c,bmi2")
#include <immintrin.h>

#include "amx_emulated.h"
#define tpl_lin_bf16_amx emulated
#include "kernels/cpu/linear_bf16_amx.c"
#undef tpl_lin_bf16_amx
#pragma GCC pop_options

#include "base/mem.h"

static uint64_t state = 2463534242ull;

static uint32_t rnd(void) /* xorshift64* */
{
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (uint32_t)(state * 2685821657736338717ull >> 32);
}

static float bf16_value(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* Small numbers with 8 significant bits. */
static uint16_t rnd_bf16(void)
{
    return (uint16_t)((rnd() & 0x8000) | (0x3d80 + rnd() % 0x200));
}

/* Random bytes, scales and plain elements of moderate size. */
static uint8_t *random_panel(tpl_dtype type, int64_t cols)
{
    const size_t bytes = tpl_panel_bytes(type, cols), block = tpl_dtypes[type].n_bytes * TPL_PANEL_ROWS;
    uint8_t *panel = tpl_mem_alloc(bytes);
    for (size_t i = 0; i < bytes; i++) panel[i] = (uint8_t)rnd();
    const bool is_plain = tpl_dtypes[type].n_elem == 1;
    if (type == TPL_DTYPE_F32 || type == TPL_DTYPE_BF16)
        for (size_t i = 0; i < bytes / (type == TPL_DTYPE_F32 ? 4 : 2); i++)
            memcpy(panel + (type == TPL_DTYPE_F32 ? 4 * i + 2 : 2 * i), &(uint16_t){ rnd_bf16() }, 2);
    else
        for (size_t b = 0; b < bytes; b += is_plain ? 32 : block)
            for (int i = 0; i < (is_plain || type == TPL_DTYPE_Q4_0 || type == TPL_DTYPE_Q5_0 || type == TPL_DTYPE_Q8_0 || type == TPL_DTYPE_Q6_K ? 16 : 32); i++)
                panel[b + 2 * (size_t)i + 1] = (uint8_t)((panel[b + 2 * (size_t)i + 1] & 0x83) | 0x28);
    return panel;
}

static void check_expand(const tpl_lin_bf16 *way, tpl_dtype type, int64_t cols)
{
    const int64_t whole = (cols + 31) / 32 * 32;
    uint8_t *panel = random_panel(type, cols);
    uint16_t *out = tpl_mem_alloc((size_t)whole * 32);
    float *row = malloc((size_t)cols * sizeof *row);
    const tpl_weight w = { "w", type, TPL_PANEL_ROWS, cols, panel };
    const int64_t half = whole / 64 * 32; /* in two parts, as long rows are */
    if (half % tpl_dtypes[type].n_elem == 0 || tpl_dtypes[type].n_elem == 1) {
        way->expand(type, panel, cols, 0, half, out);
        way->expand(type, panel, cols, half, whole, out + half * 16);
    } else {
        way->expand(type, panel, cols, 0, whole, out);
    }
    for (int r = 0; r < TPL_PANEL_ROWS; r++) {
        tpl_unpack_row(&w, r, row);
        for (int64_t k = 0; k < whole; k++) {
            const float got = bf16_value(out[k / 2 * 32 + 2 * r + k % 2]), want = k < cols ? row[k] : 0;
            assert_true(fabsf(got - want) <= 0x1p-8f * fabsf(want));
        }
    }
    tpl_mem_free(panel), tpl_mem_free(out), free(row);
}

/* rows of x times one or two panels of ready pairs, with and without earlier sums. */
static void check_multiply(const tpl_lin_bf16 *way, int rows, int panels, int64_t cols)
{
    const size_t xstride = tpl_bf16_row_bytes(cols);
    uint16_t *x = tpl_mem_alloc(xstride * (size_t)rows), *w[2];
    float *y[2], *alone[2], *first = tpl_mem_alloc(TPL_BF16_BLOCK * 64);
    for (size_t i = 0; i < xstride / 2 * (size_t)rows; i++) x[i] = rnd_bf16();
    for (int i = 0; i < TPL_BF16_BLOCK * 16; i++) first[i] = bf16_value(rnd_bf16());
    for (int p = 0; p < 2; p++) {
        w[p] = tpl_mem_alloc((size_t)cols * 32), y[p] = tpl_mem_alloc((size_t)rows * 128), alone[p] = tpl_mem_alloc(128);
        for (int64_t i = 0; i < cols * 16; i++) w[p][i] = rnd_bf16();
    }
    const uint8_t *const at[2] = { (uint8_t *)w[0], panels == 2 ? (uint8_t *)w[1] : NULL };
    const size_t stride[2] = { 128, 128 };
    for (int add = 0; add < 2; add++) {
        for (int p = 0; p < panels; p++)
            for (int t = 0; t < rows; t++) memcpy(y[p] + 32 * t, first + 16 * t, 64);
        way->begin(rows);
        way->multiply(at, panels, cols, x, xstride, rows, y, stride, add);
        for (int t = 0; t < rows; t++) {
            for (int p = 0; p < panels; p++) memcpy(alone[p], first + 16 * t, 64);
            way->begin(1);
            way->multiply(at, panels, cols, (char *)x + (size_t)t * xstride, xstride, 1, alone, stride, add);
            for (int p = 0; p < panels; p++) {
                assert_memory_equal(alone[p], y[p] + 32 * t, 64);
                for (int r = 0; r < 16; r++) {
                    double sum = add ? first[16 * t + r] : 0, size = fabs(sum);
                    for (int64_t k = 0; k < cols; k++) {
                        const double v = (double)bf16_value(x[(size_t)t * xstride / 2 + (size_t)k]) *
                                         bf16_value(w[p][k / 2 * 32 + 2 * r + k % 2]);
                        sum += v, size += fabs(v);
                    }
                    assert_true(fabs(y[p][32 * t + r] - sum) <= 4e-6 * size);
                }
            }
        }
        way->end();
    }
    tpl_mem_free(x), tpl_mem_free(first);
    for (int p = 0; p < 2; p++) tpl_mem_free(w[p]), tpl_mem_free(y[p]), tpl_mem_free(alone[p]);
}

static void check_way(const tpl_lin_bf16 *way)
{
    static const tpl_dtype types[] = {
#define X(id, name) TPL_DTYPE_##id,
        TPL_LIN_TYPES(X)
#undef X
    };
    static const int64_t plain[] = { 1, 2, 33, 64, 129 }, blocks[] = { 32, 96, 160, 64, 320 };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int c = 0; c < 5; c++) {
            const uint32_t n = tpl_dtypes[types[i]].n_elem;
            check_expand(way, types[i], n == 1 ? plain[c] : n == 32 ? blocks[c] : 256 * (c + 1));
        }
    for (int rows = 1; rows <= TPL_BF16_BLOCK; rows++)
        for (int panels = 1; panels <= 2; panels++) check_multiply(way, rows, panels, rows % 2 ? 32 : 352);
}

static bool has_avx512_bf16(void)
{
    return tpl_isa_usable(TPL_ISA_AVX512) && __builtin_cpu_supports("avx512bf16");
}

static void test_emulated_amx(void **unused)
{
    if (!has_avx512_bf16()) skip(); /* the AMX source converts with AVX-512 BF16 */
    check_way(&emulated);
}

static void test_avx512bf16(void **unused)
{
    if (!has_avx512_bf16()) skip();
    check_way(&tpl_lin_bf16_avx512bf16);
}

static void test_amx(void **unused)
{
    if (!tpl_isa_usable(TPL_ISA_AMX)) skip();
    extern const tpl_lin_bf16 tpl_lin_bf16_amx;
    check_way(&tpl_lin_bf16_amx);
}
#else
static void test_emulated_amx(void **unused) { skip(); }
static void test_avx512bf16(void **unused) { skip(); }
static void test_amx(void **unused) { skip(); }
#endif

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_emulated_amx), cmocka_unit_test(test_avx512bf16),
                                        cmocka_unit_test(test_amx) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
