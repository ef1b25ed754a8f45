/* options.c - see options.h. A new option is one row below and one field of ramet_options. */
#define _GNU_SOURCE
#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef enum option_kind {
    OPTION_FLAG,
    OPTION_STRING,
    OPTION_CHOICE, /* one of the words in `argument`, separated by | */
    OPTION_U32,
    OPTION_U64,
    OPTION_SIZE,
    OPTION_FLOAT,
    OPTION_KV,
} option_kind;

typedef struct option_row {
    const char *name;
    int letter; /* 0: none */
    option_kind kind;
    const char *argument, *help;
    size_t offset;
    double min, max; /* of a number; of a string, min is 1 when it must not be empty */
    unsigned commands;
} option_row;

#define AT(field) offsetof(ramet_options, field)
#define MANY      1e9

enum {
    ENGINE = RAMET_CMD_RUN | RAMET_CMD_BUILD | RAMET_CMD_FORK | RAMET_CMD_BENCH | RAMET_CMD_VERIFY | RAMET_CMD_LOGITS |
             RAMET_CMD_PERPLEXITY,
    TEXT = RAMET_CMD_TOKENIZE | RAMET_CMD_DETOKENIZE,
    LOOKERS = RAMET_CMD_INFO | RAMET_CMD_TREE | RAMET_CMD_DIFF, /* into saved contexts */
    READERS = RAMET_CMD_RUN | RAMET_CMD_FORK | RAMET_CMD_CONVERT | LOOKERS,
    KEEPERS = READERS | RAMET_CMD_BUILD | RAMET_CMD_BENCH | RAMET_CMD_LOGITS,
    ALL = ENGINE | TEXT | READERS | RAMET_CMD_MODELS,
};

