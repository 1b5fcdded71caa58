/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers from C: sizes and limits of calls, lossy UTF-8 at every cut, the merge queue and merging
 * against naive versions written here, long runs on a small stack, several threads on one tokenizer.
 * UTF-8 expectations: Unicode standard 16.0, tables 3-8 to 3-11, and the WHATWG Encoding standard; ids:
 * spec/fixtures/tokenizer (Hugging Face tokenizers).
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/file.h"
#include "token/bpe.h"
#include "token/buf.h"
#include "token/merge_queue.h"
#include "token/normalizer.h"
#include "token/scan.h"
#include "token/tokenizer.h"
#include "token/unicode.h"
#include "token/unigram.h"
#include "token/utf8.h"

#define FIXTURES TPL_SOURCE_DIR "/spec/fixtures/tokenizer/"
#define FFFD "\xEF\xBF\xBD"

static tpl_tokenizer *open_fixture(const char *path)
{
    char *bytes;
    size_t len;
    tpl_err err = { 0 };
    tpl_tokenizer *t;
    assert_int_equal(tpl_file_load(path, 1 << 20, &bytes, &len, &err), TPL_OK);
    assert_int_equal(tpl_tokenizer_from_json(&t, bytes, len, path, &err), TPL_OK);
    free(bytes);
    return t;
}

/* A generator that gives the same numbers everywhere (Numerical Recipes' constants). */
static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* -- UTF-8 ------------------------------------------------------------------------------------ */

static const struct {
    const char *in, *out;
} lossy[] = {
    { "abc", "abc" },
    { "\xC3\xA9", "\xC3\xA9" },
    { "\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80" },
    { "\xC0\xAF", FFFD FFFD },                                             /* overlong, table 3-8 */
    { "\xE0\x80\xBF\xF0\x81\x82\x41", FFFD FFFD FFFD FFFD FFFD FFFD "A" }, /* table 3-8 */
    { "\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41",
      FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A" }, /* surrogates, table 3-9 */
    { "\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42",
      FFFD FFFD FFFD FFFD FFFD "A" FFFD FFFD "B" },                      /* too large, table 3-10 */
    { "\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", FFFD FFFD FFFD FFFD "A" }, /* truncated, table 3-11 */
    { "\xE2\x82", FFFD },
    { "x\xF0\x9F\x98", "x" FFFD },
    { "\x80\xBF", FFFD FFFD },
    { "\xF8\x88\x80\x80\x80", FFFD FFFD FFFD FFFD FFFD },
};

static void lossy_text_is_the_same_at_every_cut(void **state)
{
    for (size_t i = 0; i < sizeof lossy / sizeof *lossy; i++) {
        size_t n = strlen(lossy[i].in);
        for (unsigned cuts = 0; cuts < 1u << (n - 1); cuts++) { /* every way to cut it */
            tpl_utf8_stream st = { 0 };
            tpl_buf out = { 0 };
            size_t from = 0;
            for (size_t k = 1; k <= n; k++) {
                if (k < n && !(cuts >> (k - 1) & 1)) continue;
                assert_true(tpl_utf8_push(&st, lossy[i].in + from, k - from, &out));
                assert_int_equal(tpl_utf8_valid(out.s, out.len), out.len);
                from = k;
            }
            assert_true(tpl_utf8_flush(&st, &out));
            assert_int_equal(out.len, strlen(lossy[i].out));
            assert_memory_equal(out.s, lossy[i].out, out.len);
            tpl_buf_free(&out);
        }
    }
}

static void every_scalar_value_passes_and_comes_back(void **state)
{
    char s[4];
    for (uint32_t c = 0; c < 0x110000; c++) {
        int n = tpl_utf8_put(s, c);
        bool surrogate = c >= 0xD800 && c < 0xE000;
        size_t pos = 0;
        assert_int_equal(tpl_utf8_valid(s, (size_t)n), surrogate ? 0 : n);
        if (!surrogate) assert_int_equal(tpl_utf8_next(s, &pos), c);
    }
}

/* -- Calls ------------------------------------------------------------------------------------ */

static void encode_tells_the_size_it_needs_and_keeps_inside_the_buffer(void **state)
{
    tpl_tokenizer *t = open_fixture(FIXTURES "gpt2.json");
    tpl_err err = { 0 };
    const char *text = "Hello world, 1234!";
    int32_t all[64], some[64];
    size_t n, m;
    assert_int_equal(tpl_tokenizer_encode(t, text, strlen(text), 0, all, 64, &n, &err), TPL_OK);
    assert_in_range(n, 2, 64);
    for (size_t cap = 0; cap <= n; cap++) {
        memset(some, 0x5A, sizeof some);
        assert_int_equal(tpl_tokenizer_encode(t, text, strlen(text), 0, some, cap, &m, &err), TPL_OK);
        assert_int_equal(m, n);
        if (cap) assert_memory_equal(some, all, cap * sizeof *all);
        assert_int_equal(some[cap], 0x5A5A5A5A);
    }
    assert_int_equal(tpl_tokenizer_encode(t, text, strlen(text), 0, NULL, 0, &m, &err), TPL_OK);
    assert_int_equal(m, n);
    assert_int_equal(tpl_tokenizer_encode(t, NULL, 0, 0, NULL, 0, &m, &err), TPL_OK);
    assert_int_equal(m, 0);
    tpl_tokenizer_free(t);
}

static void a_text_beyond_the_limit_is_refused(void **state)
{
    tpl_tokenizer *t = open_fixture(FIXTURES "gpt2.json");
    tpl_err err = { 0 };
    size_t n = 7;
    /* the length alone decides: the bytes are not looked at */
    assert_int_equal(tpl_tokenizer_encode(t, "x", TPL_TOKENIZE_MAX_BYTES + 1, 0, NULL, 0, &n, &err),
                     TPL_ERR_ARG);
    assert_int_equal(n, 0);
    assert_non_null(strstr(err.msg, "at most"));
    tpl_tokenizer_free(t);
}

static void ids_without_a_token_are_nothing(void **state)
{
    static const int32_t bad[] = { -1, INT32_MIN, INT32_MAX, 1 << 22 };
    tpl_tokenizer *t = open_fixture(FIXTURES "gpt2.json");
    tpl_err err = { 0 };
    tpl_detok *d;
    tpl_str s;
    assert_int_equal(tpl_detok_new(&d, t, true, 0, &err), TPL_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tpl_detok_push(d, bad[i], &s, &err), TPL_OK);
        assert_int_equal(s.len, 0);
        assert_null(tpl_tokenizer_token(t, bad[i]).s);
        assert_false(tpl_tokenizer_is_eog(t, bad[i]));
        assert_int_equal(tpl_tokenizer_add_eog(t, bad[i], NULL), TPL_ERR_FORMAT);
    }
    tpl_detok_free(d);
    tpl_detok_free(NULL);
    tpl_tokenizer_free(t);
    tpl_tokenizer_free(NULL);
}

