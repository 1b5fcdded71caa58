/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading of regular files by position. Files of a model are never mapped: a file that shrinks while it is
 * read is an error value, not a SIGBUS (reliability.md A9). Opening never blocks (a FIFO is refused) and
 * never leaks descriptors into children. tpl_file_read may be called by any thread; open and close by the
 * owner.
 */
#ifndef TPL_BASE_FILE_H
#define TPL_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct tpl_file {
    int fd;        /* -1 when closed */
    uint64_t size; /* when it was opened */
    char *name;    /* as given; for messages; owned */
} tpl_file;

#define TPL_FILE_CLOSED { .fd = -1 }

/* Opens a path that a user named: links are followed, the end must be a regular file. A missing file is
 * TPL_ERR_IO, anything else that is not a regular file TPL_ERR_FORMAT. *f is TPL_FILE_CLOSED after a failure.
 */
TPL_NODISCARD tpl_status tpl_file_open(tpl_file *f, const char *path, tpl_err *err);

/* Opens `base` inside the folder `dirfd`, where the name came out of a file that nobody vouched for
 * (reliability.md A8): it must be a plain name of [A-Za-z0-9._-]+, and no symbolic link, except one of the
 * form ../../blobs/HEX with 40 to 64 hex digits: that is how the Hugging Face cache stores every file.
 * `shown` is the name for messages. */
TPL_NODISCARD tpl_status tpl_file_open_at(tpl_file *f, int dirfd, const char *base, const char *shown,
                                          tpl_err *err);

/* Accepts NULL and a closed file. */
void tpl_file_close(tpl_file *f);

/* Reads exactly len bytes at offset, going on after EINTR and short reads. A range outside the size at
 * opening, or a file that has become shorter, is TPL_ERR_FORMAT with `where` = "name:offset". */
TPL_NODISCARD tpl_status tpl_file_read(const tpl_file *f, uint64_t offset, uint64_t len, void *dst,
                                       tpl_err *err);

/* The whole file with a NUL after it, in memory to free(). More than max_bytes is TPL_ERR_FORMAT. */
TPL_NODISCARD tpl_status tpl_file_read_all(const tpl_file *f, uint64_t max_bytes, char **out, size_t *len,
                                           tpl_err *err);
/* The same for a path. */
TPL_NODISCARD tpl_status tpl_file_load(const char *path, uint64_t max_bytes, char **out, size_t *len,
                                       tpl_err *err);

/* True for a name of [A-Za-z0-9._-]+ other than "." and "..". */
bool tpl_file_is_basename(const char *name, size_t len);

/* "name:offset" for tpl_err.where; keeps the end of a name that is too long. */
typedef struct tpl_where {
    char s[128];
} tpl_where;
tpl_where tpl_where_offset(const char *name, uint64_t offset);
/* "name:key"; control characters in key are left out of the way by tpl_fail. */
tpl_where tpl_where_key(const char *name, const char *key);

#endif
