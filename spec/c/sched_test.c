/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler without a model. This file takes the engine's place (its own tpl_engine_slot, _submit and _wait are linked before those of
 * core/exec): a "cache" that keeps the token of every position in the page it belongs to, and a "model" whose next token is a checksum of the
 * whole history read back through the block table. A page that two requests share, a position that is skipped or sent twice, or a wrong table
 * changes the tokens; what they must be is computed by a plain loop over one sequence.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/sched.h"

enum { VOCAB = 43, PAGE = 4, N_PAGES = 24, SEQS = 4, MOST_IDS = 64, REQUESTS = 12, EOG = 42, BAD_ID = 41 };

struct tpl_engine {
    int n_stages;
    tpl_step *slots[4];
    uint64_t head, tail;
    int32_t cache[N_PAGES * PAGE];
    uint32_t most_seqs, n_continued;
    int32_t most_len[REQUESTS + 1]; /* by handle: positions that a request may ever fill */
};

/* -- The engine --------------------------------------------------------------------------------------------------------- */

tpl_step *tpl_engine_slot(tpl_engine *e)
{
    if (e->head - e->tail >= (uint64_t)(e->n_stages > 1 ? e->n_stages : 2)) return NULL;
    tpl_step *s = e->slots[e->head % ((uint64_t)e->n_stages + 1)];
    s->n_tok = s->n_seq = s->n_out = 0;
    s->n_pages = s->n_pool = s->n_logit_rows = 0;
    s->continues = false;
    return s;
}

static uint32_t mix(uint32_t sum, int32_t id)
{
    return sum * 31 + (uint32_t)id + 7;
}

static int32_t *cell(tpl_engine *e, const tpl_step *s, const tpl_step_seq *q, int32_t pos)
{
    assert_true((uint32_t)pos / PAGE < q->n_pages);
    uint32_t page = tpl_step_pages(s)[q->page0 + (uint32_t)pos / PAGE];
    assert_true(page < N_PAGES);
    return &e->cache[page * PAGE + (uint32_t)pos % PAGE];
}

/* A literal, or what an output row of the step before chose. */
static int32_t token_at(tpl_engine *e, const tpl_step *s, int32_t t)
{
    int32_t id = tpl_step_tok(s)[t];
    if (id >= 0) return id;
    assert_true(s->continues && e->head > 0);
    const tpl_step *before = e->slots[(e->head - 1) % ((uint64_t)e->n_stages + 1)];
    assert_true(-1 - id < before->n_out);
    e->n_continued++;
    id = tpl_step_res_tok(before)[-1 - id];
    return id < 0 ? 0 : id;
}

static void run_seq(tpl_engine *e, const tpl_step *s, int32_t i, uint32_t *logit_row)
{
    const tpl_step_seq *q = &tpl_step_seqs(s)[i];
    assert_int_equal(q->kv_len, q->pos0 + q->q_len);
    assert_true(q->kv_len <= e->most_len[q->slot]); /* nothing is run behind the last token */
    for (int32_t k = 0; k < q->q_len; k++) {
        assert_int_equal(tpl_step_pos(s)[q->q0 + k], q->pos0 + k);
        assert_int_equal(tpl_step_tok_seq(s)[q->q0 + k], i);
        *cell(e, s, q, q->pos0 + k) = token_at(e, s, q->q0 + k);
    }
    for (int32_t k = 0; k < q->n_out; k++) {
        int32_t row = q->out0 + k, pos = tpl_step_pos(s)[tpl_step_out(s)[row]];
        uint32_t sum = 0;
        assert_int_equal(tpl_step_out_seq(s)[row], i);
        for (int32_t p = 0; p <= pos; p++) sum = mix(sum, *cell(e, s, q, p));
        int32_t next = (int32_t)(sum % VOCAB);
        tpl_step_res_tok(s)[row] = !(q->flags & TPL_SEQ_SAMPLE) ? -1 : next == BAD_ID ? -2 : next;
        if (q->flags & TPL_SEQ_LOGITS) tpl_step_logits(s)[(size_t)(*logit_row)++ * VOCAB] = (float)next;
    }
}

tpl_status tpl_engine_submit(tpl_engine *e, tpl_err *err)
{
    tpl_step *s = e->slots[e->head % ((uint64_t)e->n_stages + 1)];
    uint32_t rows = 0;
    assert_in_range(s->n_tok, 1, s->cap.tok);
    assert_in_range(s->n_seq, 1, s->cap.seq);
    assert_true((uint32_t)s->n_out <= s->cap.out && s->n_pages <= s->cap.pages && s->n_pool <= s->cap.pool);
    assert_true(s->n_logit_rows <= s->cap.logit_rows);
    for (int32_t i = 0; i < s->n_seq; i++) run_seq(e, s, i, &rows);
    assert_int_equal(rows, s->n_logit_rows);
    if ((uint32_t)s->n_seq > e->most_seqs) e->most_seqs = (uint32_t)s->n_seq;
    e->head++;
    return TPL_OK;
}

