/* SPDX-License-Identifier: Apache-2.0
 *
 * Micro-benchmark of linear: a stack of equal matrices, as in a model's layers, multiplied one after the
 * other by a team. linear_bench [threads] [rows] [cols] [MB of weights] [isa] [type] Prints per weight type
 * and activation form: GB/s of weights for one row and for 4, GFLOP/s for 512 rows; the best of a few
 * repetitions. Before and after it the probes of tpl_probe_run. The machine must be quiet for the figures to
 * mean anything.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "base/time.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/pack.h"
#include "kernels/probe.h"

enum { T_MAX = 512, REPEATS = 7 };

typedef struct bench {
    int nth, T, n; /* threads, rows of x, matrices */
    tpl_bound *ops;
    tpl_team *team;
    double best; /* seconds for all matrices once */
} bench;

typedef struct seat {
    bench *b;
    int ith;
} seat;

static void member(void *arg)
{
    const seat *s = arg;
    bench *b = s->b;
    tpl_step step = { .n_tok = b->T, .pad_tok = b->T };
    void *scratch = tpl_mem_alloc(TPL_CPU_SCRATCH_BYTES);
    const tpl_op_ctx ctx = { s->ith, b->nth, &step, b->team, scratch };
    for (int r = 0; r < REPEATS; r++) {
        tpl_team_barrier(b->team, s->ith);
        const int64_t t0 = tpl_now_ns();
        for (int i = 0; i < b->n; i++) {
            b->ops[i].run(&ctx, &b->ops[i]);
            tpl_team_barrier(b->team, s->ith);
        }
        const double t = (double)(tpl_now_ns() - t0) * 1e-9;
        if (s->ith == 0 && (r == 0 || t < b->best)) b->best = t;
    }
    tpl_mem_free(scratch);
}

static double measure(bench *b, int T)
{
    tpl_thread *threads[64];
    seat seats[64];
    tpl_err err = { 0 };
    b->T = T;
    for (int i = 0; i < b->nth; i++) {
        seats[i] = (seat){ b, i };
        const tpl_thread_desc d = {
            .fn = member, .arg = &seats[i], .name = "bench", .cpus = &i, .n_cpus = 1
        };
        if (tpl_thread_start(&threads[i], &d, &err)) exit(1);
    }
    for (int i = 0; i < b->nth; i++) tpl_thread_join(threads[i]);
    return b->best;
}

static void probe(int nth, size_t bytes)
{
    tpl_probe_result r;
    tpl_err err = { 0 };
    if (tpl_probe_run(nth, 0.5, bytes, &r, &err)) return;
    printf("probe: read %.1f GB/s at %zu MB; GFLOP/s f32 %.0f, bf16 %.0f, i8 %.0f; barrier %.2f us\n",
           r.read_gb_s, bytes >> 20, r.f32_gflop_s, r.bf16_gflop_s, r.i8_gflop_s, r.barrier_us);
}

static void bench_type(bench *b, tpl_isa isa, tpl_dtype type, tpl_act act, int64_t rows, int64_t cols,
                       char *data, size_t all)
{
    uint64_t bytes;
    tpl_err err = { 0 };
    if (!tpl_pack_bytes(type, (uint64_t)rows, (uint64_t)cols, &bytes)) return;
    b->n = (int)(all / bytes) > 0 ? (int)(all / bytes) : 1;
    b->ops = calloc((size_t)b->n, sizeof *b->ops);
    tpl_weight *w = calloc((size_t)b->n, sizeof *w);
    const size_t stride = tpl_row_bytes(act, cols);
    char *x = tpl_mem_alloc(stride * T_MAX), *y = tpl_mem_alloc((size_t)rows * 4 * T_MAX);
    for (int i = 0; i < b->n; i++) {
        w[i] = (tpl_weight){ "w", type, rows, cols, data + (size_t)i * bytes };
        b->ops[i] = (tpl_bound){
            .name = "w", .kind = TPL_OP_ID_LINEAR, .n_in = 1, .n_out = 1, .n_w = 1, .w = { &w[i] }
        };
        b->ops[i].in[0] = (tpl_view){ x, act, TPL_SYM_TOK, 1, cols, stride };
        b->ops[i].out[0] = (tpl_view){ y, TPL_ACT_F32, TPL_SYM_TOK, 1, rows, (size_t)rows * 4 };
        if (tpl_cpu_bind_linear(isa, &b->ops[i], &err)) {
            printf("%s\n", err.msg);
            exit(1);
        }
    }
    const double one = measure(b, 1), four = measure(b, 4), n = b->n;
    if (b->n > 8) b->n = 8; /* enough for the compute-bound figure */
    const double few = b->n, many = measure(b, T_MAX);
    printf("%-5s %-36s 1 row %6.1f GB/s  4 rows %6.1f GB/s  %d rows %7.0f GFLOP/s\n", tpl_dtypes[type].name, b->ops[0].variant,
           n * (double)bytes / one * 1e-9, n * (double)bytes / four * 1e-9, T_MAX,
           2.0 * few * (double)(rows * cols) * T_MAX / many * 1e-9);
    tpl_mem_free(x), tpl_mem_free(y), free(w), free(b->ops);
}

int main(int argc, char **argv)
{
    static const tpl_dtype types[] = { TPL_DTYPE_Q4_1, TPL_DTYPE_Q4_0, TPL_DTYPE_Q8_0, TPL_DTYPE_Q5_0,
                                       TPL_DTYPE_Q5_1, TPL_DTYPE_BF16, TPL_DTYPE_F16,  TPL_DTYPE_F32,
                                       TPL_DTYPE_Q4_K, TPL_DTYPE_Q5_K, TPL_DTYPE_Q6_K };
    const int nth = argc > 1 ? atoi(argv[1]) : 2;
    const int64_t rows = argc > 2 ? atoll(argv[2]) : 1536, cols = argc > 3 ? atoll(argv[3]) : 576;
    const size_t all = (argc > 4 ? (size_t)atoll(argv[4]) : 96) << 20;
    const int isa = argc > 5 ? tpl_isa_find(argv[5]) : (int)tpl_isa_best();
    bench b = { .nth = nth };
    tpl_err err = { 0 };
    void *data;
    tpl_abort *abort_word = tpl_abort_new();
    if (isa < 0 || !tpl_isa_usable((tpl_isa)isa) || nth < 1 || nth > 64 || tpl_mem_map(&data, all, &err)) return 1;
    memset(data, 0x22, all); /* normal numbers in every type */
    if (tpl_team_new(&b.team, nth, tpl_spin_budget(nth), abort_word, &err)) return 1;
    probe(nth, all);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (argc > 6 && strcmp(argv[6], tpl_dtypes[types[i]].name)) continue;
        for (int act = 0; act < TPL_N_ACTS; act++)
            if (act == TPL_ACT_F32 || act == TPL_ACT_BF16 || tpl_dtypes[types[i]].n_elem > 1)
                bench_type(&b, (tpl_isa)isa, types[i], (tpl_act)act, rows, cols, data, all);
    }
    probe(nth, all);
    tpl_team_free(b.team);
    tpl_abort_free(abort_word);
    tpl_mem_unmap(data, all);
    return 0;
}
