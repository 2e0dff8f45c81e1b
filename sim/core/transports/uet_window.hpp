// A flow's congestion window: NSCC, as in UET 1.0's section on congestion management and SMaRTT (arXiv 2404.01630), with
// the constants published with the consortium's reference model.
//
// Marks and the delay of each acknowledged packet move it; after a round trip with little delivered it becomes what was
// delivered ("quick adaption"). It is given what it needs in each call and knows no packets. Bytes and picoseconds.
#pragma once

#include <cstdint>

namespace dlcp::sim {

// The same for all flows of a transport.
struct UetWindowSettings {
    double payload_bytes;  // of a full packet
    double packet_bytes;   // with its header
    double delay_gain;     // weight of the newest delay in the moving average
};

class UetWindow {
public:
    UetWindow() = default;
    // `base_rtt_ps`: the flow's. `reference_rtt_ps`: what delays are measured against, the network's. `bytes_per_ps`: the
    // host's line rate.
    UetWindow(double max_bytes, double bytes_per_ps, std::int64_t base_rtt_ps, std::int64_t reference_rtt_ps,
              std::int64_t target_delay_ps);

    double bytes() const { return bytes_; }
    double max_bytes() const { return max_bytes_; }
    std::int64_t target_delay_ps() const { return target_delay_ps_; }

    // `bytes` were acknowledged by an answer that took `delay_ps` longer than with empty queues. Both calls return whether
    // the window was adapted quickly.
    bool on_ack(const UetWindowSettings& settings, std::int64_t now_ps, double in_flight_bytes, bool marked,
                std::int64_t delay_ps, double bytes);
    // A packet was trimmed or lost; `congestion`: because a queue was full.
    bool on_loss(const UetWindowSettings& settings, std::int64_t now_ps, double in_flight_bytes, bool congestion);
    // So many packets were given up at a timeout.
    void on_timeout(const UetWindowSettings& settings, std::uint32_t packets);

private:
    void bound(const UetWindowSettings& settings);
    enum class Adapted : std::uint8_t {
        no,
        lately,
        now
    };  // lately: marks of what was in flight at it are ignored
    Adapted quick_adapt(const UetWindowSettings& settings, std::int64_t now_ps, double in_flight_bytes, bool loss,
                        bool marked, std::int64_t delay_ps);
    void measure_delay(const UetWindowSettings& settings, std::int64_t delay_ps, bool marked);
    void increase_for(const UetWindowSettings& settings, std::int64_t delay_ps, double bytes);

    double bytes_ = 0;      // the window: from one packet to max_bytes_
    double max_bytes_ = 0;  // constant
    double increase_ = 0;   // collected since the last adjustment; divided by the window when applied
    double average_delay_ps_ = 0;
    double fast_bytes_ = 0;       // acknowledged in a row with hardly any delay
    double achieved_bytes_ = 0;   // acknowledged since the last round trip's check
    double adjust_bytes_ = 0;     // acknowledged since the last adjustment
    double ignored_bytes_ = 0;    // acknowledged since the last quick adaption
    double bytes_to_ignore_ = 0;  // what was in flight at it, whose marks are not judged again
    std::int64_t base_rtt_ps_ = 0;
    std::int64_t reference_rtt_ps_ = 0;
    std::int64_t target_delay_ps_ = 0;
    std::int64_t adapt_end_ps_ = 0;  // of the round trip that quick adaption looks at; 0: none yet
    std::int64_t last_decrease_ps_ = 0;
    std::int64_t last_adjust_ps_ = 0;
    double scale_ = 1;           // bandwidth-delay product over the reference's, 100 Gb/s times 12 us
    bool fast_ = false;          // delays have been next to nothing for a window: it grows faster
    bool adapt_wanted_ = false;  // something was trimmed or lost since the last quick adaption
};

}  // namespace dlcp::sim
