/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers from GGUF metadata. GGUF names a pre-tokenizer where tokenizer.json spells its parts out,
 * so the tables here say what the names stand for. Where llama.cpp and the model's own tokenizer.json
 * differ (NFC for Qwen), tokenizer.json is followed: the model was trained with it.
 */
#include "token/bpe.h"
#include "token/load_priv.h"
#include "token/utf8.h"

#define SPLIT_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define SPLIT_CL100K(digits)                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"                     \
    "\\s+(?!\\S)|\\s+"

#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define SPLIT_TEKKEN                                                                           \
    "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]*[" LOWER "]+|[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]+[" LOWER \
    "]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|"                                               \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* o200k: tekken's with contractions behind words, and up to three digits */
#define SUFFIX "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define SPLIT_O200K                                                                                   \
    "[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]*[" LOWER "]+" SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?[" UPPER "]+[" LOWER \
    "]*" SUFFIX "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* DeepSeek V3: digits, Han and Kana, the rest, one after the other */
#define SPLIT_HAN_KANA                                                          \
    "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-" \
    "\xE3\x83\xBF]+"
#define SPLIT_DEEPSEEK3                                                                               \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" \
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"

typedef struct pre_kind {
    const char *splits[3]; /* the text is cut by the first, its pieces by the next */
    bool digits; /* single digits are cut first */
    bool ignore_merges, add_bos, nfc;
} pre_kind;

static const pre_kind
    gpt2 = { .splits = { SPLIT_GPT2 } },
    smollm = { .splits = { SPLIT_GPT2 }, .digits = true },
    llama3 = { .splits = { SPLIT_CL100K("\\p{N}{1,3}") }, .ignore_merges = true, .add_bos = true },
    dbrx = { .splits = { SPLIT_CL100K("\\p{N}{1,3}") } },
    qwen2 = { .splits = { SPLIT_CL100K("\\p{N}") }, .nfc = true },
    stablelm2 = { .splits = { SPLIT_CL100K("\\p{N}") } },
    gpt4o = { .splits = { SPLIT_O200K } },
    deepseek3 = { .splits = { "\\p{N}{1,3}", SPLIT_HAN_KANA, SPLIT_DEEPSEEK3 } },
    tekken = { .splits = { SPLIT_TEKKEN }, .ignore_merges = true, .add_bos = true };

/* tokenizer.ggml.pre; the groups are llama.cpp's (llama-vocab.cpp, source package llama-cpp-python
 * 0.3.36) */
static const struct {
    const char *name;
    const pre_kind *kind;
} pres[] = {
    { "gpt-2", &gpt2 },          { "phi-2", &gpt2 },
    { "olmo", &gpt2 },           { "mpt", &gpt2 },
    { "smollm", &smollm },       { "starcoder", &smollm },
    { "refact", &smollm },       { "command-r", &smollm },
    { "llama3", &llama3 },       { "llama-v3", &llama3 },
    { "llama-bpe", &llama3 },    { "falcon3", &llama3 },
    { "dbrx", &dbrx },           { "smaug-bpe", &dbrx },
    { "qwen2", &qwen2 },         { "deepseek-r1-qwen", &qwen2 },
    { "stablelm2", &stablelm2 }, { "tekken", &tekken },
    { "gpt-4o", &gpt4o },        { "llama4", &gpt4o },
    { "deepseek-v3", &deepseek3 },
};

/* -- Vocabulary ------------------------------------------------------------------------------- */

int32_t tpl_load_type(const tpl_vocab_source *s, size_t i)
{
    return s->n_types ? s->types[i] : TPL_VOCAB_NORMAL;
}

static tpl_status check_source(const tpl_vocab_source *s, tpl_err *err)
{
    if (!s->n_tokens) return tpl_fail(err, TPL_ERR_FORMAT, 0, s->where, "vocabulary is empty");
    if (s->n_types && s->n_types != s->n_tokens)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, s->where, "%zu token types for %zu tokens", s->n_types,
                        s->n_tokens);
    if (s->n_scores && s->n_scores != s->n_tokens)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, s->where, "%zu scores for %zu tokens", s->n_scores,
                        s->n_tokens);
    return TPL_OK;
}

