// A driver that a test has opened, over any table (io/io_table.h), and what a test sends and gets with it.
//
// What a test takes for granted (that the driver opens, lends buffers, knows an address) throws std::runtime_error with
// the driver's own sentence when it does not come about, and so fails the test: a test whose subject it is calls the
// table. Nothing here waits or tries again, since how long a packet takes is known only to who opened the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/io_table.h"

namespace dlcp::test {

// What a test sends: header and tag in the driver's buffer, payload in the test's own memory.
struct Outgoing {
    std::string head = "h";
    std::string body = {};
    std::string tail = {};
    std::uint16_t path = 0;
    std::uint8_t tos = 0;
    std::uint8_t flags = 0;  // DLCP_PACKET_…, besides what the driver lends

    std::string datagram() const { return head + body + tail; }
};

// What a test gets.
struct Incoming {
    std::string datagram;
    std::uint8_t tos;
    std::uint8_t flags;  // DLCP_PACKET_…
    dlcp_address source;
};

class OpenDriver {
public:
    // `table` outlives it.
    OpenDriver(const dlcp_io_table& table, const dlcp_io_config& config);

    const dlcp_io_table& table() const { return *table_; }
    // For the table's functions. nullptr once closed.
    operator dlcp_io*() const { return io_.get(); }
    void close() { io_.reset(); }

    dlcp_address address() const;
    std::string text() const { return text_of(address()); }
    std::string text_of(const dlcp_address& address) const;
    dlcp_address resolve(const std::string& text) const;
    dlcp_io_capabilities capabilities() const;
    dlcp_io_counters counters() const;
    std::string warnings() const { return table_->warnings(io_.get()); }
    std::vector<dlcp_io_event> events() const;
    // By name; none has the name of another.
    std::map<std::string, std::uint64_t> statistics() const;

    // In one burst. How many the driver took.
    int send(const dlcp_address& to, std::span<const Outgoing> outgoing) const;
    int send(const dlcp_address& to, const std::vector<Outgoing>& outgoing) const {
        return send(to, std::span(outgoing));
    }
    // Everything that has arrived, at most `burst` packets per call; each lies in one piece.
    std::vector<Incoming> receive(int burst = 64) const;

private:
    const dlcp_io_table* table_;
    std::unique_ptr<dlcp_io, void (*)(dlcp_io*)> io_;
};

// How a driver refused to open.
struct OpenFailure {
    int result;
    std::string text;
};

OpenFailure open_failure(const dlcp_io_table& table, const dlcp_io_config& config);

// Bytes that differ from place to place and from seed to seed.
std::string pattern(std::size_t bytes, unsigned seed);

// A run: `count` packets of equal length but a shorter last one.
std::vector<Outgoing> make_run(unsigned seed, unsigned count, std::size_t body_bytes, std::uint16_t path,
                               std::uint8_t tos);

void append(std::vector<Outgoing>& to, const std::vector<Outgoing>& more);

// Datagrams with their TOS, to hold what was sent against what arrived: in their order, or in one of their own where
// packets may overtake each other.
using Contents = std::vector<std::pair<std::string, int>>;
Contents contents(const std::vector<Outgoing>& packets, bool ordered = true);
Contents contents(const std::vector<Incoming>& packets, bool ordered = true);

}  // namespace dlcp::test
