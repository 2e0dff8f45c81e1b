// Arbitrary datagrams into an endpoint that has an established peer and messages in every state.
//
// Invariant: whatever arrives, the endpoint keeps its own invariants, ends each message at most once, writes nothing
// outside receive buffers, and its poll functions come to an end. With a key, packets whose tag is wrong change nothing
// that the application sees: no message ends and no buffer is written.
//
// The first byte of the input chooses the mode: without a key; with one, while the harness signs what the fuzzer writes
// and then flips a bit of it; or with one, signed, as a peer that has the key and means harm. Then records: control byte,
// length (16 bits), bytes. The fuzzer speaks for two ranks: 0, whose session is up, and 2, which is not known yet; either
// may start a session and answer the victim's hellos.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "engine/bytes.hpp"
#include "engine/endpoint.hpp"
#include "engine/frames.hpp"
#include "engine/wire.hpp"
#include "support/native/virtual_network.hpp"

namespace {

using namespace dlcp;

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
}

constexpr std::uint8_t canary = 0xc9;
constexpr std::uint32_t receive_bytes = 20'000;

enum class Mode : std::uint8_t { plain, damaged, signed_by_us };

class Victim {
public:
    explicit Victim(Mode mode, bool encrypt) : mode_(mode) {
        EndpointConfig config;
        config.job = 7;
        config.max_messages_per_peer = 16;  // small, so that bounds are reached
        config.max_unexpected = Bytes{30'000};
        config.max_peers = 4;
        // The peer never answers: the sooner it is over, the more runs. Damaged packets alone must end nothing, so there it
        // is not over before they are.
        config.peer_timeout = mode == Mode::damaged ? seconds(10) : milliseconds(20);
        config.initial_rtt = milliseconds(1);
        config.crypto_library = CryptoLibrary::openssl;
        if (mode != Mode::plain) {
            config.job_key.emplace();
            config.job_key->fill(3);
            config.encrypt = encrypt;
        }
        config_ = config;
        EndpointConfig peer_config = config;
        peer_config.rank = 0;
        config_.rank = 1;
        Endpoint peer(peer_config, 1, now_);
        victim_ = std::make_unique<Endpoint>(config_, 2, now_);
        heads_.reset(new std::uint8_t[slots.size() * DLCP_HEAD_CAPACITY]);

        // A real peer shakes hands, and sends the start of what will stay under way; then it is never heard again,
        // except through the fuzzer.
        victim_peer_ = victim_->connect(now_, 0, peer_address_).value;
        const PeerId us = peer.connect(now_, 1, victim_address_).value;
        for (int round = 0; round < 20 && !(victim_->established(victim_peer_) && peer.established(us)); ++round) {
            now_ = now_ + microseconds(100);
            move(peer, *victim_, peer_address_, true);
            move(*victim_, peer, victim_address_, true);
        }
        require(victim_->established(victim_peer_) && peer.established(us), "the handshake ends");
        block_bytes_ = victim_->block_bytes(victim_peer_);
        payload_.assign(30'000, 5);
        importance_.assign(wire::block_count(30'000, block_bytes_), 9);
        for (std::uint64_t tag = 1; tag <= 3; ++tag) {
            SendCommand send;
            send.peer = victim_peer_;
            send.tag = tag;
            send.payload = payload_.data();
            send.message_bytes = static_cast<std::uint32_t>(payload_.size());
            send.delivery = tag == 1 ? Delivery::reliable : tag == 2 ? Delivery::bounded : Delivery::deadline;
            send.loss_ratio = tag == 1 ? 0.0 : 0.3;
            send.deadline = milliseconds(tag == 3 ? 5 : 0);
            if (tag != 1) send.importance = importance_;
            open_.insert(key(victim_->send(now_, send).value));
        }
        for (std::uint64_t tag = 11; tag <= 14; ++tag) {
            // Exactly as large as said, so that the sanitizer sees one byte too many.
            buffers_.emplace_back(new std::uint8_t[receive_bytes]);
            std::memset(buffers_.back().get(), canary, receive_bytes);
            ReceiveCommand receive;
            receive.peer = tag % 2 == 0 ? any_peer : victim_peer_;
            receive.tag = tag;
            receive.buffer = buffers_.back().get();
            receive.capacity_bytes = receive_bytes;
            open_.insert(key(victim_->receive(now_, receive).value));
        }
        for (const std::uint64_t tag : {std::uint64_t{11}, std::uint64_t{21}}) {  // expected, unexpected
            SendCommand send;
            send.peer = us;
            send.tag = tag;
            send.payload = payload_.data();
            send.message_bytes = 9'000;
            peer.send(now_, send);
        }
        // The first two packets of it arrive.
        move(peer, *victim_, peer_address_, false, 2);
        drain();
        placed_before_ = victim_->counters().data_bytes_placed;
        open_before_ = open_.size();
        number_ = 1'000;
    }

    void feed(std::uint8_t control, std::span<const std::uint8_t> bytes) {
        now_ = now_ + nanoseconds((control & 7) == 7 ? 3'000'000 : (control & 7) * 10'000);
        std::vector<std::uint8_t> datagram(bytes.begin(), bytes.end());
        if ((control & 8) != 0) make_plausible(datagram, (control & 16) != 0);
        if (mode_ != Mode::plain) sign(datagram);
        if (mode_ == Mode::damaged) flip_bit(datagram, bytes);
        dlcp_packet packet{};
        packet.head = datagram.data();
        packet.head_bytes = static_cast<std::uint32_t>(datagram.size());
        packet.address = (control & 32) != 0 ? &stranger_address_ : &peer_address_;
        packet.tos = (control & 64) != 0 ? 3 : 0;
        if ((control & 128) != 0 && datagram.size() >= wire::header_bytes) {
            packet.flags = DLCP_PACKET_VIRTUAL;
            packet.body_bytes = wire::load16(datagram.data() + 58);
        }
        victim_->handle_packets(now_, {&packet, 1});
        datagram.assign(datagram.size(), 0xbd);  // nothing of it may be kept
        drain();
    }

    void finish() {
        if (mode_ == Mode::damaged) {
            require(open_.size() == open_before_, "damaged packets end no message");
            require(victim_->counters().data_bytes_placed == placed_before_, "damaged packets are not placed");
        }
        for (std::size_t i = mode_ == Mode::damaged ? 1 : buffers_.size(); i < buffers_.size(); ++i) {
            const std::uint8_t* const buffer = buffers_[i].get();
            require(std::all_of(buffer, buffer + receive_bytes, [](std::uint8_t b) { return b == canary; }),
                    "damaged packets are not written");
        }
        // Then time passes: everything ends by itself, since the peer is gone.
        for (int i = 0; i < 10'000 && !open_.empty(); ++i) {
            const Time next = victim_->next_deadline();
            if (next == time_never) break;
            now_ = std::max(now_, next);
            drain();
        }
        drain();
        victim_->close(now_);
        drain();
        require(open_.empty(), "every message ends");
    }

private:
    static std::uint64_t key(MessageId id) { return std::uint64_t{id.slot} << 32 | id.generation; }

    // Carries packets from one endpoint to the other, at most `most`; learns the sessions from hellos.
    void move(Endpoint& from, Endpoint& to, const dlcp_address& source, bool events, std::size_t most = SIZE_MAX) {
        if (from.next_deadline() <= now_) from.handle_timer(now_);
        std::size_t moved = 0;
        for (;;) {
            prepare_slots();
            const std::size_t count = from.poll_transmit(now_, slots);
            if (count == 0) break;
            for (std::size_t i = 0; i < count; ++i) {
                const dlcp_packet& p = slots[i];
                std::vector<std::uint8_t> bytes(p.head, p.head + p.head_bytes);
                bytes.insert(bytes.end(), p.body, p.body + p.body_bytes);
                bytes.insert(bytes.end(), p.head + p.head_bytes, p.head + p.head_bytes + p.tail_bytes);
                wire::Datagram d;
                require(wire::parse(bytes, 0, d) == wire::ParseError::none, "what is sent parses");
                if (d.header.type == wire::Type::hello) {
                    wire::FrameReader reader({d.payload, d.header.payload_bytes});
                    wire::Frame frame;
                    wire::Hello hello;
                    if (reader.next(frame) && wire::read_hello(frame, hello))
                        sessions_[d.header.source_rank] = hello.own_session;
                }
                if (moved++ >= most) continue;
                dlcp_packet in{};
                in.head = bytes.data();
                in.head_bytes = static_cast<std::uint32_t>(bytes.size());
                in.address = &source;
                in.tos = p.tos;
                to.handle_packets(now_, {&in, 1});
            }
        }
        if (!events) return;
        for (Event event; from.poll_event(event);) {}
    }

    void prepare_slots() {
        for (std::size_t i = 0; i < slots.size(); ++i) {
            slots[i] = {};
            slots[i].head = heads_.get() + i * DLCP_HEAD_CAPACITY;
        }
    }

    void drain() {
        if (victim_->next_deadline() <= now_) victim_->handle_timer(now_);
        for (int rounds = 0;; ++rounds) {
            require(rounds < 1'000, "poll_transmit comes to an end");
            prepare_slots();
            const std::size_t count = victim_->poll_transmit(now_, slots);
            if (count == 0) break;
            for (std::size_t i = 0; i < count; ++i) hear(slots[i]);
        }
        int events = 0;
        for (Event event; victim_->poll_event(event);) {
            require(++events < 1'000, "poll_event comes to an end");
            switch (event.kind) {
                case EventKind::send_finished:
                case EventKind::send_failed:
                case EventKind::receive_finished:
                case EventKind::receive_failed: {
                    require(open_.erase(key(event.message)) == 1, "one final event per message");
                    const auto outcome = victim_->outcome(event.message);
                    require(static_cast<bool>(outcome), "a message that is over has an outcome");
                    if (event.error == CommandError::none) {
                        const MessageOutcome& o = outcome.value;
                        require(std::uint64_t{o.delivered_bytes} + o.abandoned_bytes == o.message_bytes,
                                "delivered + abandoned = message");
                    }
                    require(victim_->release(event.message) == CommandError::none, "it can be released");
                    break;
                }
                default: break;
            }
        }
        // Complete and slow: every few packets, so that there is time for more of them.
        if (++drains_ % 8 != 0) return;
        const std::string broken = victim_->check_invariants();
        require(broken.empty(), broken.c_str());
    }

    // Learns the session ids that the victim says in its hellos.
    void hear(const dlcp_packet& packet) {
        wire::Datagram d;
        if (wire::parse({packet.head, packet.head_bytes + packet.tail_bytes}, 0, d) != wire::ParseError::none)
            return;
        wire::FrameReader reader({d.payload, d.header.payload_bytes});
        wire::Frame frame;
        wire::Hello hello;
        if (d.header.type != wire::Type::hello || !reader.next(frame) || !wire::read_hello(frame, hello)) return;
        if (hello.destination_rank < heard_.size()) heard_[hello.destination_rank] = hello.own_session;
    }

    // Fills in what keeps most random bytes from getting anywhere.
    void make_plausible(std::vector<std::uint8_t>& datagram, bool data) {
        if (datagram.size() < wire::header_bytes) datagram.resize(wire::header_bytes);
        std::uint8_t* const p = datagram.data();
        wire::Header h;
        h.type = data ? wire::Type::data : p[1] % 8 == 0 ? wire::Type::hello : wire::Type::control;
        h.flags = p[2] & (wire::flag::ack_request | wire::flag::first_pass_over | wire::flag::repair |
                          wire::flag::trimmed);
        h.job = 7;
        h.source_rank = p[8] % 4 == 0 ? 2 : 0;
        const bool latest = h.source_rank == 2 || p[9] % 4 == 0;  // the session that the last hellos spoke of
        h.session = h.type == wire::Type::hello
                        ? wire::load32(p + 16)
                        : static_cast<std::uint32_t>(latest ? heard_[h.source_rank] : sessions_[1]);
        h.timestamp_ns = static_cast<std::uint32_t>(now_.value) - wire::load32(p + 20) % 1'000'000;
        number_ += p[31] % 4;
        h.packet_number = p[30] % 16 == 0 ? wire::load64(p + 24) : number_;
        h.message_id = wire::load32(p + 40) % 40;
        h.path = p[7] % 8;
        if (data) {
            h.traffic_class = p[3] % 7;
            h.importance = p[4];
            if (h.importance == wire::importance_critical) h.flags |= wire::flag::critical;
            h.tag = 10 + p[39] % 16;
            h.block_bytes = (p[56] & 1) != 0 ? block_bytes_ : std::max<std::uint16_t>(wire::load16(p + 56), 1);
            h.message_bytes = wire::load32(p + 44) % (p[44] % 8 == 0 ? 4'000'000'000 : 24'000);
            const std::uint32_t blocks =
                h.message_bytes == 0 ? 1 : wire::block_count(h.message_bytes, h.block_bytes);
            h.block_index = wire::load32(p + 48) % blocks;
            h.critical_blocks = wire::load32(p + 52) % (blocks + 1);
            h.payload_bytes = static_cast<std::uint16_t>(std::min<std::uint64_t>(
                h.block_bytes, h.message_bytes - std::uint64_t{h.block_index} * h.block_bytes));
            if (h.message_bytes == 0) h.payload_bytes = 0;
            h.budget = wire::load16(p + 60);
            h.deadline = p[62] % 4 == 0 ? wire::load16(p + 62) : 0;
            if (p[29] % 4 == 0) h.type = wire::Type::short_data;
            datagram.resize(wire::header_bytes_of(h.type) +
                            ((h.flags & wire::flag::trimmed) != 0 ? 0 : h.payload_bytes));
        } else {
            h.flags &= static_cast<std::uint8_t>(~wire::flag::trimmed);
            h.traffic_class = wire::control_class;
            h.payload_bytes =
                static_cast<std::uint16_t>(std::min<std::size_t>(datagram.size() - wire::header_bytes, 8'000));
            datagram.resize(wire::header_bytes + h.payload_bytes);
            if (h.type == wire::Type::hello &&
                h.payload_bytes >= wire::frame_prefix_bytes + wire::hello_body_bytes) {
                std::uint8_t* const frame = datagram.data() + wire::header_bytes;
                frame[0] = static_cast<std::uint8_t>(wire::FrameType::hello);
                wire::store16(frame + 2, wire::frame_prefix_bytes + wire::hello_body_bytes);
                wire::store32(frame + 4 + 16, 1);  // to us
                wire::store32(frame + 4 + 28, offered_ciphers(config_.cipher, config_.crypto_library).word);
                if (frame[4] % 4 < 2) wire::store64(frame + 4 + 8, sessions_[1]);
                if (frame[4] % 4 == 2) wire::store64(frame + 4 + 8, heard_[h.source_rank]);
                // Mostly the id that was said before, so that the exchange goes on.
                std::uint64_t& said = said_[h.source_rank];
                if (said == 0 || frame[5] % 4 == 0) said = wire::load64(frame + 4);
                wire::store64(frame + 4, said);
            }
        }
        std::array<std::uint8_t, wire::header_bytes> header;
        wire::write(h, header.data());
        std::copy_n(header.begin(), wire::header_bytes_of(h.type), datagram.begin());
    }

    // Signs as the peer would: in the session's key, or a hello's own.
    void sign(std::vector<std::uint8_t>& datagram) {
        wire::Datagram d;
        if (wire::parse(datagram, 0, d) != wire::ParseError::none) return;
        if ((d.header.flags & (wire::flag::trimmed | wire::flag::authenticated)) != 0) return;
        datagram[2] |= wire::flag::authenticated;
        datagram.resize(datagram.size() + wire::tag_bytes);
        const std::size_t header_bytes = wire::header_bytes_of(d.header.type);
        const std::size_t payload_bytes = datagram.size() - wire::tag_bytes - header_bytes;
        std::uint8_t* const payload = datagram.data() + header_bytes;
        KeyScope scope;
        scope.job = config_.job;
        if (d.header.type == wire::Type::hello) {
            if (payload_bytes < 12) return;
            scope.label = "hello";
            scope.low_rank = d.header.source_rank;
            scope.high_rank = 1;
            scope.low_session = wire::load64(payload + wire::frame_prefix_bytes);
            scope.source_rank = d.header.source_rank;
        } else {
            const std::uint32_t rank = d.header.source_rank == 2 ? 2 : 0;
            const bool established = rank == 0 && d.header.session == static_cast<std::uint32_t>(sessions_[1]);
            const std::uint64_t theirs = established ? sessions_[0] : said_[rank];
            const std::uint64_t victims = established ? sessions_[1] : heard_[rank];
            scope.label = "packet";
            scope.low_rank = std::min(rank, 1u);
            scope.high_rank = std::max(rank, 1u);
            scope.low_session = rank == 0 ? theirs : victims;
            scope.high_session = rank == 0 ? victims : theirs;
            scope.source_rank = rank;
            scope.epoch = d.header.key_epoch;
            scope.low_ciphers = scope.high_ciphers = offered_ciphers(config_.cipher, config_.crypto_library);
        }
        const auto key = make_packet_key(derive_packet_key(*config_.job_key, scope), CryptoLibrary::openssl);
        if (config_.encrypt && d.header.type != wire::Type::hello) {
            datagram[2] |= wire::flag::encrypted;
            key->encrypt(datagram.data(), d.header.packet_number, {payload, payload_bytes}, payload,
                         payload + payload_bytes);
        } else {
            key->authenticate(datagram.data(), d.header.packet_number, {payload, payload_bytes},
                              payload + payload_bytes);
        }
    }

    // One bit of what the tag covers, or of the tag. Not the trimmed bit, which a switch may set.
    static void flip_bit(std::vector<std::uint8_t>& datagram, std::span<const std::uint8_t> chosen_by) {
        if (datagram.size() < wire::header_bytes + wire::tag_bytes) return;
        std::size_t bit = 0;
        for (const std::uint8_t byte : chosen_by.first(std::min<std::size_t>(chosen_by.size(), 4)))
            bit = bit * 251 + byte;
        bit %= datagram.size() * 8;
        if (bit == wire::flags_offset * 8 + 7) ++bit;
        datagram[bit / 8] ^= static_cast<std::uint8_t>(1u << (bit % 8));
    }

    Mode mode_;
    EndpointConfig config_;
    Time now_{1'000'000};
    std::uint32_t drains_ = 0;
    std::unique_ptr<Endpoint> victim_;
    PeerId victim_peer_;
    const dlcp_address peer_address_ = VirtualNetwork::address(0);
    const dlcp_address victim_address_ = VirtualNetwork::address(1);
    const dlcp_address stranger_address_ = VirtualNetwork::address(9);
    std::array<std::uint64_t, 2> sessions_{};  // of the session that is up when the fuzzer begins, by rank
    std::array<std::uint64_t, 3> heard_{};     // by rank: what the victim last said is its own towards that rank
    std::array<std::uint64_t, 3> said_{};      // by rank: what the fuzzer last said is that rank's own
    std::unique_ptr<std::uint8_t[]> heads_;
    std::array<dlcp_packet, 16> slots{};
    std::uint16_t block_bytes_ = 0;
    std::vector<std::uint8_t> payload_, importance_;
    std::vector<std::unique_ptr<std::uint8_t[]>> buffers_;
    std::set<std::uint64_t> open_;
    std::size_t open_before_ = 0;
    std::uint64_t placed_before_ = 0;
    std::uint64_t number_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 4 || size > 20'000) return 0;
    Victim victim(static_cast<Mode>(data[0] % 3), (data[0] & 4) != 0 && data[0] % 3 != 0);
    std::span<const std::uint8_t> rest(data + 1, size - 1);
    while (rest.size() >= 3) {
        const std::uint8_t control = rest[0];
        const std::size_t length = std::min<std::size_t>(wire::load16(rest.data() + 1) % 2'048, rest.size() - 3);
        victim.feed(control, rest.subspan(3, length));
        rest = rest.subspan(3 + length);
    }
    victim.finish();
    return 0;
}