static void decoding_gives_every_byte_back(void **state)
{
    tpl_tokenizer *t = open_fixture(FIXTURES "regex.json");
    tpl_err err = { 0 };
    char text[256];
    int32_t ids[1024];
    size_t n;
    tpl_detok *d;
    tpl_str s;
    tpl_buf out = { 0 };
    for (int i = 0; i < 128; i++) text[i] = (char)i;
    text[0] = ' '; /* the fixture puts a space in front of pieces that have none: whole text comes back
                      with spaces added only */
    assert_int_equal(tpl_tokenizer_encode(t, text, 128, 0, ids, 1024, &n, &err), TPL_OK);
    assert_int_equal(tpl_detok_new(&d, t, false, 0, &err), TPL_OK);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(tpl_detok_push(d, ids[i], &s, &err), TPL_OK);
        assert_true(tpl_buf_add(&out, s.s, s.len));
    }
    size_t k = 0;
    for (size_t i = 0; i < out.len && k < 128; i++) k += out.s[i] == text[k];
    assert_int_equal(k, 128);
    tpl_buf_free(&out);
    tpl_detok_free(d);
    tpl_tokenizer_free(t);
}

/* -- The merge queue -------------------------------------------------------------------------- */

static void queue_pops_in_order(void **state)
{
    enum { N = 40000, RANKS = 3000 };
    static uint64_t
        left[3 * N]; /* what a correct queue still holds: a plain list, the smallest is searched */
    uint32_t seed = 1;
    tpl_merge_queue q = { 0 };
    static const size_t sizes[] = { 10, 1000, N };
    for (size_t round = 0; round < 3; round++) {
        size_t n = sizes[round], n_left = 0;
        assert_true(tpl_merge_queue_start(&q, n, RANKS));
        bool few = n < N; /* the naive search is quadratic: with many, check the order only */
        for (size_t i = 0; i < n; i++) {
            uint32_t rank = next_random(&seed) % RANKS, pos = (uint32_t)i;
            tpl_merge_queue_push(&q, rank, pos);
            left[n_left++] = (uint64_t)rank << 32 | pos;
        }
        size_t n_popped = 0, n_pushed = n;
        uint64_t x;
        while ((x = tpl_merge_queue_pop(&q)) != TPL_MERGE_NONE) {
            size_t best = 0;
            for (size_t i = 0; few && i < n_left; i++)
                if (left[i] < left[best]) best = i;
            if (few) {
                assert_int_equal(x, left[best]);
                left[best] = left[--n_left];
            }
            n_popped++;
            if (n_pushed < 2 * n) { /* new ones on both sides of the present rank */
                uint32_t rank = next_random(&seed) % RANKS, pos = next_random(&seed) % (uint32_t)n;
                tpl_merge_queue_push(&q, rank, pos);
                if (few) left[n_left++] = (uint64_t)rank << 32 | pos;
                n_pushed++;
            }
        }
        assert_int_equal(n_popped, n_pushed);
    }
    tpl_merge_queue_free(&q);
}

