/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/gate.h"
#include "base/time.h"

struct tpl_thread {
    pthread_t id;
    void (*fn)(void *arg);
    void *arg;
    char name[16]; /* the kernel's limit, with the final 0 */
    bool is_pinned;
};

static void *thread_main(void *arg)
{
    tpl_thread *t = arg;
    if (t->name[0]) pthread_setname_np(pthread_self(), t->name);
    t->fn(t->arg);
    return NULL;
}

/* A set that holds every core of the list; NULL when out of memory. Machines with more than 1024 cores need
 * the sized form. */
static cpu_set_t *set_of(const int *cpus, int n, size_t *bytes)
{
    int most = CPU_SETSIZE - 1;
    for (int i = 0; i < n; i++)
        if (cpus[i] > most) most = cpus[i];
    cpu_set_t *set = CPU_ALLOC(most + 1);
    *bytes = CPU_ALLOC_SIZE(most + 1);
    if (!set) return NULL;
    CPU_ZERO_S(*bytes, set);
    for (int i = 0; i < n; i++)
        if (cpus[i] >= 0) CPU_SET_S(cpus[i], *bytes, set);
    return set;
}

/* Pinning by attribute places the thread (and its stack's first touch) before it runs. Threads that share a set begin on
 * different cores of it. */
static int create(tpl_thread *t, const tpl_thread_desc *desc, bool pin)
{
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (rc) return rc;
    if (desc->stack_bytes) {
        size_t least = (size_t)sysconf(_SC_THREAD_STACK_MIN), page = (size_t)sysconf(_SC_PAGESIZE);
        size_t want = desc->stack_bytes > least ? desc->stack_bytes : least;
        rc = pthread_attr_setstacksize(&attr, (want + page - 1) / page * page);
    }
    size_t bytes, first_bytes;
    cpu_set_t *set = pin ? set_of(desc->cpus, desc->n_cpus, &bytes) : NULL;
    cpu_set_t *first = pin && desc->start ? set_of(desc->cpus + desc->start - 1, 1, &first_bytes) : NULL;
    if (!rc && pin && (!set || (desc->start && !first))) rc = ENOMEM;
    if (!rc && pin) rc = pthread_attr_setaffinity_np(&attr, first ? first_bytes : bytes, first ? first : set);
    if (!rc) rc = pthread_create(&t->id, &attr, thread_main, t);
    if (!rc && first) pthread_setaffinity_np(t->id, bytes, set);
    if (first) CPU_FREE(first);
    if (set) CPU_FREE(set);
    pthread_attr_destroy(&attr);
    t->is_pinned = pin;
    return rc;
}

tpl_status tpl_thread_start(tpl_thread **out, const tpl_thread_desc *desc, tpl_err *err)
{
    *out = NULL;
    tpl_thread *t = calloc(1, sizeof *t);
    if (!t) return tpl_fail(err, TPL_ERR_MEM, 0, "", "out of memory for a thread");
    t->fn = desc->fn;
    t->arg = desc->arg;
    if (desc->name) snprintf(t->name, sizeof t->name, "%s", desc->name);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = desc->n_cpus > 0 ? create(t, desc, true) : EINVAL;
    if (rc == EINVAL && desc->start) { /* the core is none of ours, another of the set may be */
        tpl_thread_desc any = *desc;
        any.start = 0;
        rc = create(t, &any, true);
    }
    if (rc == EINVAL || rc == EPERM) rc = create(t, desc, false);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) {
        free(t);
        return tpl_fail(err, TPL_ERR_IO, rc, desc->name, "cannot start a thread: %s", strerror(rc));
    }
    *out = t;
    return TPL_OK;
}

void tpl_thread_join(tpl_thread *t)
{
    if (!t) return;
    pthread_join(t->id, NULL);
    free(t);
}

bool tpl_thread_is_pinned(const tpl_thread *t)
{
    return t->is_pinned;
}

bool tpl_thread_pin_self(const int *cpus, int n_cpus)
{
    size_t bytes;
    cpu_set_t *set = set_of(cpus, n_cpus, &bytes);
    if (!set) return false;
    int rc = pthread_setaffinity_np(pthread_self(), bytes, set);
    CPU_FREE(set);
    return rc == 0;
}

/* -- Cores ----------------------------------------------------------------------------------------------- */

int tpl_cpu_list(int *cpus, int cap)
{
    int n = 0;
    for (int most = CPU_SETSIZE; most <= 1 << 16;
         most *= 2) { /* a set smaller than the kernel's is refused */
        size_t bytes = CPU_ALLOC_SIZE(most);
        cpu_set_t *set = CPU_ALLOC(most);
        if (!set) break;
        int rc = sched_getaffinity(0, bytes, set);
        for (int i = 0; !rc && i < most; i++)
            if (CPU_ISSET_S(i, bytes, set)) {
                if (n < cap) cpus[n] = i;
                n++;
            }
        CPU_FREE(set);
        if (!rc || errno != EINVAL) break;
    }
    if (n) return n;
    if (cap > 0) cpus[0] = 0;
    return 1;
}

int tpl_cpu_parse(const char *text, int *cpus, int cap)
{
    int n = 0;
    for (const char *p = text;; p++) {
        char *end;
        if (*p < '0' || *p > '9') return -1;
        long first = strtol(p, &end, 10), last = first;
        if (*end == '-') {
            if (end[1] < '0' || end[1] > '9') return -1;
            last = strtol(end + 1, &end, 10);
        }
        if (last < first || last >= 1 << 16) return -1;
        for (long i = first; i <= last; i++, n++)
            if (n < cap) cpus[n] = (int)i;
        if (!*end) return n;
        if (*end != ',' || n > 1 << 16) return -1;
        p = end;
    }
}

int tpl_cpu_usable(void)
{
    double quota;
    int n = tpl_cpu_list(NULL, 0);
    if (tpl_cgroup_cpus(&quota) && ceil(quota) < n) n = (int)ceil(quota);
    return n < 1 ? 1 : n;
}

void tpl_cpu_model(char *out, size_t cap)
{
    char text[4096], *at, *end;
    out[0] = 0;
    if (!tpl_read_small("/proc/cpuinfo", text, sizeof text)) return;
    if (!(at = strstr(text, "model name")) || !(at = strchr(at, ':')) || !(end = strchr(at, '\n'))) return;
    at += strspn(at, ": \t");
    snprintf(out, cap, "%.*s", (int)(end - at), at);
}

/* -- Spinning -------------------------------------------------------------------------------------------- */

/* Longer than any collective of a decode step lasts, shorter than a time slice; sleeping and waking costs
 * about 20 us. */
enum { SPIN_NS = 75000, TRY_ROUNDS = 64, TRIES = 5 };

uint32_t tpl_spin_budget(int n_threads)
{
    if (n_threads > tpl_cpu_usable()) return 0;
    int64_t best =
        INT64_MAX; /* a pause takes 10 to 140 cycles, by core; the least time had no interruption */
    for (int i = 0; i < TRIES; i++) {
        int64_t t0 = tpl_now_ns();
        for (int k = 0; k < TRY_ROUNDS; k++) tpl_pause();
        int64_t took = tpl_now_ns() - t0;
        if (took < best) best = took;
    }
    int64_t rounds = (int64_t)SPIN_NS * TRY_ROUNDS / (best > 0 ? best : 1);
    return rounds < 100 ? 100 : rounds > 100000 ? 100000 : (uint32_t)rounds;
}
