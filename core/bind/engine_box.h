/* SPDX-License-Identifier: Apache-2.0
 *
 * What a Lua engine object holds: programs, engine, its scheduler, row sinks of requests, collected taps. Shared by
 * l_engine.c, l_sched.c and l_tap.c; owner thread only, but for the tap list, which rank threads append to under its
 * lock.
 */
#ifndef TPL_BIND_ENGINE_BOX_H
#define TPL_BIND_ENGINE_BOX_H

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "bind/bind.h"
#include "serve/sched.h"

/* Where the logit rows of one request go. Freed by take_rows, or, with rows in memory, by drop_rows; the rest when
 * the engine closes. */
typedef struct tpl_row_sink {
    struct tpl_row_sink *next;
    int64_t handle;
    bool is_done;  /* the request has ended: no more rows will come */
    FILE *file;    /* raw float32 rows are appended, NULL: not wanted */
    float *memory; /* [cap_rows][vocab], NULL: not wanted */
    int32_t *ids;  /* of the prompt: the row of position i predicts ids[i + 1] */
    int32_t n_ids, n_rows, cap_rows, top;
    int32_t *argmax; /* [cap_rows] */
    float *logprob;  /* [cap_rows] of the next id, NULL: not scored */
    int32_t *top_id; /* [cap_rows][top] */
    float *top_logprob;
    int io_error; /* errno of a failed write */
} tpl_row_sink;

typedef struct tpl_tapped {
    struct tpl_tapped *next;
    int rank, stage, op, i_out;
    const char *op_name, *value_name; /* borrowed from the program */
    int64_t rows, cols, step;
    int64_t real_rows; /* of the whole value, padding left out */
    float data[];
} tpl_tapped;

typedef struct tpl_engine_box {
    tpl_program **programs;
    int n_stages;
    tpl_engine *engine;
    tpl_sched *sched;
    tpl_step_caps caps;
    uint8_t *eog; /* [vocab] */
    tpl_row_sink *sinks;
    pthread_mutex_t tap_lock; /* guards the fields below */
    tpl_tapped *taps, **last_tap;
    char *tap_glob;
    bool is_tapping, tap_failed;
} tpl_engine_box;

extern const tpl_class tpl_engine_class;

/* Opens the scheduler of the box from the options table at index. */
tpl_status tpl_box_open_sched(lua_State *L, int index, tpl_engine_box *b, tpl_err *err);
void tpl_sink_free(tpl_row_sink *s);
void tpl_taps_free(tpl_engine_box *b);
/* Methods, entered into the class by l_engine.c. */
int tpl_engine_add(lua_State *L);
int tpl_engine_pump(lua_State *L);
int tpl_engine_cancel(lua_State *L);
int tpl_engine_idle(lua_State *L);
int tpl_engine_take_rows(lua_State *L);
int tpl_engine_drop_rows(lua_State *L);
int tpl_engine_tap_begin(lua_State *L);
int tpl_engine_tap_end(lua_State *L);
int tpl_engine_product_error(lua_State *L); /* a function of the module */

#endif