/* -- Merging, against the definition ---------------------------------------------------------- */

enum { N_TOKENS = 400, TOKEN_LEN = 12 };

typedef struct toy {
    tpl_vocab vocab;
    tpl_bpe *bpe;
    char names[N_TOKENS][TOKEN_LEN + 1];
    int32_t merged[N_TOKENS][N_TOKENS]; /* -1: none */
    uint32_t rank[N_TOKENS][N_TOKENS];
} toy;

static const char *const letters[] = { "a", "b", "c", "_", "\xe2\x96\x81" };

/* Letters and random merges of random ranks: unlike trained merges, a merge may rank before the one that
 * made its parts. With all five letters the last two stand at the start of a token only, like word marks: nothing ever
 * merges across a seam in front of one. */
static toy *toy_new(uint32_t seed, int32_t n_letters)
{
    toy *y = calloc(1, sizeof *y);
    tpl_err err = { 0 };
    int32_t n = 0;
    assert_int_equal(tpl_vocab_init(&y->vocab, N_TOKENS, N_TOKENS * TOKEN_LEN, "toy", &err), TPL_OK);
    memset(y->merged, 0xFF, sizeof y->merged);
    for (; n < n_letters; n++) strcpy(y->names[n], letters[n]);
    for (int tries = 0; n < N_TOKENS && tries < 100000; tries++) {
        uint32_t a = next_random(&seed) % (uint32_t)n, b = next_random(&seed) % (uint32_t)n;
        char both[2 * TOKEN_LEN + 1];
        snprintf(both, sizeof both, "%s%s", y->names[a], y->names[b]);
        bool taken = strlen(both) > TOKEN_LEN || strpbrk(both + 1, "_\xe2");
        for (int32_t i = 0; i < n && !taken; i++) taken = !strcmp(y->names[i], both);
        if (!taken) strcpy(y->names[n++], both);
    }
    assert_int_equal(n, N_TOKENS);
    for (int32_t i = 0; i < n; i++)
        assert_int_equal(tpl_vocab_add(&y->vocab, i, (tpl_str){ y->names[i], strlen(y->names[i]) },
                                       TPL_TOKEN_MODEL, "toy", &err),
                         TPL_OK);
    tpl_bpe_options o = { .vocab = &y->vocab, .unk_id = -1 };
    assert_int_equal(tpl_bpe_new(&y->bpe, &o, N_TOKENS * 16, "toy", &err), TPL_OK);
    for (int32_t m = n_letters; m < n; m++) /* every cut of every token, at a random rank; ranks may be equal */
        for (size_t cut = 1; cut < strlen(y->names[m]); cut++) {
            int32_t a = tpl_vocab_find(&y->vocab, y->names[m], cut),
                    b = tpl_vocab_find(&y->vocab, y->names[m] + cut, strlen(y->names[m]) - cut);
            if (a < 0 || b < 0) continue;
            y->merged[a][b] = m;
            y->rank[a][b] = next_random(&seed) % 700;
            tpl_bpe_add_ids(y->bpe, a, b, m, y->rank[a][b]);
        }
    return y;
}

