#include "io/driver_handle.hpp"

namespace dlcp {

dlcp_io_capabilities DriverHandle::capabilities() const {
    dlcp_io_capabilities out{};
    table_->capabilities(io_, &out);
    return out;
}

std::string DriverHandle::format(const dlcp_address& address) const {
    char text[1024] = "";  // as many addresses as a driver has ports
    table_->format(io_, &address, text, sizeof text);
    return text;
}

dlcp_address DriverHandle::local_address() const {
    dlcp_address out{};
    table_->local_address(io_, &out);
    return out;
}

dlcp_io_counters DriverHandle::counters() const {
    dlcp_io_counters out{};
    table_->counters(io_, &out);
    return out;
}

std::vector<dlcp_io_statistic> DriverHandle::statistics() const {
    if (table_->statistics == nullptr) return {};
    std::vector<dlcp_io_statistic> out(64);
    for (;;) {
        const auto count =
            static_cast<std::size_t>(table_->statistics(io_, out.data(), static_cast<int>(out.size())));
        const bool all = count <= out.size();
        out.resize(count);
        if (all) return out;
    }
}

}  // namespace dlcp
