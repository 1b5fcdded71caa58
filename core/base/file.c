/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ck.h"

/* O_NONBLOCK: opening a FIFO for reading must not wait for a writer; it has no effect on regular files. */
#define OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
/* One read(2) moves at most 0x7ffff000 bytes (read(2), NOTES); whole pages keep later pieces aligned. */
#define READ_MAX ((uint64_t)1 << 30)

/* -- Messages ---- */

/* Both cut to fit; of a long name the end is kept, which says more. */
static tpl_where where_join(const char *name, const char *tail)
{
    tpl_where w;
    size_t room = sizeof w.s - 1, n = strlen(name), m = strlen(tail);
    if (m > room / 2) m = room / 2;
    bool cut = n > room - m;
    if (cut) {
        name += n - (room - m);
        n = room - m;
    }
    memcpy(w.s, name, n);
    memcpy(w.s + n, tail, m);
    w.s[n + m] = 0;
    if (cut) memcpy(w.s, "...", 3);
    return w;
}

tpl_where tpl_where_offset(const char *name, uint64_t offset)
{
    char tail[24];
    snprintf(tail, sizeof tail, ":%" PRIu64, offset);
    return where_join(name, tail);
}

tpl_where tpl_where_key(const char *name, const char *key)
{
    char tail[80];
    snprintf(tail, sizeof tail, ":%s", key);
    return where_join(name, tail);
}

/* -- Opening ---- */

bool tpl_file_is_basename(const char *name, size_t len)
{
    if (len == 0 || len > 255) return false;
    if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.'))) return false;
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
                     c == '_' || c == '-';
        if (!plain) return false;
    }
    return true;
}

static tpl_status not_regular(mode_t mode, const char *name, tpl_err *err)
{
    const char *kind = S_ISDIR(mode)    ? "a folder"
                       : S_ISFIFO(mode) ? "a FIFO"
                       : S_ISCHR(mode)  ? "a character device"
                       : S_ISBLK(mode)  ? "a block device"
                                        : "no regular file";
    return tpl_fail(err, TPL_ERR_FORMAT, 0, name, "is %s, expected a regular file", kind);
}

/* Takes fd, also on failure. */
static tpl_status adopt(tpl_file *f, int fd, const char *name, tpl_err *err)
{
    struct stat st;
    tpl_status code = TPL_OK;
    *f = (tpl_file)TPL_FILE_CLOSED;
    if (fstat(fd, &st))
        code = tpl_fail(err, TPL_ERR_IO, errno, name, "cannot be examined: %s", strerror(errno));
    else if (!S_ISREG(st.st_mode))
        code = not_regular(st.st_mode, name, err);
    else if (!(f->name = strdup(name)))
        code = tpl_fail(err, TPL_ERR_MEM, 0, name, "out of memory");
    if (code) {
        close(fd);
        return code;
    }
    f->fd = fd;
    f->size = (uint64_t)st.st_size;
    return TPL_OK;
}

static int open_retry(int dirfd, const char *path, int flags)
{
    int fd;
    do fd = openat(dirfd, path, flags);
    while (fd < 0 && errno == EINTR);
    return fd;
}

static tpl_status open_failed(int sys, const char *name, tpl_err *err)
{
    /* ENXIO: a socket, or a device without a driver: it is there, and is no file. */
    if (sys == ENXIO) return not_regular(0, name, err);
    return tpl_fail(err, TPL_ERR_IO, sys, name, "cannot be opened: %s", strerror(sys));
}

tpl_status tpl_file_open(tpl_file *f, const char *path, tpl_err *err)
{
    *f = (tpl_file)TPL_FILE_CLOSED;
    int fd = open_retry(AT_FDCWD, path, OPEN_FLAGS);
    if (fd < 0) return open_failed(errno, path, err);
    return adopt(f, fd, path, err);
}

/* ../../blobs/HEX, the only link target of a model folder that is followed. More "../" occur when a file lies
 * in a subfolder. */
static bool is_blob_link(const char *target)
{
    int n_up = 0;
    while (!strncmp(target, "../", 3)) target += 3, n_up++;
    if (n_up < 2 || strncmp(target, "blobs/", 6)) return false;
    size_t n = strspn(target + 6, "0123456789abcdefABCDEF");
    return n >= 40 && n <= 64 && target[6 + n] == 0;
}