static const option_row rows[] = {
    {"model", 'm', OPTION_STRING, "MODEL", "a GGUF file, or a name that `ramet models` lists", AT(model), 0, 0,
     ENGINE | TEXT | RAMET_CMD_TREE | RAMET_CMD_DIFF},
    {"prompt", 'p', OPTION_STRING, "TEXT", "the text; - reads standard input", AT(prompt), 0, 0,
     RAMET_CMD_RUN | RAMET_CMD_BUILD | RAMET_CMD_TOKENIZE},
    {"prompt", 'p', OPTION_STRING, "IDS", "the token ids; - reads standard input", AT(prompt), 0, 0,
     RAMET_CMD_DETOKENIZE},
    {"file", 'f', OPTION_STRING, "FILE", "the same, from a file; - reads standard input", AT(file), 0, 0,
     RAMET_CMD_RUN | RAMET_CMD_BUILD | TEXT | RAMET_CMD_PERPLEXITY},
    {"input", 'i', OPTION_STRING, "CTX", "a saved context; - reads standard input", AT(input), 0, 0,
     RAMET_CMD_RUN | RAMET_CMD_FORK | RAMET_CMD_CONVERT},
    {"output", 'o', OPTION_STRING, "FILE.ramet", "where to save the context; - is standard output", AT(output), 0, 0,
     RAMET_CMD_BUILD | RAMET_CMD_CONVERT},
    {"output", 'o', OPTION_STRING, "OUT.npy", "where to write the rows; - is standard output", AT(output), 0, 0,
     RAMET_CMD_LOGITS},
    {"output", 'o', OPTION_CHOICE, "md|csv|json", "form of the table (default: aligned text)", AT(output), 0, 0,
     RAMET_CMD_BENCH},
    {"tokens", 0, OPTION_STRING, "FILE", "token ids, separated by commas or white space; - reads standard input",
     AT(tokens_file), 0, 0, RAMET_CMD_LOGITS},
    {"special", 0, OPTION_FLAG, NULL, "the text of special tokens stands for those tokens", AT(special), 0, 0,
     RAMET_CMD_RUN | RAMET_CMD_BUILD | RAMET_CMD_TOKENIZE},
    {"special", 0, OPTION_FLAG, NULL, "write special tokens as their names", AT(special), 0, 0, RAMET_CMD_DETOKENIZE},

    {"n", 'n', OPTION_U32, "N", "tokens to generate", AT(n_generate), 0, MANY, RAMET_CMD_RUN},
    {"branches", 0, OPTION_U32, "B", "samples to decode from one position, as one batch", AT(branches), 1, 4096,
     RAMET_CMD_RUN},
    {"ignore-eos", 0, OPTION_FLAG, NULL, "go on after a token that ends the text", AT(ignore_eos), 0, 0, RAMET_CMD_RUN},
    {"seed", 's', OPTION_U64, "N", "seed of the sampler (0 if not given)", AT(seed), 0, 0, RAMET_CMD_RUN},
    {"temp", 0, OPTION_FLOAT, "T", "temperature; 0 takes the likeliest token", AT(sampler.temperature), 0, 100,
     RAMET_CMD_RUN},
    {"top-k", 0, OPTION_U32, "N", "sample among the N likeliest; 0 is off", AT(sampler.top_k), 0, MANY, RAMET_CMD_RUN},
    {"top-p", 0, OPTION_FLOAT, "P", "sample among the likeliest that sum to P; 1 is off", AT(sampler.top_p), 0, 1,
     RAMET_CMD_RUN},
    {"min-p", 0, OPTION_FLOAT, "P", "drop tokens below P times the likeliest; 0 is off", AT(sampler.min_p), 0, 1,
     RAMET_CMD_RUN},
    {"repeat-penalty", 0, OPTION_FLOAT, "R", "weaken tokens that came before; 1 is off", AT(sampler.repeat_penalty),
     0.01, 100, RAMET_CMD_RUN},

    {"forks", 'n', OPTION_U32, "N", "branches to fork", AT(n_forks), 1, 1e6, RAMET_CMD_FORK},
    {"verify", 0, OPTION_FLAG, NULL, "check every byte of the file", AT(verify), 0, 0, RAMET_CMD_INFO},

    {"context-key", 0, OPTION_STRING, "FILE",
     "saved contexts are encrypted; the key is FILE's 32 bytes (default: $RAMET_CONTEXT_KEY)", AT(context_key), 0, 0,
     KEEPERS & ~(unsigned)RAMET_CMD_CONVERT},
    {"context-key", 0, OPTION_STRING, "FILE", "the key of the file that is read (default: $RAMET_CONTEXT_KEY)",
     AT(context_key), 0, 0, RAMET_CMD_CONVERT},
    {"allow-legacy-snapshots", 0, OPTION_FLAG, NULL, "read formats that lack a check of the current one",
     AT(allow_legacy), 0, 0, READERS},
    {"min-generation", 0, OPTION_U64, "N", "refuse a saved context of a lower generation: an older one in its place",
     AT(min_generation), 0, 0, READERS},
    {"profile", 0, OPTION_CHOICE, "enterprise", "saved contexts are encrypted, and plain or legacy ones refused",
     AT(profile), 0, 0, KEEPERS},
    {"generation", 0, OPTION_U64, "N", "your count of the saves of this context, kept in the file", AT(generation), 0,
     0, RAMET_CMD_BUILD},
    {"allow-lossy-payload", 0, OPTION_FLAG, NULL,
     "restore rows that were stored at a narrower precision: other bits follow", AT(allow_lossy), 0, 0,
     RAMET_CMD_RUN | RAMET_CMD_FORK},
    {"payload", 0, OPTION_CHOICE, "f32|f16|vq8|q8", "store the rows at this precision (default: as they are)",
     AT(payload), 0, 0, RAMET_CMD_CONVERT},
    {"encrypt", 0, OPTION_STRING, "KEYFILE", "encrypt the new file with the 32 bytes of KEYFILE", AT(encrypt), 1, 0,
     RAMET_CMD_CONVERT},
    {"decrypt", 0, OPTION_FLAG, NULL, "write a plain file, though the old one is encrypted", AT(decrypt), 0, 0,
     RAMET_CMD_CONVERT},

    {"rows", 0, OPTION_STRING, "all|last|A:B", "rows to write; row i comes after token i, B is not included", AT(rows),
     0, 0, RAMET_CMD_LOGITS},
    {"chunk", 0, OPTION_U32, "N", "prefill in chunks of N tokens; changes no bit", AT(chunk), 1, MANY,
     RAMET_CMD_LOGITS},
    {"restore-at", 0, OPTION_U32, "K", "save, close and restore after K tokens; changes no bit", AT(restore_at), 1,
     MANY, RAMET_CMD_LOGITS},

    {"forks", 0, OPTION_U32, "N", "forks in the fork row", AT(bench_forks), 1, 1e6, RAMET_CMD_BENCH},
    {"prompt", 0, OPTION_U32, "N", "tokens of the prompt", AT(bench_prompt), 1, MANY, RAMET_CMD_BENCH},
    {"branches", 0, OPTION_STRING, "LIST", "branches that decode as one batch, such as 1,8,16", AT(bench_branches), 0,
     0, RAMET_CMD_BENCH},
    {"gen", 0, OPTION_U32, "N", "tokens to decode", AT(bench_generate), 1, MANY, RAMET_CMD_BENCH},
    {"reps", 0, OPTION_U32, "N", "repetitions; each row is the median", AT(bench_reps), 1, 1000, RAMET_CMD_BENCH},

    {"ctx-size", 'c', OPTION_U32, "N", "tokens per window", AT(window), 2, MANY, RAMET_CMD_PERPLEXITY},
    {"ctx-size", 'c', OPTION_U32, "N", "longest context in tokens", AT(ctx_size), 1, MANY,
     ENGINE & ~(unsigned)RAMET_CMD_PERPLEXITY},
    {"threads", 't', OPTION_U32, "N", "worker threads (one per core if not given)", AT(threads), 1, 1024,
     ENGINE | RAMET_CMD_CONVERT},
    {"kv", 0, OPTION_KV, "f32|f16|vq8|q8", "precision of the key and value cache", AT(kv), 0, 0, ENGINE},
    {"page-tokens", 0, OPTION_U32, "N", "positions per page: 16, 32, 64, 128 or 256; changes no bit", AT(page_tokens),
     16, 256, ENGINE},
    {"ctx-mem-budget", 0, OPTION_SIZE, "SIZE", "memory of all contexts at most, such as 512MiB or 8G",
     AT(kv_budget_bytes), 1, 0, ENGINE},
    {"ctx-spill-dir", 0, OPTION_STRING, "DIR",
     "what is idle and over that budget goes to files here, encrypted, and comes back; changes no bit",
     AT(spill_directory), 1, 0, ENGINE},
    {"lora", 0, OPTION_STRING, "FILE[=SCALE]", "apply a GGUF adapter", AT(lora), 0, 0, ENGINE},
    {"no-digest-cache", 0, OPTION_FLAG, NULL, "hash the model's file, also when it was not changed since the last time",
     AT(no_digest_cache), 0, 0, ENGINE | TEXT | RAMET_CMD_TREE | RAMET_CMD_DIFF},
    {"kernels", 0, OPTION_CHOICE, "c|avx2|avx512|neon", "use nothing faster than this; changes no bit", AT(kernels), 0,
     0, ENGINE},

    {"json", 0, OPTION_FLAG, NULL, "raw numbers as JSON (bytes, nanoseconds)", AT(json), 0, 0, ALL},
    {"quiet", 'q', OPTION_FLAG, NULL, "say nothing on standard error but errors", AT(quiet), 0, 0, ALL},
    {"help", 'h', OPTION_FLAG, NULL, "show this help", AT(help), 0, 0, ALL},
};
enum { N_ROWS = sizeof rows / sizeof rows[0], FIRST_LONG = 256 };

