/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/sched.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/ck.h"
#include "base/time.h"
#include "serve/pages.h"

enum { MAX_BIAS = 512 }; /* entries of a request; the pool of a step slot is sized for it (plan/make.lua) */

typedef struct seq {
    struct seq *next;
    int64_t handle;
    void *user;
    int32_t *ids; /* prompt, then output; room for max_tokens */
    int32_t n_prompt, n_ids, max_tokens;
    int32_t n_sched;      /* positions sent in steps so far */
    int32_t in_flight;    /* steps it is in */
    bool waits_for_token; /* a step that samples for it is in flight */
    int32_t row;          /* and this is the output row of the last such step */
    bool canceled, done;
    uint32_t flags, n_bias, n_pages;
    uint32_t *pages; /* NULL: not admitted yet */
    int32_t *bias_ids;
    float *biases;
    tpl_sampling sampling;
} seq;

typedef struct flight { /* which sequences a step in flight carries, in step order */
    seq **seqs;
    int32_t n;
} flight;

struct tpl_sched {
    tpl_sched_desc d;
    tpl_pages *pages;
    seq *first, **last;  /* in order of arrival */
    flight *flights;     /* ring of n_stages + 1 */
    uint64_t head, tail; /* steps submitted, and taken back */
    int64_t next_handle;
    tpl_event *events;
    size_t n_events, at_event, cap_events;
    tpl_sched_stats stats;
};

/* -- Life of a scheduler ---------------------------------------------------------------------------------- */

tpl_status tpl_sched_new(tpl_sched **out, const tpl_sched_desc *desc, tpl_err *err)
{
    *out = NULL;
    if (desc->page < 1 || desc->n_pages < 1 || desc->caps.pages < desc->n_pages ||
        desc->caps.pool < (uint64_t)desc->n_pages * desc->page + (uint64_t)desc->caps.seq * 2 * MAX_BIAS)
        return tpl_fail(err, TPL_ERR_ARG, 0, "scheduler", "a step slot has no room for the tables of %u pages of %u",
                        desc->n_pages, desc->page);
    tpl_sched *s = calloc(1, sizeof *s);
    if (!s) return tpl_fail(err, TPL_ERR_MEM, 0, "scheduler", "out of memory");
    s->d = *desc;
    s->last = &s->first;
    s->next_handle = 1;
    s->cap_events = 4 * (size_t)desc->caps.seq + 4;
    s->pages = tpl_pages_new(desc->n_pages, desc->shuffle_pages, desc->seed);
    s->flights = calloc((size_t)desc->n_stages + 1, sizeof *s->flights);
    s->events = calloc(s->cap_events, sizeof *s->events);
    bool ok = s->pages && s->flights && s->events;
    for (int i = 0; ok && i <= desc->n_stages; i++)
        ok = (s->flights[i].seqs = calloc(desc->caps.seq, sizeof(seq *))) != NULL;
    if (!ok) {
        tpl_sched_free(s);
        return tpl_fail(err, TPL_ERR_MEM, 0, "scheduler", "out of memory");
    }
    *out = s;
    return TPL_OK;
}

static void seq_free(seq *q)
{
    free(q->ids);
    free(q->pages);
    free(q->bias_ids);
    free(q->biases);
    free(q);
}

void tpl_sched_free(tpl_sched *s)
{
    if (!s) return;
    for (seq *q = s->first, *next; q; q = next) {
        next = q->next;
        seq_free(q);
    }
    for (int i = 0; s->flights && i <= s->d.n_stages; i++) free(s->flights[i].seqs);
    free(s->flights);
    free(s->events);
    tpl_pages_free(s->pages);
    free(s);
}

/* -- Requests --------------------------------------------------------------------------------------------- */

