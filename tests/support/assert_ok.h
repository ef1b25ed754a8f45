/* assert_ok.h - a call that must go well; inside it, `error` is where it says why not. After cmocka.h. */
#ifndef RAMET_TESTS_ASSERT_OK_H
#define RAMET_TESTS_ASSERT_OK_H

#include "base/error.h"

#define assert_ok(expression)                                                                                          \
    do {                                                                                                               \
        ramet_error error_ = {0};                                                                                      \
        ramet_error *const error = &error_;                                                                            \
        if ((expression) != RAMET_OK) fail_msg("%s: %s", #expression, error_.message);                                 \
    } while (0)

#endif
