// Sessions: who the peer is, proof that it is live and not a replay, and how large its datagrams may be.
//
// Each side sends hellos with its fresh session id and echoes the other's. A side is established once an authentic
// packet shows that the peer has this side's current id. A hello with another id than the established one starts a
// candidate session under a fresh own id. The candidate is adopted only when the peer proves that it received that id,
// so a replayed hello causes an answer and nothing else. The connecting side drives the exchange with its timer.
// Answers are not answered, except the one that establishes a side, so that two sides cannot keep each other sending.
//
// Hellos are padded to the size they propose, and each leaves alone. If the largest is not answered, later attempts
// propose a ladder of sizes at once, the largest first, and each hello that arrives is answered at its size: in each
// direction the largest that passes counts.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/frames.hpp"
#include "engine/incoming.hpp"
#include "engine/liveness.hpp"
#include "engine/outgoing.hpp"
#include "engine/pieces.hpp"
#include "engine/receiver_credit.hpp"
#include "engine/shared_state.hpp"

namespace dlcp {

class Sessions {
public:
    Sessions(SharedState& shared, Liveness& liveness, Outgoing& outgoing, Incoming& incoming, Pieces& pieces,
             ReceiverCredit& credit)
        : shared_(shared),
          liveness_(liveness),
          outgoing_(outgoing),
          incoming_(incoming),
          pieces_(pieces),
          credit_(credit) {}

    Peer& new_peer(std::uint32_t rank, const dlcp_address& address);
    // Begins the handshake if the peer has no session and is not being asked for one.
    void start_if_idle(Time now, Peer& peer) {
        if (peer.state.may(PeerState::Event::connect)) start(now, peer);
    }
    // Fails everything outstanding with the peer, and says goodbye to it.
    void disconnect(Time now, Peer& peer);
    void end(Time now, Peer& peer);
    // The peer is gone: fails everything outstanding, reports it, and ends the session.
    void peer_down(Time now, Peer& peer, CommandError error);

    void handle_hello(Time now, Time arrived, const dlcp_packet& packet, const wire::Datagram& datagram);
    // A packet arrived before the hello that should have established its session: if authentic, it proves the same.
    bool establish_by(Time now, Peer& peer, const wire::Datagram& datagram);
    // Writes the hello that is due first: an answer about the candidate, an answer, or one that asks. False: none is due.
    bool write_due_hello(Time now, Peer& peer, dlcp_packet& slot);

private:
    // One arriving packet of a handshake.
    struct HelloArrival {
        Time now;
        Time arrived;
        const dlcp_packet& packet;
        const wire::Header& header;
        const wire::Hello& hello;
    };
    // A hello to be written: about the session, or the candidate.
    struct HelloOut {
        bool answers;
        bool candidate;
        std::uint16_t bytes;  // of the datagram
    };

    std::uint64_t new_session(const Peer& peer);
    void start(Time now, Peer& peer);
    void establish(Time now, Peer& peer, std::uint16_t datagram_bytes);
    void adopt_candidate(Time now, Peer& peer);
    void use_channel(Peer& peer);
    void fail_all(Time now, Peer& peer, CommandError error);
    bool read_hello(const wire::Datagram& datagram, wire::Hello& hello);
    void handle_hello_in_session(Peer& peer, const HelloArrival& arrival);
    void handle_hello_without_session(Peer& peer, const HelloArrival& arrival);
    void measure_handshake(Time now, Peer& peer, bool connecting) const;
    static void note_channel(Peer& peer, const HelloArrival& arrival);
    static void sample_hello(Peer& peer, const HelloArrival& arrival);
    bool proves(SessionKeys& keys, const wire::Datagram& datagram);
    void write_hello(Time now, Peer& peer, const HelloOut& out, dlcp_packet& slot);
    void note_hello_size(Peer& peer, const wire::Hello& hello, std::uint16_t datagram_bytes);
    std::uint16_t take_answer_size(Peer& peer) const;
    std::uint16_t hello_size(const Peer& peer, std::uint32_t rung) const;

    SharedState& shared_;
    Liveness& liveness_;
    Outgoing& outgoing_;
    Incoming& incoming_;
    Pieces& pieces_;
    ReceiverCredit& credit_;
    std::vector<std::uint8_t> scratch_;  // for decrypting a packet that may be forged
};

}  // namespace dlcp