static tpl_status check_request(const tpl_sched *s, const tpl_request *r, uint32_t *n_pages, tpl_err *err)
{
    if (r->n_ids < 1) return tpl_fail(err, TPL_ERR_ARG, 0, "ids", "the prompt is empty");
    for (int32_t i = 0; i < r->n_ids; i++)
        if (r->ids[i] < 0 || (uint32_t)r->ids[i] >= s->d.caps.vocab)
            return tpl_fail(err, TPL_ERR_ARG, 0, "ids", "id %d at %d is not in the vocabulary of %u", r->ids[i], i,
                            s->d.caps.vocab);
    if (r->n_bias > MAX_BIAS)
        return tpl_fail(err, TPL_ERR_ARG, 0, "logit_bias", "%u entries, at most %d", r->n_bias, MAX_BIAS);
    for (uint32_t i = 0; i < r->n_bias; i++)
        if (r->bias_ids[i] < 0 || (uint32_t)r->bias_ids[i] >= s->d.caps.vocab)
            return tpl_fail(err, TPL_ERR_ARG, 0, "logit_bias", "id %d is not in the vocabulary of %u", r->bias_ids[i],
                            s->d.caps.vocab);
    if (r->max_tokens < 0) return tpl_fail(err, TPL_ERR_ARG, 0, "max_tokens", "%d is negative", r->max_tokens);
    uint64_t need = ((uint64_t)r->n_ids + (uint64_t)r->max_tokens + s->d.page - 1) / s->d.page;
    if (need > s->d.n_pages)
        return tpl_fail(err, TPL_ERR_MEM, 0, "kv_full",
                        "a prompt of %d and up to %d tokens need %" PRIu64 " pages of %u, the KV cache has %u",
                        r->n_ids, r->max_tokens, need, s->d.page, s->d.n_pages);
    *n_pages = (uint32_t)need;
    return TPL_OK;
}

tpl_status tpl_sched_add(tpl_sched *s, const tpl_request *r, int64_t *handle, tpl_err *err)
{
    uint32_t n_pages = 0;
    TPL_TRY(check_request(s, r, &n_pages, err));
    seq *q = calloc(1, sizeof *q);
    bool ok = q && (q->ids = malloc(((size_t)r->n_ids + (size_t)r->max_tokens + 1) * sizeof *q->ids));
    ok = ok && (!r->n_bias || ((q->bias_ids = malloc(r->n_bias * sizeof *q->bias_ids)) &&
                               (q->biases = malloc(r->n_bias * sizeof *q->biases))));
    if (!ok) {
        if (q) seq_free(q);
        return tpl_fail(err, TPL_ERR_MEM, 0, "request", "out of memory");
    }
    memcpy(q->ids, r->ids, (size_t)r->n_ids * sizeof *q->ids);
    if (r->n_bias) {
        memcpy(q->bias_ids, r->bias_ids, r->n_bias * sizeof *q->bias_ids);
        memcpy(q->biases, r->biases, r->n_bias * sizeof *q->biases);
    }
    q->n_prompt = q->n_ids = r->n_ids;
    q->max_tokens = r->max_tokens;
    q->flags = r->flags;
    q->n_bias = r->n_bias;
    q->n_pages = n_pages;
    q->sampling = r->sampling;
    if (q->sampling.n_logprobs > s->d.caps.top) q->sampling.n_logprobs = s->d.caps.top;
    if (q->sampling.n_logprobs > TPL_EVENT_TOP) q->sampling.n_logprobs = TPL_EVENT_TOP;
    q->user = r->user;
    q->handle = *handle = s->next_handle++;
    *s->last = q;
    s->last = &q->next;
    return TPL_OK;
}

void tpl_sched_cancel(tpl_sched *s, int64_t handle)
{
    for (seq *q = s->first; q; q = q->next)
        if (q->handle == handle) q->canceled = true;
}

bool tpl_sched_is_idle(const tpl_sched *s)
{
    return !s->first && s->head == s->tail;
}

/* -- Events ----------------------------------------------------------------------------------------------- */

