// The table of EAL options that are known, and the reading of a command line of them.
#include "io/dpdk/eal_arguments.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <initializer_list>
#include <string_view>

namespace dlcp::dpdk {
namespace {

struct Option {
    std::string_view name;
    char letter;
    bool takes_value;
};

// DPDK Programmer's Guide, "EAL parameters" (22.11 to 25.11). An option that is not here is refused: from 25.11 on DPDK
// ends the process over one that it does not know.
constexpr std::array options{
    Option{"allow", 'a', true},
    Option{"base-virtaddr", 0, true},
    Option{"block", 'b', true},
    Option{"coremask", 'c', true},
    Option{"create-uio-dev", 0, false},
    Option{"driver-path", 'd', true},
    Option{"file-prefix", 0, true},
    Option{"force-max-simd-bitwidth", 0, true},
    Option{"help", 'h', false},
    Option{"huge-dir", 0, true},
    Option{"huge-unlink", 0, false},
    Option{"huge-worker-stack", 0, false},
    Option{"in-memory", 0, false},
    Option{"iova-mode", 0, true},
    Option{"lcores", 0, true},
    Option{"legacy-mem", 0, false},
    Option{"log-color", 0, false},
    Option{"log-level", 0, true},
    Option{"log-timestamp", 0, false},
    Option{"main-lcore", 0, true},
    Option{"match-allocations", 0, false},
    Option{"mbuf-pool-ops-name", 0, true},
    Option{"memory-channels", 'n', true},
    Option{"memory-ranks", 'r', true},
    Option{"memory-size", 'm', true},
    Option{"no-hpet", 0, false},
    Option{"no-huge", 0, false},
    Option{"no-pci", 0, false},
    Option{"no-shconf", 0, false},
    Option{"no-telemetry", 0, false},
    Option{"numa-limit", 0, true},
    Option{"numa-mem", 0, true},
    Option{"proc-type", 0, true},
    Option{"remap-lcore-ids", 'R', false},
    Option{"service-corelist", 'S', true},
    Option{"service-coremask", 's', true},
    Option{"single-file-segments", 0, false},
    Option{"socket-limit", 0, true},
    Option{"socket-mem", 0, true},
    Option{"syslog", 0, true},
    Option{"telemetry", 0, false},
    Option{"trace", 0, true},
    Option{"trace-bufsz", 0, true},
    Option{"trace-dir", 0, true},
    Option{"trace-mode", 0, true},
    Option{"vdev", 0, true},
    Option{"version", 'v', false},
    Option{"vfio-intr", 0, true},
    Option{"vfio-vf-token", 0, true},
    Option{"vmware-tsc-map", 0, false},
    Option{"", 'l', true},
};

// The option that a word beginning with a dash names; nullptr: none that we know.
const Option* find_option(std::string_view word) {
    const bool is_long = word.starts_with("--");
    const std::string_view name = is_long ? word.substr(2, word.find('=') - 2) : std::string_view{};
    for (const Option& option : options) {
        if (is_long ? !name.empty() && option.name == name : option.letter == word[1]) return &option;
    }
    return nullptr;
}

bool is_option(std::string_view word) { return word.size() > 1 && word[0] == '-'; }

// Whether an option's value is the next word.
bool value_follows(const Option& option, std::string_view word) {
    if (!option.takes_value) return false;
    return word.starts_with("--") ? word.find('=') == std::string_view::npos : word.size() == 2;
}

// Calls `visit(option or nullptr, word, value)` for each argument. nullptr: of no option, or of one that is not known.
template <typename Visit>
int for_each_argument(const Arguments& arguments, Visit visit) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const std::string& word = arguments[i];
        if (!is_option(word)) {
            if (const int rc = visit(nullptr, word, std::string_view{}); rc < 0) return rc;
            continue;
        }
        const Option* option = find_option(word);
        std::string_view value;
        if (option != nullptr && value_follows(*option, word)) {
            if (i + 1 < arguments.size()) value = arguments[++i];
        } else if (const std::size_t equals = word.find('=');
                   equals != std::string::npos && word.starts_with("--")) {
            value = std::string_view(word).substr(equals + 1);
        }
        if (const int rc = visit(option, word, value); rc < 0) return rc;
    }
    return 0;
}

bool has_any(const Arguments& arguments, std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return has_option(arguments, name); });
}

