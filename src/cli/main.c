/* main.c - the command `ramet`: finds the command, parses its options, runs it, and turns a failure into one line on
 * standard error and an exit code. Owns the list of commands and its help; everything else is in cmd_*.c. */
#define _GNU_SOURCE
#include "cli/commands.h"
#include "cli/console.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct command {
    const char *name; /* "ctx build": the first word is a group */
    unsigned bit;
    size_t min_args, max_args;
    const char *usage, *summary, *about;
    ramet_command_fn run;
} command;

#define ANY ((size_t)-1)

static const command commands[] = {
    {"run", RAMET_CMD_RUN, 0, 0, "-m MODEL (-p TEXT | -f FILE | -i CTX) [-n N] [--branches B]", "generate text",
     "Generates text after a prompt, or after a saved context (-i), whose first token needs no pass of the model.\n"
     "With -i and -p the prompt is put after the saved context. The prompt is taken as it is: no chat template;\n"
     "BOS is put in front when the model wants one. --branches prints B samples of one position, each with the\n"
     "sum of the log-probabilities of its tokens, and --json has the likeliest of them as \"text\".\n",
     ramet_cmd_run},
    {"ctx build", RAMET_CMD_BUILD, 0, 0, "-m MODEL -o FILE.ramet (-p TEXT | -f FILE)", "prefill and save a context",
     "Runs a prompt through the model and saves the context as one file.\n", ramet_cmd_ctx_build},
    {"ctx fork", RAMET_CMD_FORK, 0, 0, "-i FILE.ramet [-n N] [-m MODEL]", "fork a saved context and count pages",
     "Restores a context, forks it, and reports the time and memory beside what copies would need.\n"
     "Without -m the model is found by the digest in the file, among those that `ramet models` lists.\n",
     ramet_cmd_ctx_fork},
    {"ctx info", RAMET_CMD_INFO, 1, 1, "FILE.ramet [--verify]", "show the header of a saved context",
     "Shows what a saved context is of; needs no model.\n", ramet_cmd_ctx_info},
    {"ctx tree", RAMET_CMD_TREE, 1, ANY, "DIR|FILE.ramet... [-m MODEL]", "draw what saved contexts share",
     "Draws the tree of shared prefixes of saved contexts; of a directory, its *.ramet files.\n"
     "With -m the text of each edge is shown, otherwise its token ids. Contexts of different weights share nothing.\n",
     ramet_cmd_ctx_tree},
    {"ctx diff", RAMET_CMD_DIFF, 2, 2, "A.ramet B.ramet [-m MODEL]", "show where two saved contexts part",
     "Shows how many tokens two saved contexts have in common from the first on, how each goes on, and what else\n"
     "differs: model, precision, owner. With -m as text, otherwise as token ids. It is a report: the exit code is 0\n"
     "also when they differ.\n",
     ramet_cmd_ctx_diff},
    {"ctx convert", RAMET_CMD_CONVERT, 0, 0,
     "-i FILE.ramet -o FILE.ramet [--payload f16|vq8|q8] [--encrypt KEYFILE | --decrypt]", "rewrite a saved context",
     "Rewrites a saved context in the current format: with rows of a narrower precision, which makes the file smaller\n"
     "and what follows a restore other bits; under another key, or under none. Needs no model. --context-key is the\n"
     "key of the file that is read. Owner, marking, generation and logits stay.\n",
     ramet_cmd_ctx_convert},
    {"bench", RAMET_CMD_BENCH, 0, 0, "-m MODEL [--prompt N] [--gen N] [--branches LIST] [--forks N] [--reps N]",
     "measure speed, beside the machine's limits",
     "Times load, prefill, decode, branches as one batch, fork, snapshot (into the page cache, and synced to the\n"
     "disk), restore, spill, reading back and prefix match, on arbitrary tokens, and in the same run how fast this\n"
     "machine reads and copies memory. The share of the limit is, for decode and branches, what a step must read,\n"
     "weights and keys and values, pages that branches share counted once, against the read rate; for load, snapshot,\n"
     "restore, spill and reading back, bytes against the copy rate.\n",
     ramet_cmd_bench},
    {"verify", RAMET_CMD_VERIFY, 0, 0, "-m MODEL", "check that nothing changes the bits",
     "Runs every exactness check on this model and machine. Ends with code 3 when one fails.\n", ramet_cmd_verify},
    {"tokenize", RAMET_CMD_TOKENIZE, 0, 0, "-m MODEL (-p TEXT | -f FILE) [--special]", "token ids of a text",
     "Prints the ids as a JSON array. No BOS is added.\n", ramet_cmd_tokenize},
    {"detokenize", RAMET_CMD_DETOKENIZE, 0, 0, "-m MODEL (-p IDS | -f FILE) [--special]", "text of token ids",
     "Prints the text, byte for byte. Ids are separated by commas, white space or brackets.\n", ramet_cmd_detokenize},
    {"logits", RAMET_CMD_LOGITS, 0, 0, "-m MODEL --tokens FILE -o OUT.npy [--rows all|last|A:B]",
     "logits as a .npy file",
     "Writes float32 logits of shape [rows, vocabulary]. The tokens are taken as they are: no BOS is added.\n",
     ramet_cmd_logits},
    {"perplexity", RAMET_CMD_PERPLEXITY, 0, 0, "-m MODEL -f FILE [-c N]", "how well the model predicts a text",
     "Mean negative log-likelihood per token, its standard error, and the perplexity. The text is cut into windows\n"
     "of N tokens that do not overlap; the last may be shorter. When the model wants BOS each window is BOS and N-1\n"
     "tokens of the text, all of them scored; otherwise N tokens, scored from the second on.\n",
     ramet_cmd_perplexity},
    {"models", RAMET_CMD_MODELS, 0, 0, "", "the models on this machine",
     "Lists the GGUF files in ramet's own directory ($RAMET_MODELS, or ramet/models in the user's data directory),\n"
     "Ollama's store, Hugging Face's cache, LM Studio's folders, and those that came with ramet. Each name can be\n"
     "given to -m, in any case, and shortened while it stays the only one.\n",
     ramet_cmd_models},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

/* ---------------------------------------------------------------- help ---- */

static void print_overview(FILE *out, const char *group) {
    size_t n = strlen(group);
    fprintf(out, "usage: ramet %s%sCOMMAND ...\n\n", group, n ? " " : "");
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strncmp(commands[i].name, group, n) == 0)
            fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\n`ramet COMMAND --help` explains one%s. Options take one dash or two.\n",
            n ? "" : ", `ramet --version` shows what this is");
    if (n == 0)
        fputs("Exit codes: 0 ok, 1 failed, 2 usage, 3 broken invariant, 4 file of another model or other numerics,\n"
              "5 corrupt or failed authentication, 6 no memory, disk or budget, 7 network, 130 interrupted.\n",
              out);
}

