/* SPDX-License-Identifier: Apache-2.0
 *
 * A gate: a counter that one thread raises and others wait for. Unlike a bare word with tpl_wake_u32 it
 * counts its sleepers, so raising it costs no system call while everybody spins. Also what makes teams usable
 * again after an abort. Any thread; no allocation.
 */
#ifndef TPL_BASE_GATE_H
#define TPL_BASE_GATE_H

#include "base/team.h"

#define TPL_LINE 64 /* bytes that two threads must not share when both write */

typedef struct tpl_gate {
    _Atomic uint32_t word;
    _Atomic uint32_t sleepers;
} tpl_gate;

/* As tpl_wait_u32, on gate->word. abort may be NULL. A spin of 0 yields the core a few times, then sleeps. */
bool tpl_gate_wait(tpl_gate *gate, uint32_t want, uint32_t spin, const tpl_abort *abort);
/* Stores the new count, after everything written before, and wakes the sleepers if there are any. */
void tpl_gate_set(tpl_gate *gate, uint32_t value);
static inline uint32_t tpl_gate_get(const tpl_gate *gate)
{
    return atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)&gate->word, memory_order_acquire);
}

/* Forgets half-finished barriers. Only while no member is inside a barrier, that is after all have unwound
 * from an abort. */
void tpl_team_reset(tpl_team *t);

/* Tells the core that this is a spin loop. */
static inline void tpl_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#else
    __asm__ volatile("" ::: "memory");
#endif
}

#endif
