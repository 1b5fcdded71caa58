/* SPDX-License-Identifier: Apache-2.0
 *
 * Where threads run and memory lies: lists of cores, threads that share a set, memory of a node, and timing between cores.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/numa.h"
#include "base/thread.h"
#include "comm/pair.h"

static void lists_of_cores(void **state)
{
    static const struct {
        const char *text;
        int n, last;
    } good[] = { { "0", 1, 0 }, { "0-3", 4, 3 }, { "6,14,22,30", 4, 30 }, { "1-1,3-3", 2, 3 }, { "0-15,32-47", 32, 47 }, { "65535", 1, 65535 } };
    static const char *const bad[] = { "", " ", "a", "1,", ",1", "3-1", "1-", "-1", "0x1", "1 2", "65536", "0-65536", "1-2-3", "99999999999999999999" };
    int cpus[64];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(tpl_cpu_parse(good[i].text, cpus, 64), good[i].n);
        assert_int_equal(cpus[good[i].n - 1], good[i].last);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_int_equal(tpl_cpu_parse(bad[i], cpus, 64), -1);
    cpus[2] = 77;
    assert_int_equal(tpl_cpu_parse("0-9", cpus, 2), 10); /* says how many there are, fills what there is room for */
    assert_int_equal(cpus[2], 77);
}

static void note_set(void *arg)
{
    sched_yield();
    for (int i = 0; i < 100 && CPU_COUNT((cpu_set_t *)arg) < 2; i++) { /* the starter widens the set */
        sched_getaffinity(0, sizeof(cpu_set_t), arg);
        sched_yield();
    }
}

static void a_thread_gets_its_whole_set(void **state)
{
    int cpus[64], n = tpl_cpu_list(cpus, 64);
    if (n > 64) n = 64;
    for (int start = 0; start <= n && start < 3; start++) {
        cpu_set_t set;
        tpl_thread *t;
        tpl_err err = { 0 };
        CPU_ZERO(&set);
        tpl_thread_desc d = { .fn = note_set, .arg = &set, .cpus = cpus, .n_cpus = n, .start = start };
        assert_int_equal(tpl_thread_start(&t, &d, &err), TPL_OK);
        assert_true(tpl_thread_is_pinned(t));
        tpl_thread_join(t);
        assert_int_equal(CPU_COUNT(&set), n);
    }
}

/* A start core that is none of ours leaves the rest of the set. */
static void a_foreign_start_core_is_passed_over(void **state)
{
    int cpus[2] = { 65535 }, n = tpl_cpu_list(&cpus[1], 1);
    cpu_set_t set;
    tpl_thread *t;
    tpl_err err = { 0 };
    CPU_ZERO(&set);
    tpl_thread_desc d = { .fn = note_set, .arg = &set, .cpus = cpus, .n_cpus = 2, .start = 1 };
    assert_true(n >= 1);
    assert_int_equal(tpl_thread_start(&t, &d, &err), TPL_OK);
    assert_true(tpl_thread_is_pinned(t));
    tpl_thread_join(t);
    assert_int_equal(CPU_COUNT(&set), 1);
}

static void bind_here(void *arg)
{
    *(int *)arg = tpl_numa_bind_self(0);
}

static void memory_of_a_node(void **state)
{
    void *p;
    int sys = -1;
    tpl_thread *t;
    tpl_err err = { 0 };
    assert_int_equal(tpl_mem_map(&p, 3 << 20, &err), TPL_OK);
    int code = tpl_numa_bind_range(p, (3 << 20) - 100, 0); /* 0, or what the place forbids: never a crash */
    assert_true(code == 0 || code == EPERM || code == ENOSYS);
    memset(p, 1, 3 << 20);
    assert_int_equal(tpl_numa_bind_range(NULL, 0, 0), 0);
    assert_int_equal(tpl_numa_bind_range(p, 4096, -1), EINVAL);
    assert_int_equal(tpl_numa_bind_range(p, 4096, TPL_NUMA_MAX_NODES), EINVAL);
    if (!code) assert_int_not_equal(tpl_numa_bind_range(p, 4096, 900), 0); /* no machine has node 900 */
    tpl_mem_unmap(p, 3 << 20);
    assert_int_equal(tpl_thread_start(&t, &(tpl_thread_desc){ .fn = bind_here, .arg = &sys }, &err), TPL_OK);
    tpl_thread_join(t);
    assert_true(sys == 0 || sys == EPERM || sys == ENOSYS);
}

static void timing_checks_its_data(void **state)
{
    int cpus[2], n = tpl_cpu_list(cpus, 2);
    tpl_pair_timing t;
    tpl_err err = { 0 };
    if (n < 2) cpus[1] = cpus[0];
    tpl_pair_desc d = { .a = { cpus, 1, -1 }, .b = { cpus + 1, 1, -1 }, .bytes = 100000, .iters = 20 };
    assert_int_equal(tpl_pair_time(&t, &d, &err), TPL_OK);
    assert_true(t.data_ok && t.gb_s > 0 && t.us > 0);
    d.a = d.b = (tpl_pair_side){ cpus, 2, -1 }; /* two threads of each side, on shared cores */
    assert_int_equal(tpl_pair_time(&t, &d, &err), TPL_OK);
    assert_true(t.data_ok);
    assert_int_equal(t.threads, 2);
    d.spoil = 7;
    assert_int_equal(tpl_pair_time(&t, &d, &err), TPL_OK);
    assert_false(t.data_ok);
    d.bytes = 8;
    assert_int_equal(tpl_pair_time(&t, &d, &err), TPL_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_of_cores),
        cmocka_unit_test(a_thread_gets_its_whole_set),
        cmocka_unit_test(a_foreign_start_core_is_passed_over),
        cmocka_unit_test(memory_of_a_node),
        cmocka_unit_test(timing_checks_its_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
