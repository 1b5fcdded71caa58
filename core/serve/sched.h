/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler of one replica: requests in, steps out, tokens back as events. Continuous batching: each step mixes
 * the decodes of all running sequences with chunks of the prompts that wait, under a budget of tokens. A request is
 * admitted, in order of arrival, when pages for its prompt and all its tokens are free, so nothing admitted ever has
 * to be thrown out. Owner thread only; pump is what a scheduler thread will call.
 */
#ifndef TPL_SERVE_SCHED_H
#define TPL_SERVE_SCHED_H

#include "exec/engine.h"

typedef struct tpl_sched tpl_sched;

typedef struct tpl_sched_desc {
    tpl_engine *engine; /* borrowed */
    tpl_step_caps caps; /* the engine's */
    int n_stages;
    uint32_t page, n_pages;
    int32_t chunk; /* most prompt tokens of one sequence in a step; 0: the step's budget */
    bool shuffle_pages;
    uint64_t seed;                         /* of the page shuffle */
    bool (*is_eog)(void *ctx, int32_t id); /* ends generation; NULL: nothing does */
    void *eog_ctx;
    /* Logit rows of a request that asked for them: rows for positions pos0 .. pos0 + n - 1, valid during the call
     * only. */
    void (*on_rows)(void *ctx, void *user, int64_t pos0, int32_t n, const float *rows, int64_t vocab);
    void *rows_ctx;
} tpl_sched_desc;

enum { TPL_REQ_ROWS_ALL = 1, TPL_REQ_ROWS_LAST = 2, TPL_REQ_IGNORE_EOS = 4 };

typedef struct tpl_request {
    const int32_t *ids; /* copied */
    int32_t n_ids;      /* >= 1 */
    int32_t max_tokens; /* 0: only run the prompt (for its rows) */
    uint32_t flags;
    tpl_sampling sampling;   /* prior and bias fields are ignored */
    const int32_t *bias_ids; /* copied, with their biases */
    const float *biases;
    uint32_t n_bias;
    void *user; /* handed back in events, and to on_rows until the DONE event */
} tpl_request;

typedef enum tpl_event_kind { TPL_EVENT_TOKEN, TPL_EVENT_DONE } tpl_event_kind;
typedef enum tpl_finish { TPL_FINISH_STOP, TPL_FINISH_LENGTH, TPL_FINISH_NUMERIC, TPL_FINISH_CANCELED } tpl_finish;

enum { TPL_EVENT_TOP = 20 }; /* log probabilities an event has room for */

typedef struct tpl_event {
    tpl_event_kind kind;
    int64_t handle;
    void *user;
    int64_t time_us;
    int32_t token; /* TOKEN */
    float logprob;
    int32_t n_top;
    int32_t top_id[TPL_EVENT_TOP];
    float top_logprob[TPL_EVENT_TOP];
    tpl_finish finish; /* DONE */
} tpl_event;

tpl_status tpl_sched_new(tpl_sched **out, const tpl_sched_desc *desc, tpl_err *err);
void tpl_sched_free(tpl_sched *s);
/* Queues a request. Fails MEM with where "kv_full" when it could never fit, ARG when an id is not in the vocabulary.
 */
tpl_status tpl_sched_add(tpl_sched *s, const tpl_request *req, int64_t *handle, tpl_err *err);
/* Ends a request within the steps in flight; its DONE event still comes. */
void tpl_sched_cancel(tpl_sched *s, int64_t handle);
/* Submits what can be submitted, then waits for one step and turns its results into events. Does nothing when idle.
 */
tpl_status tpl_sched_pump(tpl_sched *s, tpl_err *err);
bool tpl_sched_next_event(tpl_sched *s, tpl_event *out);
bool tpl_sched_is_idle(const tpl_sched *s);

typedef struct tpl_sched_stats {
    uint64_t steps, prompt_tokens, output_tokens;
    uint32_t pages_total, pages_left;
} tpl_sched_stats;
void tpl_sched_get_stats(const tpl_sched *s, tpl_sched_stats *out);

#endif
