// One flat JSON object on one line: how a benchmark program answers.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdio>
#include <string>
#include <vector>

namespace dlcp::bench {

class Json {
public:
    template <std::integral T>
    Json& add(const char* name, T value) {
        return put(name, std::to_string(value));
    }
    Json& add(const char* name, double value) { return put(name, number(value)); }
    // Names and addresses of ours: no quotes or backslashes, so nothing is escaped.
    Json& add(const char* name, const std::string& value) { return put(name, '"' + value + '"'); }
    Json& add(const char* name, const std::vector<double>& values) {
        std::string list;
        for (double value : values) list += (list.empty() ? "" : ", ") + number(value);
        return put(name, '[' + list + ']');
    }
    Json& add(const char* name, const std::vector<Json>& objects) {
        std::string list;
        for (const Json& object : objects) list += (list.empty() ? "" : ", ") + object.text();
        return put(name, '[' + list + ']');
    }
    std::string text() const { return '{' + body_ + '}'; }
    void print() const {
        std::printf("%s\n", text().c_str());
        std::fflush(stdout);
    }

private:
    static std::string number(double value) {
        if (!std::isfinite(value)) return "null";
        char text[32];
        std::snprintf(text, sizeof text, "%.9g", value);
        return text;
    }
    Json& put(const char* name, const std::string& value) {
        body_ += (body_.empty() ? "\"" : ", \"") + std::string(name) + "\": " + value;
        return *this;
    }
    std::string body_;
};

}  // namespace dlcp::bench
