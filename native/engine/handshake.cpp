// Sessions: who the peer is, that it is the peer now and not a recording, and how large its datagrams may be.
//
// Each side says hello with its fresh session id and echoes the other's. A side is established once an authentic
// packet shows that the peer has this side's current id. A hello with an id that is not the established one starts a
// candidate session under a fresh own id, adopted only when the peer proves that it has heard that one; so a replayed
// hello makes an answer and nothing else. Hellos are padded to the size they propose; each retry proposes less.
// Whoever is connecting drives the exchange with its timer; answers are not answered, but for the one that establishes
// a side, so that no two sides can keep each other talking.
#include <algorithm>
#include <cstring>

#include "engine/endpoint_impl.hpp"
#include "engine/frames.hpp"

namespace dlcp {

namespace {

// What a path may carry, largest first: this endpoint's own limit, Ethernet, IPv6's minimum, IPv4's.
constexpr std::uint16_t ethernet_datagram = 1472;
constexpr std::uint16_t ipv6_minimum_datagram = 1232;
constexpr std::uint16_t ipv4_minimum_datagram = 548;

// Hellos that keep to path 0 before the others are tried.
constexpr std::uint32_t first_path_attempts = 3;

KeyScope hello_scope(const EndpointConfig& config, std::uint32_t source, std::uint32_t destination,
                     std::uint64_t session) {
    KeyScope scope;
    scope.label = "hello";
    scope.job = config.job;
    scope.incarnation = config.incarnation;
    scope.low_rank = source;
    scope.high_rank = destination;
    scope.low_session = session;
    scope.source_rank = source;
    return scope;
}

}  // namespace

// The low 16 bits are the peer's index, so that an arriving packet finds its peer without a search.
std::uint64_t Endpoint::Impl::new_session(const Peer& peer) {
    for (;;) {
        const std::uint64_t id = (random_.next() & ~std::uint64_t{0xffff}) | peer.index;
        // Zero means "none" on the wire, in 64 bits and in 32.
        if (static_cast<std::uint32_t>(id) != 0 && id >> 16 != 0) return id;
    }
}

std::uint16_t Endpoint::Impl::hello_size(const Peer& peer) const {
    const std::uint16_t own = config_.max_datagram_bytes;
    if (peer.hello_attempts < 2 || is_trusted(peer.address)) return own;
    if (peer.hello_attempts < 4) return std::min(own, ethernet_datagram);
    if (peer.hello_attempts < 6) return std::min(own, ipv6_minimum_datagram);
    return std::min(own, ipv4_minimum_datagram);
}

void Endpoint::Impl::start_handshake(Time now, Peer& peer) {
    peer.state = Peer::State::connecting;
    peer.hello_attempts = 0;
    peer.hello_due = true;
    peer.hello_at = time_never;
    peer.last_heard = now;
    peer.datagram_bytes = config_.max_datagram_bytes;
    peer.block_bytes = own_block_bytes();
    queue_control(peer);
    update_liveness(now, peer);
    arm(peer);
}

// A new session begins: everything counted per session starts again.
void Endpoint::Impl::establish(Time now, Peer& peer, std::uint16_t datagram_bytes) {
    peer.state = Peer::State::established;
    peer.keys = SessionKeys(config_, {config_.rank, peer.rank, peer.own_session, peer.peer_session}, key_epoch_);
    peer.datagram_bytes =
        std::clamp<std::uint16_t>(datagram_bytes, ipv4_minimum_datagram, config_.max_datagram_bytes);
    peer.block_bytes = block_bytes_for(peer.datagram_bytes);
    peer.hello_due = false;
    peer.hello_at = time_never;
    peer.last_heard = now;
    peer.last_progress = now;

    peer.sent.reset();
    peer.lane_acked.assign(std::size_t{config_.paths} * wire::traffic_classes, 0);
    peer.largest_acked = 0;
    peer.queue_delay = Duration{0};
    peer.paths.reset(is_trusted(peer.address) ? 1 : config_.paths);
    peer.congestion = make_congestion_control(config_, peer.datagram_bytes);
    peer.pacer.reset();
    peer.awaiting = 0;
    peer.in_flight = peer.lost_unreported = peer.sent_total = peer.granted = Bytes{0};
    peer.credit = config_.initial_window;
    if (is_trusted(peer.address)) {
        peer.datagram_bytes = config_.channel_datagram_bytes;  // no network carries it
        peer.block_bytes = block_bytes_for(peer.datagram_bytes);
        use_channel(peer);
    }
    peer.round_end = 0;
    peer.run_left = 0;
    peer.unrequested_bytes = 0;
    peer.timeouts = 0;
    peer.outgoing_ids.reset();
    peer.backlog_told = 0;
    peer.floor_told = 1;
    peer.floor_due = false;

    peer.window.reset();
    peer.arrival_delays = ArrivalDelays();
    peer.incoming.reset();
    peer.unacked_packets = 0;
    peer.ce_received = 0;
    peer.held = 0;
    peer.ack_at = time_never;
    peer.ack_now = peer.ack_full = false;
    peer.probe_due = peer.grant_due = peer.demand_due = peer.close_due = false;
    for (auto* ids : {&peer.complete_ids, &peer.outcome_ids, &peer.refuse_ids, &peer.hold_ids, &peer.proceed_ids,
                      &peer.cancel_ids})
        ids->clear();
    peer.outcome_word = 0;
    peer.trimmed_numbers.clear();
    grants_.forget(peer.index);

    push_event({EventKind::peer_established, CommandError::none, {peer.index}, {}, 0, 0, {0}});
    // What was waiting for the session may go, except behind an earlier message of its tag.
    for (std::uint32_t slot = peer.outgoing.front(); slot != Link::none;
         slot = OutgoingList::next(outgoing_, slot))
        if (active_tags_.find(peer.index, outgoing_[slot].tag)->first == slot) enqueue(slot, false);
    update_liveness(now, peer);
    arm(peer);
}

// The peer's address is a private channel: it bounds what is in flight, and nothing paces.
void Endpoint::Impl::use_channel(Peer& peer) {
    peer.congestion = make_channel_control(config_.channel_buffer);
    peer.pacer.set(Time{0}, Rate{0}, Bytes{0}, Duration{0});
    peer.credit = config_.channel_buffer;
}

void Endpoint::Impl::adopt_candidate(Time now, Peer& peer) {
    fail_all(now, peer, CommandError::peer_restarted);
    forget_outcomes(peer);
    push_event(
        {EventKind::peer_down, CommandError::peer_restarted, {peer.index}, {}, 0, 0, now - peer.last_heard});
    peer.own_session = peer.candidate_own;
    peer.peer_session = peer.candidate_peer;
    peer.hello_number = peer.candidate_hello_number;
    peer.candidate_own = peer.candidate_peer = 0;
    peer.answer_candidate = false;
    peer.rtt = RttEstimator(config_.initial_rtt);
    establish(now, peer, std::min(peer.heard_hello_bytes, config_.max_datagram_bytes));
}

// Is this packet authentic under keys that are not in use yet? Decrypts aside, so that it can be opened again after.
bool Endpoint::Impl::proves(SessionKeys& keys, const wire::Datagram& d) {
    if ((d.tag != nullptr) != keys.present()) return false;
    if (!keys.present()) return true;
    PacketKey* key = keys.receive(config_, d.header.key_epoch);
    const std::span<const std::uint8_t> payload = d.content();
    if (d.header.flags & wire::flag::encrypted) {
        scratch_.resize(std::max(scratch_.size(), payload.size()));
        return key->decrypt(d.bytes, d.header.packet_number, payload, scratch_.data(), d.tag);
    }
    return key->verify(d.bytes, d.header.packet_number, payload, d.tag);
}

// A packet arrived ahead of the hello that should have established its session: if it is authentic it proves as much.
bool Endpoint::Impl::establish_by(Time now, Peer& peer, const wire::Datagram& d) {
    const bool candidate =
        peer.candidate_own != 0 && d.header.session == static_cast<std::uint32_t>(peer.candidate_own);
    const bool own = peer.state != Peer::State::established && !closed_ && peer.peer_session != 0 &&
                     d.header.session == static_cast<std::uint32_t>(peer.own_session);
    if ((!candidate && !own) || d.header.flags & wire::flag::trimmed) return false;
    SessionKeys keys(config_,
                     {config_.rank, peer.rank, candidate ? peer.candidate_own : peer.own_session,
                      candidate ? peer.candidate_peer : peer.peer_session},
                     key_epoch_);
    if (!proves(keys, d)) return false;
    if (candidate)
        adopt_candidate(now, peer);
    else
        establish(now, peer, peer.heard_hello_bytes);
    return true;
}

void Endpoint::Impl::handle_hello(Time now, Time arrived, const dlcp_packet& packet, const wire::Datagram& d) {
    wire::FrameReader reader(d.content());
    wire::Frame frame;
    wire::Hello hello;
    if (!reader.next(frame) || frame.type != wire::FrameType::hello || !wire::read_hello(frame, hello) ||
        hello.own_session == 0) {
        ++counters_.malformed_frames;
        return;
    }
    if (hello.destination_rank != config_.rank || d.header.source_rank == config_.rank) {
        ++counters_.foreign_job;
        return;
    }
    if (config_.job_key) {
        if (d.tag == nullptr) {
            ++counters_.unauthenticated;
            return;
        }
        const auto key = make_packet_key(
            derive_packet_key(*config_.job_key,
                              hello_scope(config_, d.header.source_rank, config_.rank, hello.own_session)),
            config_.crypto_library);
        if (!key->verify(d.bytes, d.header.packet_number, {d.payload, d.header.payload_bytes}, d.tag)) {
            ++counters_.bad_tag;
            return;
        }
    } else if (d.header.flags & wire::flag::authenticated) {
        ++counters_.unauthenticated;
        return;
    }
    if (closed_) return;
    Peer* found = find_rank(d.header.source_rank);
    if (!found) {
        if (peers_.size() >= config_.max_peers) {
            push_event({EventKind::bound_reached,
                        CommandError::too_many_peers,
                        {},
                        {},
                        0,
                        static_cast<std::uint32_t>(Bound::peers),
                        {0}});
            return;
        }
        found = &new_peer(d.header.source_rank, *packet.address);
        found->learned = true;
    }
    Peer& peer = *found;
    const std::uint64_t length = wire::header_bytes + d.header.payload_bytes + (d.tag ? wire::tag_bytes : 0);
    peer.heard_hello_bytes = static_cast<std::uint16_t>(std::min<std::uint64_t>(length, UINT16_MAX));
    const bool asks = !(hello.flags & wire::hello_flag_answer);
    // What both ends and the path carry: our hello's size if the peer says it came through, else what came here.
    const auto path_bytes = [&] {
        std::uint16_t bytes =
            hello.received_datagram_bytes != 0 ? hello.received_datagram_bytes : peer.heard_hello_bytes;
        return std::min(bytes, hello.max_datagram_bytes);
    };

    // This hello's session speaks out of this channel from now on.
    const auto note_channel = [&] {
        if (!(packet.flags & DLCP_PACKET_TRUSTED)) return;
        peer.channel = *packet.address;
        peer.channel_session = hello.own_session;
    };
    // Only a hello that proves itself fresh says how long an empty path takes.
    const auto sample_hello = [&] {
        peer.arrival_delays.sample_control(now, static_cast<std::uint32_t>(arrived.value) - d.header.timestamp_ns);
    };

    if (peer.state == Peer::State::established) {
        if (hello.own_session == peer.peer_session) {
            peer.answer_hello |= asks;
            if (packet.flags & DLCP_PACKET_TRUSTED && peer.channel_session != peer.peer_session) {
                // The session was made over the network, and here is a channel as well: it is used from now on, with the
                // session's block size, and the peer hears so before anything else that comes out of it.
                note_channel();
                peer.address = peer.channel;
                use_channel(peer);
                peer.answer_hello = true;
                refresh(peer);
            }
        } else if (peer.candidate_own != 0 && hello.own_session == peer.candidate_peer &&
                   hello.echo_session == peer.candidate_own) {
            note_channel();
            peer.address = *packet.address;
            adopt_candidate(now, peer);
            sample_hello();
            peer.answer_hello = !(hello.flags & wire::hello_flag_established) || is_trusted(peer.address);
        } else if (asks) {
            if (hello.own_session != peer.candidate_peer) {
                peer.candidate_peer = hello.own_session;
                peer.candidate_own = new_session(peer);
                peer.candidate_hello_number = 0;
            }
            peer.answer_candidate = true;
        }
    } else {
        peer.peer_session = hello.own_session;
        note_channel();
        if (hello.echo_session == peer.own_session) {
            const bool timed = peer.state == Peer::State::connecting && peer.hello_attempts == 1;
            if (peer.state != Peer::State::connecting) peer.rtt = RttEstimator(config_.initial_rtt);
            if (timed) peer.rtt.sample(now - peer.hello_sent_at);
            peer.address = peer.channel_session == peer.peer_session ? peer.channel : *packet.address;
            establish(now, peer, path_bytes());
            sample_hello();
            // Into a channel always: what comes out of it after a hello needs no tag (authentic()).
            peer.answer_hello |= !(hello.flags & wire::hello_flag_established) || is_trusted(peer.address);
        }
        peer.answer_hello |= asks;
    }
    if (peer.answer_hello || peer.answer_candidate) {
        const bool into_channel =
            peer.state == Peer::State::established && !peer.answer_candidate && is_trusted(peer.address);
        peer.answer_address = into_channel ? peer.address : *packet.address;
        queue_control(peer);
    }
    arm(peer);
}

void Endpoint::Impl::write_hello(Time now, Peer& peer, bool candidate, dlcp_packet& slot) {
    const std::uint64_t own = candidate ? peer.candidate_own : peer.own_session;
    const bool keyed = config_.job_key.has_value();
    // An answer is as long as what it answers, so that both directions are tried at that size.
    std::uint16_t size = peer.state == Peer::State::connecting && !peer.answer_hello
                             ? hello_size(peer)
                             : std::min(std::max<std::uint16_t>(peer.heard_hello_bytes, ipv4_minimum_datagram),
                                        config_.max_datagram_bytes);
    wire::Header h;
    h.type = wire::Type::hello;
    h.flags = keyed ? wire::flag::authenticated : 0;
    h.traffic_class = wire::control_class;
    h.job = config_.job;
    h.source_rank = config_.rank;
    const std::uint64_t theirs = candidate ? peer.candidate_peer : peer.peer_session;
    h.session = static_cast<std::uint32_t>(theirs);
    h.timestamp_ns = static_cast<std::uint32_t>(now.value);
    h.packet_number = candidate ? peer.candidate_hello_number++ : peer.hello_number++;
    // Path 0 first: its source address is the one that this endpoint is known by, and the peer learns it here.
    if (peer.state == Peer::State::established)
        h.path = peer.paths.any_up(random_.next());
    else if (peer.hello_attempts > first_path_attempts)
        h.path = static_cast<std::uint16_t>(peer.hello_attempts % config_.paths);
    const std::size_t room = size - wire::header_bytes - (keyed ? wire::tag_bytes : 0);
    wire::FrameWriter writer(slot.head + wire::header_bytes, room);
    wire::Hello hello;
    hello.own_session = own;
    hello.echo_session = theirs;
    hello.destination_rank = peer.rank;
    hello.max_datagram_bytes = config_.max_datagram_bytes;
    hello.received_datagram_bytes = peer.heard_hello_bytes;
    hello.flags = (!candidate && peer.state == Peer::State::established ? wire::hello_flag_established : 0) |
                  (candidate || peer.answer_hello ? wire::hello_flag_answer : 0);
    wire::write_hello(writer, hello);
    if (writer.room() >= wire::frame_prefix_bytes) writer.put_padding(writer.room());
    h.payload_bytes = static_cast<std::uint16_t>(writer.size());
    wire::write(h, slot.head);

    slot.head_bytes = static_cast<std::uint32_t>(wire::header_bytes + writer.size());
    slot.body = nullptr;
    slot.body_bytes = 0;
    slot.tail_bytes = 0;
    slot.address = candidate || peer.answer_hello ? &peer.answer_address : &peer.address;
    slot.path = h.path;
    slot.tos = static_cast<std::uint8_t>(config_.dscp[wire::control_class] << 2);
    slot.flags = 0;
    if (keyed) {
        const auto key = make_packet_key(
            derive_packet_key(*config_.job_key, hello_scope(config_, config_.rank, peer.rank, own)),
            config_.crypto_library);
        key->authenticate(slot.head, h.packet_number, {slot.head + wire::header_bytes, writer.size()},
                          slot.head + slot.head_bytes);
        slot.tail_bytes = wire::tag_bytes;
    }
    ++counters_.control_packets_sent;
    counters_.control_bytes_sent += writer.size();
    counters_.header_bytes_sent += wire::header_bytes + slot.tail_bytes;
}

}  // namespace dlcp
