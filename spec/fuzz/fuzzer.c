/* SPDX-License-Identifier: Apache-2.0
 *
 * The way from libFuzzer to a target. Its own -timeout is wall time, which a busy machine uses up by itself, so the time that an input may
 * take is processor time, checked here.
 */
#include <time.h>

#include "target.h"

#define MOST_SECONDS 10.0 /* with the sanitizers, and the line hook of Lua */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static double processor_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    tpl_err err = { 0 };
    double from = processor_time();
    (void)TPL_FUZZ_TARGET(data, n, &err);
    double seconds = processor_time() - from;
    if (seconds > MOST_SECONDS) tpl_broken("%.1f seconds of processor time", seconds);
    return 0;
}