tpl_status tpl_engine_wait(tpl_engine *e, tpl_step **out, tpl_err *err)
{
    assert_true(e->head > e->tail);
    *out = e->slots[e->tail++ % ((uint64_t)e->n_stages + 1)];
    return TPL_OK;
}

/* -- Requests ----------------------------------------------------------------------------------------------------------- */

typedef struct rows_seen {
    int64_t next;      /* position of the row to come */
    int32_t n;
    float first[MOST_IDS];
} rows_seen;

static void on_rows(void *ctx, void *user, int64_t pos0, int32_t n, const float *rows, int64_t vocab)
{
    rows_seen *r = user;
    if (r->n) assert_int_equal(pos0, r->next);
    assert_int_equal(vocab, VOCAB);
    for (int32_t i = 0; i < n; i++) r->first[r->n++] = rows[i * vocab];
    r->next = pos0 + n;
}

static bool is_eog(void *ctx, int32_t id)
{
    return id == EOG;
}

typedef struct bench {
    tpl_engine engine;
    tpl_sched *sched;
} bench;

static bench *bench_new(int n_stages, int32_t chunk, uint32_t tok, bool shuffle)
{
    bench *b = calloc(1, sizeof *b);
    tpl_step_caps caps = { .tok = tok, .seq = SEQS, .out = SEQS, .pages = N_PAGES + SEQS, .pool = N_PAGES * PAGE + SEQS * 1024,
                           .logit_rows = SEQS, .vocab = VOCAB, .top = 2 };
    b->engine.n_stages = n_stages;
    for (int i = 0; i <= n_stages; i++) {
        b->engine.slots[i] = aligned_alloc(64, tpl_step_bytes(&caps));
        tpl_step_init(b->engine.slots[i], &caps);
    }
    tpl_sched_desc d = { .engine = &b->engine, .caps = caps, .n_stages = n_stages, .page = PAGE, .n_pages = N_PAGES, .chunk = chunk,
                         .shuffle_pages = shuffle, .seed = 5, .is_eog = is_eog, .on_rows = on_rows };
    assert_int_equal(tpl_sched_new(&b->sched, &d, NULL), TPL_OK);
    return b;
}

static void bench_free(bench *b)
{
    tpl_sched_free(b->sched);
    for (int i = 0; i <= b->engine.n_stages; i++) free(b->engine.slots[i]);
    free(b);
}

static void prompt_of(int k, int32_t *ids, int32_t *n)
{
    *n = 1 + k * 7 % 19;
    for (int32_t i = 0; i < *n; i++) ids[i] = (k * 13 + i * i * 3) % 41;
}

static int64_t add(bench *b, int k, int32_t max_tokens, uint32_t flags, void *user)
{
    int32_t ids[MOST_IDS];
    tpl_request r = { .ids = ids, .max_tokens = max_tokens, .flags = flags, .sampling = { .repetition = k % 3 ? 1 : 1.5f }, .user = user };
    int64_t handle = 0;
    prompt_of(k, ids, &r.n_ids);
    assert_int_equal(tpl_sched_add(b->sched, &r, &handle, NULL), TPL_OK);
    b->engine.most_len[handle] = r.n_ids + (max_tokens > 0 ? max_tokens - 1 : 0);
    return handle;
}

typedef struct answer {
    int32_t ids[MOST_IDS], n;
    int finish; /* -1: none yet */
} answer;

/* The same by a loop over one sequence. */
static void alone(int k, int32_t max_tokens, answer *a)
{
    int32_t ids[MOST_IDS], n;
    prompt_of(k, ids, &n);
    *a = (answer){ .finish = -1 };
    while (a->finish < 0) {
        uint32_t sum = 0;
        for (int32_t i = 0; i < n; i++) sum = mix(sum, ids[i]);
        int32_t id = (int32_t)(sum % VOCAB);
        if (id == BAD_ID) {
            a->finish = TPL_FINISH_NUMERIC;
            break;
        }
        ids[n++] = a->ids[a->n++] = id;
        if (id == EOG) a->finish = TPL_FINISH_STOP;
        else if (a->n == max_tokens) a->finish = TPL_FINISH_LENGTH;
    }
}

