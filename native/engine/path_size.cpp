// Paths that stop to carry large packets while a session is up: a changed route, a new tunnel.
//
// size_search.hpp decides; here are its packets and its clock. A test is a control packet of padding that asks for an
// acknowledgement. While a search is under way, control packets are small. Its result lowers the size of datagrams and
// the blocks of later messages; blocks that are too large by then leave in pieces (pieces.hpp). The size never grows
// again in this session: another handshake finds it anew.
#include <algorithm>

#include "engine/recovery.hpp"

namespace dlcp {

namespace {

constexpr std::uint32_t most_test_backoff = 6;

}  // namespace

void Recovery::suspect_path_size(Time now, Peer& peer) {
    SenderState& sender = peer.session->sender;
    if (sender.size_search.active() || is_trusted(peer.address)) return;
    sender.large_control = false;
    sender.size_search.start(peer.datagram_bytes, sender.sent.next());
    if (!sender.size_search.active()) return;
    sender.test_path = sender.paths.any_up(shared_.random.next());
    sender.tests_due = true;
    sender.tests_at = now + peer.rtt.timeout(shared_.config.min_rto) + shared_.config.max_ack_delay;
    shared_.queue_control(peer);
    shared_.arm(peer);
}

// The answers to this round of tests are here or lost.
void Recovery::end_size_tests(Time now, Peer& peer) {
    SenderState& sender = peer.session->sender;
    SizeSearch& search = sender.size_search;
    sender.tests_at = time_never;
    sender.tests_due = false;
    if (!search.active()) return;
    const std::uint16_t found = search.end_test_round();
    if (found != 0) return shrink_datagrams(now, peer, found);
    if (!search.active()) return;
    // Each round on one path, so that all its packets meet the same chances; another round on another path.
    sender.test_path = sender.paths.any_up(shared_.random.next());
    sender.tests_due = true;
    const Duration round = peer.rtt.timeout(shared_.config.min_rto) + shared_.config.max_ack_delay;
    sender.tests_at = now + std::min(round * (1LL << std::min(search.silent_rounds(), most_test_backoff)),
                                     std::max(shared_.config.max_rto, round));
    shared_.queue_control(peer);
}

// The path carries no more than this. What was lost was not lost to congestion, so control of it starts anew.
void Recovery::shrink_datagrams(Time now, Peer& peer, std::uint16_t datagram_bytes) {
    SenderState& sender = peer.session->sender;
    pieces_.forget(peer);  // their packet numbers were counted by the former size
    peer.datagram_bytes = datagram_bytes;
    peer.former_block_bytes = peer.block_bytes;
    peer.block_bytes = shared_.block_bytes_for(datagram_bytes);
    ++shared_.counters.datagrams_shrunk;
    for (std::uint64_t n = sender.sent.find(0); n != sender.sent.next(); n = sender.sent.find(n + 1)) {
        const SentPacket& p = sender.sent[n];
        if (!p.lost() && p.datagram_bytes() > datagram_bytes) declare_lost(peer, n, SentPacket::Loss::too_large);
    }
    sender.lost_unreported = Bytes{0};
    sender.timeouts = 0;
    sender.last_progress = now;
    sender.congestion = congestion_controllers[static_cast<std::size_t>(shared_.config.congestion)].make(
        shared_.config, datagram_bytes, peer.rtt.measured() ? peer.rtt.min() : Duration{0});
    if (sender.turn && !sender.waits()) sender.congestion->begin_turn(now, *sender.turn);  // it is still ours
    sender.pacer = Pacer{};
    shared_.refresh(peer);
    liveness_.update(now, peer);
}

}  // namespace dlcp
