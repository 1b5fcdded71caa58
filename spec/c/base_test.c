/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads and cores, memory, counting of allocations, log, environment and faults. Expected values: the
 * system's own tools (/proc, sched_getcpu) and interface.md section 5.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/time.h"

/* -- Threads --------------------------------------------------------------------------------------------- */

struct seen {
    int cpu;
    char name[32];
};

static void look(void *arg)
{
    struct seen *s = arg;
    s->cpu = sched_getcpu();
    prctl(PR_GET_NAME, s->name, 0, 0, 0);
}

static void threads_run_where_they_are_pinned(void **state)
{
    int cpus[256], n = tpl_cpu_list(cpus, 256);
    assert_true(n >= 1);
    for (int i = 0; i < n && i < 4; i++) {
        struct seen s = { -1, "" };
        tpl_thread *t;
        tpl_thread_desc d = {
            .fn = look, .arg = &s, .name = "a name of more than 15", .cpus = &cpus[i], .n_cpus = 1
        };
        assert_int_equal(tpl_thread_start(&t, &d, NULL), TPL_OK);
        assert_true(tpl_thread_is_pinned(t));
        tpl_thread_join(t);
        assert_int_equal(s.cpu, cpus[i]);
        assert_string_equal(s.name, "a name of more ");
    }
}

static void a_core_that_is_not_ours_leaves_the_thread_unpinned(void **state)
{
    int nowhere = 1000;
    struct seen s = { -1, "" };
    tpl_thread *t;
    tpl_thread_desc d = { .fn = look, .arg = &s, .cpus = &nowhere, .n_cpus = 1, .stack_bytes = 1 };
    assert_int_equal(tpl_thread_start(&t, &d, NULL), TPL_OK);
    assert_false(tpl_thread_is_pinned(t));
    tpl_thread_join(t);
    assert_true(s.cpu >= 0);
}

static void cores_are_counted(void **state)
{
    int n = tpl_cpu_usable();
    char model[128];
    assert_true(n >= 1 && n <= sysconf(_SC_NPROCESSORS_CONF));
    assert_true(n <= tpl_cpu_list(NULL, 0));
    tpl_cpu_model(model, sizeof model);
    assert_null(strchr(model, '\n'));
}

static void spin_budget_is_zero_with_too_few_cores(void **state)
{
    assert_int_equal(tpl_spin_budget(tpl_cpu_usable() + 1), 0);
    assert_true(tpl_spin_budget(1) >= 100);
}

static void clock_does_not_go_back(void **state)
{
    int64_t last = tpl_now_ns();
    for (int i = 0; i < 1000; i++) {
        int64_t now = tpl_now_ns();
        assert_true(now >= last);
        last = now;
    }
}

/* -- Memory ---------------------------------------------------------------------------------------------- */

static void maps_are_zero_aligned_and_touched_on_use(void **state)
{
    size_t bytes = ((size_t)64 << 20) + 4096;
    void *p;
    uint64_t before = tpl_mem_rss_bytes();
    assert_int_equal(tpl_mem_map(&p, bytes, NULL), TPL_OK);
    assert_int_equal((uintptr_t)p % ((size_t)2 << 20), 0);
    assert_true(tpl_mem_rss_bytes() < before + (8 << 20));
    for (size_t i = 0; i < bytes; i += 4096) assert_int_equal(((char *)p)[i], 0);
    memset(p, 1, bytes);
    assert_true(tpl_mem_rss_bytes() > before + (48 << 20));
    assert_true(tpl_mem_rss_peak_bytes() > before + (48 << 20));
    tpl_mem_discard(p, bytes);
    assert_int_equal(((char *)p)[bytes - 1], 0);
    tpl_mem_unmap(p, bytes);
}

static void small_and_empty_maps(void **state)
{
    void *p;
    assert_int_equal(tpl_mem_map(&p, 0, NULL), TPL_OK);
    assert_null(p);
    assert_int_equal(tpl_mem_map(&p, 100, NULL), TPL_OK);
    assert_int_equal(*(char *)p, 0);
    tpl_mem_unmap(p, 100);
}

static void impossible_sizes_fail_with_mem(void **state)
{
    void *p;
    tpl_err err = { 0 };
    assert_int_equal(tpl_mem_map(&p, SIZE_MAX - 100, &err), TPL_ERR_MEM);
    assert_null(p);
    memset(&err, 0, sizeof err);
    assert_int_equal(tpl_mem_map(&p, SIZE_MAX / 2, &err), TPL_ERR_MEM);
    assert_non_null(strstr(err.msg, "bytes"));
    assert_null(tpl_mem_alloc(SIZE_MAX));
}

