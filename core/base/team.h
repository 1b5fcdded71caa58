/* SPDX-License-Identifier: Apache-2.0
 *
 * A team: the threads of one rank, which walk the op list together, and the abort word that every wait polls. Barriers spin for a
 * budget, then sleep on a futex; the budget is zero when the machine has fewer cores than threads. Any member thread.
 */
#ifndef TPL_BASE_TEAM_H
#define TPL_BASE_TEAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Set once by the first failure; every spin polls it, and all ranks unwind to the top of the step. */
typedef struct tpl_abort tpl_abort;
tpl_abort *tpl_abort_new(void);
void tpl_abort_free(tpl_abort *a);
/* Records the first failure (later ones are ignored) and wakes every sleeper that waits through tpl_wait_u32. */
void tpl_abort_raise(tpl_abort *a, const tpl_err *why);
bool tpl_abort_is_set(const tpl_abort *a);
void tpl_abort_get(const tpl_abort *a, tpl_err *out);
void tpl_abort_clear(tpl_abort *a);

/* Waits until *word, read with acquire order, is at least `want` (as a signed difference, so it may wrap) or the abort is set: spins for
 * `spin` rounds, then sleeps in slices on a futex. Returns false when aborted. The writer stores with release order and calls tpl_wake_u32. */
bool tpl_wait_u32(_Atomic uint32_t *word, uint32_t want, uint32_t spin, const tpl_abort *abort);
void tpl_wake_u32(_Atomic uint32_t *word);

typedef struct tpl_team tpl_team;
tpl_status tpl_team_new(tpl_team **out, int nth, uint32_t spin, tpl_abort *abort, tpl_err *err);
void tpl_team_free(tpl_team *t);
/* All nth members arrive, then all leave; writes before are visible after. Returns false when aborted. No cost when nth == 1. */
bool tpl_team_barrier(tpl_team *t, int ith);
int tpl_team_size(const tpl_team *t);
/* Barriers passed since the team was made (for the benchmark's syncs per layer). */
uint64_t tpl_team_count(const tpl_team *t);

#endif
