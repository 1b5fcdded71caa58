/* SPDX-License-Identifier: Apache-2.0
 *
 * Probe loops for AVX2 with FMA. There is no single instruction for dot products of bytes or bf16, so no
 * figure for them. Any thread.
 */
#include <immintrin.h>

#include "kernels/cpu/probe.h"

/* Every loop over the chains is unrolled, or their array would live in memory. */
enum { CHAINS = 12, AHEAD = 1024 };

static uint64_t fold(__m256i x)
{
    uint64_t v[4];
    _mm256_storeu_si256((__m256i *)(void *)v, x);
    return v[0] + v[1] + v[2] + v[3];
}

static uint64_t read_all(const void *at, size_t bytes)
{
    const char *p = at, *end = p + bytes;
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    for (; p < end; p += 128) {
        const __m256i *v = (const __m256i *)(const void *)p;
        __builtin_prefetch(p + AHEAD);
        __builtin_prefetch(p + AHEAD + 64);
        a = _mm256_add_epi64(a, _mm256_load_si256(v));
        b = _mm256_add_epi64(b, _mm256_load_si256(v + 1));
        c = _mm256_add_epi64(c, _mm256_load_si256(v + 2));
        d = _mm256_add_epi64(d, _mm256_load_si256(v + 3));
    }
    return fold(_mm256_add_epi64(_mm256_add_epi64(a, b), _mm256_add_epi64(c, d)));
}

static uint64_t f32_loop(int rounds)
{
    __m256 a[CHAINS];
    const __m256 x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(1.0f);
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++) a[i] = y;
    for (int r = 0; r < rounds; r++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) {
            a[i] = _mm256_fmadd_ps(a[i], x, y);
            __asm__ volatile("" : "+x"(a[i])); /* neither fold the chains nor move them to memory */
        }
    }
    __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++) sum = _mm256_add_epi64(sum, _mm256_castps_si256(a[i]));
    return fold(sum);
}

tpl_probe_loops tpl_probe_loops_avx2(void)
{
    return (tpl_probe_loops){ .read = read_all, .f32 = f32_loop, .f32_ops = CHAINS * 8 * 2 };
}