static void toy_free(toy *y)
{
    tpl_bpe_free(y->bpe);
    tpl_vocab_free(&y->vocab);
    free(y);
}

/* "Merge the pair of lowest rank, the leftmost of equals, until none is left." */
static size_t merge_naively(const toy *y, int32_t *ids, size_t n)
{
    for (;;) {
        size_t best = n;
        uint32_t rank = UINT32_MAX;
        for (size_t i = 0; i + 1 < n; i++)
            if (y->merged[ids[i]][ids[i + 1]] >= 0 && y->rank[ids[i]][ids[i + 1]] < rank) {
                best = i;
                rank = y->rank[ids[i]][ids[i + 1]];
            }
        if (best == n) return n;
        ids[best] = y->merged[ids[best]][ids[best + 1]];
        memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof *ids);
        n--;
    }
}

static void merging_equals_its_definition(void **state)
{
    static const size_t lengths[] = {
        1, 2, 3, 10, 39, 40, 41, 42, 100, 1000, 17000
    }; /* in place, by heap, by buckets */
    static char text[3 * 17000 + 1];
    static int32_t got[17000], want[17000];
    void *work = NULL;
    for (uint32_t seed = 1; seed <= 6; seed++) {
        const int32_t n_letters = seed % 2 ? 3 : 5;
        toy *y = toy_new(seed, n_letters);
        const tpl_model *m = tpl_bpe_model(y->bpe);
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            uint32_t s = seed * 100 + (uint32_t)k;
            tpl_err err = { 0 };
            if (lengths[k] > 5000 && seed > 2) continue; /* the definition is quadratic */
            char *end = text;
            for (size_t i = 0; i < lengths[k]; i++) { /* word marks are rare, so that some runs are long */
                want[i] = (int32_t)(next_random(&s) % (next_random(&s) % 16 ? 3 : (uint32_t)n_letters));
                end = stpcpy(end, letters[want[i]]);
            }
            tpl_ids out = { got, lengths[k], 0 };
            assert_int_equal(m->ops->encode(m, (tpl_str){ text, (size_t)(end - text) }, &work, &out, &err),
                             TPL_OK);
            size_t n = merge_naively(y, want, lengths[k]);
            assert_int_equal(out.n, n);
            assert_memory_equal(got, want, n * sizeof *got);
        }
        m->ops->work_free(work);
        work = NULL;
        toy_free(y);
    }
}

/* The best sum over all ways to cut text[0 .. n) into tokens, by trying all: it is short. Every letter is a
 * token, so that there is no unknown one. */
static double best_sum(const toy *y, const double *scores, const char *text, size_t n)
{
    double best = -1e300;
    if (!n) return 0;
    for (size_t len = 1; len <= n; len++) {
        int32_t id = tpl_vocab_find(&y->vocab, text, len);
        if (id < 0) continue;
        double sum = scores[id] + best_sum(y, scores, text + len, n - len);
        if (sum > best) best = sum;
    }
    return best;
}

static void unigram_finds_the_best_sum(void **state)
{
    double scores[N_TOKENS];
    void *work = NULL;
    for (uint32_t seed = 1; seed <= 4; seed++) {
        toy *y = toy_new(seed, 3);
        uint32_t s = seed;
        tpl_model *m;
        tpl_err err = { 0 };
        for (int i = 0; i < N_TOKENS; i++) scores[i] = -(double)(next_random(&s) % 4096) / 256;
        scores[N_TOKENS - 1] = -1e6; /* the unknown token, which is never worth its while */
        tpl_unigram_options o = { .vocab = &y->vocab, .scores = scores, .unk_id = N_TOKENS - 1 };
        assert_int_equal(tpl_unigram_new(&m, &o, "toy", &err), TPL_OK);
        for (int round = 0; round < 300; round++) {
            char text[14];
            int32_t ids[14];
            size_t n = 1 + next_random(&s) % sizeof text, at = 0;
            double sum = 0;
            for (size_t i = 0; i < n; i++) text[i] = (char)('a' + next_random(&s) % 3);
            tpl_ids out = { ids, n, 0 };
            assert_int_equal(m->ops->encode(m, (tpl_str){ text, n }, &work, &out, &err), TPL_OK);
            for (size_t i = 0; i < out.n; i++) { /* the tokens are those of the text, one after the other */
                size_t len = strlen(y->names[ids[i]]);
                assert_true(at + len <= n && !memcmp(text + at, y->names[ids[i]], len));
                at += len;
                sum += scores[ids[i]];
            }
            assert_int_equal(at, n);
            /* the scores are multiples of 1/256: sums are exact in any order */
            assert_true(sum == best_sum(y, scores, text, n));
        }
        m->ops->work_free(work);
        work = NULL;
        m->ops->free(m);
        toy_free(y);
    }
}

