/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdio.h>

void tpl_logf(const tpl_log *log, tpl_log_level level, int rank, const char *fmt, ...)
{
    char line[1000];
    int n = 0;
    va_list ap;
    if (!tpl_log_wants(log, level)) return;
    if (rank >= 0) n = snprintf(line, sizeof line, "rank %d: ", rank);
    va_start(ap, fmt);
    vsnprintf(line + n, sizeof line - (size_t)n, fmt, ap);
    va_end(ap);
    for (char *p = line; *p; p++)
        if (*p == '\n') *p = ' ';
    log->sink(log->user, level, line);
}

const char *tpl_log_level_name(tpl_log_level level)
{
    static const char *const names[] = { "error", "warn", "info", "debug" };
    return (unsigned)level < sizeof names / sizeof *names ? names[level] : "unknown";
}
