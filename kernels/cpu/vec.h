/* SPDX-License-Identifier: Apache-2.0
 *
 * One vector register of floats, in GCC's vector extension, as wide as the instruction set of the including
 * file: the ops other than matrix products are written once, in .inc files, and compiled for each set. The
 * including file defines VEC_ISA (portable, avx2, avx512, neon) first; FN(name) is then name_<isa>. NEON is in
 * the base line of aarch64, so its files say VEC_NEON themselves: portable stays plain C there too, and gives
 * the bits that it gives on x86-64. Everything here is static and stateless.
 *
 * Halves are IEEE binary16; conversions are exact upwards and round to nearest even downwards, in hardware
 * or not.
 */
#ifndef TPL_KERNELS_CPU_VEC_H
#define TPL_KERNELS_CPU_VEC_H

#include <stdint.h>
#include <string.h>

#define VEC_CAT_(a, b) a##_##b
#define VEC_CAT(a, b) VEC_CAT_(a, b)
#define FN(name) VEC_CAT(name, VEC_ISA)

#if defined(__AVX512F__)
#include <immintrin.h>
#define VW 16 /* lanes */
#define VN 4  /* registers side by side in a register tile: 4 rows of them need 5 * VN + 1 registers */
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#define VEC_AVX2 1
#define VW 8
#define VN 2
#elif defined(VEC_NEON)
#include <arm_neon.h>
#define VW 4
#define VN 4
#else
#define VW 4
#define VN 2
#endif

#define VEC_INLINE static inline __attribute__((always_inline, unused))

typedef float vf __attribute__((vector_size(VW * 4)));
typedef int32_t vi __attribute__((vector_size(VW * 4)));
/* for memory of any alignment */
typedef float vf_loose __attribute__((vector_size(VW * 4), aligned(4), may_alias));

VEC_INLINE vf vf_load(const float *p) { return *(const vf_loose *)p; }
VEC_INLINE void vf_store(float *p, vf x) { *(vf_loose *)p = x; }
VEC_INLINE vf vf_set(float x) { return x - (vf){0}; } /* x - 0 keeps -0 */
VEC_INLINE vi vi_set(int32_t x) { return x - (vi){0}; }
VEC_INLINE vf vf_pick(vi mask, vf yes, vf no) { return (vf)(((vi)yes & mask) | ((vi)no & ~mask)); }

VEC_INLINE vf vf_fma(vf a, vf b, vf c)
{
#if defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(VEC_AVX2)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(VEC_NEON)
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

/* a > b ? a : b, so b where either is NaN. */
VEC_INLINE vf vf_max(vf a, vf b)
{
#if defined(__AVX512F__)
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(VEC_AVX2)
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return vf_pick((vi)(a > b), a, b);
#endif
}

/* a < b ? a : b, so b where either is NaN. */
VEC_INLINE vf vf_min(vf a, vf b)
{
#if defined(__AVX512F__)
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(VEC_AVX2)
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return vf_pick((vi)(a < b), a, b);
#endif
}

/* Sum and maximum of the lanes, halves folded onto each other. */
VEC_INLINE float vf_sum(vf x)
{
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)x);
#else
    float t[VW];
    memcpy(t, &x, sizeof t);
    for (int w = VW / 2; w; w /= 2)
        for (int i = 0; i < w; i++) t[i] += t[i + w];
    return t[0];
#endif
}

VEC_INLINE float vf_hmax(vf x)
{
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)x);
#else
    float t[VW];
    memcpy(t, &x, sizeof t);
    for (int w = VW / 2; w; w /= 2)
        for (int i = 0; i < w; i++) t[i] = t[i] > t[i + w] ? t[i] : t[i + w];
    return t[0];
#endif
}

