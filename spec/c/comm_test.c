/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives and channels of the shm transport. Oracle: loops over single elements of the whole value, with
 * one table per member that says which global column each local column is; sums are added in member order and
 * compared bit for bit. Threads write the inputs right before a collective and spoil them right after it, so
 * that a missing barrier shows (also to the thread sanitizer).
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/time.h"
#include "comm/comm.h"
#include "comm/timing.h"
#include "crew.h"

enum { MAX_N = 9, MAX_RANGES = 64 };

static uint64_t rng_state = 1;
static uint32_t rnd(uint32_t below)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
    return (uint32_t)(rng_state >> 33) % below;
}

static void *zalloc(size_t bytes)
{
    void *p = calloc(bytes ? bytes : 1, 1);
    assert_non_null(p);
    return p;
}

/* -- Random parts ---------------------------------------------------------------------------------------- */

typedef struct part {
    tpl_coll_part part;
    tpl_index index[MAX_N];
    const tpl_index *pointer[MAX_N];
    tpl_range ranges[MAX_N][MAX_RANGES];
    int *column[MAX_N]; /* local column -> global column: the oracle's view */
    int n_columns[MAX_N];
} part;

static void add_range(part *p, int m, int64_t first, int64_t count)
{
    tpl_index *x = &p->index[m];
    if (x->n == MAX_RANGES) return;
    p->ranges[m][x->n++] = (tpl_range){ first, count };
    x->total += count;
}

/* Stretches of random length of a dim of n go to random members, a few to two of them; each member's ranges
 * lie in random order. */
static void make_part(part *p, int size, int64_t outer, int64_t n, int64_t inner)
{
    memset(p, 0, sizeof *p);
    for (int64_t at = 0; at < n;) {
        int64_t len = 1 + rnd(4);
        if (at + len > n) len = n - at;
        add_range(p, (int)rnd((uint32_t)size), at, len);
        if (rnd(8) == 0) add_range(p, (int)rnd((uint32_t)size), at, len);
        at += len;
    }
    for (int m = 0; m < size; m++) {
        tpl_index *x = &p->index[m];
        for (int i = x->n - 1; i > 0; i--) {
            int j = (int)rnd((uint32_t)i + 1);
            tpl_range t = p->ranges[m][i];
            p->ranges[m][i] = p->ranges[m][j];
            p->ranges[m][j] = t;
        }
        x->ranges = p->ranges[m];
        p->pointer[m] = x;
        p->column[m] = zalloc((size_t)(outer * x->total * inner) * sizeof(int));
        for (int64_t o = 0; o < outer; o++)
            for (int r = 0; r < x->n; r++)
                for (int64_t k = 0; k < x->ranges[r].count; k++)
                    for (int64_t i = 0; i < inner; i++)
                        p->column[m][p->n_columns[m]++] = (int)((o * n + x->ranges[r].first + k) * inner + i);
    }
    p->part = (tpl_coll_part){ outer, n, inner, p->pointer };
}

static void free_part(part *p)
{
    for (int m = 0; m < MAX_N; m++) free(p->column[m]);
}

/* -- One random collective ------------------------------------------------------------------------------- */

typedef struct trial {
    tpl_coll_kind kind;
    int size, rows, width;
    bool from_columns, to_columns;
    part from, to;
    tpl_coll coll[MAX_N];
    float *in[MAX_N], *pristine[MAX_N], *out[MAX_N], *want[MAX_N];
    int n_in[MAX_N], n_out[MAX_N];
} trial;

static bool is_sum(const trial *t)
{
    return t->kind == TPL_COLL_ALL_REDUCE || t->kind == TPL_COLL_REDUCE_SCATTER;
}

/* Which global element a local one is, on the side that is cut. */
static void locate(const trial *t, bool cut, bool columns, const part *p, int m, int i, int cols, int *row,
                   int *col)
{
    *row = i / cols;
    *col = i % cols;
    if (cut && columns) *col = p->column[m][*col];
    if (cut && !columns) *row += m * (t->rows / t->size);
}

