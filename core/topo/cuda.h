/* SPDX-License-Identifier: Apache-2.0
 *
 * The order in which CUDA numbers the GPUs that this process may see: its driver is the only one who knows where models
 * are mixed. Opening it takes some tenths of a second and leaves no context behind; nothing of it is needed to build.
 */
#ifndef TPL_TOPO_CUDA_H
#define TPL_TOPO_CUDA_H

#include <stdbool.h>

enum { TPL_CUDA_MAX_GPUS = 256, TPL_CUDA_BUS_CAP = 32 };

typedef struct tpl_cuda_order {
    int n;
    char bus_id[TPL_CUDA_MAX_GPUS][TPL_CUDA_BUS_CAP]; /* "0000:0F:00.0", CUDA device 0 first */
} tpl_cuda_order;

/* library NULL: libcuda.so.1. False without a driver, or when it refuses. "No device" is a true answer of none: all are
 * hidden. Setup only. */
bool tpl_cuda_order_read(tpl_cuda_order *out, const char *library);

#endif
