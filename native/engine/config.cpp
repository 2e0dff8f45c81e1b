// Which settings an endpoint accepts.
//
// A range is either what the wire or the engine's tables can hold, or wide enough that only a mistake of unit
// (seconds for nanoseconds) falls outside.
#include "engine/config.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace dlcp {
namespace {

// The first complaint wins; later checks may rely on it being the first.
class Complaint {
public:
    void in_range(std::string_view field, std::uint64_t value, std::uint64_t low, std::uint64_t high,
                  std::string_view unit = "") {
        if (value < low || value > high) refuse(field, std::to_string(value), low, high, unit);
    }
    void in_range(std::string_view field, Duration value, Duration low, Duration high) {
        if (value < low || value > high) refuse(field, std::to_string(value.value), low.value, high.value, " ns");
    }
    void in_range(std::string_view field, Bytes value, Bytes low, Bytes high) {
        in_range(field, value.value, low.value, high.value, " bytes");
    }
    void say(std::string sentence) {
        if (text_.empty()) text_ = std::move(sentence);
    }
    std::string text() && { return std::move(text_); }

private:
    template <class Integer>
    void refuse(std::string_view field, const std::string& value, Integer low, Integer high,
                std::string_view unit) {
        say(std::string(field) + " is " + value + std::string(unit) + "; accepted: " + std::to_string(low) +
            " to " + std::to_string(high) + std::string(unit));
    }
    std::string text_;
};

}  // namespace

std::string EndpointConfig::validate() const {
    Complaint complaint;

    if (encrypt && !job_key) complaint.say("encrypt is true without a job_key; accepted: false, or set job_key");
    complaint.in_range("crypto_library", static_cast<std::uint64_t>(crypto_library), 0,
                       static_cast<std::uint64_t>(CryptoLibrary::ipsec_mb));
    if (crypto_library == CryptoLibrary::ipsec_mb && make_packet_key({}, crypto_library) == nullptr) {
        complaint.say("crypto_library is ipsec_mb, which is not there; accepted: fastest, openssl");
    }

    complaint.in_range("max_datagram_bytes", max_datagram_bytes, 576, 9152);
    complaint.in_range("paths", paths, 1, 64);
    complaint.in_range("run_packets", run_packets, 1, 1024);

    const auto controller = static_cast<std::size_t>(congestion);
    if (controller >= std::size(congestion_controllers))
        complaint.say("congestion is " + std::to_string(controller) + "; accepted: " + congestion_choices());
    else if (congestion_controllers[controller].needs_line_rate && line_rate.value_bps == 0)
        complaint.say("line_rate is 0 bps; accepted with congestion " +
                      std::string(congestion_controllers[controller].name) + ": at least 1 bps");
    complaint.in_range("target_delay", target_delay, nanoseconds(1), seconds(10));
    // A window or buffer below one datagram would never let anything leave.
    const Bytes datagram{max_datagram_bytes};
    constexpr Bytes tebibyte{std::uint64_t{1} << 40};
    complaint.in_range("max_window", max_window, datagram, tebibyte);
    complaint.in_range("initial_window", initial_window, datagram, max_window);
    complaint.in_range("receive_buffer", receive_buffer, datagram, tebibyte);
    complaint.in_range("channel_datagram_bytes", channel_datagram_bytes, 576, 9152);
    complaint.in_range("channel_buffer", channel_buffer, Bytes{channel_datagram_bytes}, tebibyte);

    complaint.in_range("initial_rtt", initial_rtt, nanoseconds(1), seconds(10));
    complaint.in_range("max_rto", max_rto, nanoseconds(1), seconds(3600));
    complaint.in_range("min_rto", min_rto, nanoseconds(1), max_rto);
    complaint.in_range("max_ack_delay", max_ack_delay, nanoseconds(0), seconds(1));
    complaint.in_range("timer_granularity", timer_granularity, nanoseconds(0), seconds(1));
    complaint.in_range("peer_timeout", peer_timeout, min_rto, seconds(24 * 3600));

    complaint.in_range("max_peers", max_peers, 1, 65535);
    complaint.in_range("max_messages_per_peer", max_messages_per_peer, 1, std::uint64_t{1} << 20);
    complaint.in_range("max_unexpected", max_unexpected, Bytes{0}, tebibyte);

    for (std::size_t i = 0; i < dscp.size(); ++i) {
        complaint.in_range("dscp[" + std::to_string(i) + "]", dscp[i], 0, 63);
    }
    return std::move(complaint).text();
}

}  // namespace dlcp
