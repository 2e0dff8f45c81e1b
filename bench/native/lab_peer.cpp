// Messages from one or more senders to one receiver over the UDP driver, timed as an application sees them.
//
// A message's time runs from `send` until a one-byte answer is back, itself a message, which the receiver sends when
// it has the whole message; tcp_peer measures the same. `outstanding` messages may be without their answer: 1
// measures times, more measure goodput. With --check 1 every message has its own bytes, and the receiver compares
// each block that it was not told is abandoned.
//
// The receiver accepts every rank above 0, and ends when told to (SIGTERM).

#include <signal.h>

#include <cstring>
#include <map>
#include <memory>
#include <unordered_map>

#include "clock.hpp"
#include "driven_endpoint.hpp"
#include "engine/wire.hpp"
#include "json.hpp"

namespace {

using namespace dlcp;
using namespace dlcp::bench;

// Answer to message i has tag i with this bit.
constexpr std::uint64_t answer_bit = std::uint64_t{1} << 63;

volatile sig_atomic_t stopped = 0;

// Byte k of message i, a function of both, so that a block in the wrong place or message is noticed.
void fill(std::uint8_t* out, std::size_t bytes, std::uint64_t rank, std::uint64_t message) {
    std::uint64_t state = (rank << 40 ^ message) * 0x9e3779b97f4a7c15ULL + 1;
    for (std::size_t at = 0; at < bytes; at += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        std::memcpy(out + at, &state, std::min<std::size_t>(8, bytes - at));
    }
}

dlcp_io_config io_config(const Arguments& arguments) {
    dlcp_io_config config{};
    config.bind_host = arguments.text("bind").c_str();
    config.paths = static_cast<std::uint16_t>(arguments.integer("paths"));
    return config;
}

void require(CommandError error, const char* what) {
    if (error != CommandError::none) die(std::string(what) + ": " + name(error));
}

void add_counters(Json& json, DrivenEndpoint& endpoint) {
    const Counters& counters = endpoint->counters();
    const dlcp_io_counters io = endpoint.io_counters();
    json.add("data_packets_sent", counters.data_packets_sent)
        .add("data_packets_received", counters.data_packets_received)
        .add("control_packets_sent", counters.control_packets_sent)
        .add("repair_packets_sent", counters.repair_packets_sent)
        .add("lost_packets", counters.lost_packets)
        .add("spurious_losses", counters.spurious_losses)
        .add("probes_sent", counters.probes_sent)
        .add("duplicate_blocks", counters.duplicate_blocks)
        .add("abandoned_bytes", counters.abandoned_bytes)
        .add("abandoned_by_peer_bytes", counters.abandoned_by_peer_bytes)
        .add("tx_packets", io.tx_packets)
        .add("tx_calls", io.tx_calls)
        .add("tx_dropped_packets", io.tx_dropped_packets)
        .add("rx_packets", io.rx_packets)
        .add("rx_calls", io.rx_calls)
        .add("rx_dropped_datagrams", io.rx_dropped_datagrams);
}

// ---- receiver ----

struct Message {
    std::vector<std::uint8_t> buffer;
    std::uint64_t index = 0;
};

// What comes from one peer.
struct Sender {
    std::uint64_t posted = 0;  // receives asked for; the next message to ask for has this index
    std::vector<double> arrived_s;
    std::uint64_t delivered_bytes = 0;
    std::uint64_t wrong_blocks = 0;
};

class Receiver {
public:
    explicit Receiver(const Arguments& arguments)
        : arguments_(arguments),
          bytes_(static_cast<std::uint32_t>(arguments.integer("bytes"))),
          check_(arguments.on("check")),
          endpoint_("udp", listening(arguments), endpoint_config(arguments, 0)) {}

    int run() {
        Json().add("ready", 1).print();
        while (!stopped) endpoint_.turn(milliseconds(50), [this](const Event& event) { handle(event); });
        std::vector<Json> senders;
        for (auto& [rank, sender] : senders_)
            senders.push_back(Json()
                                  .add("rank", rank)
                                  .add("arrived_s", sender.arrived_s)
                                  .add("delivered_bytes", sender.delivered_bytes)
                                  .add("wrong_blocks", sender.wrong_blocks));
        Json json;
        json.add("cpu_s", process_cpu_s()).add("senders", senders);
        add_counters(json, endpoint_);
        json.print();
        return 0;
    }

private:
    static dlcp_io_config listening(const Arguments& arguments) {
        dlcp_io_config config = io_config(arguments);
        config.port = static_cast<std::uint16_t>(arguments.integer("port"));
        return config;
    }

    void handle(const Event& event) {
        switch (event.kind) {
            case EventKind::peer_established:
                for (std::int64_t i = 0; i < arguments_.integer("outstanding"); ++i) post(event.peer, {});
                break;
            case EventKind::receive_finished: finished(event); break;
            case EventKind::receive_failed: messages_.erase(event.message.slot); [[fallthrough]];
            case EventKind::send_finished:
            case EventKind::send_failed: require(endpoint_->release(event.message), "release"); break;
            default: break;
        }
    }