static void oracle(trial *t, const float *whole)
{
    bool cut_in = !is_sum(t), cut_out = t->kind == TPL_COLL_REDUCE_SCATTER || t->kind == TPL_COLL_ALL_TO_ALL;
    int row, col;
    for (int m = 0; m < t->size; m++)
        for (int i = 0; i < t->n_in[m]; i++) {
            locate(t, cut_in, t->from_columns, &t->from, m, i, (int)t->coll[m].in_cols, &row, &col);
            t->pristine[m][i] = is_sum(t) ? (float)rnd(1000003) / 7.0f - 60000 : whole[row * t->width + col];
        }
    for (int m = 0; m < t->size; m++)
        for (int i = 0; i < t->n_out[m]; i++) {
            locate(t, cut_out, t->to_columns, &t->to, m, i, (int)t->coll[m].out_cols, &row, &col);
            float sum = 0;
            for (int k = 0; is_sum(t) && k < t->size; k++)
                sum = k ? sum + t->pristine[k][row * t->width + col] : t->pristine[0][row * t->width + col];
            t->want[m][i] = is_sum(t) ? sum : whole[row * t->width + col];
        }
}

static void make_member(trial *t, int m)
{
    bool gathers = t->kind == TPL_COLL_ALL_GATHER || t->kind == TPL_COLL_GATHER,
         all_to_all = t->kind == TPL_COLL_ALL_TO_ALL;
    bool cut_in = gathers || all_to_all, cut_out = t->kind == TPL_COLL_REDUCE_SCATTER || all_to_all;
    int in_cols = cut_in && t->from_columns ? t->from.n_columns[m] : t->width;
    int out_cols = cut_out && t->to_columns ? t->to.n_columns[m] : t->width;
    t->n_in[m] = in_cols * (cut_in && !t->from_columns ? t->rows / t->size : t->rows);
    t->n_out[m] = out_cols * (cut_out && !t->to_columns ? t->rows / t->size : t->rows);
    if (t->kind == TPL_COLL_GATHER && m) t->n_out[m] = 0;
    t->in[m] = zalloc((size_t)t->n_in[m] * 4);
    t->pristine[m] = zalloc((size_t)t->n_in[m] * 4);
    t->out[m] = zalloc((size_t)t->n_out[m] * 4);
    t->want[m] = zalloc((size_t)t->n_out[m] * 4);
    t->coll[m] =
        (tpl_coll){ .kind = t->kind, .in = t->in[m], .out = t->out[m], .rows = t->rows, .name = "trial" };
    t->coll[m].in_cols = in_cols;
    t->coll[m].out_cols = out_cols;
    if (t->from_columns) t->coll[m].from = t->from.part;
    if (t->to_columns) t->coll[m].to = t->to.part;
    tpl_err err = { 0 };
    if (tpl_coll_check(&t->coll[m], t->size, m, &err)) fail_msg("%s: %s", err.where, err.msg);
}

static void make_trial(trial *t, int size)
{
    static const int shapes[][3] = { { 1, 13, 5 }, { 3, 7, 4 },  { 2, 16, 16 },
                                     { 1, 40, 1 }, { 5, 2, 33 }, { 1, 9, 64 } };
    memset(t, 0, sizeof *t);
    t->kind = (tpl_coll_kind)rnd(TPL_COLL_BARRIER);
    t->size = size;
    t->rows = (int)(rnd(2) ? 1 + rnd(3) : rnd(40));
    t->from_columns = rnd(3) != 0;
    t->to_columns = rnd(3) != 0;
    const int *s = shapes[rnd(6)];
    int outer = s[0], n = s[1], inner = s[2];
    make_part(&t->from, size, outer, n, inner);
    t->width = outer * n * inner;
    if (rnd(2)) /* the other side cuts another dim of the same row: [outer * n][inner] */
        make_part(&t->to, size, outer * n, inner, 1);
    else
        make_part(&t->to, size, outer, n, inner);
    bool cut_rows =
        (!is_sum(t) && !t->from_columns) || (t->kind >= TPL_COLL_REDUCE_SCATTER && !t->to_columns);
    if (cut_rows) t->rows = t->rows / size * size + size * (int)rnd(2);
    if (t->kind == TPL_COLL_ALL_REDUCE && rnd(4) == 0) /* beyond one shot */
        t->rows = 1 + (size > 2 ? 80 << 10 : 300 << 10) / (t->width * 4);
    for (int m = 0; m < size; m++) make_member(t, m);
    float *whole = zalloc((size_t)t->rows * (size_t)t->width * 4);
    for (int i = 0; i < t->rows * t->width; i++) whole[i] = (float)rnd(1 << 24);
    oracle(t, whole);
    free(whole);
}

