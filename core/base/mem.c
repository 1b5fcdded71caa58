/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/ck.h"

#define HUGE_PAGE ((size_t)2 << 20)

static tpl_status no_memory(tpl_err *err, size_t bytes)
{
    return tpl_fail(err, TPL_ERR_MEM, errno, "", "cannot map %zu bytes of memory: %s", bytes,
                    strerror(errno));
}

static void *map_pages(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

tpl_status tpl_mem_map(void **out, size_t bytes, tpl_err *err)
{
    *out = NULL;
    if (!bytes) return TPL_OK;
    if (bytes < HUGE_PAGE) {
        *out = map_pages(bytes);
        return *out ? TPL_OK : no_memory(err, bytes);
    }
    uint64_t whole, padded;
    if (!ck_align(bytes, (uint64_t)sysconf(_SC_PAGESIZE), &whole) || !ck_add(whole, HUGE_PAGE, &padded)) {
        errno = ENOMEM;
        return no_memory(err, bytes);
    }
    char *p = map_pages(padded);
    if (!p) return no_memory(err, bytes);
    size_t head = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
    if (head) munmap(p, head);
    if (head < HUGE_PAGE) munmap(p + head + whole, HUGE_PAGE - head);
    madvise(p + head, whole, MADV_HUGEPAGE); /* a wish: kernels without it refuse, and 4 KB pages work too */
    *out = p + head;
    return TPL_OK;
}

void tpl_mem_unmap(void *p, size_t bytes)
{
    if (p && bytes) munmap(p, bytes);
}

void tpl_mem_discard(void *p, size_t bytes)
{
    if (p && bytes) madvise(p, bytes, MADV_DONTNEED);
}

void *tpl_mem_alloc(size_t bytes)
{
    uint64_t whole;
    if (!ck_align(bytes ? bytes : 1, 64, &whole)) return NULL;
    void *p = aligned_alloc(64, whole);
    return p ? memset(p, 0, whole) : NULL;
}

void tpl_mem_free(void *p)
{
    free(p);
}

/* The "Key:   123 kB" value of a /proc file, in bytes; 0 = unknown. */
static uint64_t proc_kb(const char *path, const char *key)
{
    char text[8192];
    if (!tpl_read_small(path, text, sizeof text)) return 0;
    size_t n = strlen(key);
    for (const char *p = text; p; p = strchr(p, '\n')) {
        p += *p == '\n';
        if (!strncmp(p, key, n) && p[n] == ':') return strtoull(p + n + 1, NULL, 10) * 1024;
    }
    return 0;
}

uint64_t tpl_mem_rss_bytes(void)
{
    return proc_kb("/proc/self/status", "VmRSS");
}

uint64_t tpl_mem_rss_peak_bytes(void)
{
    return proc_kb("/proc/self/status", "VmHWM");
}

int tpl_mem_rss_peak_reset(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    int ok = write(fd, "5", 1) == 1; /* proc(5): 5 resets the peak resident set size */
    close(fd);
    return ok;
}

uint64_t tpl_mem_available_bytes(void)
{
    uint64_t machine = proc_kb("/proc/meminfo", "MemAvailable"), group;
    if (!tpl_cgroup_mem_room(&group)) return machine;
    return machine && machine < group ? machine : group;
}

uint64_t tpl_mem_total_bytes(void)
{
    uint64_t machine = proc_kb("/proc/meminfo", "MemTotal"), limit;
    if (!tpl_cgroup_mem_limit(&limit)) return machine;
    return machine && machine < limit ? machine : limit;
}
