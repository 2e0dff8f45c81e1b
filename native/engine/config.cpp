// Which settings an endpoint accepts.
//
// The range of each setting is in its row (config.hpp). It is either what the wire or the engine's tables can hold, or
// so wide that only a wrong unit falls outside. This file checks what involves more than one field.
#include "engine/config.hpp"

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "engine/packet.h"

namespace dlcp {
namespace {

// Keeps only the first complaint. Later checks may assume that the earlier ones held.
class Complaint {
public:
    static std::string plain(double number) {
        char text[32];
        std::snprintf(text, sizeof text, "%.15g", number);
        return text;
    }
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
    void in_range(const Setting& setting, const SettingValue& value) {
        const auto* whole = std::get_if<std::int64_t>(&value);
        const auto* real = std::get_if<double>(&value);
        const double number = whole != nullptr ? static_cast<double>(*whole) : real != nullptr ? *real : NAN;
        const Accepted& range = setting.accepted;
        if (range.kind == SettingKind::choice && std::get<std::string>(value).empty())
            say(std::string(setting.name) + " is none of those accepted: " + std::string(range.words));
        if (range.kind != SettingKind::integer && range.kind != SettingKind::number) return;
        if (number <= range.high && (range.above ? number > range.low : number >= range.low)) return;
        say(std::string(setting.name) + " is " + plain(number) + "; accepted: " + (range.above ? "above " : "") +
            plain(range.low) + " to " + plain(range.high));
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
    if (crypto_library == CryptoLibrary::ipsec_mb && make_packet_key({}, crypto_library) == nullptr) {
        complaint.say("crypto_library is ipsec_mb, which is not there; accepted: fastest, openssl");
    }
    if (cipher == CipherChoice::aegis_128x2 && offered_ciphers(cipher, crypto_library) == CipherCosts{}) {
        complaint.say(crypto_library == CryptoLibrary::fastest
                          ? "cipher is aegis_128x2, which needs libaegis and a processor with AES instructions; "
                            "accepted: any, aes_128_gcm"
                          : "cipher is aegis_128x2 and crypto_library is not fastest; accepted: cipher any or "
                            "aes_128_gcm, or crypto_library fastest");
    }

    complaint.in_range("max_datagram_bytes", max_datagram_bytes, 576, 9152);
    const auto controller = static_cast<std::size_t>(congestion);
    if (controller < std::size(congestion_controllers) && congestion_controllers[controller].needs_line_rate &&
        line_rate.value_bps == 0)
        complaint.say("line_rate is 0 bps; accepted with congestion " +
                      std::string(congestion_controllers[controller].name) + ": at least 1 bps");
    // A window or buffer below one datagram would let nothing leave.
    const Bytes datagram{max_datagram_bytes};
    constexpr Bytes most{static_cast<std::uint64_t>(tebibyte)};
    complaint.in_range("max_window", max_window, datagram, most);
    complaint.in_range("initial_window", initial_window, datagram, max_window);
    complaint.in_range("receive_buffer", receive_buffer, datagram, most);
    complaint.in_range("channel_datagram_bytes", channel_datagram_bytes, 576, DLCP_CHANNEL_PACKET_BYTES_MAX);
    complaint.in_range("channel_buffer", channel_buffer, Bytes{channel_datagram_bytes}, most);

    complaint.in_range("min_run_packets", min_run_packets, 1, run_packets);
    complaint.in_range("min_rto", min_rto, nanoseconds(1), max_rto);
    complaint.in_range("peer_timeout", peer_timeout, min_rto, seconds(24 * 3600));

    for (std::size_t i = 0; i < dscp.size(); ++i) {
        complaint.in_range("dscp[" + std::to_string(i) + "]", dscp[i], 0, 63);
    }
    for (const auto& row : protocol_settings) complaint.in_range(row.setting, row.get(*this, row.setting));
    for (const auto& row : endpoint_settings) complaint.in_range(row.setting, row.get(*this, row.setting));
    return std::move(complaint).text();
}

}  // namespace dlcp