static void free_trial(trial *t)
{
    free_part(&t->from);
    free_part(&t->to);
    for (int m = 0; m < t->size; m++) {
        free(t->in[m]);
        free(t->pristine[m]);
        free(t->out[m]);
        free(t->want[m]);
    }
}

/* -- Running them ---------------------------------------------------------------------------------------- */

typedef struct session {
    tpl_comm *comm;
    trial *trials;
    int n_trials;
    _Atomic int wrong;
} session;

static void run_trials(crew_seat *seat)
{
    session *s = seat->arg;
    tpl_group *g = tpl_comm_group(s->comm, 0, seat->rank);
    int m = tpl_group_index(g), nth = tpl_team_size(seat->team);
    for (int k = 0; k < s->n_trials; k++) {
        trial *t = &s->trials[k];
        for (int i = seat->ith; i < t->n_in[m]; i += nth) t->in[m][i] = t->pristine[m][i];
        if (!tpl_coll_run(g, &t->coll[m], seat->team, seat->ith)) s->wrong++;
        for (int i = seat->ith; i < t->n_in[m]; i += nth) t->in[m][i] = NAN;
        if (memcmp(t->out[m], t->want[m], (size_t)t->n_out[m] * 4)) s->wrong++;
    }
}

static tpl_comm *open_groups(int n_ranks, int n_groups, const int *sizes, const int *const *ranks,
                             uint32_t spin, tpl_abort *abort)
{
    tpl_comm *c;
    tpl_err err = { 0 };
    tpl_comm_desc d = { n_ranks, n_groups, sizes, ranks, spin, abort };
    if (tpl_comm_open(&c, "shm", &d, &err)) fail_msg("%s", err.msg);
    return c;
}

static tpl_comm *open_one(int n, uint32_t spin, tpl_abort *abort)
{
    int ranks[MAX_N];
    const int *list = ranks;
    for (int i = 0; i < n; i++) ranks[i] = n - 1 - i; /* group order is not rank order */
    return open_groups(n, 1, &n, &list, spin, abort);
}

static void session_of(int size, const int *nth, uint32_t spin, int n_trials)
{
    session s = { .comm = open_one(size, spin, NULL), .n_trials = n_trials };
    s.trials = zalloc((size_t)n_trials * sizeof *s.trials);
    for (int k = 0; k < n_trials; k++) make_trial(&s.trials[k], size);
    crew_run(size, nth, spin, NULL, run_trials, &s);
    for (int k = 0; k < n_trials; k++) free_trial(&s.trials[k]);
    free(s.trials);
    tpl_comm_close(s.comm);
    assert_int_equal(s.wrong, 0);
}

static void collectives_equal_loops_for_any_group_and_team(void **state)
{
    for (int size = 1; size <= MAX_N; size++)
        for (int most = 1; most <= 4; most++) {
            int nth[MAX_N];
            for (int m = 0; m < size; m++) nth[m] = most; /* equal teams, then teams of different sizes */
            session_of(size, nth, most * size > 2 ? 0 : 200, 12);
            for (int m = 0; m < size; m++) nth[m] = 1 + (int)rnd((uint32_t)most);
            session_of(size, nth, 20, 12);
        }
}

/* -- Bits ------------------------------------------------------------------------------------------------ */

