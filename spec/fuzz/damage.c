/* SPDX-License-Identifier: Apache-2.0 */
#include "damage.h"

#include <stdio.h>
#include <string.h>

enum { MOST_NESTING = 3000, MOST_GROWTH = 16384 };

size_t tpl_damage_room(size_t n)
{
    return 2 * n + MOST_GROWTH;
}

/* -- Chance ---- splitmix64 (Steele, Lea, Flood 2014) */

static uint64_t next(uint64_t *x)
{
    uint64_t z = *x += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static size_t below(uint64_t *x, size_t n)
{
    return n ? (size_t)(next(x) % n) : 0;
}

/* A position; the first 2 KiB, where headers are, come up as often as all that follows. */
static size_t place(uint64_t *x, size_t n)
{
    return next(x) % 2 && n > 2048 ? below(x, 2048) : below(x, n);
}

/* -- Edits of out[0..n), which give the new length ---- */

static size_t replace(uint8_t *out, size_t n, size_t at, size_t len, const void *with, size_t with_len)
{
    memmove(out + at + with_len, out + at + len, n - at - len);
    memcpy(out + at, with, with_len);
    return n - len + with_len;
}

static size_t flip(uint8_t *out, size_t n, tpl_bytes other, uint64_t *x)
{
    for (size_t k = 1 + below(x, 3); n && k > 0; k--) out[place(x, n)] ^= (uint8_t)(1 << below(x, 8));
    return n;
}

static size_t set_byte(uint8_t *out, size_t n, tpl_bytes other, uint64_t *x)
{
    static const uint8_t bytes[] = { 0, 1, 0x7F, 0x80, 0xFF, '"', '{', '[', '\\', ',', '9', 'e' };
    if (n) out[place(x, n)] = bytes[below(x, sizeof bytes)];
    return n;
}

static size_t cut(uint8_t *out, size_t n, tpl_bytes other, uint64_t *x)
{
    return place(x, n + 1);
}

/* Lengths, counts, offsets and types are little-endian numbers of 4 or 8 bytes. */
static size_t set_number(uint8_t *out, size_t n, tpl_bytes other, uint64_t *x)
{
    const uint64_t numbers[] = { 0, 1, 2, 7, 255, 65536, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1ULL << 32, 1ULL << 48, 1ULL << 62,
                                 (1ULL << 63) - 1, 1ULL << 63, UINT64_MAX, UINT64_MAX - 7, n, n - 1, n + 1, n / 2, 0x3FFFFFFFFFFFFFFF };
    uint64_t v = numbers[below(x, sizeof numbers / sizeof *numbers)];
    size_t size = next(x) % 2 ? 8 : 4, at = place(x, n);
    if (n < size) return n;
    if (at > n - size) at = n - size;
    for (size_t i = 0; i < size; i++) out[at + i] = (uint8_t)(v >> 8 * i);
    return n;
}

static size_t nudge_number(uint8_t *out, size_t n, tpl_bytes other, uint64_t *x)
{
    if (n) out[place(x, n)] += next(x) % 2 ? 1 : (uint8_t)-1;
    return n;
}

static size_t remove_piece(uint8_t *out, size_t n, tpl_bytes other, uint64_t *x)
{
    size_t at = place(x, n), len = 1 + below(x, next(x) % 2 ? 8 : 512);
    if (len > n - at) len = n - at;
    return replace(out, n, at, len, "", 0);
}

static size_t repeat_piece(uint8_t *out, size_t n, tpl_bytes other, uint64_t *x)
{
    uint8_t piece[1024];
    size_t at = place(x, n), len = 1 + below(x, next(x) % 2 ? 64 : sizeof piece - 1);
    if (len > n - at) len = n - at;
    memcpy(piece, out + at, len);
    return replace(out, n, at, 0, piece, len);
}

static size_t splice(uint8_t *out, size_t n, tpl_bytes other, uint64_t *x)
{
    size_t from = place(x, other.n), len = 1 + below(x, 1024), at = place(x, n), gone = next(x) % 2 ? len : 0;
    if (len > other.n - from) len = other.n - from;
    if (gone > n - at) gone = n - at;
    return replace(out, n, at, gone, other.s + from, len);
}

/* -- Edits of texts ---- */

/* A run of bytes of one class that begins at or after a random place: digits, or a quoted string. */
static size_t find_number(const uint8_t *s, size_t n, uint64_t *x, size_t *len)
{
    size_t at = place(x, n);
    while (at < n && (s[at] < '0' || s[at] > '9')) at++;
    for (*len = 0; at + *len < n && s[at + *len] >= '0' && s[at + *len] <= '9';) ++*len;
    return at;
}

static size_t find_string(const uint8_t *s, size_t n, uint64_t *x, size_t *len)
{
    size_t at = place(x, n);
    while (at < n && s[at] != '"') at++;
    *len = at < n;
    while (*len && at + *len < n && s[at + *len] != '"') ++*len;
    if (*len && at + *len < n) ++*len;
    return at;
}

static size_t odd_number(uint8_t *out, size_t n, tpl_bytes other, uint64_t *x)
{
    static const char *const numbers[] = { "0", "-1", "1.5", "1e30", "1e400", "-0", "2147483648", "4294967296", "4194303", "9223372036854775807",
                                           "9223372036854775808",
                                           "18446744073709551616", "\"8\"", "null", "true", "[]", "{}", "01", "1e" };
    const char *s = numbers[below(x, sizeof numbers / sizeof *numbers)];
    size_t len, at = find_number(out, n, x, &len);
    return replace(out, n, at, len, s, strlen(s));
}

static size_t odd_string(uint8_t *out, size_t n, tpl_bytes other, uint64_t *x)
{
    static const char *const strings[] = { "\"\"", "null", "0", "[]", "{}", "\"<0x-1>\"", "\"<0xGG>\"", "\"../../../etc/passwd\"",
                                           "\"\\u0000\"", "\"\\ud800\"", "\"a\\nb\"", "\"(a+)+$\"", "\"\\\\p{L\"", "\"\xC3\x28\"", "\"", "true" };
    const char *s = strings[below(x, sizeof strings / sizeof *strings)];
    size_t len, at = find_string(out, n, x, &len);
    return replace(out, n, at, len, s, strlen(s));
}

/* The string that follows one place is written over the string at another: keys and names come twice. */
static size_t double_string(uint8_t *out, size_t n, tpl_bytes other, uint64_t *x)
{
    uint8_t piece[512];
    size_t len, to_len, at = find_string(out, n, x, &len);
    if (len > sizeof piece) len = sizeof piece;
    memcpy(piece, out + at, len);
    size_t to = find_string(out, n, x, &to_len);
    return replace(out, n, to, to_len, piece, len);
}

static int is_base64(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '+' || c == '/';
}

/* Binary tables are spelt in base64: some letters of the longest run become others, so that it stays base64. */
static size_t other_base64(uint8_t *out, size_t n, tpl_bytes other, uint64_t *x)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t best = 0, best_len = 0;
    for (size_t at = 0, len; at < n; at += len + 1) {
        for (len = 0; at + len < n && is_base64(out[at + len]);) len++;
        if (len > best_len) best = at, best_len = len;
    }
    if (best_len < 64) return flip(out, n, other, x);
    for (size_t k = 1 + below(x, 16); k > 0; k--) out[best + below(x, best_len)] = (uint8_t)letters[below(x, 64)];
    return n;
}

