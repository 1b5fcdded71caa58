/* SPDX-License-Identifier: Apache-2.0
 *
 * What a hostile file is fed to, one function per kind of file; the sweep (sweep.c) and libFuzzer (fuzzer.c) both call these. A target
 * takes the real way in: it writes the bytes to a file, opens it as the library does, and uses what opened. It returns TPL_OK or the
 * refusal, and calls tpl_broken, which ends the process, when anything but one clear refusal happens. One thread.
 */
#ifndef TPL_SPEC_FUZZ_TARGET_H
#define TPL_SPEC_FUZZ_TARGET_H

#include <lua.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef tpl_status tpl_target(const uint8_t *data, size_t n, tpl_err *err);

tpl_target tpl_target_gguf;        /* a .gguf file: checkpoint, keys, tensors, vocabulary, configuration */
tpl_target tpl_target_safetensors; /* a .safetensors file */
tpl_target tpl_target_json;        /* config.json, generation_config.json, and the index of a sharded model */
tpl_target tpl_target_tokenizer;   /* a tokenizer.json */
tpl_target tpl_target_template;    /* a chat template */
tpl_target tpl_target_yaml;        /* a YAML file */
tpl_target tpl_target_topology;    /* a topology: NCCL or lstopo XML, a record */

/* -- For targets ---- */

/* Says what is wrong and aborts. */
_Noreturn void tpl_broken(const char *fmt, ...) TPL_PRINTF(1, 2);

/* Checks that a refusal is one clear line about a file: FORMAT or UNSUPPORTED, a message of printable UTF-8. Returns err->code. */
tpl_status tpl_check_refusal(const tpl_err *err);

/* Writes a file in the scratch folder, which is removed when the process ends; the path is valid until the next call. */
const char *tpl_scratch(const char *name, const void *data, size_t n);

/* Calls a function of spec/fuzz/targets.lua with a string; its error, if it gives one, becomes *err. */
tpl_status tpl_lua_target(const char *function, const void *data, size_t n, tpl_err *err);

/* Frees what Lua no longer uses. */
void tpl_lua_collect(void);

/* Encodes a few texts and decodes them again. */
struct tpl_tokenizer;
void tpl_use_tokenizer(const struct tpl_tokenizer *t);

#endif