/* 0, 1, 2, .. */
VEC_INLINE vi vi_iota(void)
{
#if VW == 16
    return (vi){ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
#elif VW == 8
    return (vi){ 0, 1, 2, 3, 4, 5, 6, 7 };
#else
    return (vi){ 0, 1, 2, 3 };
#endif
}

/* exp(x): 0 below -87 (no denormals come out), 2.2e38 above 88.3, NaN stays NaN. Cody-Waite reduction to
 * |r| <= ln(2) / 2 and exp(r) = 1 + r + r^2 q(r), q of degree 4 by an own Remez fit (relative error 3.7e-9
 * with these rounded coefficients; the result is within 1.5 units in the last place,
 * spec/c/kernels_rest_test.c). ln(2) = hi + lo, hi short enough for n * hi to be exact. */
VEC_INLINE vf vf_exp(vf x)
{
    const vf magic = vf_set(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
    vf y = vf_min(vf_set(88.3f), x);
    vf t = vf_fma(y, vf_set(1.44269504f), magic);
    vf n = t - magic;
    vf r = vf_fma(n, vf_set(-0.693359375f), y);
    r = vf_fma(n, vf_set(2.12194440e-4f), r);
    vf q = vf_fma(vf_set(0x1.6a23d0p-10f), r, vf_set(0x1.123a20p-7f));
    q = vf_fma(q, r, vf_set(0x1.5558f2p-5f));
    q = vf_fma(q, r, vf_set(0x1.555492p-3f));
    q = vf_fma(q, r, vf_set(0x1.fffffcp-2f));
    vf p = vf_fma(q, r * r, r) + 1.0f;
    vf two_n = (vf)(((vi)t << 23) + 0x3f800000);
    return (vf)((vi)(p * two_n) & ~(vi)(x < -87.0f));
}

/* -- Halves ---- */

VEC_INLINE float vec_from_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, bits = (uint32_t)(h & 0x7fff) << 13;
    float f;
    memcpy(&f, &bits, 4);
    f *= 0x1p112f; /* moves the exponent's bias, and makes denormals normal */
    memcpy(&bits, &f, 4);
    if ((h & 0x7c00) == 0x7c00) bits = 0x7f800000u | (uint32_t)(h & 0x3ff) << 13;
    bits |= sign;
    memcpy(&f, &bits, 4);
    return f;
}

VEC_INLINE uint16_t vec_to_half(float f)
{
    uint32_t bits, sign;
    memcpy(&bits, &f, 4);
    sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (bits >> 13 & 0x1ff)); /* NaN, made quiet */
    if (bits >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 rounds to infinity */
    if (bits < 0x38800000) {
        /* below 2^-14: adding 0.5 rounds to multiples of 2^-24, the step of half denormals */
        float a;
        memcpy(&a, &bits, 4);
        a += 0.5f;
        memcpy(&bits, &a, 4);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    bits += 0xfff + (bits >> 13 & 1); /* to nearest, ties to even */
    return (uint16_t)(sign | ((bits >> 13) - (112 << 10)));
}

VEC_INLINE vf vf_load_half(const uint16_t *p)
{
#if defined(__AVX512F__)
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif defined(VEC_AVX2)
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#elif defined(VEC_NEON)
    return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
#else
    typedef uint16_t halves __attribute__((vector_size(VW * 2), aligned(2), may_alias));
    vi h = __builtin_convertvector(*(const halves *)p, vi), bits = (h & 0x7fff) << 13;
    vi is_top = (vi)((h & 0x7c00) == 0x7c00); /* infinities and NaN: see vec_from_half */
    vf x = vf_pick(is_top, (vf)(bits | 0x7f800000), (vf)bits * 0x1p112f);
    return (vf)((vi)x | (h & 0x8000) << 16);
#endif
}

VEC_INLINE void vf_store_half(uint16_t *p, vf x)
{
#if defined(__AVX512F__)
    __m256i h = _mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256((__m256i *)p, h);
#elif defined(VEC_AVX2)
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT));
#elif defined(VEC_NEON)
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)x)));
#else
    for (int i = 0; i < VW; i++) p[i] = vec_to_half(x[i]);
#endif
}

/* -- Transposing ---- */

/* Pairs of floats from the low or high half of each 128-bit lane of a and b: a0 b0 a1 b1, a2 b2 a3 b3; then
 * the same of pairs. */
#if VW == 16
#define VEC_LO 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define VEC_HI 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define VEC_LO2 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define VEC_HI2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#elif VW == 8
#define VEC_LO 0, 8, 1, 9, 4, 12, 5, 13
#define VEC_HI 2, 10, 3, 11, 6, 14, 7, 15
#define VEC_LO2 0, 1, 8, 9, 4, 5, 12, 13
#define VEC_HI2 2, 3, 10, 11, 6, 7, 14, 15
#else
#define VEC_LO 0, 4, 1, 5
#define VEC_HI 2, 6, 3, 7
#define VEC_LO2 0, 1, 4, 5
#define VEC_HI2 2, 3, 6, 7
#endif
#if defined(__clang__) || __GNUC__ >= 12
#define VEC_MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define VEC_MIX(a, b, ...) __builtin_shuffle(a, b, (vi){ __VA_ARGS__ })
#endif

/* x[0..3] are VW elements of four rows. Stores element e of the four rows as four floats at dst + e * ld. */
VEC_INLINE void vf_store_transposed(const vf x[4], float *dst, int64_t ld)
{
    vf a = VEC_MIX(x[0], x[1], VEC_LO), b = VEC_MIX(x[2], x[3], VEC_LO);
    vf c = VEC_MIX(x[0], x[1], VEC_HI), d = VEC_MIX(x[2], x[3], VEC_HI);
    vf r[4] = { VEC_MIX(a, b, VEC_LO2), VEC_MIX(a, b, VEC_HI2), VEC_MIX(c, d, VEC_LO2),
                VEC_MIX(c, d, VEC_HI2) };
    for (int i = 0; i < 4; i++) { /* each 128-bit lane now holds one element of the four rows */
#if VW == 16
        _mm_storeu_ps(dst + i * ld, _mm512_castps512_ps128((__m512)r[i]));
        _mm_storeu_ps(dst + (4 + i) * ld, _mm512_extractf32x4_ps((__m512)r[i], 1));
        _mm_storeu_ps(dst + (8 + i) * ld, _mm512_extractf32x4_ps((__m512)r[i], 2));
        _mm_storeu_ps(dst + (12 + i) * ld, _mm512_extractf32x4_ps((__m512)r[i], 3));
#elif VW == 8
        _mm_storeu_ps(dst + i * ld, _mm256_castps256_ps128((__m256)r[i]));
        _mm_storeu_ps(dst + (4 + i) * ld, _mm256_extractf128_ps((__m256)r[i], 1));
#else
        vf_store(dst + i * ld, r[i]);
#endif
    }
}

#endif
