/* version.c - which build this is. RAMET_VERSION_TEXT and RAMET_COMMIT_TEXT come from the build. */
#include "ramet.h"

#ifndef RAMET_COMMIT_TEXT
#define RAMET_COMMIT_TEXT "unknown"
#endif

const char *ramet_version(void) {
    return RAMET_VERSION_TEXT;
}

const char *ramet_build(void) {
#if defined(__clang__)
    return "commit " RAMET_COMMIT_TEXT ", clang " __clang_version__;
#else
    return "commit " RAMET_COMMIT_TEXT ", gcc " __VERSION__;
#endif
}
