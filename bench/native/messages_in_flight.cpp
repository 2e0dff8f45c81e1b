// The engine's own cost per packet: two endpoints in one thread, joined by a copy in memory and virtual time.
//
// `messages` reliable messages of `blocks` full blocks are under way at any time; a finished one is followed by
// another. Packets cross in batches, as a driver delivers them. Everything a side's engine does is counted for that
// side: transmitting, acknowledgements, events and commands. The copy between the two is not.
//
// With --payload real, messages cycle through the same amount of memory however many are under way, so that a
// difference between two numbers of messages is the engine's and not the cache's.
//
// The time of each slice of work is read from the wall clock, since a thread's own clock costs a system call. A
// slice in which the thread was interrupted is far longer than any other; it is left out and counted.

#include <cstring>
#include <deque>
#include <memory>

#include "arguments.hpp"
#include "clock.hpp"
#include "driven_endpoint.hpp"
#include "engine/endpoint.hpp"
#include "engine/wire.hpp"
#include "json.hpp"

namespace {

using namespace dlcp;
using namespace dlcp::bench;

constexpr Duration hop{5'000};
constexpr double interrupted_s = 300e-6;
constexpr std::size_t pool_bytes = 64 << 20;

// Time one side's engine has taken, in slices.
struct Work {
    double sum_s = 0;
    std::uint64_t slices = 0, interrupted = 0;

    template <class Do>
    auto time(Do&& work) {
        const double start_s = wall_s();
        auto result = work();
        const double took_s = wall_s() - start_s;
        slices += 1;
        if (took_s < interrupted_s)
            sum_s += took_s;
        else
            interrupted += 1;
        return result;
    }
    // As if the interrupted slices had been like the others.
    double total_s() const {
        return sum_s * static_cast<double>(slices) /
               static_cast<double>(std::max<std::uint64_t>(1, slices - interrupted));
    }
};

dlcp_address host(std::uint8_t number) {
    dlcp_address address{};
    address.bytes[0] = number;
    address.length = 1;
    return address;
}

struct Side {
    Side(const EndpointConfig& config, std::uint8_t number)
        : address(host(number)), endpoint(config, number + 1, Time{0}) {}
    dlcp_address address;
    Endpoint endpoint;
    Work transmit, arrive, command;  // poll_transmit; handle_packets and timers; events and commands
};

class Link {
public:
    explicit Link(std::size_t batch)
        : heads_(batch * DLCP_HEAD_CAPACITY),
          wire_(batch * DLCP_HEAD_CAPACITY),
          leaving_(batch),
          arriving_(batch) {
        for (std::size_t i = 0; i < batch; ++i) leaving_[i].head = heads_.data() + i * DLCP_HEAD_CAPACITY;
    }

    // Moves one batch; how many packets that was.
    std::size_t carry(Time& now, Side& from, Side& to) {
        const std::size_t n = from.transmit.time([&] { return from.endpoint.poll_transmit(now, leaving_); });
        if (n == 0) return 0;
        for (std::size_t i = 0; i < n; ++i) {
            const dlcp_packet& out = leaving_[i];
            dlcp_packet& in = arriving_[i];
            in = dlcp_packet{};
            in.head = wire_.data() + i * DLCP_HEAD_CAPACITY;
            in.address = &from.address;
            in.path = out.path;
            in.tos = out.tos;
            in.flags = out.flags;
            std::memcpy(in.head, out.head, out.head_bytes);
            in.head_bytes = out.head_bytes;
            if (out.flags & DLCP_PACKET_VIRTUAL) {
                in.body_bytes = out.body_bytes;
            } else if (out.body_bytes > 0) {
                std::memcpy(in.head + in.head_bytes, out.body, out.body_bytes);
                in.head_bytes += out.body_bytes;
            }
            std::memcpy(in.head + in.head_bytes, out.head + out.head_bytes, out.tail_bytes);
            in.head_bytes += out.tail_bytes;
        }
        now = now + hop;
        to.arrive.time([&] {
            to.endpoint.handle_packets(now, {arriving_.data(), n});
            return 0;
        });
        return n;
    }

private:
    std::vector<std::uint8_t> heads_, wire_;
    std::vector<dlcp_packet> leaving_, arriving_;
};

void require(CommandError error, const char* what) {
    if (error != CommandError::none) die(std::string(what) + ": " + name(error));
}

class Exchange {
public:
    explicit Exchange(const Arguments& arguments)
        : messages_(static_cast<std::size_t>(arguments.integer("messages"))),
          real_(arguments.text("payload") == "real"),
          sender_(endpoint_config(arguments, 1), 1),
          receiver_(endpoint_config(arguments, 0), 0),
          link_(static_cast<std::size_t>(arguments.integer("batch"))) {
        const auto connected = sender_.endpoint.connect(now_, 0, receiver_.address);
        require(connected.error, "connect");
        peer_ = connected.value;
        while (!sender_.endpoint.established(peer_)) step();
        message_bytes_ =
            static_cast<std::uint32_t>(arguments.integer("blocks")) * sender_.endpoint.block_bytes(peer_);
        if (real_) {
            const std::size_t pool =
                std::max<std::size_t>(messages_ + 1, pool_bytes / message_bytes_) * message_bytes_;
            payload_.assign(pool, 1);
            buffer_.assign(pool, 0);
        }
        for (std::size_t i = 0; i <= messages_; ++i) receive();
        for (std::size_t i = 0; i < messages_; ++i) send();
    }

    // Runs until the receiver has had `packets` more data packets.
    void run(std::uint64_t packets) {
        const std::uint64_t until = receiver_.endpoint.counters().data_packets_received + packets;
        while (receiver_.endpoint.counters().data_packets_received < until) step();
    }

    void forget_time() {
        for (Side* side : {&sender_, &receiver_}) side->transmit = side->arrive = side->command = Work{};
    }

    void report(const Arguments& arguments, std::uint64_t packets) {
        const auto ns = [&](const Work& work) { return work.total_s() * 1e9 / static_cast<double>(packets); };
        const auto side_ns = [&](const Side& side) {
            return ns(side.transmit) + ns(side.arrive) + ns(side.command);
        };
        std::uint64_t slices = 0, interrupted = 0;
        for (Side* side : {&sender_, &receiver_})
            for (const Work& work : {side->transmit, side->arrive, side->command})
                slices += work.slices, interrupted += work.interrupted;
        Json()
            .add("messages", messages_)
            .add("blocks", arguments.integer("blocks"))
            .add("payload", arguments.text("payload"))
            .add("packets", packets)
            .add("sender_ns", side_ns(sender_))
            .add("receiver_ns", side_ns(receiver_))
            .add("sender_transmit_ns", ns(sender_.transmit))
            .add("sender_arrive_ns", ns(sender_.arrive))
            .add("sender_command_ns", ns(sender_.command))
            .add("receiver_transmit_ns", ns(receiver_.transmit))
            .add("receiver_arrive_ns", ns(receiver_.arrive))
            .add("receiver_command_ns", ns(receiver_.command))
            .add("lost_packets", sender_.endpoint.counters().lost_packets)
            .add("spurious_losses", sender_.endpoint.counters().spurious_losses)
            .add("control_packets", receiver_.endpoint.counters().control_packets_sent)
            .add("interrupted_ratio", static_cast<double>(interrupted) / static_cast<double>(slices))
            .print();
    }

private:
    void step() {
        // In this order: what a receive or an answer needs must be asked for before the peer hears of it.
        std::size_t moved = link_.carry(now_, sender_, receiver_);
        moved += drain(receiver_);
        moved += link_.carry(now_, receiver_, sender_);
        moved += drain(sender_);
        const Time due = std::min(sender_.endpoint.next_deadline(), receiver_.endpoint.next_deadline());
        if (moved == 0) {
            if (due == time_never) die("stuck: nothing moves and nothing is due");
            now_ = std::max(now_, due);
        }
        for (Side* side : {&sender_, &receiver_})
            if (side->endpoint.next_deadline() <= now_)
                side->arrive.time([&] {
                    side->endpoint.handle_timer(now_);
                    return 0;
                });
    }

    // Events of one side, each answered with the next command; how many.
    std::size_t drain(Side& side) {
        return side.command.time([&] {
            std::size_t events = 0;
            for (Event event; side.endpoint.poll_event(event); ++events) {
                switch (event.kind) {
                    case EventKind::send_finished:
                        require(side.endpoint.release(event.message), "release");
                        send();
                        break;
                    case EventKind::receive_finished:
                        require(side.endpoint.release(event.message), "release");
                        receive();
                        break;
                    case EventKind::send_failed:
                    case EventKind::receive_failed:
                    case EventKind::peer_down: die(std::string(name(event.kind)) + ": " + name(event.error));
                    default: break;
                }
            }
            return events;
        });
    }

    void send() {
        const std::uint8_t* payload = real_ ? payload_.data() + at(sent_, payload_) : nullptr;
        const SendCommand command{
            .peer = peer_, .tag = sent_++, .payload = payload, .message_bytes = message_bytes_, .importance = {}};
        require(sender_.endpoint.send(now_, command).error, "send");
    }

    void receive() {
        std::uint8_t* buffer = real_ ? buffer_.data() + at(posted_, buffer_) : nullptr;
        require(receiver_.endpoint.receive(now_, {any_peer, posted_++, buffer, message_bytes_}).error, "receive");
    }

    std::size_t at(std::uint64_t index, const std::vector<std::uint8_t>& pool) const {
        return index % (pool.size() / message_bytes_) * message_bytes_;
    }

    const std::size_t messages_;
    const bool real_;
    Time now_{1'000'000};
    Side sender_, receiver_;
    Link link_;
    PeerId peer_;
    std::uint32_t message_bytes_ = 0;
    std::vector<std::uint8_t> payload_, buffer_;
    std::uint64_t sent_ = 0, posted_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
    const Arguments arguments(argc, argv,
                              {{"messages", "100"},
                               {"blocks", "4"},
                               {"payload", "virtual"},  // or real
                               {"batch", "64"},         // packets that cross at a time
                               {"packets", "500000"},
                               DLCP_BENCH_ENDPOINT_ARGUMENTS});
    Exchange exchange(arguments);
    const auto packets = static_cast<std::uint64_t>(arguments.integer("packets"));
    // Past the growth of tables and windows, and once through every message under way.
    const auto cycle = static_cast<std::uint64_t>(arguments.integer("messages") * arguments.integer("blocks"));
    exchange.run(std::max(packets / 4, 2 * cycle));
    exchange.forget_time();
    exchange.run(packets);
    exchange.report(arguments, packets);
}