static tpl_status flags_of(const tpl_vocab_source *s, size_t i, uint32_t *flags, tpl_err *err)
{
    tpl_str text = s->tokens[i];
    switch (tpl_load_type(s, i)) {
    case TPL_VOCAB_NORMAL: *flags = TPL_TOKEN_MODEL; return TPL_OK;
    case TPL_VOCAB_USER_DEFINED: *flags = TPL_TOKEN_MODEL | TPL_TOKEN_ADDED; return TPL_OK;
    case TPL_VOCAB_UNKNOWN:
    case TPL_VOCAB_CONTROL: *flags = TPL_TOKEN_ADDED | TPL_TOKEN_SPECIAL; return TPL_OK;
    case TPL_VOCAB_UNUSED: *flags = 0; return TPL_OK;
    case TPL_VOCAB_BYTE:
        *flags = TPL_TOKEN_MODEL;
        if (tpl_vocab_byte(text.s, text.len) >= 0) return TPL_OK;
        return tpl_fail(err, TPL_ERR_FORMAT, 0, s->where,
                        "byte token %zu %s is malformed, expected <0xHH>", i,
                        tpl_show(text.s, text.len).s);
    default:
        return tpl_fail(err, TPL_ERR_FORMAT, 0, s->where, "token %zu has type %d, expected 1 to 6", i,
                        tpl_load_type(s, i));
    }
}

tpl_status tpl_load_tokens(tpl_tokenizer *t, const tpl_vocab_source *s, tpl_err *err)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->n_tokens; i++)
        if (!ck_add(bytes, s->tokens[i].len, &bytes))
            return tpl_fail(err, TPL_ERR_FORMAT, 0, s->where, "vocabulary is too large");
    TPL_TRY(tpl_vocab_init(&t->vocab, s->n_tokens, bytes, s->where, err));
    for (size_t i = 0; i < s->n_tokens; i++) {
        tpl_str text = s->tokens[i];
        uint32_t flags;
        TPL_TRY(flags_of(s, i, &flags, err));
        if (tpl_utf8_valid(text.s, text.len) != text.len)
            return tpl_fail(err, TPL_ERR_FORMAT, 0, s->where, "token %zu is not UTF-8", i);
        if (!text.len) continue; /* padding: the id has no token */
        TPL_TRY(tpl_vocab_add(&t->vocab, (int64_t)i, text, flags, s->where, err));
        tpl_added_token added = { .id = (int32_t)i, .special = flags & TPL_TOKEN_SPECIAL };
        if (flags & TPL_TOKEN_ADDED) TPL_TRY(tpl_added_add(&t->raw, text, added, s->where, err));
    }
    return TPL_OK;
}

/* -- Special ids ------------------------------------------------------------------------------ */

tpl_status tpl_load_id(const tpl_tokenizer *t, const tpl_vocab_source *s, const char *key, int64_t value,
                       int32_t *id, tpl_err *err)
{
    *id = -1;
    if (value == -1) return TPL_OK;
    if (value < 0 || value >= t->vocab.n || !t->vocab.tokens[value].flags)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, s->where,
                        "tokenizer.ggml.%s is %lld, which has no token", key, (long long)value);
    *id = (int32_t)value;
    return TPL_OK;
}

tpl_status tpl_load_specials(tpl_tokenizer *t, const tpl_vocab_source *s, bool add_bos, tpl_err *err)
{
    int32_t eot, eom;
    TPL_TRY(tpl_load_id(t, s, "bos_token_id", s->bos_id, &t->bos, err));
    TPL_TRY(tpl_load_id(t, s, "eos_token_id", s->eos_id, &t->eos, err));
    TPL_TRY(tpl_load_id(t, s, "eot_token_id", s->eot_id, &eot, err));
    TPL_TRY(tpl_load_id(t, s, "eom_token_id", s->eom_id, &eom, err));
    if (eot >= 0) t->vocab.tokens[eot].flags |= TPL_TOKEN_EOG;
    if (eom >= 0) t->vocab.tokens[eom].flags |= TPL_TOKEN_EOG;
    if (s->add_bos >= 0) add_bos = s->add_bos;
    if (add_bos && t->bos < 0)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, s->where,
                        "a BOS is to be added, but bos_token_id is missing");
    if (add_bos) TPL_TRY(tpl_post_add_front(&t->post, t->bos, s->where, err));
    if (s->add_eos == 1 && t->eos < 0)
        return tpl_fail(err, TPL_ERR_FORMAT, 0, s->where,
                        "an EOS is to be added, but eos_token_id is missing");
    if (s->add_eos == 1) TPL_TRY(tpl_post_add_back(&t->post, t->eos, s->where, err));
    return TPL_OK;
}

