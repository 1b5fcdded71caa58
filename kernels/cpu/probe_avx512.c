/* SPDX-License-Identifier: Apache-2.0
 *
 * Probe loops for AVX-512: 16 chains per operation hide its latency. vdpbf16ps needs AVX512_BF16, asked of
 * CPUID here, because the avx512 level does without it. Any thread.
 */
#include <cpuid.h>
#include <immintrin.h>

#include "kernels/cpu/probe.h"

enum { CHAINS = 16, AHEAD = 1024 };

/* The compiler must neither fold the chains nor move them to memory. */
#define KEEP(x) __asm__ volatile("" : "+v"(x))

static uint64_t fold(__m512i x)
{
    uint64_t v[8], sum = 0; /* the reducing intrinsic adds as signed numbers, which may not overflow */
    _mm512_storeu_si512(v, x);
    for (int i = 0; i < 8; i++) sum += v[i];
    return sum;
}

static uint64_t read_all(const void *at, size_t bytes)
{
    const char *p = at, *end = p + bytes;
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    for (; p < end; p += 256) {
        for (int i = 0; i < 256; i += 64) __builtin_prefetch(p + AHEAD + i);
        a = _mm512_add_epi64(a, _mm512_load_si512(p));
        b = _mm512_add_epi64(b, _mm512_load_si512(p + 64));
        c = _mm512_add_epi64(c, _mm512_load_si512(p + 128));
        d = _mm512_add_epi64(d, _mm512_load_si512(p + 192));
    }
    return fold(_mm512_add_epi64(_mm512_add_epi64(a, b), _mm512_add_epi64(c, d)));
}

/* Unrolled everywhere, or the array of chains would live in memory. */
#define EACH_CHAIN _Pragma("GCC unroll 16") for (int i = 0; i < CHAINS; i++)

#define CHAIN_LOOP(step)               \
    for (int r = 0; r < rounds; r++) { \
        EACH_CHAIN                     \
        {                              \
            a[i] = step;               \
            KEEP(a[i]);                \
        }                              \
    }

static uint64_t f32_loop(int rounds)
{
    __m512 a[CHAINS];
    const __m512 x = _mm512_set1_ps(0.5f), y = _mm512_set1_ps(1.0f);
    EACH_CHAIN a[i] = y;
    CHAIN_LOOP(_mm512_fmadd_ps(a[i], x, y))
    __m512i sum = _mm512_setzero_si512();
    EACH_CHAIN sum = _mm512_add_epi64(sum, _mm512_castps_si512(a[i]));
    return fold(sum);
}

__attribute__((target("avx512bf16"))) static uint64_t bf16_loop(int rounds)
{
    __m512 a[CHAINS];
    const __m512bh x = (__m512bh)_mm512_set1_epi32(0x3f803f80);
    EACH_CHAIN a[i] = _mm512_setzero_ps();
    CHAIN_LOOP(_mm512_dpbf16_ps(a[i], x, x))
    __m512i sum = _mm512_setzero_si512();
    EACH_CHAIN sum = _mm512_add_epi64(sum, _mm512_castps_si512(a[i]));
    return fold(sum);
}

static uint64_t i8_loop(int rounds)
{
    __m512i a[CHAINS];
    const __m512i x = _mm512_set1_epi8(1);
    EACH_CHAIN a[i] = _mm512_setzero_si512();
    CHAIN_LOOP(_mm512_dpbusd_epi32(a[i], x, x))
    __m512i sum = _mm512_setzero_si512();
    EACH_CHAIN sum = _mm512_add_epi64(sum, a[i]);
    return fold(sum);
}

static int has_bf16(void)
{
    uint32_t a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & bit_AVX512BF16);
}

tpl_probe_loops tpl_probe_loops_avx512(void)
{
    return (tpl_probe_loops){ read_all,       f32_loop,        has_bf16() ? bf16_loop : NULL,
                              i8_loop,        CHAINS * 16 * 2, CHAINS * 32 * 2,
                              CHAINS * 64 * 2 };
}
