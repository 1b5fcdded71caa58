/* SPDX-License-Identifier: Apache-2.0
 *
 * The one error type. A fallible function returns tpl_status (0 = ok) and takes a tpl_err * last, which may be NULL.
 * The first failure wins: a filled tpl_err is passed up unchanged. Any thread; no allocation.
 */
#ifndef TPL_BASE_ERR_H
#define TPL_BASE_ERR_H

#include <stdarg.h>

typedef enum tpl_status {
    TPL_OK = 0,
    TPL_ERR_ARG,         /* a caller's value is wrong (exit 2 or 3, the caller knows which) */
    TPL_ERR_MEM,         /* out of memory, or a plan that does not fit (exit 4) */
    TPL_ERR_IO,          /* the system refused: open, read, thread creation (exit 2 for a missing file, else 1) */
    TPL_ERR_FORMAT,      /* a file that opens but is not valid (exit 6) */
    TPL_ERR_UNSUPPORTED, /* valid, but not supported (exit 6) */
    TPL_ERR_DEVICE,      /* a device failed (exit 1) */
    TPL_ERR_COMM,        /* a collective stalled or was aborted (exit 1) */
    TPL_ERR_CANCELED,    /* ended on request (exit 130) */
} tpl_status;

typedef struct tpl_err {
    tpl_status code;
    int sys;          /* errno, cudaError_t or ncclResult_t; 0 if none */
    char where[128];  /* what the message is about: "file:line", "file:offset", an option's name; "" if unknown */
    char msg[320];    /* one line naming object, fact, expectation; no newline, no "Error:" */
    char hint[160];   /* what to do about it; "" if nothing is known */
} tpl_err;

#define TPL_NODISCARD __attribute__((warn_unused_result))
#define TPL_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* Fills *err (NULL allowed) unless it already holds a failure, and returns code. */
tpl_status tpl_fail(tpl_err *err, tpl_status code, int sys, const char *where, const char *fmt, ...) TPL_PRINTF(5, 6);

/* Adds a hint to a failure already filled. Returns err->code (or code when err is NULL) so that it can end a return statement. */
tpl_status tpl_hint(tpl_err *err, tpl_status code, const char *fmt, ...) TPL_PRINTF(3, 4);

/* "FORMAT", "IO", ...: the machine-readable name of a status, static storage. */
const char *tpl_status_name(tpl_status code);

/* Returns the failure of `call` to the caller. Only where nothing is owned; else `goto done`. */
#define TPL_TRY(call)                          \
    do {                                       \
        tpl_status try_status_ = (call);       \
        if (try_status_) return try_status_;   \
    } while (0)

#endif