void ramet_options_defaults(ramet_options *out) {
    *out = (ramet_options){.kv = RAMET_KV_F32, .n_generate = 128, .branches = 1, .n_forks = 8, .rows = "all"};
    out->window = 512;
    out->bench_forks = 32;
    out->bench_prompt = 2048;
    out->bench_generate = 32;
    out->bench_reps = 3;
    out->bench_branches = "8";
    ramet_sampler_defaults(&out->sampler);
}

/* ------------------------------------------------------------- values ---- */

bool ramet_parse_u64(const char *text, uint64_t *out) {
    if (!isdigit((unsigned char)text[0])) return false; /* strtoull would take " -1" */
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0') return false;
    *out = value;
    return true;
}

bool ramet_parse_float(const char *text, float *out) {
    char *end;
    errno = 0;
    float value = strtof(text, &end);
    if (end == text || *end != '\0' || isspace((unsigned char)text[0]) || !isfinite(value)) return false;
    *out = value;
    return true;
}

bool ramet_parse_size(const char *text, uint64_t *out) {
    static const char digits[] = "0123456789";
    size_t n_whole = strspn(text, digits), n = n_whole;
    if (text[n] == '.') n += 1 + strspn(text + n + 1, digits);
    if (n_whole == 0 || text[n - 1] == '.') return false;
    char *end;
    double value = strtod(text, &end);
    if (end != text + n) return false; /* it also reads 0x10 and 1e3 */
    unsigned shift = 0;
    static const char letters[] = "KMGT";
    const char *letter = *end ? strchr(letters, toupper((unsigned char)*end)) : NULL;
    if (letter) {
        shift = 10u * (unsigned)(letter - letters + 1);
        end++;
        if ((*end == 'i' || *end == 'I') && end[1] != '\0') end++;
    }
    if (*end == 'B' || *end == 'b') end++;
    value *= (double)(1ull << shift);
    if (*end != '\0' || !(value < 9e18)) return false;
    *out = (uint64_t)value;
    return true;
}

