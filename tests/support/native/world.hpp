// Endpoints over a virtual network with a virtual clock, all from one seed, and a judge who watches them.
//
// The world drives each engine exactly as a driver does, and holds it to its contract. What is checked, always:
//
//   packets    parse; numbers grow within a session; DSCP and ECN follow class and importance; a payload pointer
//              lies in a message that is not over, at its block's place, with its block's importance
//   messages   one final event each, at the time it says; its error has a cause; delivered + abandoned = message;
//              critical blocks are never abandoned; the budget holds, except that of a deadline that has passed
//   memory     delivered blocks hold the sender's bytes; abandoned ones, the room behind the message, and buffers
//              of messages that are over are untouched; a block that is placed is not written again
//   both ends  agree which blocks were abandoned; counters agree with the events
//   engines    keep their invariants; time moves on
//
// The first failure is kept, and everything stops there.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "engine/endpoint.hpp"
#include "engine/wire.hpp"
#include "support/native/dice.hpp"
#include "support/native/virtual_network.hpp"

namespace dlcp::test {

struct SendPlan {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    std::uint64_t tag = 0;
    std::uint32_t message_bytes = 0;
    bool is_virtual = false;
    std::uint8_t traffic_class = 0;
    Delivery delivery = Delivery::reliable;
    double loss_ratio = 0.0;
    Duration deadline{0};
    Duration patience{-1};
    // Each block is critical with this probability, otherwise of random importance. Negative: no importance given.
    double critical_ratio = -1.0;
};

struct ReceivePlan {
    static constexpr std::uint32_t anyone = UINT32_MAX;
    std::uint32_t at = 0;
    std::uint32_t from = anyone;
    std::uint64_t tag = 0;
    std::uint32_t capacity_bytes = 0;
    bool is_virtual = false;
};

// How a driver serves one endpoint.
struct HostSettings {
    Duration wake_delay{0};    // packets wait up to this long before they are read, so that batches form
    std::uint32_t batch = 64;  // most packets per handle_packets
    std::uint32_t slots = 32;  // most packets per poll_transmit
};

enum class Phase : std::uint8_t {
    refused_at_once,  // the command returned an error
    open,
    finished,
    failed,
    lost,  // its endpoint was stopped or restarted under it
};

// One send or receive, from the command on.
struct Record {
    std::uint32_t host = 0;
    std::uint32_t life = 0;  // which incarnation of the host
    std::uint64_t tag = 0;
    MessageId id;
    PeerId peer;
    Phase phase = Phase::open;
    CommandError error = CommandError::none;
    Time posted;
    Time over;
    bool cancelled = false;  // by us
    bool released = false;
    std::vector<std::uint8_t> memory;
    MessageOutcome outcome;  // its span is replaced by `abandoned`
    std::vector<std::uint64_t> abandoned;
};

struct SendRecord : Record {
    SendPlan plan;
    std::uint32_t serial = 0;
    std::uint16_t block_bytes = 0;  // when sent
    bool established = false;       // when sent: block_bytes is final
    std::vector<std::uint8_t> importance;
    std::optional<std::uint32_t> ended_by;  // the droppable block that left as a critical one
    std::int32_t receive = -1;              // its counterpart, once known
    bool ambiguous = false;                 // the counterpart might be another one with the same tag and bytes
};

struct ReceiveRecord : Record {
    ReceivePlan plan;
    std::int32_t send = -1;
    std::vector<bool> scribbled;  // blocks we overwrote after they were placed
    std::uint16_t scribbled_block_bytes = 0;
};

// What the scenario makes legitimate.
struct Allowed {
    bool timeouts = false;  // peers may fall silent
    bool restarts = false;
    bool closes = false;
};

class World {
public:
    explicit World(std::uint64_t seed, Time origin = Time{0});
    ~World();

    // The host's number is its rank.
    std::uint32_t add_host(EndpointConfig config, HostSettings settings = {});
    VirtualNetwork& network() { return network_; }
    bool alive(std::uint32_t host) const { return hosts_[host].endpoint != nullptr; }
    Endpoint& endpoint(std::uint32_t host) { return *hosts_[host].endpoint; }
    std::uint32_t hosts() const { return static_cast<std::uint32_t>(hosts_.size()); }
    Time now() const { return network_.now(); }

    // Commands, as an application gives them; the packets that follow leave at once.
    CommandError connect(std::uint32_t from, std::uint32_t to);
    bool established(std::uint32_t from, std::uint32_t to) const;
    // Connects first where needed. The index of the new record.
    std::size_t send(const SendPlan& plan);
    std::size_t receive(const ReceivePlan& plan);
    void cancel_send(std::size_t send);
    void cancel_receive(std::size_t receive);
    void advance_key_epoch(std::uint32_t host);
    void close(std::uint32_t host);
    // The process ends without a word; `restart` brings another one up at the same address.
    void stop(std::uint32_t host);
    void restart(std::uint32_t host);
    // Overwrites blocks of open receives that have arrived: nobody may write them again.
    void scribble();

