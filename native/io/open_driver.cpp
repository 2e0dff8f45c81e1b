#include "io/open_driver.hpp"

#include "io/driver_registry.hpp"
#include "io/io_error.hpp"

namespace dlcp {

OpenDriver::OpenDriver(const RuntimeOptions& options) {
    const dlcp_io_table& table = options.table != nullptr ? *options.table : find_driver(options.driver);
    if (!(options.inject_loss_ratio >= 0.0 && options.inject_loss_ratio <= 1.0))
        throw IoError(IoErrorKind::settings,
                      "inject_loss_ratio is " + std::to_string(options.inject_loss_ratio) + "; accepted: 0 to 1");
    dlcp_io_config config{};
    config.bind_host = options.bind_host.empty() ? nullptr : options.bind_host.c_str();
    config.interface_name = options.interface_name.empty() ? nullptr : options.interface_name.c_str();
    config.port = options.port;
    config.paths = options.engine.paths;
    config.max_datagram_bytes = options.max_datagram_bytes;
    config.socket_buffer_bytes = options.socket_buffer_bytes;
    config.flags = options.io_flags();
    const std::string extra = driver_options_of(options.driver, options.driver_options);
    config.extra = extra.empty() ? nullptr : extra.c_str();
    char error[1024] = "";
    dlcp_io* io = nullptr;
    if (const int result = table.open(&config, &io, error, sizeof error); result < 0)
        throw open_refusal(-result, error, options.table != nullptr ? table.name : options.driver,
                           options.bind_host, options.port);
    if (options.inject_loss_ratio > 0.0) {
        // By rank: every rank draws differently, and the same in the next run.
        const std::uint64_t seed = options.engine.rank + std::uint64_t{1};
        lossy_ = new LossyDriver(table, io, options.inject_loss_ratio, seed);
        handle_.emplace(lossy_->table(), lossy_->io());
    } else {
        handle_.emplace(table, io);
    }
}

dlcp_address OpenDriver::resolve(const std::string& text, std::uint32_t rank) const {
    char error[512] = "";
    dlcp_address address{};
    const int result = handle_->resolve(text.c_str(), address, {error, sizeof error});
    if (result < 0) throw address_refusal(-result, error, text, rank);
    return address;
}

std::vector<std::pair<std::string, std::uint64_t>> OpenDriver::statistics() const {
    std::vector<std::pair<std::string, std::uint64_t>> out;
    for (const dlcp_io_statistic& statistic : handle_->statistics())
        out.emplace_back(statistic.name, statistic.value);
    return out;
}

}  // namespace dlcp
