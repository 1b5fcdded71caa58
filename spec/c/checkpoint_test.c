/* SPDX-License-Identifier: Apache-2.0
 *
 * The checkpoint reader under a bad system: torn and failing reads, no memory at each allocation, concurrent
 * readers, and the limits of reliability.md C-FILE (2 s, input + 64 MiB). Expected contents come from the
 * fixtures, which Python's struct wrote (spec/fixtures/ checkpoint). System calls and malloc are replaced by
 * this executable's own symbols; with a sanitizer, malloc is left alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/sha256.h"
#include "model/checkpoint.h"
#include "model/gguf_types.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif
#ifdef TPL_EMULATED
#define EMULATED 1
#else
#define EMULATED 0
#endif

#ifndef TPL_SOURCE_DIR
#define TPL_SOURCE_DIR "."
#endif
#define FIXTURES TPL_SOURCE_DIR "/spec/fixtures/checkpoint/"
static const char *const fixtures[] = { FIXTURES "v3.gguf",         FIXTURES "v2-align64.gguf",
                                        FIXTURES "vocab-only.gguf", FIXTURES "split",
                                        FIXTURES "sharded",         FIXTURES "single.safetensors" };
enum { N_FIXTURES = sizeof fixtures / sizeof *fixtures };

/* -- A bad system ---- */

static enum { READS_GOOD, READS_TORN, READS_FAIL } reads;
static int fail_read; /* the how-manieth read fails, from 1 */
static int n_reads;

ssize_t pread(int fd, void *buf, size_t n, off_t at)
{
    n_reads++;
    if (reads == READS_TORN && n_reads % 2) {
        errno = EINTR;
        return -1;
    }
    if (reads == READS_TORN && n > 7) n = 1 + (size_t)n_reads % 7;
    if (reads == READS_FAIL && n_reads == fail_read) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, fd, buf, n, at);
}

static char opened[4096]; /* every path given to open and openat, one a line */

static int open_noted(int dirfd, const char *path, int flags)
{
    size_t at = strlen(opened);
    snprintf(opened + at, sizeof opened - at, "%s\n", path);
    return (int)syscall(SYS_openat, dirfd, path, flags, 0);
}

int openat(int dirfd, const char *path, int flags, ...)
{
    return open_noted(dirfd, path, flags);
}

int open(const char *path, int flags, ...)
{
    return open_noted(AT_FDCWD, path, flags);
}

#if !SANITIZED
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);

static __thread long until_failure = -1; /* -1: never */
static __thread long n_live;

static int may_allocate(void)
{
    if (until_failure < 0 || until_failure-- != 0) return 1;
    errno = ENOMEM;
    return 0;
}

void *malloc(size_t n)
{
    void *p = may_allocate() ? __libc_malloc(n) : NULL;
    n_live += p != NULL;
    return p;
}

void *calloc(size_t n, size_t size)
{
    void *p = may_allocate() ? __libc_calloc(n, size) : NULL;
    n_live += p != NULL;
    return p;
}

void *realloc(void *old, size_t n)
{
    void *p = may_allocate() ? __libc_realloc(old, n) : NULL;
    n_live += !old && p;
    return p;
}

void free(void *p)
{
    n_live -= p != NULL;
    __libc_free(p);
}
#endif

/* -- What is in a checkpoint, as one number ---- */

