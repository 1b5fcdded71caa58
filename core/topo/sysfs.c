/* SPDX-License-Identifier: Apache-2.0
 *
 * /sys/bus/pci/devices/<address> is a link into /sys/devices, and its text names the bridges above the device:
 * "../../../devices/pci0000:00/0000:00:01.0/0000:0f:00.0". The text is all that is read of a link, so that a recorded
 * tree may hold links that end nowhere; where a tree holds folders in place of links the path is unknown. Formats:
 * Linux Documentation/ABI/testing/sysfs-bus-pci and sysfs-devices-node, and proc(5).
 */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "topo/topo_priv.h"

typedef struct reader {
    const char *root;
    tpl_topo_facts *facts;
} reader;

/* -- Small files ------------------------------------------------------------------------------------------ */

/* root + the formatted path; false when it is too long. */
static bool path_of(const reader *r, char out[PATH_MAX], const char *dir, const char *name, const char *file)
{
    int n = snprintf(out, PATH_MAX, "%s%s/%s%s%s", r->root, dir, name, *file ? "/" : "", file);
    return n > 0 && n < PATH_MAX;
}

/* One line of a file, without what ends it. */
static bool line_of(const reader *r, const char *dir, const char *name, const char *file, char *out, size_t cap)
{
    char path[PATH_MAX];
    if (!path_of(r, path, dir, name, file) || !tpl_read_small(path, out, cap)) return false;
    out[strcspn(out, "\r\n")] = 0;
    return true;
}

static uint32_t hex_of(const reader *r, const char *dir, const char *name, const char *file)
{
    char text[32];
    return line_of(r, dir, name, file, text, sizeof text) ? (uint32_t)strtoul(text, NULL, 16) : 0;
}

static int int_of(const reader *r, const char *dir, const char *name, const char *file)
{
    char text[32], *end;
    if (!line_of(r, dir, name, file, text, sizeof text)) return -1;
    long v = strtol(text, &end, 10);
    return end != text && v >= 0 && v < INT_MAX ? (int)v : -1;
}

static bool set_line(const reader *r, const char *dir, const char *name, const char *file, char **to)
{
    char text[8192];
    return !line_of(r, dir, name, file, text, sizeof text) || tpl_topo_set(to, text);
}

/* The last part of a link's text that looks like a PCI address; false without one. */
static bool last_bdf(const char *link, char out[TPL_BDF_CAP])
{
    bool found = false;
    for (const char *p = link; p;) {
        size_t n = strcspn(p, "/");
        unsigned dom, bus, dev, fn;
        char part[TPL_BDF_CAP], rest;
        if (n < sizeof part) {
            memcpy(part, p, n);
            part[n] = 0;
            if (sscanf(part, "%x:%2x:%2x.%1x%c", &dom, &bus, &dev, &fn, &rest) == 4) {
                snprintf(out, TPL_BDF_CAP, "%04x:%02x:%02x.%x", dom, bus, dev, fn);
                found = true;
            }
        }
        p = p[n] ? p + n + 1 : NULL;
    }
    return found;
}

static bool link_text(const reader *r, const char *dir, const char *name, const char *file, char out[PATH_MAX])
{
    char path[PATH_MAX];
    if (!path_of(r, path, dir, name, file)) return false;
    ssize_t n = readlink(path, out, PATH_MAX - 1);
    if (n < 0) return false;
    out[n] = 0;
    return true;
}

/* -- Lists ------------------------------------------------------------------------------------------------ */

typedef bool (*visit_fn)(const reader *r, const char *dir, const char *name);

/* Calls visit for every name in root + dir; false when one failed (no memory). */
static bool each(const reader *r, const char *dir, visit_fn visit)
{
    char path[PATH_MAX];
    if (!path_of(r, path, dir, "", "")) return true;
    DIR *d = opendir(path);
    bool ok = true;
    for (struct dirent *e; d && ok && (e = readdir(d));)
        if (e->d_name[0] != '.') ok = visit(r, dir, e->d_name);
    if (d) closedir(d);
    return ok;
}

static bool add_pci(const reader *r, const char *dir, const char *name)
{
    char bdf[TPL_BDF_CAP], link[PATH_MAX];
    if (!last_bdf(name, bdf)) return true;
    tpl_topo_pci *p = tpl_topo_add_pci(r->facts);
    if (!p) return false;
    memcpy(p->bdf, bdf, sizeof p->bdf);
    p->class_id = hex_of(r, dir, name, "class");
    p->vendor = hex_of(r, dir, name, "vendor");
    p->device = hex_of(r, dir, name, "device");
    p->numa = int_of(r, dir, name, "numa_node");
    if (!set_line(r, dir, name, "local_cpulist", &p->cpus)) return false;
    const char *at = link_text(r, dir, name, "", link) ? strstr(link, "/pci") : NULL;
    return !at || tpl_topo_set(&p->path, at + 1);
}

