/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads, and the cores they may use. A started thread blocks all signals, so that only the thread that
 * wants them gets them. Setup only, except where noted.
 */
#ifndef TPL_BASE_THREAD_H
#define TPL_BASE_THREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct tpl_thread tpl_thread;

typedef struct tpl_thread_desc {
    void (*fn)(void *arg);
    void *arg;
    const char *name;    /* shown by top and gdb, cut to 15 characters; NULL: the process's name */
    const int *cpus;     /* it may run on these only; ignored when n_cpus is 0 */
    int n_cpus;
    int start;           /* place in cpus, from 1, of the core that it starts on; 0: any of them */
    size_t stack_bytes;  /* 0: the system's default */
} tpl_thread_desc;

/* Starts a thread. Cores it may not use (a container's set) are no error: it then runs unpinned. Fails IO
 * when the system refuses. */
TPL_NODISCARD tpl_status tpl_thread_start(tpl_thread **out, const tpl_thread_desc *desc, tpl_err *err);
/* Waits for its end and frees it; NULL allowed. */
void tpl_thread_join(tpl_thread *t);
bool tpl_thread_is_pinned(const tpl_thread *t);
/* Pins the calling thread. Returns false when the system refuses. */
bool tpl_thread_pin_self(const int *cpus, int n_cpus);

/* The cores this process may run on, ascending: fills at most cap, returns how many there are (>= 1). */
int tpl_cpu_list(int *cpus, int cap);
/* Reads "0-3,8": fills at most cap, ascending as written; returns how many there are, -1 for a text that is no list of
 * cores below 65536. */
int tpl_cpu_parse(const char *text, int *cpus, int cap);
/* How many threads can run at once: the cores of the list, less where a control group limits the time
 * (rounded up, >= 1). */
int tpl_cpu_usable(void);
/* "model name" of the first core, "" if unknown. */
void tpl_cpu_model(char *out, size_t cap);

/* Rounds to spin before sleeping when n_threads threads want cores: 0 when they are more than the usable
 * ones, else about 75 us' worth, measured now (takes some 20 us). */
uint32_t tpl_spin_budget(int n_threads);

#endif
