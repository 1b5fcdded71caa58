/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for libnvidia-ml.so.1: it has no GPU and answers from a tpl record (YAML) that TPL_NVML_RECORD names, read
 * anew at each init. What a record cannot say lies under keys `nvml`: at the top {init: code}; in a device {open: code
 * of opening, lost: true (every other call says GPU_IS_LOST), width_now, hidden_peers: true (links do not tell their
 * ends, as in a VM), p2p_links: how many of its links carry peer traffic, c2c: [MB/s of each link]}; in a slice {slot: its number}. With STANDIN_OLD calls of younger drivers
 * are left out, as a library of about R470 does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/yaml.h"
#include "topo/nvml_abi.h"

#define EXPORT __attribute__((visibility("default")))

enum { MOST = 64, LINKS = 18, SLOTS = 7 };

typedef struct card {
    json_t *device;       /* of the record; borrowed */
    json_t *parent;       /* of a slice, else NULL */
    json_t *ends[LINKS];  /* device at the other end, or NULL for a switch */
    int n_ends;
} card;

static json_t *record;
static card cards[MOST], slices[MOST];
static int n_cards, n_slices;

/* -- The record ------------------------------------------------------------------------------------------- */

static json_t *list(const char *key) { return json_object_get(record, key); }

static const char *text(json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static bool is(json_t *o, const char *key, const char *word) { return !strcmp(text(o, key), word); }

static double number(json_t *o, const char *key, double otherwise)
{
    json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

static json_t *extra(json_t *device, const char *key)
{
    return json_object_get(json_object_get(device, "nvml"), key);
}

static card *find(const char *uid)
{
    for (int i = 0; i < n_cards; i++)
        if (is(cards[i].device, "uid", uid)) return &cards[i];
    return NULL;
}

/* The link of two cards, either way round; *turned when b comes first. */
static json_t *link_of(const card *a, const card *b, bool *turned)
{
    size_t i;
    json_t *l;
    json_array_foreach(list("links"), i, l)
    {
        bool there = is(l, "a", text(a->device, "uid")) && is(l, "b", text(b->device, "uid"));
        bool back = is(l, "b", text(a->device, "uid")) && is(l, "a", text(b->device, "uid"));
        *turned = back;
        if (there || back) return l;
    }
    return NULL;
}

static void add_ends(card *c)
{
    int switched = 0;
    for (int i = 0; i < n_cards; i++) {
        bool turned;
        json_t *l = &cards[i] == c ? NULL : link_of(c, &cards[i], &turned);
        int n = l ? (int)number(l, "nvlinks", 0) : 0;
        if (l && json_is_true(json_object_get(l, "via_switch"))) {
            if (n > switched) switched = n; /* the same links serve every peer */
        } else {
            while (n-- > 0 && c->n_ends < LINKS) c->ends[c->n_ends++] = cards[i].device;
        }
    }
    while (switched-- > 0 && c->n_ends < LINKS) c->ends[c->n_ends++] = NULL;
}

static int load(void)
{
    char *s;
    size_t n;
    const char *path = getenv("TPL_NVML_RECORD");
    json_decref(record);
    record = NULL;
    n_cards = n_slices = 0;
    if (!path || tpl_file_load(path, 1 << 20, &s, &n, NULL)) return NV_UNKNOWN;
    if (tpl_yaml_parse(&record, s, n, 0, path, NULL)) record = NULL;
    free(s);
    if (!record) return NV_UNKNOWN;
    size_t i;
    json_t *d;
    json_array_foreach(list("devices"), i, d) if (is(d, "kind", "gpu") && n_cards < MOST) cards[n_cards++] = (card){ .device = d };
    json_array_foreach(list("devices"), i, d) if (is(d, "kind", "mig") && n_slices < MOST)
    {
        card *parent = find(text(json_object_get(d, "mig"), "parent"));
        slices[n_slices++] = (card){ .device = d, .parent = parent ? parent->device : NULL };
    }
    for (int c = 0; c < n_cards; c++) add_ends(&cards[c]);
    return (int)number(json_object_get(record, "nvml"), "init", NV_OK);
}

/* -- Answers ---------------------------------------------------------------------------------------------- */

/* Begins every call on a device. */
#define OPEN(d)                                                                      \
    card *c = (d);                                                                   \
    if (!record || !c) return NV_UNINITIALIZED;                                      \
    if (json_is_true(extra(c->device, "lost"))) return NV_GPU_IS_LOST

static int put(char *out, unsigned cap, const char *s)
{
    if (!*s) return NV_NOT_SUPPORTED;
    if (strlen(s) >= cap) return NV_INSUFFICIENT_SIZE;
    memcpy(out, s, strlen(s) + 1);
    return NV_OK;
}

static void put_bus(nv_pci *pci, const char *address)
{
    unsigned fn;
    memset(pci, 0, sizeof *pci);
    if (sscanf(address, "%x:%x:%x.%x", &pci->domain, &pci->bus, &pci->device, &fn) != 4) return;
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", pci->domain, pci->bus & 0xff, pci->device & 0xff);
}

static int word_at(const char *word, const char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(word, words[i])) return i;
    return -1;
}

/* Who is refused does not shut down. */
EXPORT int nvmlInit_v2(void)
{
    int code = load();
    if (code) {
        json_decref(record);
        record = NULL;
        n_cards = n_slices = 0;
    }
    return code;
}

EXPORT int nvmlShutdown(void)
{
    json_decref(record);
    record = NULL;
    return NV_OK;
}

EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned cap)
{
    return put(out, cap, text(json_array_get(list("hosts"), 0), "driver"));
}

