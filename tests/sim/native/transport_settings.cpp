// The table of a transport's settings: what its rows take, refuse and say, and the list of transports.
#include "sim/core/transport_settings.hpp"

#include <stdexcept>

#include <doctest/doctest.h>

#include "sim/core/transport.hpp"

namespace dlcp::sim {
namespace {

enum class Colour : std::uint8_t { red, green };

struct Example {
    std::uint32_t window_packets = 30;
    std::optional<std::int64_t> rto_ps;
    double gain = 0.5;
    bool spray = false;
    Colour colour = Colour::green;

    void list(SettingsTable& table) {
        table.whole("window_packets", window_packets, 1, 100, "sent before the first pull");
        table.whole("rto_ps", rto_ps, 1000, SettingsTable::unbounded, "none: three round trips");
        table.number("gain", gain, 0, 1, "of the average");
        table.flag("spray", spray, "a path per packet");
        table.choice("colour", colour, {"red", "green"}, "of the line");
    }
};

Example example(Parameters given) {
    Example settings;
    SettingsTable table("example", std::move(given));
    settings.list(table);
    table.done();
    return settings;
}

TEST_CASE("settings table: what is not given keeps its default") {
    const Example settings = example({});
    CHECK(settings.window_packets == 30);
    CHECK_FALSE(settings.rto_ps.has_value());
    CHECK(settings.colour == Colour::green);
}

TEST_CASE("settings table: what is given is taken, ends of ranges included") {
    const Example settings =
        example({{"window_packets", 100}, {"rto_ps", 1000}, {"gain", 0}, {"spray", 1}, {"colour", 0}});
    CHECK(settings.window_packets == 100);
    CHECK(settings.rto_ps == 1000);
    CHECK(settings.gain == 0);
    CHECK(settings.spray);
    CHECK(settings.colour == Colour::red);
}

TEST_CASE("settings table: what is out of range is refused with name, value and range") {
    CHECK_THROWS_WITH_AS(example({{"window_packets", 101}}),
                         "example.window_packets is 101; accepted: whole numbers from 1 to 100",
                         std::invalid_argument);
    CHECK_THROWS_WITH(example({{"window_packets", 1.5}}),
                      "example.window_packets is 1.5; accepted: whole numbers from 1 to 100");
    CHECK_THROWS_WITH(example({{"rto_ps", 999}}), "example.rto_ps is 999; accepted: whole numbers from 1000");
    CHECK_THROWS_WITH(example({{"gain", SettingsTable::unbounded}}),
                      "example.gain is inf; accepted: numbers from 0 to 1");
    CHECK_THROWS_WITH(example({{"colour", 2}}), "example.colour is 2; accepted: 0 red, 1 green");
}

TEST_CASE("settings table: a name without a row is refused") {
    CHECK_THROWS_WITH(example({{"windows", 3}}), "transport \"example\" has no setting \"windows\"");
}

TEST_CASE("settings table: a packet that 16 bits cannot hold is refused") {
    const SettingsTable table("example", {});
    CHECK_NOTHROW(table.check_packet(65'000, 535));
    CHECK_THROWS_WITH(table.check_packet(65'000, 536),
                      "example.payload_bytes + header_bytes is 65536; accepted: at most 65535");
}

TEST_CASE("transports: every one lists its settings once, each with a sentence") {
    CHECK(TransportKind::names() ==
          std::vector<std::string>{"dcqcn", "dctcp", "dlcp", "line_rate", "ndp", "pfabric", "tcp", "uet"});
    for (const std::string& name : TransportKind::names()) {
        CAPTURE(name);
        std::map<std::string, int> seen;
        for (const TransportSetting& row : TransportKind::named(name).settings()) {
            CAPTURE(row.name);
            CHECK(++seen[row.name] == 1);
            CHECK(row.sentence.size() > 5);
            CHECK(row.minimum < row.maximum);
            if (row.otherwise) CHECK((*row.otherwise >= row.minimum && *row.otherwise <= row.maximum));
        }
    }
}

TEST_CASE("transports: an unknown name is refused with those that are known") {
    CHECK_THROWS_WITH(
        make_transport("quic", {}),
        "transport \"quic\" is unknown; accepted: dcqcn, dctcp, dlcp, line_rate, ndp, pfabric, tcp, uet");
}

}  // namespace
}  // namespace dlcp::sim
