#include "io/open_driver.hpp"

#include <algorithm>
#include <cstddef>

#include "io/driver_registry.hpp"
#include "io/runtime_error.hpp"

namespace dlcp {

OpenDriver::OpenDriver(const RuntimeOptions& options)
    : table_(options.table != nullptr ? options.table : &find_driver(options.driver)) {
    if (!(options.inject_loss_ratio >= 0.0 && options.inject_loss_ratio <= 1.0))
        throw RuntimeError(
            RuntimeErrorKind::settings,
            "inject_loss_ratio is " + std::to_string(options.inject_loss_ratio) + "; accepted: 0 to 1");
    dlcp_io_config config{};
    config.bind_host = options.bind_host.empty() ? nullptr : options.bind_host.c_str();
    config.interface_name = options.interface_name.empty() ? nullptr : options.interface_name.c_str();
    config.port = options.port;
    config.paths = options.engine.paths;
    config.max_datagram_bytes = options.max_datagram_bytes;
    config.socket_buffer_bytes = options.socket_buffer_bytes;
    config.flags = options.io_flags();
    const std::string extra = extra_words(options.driver, options.driver_options);
    config.extra = extra.empty() ? nullptr : extra.c_str();
    char error[1024] = "";
    const int result = table_->open(&config, &io_, error, sizeof error);
    if (result < 0)
        throw open_refusal(-result, error, options.table != nullptr ? table_->name : options.driver,
                           options.bind_host, options.port);
    if (options.inject_loss_ratio > 0.0) {
        try {
            // By rank: every rank draws differently, and the same in the next run.
            lossy_ = std::make_unique<LossyDriver>(*table_, io_, options.inject_loss_ratio,
                                                   options.engine.rank + std::uint64_t{1});
        } catch (...) {
            table_->close(io_);
            throw;
        }
        table_ = &lossy_->table();
        io_ = lossy_->io();
    }
    table_->capabilities(io_, &capabilities_);
}

OpenDriver::~OpenDriver() { table_->close(io_); }

std::string OpenDriver::local_address() const {
    dlcp_address address{};
    table_->local_address(io_, &address);
    return format(address);
}

dlcp_address OpenDriver::resolve(const std::string& text, std::uint32_t rank) const {
    char error[512] = "";
    dlcp_address address{};
    const int result = table_->resolve(io_, text.c_str(), &address, error, sizeof error);
    if (result < 0) throw address_refusal(-result, error, text, rank);
    return address;
}

std::string OpenDriver::format(const dlcp_address& address) const {
    char text[1024] = "";
    table_->format(io_, &address, text, sizeof text);
    return text;
}

dlcp_io_counters OpenDriver::counters() const {
    dlcp_io_counters out{};
    table_->counters(io_, &out);
    return out;
}

std::vector<std::pair<std::string, std::uint64_t>> OpenDriver::statistics() const {
    if (table_->statistics == nullptr) return {};
    std::vector<dlcp_io_statistic> filled(64);
    int count = table_->statistics(io_, filled.data(), static_cast<int>(filled.size()));
    if (count > static_cast<int>(filled.size())) {
        filled.resize(static_cast<std::size_t>(count));
        count = std::min(count, table_->statistics(io_, filled.data(), count));
    }
    std::vector<std::pair<std::string, std::uint64_t>> out;
    for (int i = 0; i < count; ++i) out.emplace_back(filled[i].name, filled[i].value);
    return out;
}

}  // namespace dlcp
