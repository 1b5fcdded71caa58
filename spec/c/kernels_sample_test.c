/* SPDX-License-Identifier: Apache-2.0
 *
 * The op `sample` and the functions behind it (kernels/sampler.h). Expected values: cases worked by hand,
 * and sorting in double precision. spec/kernels/sampler_spec.lua compares the same functions with
 * transformers.
 */
#include "op_run.h"

#include "kernels/cpu/sample.h"

enum { VOCAB = 1000 };

static const tpl_sampling neutral = { .top_p = 1, .repetition = 1 };

/* n output rows, one a sequence. */
static tpl_step *sample_step(int n, uint32_t flags)
{
    tpl_step *s = new_step(n, n, n, VOCAB, n, 5, 1, 1000);
    for (int i = 0; i < n; i++) {
        tpl_step_out(s)[i] = tpl_step_out_seq(s)[i] = i;
        tpl_step_pos(s)[i] = 10 * i;
        tpl_step_seqs(s)[i] = (tpl_step_seq){ .slot = i, .out0 = i, .n_out = 1, .flags = flags };
        tpl_step_sampling(s)[i] = neutral;
    }
    return s;
}

static void run_sample(tpl_isa isa, const tpl_step *s, float *logits, int nth)
{
    tpl_bound op = { .kind = TPL_OP_ID_SAMPLE, .n_in = 1, .in = { view(logits, TPL_SYM_OUT, 1, VOCAB) } };
    bind_op(isa, &op);
    run_op(&op, s, nth);
}

static double log_softmax(const float *z, int id)
{
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < VOCAB; i++) top = fmax(top, z[i]);
    for (int i = 0; i < VOCAB; i++) sum += exp(z[i] - top);
    return z[id] - top - log(sum);
}

static void check_sweeps(const tpl_row_code *code, int n)
{
    float *z = random_floats(n, 4);
    if (n > 3) z[n / 2] = z[n - 1] = z[1] = 9.5f;
    for (int i = 2; i < n; i += 7) z[i] = -INFINITY;
    tpl_row_stats stats;
    int best = 0;
    for (int i = 0; i < n; i++) best = z[i] > z[best] ? i : best;
    code->stats(z, n, &stats);
    assert_int_equal(stats.best, best);
    assert_true(stats.max == z[best] && !stats.has_bad);
    double want = 0;
    for (int i = 0; i < n; i++) want += z[i] >= -2 ? exp((z[i] - z[best]) * 0.7) : 0;
    assert_true(fabs(code->sum_exp(z, n, stats.max, -2, 0.7f) - want) <= 1e-6 * want);
    int64_t at = code->seek(z, 0, n, z[n - 1]);
    for (int i = 0; i < at; i++) assert_true(z[i] < z[n - 1]);
    assert_true(at < n && at % TPL_ROW_BLOCK == 0);
    assert_true(code->seek(z, 0, n, 1000) >= n / TPL_ROW_BLOCK * TPL_ROW_BLOCK);
    for (int i = 0; i < n; i += 1 + n / 50) { /* a bad logit anywhere shows */
        float keep = z[i];
        z[i] = i % 2 ? NAN : INFINITY;
        code->stats(z, n, &stats);
        assert_true(stats.has_bad);
        z[i] = keep;
    }
    free(z);
}

static void test_sample_sweeps(void **state)
{
    (void)state;
    static const int lengths[] = { 1, 5, 16, 127, 128, 129, 1000, 1024, 5003 };
    for (int i = 0; i < 9; i++) {
        check_sweeps(&tpl_row_code_portable, lengths[i]);
#if TPL_CPU_X86
        if (tpl_isa_usable(TPL_ISA_AVX2)) check_sweeps(&tpl_row_code_avx2, lengths[i]);
        if (tpl_isa_usable(TPL_ISA_AVX512)) check_sweeps(&tpl_row_code_avx512, lengths[i]);
#endif
#if TPL_CPU_ARM
        check_sweeps(&tpl_row_code_neon, lengths[i]);
#endif
    }
}