static bool is_choice(const char *choices, const char *text) {
    size_t n = strlen(text);
    for (const char *c = choices; n > 0; c++) {
        size_t word = strcspn(c, "|");
        if (word == n && memcmp(c, text, n) == 0) return true;
        c += word;
        if (*c == '\0') break;
    }
    return false;
}

static ramet_status fail_value(const option_row *row, const char *text, ramet_error *error) {
    const char *dashes = row->name[1] ? "--" : "-";
    switch (row->kind) {
    case OPTION_SIZE:
        return ramet_fail(error, RAMET_E_ARGUMENT, "%s%s takes a size such as 512MiB or 8G, not '%s'", dashes,
                          row->name, text);
    case OPTION_STRING:
    case OPTION_CHOICE:
    case OPTION_KV:
        return ramet_fail(error, RAMET_E_ARGUMENT, "%s%s takes %s, not '%s'", dashes, row->name, row->argument, text);
    case OPTION_FLOAT:
        return ramet_fail(error, RAMET_E_ARGUMENT, "%s%s takes a number from %g to %g, not '%s'", dashes, row->name,
                          row->min, row->max, text);
    default:
        return ramet_fail(error, RAMET_E_ARGUMENT, "%s%s takes a whole number from %.0f up, not '%s'", dashes,
                          row->name, row->min, text);
    }
}

static ramet_status set_value(const option_row *row, const char *text, ramet_options *out, ramet_error *error) {
    void *field = (char *)out + row->offset;
    uint64_t number;
    float real;
    switch (row->kind) {
    case OPTION_FLAG: *(bool *)field = true; return RAMET_OK;
    case OPTION_CHOICE:
        if (!is_choice(row->argument, text)) return fail_value(row, text, error);
        *(const char **)field = text;
        return RAMET_OK;
    case OPTION_STRING:
        if (row->min > 0 && text[0] == '\0') return fail_value(row, text, error);
        *(const char **)field = text;
        return RAMET_OK;
    case OPTION_KV:
        out->has_kv = ramet_kv_parse(text, field);
        return out->has_kv ? RAMET_OK : fail_value(row, text, error);
    case OPTION_SIZE:
        if (!ramet_parse_size(text, &number) || number < (uint64_t)row->min) return fail_value(row, text, error);
        *(uint64_t *)field = number;
        return RAMET_OK;
    case OPTION_U64:
        if (!ramet_parse_u64(text, &number)) return fail_value(row, text, error);
        *(uint64_t *)field = number;
        return RAMET_OK;
    case OPTION_U32:
        if (!ramet_parse_u64(text, &number)) return fail_value(row, text, error);
        if ((double)number < row->min || (double)number > row->max)
            return ramet_fail(error, RAMET_E_ARGUMENT, "%s%s must be from %.0f to %.0f, not %s",
                              row->name[1] ? "--" : "-", row->name, row->min, row->max, text);
        *(uint32_t *)field = (uint32_t)number;
        return RAMET_OK;
    case OPTION_FLOAT:
        if (!ramet_parse_float(text, &real) || real < (float)row->min || real > (float)row->max)
            return fail_value(row, text, error);
        *(float *)field = real;
        return RAMET_OK;
    }
    return RAMET_OK;
}

