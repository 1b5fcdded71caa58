/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sha256.h"

#include <stdlib.h>
#include <string.h>

/* FIPS 180-4, 4.2.2: the first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t round_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotr(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static uint32_t load_be(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void store_be(uint8_t *p, uint64_t x, int n)
{
    for (int i = n - 1; i >= 0; i--, x >>= 8) p[i] = (uint8_t)x;
}

static void schedule(uint32_t w[64], const uint8_t *block)
{
    for (int t = 0; t < 16; t++) w[t] = load_be(block + 4 * t);
    for (int t = 16; t < 64; t++) {
        uint32_t s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = s1 + w[t - 7] + s0 + w[t - 16];
    }
}

/* One round. The names of the eight variables rotate instead of their values, so that nothing is moved. */
#define ROUND(a, b, c, d, e, f, g, h, t)                                                          \
    do {                                                                                          \
        h += (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & f) ^ (~e & g)) + round_k[t] + w[t]; \
        d += h;                                                                                   \
        h += (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));            \
    } while (0)

/* Section 6.2.2, one 64-byte block. */
static void compress(uint32_t h[8], const uint8_t *block)
{
    uint32_t w[64], v[8];
    schedule(w, block);
    memcpy(v, h, sizeof v);
    for (int t = 0; t < 64; t += 8) {
        ROUND(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], t);
        ROUND(v[7], v[0], v[1], v[2], v[3], v[4], v[5], v[6], t + 1);
        ROUND(v[6], v[7], v[0], v[1], v[2], v[3], v[4], v[5], t + 2);
        ROUND(v[5], v[6], v[7], v[0], v[1], v[2], v[3], v[4], t + 3);
        ROUND(v[4], v[5], v[6], v[7], v[0], v[1], v[2], v[3], t + 4);
        ROUND(v[3], v[4], v[5], v[6], v[7], v[0], v[1], v[2], t + 5);
        ROUND(v[2], v[3], v[4], v[5], v[6], v[7], v[0], v[1], t + 6);
        ROUND(v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[0], t + 7);
    }
    for (int i = 0; i < 8; i++) h[i] += v[i];
}

void tpl_sha256_init(tpl_sha256 *s)
{
    /* Section 5.3.3: fractional parts of the square roots of the first 8 primes. */
    static const uint32_t h0[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };
    memcpy(s->h, h0, sizeof h0);
    s->n_bytes = 0;
}

void tpl_sha256_update(tpl_sha256 *s, const void *data, size_t len)
{
    const uint8_t *p = data;
    size_t have = s->n_bytes % 64;
    if (!len) return; /* data may be NULL */
    s->n_bytes += len;
    if (have) {
        size_t n = len < 64 - have ? len : 64 - have;
        memcpy(s->block + have, p, n);
        p += n;
        len -= n;
        if (have + n < 64) return;
        compress(s->h, s->block);
    }
    for (; len >= 64; p += 64, len -= 64) compress(s->h, p);
    if (len) memcpy(s->block, p, len);
}

void tpl_sha256_final(tpl_sha256 *s, uint8_t out[32])
{
    static const uint8_t pad[64] = { 0x80 };
    uint8_t length[8];
    store_be(length, s->n_bytes * 8, 8);
    tpl_sha256_update(s, pad, 1 + (119 - s->n_bytes % 64) % 64); /* up to 56 mod 64 */
    tpl_sha256_update(s, length, 8);
    for (int i = 0; i < 8; i++) store_be(out + 4 * i, s->h[i], 4);
}

static void finish_hex(tpl_sha256 *s, char out[65])
{
    uint8_t digest[32];
    tpl_sha256_final(s, digest);
    for (int i = 0; i < 32; i++) {
        out[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    out[64] = 0;
}

void tpl_sha256_hex(const void *data, size_t len, char out[65])
{
    tpl_sha256 s;
    tpl_sha256_init(&s);
    tpl_sha256_update(&s, data, len);
    finish_hex(&s, out);
}

tpl_status tpl_sha256_file(const tpl_file *f, char out[65], tpl_err *err)
{
    enum { piece = 256 * 1024 };
    tpl_sha256 s;
    tpl_status st = TPL_OK;
    uint8_t *buf = malloc(piece);
    if (!buf) return tpl_fail(err, TPL_ERR_MEM, 0, f->name, "out of memory");
    tpl_sha256_init(&s);
    for (uint64_t at = 0; at < f->size && !st; at += piece) {
        uint64_t n = f->size - at < piece ? f->size - at : piece;
        st = tpl_file_read(f, at, n, buf, err);
        if (!st) tpl_sha256_update(&s, buf, n);
    }
    free(buf);
    if (!st) finish_hex(&s, out);
    return st;
}
