// How the text of a variable becomes the value of a setting.
#include "nccl/environment.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

namespace dlcp::nccl {
namespace {

std::string mapped(std::string_view text, int (*map)(int)) {
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(),
                   [&](unsigned char letter) { return static_cast<char>(map(letter)); });
    return out;
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
    Number number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return number;
}

template <class Number>
std::optional<SettingValue> number_within(std::string_view text, const Accepted& accepted) {
    const auto number = number_of<Number>(text);
    if (!number) return std::nullopt;
    const auto value = static_cast<double>(*number);
    const bool high_enough = accepted.above ? value > accepted.low : value >= accepted.low;
    if (!high_enough || !(value <= accepted.high)) return std::nullopt;
    return *number;
}

std::optional<SettingValue> boolean_of(const std::string& word) {
    for (const char* yes : {"1", "true", "yes", "on"})
        if (word == yes) return true;
    for (const char* no : {"0", "false", "no", "off"})
        if (word == no) return false;
    return std::nullopt;
}

std::optional<SettingValue> choice_of(const std::string& word, std::string_view words) {
    for (std::size_t index = 0; !choice_at(words, index).empty(); ++index)
        if (choice_at(words, index) == word) return word;
    return std::nullopt;
}

std::optional<SettingValue> codes_of(std::string_view text) {
    ClassCodes codes{};
    for (std::size_t i = 0; i < codes.size(); ++i) {
        const std::string_view word = text.substr(0, text.find(','));
        const auto code = number_of<std::uint8_t>(word);
        if (!code || *code > 63 || (word.size() == text.size()) != (i + 1 == codes.size())) return std::nullopt;
        codes[i] = *code;
        text.remove_prefix(std::min(text.size(), word.size() + 1));
    }
    return codes;
}

// A ratio may be said in percent, as Python's reader of the environment takes it.
std::optional<SettingValue> fraction_within(std::string_view text, const Accepted& accepted) {
    if (!text.ends_with('%')) return number_within<double>(text, accepted);
    const auto percent = number_of<double>(text.substr(0, text.size() - 1));
    if (!percent) return std::nullopt;
    const double value = *percent / 100;
    return value >= accepted.low && value <= accepted.high ? std::optional<SettingValue>{value} : std::nullopt;
}

// nullopt: it will not do.
std::optional<SettingValue> value_of(const Setting& setting, const std::string& text) {
    const std::string word = mapped(text, std::tolower);
    if (!setting.none.empty() && word == setting.none) return SettingValue{};
    switch (setting.accepted.kind) {
        case SettingKind::boolean: return boolean_of(word);
        case SettingKind::integer: return number_within<std::int64_t>(text, setting.accepted);
        case SettingKind::number:
            return std::string_view(setting.name).ends_with("_ratio")
                       ? fraction_within(text, setting.accepted)
                       : number_within<double>(text, setting.accepted);
        case SettingKind::class_codes: return codes_of(text);
        case SettingKind::choice: return choice_of(word, setting.accepted.words);
        default: return text;
    }
}

std::string accepted_by(const Setting& setting) {
    const Accepted& accepted = setting.accepted;
    if (!accepted.words.empty()) return std::string(accepted.words);
    const auto shown = [](double number) {
        std::string text = std::to_string(number);
        text.erase(text.find_last_not_of('0') + 1);
        if (text.ends_with('.')) text.pop_back();
        return text;
    };
    switch (accepted.kind) {
        case SettingKind::boolean: return "true or false";
        case SettingKind::class_codes: return "8 integers from 0 to 63, with commas";
        default: return (accepted.above ? "above " : "") + shown(accepted.low) + " to " + shown(accepted.high);
    }
}

}  // namespace

RuntimeOptions options_from_environment() {
    RuntimeOptions options;
    for (const SettingEntry& entry : settings_table()) {
        if (entry.layer == SettingLayer::job || entry.setting.accepted.kind == SettingKind::secret) continue;
        const std::string variable = "DLCP_" + mapped(entry.setting.name, std::toupper);
        const char* text = std::getenv(variable.c_str());
        if (text == nullptr) continue;
        const auto value = value_of(entry.setting, text);
        if (!value)
            throw std::invalid_argument(variable + " is " + text + "; accepted: " + accepted_by(entry.setting));
        set_setting(options, entry.setting.name, *value);
    }
    return options;
}

}  // namespace dlcp::nccl