/* "Node 0 MemFree:  123 kB" in bytes, 0 when absent. */
static uint64_t node_kb(const char *text, const char *key)
{
    for (const char *p = text; p; p = strchr(p, '\n')) {
        char word[32];
        unsigned long long kb;
        p += *p == '\n';
        if (sscanf(p, "Node %*d %31[^:]: %llu kB", word, &kb) == 2 && !strcmp(word, key)) return kb * 1024;
    }
    return 0;
}

/* What MemAvailable counts for the whole machine, for a node: free pages, and the file cache and slabs that the kernel
 * gives back. The kernel's own estimate takes off its watermarks, about a hundredth; the budget's margin covers that. */
static uint64_t available(const char *text)
{
    uint64_t file = node_kb(text, "Active(file)") + node_kb(text, "Inactive(file)");
    return node_kb(text, "MemFree") + file + node_kb(text, "SReclaimable");
}

static bool add_node(const reader *r, const char *dir, const char *name)
{
    char text[8192], path[PATH_MAX], first[32], rest;
    int id;
    if (sscanf(name, "node%d%c", &id, &rest) != 1 || id < 0) return true;
    tpl_topo_node *n = tpl_topo_add_node(r->facts);
    if (!n) return false;
    n->id = id;
    if (!set_line(r, dir, name, "cpulist", &n->cpus)) return false;
    if (path_of(r, path, dir, name, "meminfo") && tpl_read_small(path, text, sizeof text)) {
        n->mem_bytes = node_kb(text, "MemTotal");
        n->free_bytes = available(text);
    }
    int cpu = n->cpus[0] ? atoi(n->cpus) : -1;
    snprintf(first, sizeof first, "cpu%d", cpu);
    if (cpu >= 0) n->package = int_of(r, "/sys/devices/system/cpu", first, "topology/physical_package_id");
    return true;
}

static bool add_nic(const reader *r, const char *dir, const char *name, bool is_ib)
{
    char link[PATH_MAX], bdf[TPL_BDF_CAP] = "";
    if (strlen(name) >= TPL_NIC_NAME_CAP) return true;
    bool has = link_text(r, dir, name, "device", link) && last_bdf(link, bdf);
    if (!has) has = link_text(r, dir, name, "", link) && last_bdf(link, bdf);
    if (!has && !is_ib) return true; /* lo, bridges, tunnels */
    tpl_topo_nic *n = tpl_topo_add_nic(r->facts);
    if (!n) return false;
    snprintf(n->name, sizeof n->name, "%s", name);
    snprintf(n->bdf, sizeof n->bdf, "%s", bdf);
    n->is_ib = is_ib;
    return true;
}

static bool add_ib(const reader *r, const char *dir, const char *name) { return add_nic(r, dir, name, true); }
static bool add_net(const reader *r, const char *dir, const char *name) { return add_nic(r, dir, name, false); }

/* "Cpus_allowed_list:\t0-1" of /proc/self/status. */
static bool set_status(const char *text, const char *key, char **to)
{
    const char *at = strstr(text, key);
    if (!at) return true;
    at += strlen(key);
    at += strspn(at, ": \t");
    char *line = strndup(at, strcspn(at, "\n"));
    bool ok = line && tpl_topo_set(to, line);
    free(line);
    return ok;
}

static bool add_allowed(const reader *r)
{
    char text[16384], path[PATH_MAX];
    if (!path_of(r, path, "/proc/self", "status", "") || !tpl_read_small(path, text, sizeof text)) return true;
    return set_status(text, "Cpus_allowed_list", &r->facts->cpus_allowed) &&
           set_status(text, "Mems_allowed_list", &r->facts->mems_allowed);
}

tpl_status tpl_topo_sysfs(tpl_topo_facts **out, const char *root, tpl_err *err)
{
    *out = NULL;
    reader r = { root ? root : "", tpl_topo_new() };
    if (!r.facts) return tpl_topo_no_memory(err);
    if (!each(&r, "/sys/bus/pci/devices", add_pci) || !each(&r, "/sys/devices/system/node", add_node) ||
        !each(&r, "/sys/class/infiniband", add_ib) || !each(&r, "/sys/class/net", add_net) || !add_allowed(&r)) {
        tpl_topo_free(r.facts);
        return tpl_topo_no_memory(err);
    }
    tpl_topo_sort(r.facts);
    *out = r.facts;
    return TPL_OK;
}
