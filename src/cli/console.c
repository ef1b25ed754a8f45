/* console.c - see console.h. */
#define _GNU_SOURCE
#include "cli/console.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void ramet_say(const ramet_options *o, const char *format, ...) {
    if (o->quiet) return;
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

void ramet_progress(const ramet_options *o, const char *what, uint64_t done, uint64_t total) {
    if (o->quiet || o->json || !isatty(STDERR_FILENO)) return;
    if (done < total)
        fprintf(stderr, "\r%s %" PRIu64 " of %" PRIu64, what, done, total);
    else
        fprintf(stderr, "\r%70s\r", "");
}

void ramet_print_clean(FILE *out, const char *text) {
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool is_c1 = c == 0xC2 && (unsigned char)text[1] >= 0x80 && (unsigned char)text[1] < 0xA0;
        fputc(c < 0x20 || c == 0x7F || is_c1 ? '?' : c, out);
        if (is_c1) text++;
    }
}

/* -------------------------------------------------------------- labels ---- */

ramet_label ramet_label_bytes(uint64_t bytes) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    ramet_label label;
    if (bytes < 1024) {
        snprintf(label.text, sizeof label.text, "%" PRIu64 " bytes", bytes);
        return label;
    }
    double value = (double)bytes / 1024;
    size_t unit = 0;
    for (; value >= 1024 && unit < 3; unit++) value /= 1024;
    snprintf(label.text, sizeof label.text, "%.2f %s", value, units[unit]);
    return label;
}

ramet_label ramet_label_duration(uint64_t nanoseconds) {
    static const char *const units[] = {"ns", "\xC2\xB5s", "ms", "s"}; /* micro sign */
    ramet_label label;
    double value = (double)nanoseconds;
    size_t unit = 0;
    for (; value >= 1000 && unit < 3; unit++) value /= 1000;
    bool is_whole = value >= 10 || unit == 0;
    snprintf(label.text, sizeof label.text, "%.*f %s", is_whole && unit < 3 ? 0 : 1, value, units[unit]);
    return label;
}

ramet_label ramet_label_count(uint64_t n) {
    char digits[24];
    ramet_label label;
    int length = snprintf(digits, sizeof digits, "%" PRIu64, n);
    char *out = label.text;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) *out++ = ',';
        *out++ = digits[i];
    }
    *out = '\0';
    return label;
}

double ramet_per_second(double amount, uint64_t nanoseconds) {
    return nanoseconds ? amount * 1e9 / (double)nanoseconds : NAN;
}

/* ------------------------------------------------------------- signals ---- */

static volatile sig_atomic_t is_patient, was_interrupted;

static void end_process(int signal_number) {
    ramet_temporary_remove_all();
    _exit(128 + signal_number);
}

static void handle_signal(int signal_number) {
    if (!is_patient || was_interrupted || signal_number == SIGPIPE) end_process(signal_number);
    was_interrupted = 1;
}

static void fill_set(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGPIPE);
}

/* Not when whoever started us wants it ignored, as nohup does. */
static void handle_unless_ignored(int signal_number, const struct sigaction *action) {
    struct sigaction before;
    if (sigaction(signal_number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(signal_number, action, NULL);
}

void ramet_signals_install(void) {
    struct sigaction action = {.sa_handler = handle_signal, .sa_flags = SA_RESTART};
    fill_set(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    handle_unless_ignored(SIGHUP, &action);
    handle_unless_ignored(SIGPIPE, &action);
    signal(SIGXFSZ, SIG_IGN); /* past a file size limit write fails, which is an error like any other */
}

void ramet_signals_patient(bool patient) {
    is_patient = patient;
}
bool ramet_interrupted(void) {
    return was_interrupted != 0;
}

ramet_status ramet_check_interrupt(ramet_error *error) {
    return was_interrupted ? ramet_fail(error, RAMET_E_INTERRUPTED, "interrupted") : RAMET_OK;
}

const char *ramet_temporary_parent(void) {
    const char *parent = getenv("TMPDIR");
    return parent && parent[0] ? parent : "/tmp";
}