static void print_help(FILE *out, const command *c) {
    fprintf(out, "usage: ramet %s %s\n\n%s\n", c->name, c->usage, c->about);
    ramet_options_help(out, c->bit);
}

static ramet_status print_version(ramet_error *error) {
    char numerics_id[33];
    const char *kernels;
    RAMET_TRY(ramet_numerics(NULL, numerics_id, &kernels, error));
    printf("ramet %s\nbuild    %s\nnumerics %s\nkernels  %s\n", ramet_version(), ramet_build(), numerics_id, kernels);
    return RAMET_OK;
}

/* ------------------------------------------------------------ dispatch ---- */

static bool is_option(const char *word, const char *name) {
    return word[0] == '-' && strcmp(word + 1 + (word[1] == '-'), name) == 0;
}

static bool is_help(const char *word) {
    return is_option(word, "help") || strcmp(word, "-h") == 0;
}

/* `word` alone when it begins some command's name, as "ctx" does. */
static bool is_group(const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strncmp(commands[i].name, word, n) == 0 && commands[i].name[n] == ' ') return true;
    return false;
}

/* Finds the command that words[0..] begin with; *out_words is how many of them are its name. */
static ramet_status find_command(int n_words, char **words, const command **out, int *out_words, ramet_error *error) {
    const char *group = is_group(words[0]) ? words[0] : "";
    if (group[0] && n_words < 2)
        return ramet_fail(error, RAMET_E_ARGUMENT, "%s what? `ramet %s --help` lists its commands", group, group);
    char typed[80];
    snprintf(typed, sizeof typed, "%s%s%s", words[0], group[0] ? " " : "", group[0] ? words[1] : "");
    const char *nearest = NULL;
    unsigned best = UINT32_MAX;
    *out_words = group[0] ? 2 : 1;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        *out = &commands[i];
        if (strcmp(commands[i].name, typed) == 0) return RAMET_OK;
        if (ramet_is_near(typed, commands[i].name, &best)) nearest = commands[i].name;
    }
    *out = NULL;
    if (nearest)
        return ramet_fail(error, RAMET_E_ARGUMENT, "unknown command '%s'; did you mean '%s'? `ramet --help` lists all",
                          typed, nearest);
    return ramet_fail(error, RAMET_E_ARGUMENT, "unknown command '%s'; `ramet --help` lists them", typed);
}

