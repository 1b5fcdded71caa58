/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for a word: spin, then sleep on a futex. A sleeper cannot watch the word and the abort at once, so
 * it sleeps in slices and polls the abort between them: 2 ms at first, up to 16 ms, which bounds how late an
 * abort is seen and keeps idle ranks almost free.
 */
#include "base/gate.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SLICE_MIN_NS = 2000000,
    SLICE_MAX_NS = 16000000,
    /* With more threads than cores the one waited for is likely runnable: let it run before sleeping. */
    YIELDS = 4,
};

static bool reached(uint32_t value, uint32_t want)
{
    return (int32_t)(value - want) >= 0;
}

static bool aborted(const tpl_abort *abort)
{
    return abort && tpl_abort_is_set(abort);
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen, long ns)
{
    struct timespec slice = { .tv_sec = 0, .tv_nsec = ns };
    syscall(SYS_futex, (void *)word, FUTEX_WAIT_PRIVATE, seen, &slice, NULL, 0);
}

void tpl_wake_u32(_Atomic uint32_t *word)
{
    syscall(SYS_futex, (void *)word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* 1: reached, 0: aborted, -1: neither within the budget. */
static int spin_for(_Atomic uint32_t *word, uint32_t want, uint32_t spin, const tpl_abort *abort)
{
    if (reached(atomic_load_explicit(word, memory_order_acquire), want)) return 1;
    for (uint32_t i = 0; i < spin; i++) {
        tpl_pause();
        if (reached(atomic_load_explicit(word, memory_order_acquire), want)) return 1;
        if (!(i & 15) && aborted(abort)) return 0;
    }
    for (int i = 0; !spin && i < YIELDS; i++) {
        sched_yield();
        if (reached(atomic_load_explicit(word, memory_order_acquire), want)) return 1;
    }
    return aborted(abort) ? 0 : -1;
}

static bool sleep_for(_Atomic uint32_t *word, uint32_t want, const tpl_abort *abort)
{
    for (long ns = SLICE_MIN_NS;; ns = ns * 2 > SLICE_MAX_NS ? SLICE_MAX_NS : ns * 2) {
        uint32_t seen = atomic_load_explicit(word, memory_order_seq_cst);
        if (reached(seen, want)) return true;
        if (aborted(abort)) return false;
        futex_wait(word, seen, ns);
    }
}

bool tpl_wait_u32(_Atomic uint32_t *word, uint32_t want, uint32_t spin, const tpl_abort *abort)
{
    int got = spin_for(word, want, spin, abort);
    return got < 0 ? sleep_for(word, want, abort) : got;
}

/* A sleeper counts itself before it reads the word, the setter writes the word before it reads the count,
 * all in one total order (seq_cst): at least one of them sees the other, so no wake-up is lost. */
bool tpl_gate_wait(tpl_gate *gate, uint32_t want, uint32_t spin, const tpl_abort *abort)
{
    int got = spin_for(&gate->word, want, spin, abort);
    if (got >= 0) return got;
    atomic_fetch_add_explicit(&gate->sleepers, 1, memory_order_seq_cst);
    bool ok = sleep_for(&gate->word, want, abort);
    atomic_fetch_sub_explicit(&gate->sleepers, 1, memory_order_relaxed);
    return ok;
}

void tpl_gate_set(tpl_gate *gate, uint32_t value)
{
    atomic_store_explicit(&gate->word, value, memory_order_seq_cst);
    if (atomic_load_explicit(&gate->sleepers, memory_order_seq_cst)) tpl_wake_u32(&gate->word);
}