/* Handles count from 1 in order of arrival. */
static void take_events(bench *b, answer *answers)
{
    tpl_event e;
    while (tpl_sched_next_event(b->sched, &e)) {
        answer *a = &answers[e.handle - 1];
        assert_int_equal(a->finish, -1); /* nothing comes after the end */
        if (e.kind == TPL_EVENT_TOKEN) a->ids[a->n++] = e.token;
        else a->finish = e.finish;
    }
}

static void run_all(bench *b, answer *answers)
{
    for (int turn = 0; !tpl_sched_is_idle(b->sched); turn++) {
        assert_true(turn < 10000);
        assert_int_equal(tpl_sched_pump(b->sched, NULL), TPL_OK);
        take_events(b, answers);
    }
    tpl_sched_stats s;
    tpl_sched_get_stats(b->sched, &s);
    assert_int_equal(s.pages_left, N_PAGES);
}

/* -- Tests -------------------------------------------------------------------------------------------------------------- */

static void tokens_do_not_depend_on_company_or_chunks(void **state)
{
    static const struct { int stages; int32_t chunk; uint32_t tok; } ways[] = {
        { 1, 0, 64 }, { 1, 3, 64 }, { 1, 0, 5 }, { 1, 1, 1 }, { 2, 0, 64 }, { 2, 4, 6 }, { 3, 2, 9 },
    };
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
        for (int shuffle = 0; shuffle < 2; shuffle++) {
            bench *b = bench_new(ways[w].stages, ways[w].chunk, ways[w].tok, shuffle);
            answer got[REQUESTS], want;
            for (int k = 0; k < REQUESTS; k++) {
                got[k] = (answer){ .finish = -1 };
                add(b, k, 5 + k, 0, NULL);
                if (k % 4 == 3) assert_int_equal(tpl_sched_pump(b->sched, NULL), TPL_OK); /* some arrive while others run */
            }
            run_all(b, got);
            int ends[4] = { 0 };
            for (int k = 0; k < REQUESTS; k++) {
                alone(k, 5 + k, &want);
                ends[want.finish]++;
                assert_int_equal(got[k].n, want.n);
                assert_memory_equal(got[k].ids, want.ids, (size_t)want.n * sizeof *want.ids);
                assert_int_equal(got[k].finish, want.finish);
            }
            assert_true(ends[TPL_FINISH_STOP] && ends[TPL_FINISH_LENGTH] && ends[TPL_FINISH_NUMERIC]); /* all are tried */
            if (ways[w].tok > SEQS) assert_true(b->engine.most_seqs > 1);
            assert_int_equal(b->engine.n_continued > 0, ways[w].stages == 1); /* stages have steps in flight anyway */
            bench_free(b);
        }
}

static void rows_come_once_each_and_in_order(void **state)
{
    for (int n_stages = 1; n_stages <= 2; n_stages++) {
        bench *b = bench_new(n_stages, 3, 8, false);
        rows_seen seen[REQUESTS] = { 0 };
        answer got[REQUESTS];
        for (int k = 0; k < REQUESTS; k++) {
            got[k] = (answer){ .finish = -1 };
            add(b, k, 0, k % 2 ? TPL_REQ_ROWS_ALL : TPL_REQ_ROWS_LAST, &seen[k]);
        }
        run_all(b, got);
        for (int k = 0; k < REQUESTS; k++) {
            int32_t ids[MOST_IDS], n;
            uint32_t sum = 0;
            prompt_of(k, ids, &n);
            assert_int_equal(seen[k].n, k % 2 ? n : 1);
            assert_int_equal(seen[k].next, n);
            for (int32_t i = 0; i < n; i++) {
                sum = mix(sum, ids[i]);
                if (k % 2 || i == n - 1) assert_true(seen[k].first[k % 2 ? i : 0] == (float)(sum % VOCAB));
            }
            assert_int_equal(got[k].finish, TPL_FINISH_LENGTH);
            assert_int_equal(got[k].n, 0);
        }
        bench_free(b);
    }
}

static void canceled_requests_end_and_give_their_pages_back(void **state)
{
    for (int n_stages = 1; n_stages <= 3; n_stages++) {
        bench *b = bench_new(n_stages, 2, 8, false);
        rows_seen seen = { 0 };
        answer got[4];
        for (int k = 0; k < 4; k++) got[k] = (answer){ .finish = -1 };
        add(b, 8, 30, TPL_REQ_IGNORE_EOS, NULL);
        add(b, 5, 20, TPL_REQ_ROWS_ALL, &seen); /* in its prompt when it is canceled */
        add(b, 2, 6, 0, NULL);
        add(b, 9, 30, 0, NULL); /* perhaps not admitted yet */
        assert_int_equal(tpl_sched_pump(b->sched, NULL), TPL_OK);
        take_events(b, got);
        tpl_sched_cancel(b->sched, 2);
        tpl_sched_cancel(b->sched, 4);
        int32_t rows = seen.n;
        for (int i = 0; i < 3; i++) assert_int_equal(tpl_sched_pump(b->sched, NULL), TPL_OK);
        take_events(b, got);
        tpl_sched_cancel(b->sched, 1);
        tpl_sched_cancel(b->sched, 77); /* nobody */
        run_all(b, got);
        assert_int_equal(seen.n, rows); /* none after cancel returned */
        assert_int_equal(got[1].finish, TPL_FINISH_CANCELED);
        assert_int_equal(got[3].finish, TPL_FINISH_CANCELED);
        assert_int_not_equal(got[0].finish, -1);
        answer want;
        alone(2, 6, &want);
        assert_memory_equal(got[2].ids, want.ids, (size_t)want.n * sizeof *want.ids);
        bench_free(b);
    }
}