// "0-3,8".
std::string cpu_ranges(const std::vector<unsigned>& cpus) {
    std::string text;
    for (std::size_t i = 0; i < cpus.size();) {
        std::size_t last = i;
        while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
        text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
        if (last > i) text += "-" + std::to_string(cpus[last]);
        i = last + 1;
    }
    return text;
}

}  // namespace

int split_arguments(const std::string& text, Arguments& out, ErrorText error) {
    out.clear();
    std::string word;
    bool in_word = false;
    char quote = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        const bool is_blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
        if (quote == 0 && is_blank) {
            if (in_word) out.push_back(std::move(word));
            word.clear();
            in_word = false;
            continue;
        }
        in_word = true;
        if (quote == 0 && (c == '\'' || c == '"')) {
            quote = c;
        } else if (c == quote) {
            quote = 0;
        } else if (c == '\\' && quote != '\'' && i + 1 < text.size() &&
                   (quote == 0 || text[i + 1] == '"' || text[i + 1] == '\\')) {
            word += text[++i];
        } else {
            word += c;
        }
    }
    if (quote != 0) return error.fail(EDOM, "EAL arguments: a quote %c is not closed: %s", quote, text.c_str());
    if (in_word) out.push_back(std::move(word));
    return 0;
}

std::string join_arguments(const Arguments& arguments) {
    std::string text;
    for (const std::string& word : arguments) {
        if (!text.empty()) text += ' ';
        if (!word.empty() && word.find_first_of(" \t\r\n'\"\\") == std::string::npos) {
            text += word;
            continue;
        }
        text += '\'';
        for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
        text += '\'';
    }
    return text;
}

bool has_option(const Arguments& arguments, const std::string& long_name, char letter) {
    bool found = false;
    for_each_argument(arguments, [&](const Option* option, std::string_view, std::string_view) {
        found |= option != nullptr && ((!option->name.empty() && option->name == long_name) ||
                                       (letter != 0 && option->letter == letter));
        return 0;
    });
    return found;
}

int check_arguments(const Arguments& arguments, ErrorText error) {
    return for_each_argument(arguments, [&](const Option* option, std::string_view word, std::string_view value) {
        const std::string text(word);
        if (option == nullptr) {
            return error.fail(
                EDOM,
                is_option(word) ? "EAL arguments: unrecognized option '%s'; dlcp knows those of DPDK 22.11 to 25.11"
                                : "EAL arguments: '%s' belongs to no option",
                text.c_str());
        }
        if (option->name == "help" || (option->name == "log-level" && value == "help")) {
            return error.fail(
                EDOM,
                "EAL arguments: %s would end the process; see \"EAL parameters\" in DPDK's guide, or run "
                "dpdk-testpmd --help",
                text.c_str());
        }
        const bool value_is_joined = option->letter != 0 && !word.starts_with("--") && word.size() > 2;
        if (option->takes_value && value.empty() && !value_is_joined) {
            return error.fail(EDOM, "EAL arguments: %s needs a value", text.c_str());
        }
        const bool is_number = value.find_first_not_of("0123456789") == std::string_view::npos;
        if (option->letter == 'm' && !value.empty() && !is_number) {
            return error.fail(EDOM, "EAL arguments: -m %s: it is a number of megabytes",
                              std::string(value).c_str());
        }
        return 0;
    });
}

Arguments added_arguments(const Arguments& arguments, const std::vector<unsigned>& cpus) {
    Arguments added;
    const bool has_lcores = has_option(arguments, "lcores") || has_option(arguments, "", 'l') ||
                            has_option(arguments, "", 'c') || has_option(arguments, "main-lcore");
    if (!has_lcores && !cpus.empty()) added.push_back("--lcores=0@(" + cpu_ranges(cpus) + ")");
    // Whoever names a place for files, shares them with a secondary process, or wants the old memory layout, which has
    // files, decides all of this himself.
    if (!has_any(arguments, {"file-prefix", "in-memory", "huge-dir", "huge-unlink", "proc-type", "no-shconf",
                             "legacy-mem"})) {
        added.emplace_back(has_option(arguments, "no-huge") ? "--no-shconf" : "--in-memory");
    }
    if (!has_any(arguments, {"telemetry", "no-telemetry"})) added.emplace_back("--no-telemetry");
    return added;
}

}  // namespace dlcp::dpdk