static int cuda_version(int *out)
{
    int major, minor;
    if (sscanf(text(json_array_get(list("hosts"), 0), "cuda"), "%d.%d", &major, &minor) != 2) return NV_NOT_SUPPORTED;
    *out = major * 1000 + minor * 10;
    return NV_OK;
}

EXPORT int nvmlSystemGetCudaDriverVersion(int *out) { return cuda_version(out); }

EXPORT int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = (unsigned)n_cards;
    return record ? NV_OK : NV_UNINITIALIZED;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned i, nv_device *out)
{
    if (i >= (unsigned)n_cards) return NV_INVALID_ARGUMENT;
    json_t *code = extra(cards[i].device, "open");
    *out = &cards[i];
    return code ? (int)json_integer_value(code) : NV_OK;
}

/* A lost card still has what the driver wrote down when it found it. */
EXPORT int nvmlDeviceGetUUID(nv_device d, char *out, unsigned cap) { return put(out, cap, text(((card *)d)->device, "uuid")); }

EXPORT int nvmlDeviceGetPciInfo_v3(nv_device d, nv_pci *pci)
{
    put_bus(pci, text(((card *)d)->device, "pci"));
    return pci->bus_id[0] ? NV_OK : NV_NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetName(nv_device d, char *out, unsigned cap)
{
    char name[128];
    OPEN(d);
    if (!c->parent) return put(out, cap, text(c->device, "name"));
    snprintf(name, sizeof name, "%s MIG %s", text(c->parent, "name"), text(json_object_get(c->device, "mig"), "profile"));
    return put(out, cap, name);
}

EXPORT int nvmlDeviceGetVbiosVersion(nv_device d, char *out, unsigned cap)
{
    OPEN(d);
    return put(out, cap, text(c->device, "vbios"));
}

EXPORT int nvmlDeviceGetCudaComputeCapability(nv_device d, int *major, int *minor)
{
    OPEN(d);
    return sscanf(text(c->device, "sm"), "%d.%d", major, minor) == 2 ? NV_OK : NV_NOT_SUPPORTED;
}

static int memory(card *c, nv_memory_v2 *m)
{
    double total = number(c->device, "mem_bytes", 0), free = number(c->device, "free_bytes", total);
    double used = number(json_object_get(c->device, "busy"), "used_bytes", 0);
    if (total <= 0) return NV_NOT_SUPPORTED;
    m->total = (unsigned long long)total;
    m->free = (unsigned long long)free;
    m->used = (unsigned long long)used;
    m->reserved = m->total - m->free - m->used;
    return NV_OK;
}

EXPORT int nvmlDeviceGetMemoryInfo(nv_device d, nv_memory *m)
{
    nv_memory_v2 all = { 0 };
    OPEN(d);
    int code = memory(c, &all);
    *m = (nv_memory){ all.total, all.free, all.used + all.reserved };
    return code;
}

static int pcie(card *c, const char *key, unsigned *out)
{
    double v = number(json_object_get(c->device, "pcie"), key, -1);
    if (v < 0) return NV_NOT_SUPPORTED;
    *out = (unsigned)v;
    return NV_OK;
}

EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(nv_device d, unsigned *out) { OPEN(d); return pcie(c, "gen", out); }
EXPORT int nvmlDeviceGetMaxPcieLinkWidth(nv_device d, unsigned *out) { OPEN(d); return pcie(c, "width", out); }

EXPORT int nvmlDeviceGetCurrPcieLinkWidth(nv_device d, unsigned *out)
{
    OPEN(d);
    json_t *now = extra(c->device, "width_now");
    if (!now) return pcie(c, "width", out);
    *out = (unsigned)json_integer_value(now);
    return NV_OK;
}

EXPORT int nvmlDeviceGetTopologyCommonAncestor(nv_device a, nv_device b, int *level)
{
    static const char *const words[] = { "", "pix", "pxb", "phb", "node", "sys" };
    bool turned;
    OPEN(a);
    json_t *l = link_of(c, b, &turned);
    int at = l ? word_at(*text(l, "pcie") ? text(l, "pcie") : text(l, "kind"), words, 6) : -1;
    if (at < 1) return NV_NOT_SUPPORTED;
    *level = 10 * at;
    return NV_OK;
}

EXPORT int nvmlDeviceGetNvLinkState(nv_device d, unsigned link, int *active)
{
    OPEN(d);
    if (link >= LINKS) return NV_INVALID_ARGUMENT;
    *active = (int)link < c->n_ends;
    return NV_OK;
}

EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(nv_device d, unsigned link, nv_pci *pci)
{
    char address[24];
    OPEN(d);
    if ((int)link >= c->n_ends) return NV_NOT_SUPPORTED;
    snprintf(address, sizeof address, "0000:%02x:00.0", 0xc0 + link % 4); /* one of four switches */
    put_bus(pci, c->ends[link] ? text(c->ends[link], "pci") : address);
    if (json_is_true(extra(c->device, "hidden_peers"))) memset(pci, 0, sizeof *pci);
    return NV_OK;
}

EXPORT int nvmlDeviceGetMigMode(nv_device d, unsigned *now, unsigned *pending)
{
    OPEN(d);
    json_t *mig = json_object_get(c->device, "mig");
    if (!mig || c->parent) return NV_NOT_SUPPORTED;
    *now = is(mig, "mode", "on");
    *pending = *text(mig, "pending") ? is(mig, "pending", "on") : *now;
    return NV_OK;
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(nv_device d, unsigned *n)
{
    OPEN(d);
    *n = SLOTS;
    return c->parent ? NV_INVALID_ARGUMENT : NV_OK;
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(nv_device d, unsigned i, nv_device *out)
{
    OPEN(d);
    for (int k = 0, own = 0; k < n_slices; k++) {
        if (slices[k].parent != c->device) continue;
        json_t *slot = extra(slices[k].device, "slot");
        *out = &slices[k];
        if ((slot ? json_integer_value(slot) : own) == i) return NV_OK;
        own++;
    }
    return NV_NOT_FOUND;
}

static int pids(card *c, unsigned *n, nv_process *out)
{
    json_t *all = json_object_get(json_object_get(c->device, "busy"), "pids");
    unsigned have = (unsigned)json_array_size(all), cap = *n;
    *n = have;
    if (have > (out ? cap : 0)) return NV_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < have; i++) {
        json_int_t pid = json_integer_value(json_array_get(all, i));
        out[i] = (nv_process){ (unsigned)pid, 1 << 20, ~0u, ~0u };
    }
    return NV_OK;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(nv_device d, unsigned *n, nv_process *out)
{
    OPEN(d);
    return pids(c, n, out);
}

#ifndef STANDIN_OLD

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *out) { return cuda_version(out); }

EXPORT int nvmlDeviceGetMemoryInfo_v2(nv_device d, nv_memory_v2 *m)
{
    OPEN(d);
    return m->version == NV_STRUCT_VERSION(nv_memory_v2, 2) ? memory(c, m) : NV_ARGUMENT_VERSION_MISMATCH;
}

EXPORT int nvmlDeviceGetP2PStatus(nv_device a, nv_device b, int index, int *status)
{
    static const char *const words[] = { "ok", "cns", "gns", "tns", "dr", "ns", "u" };
    bool turned;
    OPEN(a);
    json_t *l = link_of(c, b, &turned), *way = NULL;
    if (!l) return NV_NOT_SUPPORTED;
    if (index == NV_P2P_NVLINK) {
        *status = number(l, "nvlinks", 0) > 0 ? 0 : 5;
        return NV_OK;
    }
    if (turned) way = json_object_get(l, "p2p_ba");
    if (!way) way = json_object_get(l, "p2p");
    *status = word_at(text(way, index == NV_P2P_READ ? "read" : "write"), words, 7);
    return *status < 0 ? NV_NOT_SUPPORTED : NV_OK;
}

EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(nv_device d, unsigned link, int *type)
{
    OPEN(d);
    if ((int)link >= c->n_ends || json_is_true(extra(c->device, "hidden_peers"))) return NV_NOT_SUPPORTED;
    *type = c->ends[link] ? NV_LINK_GPU : NV_LINK_SWITCH;
    return NV_OK;
}

EXPORT int nvmlDeviceGetNvLinkCapability(nv_device d, unsigned link, int capability, unsigned *has)
{
    OPEN(d);
    json_t *n = extra(c->device, "p2p_links");
    if (capability != NV_LINK_CAN_P2P || (int)link >= c->n_ends) return NV_NOT_SUPPORTED;
    *has = !n || link < (unsigned)json_integer_value(n);
    return NV_OK;
}

EXPORT int nvmlDeviceGetNvLinkVersion(nv_device d, unsigned link, unsigned *version)
{
    OPEN(d);
    *version = 6; /* 4.0 */
    return (int)link < c->n_ends ? NV_OK : NV_NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetFieldValues(nv_device d, int n, nv_field *f)
{
    OPEN(d);
    json_t *c2c = extra(c->device, "c2c");
    for (int i = 0; i < n; i++) {
        f[i].status = c2c ? NV_OK : NV_NOT_SUPPORTED;
        if (f[i].id == NV_FIELD_C2C_COUNT) f[i].value.u = (unsigned)json_array_size(c2c);
        else if (f[i].id == NV_FIELD_C2C_STATUS) f[i].value.u = 1;
        else if (f[i].id == NV_FIELD_C2C_MB_S) f[i].value.u = (unsigned)json_integer_value(json_array_get(c2c, f[i].scope));
        else f[i].status = NV_NOT_SUPPORTED;
    }
    return NV_OK;
}

EXPORT int nvmlDeviceGetAttributes_v2(nv_device d, nv_attributes *a)
{
    OPEN(d);
    memset(a, 0, sizeof *a);
    a->gpu_slices = (unsigned)atoi(text(json_object_get(c->device, "mig"), "profile"));
    a->memory_mb = (unsigned long long)(number(c->device, "mem_bytes", 0) / 1048576);
    return c->parent ? NV_OK : NV_NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetGpuFabricInfoV(nv_device d, void *info)
{
    static const char *const states[] = { "not supported", "not started", "in progress", "completed" };
    static const char *const health[] = { "", "healthy", "unhealthy", "limited capacity" };
    OPEN(d);
    json_t *f = json_object_get(c->device, "fabric");
    nv_fabric_v3 *v3 = info;
    nv_fabric_v2 *v2 = info;
    bool new = v3->version == NV_STRUCT_VERSION(nv_fabric_v3, 3);
    if (!new && v2->version != NV_STRUCT_VERSION(nv_fabric_v2, 2)) return NV_ARGUMENT_VERSION_MISMATCH;
    if (!f) return NV_NOT_SUPPORTED;
    if (new && json_is_true(extra(c->device, "fabric_v2"))) return NV_ARGUMENT_VERSION_MISMATCH;
    v2->state = (unsigned char)word_at(text(f, "state"), states, 4); /* the third form begins as the second does */
    v2->status = is(f, "status", "insufficient resources") ? 23 : NV_OK;
    v2->clique = (unsigned)number(f, "clique", 0);
    v2->health_mask = is(f, "health", "unhealthy") ? 1 : 2; /* bandwidth degraded, or not */
    memset(v2->cluster, 0, sizeof v2->cluster);
    const char *hex = text(f, "cluster");
    for (int i = 0; i < 16 && *hex; i++, hex += 2) {
        unsigned byte = 0;
        hex += *hex == '-';
        sscanf(hex, "%2x", &byte);
        v2->cluster[i] = (unsigned char)byte;
    }
    if (new) v3->health_summary = (unsigned char)word_at(text(f, "health"), health, 4);
    return NV_OK;
}

static int set_bits(const char *s, unsigned words, unsigned long *set)
{
    unsigned bits = 8 * sizeof *set;
    memset(set, 0, words * sizeof *set);
    if (!*s) return NV_NOT_SUPPORTED;
    for (char *end; *s; s = *end == ',' ? end + 1 : end) {
        unsigned long first = strtoul(s, &end, 10), last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        for (unsigned long i = first; i <= last && i < (unsigned long)words * bits; i++) set[i / bits] |= 1UL << i % bits;
        if (*end != ',') break;
    }
    return NV_OK;
}

EXPORT int nvmlDeviceGetCpuAffinityWithinScope(nv_device d, unsigned words, unsigned long *set, int scope)
{
    OPEN(d);
    return scope ? NV_NOT_SUPPORTED : set_bits(text(c->device, "cpus"), words, set);
}

EXPORT int nvmlDeviceGetMemoryAffinity(nv_device d, unsigned words, unsigned long *set, int scope)
{
    char node[16];
    OPEN(d);
    double numa = number(c->device, "numa", -1);
    snprintf(node, sizeof node, "%d", (int)numa);
    return numa < 0 || scope ? NV_NOT_SUPPORTED : set_bits(node, words, set);
}

EXPORT int nvmlDeviceGetRemappedRows(nv_device d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
    OPEN(d);
    json_t *rows = json_object_get(json_object_get(c->device, "health"), "remapped");
    if (!rows) return NV_NOT_SUPPORTED;
    *corrected = 0;
    *uncorrected = (unsigned)number(rows, "uncorrectable", 0);
    *pending = json_is_true(json_object_get(rows, "pending"));
    *failed = json_is_true(json_object_get(rows, "failure"));
    return NV_OK;
}

EXPORT int nvmlDeviceGetTotalEccErrors(nv_device d, int type, int counter, unsigned long long *n)
{
    OPEN(d);
    double ecc = number(json_object_get(c->device, "health"), "ecc", -1);
    if (ecc < 0 || type != NV_UNCORRECTED || counter != NV_VOLATILE) return NV_NOT_SUPPORTED;
    *n = (unsigned long long)ecc;
    return NV_OK;
}

#endif