static tpl_event *push_event(tpl_sched *s, tpl_event_kind kind, const seq *q)
{
    if (s->n_events == s->cap_events) { /* a caller that does not drain; growing beats losing a token */
        tpl_event *e = realloc(s->events, 2 * s->cap_events * sizeof *e);
        if (!e) return NULL;
        s->events = e;
        s->cap_events *= 2;
    }
    tpl_event *e = &s->events[s->n_events++];
    memset(e, 0, sizeof *e);
    e->kind = kind;
    e->handle = q->handle;
    e->user = q->user;
    e->time_us = tpl_now_us();
    return e;
}

bool tpl_sched_next_event(tpl_sched *s, tpl_event *out)
{
    if (s->at_event == s->n_events) {
        s->at_event = s->n_events = 0;
        return false;
    }
    *out = s->events[s->at_event++];
    return true;
}

static void finish(tpl_sched *s, seq *q, tpl_finish why)
{
    q->done = true;
    tpl_event *e = push_event(s, TPL_EVENT_DONE, q);
    if (e) e->finish = why;
}

/* Unlinks what is done and no longer in any step, and gives its pages back. */
static void sweep(tpl_sched *s)
{
    for (seq **at = &s->first; *at;) {
        seq *q = *at;
        if (q->canceled && !q->done && !q->in_flight) finish(s, q, TPL_FINISH_CANCELED);
        if (!q->done || q->in_flight) {
            at = &q->next;
            continue;
        }
        *at = q->next;
        if (s->last == &q->next) s->last = at;
        if (q->pages) tpl_pages_give(s->pages, q->n_pages, q->pages);
        seq_free(q);
    }
}

/* -- Forming a step --------------------------------------------------------------------------------------- */

static bool admit(tpl_sched *s, seq *q)
{
    if (q->pages) return true;
    if (tpl_pages_left(s->pages) < q->n_pages) return false;
    q->pages = malloc((q->n_pages ? q->n_pages : 1) * sizeof *q->pages);
    return q->pages && tpl_pages_take(s->pages, q->n_pages, q->pages);
}

static int32_t min32(int64_t a, int64_t b)
{
    return (int32_t)(a < b ? a : b);
}

/* Whether the step may continue the one in flight, which chooses q's token: the token is not its last, and nothing
 * but the token is needed from there. */
static bool runs_ahead(const tpl_sched *s, const seq *q)
{
    const tpl_sampling *p = &q->sampling;
    return s->d.n_stages == 1 && q->in_flight == 1 && q->n_ids - q->n_prompt + 1 < q->max_tokens &&
           p->repetition == 1.0f && p->frequency == 0 && p->presence == 0;
}

/* How many tokens of q the step may take now: the sampled token, or the next chunk of the prompt. */
static int32_t wanted(const tpl_sched *s, const seq *q, const tpl_step *step)
{
    int64_t room = (int64_t)step->cap.tok - step->n_tok, rows = (int64_t)step->cap.out - step->n_out;
    if (q->done || q->canceled || rows < 1 || room < 1 || (q->waits_for_token && !runs_ahead(s, q))) return 0;
    if (q->flags & (TPL_REQ_ROWS_ALL | TPL_REQ_ROWS_LAST))
        rows = min32(rows, (int64_t)step->cap.logit_rows - step->n_logit_rows);
    if (rows < 1) return 0;
    if (q->n_sched >= q->n_prompt) return 1;
    int32_t left = q->n_ids - q->n_sched;
    int32_t n = min32(left, room);
    if (s->d.chunk > 0) n = min32(n, s->d.chunk);
    return q->flags & TPL_REQ_ROWS_ALL ? min32(n, rows) : n;
}

static void put_prior(tpl_step *step, const seq *q, tpl_sampling *to)
{
    uint32_t *pool = tpl_step_pool(step);
    bool penalties = to->repetition != 1.0f || to->frequency != 0 || to->presence != 0;
    to->prior0 = step->n_pool;
    to->n_prior = penalties ? (uint32_t)q->n_ids : 0;
    to->n_prompt = penalties ? (uint32_t)q->n_prompt : 0;
    for (uint32_t i = 0; i < to->n_prior; i++) pool[step->n_pool++] = (uint32_t)q->ids[i];
    to->bias0 = step->n_pool;
    to->n_bias = q->n_bias;
    for (uint32_t i = 0; i < q->n_bias; i++) {
        pool[step->n_pool++] = (uint32_t)q->bias_ids[i];
        memcpy(&pool[step->n_pool++], &q->biases[i], sizeof(float));
    }
}

