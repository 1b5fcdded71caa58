/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"
#include "model/checkpoint.h"
#include "target.h"

/* What our scanner of headers accepts must be JSON to a parser that shares no code with it: two readers never disagree (A7). */
static void check_by_jansson(const uint8_t *data)
{
    uint64_t len = 0;
    json_t *root;
    tpl_err err = { 0 };
    for (int i = 7; i >= 0; i--) len = len << 8 | data[i];
    if (tpl_json_parse(&root, (const char *)data + 8, len, 0, "header", &err)) tpl_broken("accepted a header that is no JSON: %s", err.msg);
    json_decref(root);
}

tpl_status tpl_target_safetensors(const uint8_t *data, size_t n, tpl_err *err)
{
    static unsigned char bytes[1 << 20];
    const char *path = tpl_scratch("m.safetensors", data, n);
    tpl_checkpoint *cp;
    if (tpl_checkpoint_open(&cp, path, err)) return tpl_check_refusal(err);
    if (tpl_checkpoint_kind_of(cp) == TPL_CHECKPOINT_SAFETENSORS) check_by_jansson(data);
    uint64_t total = 0;
    for (uint32_t i = 0; i < tpl_checkpoint_n_tensors(cp); i++) {
        const tpl_ckpt_tensor *t = tpl_checkpoint_tensor(cp, i);
        total += t->bytes;
        if (tpl_checkpoint_find(cp, t->name) != t) tpl_broken("tensor %s is not found", t->name);
        if (t->bytes <= sizeof bytes && tpl_checkpoint_read_tensor(cp, t, 0, t->bytes, bytes, err))
            tpl_broken("tensor %s was accepted, but cannot be read: %s", t->name, err->msg);
    }
    if (total > n) tpl_broken("tensors of %llu bytes in a file of %zu", (unsigned long long)total, n);
    tpl_checkpoint_close(cp);
    return TPL_OK;
}