struct bits {
    tpl_comm *comm;
    int n;
    float *in[MAX_N], *out[MAX_N];
};

static void reduce_bits(crew_seat *seat)
{
    struct bits *b = seat->arg;
    tpl_group *g = tpl_comm_group(b->comm, 0, seat->rank);
    int m = tpl_group_index(g);
    tpl_coll c = { .kind = TPL_COLL_ALL_REDUCE,
                   .in = b->in[m],
                   .out = b->out[m],
                   .rows = 1,
                   .in_cols = b->n,
                   .out_cols = b->n };
    tpl_coll_run(g, &c, seat->team, seat->ith);
}

/* Lengths on both sides of every change of method; -0, infinities and NaN among the values. */
static void all_reduce_has_the_same_bits_for_any_thread_count(void **state)
{
    static const int lengths[] = { 1, 15, 16, 17, 31, 33, 576, 16383, 16384, 16385, 20000 };
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        struct bits b = { .comm = open_one(5, 0, NULL), .n = lengths[l] };
        float *first = zalloc((size_t)b.n * 4);
        for (int m = 0; m < 5; m++) {
            b.in[m] = zalloc((size_t)b.n * 4);
            b.out[m] = zalloc((size_t)b.n * 4);
            for (int i = 0; i < b.n; i++)
                b.in[m][i] = (float)rnd(1 << 24) * (rnd(2) ? 1e-20f : 1e10f) * (rnd(2) ? 1 : -1);
            b.in[m][0] = -0.0f;
            if (b.n > 40) b.in[m][40] = m == 2 ? INFINITY : 1, b.in[m][39] = m == 3 ? NAN : 1;
        }
        for (int nth = 1; nth <= 3; nth++) {
            int teams[5] = { nth, 1, nth, 2, nth };
            crew_run(5, teams, 0, NULL, reduce_bits, &b);
            if (nth == 1) memcpy(first, b.out[0], (size_t)b.n * 4);
            for (int m = 0; m < 5; m++) assert_memory_equal(b.out[m], first, (size_t)b.n * 4);
        }
        for (int i = 0; i < b.n; i++) {
            float want = b.in[0][i];
            for (int m = 1; m < 5; m++) want += b.in[m][i];
            assert_true(first[i] == want || (isnan(want) && isnan(first[i])));
        }
        assert_true(signbit(first[0]));
        for (int m = 0; m < 5; m++) free(b.in[m]), free(b.out[m]);
        free(first);
        tpl_comm_close(b.comm);
    }
}

/* -- Several groups -------------------------------------------------------------------------------------- */

struct mesh {
    tpl_comm *comm;
    int rounds;
    _Atomic int wrong;
    float in[4][32], out[4][32];
};

/* Rank r is at (r / 2, r % 2): rows are groups 0 and 1, columns groups 2 and 3. Values are small integers,
 * so sums are exact. */
static void cross_mesh(crew_seat *seat)
{
    struct mesh *x = seat->arg;
    int r = seat->rank, nth = tpl_team_size(seat->team);
    tpl_group *groups[2] = { tpl_comm_group(x->comm, r / 2, r), tpl_comm_group(x->comm, 2 + r % 2, r) };
    for (int k = 0; k < x->rounds; k++)
        for (int axis = 0; axis < 2; axis++) {
            int other = axis ? r ^ 2 : r ^ 1;
            for (int i = seat->ith; i < 32; i += nth) x->in[r][i] = (float)(r * 1000 + k + i);
            tpl_coll c = { .kind = TPL_COLL_ALL_REDUCE,
                           .in = x->in[r],
                           .out = x->out[r],
                           .rows = 1,
                           .in_cols = 32,
                           .out_cols = 32 };
            if (!tpl_coll_run(groups[axis], &c, seat->team, seat->ith)) x->wrong++;
            for (int i = 0; i < 32; i++)
                if (x->out[r][i] != (float)((r + other) * 1000 + 2 * (k + i))) x->wrong++;
            tpl_coll wait = { .kind = TPL_COLL_BARRIER }; /* reading is over before anyone writes again */
            if (!tpl_coll_run(groups[axis], &wait, seat->team, seat->ith)) x->wrong++;
        }
}