static int open_blob(int dirfd, const char *base)
{
    char target[512];
    ssize_t n = readlinkat(dirfd, base, target, sizeof target - 1);
    if (n > 0) {
        target[n] = 0;
        if (is_blob_link(target)) return open_retry(dirfd, target, OPEN_FLAGS | O_NOFOLLOW);
    }
    errno = ELOOP;
    return -1;
}

tpl_status tpl_file_open_at(tpl_file *f, int dirfd, const char *base, const char *shown, tpl_err *err)
{
    *f = (tpl_file)TPL_FILE_CLOSED;
    if (!tpl_file_is_basename(base, strlen(base)))
        return tpl_fail(err, TPL_ERR_FORMAT, 0, shown,
                        "file name '%.80s' is not a plain name of [A-Za-z0-9._-]+", base);
    int fd = open_retry(dirfd, base, OPEN_FLAGS | O_NOFOLLOW);
    if (fd < 0 && errno == ELOOP) fd = open_blob(dirfd, base);
    if (fd < 0 && errno == ELOOP) {
        tpl_status st =
            tpl_fail(err, TPL_ERR_FORMAT, ELOOP, shown, "is a symbolic link, expected a regular file");
        return tpl_hint(err, st,
                        "links named by a model's index are followed only into a Hugging Face blobs folder");
    }
    if (fd < 0) return open_failed(errno, shown, err);
    return adopt(f, fd, shown, err);
}

void tpl_file_close(tpl_file *f)
{
    if (!f) return;
    if (f->fd >= 0) close(f->fd);
    free(f->name);
    *f = (tpl_file)TPL_FILE_CLOSED;
}

/* -- Reading ---- */

static tpl_status ended(const tpl_file *f, uint64_t at, uint64_t missing, tpl_err *err)
{
    tpl_where w = tpl_where_offset(f->name, at);
    return tpl_fail(err, TPL_ERR_FORMAT, 0, w.s, "the file ends here, %" PRIu64 " bytes short", missing);
}

tpl_status tpl_file_read(const tpl_file *f, uint64_t offset, uint64_t len, void *dst, tpl_err *err)
{
    char *p = dst;
    if (!ck_range(offset, len, f->size)) return ended(f, f->size, len, err);
    while (len) {
        ssize_t n = pread(f->fd, p, len < READ_MAX ? len : READ_MAX, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            tpl_where w = tpl_where_offset(f->name, offset);
            return tpl_fail(err, TPL_ERR_IO, errno, w.s, "cannot be read: %s", strerror(errno));
        }
        if (n == 0) return ended(f, offset, len, err);
        p += n;
        offset += (uint64_t)n;
        len -= (uint64_t)n;
    }
    return TPL_OK;
}

tpl_status tpl_file_read_all(const tpl_file *f, uint64_t max_bytes, char **out, size_t *len, tpl_err *err)
{
    uint64_t room;
    size_t n;
    *out = NULL;
    *len = 0;
    if (f->size > max_bytes)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, f->name,
                        "has %" PRIu64 " bytes, at most %" PRIu64 " are accepted", f->size, max_bytes);
    char *buf = ck_add(f->size, 1, &room) && ck_size(room, &n) ? malloc(n) : NULL;
    if (!buf) return tpl_fail(err, TPL_ERR_MEM, 0, f->name, "out of memory for %" PRIu64 " bytes", f->size);
    tpl_status st = tpl_file_read(f, 0, f->size, buf, err);
    if (st) {
        free(buf);
        return st;
    }
    buf[f->size] = 0;
    *out = buf;
    *len = (size_t)f->size;
    return TPL_OK;
}

tpl_status tpl_file_load(const char *path, uint64_t max_bytes, char **out, size_t *len, tpl_err *err)
{
    tpl_file f;
    *out = NULL;
    *len = 0;
    TPL_TRY(tpl_file_open(&f, path, err));
    tpl_status st = tpl_file_read_all(&f, max_bytes, out, len, err);
    tpl_file_close(&f);
    return st;
}
