#include "support/native/open_driver.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace dlcp::test {

namespace {

dlcp_io* open(const dlcp_io_table& table, const dlcp_io_config& config) {
    char text[1024] = "";
    dlcp_io* io = nullptr;
    const int result = table.open(&config, &io, text, sizeof text);
    if (result != 0) throw std::runtime_error("open: " + std::to_string(result) + " " + text);
    return io;
}

Contents arranged(Contents contents, bool ordered) {
    if (!ordered) std::sort(contents.begin(), contents.end());
    return contents;
}

}  // namespace

OpenDriver::OpenDriver(const dlcp_io_table& table, const dlcp_io_config& config)
    : table_(&table), io_(open(table, config), table.close) {}

dlcp_address OpenDriver::address() const {
    dlcp_address out;
    table_->local_address(*this, &out);
    return out;
}

std::string OpenDriver::text_of(const dlcp_address& address) const {
    char out[256];
    table_->format(*this, &address, out, sizeof out);
    return out;
}

dlcp_address OpenDriver::resolve(const std::string& text) const {
    dlcp_address out = {};
    char error[512] = "";
    const int result = table_->resolve(*this, text.c_str(), &out, error, sizeof error);
    if (result != 0) throw std::runtime_error("resolve: " + std::to_string(result) + " " + error);
    return out;
}

dlcp_io_capabilities OpenDriver::capabilities() const {
    dlcp_io_capabilities out;
    table_->capabilities(*this, &out);
    return out;
}

dlcp_io_counters OpenDriver::counters() const {
    dlcp_io_counters out;
    table_->counters(*this, &out);
    return out;
}

std::vector<dlcp_io_event> OpenDriver::events() const {
    if (table_->events == nullptr) return {};
    std::vector<dlcp_io_event> out(64);
    out.resize(static_cast<std::size_t>(table_->events(*this, out.data(), 64)));
    return out;
}

std::map<std::string, std::uint64_t> OpenDriver::statistics() const {
    if (table_->statistics == nullptr) return {};
    std::vector<dlcp_io_statistic> all(static_cast<std::size_t>(table_->statistics(*this, nullptr, 0)));
    table_->statistics(*this, all.data(), static_cast<int>(all.size()));
    std::map<std::string, std::uint64_t> out;
    for (const dlcp_io_statistic& statistic : all) {
        if (!out.emplace(statistic.name, statistic.value).second)
            throw std::runtime_error(std::string("two statistics are ") + statistic.name);
    }
    return out;
}

int OpenDriver::send(const dlcp_address& to, std::span<const Outgoing> outgoing) const {
    std::vector<dlcp_packet> packets(outgoing.size());
    const int count = static_cast<int>(packets.size());
    const int lent = table_->tx_get(*this, packets.data(), count);
    if (lent != count) {
        throw std::runtime_error("tx_get lent " + std::to_string(lent) + " of " + std::to_string(count) +
                                 " buffers");
    }
    for (std::size_t i = 0; i < packets.size(); ++i) {
        const Outgoing& from = outgoing[i];
        memcpy(packets[i].head, from.head.data(), from.head.size());
        memcpy(packets[i].head + from.head.size(), from.tail.data(), from.tail.size());
        packets[i].head_bytes = static_cast<std::uint32_t>(from.head.size());
        packets[i].tail_bytes = static_cast<std::uint32_t>(from.tail.size());
        packets[i].body = reinterpret_cast<const std::uint8_t*>(from.body.data());
        packets[i].body_bytes = static_cast<std::uint32_t>(from.body.size());
        packets[i].path = from.path;
        packets[i].tos = from.tos;
        packets[i].flags |= from.flags;
        packets[i].address = &to;
    }
    return table_->tx_put(*this, packets.data(), count);
}

std::vector<Incoming> OpenDriver::receive(int burst) const {
    std::vector<Incoming> out;
    std::vector<dlcp_packet> packets(static_cast<std::size_t>(burst));
    while (const int count = table_->rx(*this, packets.data(), burst)) {
        if (count < 0) throw std::runtime_error("rx: " + std::to_string(count));
        for (int i = 0; i < count; ++i) {
            const dlcp_packet& packet = packets[static_cast<std::size_t>(i)];
            if (packet.body_bytes != 0) throw std::runtime_error("rx: a packet in two pieces");
            out.push_back({std::string(reinterpret_cast<const char*>(packet.head), packet.head_bytes), packet.tos,
                           packet.flags, *packet.address});
        }
        table_->rx_done(*this, packets.data(), count);
    }
    return out;
}

OpenFailure open_failure(const dlcp_io_table& table, const dlcp_io_config& config) {
    char text[1024] = "";
    dlcp_io* io = nullptr;
    const int result = table.open(&config, &io, text, sizeof text);
    if (io != nullptr) {
        table.close(io);
        throw std::runtime_error("opened, and should have been refused");
    }
    return {result, text};
}

std::string pattern(std::size_t bytes, unsigned seed) {
    std::string out(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>(seed * 31 + i * 7 + i / 251);
    return out;
}

std::vector<Outgoing> make_run(unsigned seed, unsigned count, std::size_t body_bytes, std::uint16_t path,
                               std::uint8_t tos) {
    std::vector<Outgoing> out;
    for (unsigned i = 0; i < count; ++i) {
        out.push_back({.head = pattern(64, seed + i),
                       .body = pattern(i + 1 == count ? body_bytes / 2 : body_bytes, seed + i + 1000),
                       .tail = pattern(16, seed + i + 2000),
                       .path = path,
                       .tos = tos});
    }
    return out;
}

void append(std::vector<Outgoing>& to, const std::vector<Outgoing>& more) {
    to.insert(to.end(), more.begin(), more.end());
}

Contents contents(const std::vector<Outgoing>& packets, bool ordered) {
    Contents out;
    for (const Outgoing& packet : packets) out.emplace_back(packet.datagram(), packet.tos);
    return arranged(std::move(out), ordered);
}

Contents contents(const std::vector<Incoming>& packets, bool ordered) {
    Contents out;
    for (const Incoming& packet : packets) out.emplace_back(packet.datagram, packet.tos);
    return arranged(std::move(out), ordered);
}

}  // namespace dlcp::test