static void digest(const char *path, char hex[65])
{
    static unsigned char data[4096];
    tpl_checkpoint *cp;
    tpl_err err = { 0 };
    tpl_sha256 s;
    uint8_t out[32];
    assert_int_equal(tpl_checkpoint_open(&cp, path, &err), TPL_OK);
    tpl_sha256_init(&s);
    for (uint32_t i = 0; i < tpl_checkpoint_n_tensors(cp); i++) {
        const tpl_ckpt_tensor *t = tpl_checkpoint_tensor(cp, i);
        assert_ptr_equal(t, tpl_checkpoint_find(cp, t->name));
        assert_true(t->bytes <= sizeof data);
        assert_int_equal(tpl_checkpoint_read_tensor(cp, t, 0, t->bytes, data, &err), TPL_OK);
        tpl_sha256_update(&s, t->name, t->name_len);
        tpl_sha256_update(&s, t->dims, t->n_dims * sizeof *t->dims);
        tpl_sha256_update(&s, data, t->bytes);
    }
    for (uint32_t i = 0; i < tpl_checkpoint_n_kvs(cp); i++) {
        const tpl_kv *kv = tpl_checkpoint_kv_at(cp, i);
        assert_ptr_equal(kv, tpl_checkpoint_kv(cp, kv->key));
        tpl_sha256_update(&s, kv->data, kv->bytes);
    }
    tpl_sha256_final(&s, out);
    tpl_checkpoint_close(cp);
    for (int i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", out[i]);
}

/* -- Reads ---- */

static void loads_the_same_with_interrupted_and_short_reads(void **state)
{
    for (int i = 0; i < N_FIXTURES; i++) {
        char good[65], torn[65];
        digest(fixtures[i], good);
        reads = READS_TORN;
        digest(fixtures[i], torn);
        reads = READS_GOOD;
        assert_string_equal(good, torn);
    }
}

static void refuses_when_any_read_fails(void **state)
{
    for (int i = 0; i < N_FIXTURES; i++) {
        tpl_status st = TPL_ERR_IO;
        for (fail_read = 1; st; fail_read++) {
            tpl_checkpoint *cp;
            tpl_err err = { 0 };
            n_reads = 0;
            reads = READS_FAIL;
            st = tpl_checkpoint_open(&cp, fixtures[i], &err);
            reads = READS_GOOD;
            if (st) {
                assert_int_equal(st, TPL_ERR_IO);
                assert_int_equal(err.sys, EIO);
                assert_non_null(strstr(err.where, ":"));
                assert_null(cp);
            }
            tpl_checkpoint_close(cp);
            assert_true(fail_read < 50);
        }
        assert_true(fail_read > 2);
    }
}

static void counts_the_bytes_it_reads(void **state)
{
    tpl_checkpoint *cp;
    tpl_err err = { 0 };
    char buf[16];
    assert_int_equal(tpl_checkpoint_open(&cp, FIXTURES "v3.gguf", &err), TPL_OK);
    assert_int_equal(tpl_checkpoint_bytes_read(cp), 0);
    assert_int_equal(tpl_checkpoint_read(cp, 0, 3, 16, buf, &err), TPL_OK);
    assert_int_equal(tpl_checkpoint_bytes_read(cp), 16);
    assert_int_equal(tpl_checkpoint_read(cp, 0, 1370, 16, buf, &err), TPL_ERR_FORMAT);
    err.code = TPL_OK;
    assert_int_equal(tpl_checkpoint_read(cp, 0, UINT64_MAX, 16, buf, &err), TPL_ERR_FORMAT);
    err.code = TPL_OK;
    assert_int_equal(tpl_checkpoint_read(cp, 1, 0, 1, buf, &err), TPL_ERR_ARG);
    err.code = TPL_OK;
    const tpl_ckpt_tensor *t = tpl_checkpoint_find(cp, "odd.weight");
    assert_int_equal(tpl_checkpoint_read_tensor(cp, t, 10, 9, buf, &err), TPL_ERR_ARG);
    tpl_checkpoint_close(cp);
}

static void *read_all(void *arg)
{
    const tpl_checkpoint *cp = arg;
    char buf[256];
    for (int n = 0; n < 200; n++)
        for (uint32_t i = 0; i < tpl_checkpoint_n_tensors(cp); i++) {
            const tpl_ckpt_tensor *t = tpl_checkpoint_find(cp, tpl_checkpoint_tensor(cp, i)->name);
            if (tpl_checkpoint_read_tensor(cp, t, 0, t->bytes, buf, NULL)) return arg;
            if (!strcmp(t->name, "token_embd.weight"))
                for (int k = 0; k < 204; k++)
                    if ((unsigned char)buf[k] != k) return arg;
        }
    return NULL;
}

static void lets_threads_read_together(void **state)
{
    pthread_t threads[4];
    tpl_checkpoint *cp;
    tpl_err err = { 0 };
    assert_int_equal(tpl_checkpoint_open(&cp, FIXTURES "split", &err), TPL_OK);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, read_all, cp);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(tpl_checkpoint_bytes_read(cp), 4 * 200 * (204 + 144 + 18 + 20 + 6 + 4));
    tpl_checkpoint_close(cp);
}

/* -- Memory ---- */

static void leaks_nothing_when_any_allocation_fails(void **state)
{
#if SANITIZED
    skip(); /* malloc belongs to the sanitizer */
#else
    for (int i = 0; i < N_FIXTURES; i++) {
        tpl_status st = TPL_ERR_MEM;
        for (long k = 0; st; k++) {
            tpl_checkpoint *cp;
            tpl_err err = { 0 };
            long before = n_live;
            until_failure = k;
            st = tpl_checkpoint_open(&cp, fixtures[i], &err);
            until_failure = -1;
            /* opendir reports it as a failure of the system, Jansson 2.14 sometimes as a bad token */
            if (st == TPL_ERR_FORMAT)
                assert_non_null(strstr(err.msg, "no valid JSON"));
            else if (st != TPL_ERR_MEM && st)
                assert_int_equal(err.sys, ENOMEM);
            tpl_checkpoint_close(cp);
            assert_int_equal(n_live, before);
            assert_true(k < 1000);
        }
    }
#endif
}