static void groups_of_two_axes_interleave(void **state)
{
    static const int sizes[4] = { 2, 2, 2, 2 }, a[2] = { 0, 1 }, b[2] = { 2, 3 }, c[2] = { 0, 2 },
                     d[2] = { 1, 3 };
    const int *const ranks[4] = { a, b, c, d };
    static const int teams[2][4] = { { 1, 1, 1, 1 }, { 2, 1, 3, 1 } };
    for (int t = 0; t < 2; t++) {
        struct mesh x = { .comm = open_groups(4, 4, sizes, ranks, 0, NULL), .rounds = t ? 500 : 2000 };
        assert_null(tpl_comm_group(x.comm, 0, 2));
        assert_int_equal(tpl_group_size(tpl_comm_group(x.comm, 3, 3)), 2);
        assert_int_equal(tpl_group_index(tpl_comm_group(x.comm, 3, 3)), 1);
        assert_int_equal(tpl_group_ranks(tpl_comm_group(x.comm, 3, 3))[0], 1);
        crew_run(4, teams[t], 0, NULL, cross_mesh, &x);
        assert_int_equal(x.wrong, 0);
        tpl_comm_close(x.comm);
    }
}

/* -- Stalls and aborts ----------------------------------------------------------------------------------- */

struct stall {
    tpl_comm *comm;
    tpl_abort *abort;
    _Atomic int n_false, n_true, go;
    _Atomic int64_t latest_ns;
    float in[4][8], out[4][8];
};

/* Group index 2 (rank 1: the group is in reverse order) comes late or never. */
static void stall_one(crew_seat *seat)
{
    struct stall *s = seat->arg;
    tpl_group *g = tpl_comm_group(s->comm, 0, seat->rank);
    int m = tpl_group_index(g);
    tpl_coll c = {
        .kind = TPL_COLL_ALL_REDUCE, .in = s->in[m], .out = s->out[m], .rows = 2, .in_cols = 4, .out_cols = 4
    };
    c.name = "blk.3.o_proj";
    c.cseq = 17;
    while (m == 2 && !s->go) {
        usleep(1000);
        if (tpl_abort_is_set(s->abort)) return;
    }
    if (tpl_coll_run(g, &c, seat->team, seat->ith))
        s->n_true++;
    else
        s->n_false++;
    int64_t now = tpl_now_ns(), latest = s->latest_ns;
    while (now > latest && !atomic_compare_exchange_weak(&s->latest_ns, &latest, now)) {}
}

static void expect_absent(struct stall *s)
{
    size_t bytes = 0;
    uint32_t cseq = 0;
    const char *name = NULL;
    tpl_group *g = tpl_comm_group(s->comm, 0, 3); /* index 0 */
    uint64_t mask = 0;
    for (int i = 0; i < 5000 && mask != 4; i++) {
        mask = tpl_group_absent(g, &bytes, &name, &cseq);
        usleep(1000);
    }
    assert_int_equal(mask, 4);
    assert_int_equal(bytes, 2 * 4 * 4);
    assert_int_equal(cseq, 17);
    assert_string_equal(name, "blk.3.o_proj");
    assert_int_equal(tpl_group_absent(tpl_comm_group(s->comm, 0, 1), NULL, NULL, NULL),
                     0); /* waits for nobody */
}

static void watchdog_sees_who_is_absent(void **state)
{
    int nth[4] = { 2, 1, 2, 3 };
    struct stall s = { .abort = tpl_abort_new() };
    s.comm = open_one(4, 0, s.abort);
    assert_int_equal(tpl_group_absent(tpl_comm_group(s.comm, 0, 3), NULL, NULL, NULL), 0);
    crew *c = crew_start(4, nth, 0, s.abort, stall_one, &s);
    expect_absent(&s);
    s.go = 1;
    crew_join(c);
    assert_int_equal(s.n_true, 8);
    assert_int_equal(tpl_group_absent(tpl_comm_group(s.comm, 0, 3), NULL, NULL, NULL), 0);
    tpl_comm_close(s.comm);
    tpl_abort_free(s.abort);
}