/* ------------------------------------------------------------ spelling ---- */

unsigned ramet_edit_distance(const char *a, const char *b) {
    enum { MAX = 40 };
    size_t n = strnlen(a, MAX), m = strnlen(b, MAX);
    unsigned d[MAX + 1][MAX + 1];
    for (size_t i = 0; i <= n; i++) d[i][0] = (unsigned)i;
    for (size_t j = 0; j <= m; j++) d[0][j] = (unsigned)j;
#define SAME(x, y) (tolower((unsigned char)(x)) == tolower((unsigned char)(y)))
    for (size_t i = 1; i <= n; i++)
        for (size_t j = 1; j <= m; j++) {
            unsigned best = d[i - 1][j - 1] + (SAME(a[i - 1], b[j - 1]) ? 0 : 1);
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && SAME(a[i - 1], b[j - 2]) && SAME(a[i - 2], b[j - 1]) && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
#undef SAME
    return d[n][m];
}

bool ramet_is_near(const char *typed, const char *candidate, unsigned *io_best) {
    unsigned distance = ramet_edit_distance(typed, candidate);
    if (distance > 1 + strlen(candidate) / 4 || distance >= strlen(candidate) || distance >= *io_best) return false;
    *io_best = distance;
    return true;
}

static const char *nearest_option(const char *typed, unsigned command) {
    const char *nearest = NULL;
    unsigned best = UINT32_MAX;
    for (size_t i = 0; i < N_ROWS; i++)
        if ((rows[i].commands & command) && rows[i].name[1] && ramet_is_near(typed, rows[i].name, &best))
            nearest = rows[i].name;
    return nearest;
}

static ramet_status fail_unknown(const char *word, int letter, unsigned command, ramet_error *error) {
    if (letter > 0 && letter < FIRST_LONG) return ramet_fail(error, RAMET_E_ARGUMENT, "unknown option -%c", letter);
    if (letter >= FIRST_LONG)
        return ramet_fail(error, RAMET_E_ARGUMENT, "option --%s takes no value", rows[letter - FIRST_LONG].name);
    const char *name = word + strspn(word, "-");
    char typed[64];
    snprintf(typed, sizeof typed, "%.*s", (int)strcspn(name, "="), name);
    for (size_t i = 0, found = 0; typed[0] && i < N_ROWS; i++) /* several options begin with this */
        if ((rows[i].commands & command) && strncmp(rows[i].name, typed, strlen(typed)) == 0 && ++found == 2)
            return ramet_fail(error, RAMET_E_ARGUMENT, "option --%s is short for more than one option", typed);
    const char *nearest = nearest_option(typed, command);
    if (nearest) return ramet_fail(error, RAMET_E_ARGUMENT, "unknown option %s; did you mean --%s?", word, nearest);
    return ramet_fail(error, RAMET_E_ARGUMENT, "unknown option %s", word);
}

/* ------------------------------------------------------------- parsing ---- */

static const option_row *row_of_letter(int letter, unsigned command) {
    for (size_t i = 0; i < N_ROWS; i++)
        if (rows[i].letter == letter && (rows[i].commands & command)) return &rows[i];
    return NULL;
}

static void fill_getopt(unsigned command, struct option *longs, char *shorts) {
    *shorts++ = ':'; /* getopt then tells a missing value from an unknown option */
    for (size_t i = 0; i < N_ROWS; i++) {
        const option_row *row = &rows[i];
        if (!(row->commands & command)) continue;
        bool has_value = row->kind != OPTION_FLAG;
        if (row->name[1]) /* "n" is a letter only */
            *longs++ =
                (struct option){row->name, has_value ? required_argument : no_argument, NULL, FIRST_LONG + (int)i};
        if (!row->letter) continue;
        *shorts++ = (char)row->letter;
        if (has_value) *shorts++ = ':';
    }
    *longs = (struct option){0};
    *shorts = '\0';
}

static ramet_status check_together(const ramet_options *o, ramet_error *error) {
    if (o->page_tokens & (o->page_tokens - 1))
        return ramet_fail(error, RAMET_E_ARGUMENT, "--page-tokens must be 16, 32, 64, 128 or 256, not %" PRIu32,
                          o->page_tokens);
    if (o->profile && o->allow_legacy)
        return ramet_fail(error, RAMET_E_ARGUMENT, "--allow-legacy-snapshots is refused under --profile %s",
                          o->profile);
    if (o->profile && !o->context_key)
        return ramet_fail(error, RAMET_E_ARGUMENT,
                          "under --profile %s saved contexts are encrypted; give --context-key FILE", o->profile);
    if (o->prompt && o->file) return ramet_fail(error, RAMET_E_ARGUMENT, "give -p or -f, not both");
    return RAMET_OK;
}

ramet_status ramet_options_parse(int argc, char **argv, unsigned command, ramet_options *out, ramet_error *error) {
    struct option longs[N_ROWS + 1];
    char shorts[2 * N_ROWS + 2];
    fill_getopt(command, longs, shorts);
    ramet_options_defaults(out);
    opterr = 0;
    optind = 1;
    for (;;) {
        int got = getopt_long_only(argc, argv, shorts, longs, NULL);
        if (got == -1) break;
        if (got == '?') return fail_unknown(argv[optind - 1], optopt, command, error);
        if (got == ':') return ramet_fail(error, RAMET_E_ARGUMENT, "option %s needs a value", argv[optind - 1]);
        const option_row *row = got >= FIRST_LONG ? &rows[got - FIRST_LONG] : row_of_letter(got, command);
        /* -n5 is a letter and its value, but -tmep is a word misspelt, not a value of -t. */
        if (got < FIRST_LONG && optarg && optarg != argv[optind - 1] && isalpha((unsigned char)optarg[0]))
            return fail_unknown(argv[optind - 1], 0, command, error);
        RAMET_TRY(set_value(row, optarg, out, error));
    }
    if (!out->context_key && (command & KEEPERS)) {
        const char *set = getenv("RAMET_CONTEXT_KEY");
        out->key_of_environment = set && set[0];
        if (out->key_of_environment) out->context_key = set;
    }
    out->args = argv + optind;
    out->n_args = (size_t)(argc - optind);
    return check_together(out, error);
}

/* ---------------------------------------------------------------- help ---- */

static void print_default(FILE *out, const option_row *row, const ramet_options *defaults) {
    const void *field = (const char *)defaults + row->offset;
    if (row->kind == OPTION_KV) fprintf(out, " (default %s)", ramet_kv_name(*(const ramet_kv *)field));
    if (row->kind == OPTION_STRING && *(const char *const *)field)
        fprintf(out, " (default %s)", *(const char *const *)field);
    if (row->kind == OPTION_U32 && *(const uint32_t *)field)
        fprintf(out, " (default %" PRIu32 ")", *(const uint32_t *)field);
    if (row->kind == OPTION_FLOAT && *(const float *)field != 0)
        fprintf(out, " (default %g)", (double)*(const float *)field);
}

void ramet_options_help(FILE *out, unsigned command) {
    ramet_options defaults;
    ramet_options_defaults(&defaults);
    for (size_t i = 0; i < N_ROWS; i++) {
        const option_row *row = &rows[i];
        if (!(row->commands & command)) continue;
        char left[64];
        const char *value = row->argument ? row->argument : "";
        if (!row->name[1])
            snprintf(left, sizeof left, "-%c %s", row->letter, value);
        else if (row->letter)
            snprintf(left, sizeof left, "-%c, --%s %s", row->letter, row->name, value);
        else
            snprintf(left, sizeof left, "    --%s %s", row->name, value);
        fprintf(out, "  %-32s %s", left, row->help);
        print_default(out, row, &defaults);
        fputc('\n', out);
    }
}
