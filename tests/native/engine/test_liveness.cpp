// Liveness: who owes an answer, and when it is asked for.
#include <doctest/doctest.h>

#include "support/native/engine_parts.hpp"

namespace dlcp::test {
namespace {

TEST_CASE(
    "liveness: data in flight is asked about after a timeout, a receive alone after a fifth of the silence") {
    EngineParts parts;
    Peer& peer = parts.add_established(1);
    parts.liveness.update(Time{0}, peer);
    CHECK_FALSE(peer.waiting);
    CHECK(peer.keepalive_at == time_never);
    parts.incoming.post(Time{0}, &peer, {.peer = {peer.index}, .tag = 1, .capacity_bytes = 1});
    CHECK(peer.waiting);
    CHECK(peer.session->sender.probe_at == time_never);
    CHECK(peer.keepalive_at == Time{0} + seconds(2));  // of ten at most, whatever the peer's timeout
    parts.leave(Time{0}, peer, parts.send(Time{0}, peer, 7, 1));
    parts.liveness.update(Time{0}, peer);
    const EndpointConfig& config = parts.shared.config;
    CHECK(peer.session->sender.probe_at == Time{0} + peer.rtt.timeout(config.min_rto) + config.max_ack_delay);
    CHECK(parts.shared.peer_timers.next() <= peer.session->sender.probe_at);
}

TEST_CASE("liveness: a probe repeats the cancellations that are not answered") {
    EngineParts parts;
    Peer& peer = parts.add_established(1);
    const std::uint32_t slot = parts.send(Time{0}, peer, 7, 1);
    parts.leave(Time{0}, peer, slot);
    parts.outgoing.cancel(Time{1}, parts.shared.outgoing_id(slot));
    peer.session->owed.cancel_ids.clear();  // it left
    parts.liveness.ask(peer);
    CHECK(peer.session->owed.probe);
    CHECK(peer.session->owed.cancel_ids == std::vector<std::uint32_t>{1});
}

TEST_CASE("liveness: where packets get lost without a queue, timeouts double once") {
    EngineParts parts;
    Peer& peer = parts.add_established(1);
    CHECK(parts.liveness.most_backoff(peer) == 6);
    peer.loss_share = 1 << 15;  // half of them
    CHECK(parts.liveness.most_backoff(peer) == 1);
    peer.session->sender.queue_delay = parts.shared.config.target_delay * 2;
    CHECK(parts.liveness.most_backoff(peer) == 6);
}

}  // namespace
}  // namespace dlcp::test