static int64_t abort_once(void)
{
    int nth[4] = { 2, 2, 1, 2 };
    tpl_err why = { .code = TPL_ERR_COMM, .msg = "stalled" };
    struct stall s = { .abort = tpl_abort_new() };
    s.comm = open_one(4, 20, s.abort);
    crew *c = crew_start(4, nth, 20, s.abort, stall_one, &s);
    expect_absent(&s);
    int64_t t0 = tpl_now_ns();
    tpl_abort_raise(s.abort, &why);
    crew_join(c);
    assert_int_equal(s.n_false, 5);
    assert_int_equal(s.n_true, 0);
    int64_t took = s.latest_ns - t0;

    tpl_abort_clear(s.abort); /* the same groups serve again after a reset */
    tpl_comm_reset(s.comm);
    s.go = 1;
    crew_run(4, nth, 0, s.abort, stall_one, &s);
    assert_int_equal(s.n_true, 7);
    tpl_comm_close(s.comm);
    tpl_abort_free(s.abort);
    return took;
}

static void abort_ends_a_collective_within_50_ms(void **state)
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < 5 && best > 50000000; i++) { /* a busy machine may delay any one try */
        int64_t took = abort_once();
        if (took < best) best = took;
    }
    assert_true(best <= 50000000);
}

static void timing_checks_its_sums(void **state)
{
    static const tpl_timing_desc good[] = { { 2, 1, 20, 1000 }, { 3, 2, 5, 70001 }, { 2, 2, 20, 0 } };
    tpl_timing_desc bad[] = { { 0, 1, 1, 4 }, { 65, 1, 1, 4 }, { 1, 0, 1, 4 }, { 1, 1, 0, 4 } };
    tpl_timing t;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tpl_comm_time(&t, &good[i], NULL), TPL_OK);
        assert_true(t.checked);
        assert_true(t.us > 0 && t.us_min <= t.us && t.us <= t.us_max);
    }
    for (int i = 0; i < 4; i++) assert_int_equal(tpl_comm_time(&t, &bad[i], NULL), TPL_ERR_ARG);
}

/* -- Descriptions ---------------------------------------------------------------------------------------- */

static tpl_status try_open(const char *transport, int n_ranks, int size, const int *ranks)
{
    tpl_comm *c;
    tpl_comm_desc d = { n_ranks, 1, &size, &ranks, 0, NULL };
    tpl_status st = tpl_comm_open(&c, transport, &d, NULL);
    tpl_comm_close(c);
    return st;
}

static void bad_groups_are_refused(void **state)
{
    static const int good[2] = { 1, 0 }, twice[2] = { 1, 1 }, beyond[2] = { 0, 2 }, negative[1] = { -1 };
    assert_int_equal(try_open("shm", 2, 2, good), TPL_OK);
    assert_int_equal(try_open("tcp", 2, 2, good), TPL_ERR_UNSUPPORTED);
    assert_int_equal(try_open("shm", 2, 2, twice), TPL_ERR_ARG);
    assert_int_equal(try_open("shm", 2, 2, beyond), TPL_ERR_ARG);
    assert_int_equal(try_open("shm", 2, 1, negative), TPL_ERR_ARG);
    assert_int_equal(try_open("shm", 2, 0, good), TPL_ERR_UNSUPPORTED);
    assert_string_equal(tpl_comm_transports()[0], "shm");
}

