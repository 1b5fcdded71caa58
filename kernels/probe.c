/* SPDX-License-Identifier: Apache-2.0
 *
 * The probe: a crew of threads runs each loop of its ISA (cpu/probe.h) in rounds between barriers, member 0
 * takes the time, the best round counts, because everything that disturbs a round makes it slower. Setup
 * only.
 */
#include "kernels/probe.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "base/time.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/probe.h"

enum { MAX_ROUNDS = 64, MIN_ROUNDS = 3, BARRIERS = 2000, MAX_THREADS = 1024 };
#define PROBE_BYTES ((size_t)512 << 20)
#define MIN_BYTES ((size_t)1 << 20)

typedef struct probe {
    tpl_probe_loops loops;
    tpl_team *team;
    char *buffer;
    size_t bytes;      /* per thread */
    int64_t budget_ns; /* per figure */
    _Atomic int more;  /* member 0's decision after each round */
    tpl_probe_result *out;
} probe;

typedef struct member {
    probe *p;
    int ith, nth;
    uint64_t sink;
} member;

/* -- Portable loops ---- */

static uint64_t read_portable(const void *at, size_t bytes)
{
    const uint64_t *p = at;
    uint64_t sum[8] = { 0 };
    for (size_t i = 0; i < bytes / 8; i += 8) {
        __builtin_prefetch(p + i + 128);
        for (int k = 0; k < 8; k++) sum[k] += p[i + (size_t)k];
    }
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

enum { CHAINS = 8, LANES = 4 };

static uint64_t f32_portable(int rounds)
{
    typedef float v4 __attribute__((vector_size(4 * LANES)));
    v4 a[CHAINS], x = (v4){ 0 } + 0.5f, y = (v4){ 0 } + 1.0f;
    for (int i = 0; i < CHAINS; i++) a[i] = y;
    for (int r = 0; r < rounds; r++) {
        __asm__ volatile("" : "+m"(x), "+m"(y)); /* the sums must be computed each round */
        const v4 s = x, t = y;
        for (int i = 0; i < CHAINS; i++) a[i] = a[i] * s + t;
    }
    float sum = 0;
    for (int i = 0; i < CHAINS; i++) sum += a[i][0] + a[i][1] + a[i][2] + a[i][3];
    return (uint64_t)sum;
}

static tpl_probe_loops loops_of(tpl_isa isa)
{
#if TPL_CPU_X86
    if (isa == TPL_ISA_AMX) return tpl_probe_loops_amx();
    if (isa == TPL_ISA_AVX512) return tpl_probe_loops_avx512();
    if (isa == TPL_ISA_AVX2) return tpl_probe_loops_avx2();
#endif
#if TPL_CPU_ARM
    if (isa == TPL_ISA_NEON) {
        tpl_probe_loops loops = tpl_probe_loops_neon();
        if (tpl_cpu_has_dotprod()) loops.i8 = tpl_probe_i8_dotprod, loops.i8_ops = TPL_PROBE_I8_DOTPROD_OPS;
        return loops;
    }
#endif
    (void)isa;
    return (tpl_probe_loops){ .read = read_portable, .f32 = f32_portable, .f32_ops = CHAINS * LANES * 2 };
}

/* -- Rounds ---- */

/* Runs body in rounds on all members until the budget is used up. Returns the shortest round's nanoseconds
 * (true for member 0 only), or 0 when the crew was aborted because a member could not be started. */
static int64_t rounds(member *m, void (*body)(member *m, int n), int n)
{
    probe *p = m->p;
    int64_t best = INT64_MAX, start = tpl_now_ns();
    for (int r = 0; r < MAX_ROUNDS; r++) {
        if (!tpl_team_barrier(p->team, m->ith)) return 0;
        const int64_t t0 = tpl_now_ns();
        body(m, n);
        if (!tpl_team_barrier(p->team, m->ith)) return 0;
        const int64_t now = tpl_now_ns();
        if (now - t0 < best) best = now - t0;
        if (m->ith == 0) p->more = r + 1 < MIN_ROUNDS || now - start < p->budget_ns;
        if (!tpl_team_barrier(p->team, m->ith)) return 0;
        if (!p->more) break;
    }
    return best > 0 ? best : 1;
}

static void body_read(member *m, int n)
{
    (void)n;
    m->sink += m->p->loops.read(m->p->buffer + (size_t)m->ith * m->p->bytes, m->p->bytes);
}
static void body_f32(member *m, int n)
{
    m->sink += m->p->loops.f32(n);
}
static void body_bf16(member *m, int n)
{
    m->sink += m->p->loops.bf16(n);
}
static void body_i8(member *m, int n)
{
    m->sink += m->p->loops.i8(n);
}
static void body_barrier(member *m, int n)
{
    for (int i = 0; i < n; i++) tpl_team_barrier(m->p->team, m->ith);
}

/* GFLOP/s of one arithmetic loop; a round takes a quarter of a millisecond to one. */
static double matrix(member *m, void (*body)(member *m, int n), int ops)
{
    const int n = 50000;
    const int64_t ns = ops ? rounds(m, body, n) : 0;
    return ns ? (double)ops * n * m->nth / (double)ns : 0;
}

static void member_main(void *arg)
{
    member *m = arg;
    const probe *p = m->p;
    tpl_probe_result r = { .read_bytes = p->bytes * (size_t)m->nth };
    memset(p->buffer + (size_t)m->ith * p->bytes, 1,
           p->bytes); /* by its reader, so that the pages are near it */
    const int64_t read_ns = rounds(m, body_read, 1);
    if (!read_ns) return;
    r.read_gb_s = (double)r.read_bytes / (double)read_ns;
    r.f32_gflop_s = matrix(m, body_f32, p->loops.f32_ops);
    r.bf16_gflop_s = matrix(m, body_bf16, p->loops.bf16 ? p->loops.bf16_ops : 0);
    r.i8_gflop_s = matrix(m, body_i8, p->loops.i8 ? p->loops.i8_ops : 0);
    r.barrier_us = m->nth > 1 ? (double)rounds(m, body_barrier, BARRIERS) / BARRIERS * 1e-3 : 0;
    if (m->ith == 0) *p->out = r;
}

static tpl_status run_crew(probe *p, int nth, tpl_abort *abort_word, tpl_err *err)
{
    member *members = calloc((size_t)nth, sizeof *members);
    tpl_thread **threads = calloc((size_t)nth, sizeof(tpl_thread *));
    tpl_status st = members && threads
                        ? TPL_OK
                        : tpl_fail(err, TPL_ERR_MEM, 0, "", "probe: out of memory for %d threads", nth);
    for (int i = 0; !st && i < nth; i++) {
        members[i] = (member){ p, i, nth, 0 };
        const tpl_thread_desc d = { .fn = member_main, .arg = &members[i], .name = "tpl-probe" };
        tpl_err why = { 0 };
        if (!(st = tpl_thread_start(&threads[i], &d, &why))) continue;
        tpl_abort_raise(abort_word, &why);
        tpl_fail(err, st, why.sys, "", "%s", why.msg);
    }
    for (int i = 0; threads && i < nth; i++) tpl_thread_join(threads[i]);
    free(members);
    free(threads);
    return st;
}

static size_t bytes_per_thread(size_t bytes, int nth)
{
    const uint64_t available = tpl_mem_available_bytes();
    if (!bytes) bytes = available && available / 8 < PROBE_BYTES ? (size_t)(available / 8) : PROBE_BYTES;
    if (bytes < MIN_BYTES) bytes = MIN_BYTES;
    const size_t each = bytes / (size_t)nth & ~(size_t)4095;
    return each < 4096 ? 4096 : each;
}

tpl_status tpl_probe_run(int n_threads, double seconds, size_t bytes, tpl_probe_result *out, tpl_err *err)
{
    memset(out, 0, sizeof *out);
    if (n_threads < 1 || n_threads > MAX_THREADS || !(seconds >= 0 && seconds <= 3600))
        return tpl_fail(err, TPL_ERR_ARG, 0, "probe",
                        "probe: %d threads for %g s, expected 1 to %d and at most an hour", n_threads,
                        seconds, MAX_THREADS);
    const tpl_isa isa = tpl_isa_best();
    probe p = { .loops = loops_of(isa),
                .bytes = bytes_per_thread(bytes, n_threads),
                .budget_ns = (int64_t)(seconds * 1e9 / 5),
                .out = out };
    void *buffer;
    TPL_TRY(tpl_mem_map(&buffer, p.bytes * (size_t)n_threads, err));
    p.buffer = buffer;
    tpl_abort *abort_word = tpl_abort_new();
    tpl_status st = abort_word ? tpl_team_new(&p.team, n_threads, tpl_spin_budget(n_threads), abort_word, err)
                               : tpl_fail(err, TPL_ERR_MEM, 0, "", "probe: out of memory");
    if (!st) st = run_crew(&p, n_threads, abort_word, err);
    out->isa = tpl_isa_name(isa);
    tpl_team_free(p.team);
    tpl_abort_free(abort_word);
    tpl_mem_unmap(buffer, p.bytes * (size_t)n_threads);
    return st;
}
