/* SPDX-License-Identifier: Apache-2.0
 *
 *   sweep [N]          damage every seed file in turn, N files in all (20,000 unless told), and open each in this process
 *   sweep FILE NUMBER  open one of them again
 *
 * The seeds are spec/fuzz/seeds/KIND/; what the fuzz programs have found, spec/fuzz/corpus/KIND/, is opened as it is, too. Each file must
 * be accepted or refused in one clear line (tpl_check_refusal), within MOST_SECONDS of processor time and MOST_BYTES of heap above its
 * size, and leave no memory behind. Writes TAP: one test for each kind of file. Meant for a build with the address and undefined-behaviour sanitizers; without the first, memory is not measured.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "damage.h"
#include "heap.h"
#include "target.h"

enum { MOST_SEEDS = 32 };
#define MOST_SECONDS 2.0
#define MOST_BYTES ((size_t)64 << 20)
#define MOST_KEPT ((size_t)1 << 20) /* after all files of a kind */
#define SEEDS TPL_SOURCE_DIR "/spec/fuzz/seeds/"

typedef struct seed {
    char name[64];
    tpl_bytes bytes;
    int is_own; /* from spec/fuzz/seeds: opens undamaged */
} seed;

typedef struct kind {
    const char *name;
    tpl_target *target;
    int is_text;
    unsigned share; /* of 20 files, so many are of this kind */
    seed seeds[MOST_SEEDS];
    size_t n_seeds, n_corpus;
} kind;

static kind kinds[] = { { "gguf", tpl_target_gguf, 0, 5 },
                        { "safetensors", tpl_target_safetensors, 0, 3 },
                        { "json", tpl_target_json, 1, 3 },
                        { "tokenizer", tpl_target_tokenizer, 1, 5 },
                        { "template", tpl_target_template, 1, 2 },
                        { "yaml", tpl_target_yaml, 1, 1 },
                        { "topology", tpl_target_topology, 1, 1 } };
enum { N_KINDS = sizeof kinds / sizeof *kinds, SHARES = 20 };

/* -- Seeds ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const seed *)a)->name, ((const seed *)b)->name);
}

/* The files of a folder whose names end in `end`. */
static void load_folder(kind *k, const char *folder, const char *end)
{
    char path[512];
    tpl_err err = { 0 };
    DIR *dir = opendir(folder);
    if (!dir) tpl_broken("no seeds: %s", folder);
    for (struct dirent *d = readdir(dir); d; d = readdir(dir)) {
        size_t len = strlen(d->d_name);
        if (d->d_name[0] == '.' || len < strlen(end) || strcmp(d->d_name + len - strlen(end), end)) continue;
        if (k->n_seeds == MOST_SEEDS) tpl_broken("more than %d seeds in %s", MOST_SEEDS, folder);
        seed *s = &k->seeds[k->n_seeds++];
        snprintf(s->name, sizeof s->name, "%.60s", d->d_name);
        s->is_own = !*end;
        snprintf(path, sizeof path, "%s/%.200s", folder, d->d_name);
        if (tpl_file_load(path, 1 << 20, (char **)&s->bytes.s, &s->bytes.n, &err)) tpl_broken("%s", err.msg);
    }
    closedir(dir);
}

static void load_seeds(kind *k)
{
    char folder[256];
    snprintf(folder, sizeof folder, "%s%.20s", SEEDS, k->name);
    load_folder(k, folder, "");
    if (!k->is_text) { /* files of another maker, Python */
        snprintf(folder, sizeof folder, ".%.20s", k->name);
        load_folder(k, TPL_SOURCE_DIR "/spec/fixtures/checkpoint", folder);
    }
    qsort(k->seeds, k->n_seeds, sizeof *k->seeds, by_name);
}

/* -- One file ---- */

typedef struct result {
    tpl_status status;
    double seconds;
    size_t bytes;
} result;

static double processor_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static char at_work[160]; /* names the file in hand, for when the process dies */

static result open_bytes(const kind *k, tpl_bytes b, tpl_err *err)
{
    double from = processor_time();
    tpl_heap_restart();
    result r = { .status = k->target(b.s, b.n, err) };
    r.seconds = processor_time() - from;
    r.bytes = tpl_heap_peak();
    if (r.seconds > MOST_SECONDS) tpl_broken("%.1f seconds", r.seconds);
    if (r.bytes > b.n + MOST_BYTES) tpl_broken("%zu bytes of memory for a file of %zu", r.bytes, b.n);
    return r;
}

static result open_damaged(const kind *k, const seed *s, uint64_t number, tpl_err *err)
{
    const seed *other = &k->seeds[number / 7 % k->n_seeds];
    const char *what;
    uint8_t *room = malloc(tpl_damage_room(s->bytes.n));
    size_t n = tpl_damage(room, s->bytes, other->bytes, number, k->is_text, &what);
    uint8_t *exact = malloc(n ? n : 1); /* so that the sanitizer sees a read past the end */
    memcpy(exact, room, n);
    free(room);
    snprintf(at_work, sizeof at_work, "%.20s/%.60s %llu (%.20s, %zu bytes)", k->name, s->name, (unsigned long long)number, what, n);
    result r = open_bytes(k, (tpl_bytes){ exact, n }, err);
    free(exact);
    return r;
}