static void blocks_are_zero_and_aligned(void **state)
{
    for (size_t n = 0; n < 300; n += 37) {
        char *p = tpl_mem_alloc(n);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t i = 0; i < n; i++) assert_int_equal(p[i], 0);
        tpl_mem_free(p);
    }
}

static void memory_figures_agree(void **state)
{
    assert_true(tpl_mem_rss_bytes() > 0 && tpl_mem_rss_bytes() <= tpl_mem_rss_peak_bytes() + (1 << 20));
    assert_true(tpl_mem_available_bytes() > 0 && tpl_mem_available_bytes() <= tpl_mem_total_bytes());
}

/* -- Allocations ----------------------------------------------------------------------------------------- */

static void *volatile keep; /* so that the compiler cannot drop the calls */

static void allocations_count_only_while_watched(void **state)
{
    if (!tpl_alloc_is_wrapped()) skip();
    uint64_t before = tpl_alloc_count(), freed = tpl_alloc_free_count();
    keep = malloc(10);
    free(keep);
    assert_int_equal(tpl_alloc_count() - before, 0);
    assert_false(tpl_alloc_watch(true));
    keep = malloc(10);
    keep = realloc(keep, 20);
    free(keep);
    keep = calloc(2, 10);
    free(keep);
    keep = tpl_mem_alloc(100); /* in the library: the linker wraps its calls too */
    tpl_mem_free(keep);
    keep = strdup("text");
    free(keep);
    assert_true(tpl_alloc_watch(false));
    assert_int_equal(tpl_alloc_count() - before, 5);
    assert_int_equal(tpl_alloc_free_count() - freed, 4);
}

/* -- Log ------------------------------------------------------------------------------------------------- */

static void store(void *user, tpl_log_level level, const char *line)
{
    snprintf(user, 2000, "%s|%s", tpl_log_level_name(level), line);
}

static void log_formats_filters_and_cuts(void **state)
{
    char got[2000] = "", text[3000];
    tpl_log log = { .sink = store, .user = got, .level = TPL_LOG_WARN };
    tpl_logf(NULL, TPL_LOG_ERROR, -1, "nobody hears this");
    tpl_logf(&log, TPL_LOG_INFO, -1, "too quiet");
    assert_string_equal(got, "");
    tpl_logf(&log, TPL_LOG_WARN, 3, "%d\nlines", 2);
    assert_string_equal(got, "warn|rank 3: 2 lines");
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = 0;
    tpl_logf(&log, TPL_LOG_ERROR, -1, "%s", text);
    assert_int_equal(strlen(got), strlen("error|") + 999);
}

/* -- Environment ----------------------------------------------------------------------------------------- */

static void empty_variables_count_as_unset(void **state)
{
    setenv("TPL_SEED", "", 1);
    assert_null(tpl_env(TPL_ENV_SEED));
    setenv("TPL_SEED", "7", 1);
    assert_string_equal(tpl_env(TPL_ENV_SEED), "7");
    unsetenv("TPL_SEED");
    assert_null(tpl_env(TPL_ENV_SEED));
    assert_int_equal(tpl_env_find("TPL_ISA"), TPL_ENV_ISA);
    assert_int_equal(tpl_env_find("LD_PRELOAD"), -1);
    for (int i = 0; i < TPL_N_ENVS; i++) assert_int_equal(tpl_env_find(tpl_env_name((tpl_env_id)i)), i);
}

