/* SPDX-License-Identifier: Apache-2.0 */
#include "target.h"

tpl_status tpl_target_yaml(const uint8_t *data, size_t n, tpl_err *err)
{
    return tpl_lua_target("yaml", data, n, err);
}
