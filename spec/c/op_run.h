/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of single ops: random data, steps, and running a bound op on a team of real threads with the
 * backend's scratch memory. Each test executable includes it once.
 */
#ifndef TPL_SPEC_OP_RUN_H
#define TPL_SPEC_OP_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/team.h"
#include "kernels/cpu/cpu_ops.h"

enum { MAX_NTH = 3 };

#define OWN static __attribute__((unused))

/* -- Random data ---- */

static uint64_t rng_state = 1;

OWN uint32_t rng(void)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33);
}

OWN int below(int n) { return (int)(rng() % (uint32_t)n); }
OWN float uniform(void) { return (float)rng() / 2147483648.0f; }
/* Random, with deviation `by`. */
OWN float spread(float by)
{
    return (uniform() + uniform() + uniform() - 1.5f) * 2 * by;
}

OWN float *random_floats(int64_t n, float by)
{
    float *x = aligned_alloc(64, (size_t)(n * 4 + 127) / 64 * 64);
    for (int64_t i = 0; i < n; i++) x[i] = spread(by);
    return x;
}

OWN float *copy_floats(const float *x, int64_t n)
{
    float *y = aligned_alloc(64, (size_t)(n * 4 + 127) / 64 * 64);
    memcpy(y, x, (size_t)n * 4);
    return y;
}

OWN void assert_near(const float *x, const double *want, int64_t n, double tolerance)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(x[i] - want[i]) <= tolerance * (1 + fabs(want[i]))))
            fail_msg("element %lld is %.9g, expected %.9g", (long long)i, x[i], want[i]);
}

/* -- Running an op ---- */

typedef struct job {
    tpl_op_ctx ctx;
    const tpl_bound *op;
} job;

OWN void *run_job(void *arg)
{
    job *j = arg;
    j->op->run(&j->ctx, j->op);
    return NULL;
}

static char *scratch[MAX_NTH];

OWN void free_scratch(void)
{
    for (int i = 0; i < MAX_NTH; i++) free(scratch[i]);
}

OWN void run_op(const tpl_bound *op, const tpl_step *step, int nth)
{
    tpl_team *team;
    job jobs[MAX_NTH];
    pthread_t threads[MAX_NTH];
    assert_int_equal(tpl_team_new(&team, nth, 0, NULL, NULL), TPL_OK);
    for (int i = 0; i < nth; i++) {
        if (!scratch[i]) scratch[i] = aligned_alloc(64, tpl_backend_cpu()->scratch_bytes);
        memset(scratch[i], 0x7f, 4096);
        jobs[i] = (job){ { i, nth, step, team, scratch[i] }, op };
        if (i) assert_int_equal(pthread_create(&threads[i], NULL, run_job, &jobs[i]), 0);
    }
    run_job(&jobs[0]);
    for (int i = 1; i < nth; i++) pthread_join(threads[i], NULL);
    tpl_team_free(team);
}

OWN void bind_op(tpl_isa isa, tpl_bound *op)
{
    tpl_err err = { 0 };
    op->name = "test";
    if (tpl_backend_cpu()->bind(isa, op, &err)) fail_msg("%s", err.msg);
}

/* AMX differs from AVX-512 in attention of many rows only (kernels_rest_test.c). */
#define FOR_ISA(isa) \
    for (tpl_isa isa = TPL_ISA_PORTABLE; isa < TPL_N_ISAS; isa++) \
        if (isa != TPL_ISA_AMX && tpl_isa_usable(isa))

OWN tpl_view view(void *data, tpl_sym sym, int div, int64_t cols)
{
    return (tpl_view){ data, TPL_ACT_F32, sym, (uint32_t)div, cols, (size_t)cols * 4 };
}

OWN tpl_view toks(void *data, int64_t cols) { return view(data, TPL_SYM_TOK, 1, cols); }

OWN tpl_step *new_step(int n_tok, int n_seq, int n_out, int vocab, int logit_rows, int top, int pages,
                       int pool)
{
    tpl_step_caps cap = { (uint32_t)n_tok, (uint32_t)n_seq,      (uint32_t)n_out, (uint32_t)pages,
                          (uint32_t)pool,  (uint32_t)logit_rows, (uint32_t)vocab, (uint32_t)top };
    tpl_step *s = aligned_alloc(64, (tpl_step_bytes(&cap) + 63) / 64 * 64);
    memset(s, 0, tpl_step_bytes(&cap));
    tpl_step_init(s, &cap);
    s->n_tok = s->pad_tok = n_tok;
    s->n_out = s->pad_out = n_out;
    s->n_seq = n_seq;
    return s;
}

#endif