static size_t nest(uint8_t *out, size_t n, tpl_bytes other, uint64_t *x)
{
    static const char *const opens[] = { "[", "{\"a\":", "[[", "{{", "{%if a%}", "{{(" , "((", "{%for a in b%}", "not ", "-", "a.", "a|" };
    char piece[MOST_GROWTH];
    const char *s = opens[below(x, sizeof opens / sizeof *opens)];
    size_t len = strlen(s), deep = 1 + below(x, next(x) % 2 ? 80 : MOST_NESTING), used = 0;
    for (; deep && used + len < sizeof piece; deep--, used += len) memcpy(piece + used, s, len);
    return replace(out, n, place(x, n), 0, piece, used);
}

/* -- ---- */

typedef struct damage {
    const char *name;
    size_t (*edit)(uint8_t *out, size_t n, tpl_bytes other, uint64_t *x);
} damage;

static const damage of_bytes[] = { { "bits flipped", flip },        { "truncated", cut },          { "number set", set_number },
                                   { "number set", set_number },    { "number set", set_number },  { "byte set", set_byte },
                                   { "byte one off", nudge_number }, { "piece removed", remove_piece }, { "piece repeated", repeat_piece },
                                   { "spliced", splice } };
static const damage of_texts[] = { { "bits flipped", flip },      { "truncated", cut },          { "odd number", odd_number },
                                   { "odd string", odd_string },  { "string doubled", double_string }, { "nested", nest },
                                   { "piece removed", remove_piece }, { "piece repeated", repeat_piece }, { "spliced", splice },
                                   { "byte set", set_byte },      { "odd number", odd_number }, { "base64 changed", other_base64 } };

size_t tpl_damage(uint8_t *out, tpl_bytes seed, tpl_bytes other, uint64_t number, int is_text, const char **what)
{
    size_t n_kinds = is_text ? sizeof of_texts / sizeof *of_texts : sizeof of_bytes / sizeof *of_bytes, turn = (size_t)(number / n_kinds);
    const damage *d = (is_text ? of_texts : of_bytes) + number % n_kinds;
    uint64_t x = number * 0x2545F4914F6CDD1Du + 1;
    memcpy(out, seed.s, seed.n);
    *what = d->name;
    /* every other turn truncations go through all lengths one after the other, from the front */
    if (d->edit == cut && turn % 2) return turn / 2 % (seed.n + 1);
    return d->edit(out, seed.n, other, &x);
}
