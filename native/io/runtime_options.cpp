// The table of settings, and how a runtime's options are filled by it.
#include "io/runtime_options.hpp"

#include <algorithm>
#include <stdexcept>

namespace dlcp {

std::vector<SettingEntry> settings_table() {
    std::vector<SettingEntry> entries;
    const auto add = [&](const auto& rows, const auto& owner, SettingLayer layer) {
        for (const auto& row : rows)
            entries.push_back(
                {row.setting, layer, row.setting.none.empty() ? row.get(owner, row.setting) : SettingValue{}});
    };
    add(runtime_settings, RuntimeOptions(), SettingLayer::runtime);
    add(job_settings, JobSettings(), SettingLayer::job);
    add(endpoint_settings, EndpointConfig(), SettingLayer::endpoint);
    add(protocol_settings, EndpointConfig(), SettingLayer::protocol);
    std::stable_sort(entries.begin(), entries.end(), [](const SettingEntry& a, const SettingEntry& b) {
        return a.setting.section < b.setting.section;
    });
    return entries;
}

void set_setting(RuntimeOptions& options, std::string_view name, const SettingValue& value) {
    const auto set = [&](const auto& rows, auto& owner) {
        for (const auto& row : rows) {
            if (row.setting.name != name) continue;
            row.set(owner, row.setting, value);
            return true;
        }
        return false;
    };
    if (!set(runtime_settings, options) && !set(endpoint_settings, options.engine) &&
        !set(protocol_settings, options.engine))
        throw std::invalid_argument("no runtime has a setting " + std::string(name));
}

}  // namespace dlcp
