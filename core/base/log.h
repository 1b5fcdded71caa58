/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages for people who run tpl. Nothing below cli prints: a log is a level and a sink that bind or cli
 * sets; without a sink it is silent. Any thread that the sink allows; never on the step path. The owner of
 * the tpl_log keeps it alive.
 */
#ifndef TPL_BASE_LOG_H
#define TPL_BASE_LOG_H

#include <stdarg.h>
#include <stdbool.h>

#include "base/err.h"

typedef enum tpl_log_level { TPL_LOG_ERROR, TPL_LOG_WARN, TPL_LOG_INFO, TPL_LOG_DEBUG } tpl_log_level;

/* line: one message without a newline, valid during the call. Called from any thread that logs, maybe from
 * several at once. */
typedef void (*tpl_log_sink)(void *user, tpl_log_level level, const char *line);

typedef struct tpl_log {
    tpl_log_sink sink;   /* NULL: silent */
    void *user;
    tpl_log_level level; /* messages above it are dropped */
} tpl_log;

/* Formats and hands the line to the sink: "rank 3: ..." when rank >= 0. log NULL allowed. Lines are cut at
 * 1000 bytes. */
void tpl_logf(const tpl_log *log, tpl_log_level level, int rank, const char *fmt, ...) TPL_PRINTF(4, 5);

static inline bool tpl_log_wants(const tpl_log *log, tpl_log_level level)
{
    return log && log->sink && level <= log->level;
}

const char *tpl_log_level_name(tpl_log_level level);

#endif