/* Opens path in a child; its peak memory in bytes and its processor time (others may
 * share the cores). The child exits with the status. */
static int measure(const char *path, uint64_t *peak, double *seconds)
{
    struct rusage use;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        tpl_checkpoint *cp;
        tpl_err err = { 0 };
        tpl_status st = tpl_checkpoint_open(&cp, path, &err);
        if (st) fprintf(stderr, "%s: %s\n", err.where, err.msg);
        _exit((int)st);
    }
    assert_int_equal(wait4(pid, &status, 0, &use), pid);
    *peak = (uint64_t)use.ru_maxrss * 1024;
    *seconds = (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
               (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void check_limits(const char *path, int expected)
{
    struct stat st;
    uint64_t peak;
    double seconds;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(measure(path, &peak, &seconds), expected);
    print_message("           %lld bytes of input: %.2f s, peak %.1f MiB\n", (long long)st.st_size, seconds,
                  (double)peak / 1048576);
    if (!SANITIZED && !EMULATED) {
        assert_true(seconds < 2);
        assert_true(peak <= (uint64_t)st.st_size + (64 << 20));
    }
    unlink(path);
}

static FILE *create(char *path)
{
    strcpy(path, "/tmp/tpl-checkpoint-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    return fdopen(fd, "wb");
}

/* n one-byte tensors, listed from the last byte to the first when reversed, so that ranges must be sorted; n
 * empty ones if !bytes. */
static void write_safetensors(FILE *f, unsigned n, int bytes, int reversed)
{
    long from;
    uint64_t len = 0;
    fwrite(&len, 8, 1, f);
    fputc('{', f);
    for (unsigned i = 0; i < n; i++) {
        unsigned at = bytes ? (reversed ? n - 1 - i : i) : 0;
        fprintf(f, "%s\"t%u\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[%u,%u]}", i ? "," : "", i,
                bytes, at, at + (unsigned)bytes);
    }
    fputc('}', f);
    from = ftell(f);
    for (unsigned i = 0; i < n && bytes; i++) fputc(0, f);
    len = (uint64_t)from - 8;
    rewind(f);
    fwrite(&len, 8, 1, f);
    fclose(f);
}

static void a11_opens_a_million_tensors_within_the_limits(void **state)
{
    char path[64];
    for (int kind = 0; kind < 3; kind++) {
        write_safetensors(create(path), 1000000, kind > 0, kind == 2);
        check_limits(path, TPL_OK);
    }
}

static void put(FILE *f, uint64_t v, size_t n)
{
    fwrite(&v, n, 1, f);
}

static void a11_opens_a_million_gguf_tensors_within_the_limits(void **state)
{
    char path[64], name[16];
    FILE *f = create(path);
    fwrite("GGUF", 4, 1, f);
    put(f, 3, 4);
    put(f, 1000000, 8);
    put(f, 0, 8);
    for (unsigned i = 0; i < 1000000; i++) {
        snprintf(name, sizeof name, "%u", i);
        put(f, strlen(name), 8);
        fwrite(name, strlen(name), 1, f);
        put(f, 1, 4);
        put(f, 32, 8);
        put(f, 24, 4); /* i8 */
        put(f, i * 32ULL, 8);
    }
    while (ftell(f) % 32) fputc(0, f);
    assert_int_equal(ftruncate(fileno(f), ftell(f) + 32000000L), 0);
    fclose(f);
    check_limits(path, TPL_OK);
}

static void a4_refuses_claims_without_taking_memory(void **state)
{
    static const uint64_t claims[][2] = { { 0, 1ULL << 62 }, { 1ULL << 62, 0 }, { UINT64_MAX, UINT64_MAX } };
    char path[64];
    for (int i = 0; i < 3; i++) {
        FILE *f = create(path);
        fwrite("GGUF", 4, 1, f);
        put(f, 3, 4);
        put(f, claims[i][0], 8);
        put(f, claims[i][1], 8);
        fclose(f);
        check_limits(path, TPL_ERR_FORMAT);
    }
}

/* -- Rules ---- */

static void a12_never_opens_code_or_pickles(void **state)
{
    static const char *const bait[] = { "modeling.py", "policy.lua", "pytorch_model.bin", "adapter.pt",
                                        "consolidated.safetensors" };
    char dir[] = "/tmp/tpl-checkpoint-XXXXXX", path[128];
    tpl_checkpoint *cp;
    tpl_err err = { 0 };
    assert_non_null(mkdtemp(dir));
    for (unsigned i = 0; i < sizeof bait / sizeof *bait; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, bait[i]);
        fclose(fopen(path, "wb"));
    }
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    write_safetensors(fopen(path, "wb"), 3, 1, 0);
    opened[0] = 0;
    assert_int_equal(tpl_checkpoint_open(&cp, dir, &err), TPL_OK);
    assert_non_null(strstr(opened, "model.safetensors\n"));
    for (unsigned i = 0; i < sizeof bait / sizeof *bait; i++) assert_null(strstr(opened, bait[i]));
    assert_non_null(strstr(tpl_checkpoint_warning(cp), "policy.lua"));
    tpl_checkpoint_close(cp);
    for (unsigned i = 0; i < sizeof bait / sizeof *bait; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, bait[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    rmdir(dir);
}

static void stores_types_as_they_are_computed_with(void **state)
{
    for (int i = 0; i < TPL_N_DTYPES; i++) {
        const tpl_dtype_info *d = &tpl_dtypes[i];
        int k = d->gguf < 0 ? -1 : tpl_stored_type_from_gguf((uint32_t)d->gguf);
        if (k < 0) continue;
        assert_string_equal(tpl_stored_types[k].name, d->name);
        assert_int_equal(tpl_stored_types[k].n_elem, d->n_elem);
        assert_int_equal(tpl_stored_types[k].n_bytes, d->n_bytes);
    }
}

static void converts_values_only_where_they_fit(void **state)
{
    tpl_checkpoint *cp;
    tpl_err err = { 0 };
    uint64_t u;
    int64_t i;
    double x;
    bool b;
    tpl_str s, list[4];
    assert_int_equal(tpl_checkpoint_open(&cp, FIXTURES "v3.gguf", &err), TPL_OK);
    assert_true(tpl_kv_i64(tpl_checkpoint_kv(cp, "t.i8"), 0, &i) && i == -100);
    assert_false(tpl_kv_u64(tpl_checkpoint_kv(cp, "t.i8"), 0, &u));
    assert_true(tpl_kv_u64(tpl_checkpoint_kv(cp, "t.huge"), 0, &u) && u == UINT64_MAX);
    assert_false(tpl_kv_i64(tpl_checkpoint_kv(cp, "t.huge"), 0, &i));
    assert_true(tpl_kv_f64(tpl_checkpoint_kv(cp, "t.huge"), 0, &x) && x == 18446744073709551616.0);
    assert_true(tpl_kv_f64(tpl_checkpoint_kv(cp, "t.f32"), 0, &x) && x == 0.5);
    assert_false(tpl_kv_i64(tpl_checkpoint_kv(cp, "t.f32"), 0, &i));
    assert_true(tpl_kv_bool(tpl_checkpoint_kv(cp, "t.bool"), 0, &b) && b);
    assert_false(tpl_kv_bool(tpl_checkpoint_kv(cp, "t.u8"), 0, &b));
    assert_true(tpl_kv_i64(tpl_checkpoint_kv(cp, "t.ints"), 1, &i) && i == -2);
    assert_false(tpl_kv_i64(tpl_checkpoint_kv(cp, "t.ints"), 3, &i));
    assert_true(tpl_kv_str(tpl_checkpoint_kv(cp, "t.empty"), &s) && s.len == 0);
    assert_false(tpl_kv_str(tpl_checkpoint_kv(cp, "t.strs"), &s));
    assert_true(tpl_kv_strings(tpl_checkpoint_kv(cp, "t.strs"), list) && list[3].len == 3 &&
                !memcmp(list[3].s, "b\0c", 3));
    assert_false(tpl_kv_strings(tpl_checkpoint_kv(cp, "t.ints"), list));
    tpl_checkpoint_close(cp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_the_same_with_interrupted_and_short_reads),
        cmocka_unit_test(refuses_when_any_read_fails),
        cmocka_unit_test(counts_the_bytes_it_reads),
        cmocka_unit_test(lets_threads_read_together),
        cmocka_unit_test(leaks_nothing_when_any_allocation_fails),
        cmocka_unit_test(a4_refuses_claims_without_taking_memory),
        cmocka_unit_test(a11_opens_a_million_tensors_within_the_limits),
        cmocka_unit_test(a11_opens_a_million_gguf_tensors_within_the_limits),
        cmocka_unit_test(a12_never_opens_code_or_pickles),
        cmocka_unit_test(stores_types_as_they_are_computed_with),
        cmocka_unit_test(converts_values_only_where_they_fit),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
