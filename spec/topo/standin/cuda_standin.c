/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for libcuda.so.1 with two GPUs, the one with the higher address first; cuInit says what STANDIN_CUDA_INIT
 * holds, if it is set.
 */
#include <stdio.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuInit(unsigned flags)
{
    const char *code = getenv("STANDIN_CUDA_INIT");
    return flags ? 1 : code ? atoi(code) : 0;
}

EXPORT int cuDeviceGetCount(int *n)
{
    *n = 2;
    return 0;
}

EXPORT int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal + 10;
    return 0;
}

EXPORT int cuDeviceGetPCIBusId(char *text, int cap, int device)
{
    return snprintf(text, (size_t)cap, "0000:%02X:00.0", device == 10 ? 0xa0 : 0x10) < cap ? 0 : 1;
}