static void bad_shapes_are_refused(void **state)
{
    static const tpl_range r0[] = { { 0, 3 } }, r1[] = { { 3, 2 } }, past[] = { { 4, 2 } };
    static const tpl_index x0 = { 1, 3, r0 }, x1 = { 1, 2, r1 }, bad = { 1, 2, past };
    const tpl_index *whole[2] = { &x0, &x1 }, *gap[2] = { &x0, &x0 }, *out[2] = { &x0, &bad };
    tpl_coll c = { .kind = TPL_COLL_ALL_GATHER,
                   .rows = 3,
                   .in_cols = 6,
                   .out_cols = 10,
                   .from = { 1, 5, 2, whole },
                   .name = "g" };
    assert_int_equal(tpl_coll_check(&c, 2, 0, NULL), TPL_OK);
    assert_int_equal(tpl_coll_check(&c, 2, 1, NULL), TPL_ERR_ARG); /* that member has 4 columns */
    c.from.index = gap;
    assert_int_equal(tpl_coll_check(&c, 2, 0, NULL), TPL_ERR_ARG);
    c.from.index = out;
    assert_int_equal(tpl_coll_check(&c, 2, 0, NULL), TPL_ERR_ARG);
    c.from.index = whole;
    c.out_cols = 11;
    assert_int_equal(tpl_coll_check(&c, 2, 0, NULL), TPL_ERR_ARG);
    tpl_coll rows = { .kind = TPL_COLL_REDUCE_SCATTER, .rows = 3, .in_cols = 6, .out_cols = 6 };
    tpl_err err = { 0 };
    assert_int_equal(tpl_coll_check(&rows, 2, 0, &err), TPL_ERR_ARG);
    assert_string_equal(err.msg, "3 rows cannot be cut in 2 equal pieces");
    rows.rows = INT64_MAX / 2;
    assert_int_equal(tpl_coll_check(&rows, 2, 0, NULL), TPL_ERR_ARG);
}

/* -- Channels -------------------------------------------------------------------------------------------- */

enum { MESSAGES = 200, SLOTS = 3, WORDS = 500 };

struct traffic {
    tpl_channel *channel;
    tpl_abort *abort;
    int src[WORDS], dst[2][WORDS];
    _Atomic int n_sent, n_got[2], wrong, ahead;
};

static size_t message_bytes(int k)
{
    return (size_t)(k * 37 % (WORDS * 4 + 1)); /* also 0, also odd */
}

static void send_all(struct traffic *t, crew_seat *seat)
{
    int nth = tpl_team_size(seat->team);
    for (int k = 0; k < MESSAGES; k++) {
        for (int i = seat->ith; i < WORDS; i += nth) t->src[i] = k * WORDS + i;
        if (!tpl_channel_send(t->channel, t->src, message_bytes(k), seat->team, seat->ith)) t->wrong++;
        if (seat->ith) continue;
        int ahead0 = ++t->n_sent - t->n_got[0], ahead1 = t->n_sent - t->n_got[1],
            most = ahead0 > ahead1 ? ahead0 : ahead1;
        if (most > t->ahead) t->ahead = most;
    }
}

static void receive_all(struct traffic *t, crew_seat *seat)
{
    int reader = seat->rank - 1, *dst = t->dst[reader], want[WORDS];
    for (int k = 0; k < MESSAGES; k++) {
        size_t bytes = message_bytes(k);
        if (reader == 1 && k % 50 == 10) usleep(3000); /* the slow one */
        if (!tpl_channel_recv(t->channel, reader, dst, bytes, seat->team, seat->ith)) t->wrong++;
        for (int i = 0; i < WORDS; i++) want[i] = k * WORDS + i;
        if (memcmp(dst, want, bytes)) t->wrong++;
        if (seat->ith == 0) t->n_got[reader]++;
    }
}

static void traffic_main(crew_seat *seat)
{
    if (seat->rank == 0)
        send_all(seat->arg, seat);
    else
        receive_all(seat->arg, seat);
}

static void channel_delivers_in_order_to_slow_readers(void **state)
{
    static const int teams[3][3] = { { 1, 1, 1 }, { 2, 1, 3 }, { 3, 2, 1 } };
    for (int i = 0; i < 3; i++)
        for (uint32_t spin = 0; spin <= 50; spin += 50) {
            struct traffic *t = zalloc(sizeof *t);
            assert_int_equal(tpl_channel_new(&t->channel, 2, SLOTS, WORDS * 4, spin, NULL, NULL), TPL_OK);
            crew_run(3, teams[i], spin, NULL, traffic_main, t);
            assert_int_equal(t->wrong, 0);
            assert_in_range(t->ahead, 2,
                            SLOTS + 1); /* a reader counts after it freed the slot: one more may show */
            tpl_channel_free(t->channel);
            free(t);
        }
}

