/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 (FIPS 180-4, sections 5.1.1 and 6.2): names a file or a program by its content. Portable C, no
 * allocation. Any thread, one thread per tpl_sha256.
 */
#ifndef TPL_BASE_SHA256_H
#define TPL_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"

typedef struct tpl_sha256 {
    uint32_t h[8];
    uint64_t n_bytes;
    uint8_t block[64];
} tpl_sha256;

void tpl_sha256_init(tpl_sha256 *s);
void tpl_sha256_update(tpl_sha256 *s, const void *data, size_t len);
void tpl_sha256_final(tpl_sha256 *s, uint8_t out[32]);

/* 64 lower-case hex digits and a NUL. */
void tpl_sha256_hex(const void *data, size_t len, char out[65]);
/* The same for the whole of an open file; reads it in pieces of 256 KiB. */
TPL_NODISCARD tpl_status tpl_sha256_file(const tpl_file *f, char out[65], tpl_err *err);

#endif
