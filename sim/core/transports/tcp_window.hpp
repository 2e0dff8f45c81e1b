// The congestion window of a TCP connection: NewReno (RFC 5681, 6582), CUBIC (RFC 9438) and DCTCP (RFC 8257).
//
// Counted in segments, as Linux does. It grows by what is acknowledged and shrinks by what the sender concludes: a loss, a
// timeout, a mark. When that is, and how sending goes on during recovery, is the sender's (tcp_sender.hpp). It is plain
// data, so that a recovery that proves spurious is undone by assignment and a later flow of the pair can inherit it.
#pragma once

#include <cstdint>

namespace dlcp::sim {

enum class TcpCongestion : std::uint8_t { newreno, cubic, dctcp };

struct TcpWindowSettings {
    TcpCongestion congestion = TcpCongestion::cubic;
    double initial_packets = 10;   // RFC 6928
    double max_packets = 1 << 20;  // the peer's receive window
    // CUBIC, RFC 9438 §4.1, §4.6, §4.7
    double cubic_c = 0.4;  // segments per second cubed
    double cubic_beta = 0.7;
    bool fast_convergence = true;
    bool reno_friendly = true;
    // HyStart++, RFC 9406 §4.3. Its least delay is above any round trip inside a data centre, where it never acts.
    bool hystart = false;
    std::int64_t hystart_min_ps = 4'000'000'000;
    std::int64_t hystart_max_ps = 16'000'000'000;
    // DCTCP, RFC 8257 §3.3
    double dctcp_gain = 1.0 / 16;
};

class TcpWindow {
public:
    TcpWindow() = default;
    explicit TcpWindow(const TcpWindowSettings& settings)
        : settings_(&settings), packets_(settings.initial_packets) {}

    double packets() const { return packets_; }
    double threshold() const { return threshold_; }
    bool slow_start() const { return packets_ < threshold_; }
    double dctcp_alpha() const { return alpha_; }

    // `count` segments were delivered, the window being what limited the sender.
    void grow(std::uint32_t count, std::int64_t now_ps, std::int64_t srtt_ps);
    // A loss: the window to have after recovery.
    void lose();
    // A retransmission timeout: from `packets` on; `again`: the threshold was lowered for these losses before.
    void time_out(double packets, bool again);
    // Marked by a switch; at most once per round trip (RFC 3168 §6.1.2, RFC 8257 §3.3).
    void mark();
    // For DCTCP's estimate: `count` segments were acknowledged, with or without an echo.
    void count(std::uint32_t count, bool marked);
    void sample_rtt(std::int64_t rtt_ps);
    // All that was in flight a round trip ago is acknowledged.
    void end_round();
    // Nothing was sent for so long: time does not pass for CUBIC meanwhile.
    void skip(std::int64_t idle_ps);

private:
    void grow_cubic(double count, std::int64_t now_ps, std::int64_t srtt_ps);
    double multiplier() const;

    const TcpWindowSettings* settings_ = nullptr;
    double packets_ = 0;
    double threshold_ = 1e18;
    // CUBIC
    double w_max_ = 0;
    double w_est_ = 0;    // what Reno would have
    double w_prior_ = 0;  // before the last reduction
    double origin_ = 0;   // the plateau of this epoch's curve
    double k_s_ = 0;      // when it is reached
    std::int64_t epoch_ps_ = -1;
    // DCTCP
    double alpha_ = 1;
    std::uint32_t counted_ = 0;
    std::uint32_t marked_ = 0;
    // HyStart++
    std::int64_t last_round_rtt_ps_ = INT64_MAX;
    std::int64_t round_rtt_ps_ = INT64_MAX;
    std::int64_t conservative_rtt_ps_ = INT64_MAX;
    std::uint32_t samples_ = 0;
    std::uint32_t conservative_rounds_ = 0;  // 0: not in conservative slow start
};

}  // namespace dlcp::sim
