/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/checkpoint.h"
#include "target.h"

/* The shard that an index may name: one tensor "w" of one byte. */
static const char shard[] = "\x38\0\0\0\0\0\0\0{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}    ";

/* Opens the text as the index of a sharded model. What our scanner accepts must be JSON to Jansson as well. */
static void open_index(const uint8_t *data, size_t n, bool is_json)
{
    tpl_checkpoint *cp;
    tpl_err err = { 0 };
    tpl_scratch("a.safetensors", shard, sizeof shard - 1);
    tpl_status st = tpl_checkpoint_open(&cp, tpl_scratch("model.safetensors.index.json", data, n), &err);
    if (!st && !is_json) tpl_broken("accepted an index that is no JSON");
    if (st && !(err.code == TPL_ERR_IO && err.sys == 2)) tpl_check_refusal(&err); /* a shard that is not there is code io */
    tpl_checkpoint_close(cp);
}

tpl_status tpl_target_json(const uint8_t *data, size_t n, tpl_err *err)
{
    json_t *root;
    char *copy = malloc(n ? n : 1); /* of the exact size, so that a read past the end is seen */
    if (!copy) return TPL_ERR_MEM;
    memcpy(copy, data, n);
    tpl_status st = tpl_json_parse(&root, copy, n, 0, "x.json", err);
    free(copy);
    open_index(data, n, !st);
    if (st) return tpl_check_refusal(err);
    bool is_object = json_is_object(root);
    json_decref(root);
    TPL_TRY(tpl_lua_target("json", data, n, err));
    return is_object ? tpl_lua_target("config", data, n, err) : TPL_OK;
}
