// The command line of a benchmark program: `--name value` pairs with defaults, nothing else.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>

namespace dlcp::bench {

class Arguments {
public:
    // Every name that is accepted, with the value it has when not given. Ends the program on a mistake.
    Arguments(int argc, char** argv, std::initializer_list<std::pair<const std::string, std::string>> defaults)
        : values_(defaults) {
        for (int i = 1; i < argc; i += 2) {
            std::string name = argv[i];
            if (name.rfind("--", 0) == 0) name.erase(0, 2);
            auto found = values_.find(name);
            if (found == values_.end() || i + 1 == argc) {
                std::fprintf(stderr, "%s: bad argument %s. Accepted, with defaults:\n", argv[0], argv[i]);
                for (auto& [known, value] : values_)
                    std::fprintf(stderr, "  --%s %s\n", known.c_str(), value.c_str());
                std::exit(2);
            }
            found->second = argv[i + 1];
        }
    }

    const std::string& text(const char* name) const { return values_.at(name); }
    std::int64_t integer(const char* name) const { return std::strtoll(text(name).c_str(), nullptr, 10); }
    double real(const char* name) const { return std::strtod(text(name).c_str(), nullptr); }
    bool on(const char* name) const { return text(name) == "1"; }

private:
    std::map<std::string, std::string> values_;
};

[[noreturn]] inline void die(const std::string& why) {
    std::fprintf(stderr, "%s\n", why.c_str());
    std::exit(1);
}

}  // namespace dlcp::bench