    // Lets things happen until `until`. False when something failed or nothing is under way any more.
    bool run_until(Time until);
    // The same, but stops when `done` says so. True if it did.
    bool run(Time limit, const std::function<bool()>& done);
    bool nothing_under_way() const;
    std::size_t open_sends() const;
    std::size_t open_receives() const;
    // Forgets messages that are over in the engines, and checks what is left. Call last.
    void finish();

    const std::vector<SendRecord>& sends() const { return sends_; }
    const std::vector<ReceiveRecord>& receives() const { return receives_; }
    const Counters& counters(std::uint32_t host) { return hosts_[host].endpoint->counters(); }

    const std::string& failure() const { return failure_; }
    bool failed() const { return !failure_.empty(); }
    void fail(const std::string& what);
    std::uint64_t trace_hash() const { return hash_; }
    void trace_to(std::FILE* file) { trace_ = file; }
    // Engines' invariants are checked after every this many steps, and at the end.
    void check_invariants_every(std::uint32_t steps) { check_every_ = steps; }
    // Called with every packet that an engine sends, after it was checked.
    void watch_packets(std::function<void(std::uint32_t host, const wire::Header&)> watcher) {
        watcher_ = std::move(watcher);
    }
    std::function<void(std::uint32_t host, const Event&)> on_event;

    Allowed allowed;

private:
    struct Host {
        EndpointConfig config;
        HostSettings settings;
        std::unique_ptr<Endpoint> endpoint;
        std::unique_ptr<std::uint8_t[]> heads;
        std::vector<dlcp_packet> slots;
        std::uint32_t life = 0;
        bool restarted = false;
        bool closed = false;
        bool wake_pending = false;
        Time wake_at;
        std::uint32_t idle_timers = 0;                       // handle_timer calls in a row that moved nothing
        std::vector<std::size_t> open_sends, open_receives;  // indices of records
        // Next packet number that may be sent, by destination and both ends' sessions: one set of keys.
        std::map<std::tuple<std::uint32_t, std::uint64_t, std::uint32_t>, std::uint64_t> next_number;
        // What long headers have said of each message, by destination, its session and wire id.
        std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, wire::Header> described;
        std::map<std::uint32_t, std::uint64_t> own_session;  // by destination, as last said in a hello
        // What the counters of this life should say.
        std::uint64_t sends_finished = 0, receives_finished = 0, messages_failed = 0;
        std::uint64_t abandoned_bytes = 0, abandoned_by_peer_bytes = 0, delivered_bytes = 0;
    };

    void start_endpoint(std::uint32_t host);
    Time next_time() const;
    void step(Time at);
    void read(std::uint32_t host);
    // Returns how many packets and events came out.
    std::size_t drain(std::uint32_t host);
    void judge_packet(std::uint32_t host, const dlcp_packet& packet);
    static bool says_importance(SendRecord& send, const wire::Header& header);
    void handle_event(std::uint32_t host, const Event& event);
    void handle_final(std::uint32_t host, const Event& event, bool sending);
    void take_outcome(Record& record, const Event& event);
    void judge_outcome(const Record& record);
    void judge_send_error(const SendRecord& send);
    void judge_receive_error(const ReceiveRecord& receive);
    void match(ReceiveRecord& receive, std::size_t receive_index, std::uint32_t from);
    // Empty if the receiver holds what `send` delivered; otherwise what is wrong.
    std::string compare_content(const ReceiveRecord& receive, const SendRecord& send) const;
    void judge_pair(const SendRecord& send, const ReceiveRecord& receive);
    void judge_budget(const SendRecord& send, const MessageOutcome& outcome,
                      const std::vector<std::uint64_t>& abandoned, Time over);
    void lose_records(std::uint32_t host);
    void mix(std::uint64_t word);
    void mix(std::span<const std::uint8_t> bytes);
    void log(const char* format, ...) __attribute__((format(printf, 2, 3)));

    VirtualNetwork network_;
    Dice dice_;
    std::uint64_t seed_;
    std::vector<Host> hosts_;
    std::vector<SendRecord> sends_;
    std::vector<ReceiveRecord> receives_;
    std::vector<std::uint8_t> scratch_;
    std::function<void(std::uint32_t, const wire::Header&)> watcher_;
    std::uint64_t steps_ = 0;
    std::uint64_t steps_now_ = 0;  // without time moving on
    std::uint32_t check_every_ = 1;
    std::uint64_t hash_ = 0xcbf29ce484222325ULL;
    std::FILE* trace_ = nullptr;
    std::string failure_;
};

// "receive 3 at host 1", for messages.
std::string describe(const SendRecord& send);
std::string describe(const ReceiveRecord& receive);

}  // namespace dlcp::test