static void faults_parse(void **state)
{
    static const struct {
        const char *text;
        tpl_fault want;
    } good[] = {
        { NULL, { TPL_FAULT_NONE, -1, -1, "" } },
        { "", { TPL_FAULT_NONE, -1, -1, "" } },
        { "stall", { TPL_FAULT_STALL, -1, -1, "" } },
        { "stall:2", { TPL_FAULT_STALL, 2, -1, "" } },
        { "swap_shard:*:blk.3.o_proj", { TPL_FAULT_SWAP_SHARD, -1, -1, "blk.3.o_proj" } },
        { "drop_all_reduce:0:*:17", { TPL_FAULT_DROP_ALL_REDUCE, 0, 17, "" } },
        { "wrong_head_map:1:a:*", { TPL_FAULT_WRONG_HEAD_MAP, 1, -1, "a" } },
        { "stale_position:*:*:*", { TPL_FAULT_STALE_POSITION, -1, -1, "" } },
        { "bias_on_all_ranks:3", { TPL_FAULT_BIAS_ON_ALL_RANKS, 3, -1, "" } },
        { "skip_op:0:embed_tokens:2", { TPL_FAULT_SKIP_OP, 0, 2, "embed_tokens" } },
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        tpl_fault f;
        assert_int_equal(tpl_fault_parse(&f, good[i].text, NULL), TPL_OK);
        assert_int_equal(f.kind, good[i].want.kind);
        assert_int_equal(f.rank, good[i].want.rank);
        assert_int_equal(f.step, good[i].want.step);
        assert_string_equal(f.op, good[i].want.op);
    }
}

static void malformed_faults_are_refused(void **state)
{
    static const char *const bad[] = { "none",          "Stall",
                                       "explode:1",     ":",
                                       "stall:",        "stall:x",
                                       "stall:-1",      "stall:1x",
                                       "stall:1:",      "stall:99999999999",
                                       "stall:1:a:",    "stall:1:a:b",
                                       "stall:1:a:1:1", "stall:1:a:99999999999999999999",
                                       "stall:+1" };
    char huge[400];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tpl_fault f;
        tpl_err err = { 0 };
        assert_int_equal(tpl_fault_parse(&f, bad[i], &err), TPL_ERR_ARG);
        assert_string_equal(err.where, "TPL_FAULT");
        assert_int_equal(f.kind, TPL_FAULT_NONE);
    }
    tpl_fault f;
    memset(huge, 'a', sizeof huge);
    huge[sizeof huge - 1] = 0;
    memcpy(huge, "stall:1:", 8);
    assert_int_equal(tpl_fault_parse(&f, huge, NULL), TPL_ERR_ARG);
}

static void faults_hit_what_they_name(void **state)
{
    tpl_fault none, f, any;
    assert_int_equal(tpl_fault_parse(&none, NULL, NULL), TPL_OK);
    assert_int_equal(tpl_fault_parse(&f, "stall:1:blk.0.o_proj:5", NULL), TPL_OK);
    assert_int_equal(tpl_fault_parse(&any, "stall", NULL), TPL_OK);
    assert_false(tpl_fault_hits(&none, TPL_FAULT_NONE, 0, "x", 0));
    assert_false(tpl_fault_hits(&none, TPL_FAULT_STALL, 0, "x", 0));
    assert_true(tpl_fault_hits(&f, TPL_FAULT_STALL, 1, "blk.0.o_proj", 5));
    assert_true(tpl_fault_hits(&f, TPL_FAULT_STALL, 1, "blk.0.o_proj", -1));
    assert_false(tpl_fault_hits(&f, TPL_FAULT_STALL, 0, "blk.0.o_proj", 5));
    assert_false(tpl_fault_hits(&f, TPL_FAULT_STALL, 1, "blk.0.o_pro", 5));
    assert_false(tpl_fault_hits(&f, TPL_FAULT_STALL, 1, "blk.0.o_proj", 6));
    assert_false(tpl_fault_hits(&f, TPL_FAULT_SWAP_SHARD, 1, "blk.0.o_proj", 5));
    assert_true(tpl_fault_hits(&any, TPL_FAULT_STALL, 3, "y", 9));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_run_where_they_are_pinned),
        cmocka_unit_test(a_core_that_is_not_ours_leaves_the_thread_unpinned),
        cmocka_unit_test(cores_are_counted),
        cmocka_unit_test(spin_budget_is_zero_with_too_few_cores),
        cmocka_unit_test(clock_does_not_go_back),
        cmocka_unit_test(maps_are_zero_aligned_and_touched_on_use),
        cmocka_unit_test(small_and_empty_maps),
        cmocka_unit_test(impossible_sizes_fail_with_mem),
        cmocka_unit_test(blocks_are_zero_and_aligned),
        cmocka_unit_test(memory_figures_agree),
        cmocka_unit_test(allocations_count_only_while_watched),
        cmocka_unit_test(log_formats_filters_and_cuts),
        cmocka_unit_test(empty_variables_count_as_unset),
        cmocka_unit_test(faults_parse),
        cmocka_unit_test(malformed_faults_are_refused),
        cmocka_unit_test(faults_hit_what_they_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