/* Output rows of a chunk: all its tokens, its last one, or none. */
static int32_t rows_wanted(const seq *q, int32_t n, bool last, uint32_t *flags)
{
    *flags = 0;
    if (q->flags & TPL_REQ_ROWS_ALL) *flags |= TPL_SEQ_LOGITS;
    if (last && (q->flags & TPL_REQ_ROWS_LAST)) *flags |= TPL_SEQ_LOGITS;
    if (last && q->max_tokens > 0) *flags |= TPL_SEQ_SAMPLE;
    return q->flags & TPL_REQ_ROWS_ALL ? n : last ? 1 : 0;
}

static void put_seq(const tpl_sched *s, tpl_step *step, flight *f, seq *q, int32_t n)
{
    tpl_step_seq *e = &tpl_step_seqs(step)[step->n_seq];
    bool last = q->n_sched + n >= q->n_ids;
    *e = (tpl_step_seq){ .slot = (int32_t)(q->handle & 0x7fffffff),
                         .q0 = step->n_tok,
                         .q_len = n,
                         .pos0 = q->n_sched,
                         .kv_len = q->n_sched + n,
                         .out0 = step->n_out,
                         .page0 = step->n_pages,
                         .prompt_done = last };
    e->n_pages = ((uint32_t)e->kv_len + s->d.page - 1) / s->d.page;
    e->n_out = rows_wanted(q, n, last, &e->flags);
    memcpy(tpl_step_pages(step) + step->n_pages, q->pages, e->n_pages * sizeof *q->pages);
    step->n_pages += e->n_pages;
    for (int32_t i = 0; i < n; i++) {
        int32_t t = step->n_tok++;
        tpl_step_tok(step)[t] = q->waits_for_token ? -1 - q->row : q->ids[q->n_sched + i];
        tpl_step_pos(step)[t] = q->n_sched + i;
        tpl_step_tok_seq(step)[t] = step->n_seq;
    }
    for (int32_t i = 0; i < e->n_out; i++) {
        tpl_step_out(step)[step->n_out] = e->q0 + n - e->n_out + i;
        tpl_step_out_seq(step)[step->n_out++] = step->n_seq;
    }
    if (e->flags & TPL_SEQ_LOGITS) step->n_logit_rows += (uint32_t)e->n_out;
    tpl_sampling *to = &tpl_step_sampling(step)[step->n_seq];
    *to = q->sampling;
    put_prior(step, q, to);
    step->continues = step->continues || q->waits_for_token;
    q->row = e->out0 + e->n_out - 1;
    q->n_sched += n;
    q->in_flight++;
    q->waits_for_token = last;
    f->seqs[f->n++] = q;
    step->n_seq++;
}

/* Decodes first, then prompts in order of arrival. With several stages the running sequences are dealt out over the
 * steps in flight. */
static bool form(tpl_sched *s, tpl_step *step, flight *f)
{
    int32_t ready = 0, most = (int32_t)step->cap.seq;
    f->n = 0;
    for (seq *q = s->first; q; q = q->next) ready += q->pages && !q->done;
    if (s->d.n_stages > 1 && ready > 0) most = min32(most, (ready + s->d.n_stages - 1) / s->d.n_stages);
    for (int pass = 0; pass < 2; pass++) {
        bool blocked = false; /* nobody overtakes a request that waits for pages */
        for (seq *q = s->first; q && step->n_seq < most; q = q->next) {
            bool decode = q->pages && q->n_sched >= q->n_prompt;
            if (decode != !pass || q->done || q->canceled) continue;
            if (!q->pages && (blocked || !admit(s, q))) {
                blocked = true;
                continue;
            }
            int32_t n = wanted(s, q, step);
            if (n > 0) put_seq(s, step, f, q, n);
        }
        if (pass == 0 && step->n_seq == 0) most = (int32_t)step->cap.seq;
    }
    return step->n_seq > 0;
}