/* -- "gpt2": byte-level BPE ------------------------------------------------------------------- */

static tpl_status find_pre(const tpl_vocab_source *s, const pre_kind **kind, tpl_err *err)
{
    for (size_t i = 0; i < sizeof pres / sizeof *pres; i++)
        if (strlen(pres[i].name) == s->pre.len && !memcmp(pres[i].name, s->pre.s, s->pre.len))
            return *kind = pres[i].kind, TPL_OK;
    if (!s->pre.len)
        tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, s->where,
                 "tokenizer.ggml.pre is missing: how this vocabulary splits text is unknown");
    else
        tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, s->where,
                 "pre-tokenizer %s (tokenizer.ggml.pre) is not supported",
                 tpl_show(s->pre.s, s->pre.len).s);
    tpl_hint(err, TPL_ERR_UNSUPPORTED, "use the model's tokenizer.json");
    return TPL_ERR_UNSUPPORTED;
}

static tpl_status add_merges(tpl_bpe *b, const tpl_vocab_source *s, tpl_err *err)
{
    for (size_t i = 0; i < s->n_merges; i++) {
        tpl_str m = s->merges[i];
        const char *space =
            m.len > 1 ? memchr(m.s + 1, ' ', m.len - 1) : NULL; /* a token may be a space itself */
        if (!space)
            return tpl_fail(err, TPL_ERR_FORMAT, 0, s->where,
                            "merge %zu %s is not two tokens and a space", i, tpl_show(m.s, m.len).s);
        tpl_str left = { m.s, (size_t)(space - m.s) },
                right = { space + 1, m.len - (size_t)(space + 1 - m.s) };
        TPL_TRY(tpl_bpe_add(b, left, right, (uint32_t)i, s->where, err));
    }
    return TPL_OK;
}

static tpl_status load_gpt2(tpl_tokenizer *t, const tpl_vocab_source *s, tpl_err *err)
{
    const pre_kind *kind;
    tpl_bpe *bpe;
    TPL_TRY(find_pre(s, &kind, err));
    TPL_TRY(tpl_load_tokens(t, s, err));
    if (kind->nfc)
        TPL_TRY(
            tpl_normalizer_add(&t->normalizer, TPL_NORM_NFC, TPL_STR_NONE, TPL_STR_NONE, s->where, err));
    if (kind->digits) TPL_TRY(tpl_pretok_add_digits(&t->pretok, s->where, err));
    for (int i = 0; i < 3 && kind->splits[i]; i++)
        TPL_TRY(tpl_pretok_add_split(&t->pretok, (tpl_str){ kind->splits[i], strlen(kind->splits[i]) },
                                     s->where, err));
    t->pretok.byte_level = t->decoder.byte_level = true;
    tpl_bpe_options o = {
        .vocab = &t->vocab, .byte_level = true, .ignore_merges = kind->ignore_merges, .unk_id = -1
    };
    TPL_TRY(tpl_bpe_new(&bpe, &o, s->n_merges, s->where, err));
    t->model = tpl_bpe_model(bpe);
    TPL_TRY(add_merges(bpe, s, err));
    return tpl_load_specials(t, s, kind->add_bos, err);
}

/* --------------------------------------------------------------------------------------------- */

static bool equals(tpl_str a, const char *b) { return a.len == strlen(b) && !memcmp(a.s, b, a.len); }

static tpl_status load(tpl_tokenizer *t, const tpl_vocab_source *s, tpl_err *err)
{
    TPL_TRY(check_source(s, err));
    if (equals(s->model, "gpt2")) TPL_TRY(load_gpt2(t, s, err));
    else if (equals(s->model, "llama")) TPL_TRY(tpl_load_spm(t, s, err));
    else
        return tpl_fail(err, TPL_ERR_UNSUPPORTED, 0, s->where,
                        "tokenizer %s (tokenizer.ggml.model) is not supported",
                        tpl_show(s->model.s, s->model.len).s);
    return tpl_tokenizer_finish(t, s->where, err);
}

tpl_status tpl_tokenizer_from_vocab(tpl_tokenizer **out, const tpl_vocab_source *source, tpl_err *err)
{
    *out = NULL;
    tpl_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return tpl_fail(err, TPL_ERR_MEM, 0, source->where, "out of memory");
    t->bos = t->eos = -1;
    tpl_status st = load(t, source, err);
    if (st) tpl_tokenizer_free(t);
    else *out = t;
    return st;
}
