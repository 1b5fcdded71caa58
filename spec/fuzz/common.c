/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "target.h"
#include "token/tokenizer.h"
#include "token/utf8.h"

void tpl_broken(const char *fmt, ...)
{
    va_list ap;
    fputs("broken: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    abort();
}

/* -- Refusals ---- */

static void check_line(const char *what, const char *s)
{
    const char *end = s + strlen(s);
    for (int n; s < end; s += n) {
        n = tpl_utf8_len(s, end);
        if (!n || (unsigned char)*s < 0x20 || *s == 0x7f) tpl_broken("%s is no line of UTF-8: %s", what, s);
    }
}

tpl_status tpl_check_refusal(const tpl_err *err)
{
    if (err->code != TPL_ERR_FORMAT && err->code != TPL_ERR_UNSUPPORTED)
        tpl_broken("status %s: %s: %s", tpl_status_name(err->code), err->where, err->msg);
    if (!*err->msg || !*err->where) tpl_broken("a refusal without message or place: %s: %s", err->where, err->msg);
    check_line("where", err->where);
    check_line("message", err->msg);
    check_line("hint", err->hint);
    return err->code;
}

/* -- Files ---- */

static char folder[64];

static void remove_folder(void)
{
    static const char *const names[] = { "m.gguf", "m.safetensors", "config.json", "generation_config.json", "model.safetensors.index.json",
                                         "a.safetensors" };
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

const char *tpl_scratch(const char *name, const void *data, size_t n)
{
    static char path[128];
    if (!*folder) {
        strcpy(folder, access("/dev/shm", W_OK) ? "/tmp/tpl-fuzz-XXXXXX" : "/dev/shm/tpl-fuzz-XXXXXX");
        if (!mkdtemp(folder)) tpl_broken("no scratch folder %s", folder);
        atexit(remove_folder);
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n || close(fd)) tpl_broken("cannot write %s", path);
    return path;
}

/* -- Tokenizers ---- */

static void round_trip(const tpl_tokenizer *t, const char *text, size_t len, unsigned flags)
{
    static int32_t ids[65536];
    tpl_err err = { 0 };
    tpl_detok *d;
    tpl_str shown;
    size_t n = 0;
    tpl_status st = tpl_tokenizer_encode(t, text, len, flags, ids, sizeof ids / sizeof *ids, &n, &err);
    if (st) { /* a hostile regular expression may run out of its budget */
        tpl_check_refusal(&err);
        return;
    }
    if (tpl_detok_new(&d, t, true, 0, &err)) tpl_broken("detok: %s", err.msg);
    for (size_t i = 0; i < n && i < sizeof ids / sizeof *ids; i++) {
        if (ids[i] < 0 || ids[i] >= tpl_tokenizer_n_vocab(t)) tpl_broken("id %d of %d", ids[i], tpl_tokenizer_n_vocab(t));
        if (tpl_detok_push(d, ids[i], &shown, &err)) tpl_broken("push: %s", err.msg);
        for (const char *s = shown.s, *end = s + shown.len; s < end; s += tpl_utf8_len(s, end))
            if (!tpl_utf8_len(s, end)) tpl_broken("decoded text is not UTF-8");
    }
    if (tpl_detok_flush(d, &shown, &err)) tpl_broken("flush: %s", err.msg);
    tpl_detok_free(d);
}

/* Characters that normalizers and their tables know: Latin, letter-like, Kana and Hangul, compatibility forms. */
static tpl_str many_characters(void)
{
    static const uint32_t ranges[][2] = { { 0x20, 0x17F }, { 0x300, 0x30F }, { 0x2070, 0x20A0 }, { 0x2100, 0x2170 }, { 0x3030, 0x30FF },
                                          { 0x3300, 0x3340 }, { 0xAC00, 0xAC10 }, { 0xFB00, 0xFB06 }, { 0xFF00, 0xFF70 }, { 0x1F600, 0x1F608 } };
    static char text[8192];
    static size_t n;
    if (n) return (tpl_str){ text, n };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        for (uint32_t c = ranges[i][0]; c <= ranges[i][1] && n < sizeof text - 8; c++) n += (size_t)tpl_utf8_put(text + n, c);
    return (tpl_str){ text, n };
}

void tpl_use_tokenizer(const struct tpl_tokenizer *t)
{
    static const char text[] = "Hello  world, it's 12345 \xE4\xB8\xAD\xE6\x96\x87 caf\xC3\xA9\n\n<s> <|end|> \xFF\xC0 a\xCC\x81 xxxxxxxxxxxxxxxxxxxxxxxx";
    round_trip(t, text, sizeof text - 1, TPL_ENCODE_SPECIAL | TPL_ENCODE_BOS);
    round_trip(t, text, sizeof text - 1, 0);
    round_trip(t, "", 0, TPL_ENCODE_BOS);
    tpl_str many = many_characters();
    round_trip(t, many.s, many.len, 0);
    for (int32_t id = 0; id < tpl_tokenizer_n_vocab(t) && id < 600; id++) {
        tpl_str s = tpl_tokenizer_token(t, id);
        if (s.s && tpl_tokenizer_find(t, s.s, s.len) != id) tpl_broken("token %d is not found by its spelling", id);
        (void)tpl_tokenizer_is_eog(t, id);
    }
}
