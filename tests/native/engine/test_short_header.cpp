// The short header: which data has it, what it saves, and what a receiver makes of one that it cannot place.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "engine/wire.hpp"
#include "native/engine/captured_pair.hpp"
#include "native/engine/pair_scenario.hpp"

namespace dlcp {
namespace {

using namespace test;

TEST_CASE("short header: header and tag are at most 3.5 % of a long message's datagrams") {
    EndpointConfig config = keyed_config();
    config.max_datagram_bytes = 1472;
    std::uint64_t data = 0, short_data = 0;
    Net net(config);
    net.connect_all();
    net.network().observe([&](const PacketRecord& record) {
        wire::Datagram d;
        if (record.fate != Fate::sent ||
            wire::parse(record.bytes, record.virtual_bytes, d) != wire::ParseError::none)
            return;
        data += wire::is_data(d.header.type);
        short_data += d.header.type == wire::Type::short_data;
        CHECK(record.bytes.size() >= wire::header_bytes);
    });
    const Counters before = net.world.endpoint(0).counters();
    net.exchange(message(8'000'000));
    net.finish();
    const Counters& after = net.world.endpoint(0).counters();
    CHECK(short_data * 100 > data * 95);
    const std::uint64_t headers = after.header_bytes_sent - before.header_bytes_sent;
    const std::uint64_t payload = after.data_bytes_sent - before.data_bytes_sent;
    CHECK(headers * 1000 <= (headers + payload) * 35);
}

TEST_CASE("short header: data of a message that nobody described is neither placed nor acknowledged") {
    EndpointConfig config = plain_config();
    config.initial_window = Bytes{100'000};
    Captured pair(config);
    pair.talk(0);
    REQUIRE(pair.endpoints[0]->established(pair.peers[0]));
    std::vector<std::uint8_t> payload(20'000, 1), buffer(payload.size());
    SendCommand send;
    send.peer = pair.peers[1];
    send.tag = 5;
    send.payload = payload.data();
    send.message_bytes = static_cast<std::uint32_t>(payload.size());
    REQUIRE(pair.endpoints[1]->send(pair.now, send));
    ReceiveCommand receive;
    receive.peer = pair.peers[0];
    receive.tag = 5;
    receive.buffer = buffer.data();
    receive.capacity_bytes = static_cast<std::uint32_t>(buffer.size());
    REQUIRE(pair.endpoints[0]->receive(pair.now, receive));

    const std::vector<Datagram> sent = pair.take(1);
    REQUIRE(sent.size() > 2);
    const auto shortened = [](const Datagram& whole) {
        wire::Datagram d;
        REQUIRE(wire::parse(whole, 0, d) == wire::ParseError::none);
        REQUIRE(d.header.type == wire::Type::data);
        wire::Header h = d.header;
        h.type = wire::Type::short_data;
        Datagram out(wire::short_header_bytes);
        wire::write(h, out.data());
        out.insert(out.end(), d.payload, d.payload + h.payload_bytes);
        return out;
    };
    const Counters& counters = pair.endpoints[0]->counters();
    pair.give(0, shortened(sent[0]));
    CHECK(counters.inconsistent == 1);
    CHECK(counters.data_bytes_placed == 0);

    pair.give(0, sent[1]);  // describes it
    CHECK(counters.data_bytes_placed > 0);

    // What was not acknowledged is repaired, by then with short headers.
    const auto over = [&] { return std::find(buffer.begin(), buffer.end(), 0) == buffer.end(); };
    for (int i = 0; i < 2000 && !over(); ++i) {
        pair.now = pair.now + milliseconds(1);
        for (std::uint32_t rank = 0; rank < 2; ++rank)
            if (pair.endpoints[rank]->next_deadline() <= pair.now) pair.endpoints[rank]->handle_timer(pair.now);
        pair.talk(0);
    }
    CHECK(over());
}

}  // namespace
}  // namespace dlcp