static void fill_up(crew_seat *seat)
{
    struct traffic *t = seat->arg;
    while (tpl_channel_send(t->channel, t->src, 16, seat->team, seat->ith)) t->n_sent += seat->ith == 0;
}

static void wait_for_message(crew_seat *seat)
{
    struct traffic *t = seat->arg;
    if (!tpl_channel_recv(t->channel, 1, t->dst[1], 16, seat->team, seat->ith)) t->wrong++;
}

static void writers_and_readers_unwind_on_abort(void **state)
{
    int nth = 2;
    struct traffic t = { .abort = tpl_abort_new() };
    assert_int_equal(tpl_channel_new(&t.channel, 2, SLOTS, 16, 0, t.abort, NULL), TPL_OK);
    crew *c = crew_start(1, &nth, 0, t.abort, fill_up, &t);
    for (int ms = 0; ms < 5000 && t.n_sent < SLOTS - 1; ms += 10)
        usleep(10000); /* on a loaded machine a thread may take long to start */
    usleep(20000);
    tpl_abort_raise(t.abort, NULL);
    crew_join(c);
    assert_in_range(t.n_sent, SLOTS - 1, SLOTS);
    tpl_abort_clear(t.abort);
    tpl_channel_reset(t.channel);
    c = crew_start(1, &nth, 0, t.abort, wait_for_message, &t);
    usleep(20000);
    assert_int_equal(t.wrong, 0);
    tpl_abort_raise(t.abort, NULL);
    crew_join(c);
    assert_int_equal(t.wrong, 2);
    tpl_channel_free(t.channel);
    tpl_abort_free(t.abort);
}

static void sizes_that_differ_raise_the_abort(void **state)
{
    char text[32] = "hello", got[32];
    tpl_channel *c;
    tpl_err why;
    tpl_abort *a = tpl_abort_new();
    assert_int_equal(tpl_channel_new(&c, 1, 0, 16, 0, a, NULL), TPL_ERR_ARG);
    assert_int_equal(tpl_channel_new(&c, 1, 2, 16, 0, a, NULL), TPL_OK);
    assert_false(tpl_channel_send(c, text, 17, NULL, 0));
    assert_true(tpl_abort_is_set(a));
    tpl_abort_clear(a);
    assert_true(tpl_channel_send(c, text, 16, NULL, 0));
    assert_false(tpl_channel_recv(c, 0, got, 12, NULL, 0));
    tpl_abort_get(a, &why);
    assert_int_equal(why.code, TPL_ERR_COMM);
    assert_string_equal(why.msg, "received 16 bytes where 12 were expected");
    tpl_abort_clear(a);
    assert_true(tpl_channel_recv(c, 0, got, 16, NULL, 0));
    assert_string_equal(got, "hello");
    tpl_channel_free(c);
    tpl_channel_free(NULL);
    tpl_abort_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_equal_loops_for_any_group_and_team),
        cmocka_unit_test(all_reduce_has_the_same_bits_for_any_thread_count),
        cmocka_unit_test(groups_of_two_axes_interleave),
        cmocka_unit_test(watchdog_sees_who_is_absent),
        cmocka_unit_test(abort_ends_a_collective_within_50_ms),
        cmocka_unit_test(timing_checks_its_sums),
        cmocka_unit_test(bad_groups_are_refused),
        cmocka_unit_test(bad_shapes_are_refused),
        cmocka_unit_test(channel_delivers_in_order_to_slow_readers),
        cmocka_unit_test(writers_and_readers_unwind_on_abort),
        cmocka_unit_test(sizes_that_differ_raise_the_abort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