/* -- Results ---------------------------------------------------------------------------------------------- */

static void give_rows(tpl_sched *s, const tpl_step *step, const tpl_step_seq *e, const seq *q, uint32_t *row)
{
    if (!(e->flags & TPL_SEQ_LOGITS)) return;
    const float *rows = tpl_step_logits(step) + (size_t)*row * step->cap.vocab;
    *row += (uint32_t)e->n_out;
    if (s->d.on_rows && !q->canceled && !q->done)
        s->d.on_rows(s->d.rows_ctx, q->user, e->pos0 + e->q_len - e->n_out, e->n_out, rows, step->cap.vocab);
}

static void give_token(tpl_sched *s, const tpl_step *step, const tpl_step_seq *e, seq *q)
{
    int32_t row = e->out0 + e->n_out - 1, id = tpl_step_res_tok(step)[row];
    if (id < 0) {
        finish(s, q, TPL_FINISH_NUMERIC);
        return;
    }
    q->ids[q->n_ids++] = id;
    s->stats.output_tokens++;
    tpl_event *t = push_event(s, TPL_EVENT_TOKEN, q);
    if (t) {
        t->token = id;
        t->logprob = tpl_step_res_logprob(step)[row];
        t->n_top = (int32_t)q->sampling.n_logprobs;
        for (int i = 0; i < t->n_top; i++) {
            t->top_id[i] = tpl_step_res_top_id(step)[(size_t)row * step->cap.top + (size_t)i];
            t->top_logprob[i] = tpl_step_res_top_logprob(step)[(size_t)row * step->cap.top + (size_t)i];
        }
    }
    if (!(q->flags & TPL_REQ_IGNORE_EOS) && s->d.is_eog && s->d.is_eog(s->d.eog_ctx, id))
        finish(s, q, TPL_FINISH_STOP);
    else if (q->n_ids - q->n_prompt >= q->max_tokens)
        finish(s, q, TPL_FINISH_LENGTH);
}

static void take_results(tpl_sched *s, const tpl_step *step, flight *f)
{
    uint32_t row = 0;
    for (int32_t i = 0; i < f->n; i++) {
        seq *q = f->seqs[i];
        const tpl_step_seq *e = &tpl_step_seqs(step)[i];
        q->in_flight--;
        if (e->pos0 < q->n_prompt) s->stats.prompt_tokens += (uint64_t)e->q_len;
        give_rows(s, step, e, q, &row);
        if (!e->prompt_done || q->done) continue;
        q->waits_for_token = q->in_flight > 0; /* another step continues this one */
        if (q->canceled) continue;
        if (q->max_tokens > 0)
            give_token(s, step, e, q);
        else
            finish(s, q, TPL_FINISH_LENGTH);
    }
    s->stats.steps++;
}

tpl_status tpl_sched_pump(tpl_sched *s, tpl_err *err)
{
    uint64_t ring = (uint64_t)s->d.n_stages + 1;
    tpl_step *step;
    sweep(s);
    while ((step = tpl_engine_slot(s->d.engine))) {
        if (!form(s, step, &s->flights[s->head % ring])) break;
        TPL_TRY(tpl_engine_submit(s->d.engine, err));
        s->head++;
    }
    if (s->head == s->tail) {
        if (s->first && !s->first->canceled)
            return tpl_fail(err, TPL_ERR_MEM, 0, "scheduler", "a request waits and no step can be formed");
        sweep(s);
        return TPL_OK;
    }
    TPL_TRY(tpl_engine_wait(s->d.engine, &step, err));
    take_results(s, step, &s->flights[s->tail++ % ring]);
    sweep(s);
    return TPL_OK;
}

void tpl_sched_get_stats(const tpl_sched *s, tpl_sched_stats *out)
{
    *out = s->stats;
    out->pages_total = tpl_pages_total(s->pages);
    out->pages_left = tpl_pages_left(s->pages);
}
