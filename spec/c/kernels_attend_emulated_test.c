/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention by AMX tiles on emulated ones (amx_emulated.h), so that it is tested on machines without AMX too, against a
 * plain softmax in double precision. Skipped where there is no AVX-512 BF16, with which the source converts.
 */
#include "kernels/cpu/cpu_ops.h"

#if TPL_CPU_X86
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512cd,avx512bf16,avx2,fma,f16c,bmi2")
#include <immintrin.h>

#include "amx_emulated.h"
#define tpl_attend_amx emulated_attend
#include "kernels/cpu/attend_amx.c"
#undef tpl_attend_amx
#undef VEC_ISA
#include "attend_case.h"

static void check(int kvh, int grp, int hd, int window)
{
    const chunk chunks[] = { { 0, 70 }, { 0, 17 }, { 20, 250 } };
    const int64_t width = kvh * grp * hd, n = 3 * MAX_LEN * width;
    att_case c = new_att(kvh, grp, hd, window, TPL_DTYPE_F16, 3);
    float *first = calloc((size_t)n, 4), *out = calloc((size_t)n, 4);
    double *want = calloc((size_t)hd, 8), worst = 0;
    attend_by = emulated_attend;
    run_attend(TPL_ISA_PORTABLE, &c, chunks, 16, 1, first);
    for (int s = 0; s < 3; s++)
        for (int pos = chunks[s].pos0; pos < chunks[s].pos0 + chunks[s].q_len; pos += 3)
            for (int h = 0; h < kvh * grp; h++) {
                want_attend(want, &c, s, pos, h);
                const float *got = first + (s * MAX_LEN + pos) * width + h * hd;
                assert_near(got, want, hd, 2e-2); /* factors have 8 bits: kernels_attend_test.c */
                for (int d = 0; d < hd; d++) worst = fmax(worst, fabs(got[d] - want[d]));
            }
    assert_true(worst > 1e-5);
    for (int nth = 2; nth <= MAX_NTH; nth++) {
        run_attend(TPL_ISA_PORTABLE, &c, chunks, nth == 2 ? 1 : 48, nth, out);
        assert_memory_equal(out, first, (size_t)n * 4);
    }
    free(first), free(out), free(want);
    free_att(&c);
}
#pragma GCC pop_options

static void test_emulated_attend(void **state)
{
    (void)state;
    if (!tpl_isa_usable(TPL_ISA_AVX512) || !__builtin_cpu_supports("avx512bf16")) skip();
    check(3, 3, 64, 0);
    check(1, 4, 80, 0);
    check(2, 2, 32, 100);
    check(1, 7, 20, 40);
}
#else
#include "op_run.h"

static void test_emulated_attend(void **state)
{
    (void)state;
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_emulated_attend) };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free_scratch();
    return failed;
}
