/* SPDX-License-Identifier: Apache-2.0
 *
 * /proc/self/cgroup names the group ("0::/path" in version 2, "4:cpu,cpuacct:/path" in version 1). In a
 * container the path may lie outside the mounted tree; then the tree's root is the container's own group, so
 * a missing folder is skipped and the walk goes on upwards. Formats: Linux
 * Documentation/admin-guide/cgroup-v2.rst (cpu.max, memory.max, memory.stat) and cgroup-v1/{memory,cpu}.
 */
#include "base/cgroup.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOT "/sys/fs/cgroup"
enum { PATH_CAP = 1024, NO_LIMIT_V1_SHIFT = 60 }; /* version 1 writes "no limit" as a number near 2^63 */

bool tpl_read_small(const char *path, char *text, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t n = 0;
    ssize_t got;
    while (n + 1 < cap && (got = read(fd, text + n, cap - 1 - n)) > 0) n += (size_t)got;
    close(fd);
    text[n] = 0;
    return n > 0;
}

/* One name in a comma list. */
static bool has_word(const char *list, size_t n, const char *word)
{
    size_t len = strlen(word);
    for (const char *p = list, *end = list + n; p + len <= end; p++) {
        bool starts = p == list || p[-1] == ',', ends = p + len == end || p[len] == ',';
        if (starts && ends && !memcmp(p, word, len)) return true;
    }
    return false;
}

/* The group's path for a version 1 controller, or with controller NULL for version 2. */
static bool own_path(const char *controller, char *out, size_t cap)
{
    char text[4096];
    if (!tpl_read_small("/proc/self/cgroup", text, sizeof text)) return false;
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path) continue;
        size_t n = (size_t)(path - list - 1);
        if (controller ? !has_word(list + 1, n, controller) : n != 0) continue;
        snprintf(out, cap, "%s", path + 1);
        return true;
    }
    return false;
}

typedef bool (*visit_fn)(const char *dir, void *arg);

/* Calls visit for the group's folder and every folder above it, down to and with `mount`. */
static void walk_up(const char *mount, const char *path, visit_fn visit, void *arg)
{
    char dir[2 * PATH_CAP];
    size_t stop = strlen(mount);
    snprintf(dir, sizeof dir, "%s%s", mount, strcmp(path, "/") && !strstr(path, "..") ? path : "");
    for (;;) {
        visit(dir, arg);
        char *slash = strrchr(dir + stop, '/');
        if (!slash) return;
        *slash = 0;
    }
}

static bool read_in(const char *dir, const char *name, char *text, size_t cap)
{
    char path[2 * PATH_CAP + 64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return tpl_read_small(path, text, cap);
}

static bool number_in(const char *dir, const char *name, uint64_t *out)
{
    char text[64], *end;
    if (!read_in(dir, name, text, sizeof text)) return false;
    *out = strtoull(text, &end, 10);
    return end != text && *out >> NO_LIMIT_V1_SHIFT == 0;
}

/* -- Cores ----------------------------------------------------------------------------------------------- */

static bool cpu_v2(const char *dir, void *arg)
{
    char text[64];
    double quota, period, *least = arg;
    if (!read_in(dir, "cpu.max", text, sizeof text)) return false;
    if (sscanf(text, "%lf %lf", &quota, &period) != 2 || period <= 0) return false; /* also the word "max" */
    if (quota / period < *least) *least = quota / period;
    return true;
}

static bool cpu_v1(const char *dir, void *arg)
{
    uint64_t quota, period;
    double *least = arg;
    if (!number_in(dir, "cpu.cfs_quota_us", &quota) || !quota)
        return false; /* -1, no limit, is out of range */
    if (!number_in(dir, "cpu.cfs_period_us", &period) || !period) return false;
    if ((double)quota / (double)period < *least) *least = (double)quota / (double)period;
    return true;
}

bool tpl_cgroup_cpus(double *out)
{
    char path[PATH_CAP];
    double least = 1e9;
    if (own_path(NULL, path, sizeof path)) walk_up(ROOT, path, cpu_v2, &least);
    if (own_path("cpu", path, sizeof path)) {
        walk_up(ROOT "/cpu", path, cpu_v1, &least);
        walk_up(ROOT "/cpu,cpuacct", path, cpu_v1, &least);
    }
    if (least >= 1e9) return false;
    *out = least;
    return true;
}

/* -- Memory ---------------------------------------------------------------------------------------------- */

struct mem {
    uint64_t limit, room;
    bool found;
    const char *max, *used, *cache; /* file names, and the key of memory.stat */
};

static uint64_t stat_key(const char *dir, const char *key)
{
    char text[8192];
    size_t n = strlen(key);
    if (!read_in(dir, "memory.stat", text, sizeof text)) return 0;
    for (const char *p = text; p; p = strchr(p, '\n')) {
        p += *p == '\n';
        if (!strncmp(p, key, n) && p[n] == ' ') return strtoull(p + n + 1, NULL, 10);
    }
    return 0;
}

static bool mem_limit(const char *dir, void *arg)
{
    struct mem *m = arg;
    uint64_t limit, used;
    if (!number_in(dir, m->max, &limit)) return false; /* also the word "max" */
    if (!number_in(dir, m->used, &used)) used = 0;
    uint64_t cache = stat_key(dir, m->cache), busy = used > cache ? used - cache : 0;
    uint64_t room = limit > busy ? limit - busy : 0;
    if (!m->found || limit < m->limit) m->limit = limit;
    if (!m->found || room < m->room) m->room = room;
    return m->found = true;
}

static struct mem mem_limits(void)
{
    char path[PATH_CAP];
    struct mem m = { .max = "memory.max", .used = "memory.current", .cache = "inactive_file" };
    if (own_path(NULL, path, sizeof path)) walk_up(ROOT, path, mem_limit, &m);
    m.max = "memory.limit_in_bytes";
    m.used = "memory.usage_in_bytes";
    m.cache = "total_inactive_file";
    if (own_path("memory", path, sizeof path)) walk_up(ROOT "/memory", path, mem_limit, &m);
    return m;
}

bool tpl_cgroup_mem_limit(uint64_t *out)
{
    struct mem m = mem_limits();
    if (m.found) *out = m.limit;
    return m.found;
}

bool tpl_cgroup_mem_room(uint64_t *out)
{
    struct mem m = mem_limits();
    if (m.found) *out = m.room;
    return m.found;
}
