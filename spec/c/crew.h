/* SPDX-License-Identifier: Apache-2.0
 *
 * Test helper: runs a function on every thread of some ranks, each with its team, and waits for all of them.
 * Fails the test when a thread cannot be started.
 */
#ifndef SPEC_C_CREW_H
#define SPEC_C_CREW_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/gate.h"
#include "base/thread.h"

typedef struct crew_seat {
    int rank, ith;
    tpl_team *team;
    void *arg;
    void (*fn)(struct crew_seat *seat);
    tpl_thread *thread;
} crew_seat;

typedef struct crew {
    int n_ranks, n_seats;
    tpl_team **teams;
    crew_seat *seats;
} crew;

static inline void crew_main(void *arg)
{
    crew_seat *seat = arg;
    seat->fn(seat);
}

/* nth: threads of each rank. */
static inline crew *crew_start(int n_ranks, const int *nth, uint32_t spin, tpl_abort *abort,
                               void (*fn)(crew_seat *), void *arg)
{
    crew *c = calloc(1, sizeof *c);
    tpl_err err = { 0 };
    c->n_ranks = n_ranks;
    c->teams = calloc((size_t)n_ranks, sizeof(tpl_team *));
    for (int r = 0; r < n_ranks; r++) {
        assert_int_equal(tpl_team_new(&c->teams[r], nth[r], spin, abort, &err), TPL_OK);
        c->n_seats += nth[r];
    }
    c->seats = calloc((size_t)c->n_seats, sizeof *c->seats);
    crew_seat *s = c->seats;
    for (int r = 0; r < n_ranks; r++)
        for (int i = 0; i < nth[r]; i++, s++) {
            *s = (crew_seat){ .rank = r, .ith = i, .team = c->teams[r], .arg = arg, .fn = fn };
            tpl_thread_desc desc = { .fn = crew_main, .arg = s, .name = "crew", .stack_bytes = 256 << 10 };
            assert_int_equal(tpl_thread_start(&s->thread, &desc, &err), TPL_OK);
        }
    return c;
}

static inline void crew_join(crew *c)
{
    for (int i = 0; i < c->n_seats; i++) tpl_thread_join(c->seats[i].thread);
    for (int r = 0; r < c->n_ranks; r++) tpl_team_free(c->teams[r]);
    free(c->seats);
    free(c->teams);
    free(c);
}

static inline void crew_run(int n_ranks, const int *nth, uint32_t spin, tpl_abort *abort,
                            void (*fn)(crew_seat *), void *arg)
{
    crew_join(crew_start(n_ranks, nth, spin, abort, fn, arg));
}

#endif
