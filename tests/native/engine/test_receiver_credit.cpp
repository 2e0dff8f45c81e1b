// ReceiverCredit: the receive buffer is shared by those who send.
#include <doctest/doctest.h>

#include "support/native/engine_parts.hpp"

namespace dlcp::test {
namespace {

TEST_CASE("receiver credit: recent senders share the buffer, and one that falls silent leaves its share") {
    EngineParts parts;
    Peer& one = parts.add_established(1);
    Peer& two = parts.add_established(2);
    const Bytes buffer = parts.shared.config.receive_buffer;
    one.last_data_at = two.last_data_at = Time{0};
    CHECK(parts.credit.allowed(Time{0}, one).bytes == buffer);
    CHECK(parts.credit.one_sender());
    CHECK(parts.credit.allowed(Time{0}, two).bytes == buffer / 2);
    CHECK(parts.credit.allowed(Time{0}, one).bytes == buffer / 2);
    CHECK_FALSE(parts.credit.one_sender());
    const Time later = Time{0} + seconds(1);
    one.last_data_at = later;
    CHECK(parts.credit.allowed(later, one).bytes == buffer);
    CHECK_FALSE(parts.credit.allowed(later, one).turn);
}

TEST_CASE("receiver credit: a channel's capacity is not shared, and a share is two datagrams at least") {
    EndpointConfig config;
    config.receive_buffer = Bytes{config.max_datagram_bytes};
    EngineParts parts(config);
    Peer& network = parts.add_established(1);
    Peer& channel = parts.add_established(2);
    channel.address.flags |= DLCP_ADDRESS_TRUSTED;
    CHECK(parts.credit.allowed(Time{0}, channel).bytes == config.channel_buffer);
    CHECK(parts.credit.one_sender());
    CHECK(parts.credit.allowed(Time{0}, network).bytes == Bytes{2u * config.max_datagram_bytes});
}

}  // namespace
}  // namespace dlcp::test