/* abort and the sanitizers end the process: say first which file it was. */
void __asan_on_error(void);
void __asan_on_error(void)
{
    fprintf(stderr, "\nat %s\n", at_work);
}

static void on_abort(int signal)
{
    char line[200];
    int n = snprintf(line, sizeof line, "\nat %s\n", at_work);
    if (write(2, line, (size_t)n) < 0) _exit(125);
    _exit(124 + signal % 2);
}

/* -- All files ---- */

static void sweep(kind *k, size_t n, int test)
{
    size_t n_ok = 0, most = 0;
    double slowest = 0;
    tpl_lua_collect();
    size_t before = tpl_heap_in_use();
    char slow_name[160] = "", large_name[160] = "";
    for (size_t i = 0; i < n; i++) {
        tpl_err err = { 0 };
        result r = open_damaged(k, &k->seeds[i % k->n_seeds], i / k->n_seeds, &err);
        n_ok += !r.status;
        if (r.seconds > slowest) slowest = r.seconds, strcpy(slow_name, at_work);
        if (r.bytes > most) most = r.bytes, strcpy(large_name, at_work);
    }
    tpl_lua_collect();
    if (tpl_heap_in_use() > before + MOST_KEPT) tpl_broken("%zu bytes more in use after %zu files", tpl_heap_in_use() - before, n);
    printf("ok %d - %s: %zu damaged files, %zu refused in one line, %zu opened; corpus of %zu\n", test, k->name, n, n - n_ok, n_ok, k->n_corpus);
    printf("# slowest %.3f s: %s\n", slowest, slow_name);
    if (tpl_heap_is_counted()) printf("# most memory %.1f MiB: %s\n", (double)most / 1048576, large_name);
    fflush(stdout);
}

static int again(const char *name, uint64_t number)
{
    for (kind *k = kinds; k < kinds + N_KINDS; k++)
        for (const seed *s = k->seeds; s < k->seeds + k->n_seeds; s++) {
            size_t n = strlen(k->name);
            if (strncmp(name, k->name, n) || name[n] != '/' || strcmp(name + n + 1, s->name)) continue;
            tpl_err err = { 0 };
            result r = open_damaged(k, s, number, &err);
            printf("%s: %s: %s: %s (%s); %.3f s, %zu bytes\n", at_work, tpl_status_name(r.status), err.where, err.msg, err.hint, r.seconds, r.bytes);
            return 0;
        }
    tpl_broken("no seed %s", name);
}

/* An undamaged seed must open: else its damaged forms are all refused for one reason. */
static void check_seeds(const kind *k)
{
    for (const seed *s = k->seeds; s < k->seeds + k->n_seeds; s++) {
        tpl_err err = { 0 };
        snprintf(at_work, sizeof at_work, "%.20s/%.60s, undamaged", k->name, s->name);
        if (s->is_own && k->target(s->bytes.s, s->bytes.n, &err)) tpl_broken("the seed is refused: %s: %s", err.where, err.msg);
    }
}

/* Opens every input that is committed of a fuzz program's corpus. */
static void open_corpus(kind *k)
{
    char path[512];
    tpl_err err;
    snprintf(path, sizeof path, TPL_SOURCE_DIR "/spec/fuzz/corpus/%.20s", k->name);
    DIR *dir = opendir(path);
    if (!dir) tpl_broken("no corpus: %s", path);
    for (struct dirent *d = readdir(dir); d; d = readdir(dir)) {
        tpl_bytes b;
        err = (tpl_err){ 0 };
        if (d->d_name[0] == '.') continue;
        snprintf(path, sizeof path, TPL_SOURCE_DIR "/spec/fuzz/corpus/%.20s/%.80s", k->name, d->d_name);
        if (tpl_file_load(path, 1 << 20, (char **)&b.s, &b.n, &err)) tpl_broken("%s", err.msg);
        snprintf(at_work, sizeof at_work, "%.150s", path);
        open_bytes(k, b, &err);
        free(b.s);
        k->n_corpus++;
    }
    closedir(dir);
}

int main(int argc, char **argv)
{
    size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 20000;
    signal(SIGABRT, on_abort);
    tpl_heap_is_counted();
    for (int i = 0; i < N_KINDS; i++) load_seeds(&kinds[i]);
    if (argc > 2) return again(argv[1], strtoull(argv[2], NULL, 10));
    for (int i = 0; i < N_KINDS; i++) check_seeds(&kinds[i]);
    for (int i = 0; i < N_KINDS; i++) open_corpus(&kinds[i]);
    for (int i = 0; i < N_KINDS; i++) sweep(&kinds[i], n * kinds[i].share / SHARES, i + 1);
    printf("1..%d\n", N_KINDS);
    return 0;
}
