/* SPDX-License-Identifier: Apache-2.0
 *
 * Prototypes and numbers: CUDA Driver API reference, initialisation and device management.
 */
#include "topo/cuda.h"

#include <dlfcn.h>
#include <string.h>

enum { CUDA_OK = 0, CUDA_NO_DEVICE = 100 };

typedef struct driver {
    int (*init)(unsigned flags);
    int (*count)(int *n);
    int (*get)(int *device, int ordinal);
    int (*bus_id)(char *text, int cap, int device);
} driver;

/* ISO C knows no cast from data to code. */
static bool symbol(void *handle, const char *name, void *to)
{
    void *s = dlsym(handle, name);
    memcpy(to, &s, sizeof s);
    return s != NULL;
}

static bool ask(const driver *d, tpl_cuda_order *out)
{
    int n = 0, device, code = d->init(0);
    if (code == CUDA_NO_DEVICE) return true;
    if (code || d->count(&n) || n < 0 || n > TPL_CUDA_MAX_GPUS) return false;
    for (; out->n < n; out->n++)
        if (d->get(&device, out->n) || d->bus_id(out->bus_id[out->n], TPL_CUDA_BUS_CAP, device)) return false;
    return true;
}

bool tpl_cuda_order_read(tpl_cuda_order *out, const char *library)
{
    driver d;
    out->n = 0;
    void *handle = dlopen(library ? library : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle) return false;
    /* It is never closed: the driver has threads of its own, and CUDA's backend opens it again. */
    return symbol(handle, "cuInit", &d.init) && symbol(handle, "cuDeviceGetCount", &d.count) &&
           symbol(handle, "cuDeviceGet", &d.get) && symbol(handle, "cuDeviceGetPCIBusId", &d.bus_id) && ask(&d, out);
}