static ramet_status run_command(const command *c, int argc, char **argv, ramet_error *error) {
    ramet_options options;
    RAMET_TRY(ramet_options_parse(argc, argv, c->bit, &options, error));
    if (options.help) {
        print_help(stdout, c);
        return RAMET_OK;
    }
    if (options.n_args > c->max_args)
        return ramet_fail(error, RAMET_E_ARGUMENT, "unexpected argument '%s'", options.args[c->max_args]);
    if (options.n_args < c->min_args)
        return ramet_fail(error, RAMET_E_ARGUMENT, "which file%s? usage: ramet %s %s", c->min_args > 1 ? "s" : "",
                          c->name, c->usage);
    return c->run(&options, error);
}

/* `ramet help`, `ramet help ctx`, `ramet help ctx build`. */
static ramet_status run_help(int n_words, char **words, ramet_error *error) {
    if (n_words == 0 || (n_words == 1 && is_group(words[0]))) {
        print_overview(stdout, n_words ? words[0] : "");
        return RAMET_OK;
    }
    const command *c;
    int used;
    RAMET_TRY(find_command(n_words, words, &c, &used, error));
    print_help(stdout, c);
    return RAMET_OK;
}

static ramet_status dispatch(int argc, char **argv, const command **out_command, ramet_error *error) {
    *out_command = NULL;
    if (argc < 2) return ramet_fail(error, RAMET_E_ARGUMENT, "no command given; `ramet --help` lists them");
    if (is_help(argv[1])) return run_help(0, NULL, error);
    if (is_option(argv[1], "version")) return print_version(error);
    if (strcmp(argv[1], "help") == 0) return run_help(argc - 2, argv + 2, error);
    if (is_group(argv[1]) && argc == 3 && is_help(argv[2])) return run_help(1, argv + 1, error);
    int used;
    RAMET_TRY(find_command(argc - 1, argv + 1, out_command, &used, error));
    return run_command(*out_command, argc - used, argv + used, error);
}

static ramet_status flush_output(ramet_error *error) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return RAMET_OK;
    return ramet_fail_errno(error, "cannot write to standard output");
}

int main(int argc, char **argv) {
    ramet_error error = {0};
    const command *c;
    ramet_signals_install();
    ramet_status status = dispatch(argc, argv, &c, &error);
    if (status == RAMET_OK) status = flush_output(&error);
    if (status == RAMET_OK) return 0;
    fflush(stdout); /* what was said before the failure stays before it */
    fprintf(stderr, "ramet: %s", error.message);
    if (status == RAMET_E_ARGUMENT && c) fprintf(stderr, " (`ramet %s --help` explains)", c->name);
    fputc('\n', stderr);
    return ramet_status_exit_code(status);
}
