// TCP and DCTCP as transports of flows: segments and acknowledgements on the wire, timers, connections of pairs of hosts.
//
// A flow that starts by the clock is a connection, established before it starts unless `handshake` is set, as in studies
// of flow completion. Flows of the task graph (collectives, training) are messages on one connection per source and
// destination, as training jobs keep them: a flow goes on with the window and the round trip that the last one left. (Of
// flows at the same time each goes on from the last one that has ended.) `persistent` says one or the other of all flows.
// All segments of a flow take one path, so that switches do not reorder them; a later flow of the pair may take another.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "sim/core/flow_transport.hpp"
#include "sim/core/transports/tcp_receiver.hpp"
#include "sim/core/transports/tcp_sender.hpp"

namespace dlcp::sim {

struct TcpSettings {
    TcpSenderSettings sender;
    TcpReceiverSettings receiver;
    std::uint32_t mtu_bytes = 4096 + 52;       // the other transports' payload, and the headers of IP and TCP
    std::optional<std::int64_t> ack_delay_ps;  // 0: each segment is acknowledged
    bool ecn = false;
    bool handshake = false;
    std::optional<bool> persistent;  // none: flows of the task graph alone

    // What TCP and DCTCP share; members are set before to defaults of their own.
    void list(SettingsTable& table);
};

// What the window of one flow was, after each acknowledgement and timeout.
struct TcpTracePoint {
    std::int64_t at_ps;
    double window_packets;
    double threshold_packets;
    std::uint32_t in_flight;
};

class TcpTransport final : public FlowTransport {
public:
    explicit TcpTransport(const TcpSettings& settings);

    void prepare(Simulation& simulation) override;
    void start_flow(Domain& domain, std::uint32_t flow) override;
    void handle_packet(Domain& domain, std::uint32_t host, std::uint32_t slot) override;
    void handle_timer(Domain& domain, std::uint32_t host, std::uint32_t timer) override;
    std::uint32_t payload_bytes() const override;
    std::uint32_t header_bytes() const override;
    std::map<std::string, double> counters() const override;

    // Before the run: records what becomes of this flow's window.
    void trace_window(std::uint32_t flow) { traced_ = flow; }
    const std::vector<TcpTracePoint>& window_trace() const { return trace_; }

protected:
    std::uint32_t next_data(Domain& domain, std::uint32_t flow) override;

private:
    enum Timer : std::uint32_t { sender_timer = 0, ack_timer = 1, handshake_timer = 2, timers = 4 };

    struct Sender {
        TcpSender tcp;
        std::int64_t armed_ps = -1;  // the timer that is set; an earlier deadline sets another
    };
    struct Receiver {
        TcpReceiver tcp;
        std::int64_t due_ps = -1;  // of the acknowledgement held back
        bool armed = false;
    };
    // Of a source and a destination; the source's.
    struct Connection {
        bool known = false;
        TcpPath path;
        std::int64_t idle_since_ps = 0;
    };
    // A pending handshake; the source's.
    struct Handshake {
        std::int64_t sent_ps = -1;  // -1: none, or over
        std::uint32_t attempts = 0;
    };
    // Of flows that are over.
    struct HostCounters {
        std::uint64_t probes = 0;
        std::uint64_t recoveries = 0;
        std::uint64_t undone = 0;
        std::uint64_t timeouts = 0;
        std::uint64_t handshake_timeouts = 0;

        void add(const TcpSender& sender) {
            probes += sender.probes();
            recoveries += sender.recoveries();
            undone += sender.undone();
            timeouts += sender.timeouts();
        }
    };

    // The connection that a flow goes on with, or nullptr: it is a new one.
    Connection* connection(std::uint32_t flow) {
        return connection_of_[flow] == none ? nullptr : &connections_[connection_of_[flow]];
    }
    std::uint32_t segments(std::uint64_t bytes) const;
    std::uint32_t payload_of(Domain& domain, std::uint32_t flow, std::uint32_t number) const;
    std::uint32_t make(Domain& domain, std::uint32_t flow, bool reverse, std::uint32_t type, std::uint32_t number,
                       std::uint32_t wire_bytes);
    void open(Domain& domain, std::uint32_t flow, std::int64_t rtt_ps);
    void send_handshake(Domain& domain, std::uint32_t flow);
    void handle_data(Domain& domain, std::uint32_t flow, std::uint32_t slot);
    void handle_ack(Domain& domain, std::uint32_t flow, const TcpAck& ack);
    void send_ack(Domain& domain, std::uint32_t flow, const TcpAck& ack);
    void after_sender(Domain& domain, std::uint32_t flow);
    void arm(Domain& domain, std::uint32_t flow);
    void record(std::int64_t now_ps, const TcpSender& sender);

    TcpSettings settings_;
    Simulation* simulation_ = nullptr;
    std::vector<std::unique_ptr<Sender>> senders_;      // per flow, while it is running
    std::vector<std::unique_ptr<Receiver>> receivers_;  // likewise
    std::vector<std::uint8_t> complete_;                // per flow: the receiver has it all
    std::vector<std::uint32_t> connection_of_;          // per flow; none: one of its own
    std::vector<Connection> connections_;               // those that outlive flows
    std::vector<Handshake> handshakes_;
    std::vector<HostCounters> host_counters_;
    std::uint32_t traced_ = none;
    std::vector<TcpTracePoint> trace_;
};

}  // namespace dlcp::sim