/* -- Scanners and the regex engine ------------------------------------------------------------ */

/* Every pair of characters from all corners, and longer random texts, are cut by a scanner as by PCRE2
 * with the same pattern. Characters are assigned in Unicode 14, which PCRE2 has. */
static void scanners_cut_as_their_patterns_say(void **state)
{
    static const char gpt2[] =
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    static const char llama3[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
                                 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
                                 "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    static const char qwen2[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
                                "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
                                "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    static const char *const patterns[] = { gpt2, llama3, qwen2 };
    static const uint32_t corners[] = { ' ',  '\n', '\r',  '\t',  '\'', 's',    'S',    't',    'r',
                                        'E',  'l',  'L',   'v',   'd',  'm',    'x',    '1',    '2',
                                        '.',  '_',  0x17F, 0xA0,  0x85, 0x3000, 0x2028, 0x180E, 0x200B,
                                        0x1C, 0xE9, 0x301, 0x663, 0xB2, 0x4E00, 0x1F600 };
    enum { N = sizeof corners / sizeof *corners };
    uint32_t seed = 5;
    for (size_t p = 0; p < 3; p++) {
        tpl_str pattern = { patterns[p], strlen(patterns[p]) };
        tpl_scan_fn scan = tpl_scan_find(pattern);
        tpl_regex *re;
        tpl_regex_work *work = NULL;
        tpl_err err = { 0 };
        assert_non_null(scan);
        assert_int_equal(tpl_regex_new(&re, pattern, "test", &err), TPL_OK);
        for (int round = 0; round < 30000; round++) {
            char s[64];
            size_t len = 0, n = 2 + next_random(&seed) % 8, start, end;
            while (n--) len += (size_t)tpl_utf8_put(s + len, corners[next_random(&seed) % N]);
            for (size_t pos = 0; pos < len; pos = end) {
                assert_int_equal(tpl_regex_find(re, &work, (tpl_str){ s, len }, pos, &start, &end, &err),
                                 TPL_OK);
                assert_int_equal(start, pos);
                assert_int_equal(scan(s, len, pos), end);
            }
        }
        tpl_regex_work_free(work);
        tpl_regex_free(re);
    }
}

/* -- Long runs on a small stack --------------------------------------------------------------- */

typedef struct long_run {
    const tpl_tokenizer *t;
    const char *text;
    size_t len;
    size_t n;
    tpl_status st;
    double seconds;
} long_run;

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void *encode_long(void *arg)
{
    long_run *r = arg;
    double start = now();
    r->st = tpl_tokenizer_encode(r->t, r->text, r->len, TPL_ENCODE_SPECIAL, NULL, 0, &r->n, NULL);
    r->seconds = now() - start;
    return NULL;
}

static void encode_on_small_stack(long_run *r)
{
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstacksize(&attr, 256 << 10), 0);
    assert_int_equal(pthread_create(&thread, &attr, encode_long, r), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
}

#ifdef TPL_EMULATED /* a tenth of it shows as well whether the stack lasts */
enum { REPEATED_BYTES = 100000 };
#else
enum { REPEATED_BYTES = 1000000 };
#endif

static void a_million_repeats_take_under_a_second_on_a_small_stack(void **state)
{
    static const char *const units[] = { "a",
                                         "_",
                                         " ",
                                         "\n",
                                         "1",
                                         "\xC3\xA9",
                                         "\xE4\xBB\x8A",
                                         "e\xCC\x81\xCC\xA3",
                                         "'",
                                         "\xFF",
                                         "\xF0\x9F\x98\x80",
                                         "<|bos|>",
                                         "<",
                                         "a ",
                                         "\xE2\x80\xA8",
                                         " \n" };
    static const char *const files[] = { FIXTURES "gpt2.json",        FIXTURES "llama3.json",
                                         FIXTURES "regex.json",       FIXTURES "deepseek.json",
                                         FIXTURES "unigram.json",     FIXTURES "precompiled.json",
                                         FIXTURES "punctuation.json" };
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        tpl_tokenizer *t = open_fixture(files[f]);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            size_t unit = strlen(units[u]), n = REPEATED_BYTES / unit;
            char *text = malloc(n * unit);
            for (size_t i = 0; i < n; i++) memcpy(text + i * unit, units[u], unit);
            long_run r = { .t = t, .text = text, .len = n * unit };
            encode_on_small_stack(&r);
            assert_int_equal(r.st, TPL_OK);
            assert_true(r.n > 0 || f == 4 || f == 5); /* Strip leaves nothing of white space */
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ && !defined TPL_EMULATED /* they cost a factor */
            assert_true(r.seconds < 1.0);
#endif
            free(text);
        }
        tpl_tokenizer_free(t);
    }
}