static void test_sample_greedy(void **state)
{
    (void)state;
    enum { N = 6 };
    float *z = random_floats(N * VOCAB, 3);
    for (int i = 0; i < 40; i++) z[i * 3] = -INFINITY;
    z[17] = z[400] = 30;                               /* row 0: a tie */
    z[2 * VOCAB + 999] = 31, z[2 * VOCAB + 3] = 30.5f; /* row 2: 999 is best, but penalised */
    z[3 * VOCAB + 5] = NAN;
    for (int i = 0; i < VOCAB; i++) z[4 * VOCAB + i] = -INFINITY;
    FOR_ISA(isa)
        for (int nth = 1; nth <= MAX_NTH; nth++) {
            tpl_step *s = sample_step(N, TPL_SEQ_SAMPLE);
            tpl_step_seqs(s)[1].flags |= TPL_SEQ_LOGITS;
            tpl_step_seqs(s)[2].flags |= TPL_SEQ_LOGITS;
            tpl_step_seqs(s)[5].flags = TPL_SEQ_LOGITS;
            tpl_step_out_seq(s)[4] = nth == 2 ? -1 : 4;
            tpl_sampling *p = tpl_step_sampling(s) + 2;
            p->repetition = 1.2f;
            p->n_prior = 2;
            p->n_logprobs = 3;
            tpl_step_pool(s)[0] = 999, tpl_step_pool(s)[1] = 5000;
            float *logits = copy_floats(z, N * VOCAB);
            run_sample(isa, s, logits, nth);
            const int32_t *tok = tpl_step_res_tok(s);
            assert_int_equal(tok[0], 17);
            assert_int_equal(tok[2], 3);
            assert_int_equal(tok[3], -2);
            assert_int_equal(tok[4], nth == 2 ? -1 : -2);
            assert_int_equal(tok[5], -1);
            double want[3] = { log_softmax(z, 17), log_softmax(z + VOCAB, tok[1]),
                               log_softmax(z + 2 * VOCAB, 3) };
            assert_near(tpl_step_res_logprob(s), want, 3, 1e-6);
            assert_memory_equal(tpl_step_logits(s), z + VOCAB, 2 * VOCAB * 4); /* the n-th row that asked */
            assert_memory_equal(tpl_step_logits(s) + 2 * VOCAB, z + 5 * VOCAB, VOCAB * 4);
            const int32_t *top = tpl_step_res_top_id(s) + 2 * 5;
            assert_int_equal(top[0], 999);
            assert_int_equal(top[1], 3);
            assert_int_equal(top[3], -1);
            double lp[2] = { log_softmax(z + 2 * VOCAB, 999), log_softmax(z + 2 * VOCAB, 3) };
            assert_near(tpl_step_res_top_logprob(s) + 2 * 5, lp, 2, 1e-6);
            free(logits), free(s);
        }
    free(z);
}

/* The penalties by hand: z = 2, 2, 2, -1 with prompt {0, 3} and output {1, 1, 3}. */
static void test_sample_edits(void **state)
{
    (void)state;
    float z[4] = { 2, 2, 2, -1 }, five = 5;
    const uint32_t pool[] = { 7, 0, 3, 1, 1, 3, 2, 0 };
    uint32_t bias[8];
    memcpy(bias, pool, sizeof pool);
    memcpy(&bias[7], &five, 4);
    tpl_sampling p = { .repetition = 2,
                       .frequency = 0.25f,
                       .presence = 0.5f,
                       .prior0 = 1,
                       .n_prior = 5,
                       .n_prompt = 2,
                       .bias0 = 6,
                       .n_bias = 1 };
    tpl_sampler s;
    char *work = aligned_alloc(64, (tpl_sampler_work_bytes(4) + 63) / 64 * 64);
    tpl_sampler_init(&s, &tpl_row_code_portable, z, 4, work);
    tpl_sampler_edit(&s, &p, bias);
    const float want[4] = { 1, 0, 7, -2.75f }; /* 2/2; 2/2 - 2*.25 - .5; 2 + 5; -1*2 - .25 - .5 */
    assert_memory_equal(z, want, sizeof z);
    assert_true(tpl_sampler_raw(&s, 1) == 2 && tpl_sampler_raw(&s, 3) == -1 && tpl_sampler_raw(&s, 2) == 2);
    free(work);
}

