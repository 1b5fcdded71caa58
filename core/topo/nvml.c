/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"

typedef struct library {
    void *handle;
#define X(name, args) int(*name) args;
    NV_CALLS(X)
#undef X
} library;

/* A symbol that is not there is a call that is not supported. */
#define CALL(lib, name, ...) ((lib)->name ? (lib)->name(__VA_ARGS__) : NV_FUNCTION_NOT_FOUND)

static void resolve(library *lib, tpl_nvml *n)
{
    size_t at = 0;
#define X(name, args)                                                                            \
    {                                                                                            \
        void *symbol = dlsym(lib->handle, "nvml" #name);                                         \
        memcpy(&lib->name, &symbol, sizeof symbol); /* ISO C knows no cast from data to code */  \
        int len = symbol ? 0 : snprintf(n->missing + at, sizeof n->missing - at, " nvml" #name); \
        if (len > 0 && at + (size_t)len < sizeof n->missing) at += (size_t)len;                  \
    }
    NV_CALLS(X)
#undef X
}

/* -- One GPU ---------------------------------------------------------------------------------------------- */

typedef struct reader {
    const library *lib;
    nv_device dev;
    tpl_nvml_gpu *gpu;
} reader;

/* Remembers that a GPU has fallen off the bus, whichever call says so. */
static bool ok(const reader *r, int code)
{
    if ((code == NV_GPU_IS_LOST || code == NV_RESET_REQUIRED) && !r->gpu->bad_code) r->gpu->bad_code = code;
    return code == NV_OK;
}

static int number(const reader *r, int (*call)(nv_device, unsigned *))
{
    unsigned v = 0;
    return call && ok(r, call(r->dev, &v)) ? (int)v : -1;
}

static void read_text(const reader *r, int (*call)(nv_device, char *, unsigned), char *out, unsigned cap)
{
    if (!call || !ok(r, call(r->dev, out, cap))) out[0] = 0;
    out[cap - 1] = 0;
}

static void read_names(const reader *r)
{
    tpl_nvml_gpu *g = r->gpu;
    nv_pci pci = { 0 };
    read_text(r, r->lib->DeviceGetUUID, g->uuid, sizeof g->uuid);
    read_text(r, r->lib->DeviceGetName, g->name, sizeof g->name);
    read_text(r, r->lib->DeviceGetVbiosVersion, g->vbios, sizeof g->vbios);
    if (ok(r, CALL(r->lib, DeviceGetPciInfo_v3, r->dev, &pci)))
        snprintf(g->bus_id, sizeof g->bus_id, "%.*s", (int)sizeof pci.bus_id - 1, pci.bus_id);
    if (!ok(r, CALL(r->lib, DeviceGetCudaComputeCapability, r->dev, &g->sm_major, &g->sm_minor)))
        g->sm_major = g->sm_minor = -1;
}

/* The second form sets apart what the driver keeps for itself; older drivers have the first only. */
static bool memory_of(const reader *r, nv_device dev, nv_memory_v2 *out)
{
    nv_memory old = { 0 };
    *out = (nv_memory_v2){ .version = NV_STRUCT_VERSION(nv_memory_v2, 2) };
    if (ok(r, CALL(r->lib, DeviceGetMemoryInfo_v2, dev, out))) return true;
    if (!ok(r, CALL(r->lib, DeviceGetMemoryInfo, dev, &old))) return false;
    *out = (nv_memory_v2){ .total = old.total, .free = old.free, .used = old.used };
    return true;
}

static void read_memory(const reader *r)
{
    nv_memory_v2 m;
    tpl_nvml_gpu *g = r->gpu;
    if (memory_of(r, r->dev, &m)) g->total = m.total, g->reserved = m.reserved, g->free = m.free, g->used = m.used;
}

static void read_pcie(const reader *r)
{
    r->gpu->gen_max = number(r, r->lib->DeviceGetMaxPcieLinkGeneration);
    r->gpu->width_max = number(r, r->lib->DeviceGetMaxPcieLinkWidth);
    r->gpu->width_now = number(r, r->lib->DeviceGetCurrPcieLinkWidth);
}

static void read_slice(const reader *r, nv_device mig, tpl_nvml_slice *s)
{
    const reader part = { r->lib, mig, r->gpu };
    nv_memory_v2 m;
    nv_attributes a = { 0 };
    read_text(&part, r->lib->DeviceGetUUID, s->uuid, sizeof s->uuid);
    read_text(&part, r->lib->DeviceGetName, s->name, sizeof s->name);
    s->gpu_slices = -1;
    if (ok(r, CALL(r->lib, DeviceGetAttributes_v2, mig, &a))) {
        s->gpu_slices = (int)a.gpu_slices;
        s->total = a.memory_mb << 20;
    }
    if (memory_of(r, mig, &m)) s->total = m.total, s->free = m.free, s->used = m.used;
}

/* Slices have gaps in their numbers. */
static bool read_mig(const reader *r)
{
    tpl_nvml_gpu *g = r->gpu;
    unsigned now = 0, pending = 0, most = 0;
    if (!ok(r, CALL(r->lib, DeviceGetMigMode, r->dev, &now, &pending))) return true;
    g->mig_now = (int)now;
    g->mig_pending = (int)pending;
    if (!now || !ok(r, CALL(r->lib, DeviceGetMaxMigDeviceCount, r->dev, &most)) || !most) return true;
    if (most > TPL_NVML_MAX_SLICES) most = TPL_NVML_MAX_SLICES;
    g->slices = calloc(most, sizeof *g->slices);
    for (unsigned i = 0; g->slices && i < most; i++) {
        nv_device mig = NULL;
        if (ok(r, CALL(r->lib, DeviceGetMigDeviceHandleByIndex, r->dev, i, &mig)))
            read_slice(r, mig, &g->slices[g->n_slices++]);
    }
    return g->slices != NULL;
}

/* The third form of the struct has the summary; drivers before about R575 refuse its version. */
static void read_fabric(const reader *r)
{
    tpl_nvml_gpu *g = r->gpu;
    nv_fabric_v3 v3 = { .version = NV_STRUCT_VERSION(nv_fabric_v3, 3) };
    nv_fabric_v2 v2 = { .version = NV_STRUCT_VERSION(nv_fabric_v2, 2) };
    if (ok(r, CALL(r->lib, DeviceGetGpuFabricInfoV, r->dev, &v3))) {
        g->fabric_summary = v3.health_summary;
    } else if (ok(r, CALL(r->lib, DeviceGetGpuFabricInfoV, r->dev, &v2))) {
        v3 = (nv_fabric_v3){ .status = v2.status, .clique = v2.clique, .state = v2.state, .health_mask = v2.health_mask };
        memcpy(v3.cluster, v2.cluster, sizeof v3.cluster);
    } else {
        return;
    }
    g->fabric_state = v3.state;
    g->fabric_status = v3.status;
    g->fabric_clique = v3.clique;
    g->fabric_mask = (int)(v3.health_mask & 0x7fffffff);
    memcpy(g->fabric_cluster, v3.cluster, sizeof g->fabric_cluster);
}

static void read_affinity(const reader *r)
{
    tpl_nvml_gpu *g = r->gpu;
    if (!ok(r, CALL(r->lib, DeviceGetCpuAffinityWithinScope, r->dev, TPL_NVML_SET_WORDS, g->cpus, 0)))
        memset(g->cpus, 0, sizeof g->cpus);
    if (!ok(r, CALL(r->lib, DeviceGetMemoryAffinity, r->dev, TPL_NVML_SET_WORDS, g->nodes, 0)))
        memset(g->nodes, 0, sizeof g->nodes);
    g->own_node = number(r, r->lib->DeviceGetNumaNodeId);
}

/* Processes may come between asking for the count and asking for the list. */
static bool read_processes(const reader *r, int (*call)(nv_device, unsigned *, nv_process *))
{
    tpl_nvml_gpu *g = r->gpu;
    for (int try = 0; call && try < 4; try++) {
        unsigned n = 0;
        int code = call(r->dev, &n, NULL);
        if (ok(r, code)) g->knows_processes = true; /* none */
        if (code != NV_INSUFFICIENT_SIZE || n > 1 << 16) return true;
        nv_process *list = calloc(n += 8, sizeof *list);
        int *pids = list ? realloc(g->pids, ((size_t)g->n_pids + n) * sizeof *pids) : NULL;
        if (pids) g->pids = pids;
        code = pids ? call(r->dev, &n, list) : NV_OK;
        if (pids && ok(r, code)) g->knows_processes = true;
        for (unsigned i = 0; pids && !code && i < n; i++) {
            g->pids[g->n_pids++] = (int)list[i].pid;
            if (list[i].used != ~0ULL) g->process_bytes += list[i].used;
        }
        free(list);
        if (!pids) return false;
        if (code != NV_INSUFFICIENT_SIZE) return true;
    }
    return true;
}

static void read_health(const reader *r)
{
    tpl_nvml_gpu *g = r->gpu;
    unsigned corrected, uncorrected, pending, failed;
    unsigned long long ecc;
    if (ok(r, CALL(r->lib, DeviceGetRemappedRows, r->dev, &corrected, &uncorrected, &pending, &failed)))
        g->remapped_uncorrected = (int)uncorrected, g->remap_pending = (int)pending, g->remap_failed = (int)failed;
    if (ok(r, CALL(r->lib, DeviceGetTotalEccErrors, r->dev, NV_UNCORRECTED, NV_VOLATILE, &ecc)))
        g->ecc_uncorrected = (int64_t)ecc;
}

/* -- Links ------------------------------------------------------------------------------------------------ */

static bool field(const reader *r, unsigned id, unsigned scope, unsigned *out)
{
    nv_field f = { .id = id, .scope = scope };
    if (!ok(r, CALL(r->lib, DeviceGetFieldValues, r->dev, 1, &f)) || f.status) return false;
    *out = f.value.u;
    return true;
}

/* The state by a field where the call gives none: from compute capability 9 on NCCL asks this way. */
static int link_state(const reader *r, unsigned link, int *active)
{
    unsigned state;
    int code = CALL(r->lib, DeviceGetNvLinkState, r->dev, link, active);
    if (code != NV_OK && code != NV_INVALID_ARGUMENT && field(r, NV_FIELD_NVLINK_STATE, link, &state)) {
        *active = state == 1;
        return NV_OK;
    }
    return code;
}

static void read_remote(const reader *r, unsigned link, tpl_nvml_link *out)
{
    nv_pci pci = { 0 };
    unsigned version;
    int type, code = CALL(r->lib, DeviceGetNvLinkRemotePciInfo_v2, r->dev, link, &pci);
    if (code == NV_FUNCTION_NOT_FOUND) code = CALL(r->lib, DeviceGetNvLinkRemotePciInfo, r->dev, link, &pci);
    *out = (tpl_nvml_link){ .number = (int)link, .version = -1, .type = -1 };
    if (ok(r, code)) snprintf(out->bus_id, sizeof out->bus_id, "%.*s", (int)sizeof pci.bus_id - 1, pci.bus_id);
    if (ok(r, CALL(r->lib, DeviceGetNvLinkRemoteDeviceType, r->dev, link, &type))) out->type = type;
    if (ok(r, CALL(r->lib, DeviceGetNvLinkVersion, r->dev, link, &version))) out->version = (int)version;
}

/* A link that cannot carry peer traffic joins nothing; NCCL asks the same. Unknown counts as yes. */
static bool can_p2p(const reader *r, unsigned link)
{
    unsigned has = 1;
    return !ok(r, CALL(r->lib, DeviceGetNvLinkCapability, r->dev, link, NV_LINK_CAN_P2P, &has)) || has;
}

static void read_links(const reader *r)
{
    tpl_nvml_gpu *g = r->gpu;
    for (unsigned i = 0; i < NV_MAX_LINKS; i++) {
        int active = 0, code = link_state(r, i, &active);
        if (code == NV_OK || code == NV_NOT_SUPPORTED || code == NV_INVALID_ARGUMENT) g->knows_links = true;
        if (code == NV_INVALID_ARGUMENT) break; /* past the last link of this model */
        if (!ok(r, code)) continue;
        if (active && can_p2p(r, i)) read_remote(r, i, &g->links[g->n_links++]);
    }
}

static void read_c2c(const reader *r)
{
    unsigned n = 0, up, mb_s;
    if (!field(r, NV_FIELD_C2C_COUNT, 0, &n)) return;
    for (unsigned i = 0; i < n && i < 64; i++)
        if (field(r, NV_FIELD_C2C_STATUS, i, &up) && up == 1) {
            r->gpu->c2c_links++;
            if (field(r, NV_FIELD_C2C_MB_S, i, &mb_s)) r->gpu->c2c_gb_s += mb_s / 1000.0;
        }
}

/* -- All -------------------------------------------------------------------------------------------------- */

static tpl_nvml_gpu unknown_gpu(int index)
{
    return (tpl_nvml_gpu){ .index = index,
                           .sm_major = -1,
                           .sm_minor = -1,
                           .gen_max = -1,
                           .width_max = -1,
                           .width_now = -1,
                           .mig_now = -1,
                           .mig_pending = -1,
                           .fabric_state = -1,
                           .fabric_summary = -1,
                           .fabric_mask = -1,
                           .own_node = -1,
                           .remapped_uncorrected = -1,
                           .remap_pending = -1,
                           .remap_failed = -1,
                           .ecc_uncorrected = -1 };
}

static bool read_gpu(const reader *r)
{
    read_names(r);
    read_memory(r);
    read_pcie(r);
    read_fabric(r);
    read_affinity(r);
    read_health(r);
    read_links(r);
    read_c2c(r);
    return read_mig(r) && read_processes(r, r->lib->DeviceGetComputeRunningProcesses_v3) &&
           read_processes(r, r->lib->DeviceGetMPSComputeRunningProcesses_v3);
}

static int p2p(const library *lib, nv_device a, nv_device b, int index)
{
    int status = -1;
    return CALL(lib, DeviceGetP2PStatus, a, b, index, &status) == NV_OK ? status : -1;
}

static void read_pairs(const library *lib, tpl_nvml *n, const nv_device *devs)
{
    for (int a = 0; a < n->n_gpus; a++)
        for (int b = 0; b < n->n_gpus; b++) {
            tpl_nvml_pair *p = &n->pairs[a * n->n_gpus + b];
            *p = (tpl_nvml_pair){ -1, -1, -1, -1 };
            if (a == b || n->gpus[a].open_code || n->gpus[b].open_code) continue;
            if (CALL(lib, DeviceGetTopologyCommonAncestor, devs[a], devs[b], &p->level) != NV_OK) p->level = -1;
            p->read = p2p(lib, devs[a], devs[b], NV_P2P_READ);
            p->write = p2p(lib, devs[a], devs[b], NV_P2P_WRITE);
            p->nvlink = p2p(lib, devs[a], devs[b], NV_P2P_NVLINK);
        }
}

static bool read_gpus(const library *lib, tpl_nvml *n)
{
    nv_device devs[TPL_NVML_MAX_GPUS] = { 0 };
    unsigned count = 0;
    if (CALL(lib, DeviceGetCount_v2, &count) != NV_OK || !count) return true;
    if (count > TPL_NVML_MAX_GPUS) count = TPL_NVML_MAX_GPUS;
    n->gpus = calloc(count, sizeof *n->gpus);
    n->pairs = calloc((size_t)count * count, sizeof *n->pairs);
    if (!n->gpus || !n->pairs) return false;
    for (; n->n_gpus < (int)count; n->n_gpus++) {
        tpl_nvml_gpu *g = &n->gpus[n->n_gpus];
        *g = unknown_gpu(n->n_gpus);
        g->open_code = CALL(lib, DeviceGetHandleByIndex_v2, (unsigned)n->n_gpus, &devs[n->n_gpus]);
        if (!g->open_code && !read_gpu(&(reader){ lib, devs[n->n_gpus], g })) {
            n->n_gpus++;
            return false;
        }
    }
    read_pairs(lib, n, devs);
    return true;
}

static bool read_all(const library *lib, tpl_nvml *n)
{
    n->init_code = CALL(lib, Init_v2);
    if (n->init_code) return true;
    if (CALL(lib, SystemGetDriverVersion, n->driver, sizeof n->driver)) n->driver[0] = 0;
    if (CALL(lib, SystemGetCudaDriverVersion_v2, &n->cuda) && CALL(lib, SystemGetCudaDriverVersion, &n->cuda)) n->cuda = 0;
    bool done = read_gpus(lib, n);
    CALL(lib, Shutdown);
    return done;
}

tpl_status tpl_nvml_read(tpl_nvml **out, const char *name, tpl_err *err)
{
    *out = NULL;
    tpl_nvml *n = calloc(1, sizeof *n);
    if (!n) return tpl_fail(err, TPL_ERR_MEM, 0, "nvml", "out of memory");
    if (!name) name = tpl_env(TPL_ENV_NVML);
    library lib = { .handle = dlopen(name ? name : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL) };
    n->is_loaded = lib.handle != NULL;
    bool done = true;
    if (lib.handle) {
        resolve(&lib, n);
        done = read_all(&lib, n);
        dlclose(lib.handle);
    } else {
        const char *why = dlerror();
        snprintf(n->message, sizeof n->message, "%s", why ? why : "cannot be loaded");
    }
    if (!done) {
        tpl_nvml_free(n);
        return tpl_fail(err, TPL_ERR_MEM, 0, "nvml", "out of memory");
    }
    *out = n;
    return TPL_OK;
}

void tpl_nvml_free(tpl_nvml *n)
{
    if (!n) return;
    for (int i = 0; i < n->n_gpus; i++) {
        free(n->gpus[i].slices);
        free(n->gpus[i].pids);
    }
    free(n->gpus);
    free(n->pairs);
    free(n);
}

const char *tpl_nvml_code_name(int code, char buf[24])
{
    static const struct {
        int code;
        const char *name;
    } names[] = { { NV_OK, "SUCCESS" },
                  { NV_UNINITIALIZED, "UNINITIALIZED" },
                  { NV_INVALID_ARGUMENT, "INVALID_ARGUMENT" },
                  { NV_NOT_SUPPORTED, "NOT_SUPPORTED" },
                  { NV_NO_PERMISSION, "NO_PERMISSION" },
                  { NV_NOT_FOUND, "NOT_FOUND" },
                  { NV_INSUFFICIENT_SIZE, "INSUFFICIENT_SIZE" },
                  { NV_DRIVER_NOT_LOADED, "DRIVER_NOT_LOADED" },
                  { NV_LIBRARY_NOT_FOUND, "LIBRARY_NOT_FOUND" },
                  { NV_FUNCTION_NOT_FOUND, "FUNCTION_NOT_FOUND" },
                  { NV_GPU_IS_LOST, "GPU_IS_LOST" },
                  { NV_RESET_REQUIRED, "RESET_REQUIRED" },
                  { NV_OPERATING_SYSTEM, "OPERATING_SYSTEM" },
                  { NV_VERSION_MISMATCH, "LIB_RM_VERSION_MISMATCH" },
                  { 23, "INSUFFICIENT_RESOURCES" },
                  { NV_ARGUMENT_VERSION_MISMATCH, "ARGUMENT_VERSION_MISMATCH" },
                  { NV_UNKNOWN, "UNKNOWN" } };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code) return names[i].name;
    snprintf(buf, 24, "error %d", code);
    return buf;
}
