#include "engine/sessions.hpp"

#include <algorithm>

#include "engine/datagram_sizes.hpp"
#include "engine/packet_builder.hpp"

namespace dlcp {

namespace {

// Hellos of this endpoint's own limit before the ladder: the first may have come before the peer listens.
constexpr std::uint32_t largest_attempts = 2;

// Half around the earth in glass and back, and as much for detours: no hello is answered later.
constexpr Duration longest_plausible = milliseconds(400);

// Within a peer's time-out so many ladders leave at least: at 30 % loss half of them are in vain.
constexpr std::int64_t least_ladders = 20;
// A ladder is followed by a longer pause, so that the hellos of many peers do not fill a slow link and delay themselves.
constexpr std::int64_t hello_bytes_per_interval = 4096;

// Hellos that use path 0 before other paths are tried.
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

std::unique_ptr<PacketKey> hello_key(const EndpointConfig& config, std::uint32_t source, std::uint32_t destination,
                                     std::uint64_t session) {
    return make_packet_key(derive_packet_key(*config.job_key, hello_scope(config, source, destination, session)),
                           config.crypto_library);
}

}  // namespace

// The low 16 bits are the peer's index, so that an arriving packet finds its peer without a search.
std::uint64_t Sessions::new_session(const Peer& peer) {
    for (;;) {
        const std::uint64_t id = (shared_.random.next() & ~std::uint64_t{0xffff}) | peer.index;
        // Zero means "none" on the wire, in 64 bits and in 32.
        if (static_cast<std::uint32_t>(id) != 0 && id >> 16 != 0) return id;
    }
}

Peer& Sessions::new_peer(std::uint32_t rank, const dlcp_address& address) {
    auto peer = std::make_unique<Peer>();
    peer->index = static_cast<std::uint32_t>(shared_.peers.size());
    peer->rank = rank;
    peer->address = address;
    peer->handshake.own_session = new_session(*peer);
    peer->datagram_bytes = shared_.config.max_datagram_bytes;
    peer->block_bytes = peer->former_block_bytes = shared_.own_block_bytes();
    shared_.peers.push_back(std::move(peer));
    return *shared_.peers.back();
}

// The size of the next hello of this attempt: `rung` 0 is this endpoint's own limit. 0: the attempt has no more.
std::uint16_t Sessions::hello_size(const Peer& peer, std::uint32_t rung) const {
    const std::uint16_t own = shared_.config.max_datagram_bytes;
    if (rung == 0) return own;
    if (peer.handshake.attempts < largest_attempts || is_trusted(peer.address)) return 0;
    for (const std::uint16_t size : datagram_ladder)
        if (size < own && --rung == 0) return size;
    return 0;
}

void Sessions::start(Time now, Peer& peer) {
    peer.state.apply(PeerState::Event::connect);
    peer.handshake.attempts = peer.handshake.rung = 0;
    peer.handshake.sent_at.clear();
    peer.handshake.due = true;
    peer.handshake.at = time_never;
    peer.last_heard = now;
    peer.datagram_bytes = shared_.config.max_datagram_bytes;
    peer.block_bytes = peer.former_block_bytes = shared_.own_block_bytes();
    shared_.queue_control(peer);
    liveness_.update(now, peer);
    shared_.arm(peer);
}

// The session starts; everything counted per session starts with it.
void Sessions::establish(Time now, Peer& peer, std::uint16_t datagram_bytes) {
    const bool private_channel = is_trusted(peer.address);
    peer.state.apply(peer.session ? PeerState::Event::replace : PeerState::Event::prove);
    peer.datagram_bytes = private_channel ? shared_.config.channel_datagram_bytes  // no network carries it
                                          : std::clamp<std::uint16_t>(datagram_bytes, least_datagram,
                                                                      shared_.config.max_datagram_bytes);
    peer.block_bytes = peer.former_block_bytes = shared_.block_bytes_for(peer.datagram_bytes);
    peer.handshake.due = false;
    peer.handshake.at = time_never;
    peer.last_heard = now;
    peer.ended_by = CommandError::none;

    pieces_.forget(peer);  // of a session before
    Session& session = peer.session.emplace();
    session.keys = SessionKeys(shared_.config,
                               {shared_.config.rank, peer.rank, peer.handshake.own_session,
                                peer.handshake.peer_session, peer.handshake.peer_ciphers},
                               shared_.key_epoch);
    SenderState& sender = session.sender;
    sender.last_progress = now;
    sender.lane_acked_end.assign(std::size_t{shared_.config.paths} * wire::traffic_classes, 0);
    sender.paths.reset(private_channel ? 1 : shared_.config.paths);
    sender.run_length = private_channel
                            ? RunLength(shared_.config.run_packets, shared_.config.run_packets)
                            : RunLength(shared_.config.min_run_packets,
                                        std::min<std::uint32_t>(shared_.config.run_packets,
                                                                RunLength::longest_bytes / peer.datagram_bytes));
    if (private_channel)
        use_channel(peer);
    else
        sender.congestion = congestion_controllers[static_cast<std::size_t>(shared_.config.congestion)].make(
            shared_.config, peer.datagram_bytes, peer.rtt.measured() ? peer.rtt.min() : Duration{0});
    // Until the peer says what it can buffer: a share of as much as here, for others send to it as well.
    constexpr std::uint64_t likely_senders = 8;
    if (!private_channel)
        sender.credit =
            std::max(shared_.config.initial_window,
                     std::min(sender.congestion->window(), shared_.config.receive_buffer / likely_senders));
    credit_.forget(peer);

    shared_.push_event({.kind = EventKind::peer_established, .peer = {peer.index}});
    outgoing_.start_all(peer);
    liveness_.update(now, peer);
    shared_.arm(peer);
}

// The peer's address is a private channel: the channel's capacity bounds what is in flight, and nothing paces.
void Sessions::use_channel(Peer& peer) {
    SenderState& sender = peer.session->sender;
    sender.congestion = make_channel_control(shared_.config.channel_buffer);
    sender.pacer.set(Time{0}, Rate{0}, Bytes{0}, Duration{0});
    sender.credit = shared_.config.channel_buffer;
    sender.turn.reset();
    sender.turn_until = time_never;
    credit_.forget(peer);
    sender.size_search = {};  // of the network that the session leaves
    sender.tests_due = false;
    sender.tests_at = time_never;
}

void Sessions::adopt_candidate(Time now, Peer& peer) {
    fail_all(now, peer, CommandError::peer_restarted);
    incoming_.forget_outcomes(peer);
    shared_.push_event({.kind = EventKind::peer_down,
                        .error = CommandError::peer_restarted,
                        .peer = {peer.index},
                        .waited = now - peer.last_heard});
    const HandshakeState::Candidate adopted = *peer.handshake.candidate;
    peer.handshake.own_session = adopted.own_session;
    peer.handshake.peer_session = adopted.peer_session;
    peer.handshake.peer_ciphers = adopted.peer_ciphers;
    peer.handshake.next_number = adopted.next_number;
    peer.handshake.candidate.reset();
    peer.rtt = RttEstimator(shared_.config.initial_rtt);
    establish(now, peer, std::min(peer.heard_hello_bytes, shared_.config.max_datagram_bytes));
}

void Sessions::fail_all(Time now, Peer& peer, CommandError error) {
    // Failing the first message of a tag must not start the next one.
    peer.failing = true;
    while (!peer.outgoing.empty()) outgoing_.finish(now, peer.outgoing.front(), error);
    while (!peer.posted.empty()) incoming_.finish(now, peer.posted.front(), error);
    peer.failing = false;
}

void Sessions::peer_down(Time now, Peer& peer, CommandError error) {
    fail_all(now, peer, error);
    if (error != CommandError::peer_timeout) peer.ended_by = error;
    shared_.push_event(
        {.kind = EventKind::peer_down, .error = error, .peer = {peer.index}, .waited = now - peer.last_heard});
    end(now, peer);
}

// The peer may return with another session, and so may this endpoint.
void Sessions::end(Time now, Peer& peer) {
    if (peer.session) {
        pieces_.forget(peer);
        peer.failing = true;
        incoming_.end_active(now, peer);  // that began to arrive while the goodbye was due
        incoming_.forget_outcomes(peer);
        outgoing_.suspend_all(peer);
        peer.session.reset();
        peer.failing = false;
    }
    peer.state.apply(PeerState::Event::end);
    peer.handshake = HandshakeState{};
    peer.handshake.own_session = new_session(peer);
    credit_.forget(peer);
    liveness_.update(now, peer);
}

void Sessions::disconnect(Time now, Peer& peer) {
    if (peer.up()) incoming_.answer_again(peer);
    fail_all(now, peer, CommandError::closed);
    if (peer.up()) {
        peer.session->owed.close = true;
        shared_.queue_control(peer);
    }
    peer.handshake.due = false;
    peer.handshake.at = time_never;
    if (peer.state == PeerState::State::connecting) peer.state.apply(PeerState::Event::stop);
    liveness_.update(now, peer);
}

// Whether this packet is authentic under keys that are not in use yet. Decrypts into scratch memory, so that the packet
// can be opened again.
bool Sessions::proves(SessionKeys& keys, const wire::Datagram& d) {
    if ((d.tag != nullptr) != keys.present()) return false;
    if (!keys.present()) return true;
    PacketKey* key = keys.receive(shared_.config, d.header.key_epoch);
    const std::span<const std::uint8_t> payload = d.content();
    if (d.header.flags & wire::flag::encrypted) {
        scratch_.resize(std::max(scratch_.size(), payload.size()));
        return key->decrypt(d.bytes, d.header.packet_number, payload, scratch_.data(), d.tag);
    }
    return key->verify(d.bytes, d.header.packet_number, payload, d.tag);
}

bool Sessions::establish_by(Time now, Peer& peer, const wire::Datagram& d) {
    const HandshakeState& handshake = peer.handshake;
    const bool candidate =
        handshake.candidate && d.header.session == static_cast<std::uint32_t>(handshake.candidate->own_session);
    const bool own = !peer.up() && !shared_.closed && handshake.peer_session != 0 &&
                     d.header.session == static_cast<std::uint32_t>(handshake.own_session);
    if ((!candidate && !own) || d.header.flags & wire::flag::trimmed) return false;
    SessionKeys keys(
        shared_.config,
        {shared_.config.rank, peer.rank, candidate ? handshake.candidate->own_session : handshake.own_session,
         candidate ? handshake.candidate->peer_session : handshake.peer_session,
         candidate ? handshake.candidate->peer_ciphers : handshake.peer_ciphers},
        shared_.key_epoch);
    if (!proves(keys, d)) return false;
    if (candidate)
        adopt_candidate(now, peer);
    else
        establish(now, peer, peer.heard_hello_bytes);
    return true;
}

// Reads a hello for this endpoint and authenticates it. False: it was counted and is not a valid hello.
bool Sessions::read_hello(const wire::Datagram& d, wire::Hello& hello) {
    wire::FrameReader reader(d.content());
    wire::Frame frame;
    if (!reader.next(frame) || frame.type != wire::FrameType::hello || !wire::read_hello(frame, hello) ||
        hello.own_session == 0) {
        ++shared_.counters.malformed_frames;
        return false;
    }
    if (hello.destination_rank != shared_.config.rank || d.header.source_rank == shared_.config.rank) {
        ++shared_.counters.foreign_job;
        return false;
    }
    const bool tagged =
        shared_.config.job_key ? d.tag != nullptr : (d.header.flags & wire::flag::authenticated) != 0;
    if (tagged != shared_.config.job_key.has_value()) {
        ++shared_.counters.unauthenticated;
        return false;
    }
    if (!shared_.config.job_key) return true;
    const auto key = hello_key(shared_.config, d.header.source_rank, shared_.config.rank, hello.own_session);
    if (!key->verify(d.bytes, d.header.packet_number, {d.payload, d.header.payload_bytes}, d.tag)) {
        ++shared_.counters.bad_tag;
        return false;
    }
    if (session_cipher(offered_ciphers(shared_.config.cipher, shared_.config.crypto_library), {hello.ciphers}))
        return true;
    ++shared_.counters.no_common_cipher;
    return false;
}

void Sessions::handle_hello(Time now, Time arrived, const dlcp_packet& packet, const wire::Datagram& d) {
    wire::Hello hello;
    if (!read_hello(d, hello) || shared_.closed) return;
    Peer* found = shared_.find_rank(d.header.source_rank);
    if (!found) {
        if (shared_.peers.size() >= shared_.config.max_peers) {
            shared_.push_bound(Bound::peers, CommandError::too_many_peers, any_peer);
            return;
        }
        found = &new_peer(d.header.source_rank, *packet.address);
        found->learned = true;
    }
    Peer& peer = *found;
    const std::uint64_t length = wire::header_bytes + d.header.payload_bytes + (d.tag ? wire::tag_bytes : 0);
    note_hello_size(peer, hello, static_cast<std::uint16_t>(std::min<std::uint64_t>(length, UINT16_MAX)));
    const HelloArrival arrival{now, arrived, packet, d.header, hello};
    if (peer.up())
        handle_hello_in_session(peer, arrival);
    else
        handle_hello_without_session(peer, arrival);
    HandshakeState& handshake = peer.handshake;
    if (handshake.answer_due || handshake.candidate_answer_due()) {
        const bool into_channel = peer.up() && !handshake.candidate_answer_due() && is_trusted(peer.address);
        handshake.answer_address = into_channel ? peer.address : *packet.address;
        shared_.queue_control(peer);
    }
    shared_.arm(peer);
}

// The largest hello of a session is what the path carries; one that asks is answered at its own size.
void Sessions::note_hello_size(Peer& peer, const wire::Hello& hello, std::uint16_t datagram_bytes) {
    HandshakeState& handshake = peer.handshake;
    if (hello.own_session != handshake.heard_session) {
        handshake.heard_session = hello.own_session;
        handshake.answer_sizes.clear();
        peer.heard_hello_bytes = 0;
    }
    peer.heard_hello_bytes = std::max(peer.heard_hello_bytes, datagram_bytes);
    std::vector<std::uint16_t>& sizes = handshake.answer_sizes;
    const std::uint16_t size = std::clamp(datagram_bytes, least_datagram, shared_.config.max_datagram_bytes);
    if (!(hello.flags & wire::hello_flag_answer) && sizes.size() <= std::size(datagram_ladder) &&
        std::find(sizes.begin(), sizes.end(), size) == sizes.end())
        sizes.push_back(size);
}

// The peer repeats its hello, has found a private channel, or seems to have restarted.
void Sessions::handle_hello_in_session(Peer& peer, const HelloArrival& arrival) {
    HandshakeState& handshake = peer.handshake;
    const wire::Hello& hello = arrival.hello;
    const bool asks = !(hello.flags & wire::hello_flag_answer);
    if (hello.own_session == handshake.peer_session) {
        handshake.answer_due |= asks;
        if (arrival.packet.flags & DLCP_PACKET_TRUSTED && handshake.channel_session != handshake.peer_session) {
            // The session was established over the network, and now a channel exists as well. It is used from now on,
            // with the session's block size. The peer is notified before anything else comes out of the channel.
            note_channel(peer, arrival);
            peer.address = handshake.channel;
            use_channel(peer);
            handshake.answer_due = true;
            shared_.refresh(peer);
        }
        return;
    }
    const bool known = handshake.candidate && hello.own_session == handshake.candidate->peer_session;
    if (known && hello.echo_session == handshake.candidate->own_session) {
        note_channel(peer, arrival);
        peer.address = *arrival.packet.address;
        adopt_candidate(arrival.now, peer);
        sample_hello(peer, arrival);
        handshake.answer_due = !(hello.flags & wire::hello_flag_established) || is_trusted(peer.address);
    } else if (asks) {
        if (!known)
            handshake.candidate = HandshakeState::Candidate{.own_session = new_session(peer),
                                                            .peer_session = hello.own_session,
                                                            .peer_ciphers = {hello.ciphers}};
        handshake.candidate->answer_due = true;
    }
}

// The session is established if the peer has received this side's id.
void Sessions::handle_hello_without_session(Peer& peer, const HelloArrival& arrival) {
    HandshakeState& handshake = peer.handshake;
    const wire::Hello& hello = arrival.hello;
    handshake.peer_session = hello.own_session;
    handshake.peer_ciphers = {hello.ciphers};
    note_channel(peer, arrival);
    if (hello.echo_session == handshake.own_session) {
        const bool connecting = peer.state == PeerState::State::connecting;
        measure_handshake(arrival.now, peer, connecting);
        peer.address =
            handshake.channel_session == handshake.peer_session ? handshake.channel : *arrival.packet.address;
        // What both ends and the path carry: our hello's size if the peer says it came through, else what came here.
        const std::uint16_t path_bytes =
            hello.received_datagram_bytes != 0 ? hello.received_datagram_bytes : peer.heard_hello_bytes;
        establish(arrival.now, peer, std::min(path_bytes, hello.max_datagram_bytes));
        sample_hello(peer, arrival);
        // Always over a channel: what follows a hello out of it needs no tag (Arrivals::authentic).
        handshake.answer_due |= !(hello.flags & wire::hello_flag_established) || is_trusted(peer.address);
    }
    handshake.answer_due |= !(hello.flags & wire::hello_flag_answer);
}

// The round trip of the handshake. If hellos were repeated it is not known which one is answered: the estimate is then
// such that the first packets do not time out where it was the oldest that still can be. Earlier ones came before the
// peer listened, or were lost.
void Sessions::measure_handshake(Time now, Peer& peer, bool connecting) const {
    const HandshakeState& handshake = peer.handshake;
    const std::vector<Time>& sent = handshake.sent_at;
    if (!connecting) peer.rtt = RttEstimator(shared_.config.initial_rtt);
    if ((connecting ? handshake.attempts : handshake.answers) == 1) {
        peer.rtt.sample(now - (connecting ? sent.back() : handshake.answered_at));
    } else if (!peer.rtt.measured()) {
        Duration longest = std::min(now - handshake.answered_at, longest_plausible);
        if (connecting) {
            const auto oldest = std::find_if(sent.begin(), sent.end(),
                                             [now](Time left) { return now - left <= longest_plausible; });
            longest = oldest != sent.end() ? now - *oldest : Duration{0};
        }
        // It times out after three times the estimate.
        peer.rtt = RttEstimator(std::max(shared_.config.initial_rtt, longest / 2));
    }
}

// Packets of this hello's session use this channel from now on.
void Sessions::note_channel(Peer& peer, const HelloArrival& arrival) {
    if (!(arrival.packet.flags & DLCP_PACKET_TRUSTED)) return;
    peer.handshake.channel = *arrival.packet.address;
    peer.handshake.channel_session = arrival.hello.own_session;
}

// Only a hello that proves itself fresh measures the delay of an empty path.
void Sessions::sample_hello(Peer& peer, const HelloArrival& arrival) {
    peer.session->receiver.delays.sample_control(
        arrival.now, static_cast<std::uint32_t>(arrival.arrived.value) - arrival.header.timestamp_ns);
}

bool Sessions::write_due_hello(Time now, Peer& peer, dlcp_packet& slot) {
    HandshakeState& handshake = peer.handshake;
    if (handshake.candidate_answer_due() || handshake.answer_due) {
        const bool candidate = handshake.candidate_answer_due();
        if (handshake.answers++ == 0) handshake.answered_at = now;
        write_hello(now, peer, {.answers = true, .candidate = candidate, .bytes = take_answer_size(peer)}, slot);
        (candidate ? handshake.candidate->answer_due : handshake.answer_due) = !handshake.answer_sizes.empty();
        return true;
    }
    if (peer.state != PeerState::State::connecting || !handshake.due) return false;
    std::uint16_t bytes = hello_size(peer, handshake.rung);
    if (bytes == 0) bytes = hello_size(peer, handshake.rung = 0);  // the peer has become a channel meanwhile
    write_hello(now, peer, {.answers = false, .candidate = false, .bytes = bytes}, slot);
    handshake.due = hello_size(peer, ++handshake.rung) != 0;
    if (handshake.due) return true;
    handshake.rung = 0;
    std::erase_if(handshake.sent_at, [now](Time left) { return now - left > longest_plausible; });
    handshake.sent_at.push_back(now);
    std::int64_t all_bytes = 0;
    for (std::uint32_t rung = 0; hello_size(peer, rung) != 0; ++rung) all_bytes += hello_size(peer, rung);
    const std::uint32_t backoff = std::min<std::uint32_t>(handshake.attempts++, 10);
    const Duration interval = std::min(shared_.config.initial_rtt * (2LL << backoff), shared_.config.max_rto);
    handshake.at =
        now + std::max(interval, std::min({interval * (all_bytes / hello_bytes_per_interval), longest_plausible,
                                           shared_.config.peer_timeout / least_ladders}));
    shared_.arm(peer);
    return true;
}

// An answer is as long as the hello that it answers, so that both directions are tested at that size.
std::uint16_t Sessions::take_answer_size(Peer& peer) const {
    std::vector<std::uint16_t>& sizes = peer.handshake.answer_sizes;
    if (sizes.empty())
        return std::clamp(peer.heard_hello_bytes, least_datagram, shared_.config.max_datagram_bytes);
    const auto largest = std::max_element(sizes.begin(), sizes.end());
    const std::uint16_t size = *largest;
    sizes.erase(largest);
    return size;
}

void Sessions::write_hello(Time now, Peer& peer, const HelloOut& out, dlcp_packet& slot) {
    HandshakeState& handshake = peer.handshake;
    const std::uint64_t own = out.candidate ? handshake.candidate->own_session : handshake.own_session;
    const std::uint64_t theirs = out.candidate ? handshake.candidate->peer_session : handshake.peer_session;
    const bool keyed = shared_.config.job_key.has_value();
    PacketBuilder packet(shared_.config, wire::Type::hello, wire::control_class, theirs, now);
    wire::Header& h = packet.header;
    h.flags = keyed ? wire::flag::authenticated : 0;
    h.packet_number = out.candidate ? handshake.candidate->next_number++ : handshake.next_number++;
    // Path 0 first: the peer learns this endpoint's address from its source address.
    if (peer.up())
        h.path = peer.session->sender.paths.any_up(shared_.random.next());
    else if (handshake.attempts > first_path_attempts)
        h.path = static_cast<std::uint16_t>(handshake.attempts % shared_.config.paths);
    const std::size_t overhead = wire::header_bytes + (keyed ? wire::tag_bytes : 0);
    wire::FrameWriter writer(slot.head + wire::header_bytes, out.bytes - overhead);
    wire::write_hello(
        writer,
        {.own_session = own,
         .echo_session = theirs,
         .destination_rank = peer.rank,
         .max_datagram_bytes = shared_.config.max_datagram_bytes,
         .received_datagram_bytes = peer.heard_hello_bytes,
         .flags = (!out.candidate && peer.up() ? wire::hello_flag_established : 0) |
                  (out.answers ? wire::hello_flag_answer : 0),
         .ciphers = keyed ? offered_ciphers(shared_.config.cipher, shared_.config.crypto_library).word : 0});
    if (writer.room() >= wire::frame_prefix_bytes) writer.put_padding(writer.room());
    h.payload_bytes = static_cast<std::uint16_t>(writer.size());
    packet.write_inline(slot, out.answers ? handshake.answer_address : peer.address,
                        type_of_service(shared_.config, wire::control_class, Ecn::not_capable));
    slot.flags |= DLCP_PACKET_ALONE | DLCP_PACKET_ANSWERED;
    if (keyed)
        PacketBuilder::seal(slot, *hello_key(shared_.config, shared_.config.rank, peer.rank, own), h.packet_number,
                            false);
    ++shared_.counters.control_packets_sent;
    shared_.counters.control_bytes_sent += writer.size();
    shared_.counters.header_bytes_sent += overhead;
}

}  // namespace dlcp