static int by_logit(const void *a, const void *b, void *z)
{
    int x = *(const int *)a, y = *(const int *)b;
    const float *l = z;
    return l[x] != l[y] ? (l[x] > l[y] ? -1 : 1) : x - y;
}

/* What is left after top-k, top-p, min-p, by sorting. Returns false near an edge, where rounding decides. */
static bool want_kept(const float *z, const tpl_sampling *p, bool *kept)
{
    int ids[VOCAB], n = VOCAB;
    double prob[VOCAB], sum = 0, before = 0;
    for (int i = 0; i < VOCAB; i++) ids[i] = i, kept[i] = false;
    qsort_r(ids, VOCAB, sizeof *ids, by_logit, (void *)(uintptr_t)z);
    if (p->top_k > 0 && p->top_k < n)
        for (n = p->top_k; n < VOCAB && z[ids[n]] == z[ids[n - 1]];) n++;
    for (int i = 0; i < n; i++) sum += prob[i] = exp(((double)z[ids[i]] - z[ids[0]]) / p->temperature);
    for (int i = 0; i < n; i++) {
        if (fabs(before / sum - p->top_p) < 1e-5 || fabs(prob[i] - p->min_p) < 1e-5) return false;
        kept[ids[i]] = (before / sum < p->top_p || p->top_p >= 1) && prob[i] >= p->min_p;
        before += prob[i];
    }
    return true;
}

static void test_sample_kept(void **state)
{
    (void)state;
    static const float ts[] = { 0.3f, 1, 2.5f }, ps[] = { 1, 0.95f, 0.5f, 0.01f }, ms[] = { 0, 0.05f, 0.7f };
    static const int ks[] = { 0, 1, 5, 40, 900, 1000 };
    char *work = aligned_alloc(64, (tpl_sampler_work_bytes(VOCAB) + 63) / 64 * 64);
    int checked = 0;
    for (int round = 0; round < 400; round++) {
        float *z = random_floats(VOCAB, round % 4 == 3 ? 0.5f : 4);
        if (round % 4 == 1)
            for (int i = 0; i < VOCAB; i++) z[i] = roundf(z[i]); /* ties */
        if (round % 4 == 2)
            for (int i = 0; i < VOCAB; i += 2) z[i] = -INFINITY;
        tpl_sampling p = neutral;
        p.temperature = ts[below(3)], p.top_p = ps[below(4)], p.min_p = ms[below(3)], p.top_k = ks[below(6)];
        bool kept[VOCAB];
        if (want_kept(z, &p, kept)) {
            tpl_sampler s;
            tpl_row_stats stats;
            tpl_keep keep = tpl_keep_all();
            tpl_sampler_init(&s, &tpl_row_code_portable, z, VOCAB, work);
            s.code->stats(z, VOCAB, &stats);
            tpl_sampler_top_k(&s, stats.max, p.top_k, &keep);
            tpl_sampler_top_p(&s, stats.max, 1 / p.temperature, p.top_p, &keep);
            tpl_sampler_min_p(stats.max, 1 / p.temperature, p.min_p, &keep);
            int32_t ids[20];
            tpl_sampler_best(&s, 20, ids);
            for (int i = 1; i < 20; i++) assert_true(by_logit(&ids[i - 1], &ids[i], z) < 0);
            int n_better = 0;
            for (int i = 0; i < VOCAB; i++) n_better += by_logit(&i, &ids[19], z) < 0;
            assert_int_equal(n_better, 19);
            int64_t ties = keep.n_ties;
            for (int i = 0; i < VOCAB; i++) {
                bool is_kept = z[i] > keep.floor || (z[i] == keep.floor && ties-- > 0);
                if (is_kept != (kept[i] && z[i] > -INFINITY))
                    fail_msg("round %d: id %d, logit %g", round, i, z[i]);
            }
            checked++;
        }
        free(z);
    }
    assert_true(checked > 200);
    free(work);
}