    void post(PeerId peer, Message message) {
        message.buffer.resize(bytes_);
        message.index = senders_[endpoint_->rank_of(peer)].posted++;
        auto receive = endpoint_->receive(endpoint_.now(), {peer, message.index, message.buffer.data(), bytes_});
        require(receive.error, "receive");
        messages_[receive.value.slot] = std::move(message);
    }

    void finished(const Event& event) {
        Message message = std::move(messages_[event.message.slot]);
        messages_.erase(event.message.slot);
        const std::uint32_t rank = endpoint_->rank_of(event.peer);
        Sender& sender = senders_[rank];
        sender.arrived_s.push_back(wall_s());
        const MessageOutcome outcome = endpoint_->outcome(event.message).value;
        sender.delivered_bytes += outcome.delivered_bytes;
        if (check_) sender.wrong_blocks += wrong_blocks(message, rank, outcome);
        require(endpoint_->release(event.message), "release");

        static const std::uint8_t answer = 1;
        SendCommand send{.peer = event.peer,
                         .tag = message.index | answer_bit,
                         .payload = &answer,
                         .message_bytes = 1,
                         .traffic_class = 6,
                         .importance = {}};
        require(endpoint_->send(endpoint_.now(), send).error, "send");
        post(event.peer, std::move(message));
    }

    std::uint64_t wrong_blocks(const Message& message, std::uint32_t rank, const MessageOutcome& outcome) {
        expected_.resize(bytes_);
        fill(expected_.data(), bytes_, rank, message.index);
        std::uint64_t wrong = outcome.message_bytes != bytes_;
        for (std::uint32_t block = 0; block < outcome.blocks; ++block) {
            if (outcome.abandoned_blocks && outcome.abandoned[block / 64] >> block % 64 & 1) continue;
            const std::size_t at = std::size_t{block} * outcome.block_bytes;
            const std::size_t size = std::min<std::size_t>(outcome.block_bytes, bytes_ - at);
            wrong += std::memcmp(message.buffer.data() + at, expected_.data() + at, size) != 0;
        }
        return wrong;
    }

    const Arguments& arguments_;
    const std::uint32_t bytes_;
    const bool check_;
    std::vector<std::uint8_t> expected_;
    std::unordered_map<std::uint32_t, Message> messages_;  // by slot
    std::map<std::uint32_t, Sender> senders_;              // by rank
    DrivenEndpoint endpoint_;
};

// ---- sender ----

class Transmitter {
public:
    explicit Transmitter(const Arguments& arguments)
        : arguments_(arguments),
          rank_(static_cast<std::uint32_t>(arguments.integer("rank"))),
          bytes_(static_cast<std::uint32_t>(arguments.integer("bytes"))),
          messages_(static_cast<std::size_t>(arguments.integer("messages"))),
          slots_(static_cast<std::size_t>(arguments.integer("outstanding"))),
          check_(arguments.on("check")),
          endpoint_("udp", io_config(arguments), endpoint_config(arguments, rank_)) {
        for (Slot& slot : slots_) {
            slot.payload.resize(bytes_);
            fill(slot.payload.data(), bytes_, rank_, 0);
        }
    }

    int run() {
        const dlcp_address address = endpoint_.resolve(arguments_.text("host") + ":" + arguments_.text("port"));
        auto peer = endpoint_->connect(endpoint_.now(), 0, address);
        require(peer.error, "connect");
        peer_ = peer.value;
        auto handler = [this](const Event& event) { handle(event); };
        while (!endpoint_->established(peer_)) endpoint_.turn(milliseconds(50), handler);
        prepare_mode();

        const double start_s = wall_s(), start_cpu_s = process_cpu_s();
        end_s_ = start_s + arguments_.real("seconds");
        fill_up();
        while (!idle()) endpoint_.turn(milliseconds(50), handler);
        const double elapsed_s = wall_s() - start_s, cpu_s = process_cpu_s() - start_cpu_s;
        report(elapsed_s, cpu_s);
        endpoint_->close(endpoint_.now());
        for (int i = 0; i < 3; ++i) endpoint_.turn(Duration{0}, [](const Event&) {});
        return 0;
    }

private:
    // Room for one message under way: its buffers stay until its send and its answer's receive are over.
    struct Slot {
        std::vector<std::uint8_t> payload;
        std::uint8_t answer = 0;
        std::uint64_t index = 0;
        int unfinished = 0;
        double started_s = 0;
    };