/* Marks of alternating classes are sorted in more than linear time by a plain insertion sort; expected:
 * all of the lower class first. */
static void half_a_million_marks_are_ordered_quickly(void **state)
{
    enum { N = 500000 };
    char *text = malloc(2 * N);
    tpl_buf out = { 0 };
    tpl_err err = { 0 };
    for (int i = 0; i < N; i++)
        memcpy(text + 2 * i, i % 2 ? "\xCC\xA3" : "\xCC\x8D",
               2); /* U+0323 class 220, U+030D class 230 */
    double start = now();
    assert_int_equal(tpl_normalize_unicode(TPL_NORM_NFC, (tpl_str){ text, 2 * N }, &out, &err), TPL_OK);
    assert_true(now() - start < 2.0);
    assert_int_equal(out.len, 2 * N);
    for (int i = 0; i < N; i++)
        assert_memory_equal(out.s + 2 * i, i < N / 2 ? "\xCC\xA3" : "\xCC\x8D", 2);
    tpl_buf_free(&out);
    free(text);
}

/* -- Threads ---------------------------------------------------------------------------------- */

static void threads_share_a_tokenizer(void **state)
{
    enum { THREADS = 4 };
    tpl_tokenizer *t = open_fixture(FIXTURES "llama3.json");
    static const char text[] = "Caf\xC3\xA9 <mask> don't 12345 <tool>\n\n  x \xE4\xBB\x8A\xE5\xA4\xA9";
    long_run r[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        r[i] = (long_run){ .t = t, .text = text, .len = sizeof text - 1 };
        assert_int_equal(pthread_create(&threads[i], NULL, encode_long, &r[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(r[i].st, TPL_OK);
        assert_int_equal(r[i].n, r[0].n);
    }
    tpl_tokenizer_free(t);
}

/* -- Vocabulary sources ----------------------------------------------------------------------- */

static void five_million_tokens_are_refused(void **state)
{
    size_t n = 5000000;
    tpl_str *tokens = calloc(n, sizeof *tokens);
    tpl_vocab_source s = TPL_VOCAB_SOURCE_NONE;
    tpl_err err = { 0 };
    tpl_tokenizer *t;
    for (size_t i = 0; i < n; i++) tokens[i] = (tpl_str){ "x", 1 };
    s.model = (tpl_str){ "gpt2", 4 };
    s.pre = (tpl_str){ "gpt-2", 5 };
    s.tokens = tokens;
    s.n_tokens = n;
    assert_int_equal(tpl_tokenizer_from_vocab(&t, &s, &err), TPL_ERR_FORMAT);
    assert_null(t);
    assert_non_null(strstr(err.msg, "5000000"));
    free(tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lossy_text_is_the_same_at_every_cut),
        cmocka_unit_test(every_scalar_value_passes_and_comes_back),
        cmocka_unit_test(encode_tells_the_size_it_needs_and_keeps_inside_the_buffer),
        cmocka_unit_test(a_text_beyond_the_limit_is_refused),
        cmocka_unit_test(ids_without_a_token_are_nothing),
        cmocka_unit_test(decoding_gives_every_byte_back),
        cmocka_unit_test(queue_pops_in_order),
        cmocka_unit_test(merging_equals_its_definition),
        cmocka_unit_test(unigram_finds_the_best_sum),
        cmocka_unit_test(scanners_cut_as_their_patterns_say),
        cmocka_unit_test(a_million_repeats_take_under_a_second_on_a_small_stack),
        cmocka_unit_test(half_a_million_marks_are_ordered_quickly),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(five_million_tokens_are_refused),
    };
    return cmocka_run_group_tests_name("token", tests, NULL, NULL);
}
