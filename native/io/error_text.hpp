// Errors of drivers: a negative errno value and a sentence for a person, which says what failed and what to do about
// it. The sentence goes to a buffer of the caller's, which may be absent or too short.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace dlcp {

struct ErrorText {
    char* text;
    std::size_t bytes;

    // Writes the sentence and returns -error_number.
    [[gnu::format(printf, 3, 4)]] int fail(int error_number, const char* format, ...) const {
        if (text != nullptr && bytes > 0) {
            va_list arguments;
            va_start(arguments, format);
            std::vsnprintf(text, bytes, format, arguments);
            va_end(arguments);
        }
        return -error_number;
    }
};

}  // namespace dlcp