    bool idle() const {
        return std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.unfinished == 0; });
    }

    void prepare_mode() {
        const std::string& mode = arguments_.text("mode");
        if (mode == "reliable") return;
        if (mode == "bounded")
            delivery_ = Delivery::bounded;
        else if (mode == "deadline")
            delivery_ = Delivery::deadline;
        else
            die("--mode is reliable, bounded or deadline, not " + mode);
        // Critical blocks evenly among the others, as important gradient values are.
        const std::uint32_t blocks = wire::block_count(bytes_, endpoint_->block_bytes(peer_));
        const double share = arguments_.real("critical-share");
        for (std::uint32_t i = 0; i < blocks; ++i) {
            const bool critical =
                static_cast<std::uint32_t>((i + 1) * share) > static_cast<std::uint32_t>(i * share);
            importance_.push_back(critical ? 255 : 128);
        }
    }

    void fill_up() {
        for (Slot& slot : slots_)
            if (slot.unfinished == 0 && started_ < messages_ && wall_s() < end_s_) start(slot);
    }

    void start(Slot& slot) {
        slot.index = started_++;
        slot.unfinished = 2;
        if (check_) fill(slot.payload.data(), bytes_, rank_, slot.index);
        require(endpoint_->receive(endpoint_.now(), {peer_, slot.index | answer_bit, &slot.answer, 1}).error,
                "receive");
        SendCommand send{.peer = peer_,
                         .tag = slot.index,
                         .payload = slot.payload.data(),
                         .message_bytes = bytes_,
                         .delivery = delivery_,
                         .importance = importance_};
        if (delivery_ != Delivery::reliable) send.loss_ratio = arguments_.real("loss-ratio");
        if (delivery_ == Delivery::deadline) send.deadline = microseconds(arguments_.integer("deadline-us"));
        slot.started_s = wall_s();
        require(endpoint_->send(endpoint_.now(), send).error, "send");
    }

    void handle(const Event& event) {
        switch (event.kind) {
            case EventKind::receive_finished: {
                const Slot& slot = slot_of(event.tag & ~answer_bit);
                times_ms_.push_back((wall_s() - slot.started_s) * 1e3);
                break;
            }
            case EventKind::send_finished:
                known_ms_.push_back(static_cast<double>(event.waited.value) * 1e-6);
                break;
            case EventKind::send_failed:
            case EventKind::receive_failed:
            case EventKind::peer_down: die(std::string(name(event.kind)) + ": " + name(event.error));
            case EventKind::path_down: paths_down_ += 1; return;
            default: return;
        }
        slot_of(event.tag & ~answer_bit).unfinished -= 1;
        require(endpoint_->release(event.message), "release");
        fill_up();
    }

    Slot& slot_of(std::uint64_t index) {
        for (Slot& slot : slots_)
            if (slot.unfinished && slot.index == index) return slot;
        die("an event for a message that is not under way");
    }

    void report(double elapsed_s, double cpu_s) {
        std::vector<Json> paths;
        std::vector<PathStatistics> statistics(64);
        statistics.resize(endpoint_->path_statistics(peer_, statistics));
        for (const PathStatistics& path : statistics)
            paths.push_back(Json()
                                .add("path", path.path)
                                .add("packets_sent", path.packets_sent)
                                .add("packets_lost", path.packets_lost)
                                .add("up", int{path.up}));
        const PeerStatistics peer = endpoint_->peer_statistics(peer_);
        Json json;
        json.add("elapsed_s", elapsed_s)
            .add("cpu_s", cpu_s)
            .add("message_bytes", bytes_)
            .add("messages", times_ms_.size())
            .add("times_ms", times_ms_)
            .add("known_ms", known_ms_)
            .add("rtt_us", static_cast<double>(peer.rtt.value) * 1e-3)
            .add("window_bytes", peer.window.value)
            .add("block_bytes", endpoint_->block_bytes(peer_))
            .add("paths_down", paths_down_)
            .add("paths", paths);
        add_counters(json, endpoint_);
        json.print();
    }

    const Arguments& arguments_;
    const std::uint32_t rank_, bytes_;
    const std::size_t messages_;
    std::size_t started_ = 0;
    std::vector<Slot> slots_;
    const bool check_;
    Delivery delivery_ = Delivery::reliable;
    std::vector<std::uint8_t> importance_;
    std::vector<double> times_ms_, known_ms_;  // until the answer; until the engine knew
    double end_s_ = 0;
    int paths_down_ = 0;
    PeerId peer_;
    DrivenEndpoint endpoint_;
};

}  // namespace

int main(int argc, char** argv) {
    const Arguments arguments(argc, argv,
                              {{"role", "receive"},
                               {"rank", "1"},          // of a sender; the receiver is 0
                               {"bind", "127.0.0.1"},  // own address
                               {"host", "127.0.0.1"},  // send: the receiver's
                               {"port", "7400"},       // the receiver's
                               {"bytes", "4194304"},
                               {"messages", "1000000000"},
                               {"seconds", "5"},  // no message starts later
                               {"outstanding", "1"},
                               {"mode", "reliable"},
                               {"loss-ratio", "0.02"},     // bounded and deadline: what may be abandoned
                               {"critical-share", "0.5"},  // of the blocks
                               {"deadline-us", "20000"},
                               {"check", "0"},
                               DLCP_BENCH_ENDPOINT_ARGUMENTS});
    struct sigaction stop {};
    stop.sa_handler = [](int) { stopped = 1; };
    sigaction(SIGTERM, &stop, nullptr);
    return arguments.text("role") == "send" ? Transmitter(arguments).run() : Receiver(arguments).run();
}
