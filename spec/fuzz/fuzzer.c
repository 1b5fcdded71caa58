/* SPDX-License-Identifier: Apache-2.0 */
#include "target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    tpl_err err = { 0 };
    (void)TPL_FUZZ_TARGET(data, n, &err);
    return 0;
}