static void a_scheduler_may_be_freed_while_requests_wait(void **state)
{
    bench *b = bench_new(2, 2, 8, false);
    for (int k = 0; k < REQUESTS; k++) add(b, k, 9, 0, NULL);
    assert_int_equal(tpl_sched_pump(b->sched, NULL), TPL_OK);
    bench_free(b);
}

static void refuses(bench *b, tpl_request r, tpl_status code, const char *where)
{
    int64_t handle;
    tpl_err err = { 0 };
    assert_int_equal(tpl_sched_add(b->sched, &r, &handle, &err), code);
    assert_string_equal(err.where, where);
    assert_true(tpl_sched_is_idle(b->sched));
}

static void what_cannot_run_is_refused(void **state)
{
    bench *b = bench_new(1, 0, 64, false);
    const int32_t good[] = { 1, 2, 3 }, high[] = { 1, VOCAB }, low[] = { -1 }, many[513] = { 0 };
    const float biases[513] = { 0 };
    refuses(b, (tpl_request){ .ids = good, .n_ids = 0, .max_tokens = 1 }, TPL_ERR_ARG, "ids");
    refuses(b, (tpl_request){ .ids = high, .n_ids = 2 }, TPL_ERR_ARG, "ids");
    refuses(b, (tpl_request){ .ids = low, .n_ids = 1 }, TPL_ERR_ARG, "ids");
    refuses(b, (tpl_request){ .ids = good, .n_ids = 3, .max_tokens = -1 }, TPL_ERR_ARG, "max_tokens");
    refuses(b, (tpl_request){ .ids = good, .n_ids = 3, .bias_ids = high, .biases = biases, .n_bias = 2 }, TPL_ERR_ARG, "logit_bias");
    refuses(b, (tpl_request){ .ids = good, .n_ids = 3, .bias_ids = many, .biases = biases, .n_bias = 513 }, TPL_ERR_ARG, "logit_bias");
    refuses(b, (tpl_request){ .ids = good, .n_ids = 3, .max_tokens = N_PAGES * PAGE - 2 }, TPL_ERR_MEM, "kv_full");
    refuses(b, (tpl_request){ .ids = good, .n_ids = 3, .max_tokens = INT32_MAX }, TPL_ERR_MEM, "kv_full");
    int64_t handle;
    tpl_request fits = { .ids = good, .n_ids = 3, .max_tokens = N_PAGES * PAGE - 3, .flags = TPL_REQ_IGNORE_EOS };
    assert_int_equal(tpl_sched_add(b->sched, &fits, &handle, NULL), TPL_OK);
    bench_free(b);
}

static void a_slot_too_small_for_the_tables_is_refused(void **state)
{
    tpl_sched *s;
    tpl_sched_desc d = { .n_stages = 1, .page = PAGE, .n_pages = N_PAGES,
                         .caps = { .tok = 8, .seq = 2, .out = 2, .pages = N_PAGES - 1, .pool = 1 << 16, .vocab = VOCAB } };
    assert_int_equal(tpl_sched_new(&s, &d, NULL), TPL_ERR_ARG);
    d.caps.pages = N_PAGES;
    d.caps.pool = N_PAGES * PAGE + 2 * 1024 - 1;
    assert_int_equal(tpl_sched_new(&s, &d, NULL), TPL_ERR_ARG);
    d.caps.pool++;
    assert_int_equal(tpl_sched_new(&s, &d, NULL), TPL_OK);
    tpl_sched_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_do_not_depend_on_company_or_chunks),
        cmocka_unit_test(rows_come_once_each_and_in_order),
        cmocka_unit_test(canceled_requests_end_and_give_their_pages_back),
        cmocka_unit_test(a_scheduler_may_be_freed_while_requests_wait),
        cmocka_unit_test(what_cannot_run_is_refused),
        cmocka_unit_test(a_slot_too_small_for_the_tables_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