/* Draws over 10,000 positions follow softmax(z / T) of what is kept: chi-square with 7 degrees of freedom,
 * 24.3 is its 0.1 % point. The seed is fixed, so this passes always or never. Other rows in the step,
 * threads and ISA do not change a draw. */
static void test_sample_draw(void **state)
{
    (void)state;
    enum { N = 50, ROUNDS = 200 };
    int hits[VOCAB] = { 0 };
    float *row = random_floats(VOCAB, 1), *z = calloc(N * VOCAB, 4);
    for (int i = 0; i < 8; i++) row[100 * i + 7] = 8 + 0.4f * (float)i;
    for (int round = 0; round < ROUNDS; round++) {
        tpl_step *s = sample_step(N, TPL_SEQ_SAMPLE);
        for (int i = 0; i < N; i++) {
            tpl_step_pos(s)[i] = round * N + i;
            tpl_step_sampling(s)[i] = (tpl_sampling){
                .temperature = 0.8f, .top_k = 8, .top_p = 1, .repetition = 1, .seed = 42, .request = 7
            };
            memcpy(z + i * VOCAB, row, VOCAB * 4);
        }
        run_sample(round % 2 ? tpl_isa_best() : TPL_ISA_PORTABLE, s, z, 1 + round % 2);
        for (int i = 0; i < N; i++) hits[tpl_step_res_tok(s)[i]]++;
        if (round == 5) { /* row 3 alone */
            int32_t tok = tpl_step_res_tok(s)[3];
            tpl_step *alone = sample_step(1, TPL_SEQ_SAMPLE);
            tpl_step_pos(alone)[0] = round * N + 3;
            tpl_step_sampling(alone)[0] = tpl_step_sampling(s)[3];
            run_sample(TPL_ISA_PORTABLE, alone, z, 1);
            assert_int_equal(tpl_step_res_tok(alone)[0], tok);
            free(alone);
        }
        free(s);
    }
    double sum = 0, chi = 0;
    for (int i = 0; i < 8; i++) sum += exp(row[100 * i + 7] / 0.8);
    for (int i = 0; i < 8; i++) {
        double want = exp(row[100 * i + 7] / 0.8) / sum * N * ROUNDS;
        chi += (hits[100 * i + 7] - want) * (hits[100 * i + 7] - want) / want;
    }
    assert_true(chi < 24.3 && chi > 0.6);
    free(row), free(z);
}

/* The draw is an argmax over all kept tokens of z / T + g: the shortcuts in it must not change the winner. */
static void test_sample_shortcuts(void **state)
{
    (void)state;
    char *work = aligned_alloc(64, (tpl_sampler_work_bytes(VOCAB) + 63) / 64 * 64);
    float *z = random_floats(VOCAB, 2);
    tpl_sampler s;
    tpl_row_stats stats;
    tpl_sampler_init(&s, &tpl_row_code_portable, z, VOCAB, work);
    s.code->stats(z, VOCAB, &stats);
    tpl_keep keep = tpl_keep_all();
    for (uint64_t pos = 0; pos < 300; pos++) {
        const uint64_t key = tpl_sampler_key(pos * 77, 3, pos);
        double best = -INFINITY;
        int want = -1;
        for (int i = 0; i < VOCAB; i++) { /* the hash as sampler.h states it */
            uint64_t x = key + ((uint64_t)i + 1) * 0x9e3779b97f4a7c15u;
            x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
            x = (x ^ x >> 27) * 0x94d049bb133111ebu;
            x ^= x >> 31;
            double score = z[i] / 1.5 - log(-log1p(-((double)(x >> 11) + 0.5) / 9007199254740992.0));
            if (score > best) best = score, want = i;
        }
        assert_int_equal(tpl_sampler_draw(&s, &stats, 1 / 1.5f, &keep, key), want);
    }
    free(work), free(z);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sample_greedy),    cmocka_unit_test(test_sample_edits),
        cmocka_unit_test(test_sample_kept),      cmocka_unit_test(test_sample_draw),
        cmocka_unit_test(test_sample_shortcuts), cmocka_unit_test(test_sample_sweeps),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    free_scratch();
    return rc;
}
