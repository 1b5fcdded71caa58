/* SPDX-License-Identifier: Apache-2.0
 *
 * The monotonic clock. Any thread; no allocation.
 */
#ifndef TPL_BASE_TIME_H
#define TPL_BASE_TIME_H

#include <stdint.h>
#include <time.h>

static inline int64_t tpl_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t tpl_now_us(void)
{
    return tpl_now_ns() / 1000;
}

#endif
