// Which settings are accepted, and what the refusals say; and that every enumerator has a name.
#include <set>
#include <string>

#include <doctest/doctest.h>

#include "engine/config.hpp"
#include "engine/event.hpp"

using namespace dlcp;

namespace {

template <class Change>
std::string complaint(Change change) {
    EndpointConfig config;
    change(config);
    return config.validate();
}

}  // namespace

TEST_CASE("config: the defaults are accepted") { CHECK(EndpointConfig{}.validate() == ""); }

TEST_CASE("config: a refusal names field, value and accepted range") {
    CHECK(complaint([](auto& c) { c.max_datagram_bytes = 575; }) ==
          "max_datagram_bytes is 575; accepted: 576 to 9152");
    CHECK(complaint([](auto& c) { c.min_rto = seconds(2); }) ==
          "min_rto is 2000000000 ns; accepted: 1 to 1000000000 ns");
    CHECK(complaint([](auto& c) { c.initial_window = Bytes{100}; }) ==
          "initial_window is 100 bytes; accepted: 1472 to 16777216 bytes");
    CHECK(complaint([](auto& c) { c.dscp[3] = 64; }) == "dscp[3] is 64; accepted: 0 to 63");
    CHECK(complaint([](auto& c) { c.max_ack_delay = nanoseconds(-5); }) ==
          "max_ack_delay_s is -5e-09; accepted: 0 to 1");
    CHECK(complaint([](auto& c) { c.target_delay = nanoseconds(0); }) ==
          "target_delay_s is 0; accepted: above 0 to 10");
    CHECK(complaint([](auto& c) { c.max_peers = 65536; }) == "max_peers is 65536; accepted: 1 to 65535");
    CHECK(complaint([](auto& c) {
              c.line_rate = Rate{1};
              c.congestion = static_cast<CongestionAlgorithm>(3);
          }) == "congestion is none of those accepted: auto, window, line_rate");
}

TEST_CASE("config: edges of the ranges") {
    const auto accepted = [](auto change) { return complaint(change).empty(); };
    CHECK(accepted([](auto& c) { c.max_datagram_bytes = 576; }));
    CHECK(accepted([](auto& c) { c.max_datagram_bytes = 9152; }));
    CHECK_FALSE(accepted([](auto& c) { c.max_datagram_bytes = 9153; }));
    CHECK_FALSE(accepted([](auto& c) { c.paths = 0; }));
    CHECK(accepted([](auto& c) { c.paths = 64; }));
    CHECK_FALSE(accepted([](auto& c) { c.paths = 65; }));
    CHECK_FALSE(accepted([](auto& c) { c.run_packets = 0; }));
    CHECK(accepted([](auto& c) { c.run_packets = 1; }));
    CHECK_FALSE(accepted([](auto& c) { c.min_run_packets = 2, c.run_packets = 1; }));
    CHECK_FALSE(accepted([](auto& c) { c.target_delay = nanoseconds(0); }));
    CHECK(accepted([](auto& c) { c.initial_window = c.max_window = Bytes{c.max_datagram_bytes}; }));
    CHECK_FALSE(accepted([](auto& c) { c.initial_window = c.max_window + Bytes{1}; }));
    CHECK_FALSE(accepted([](auto& c) { c.receive_buffer = Bytes{c.max_datagram_bytes - 1u}; }));
    CHECK_FALSE(accepted([](auto& c) { c.initial_rtt = nanoseconds(0); }));
    CHECK(accepted([](auto& c) { c.min_rto = c.max_rto; }));
    CHECK(accepted([](auto& c) { c.max_ack_delay = nanoseconds(0); }));
    CHECK(accepted([](auto& c) { c.timer_granularity = nanoseconds(0); }));
    CHECK_FALSE(accepted([](auto& c) { c.timer_granularity = seconds(2); }));
    CHECK_FALSE(accepted([](auto& c) { c.peer_timeout = c.min_rto - nanoseconds(1); }));
    CHECK_FALSE(accepted([](auto& c) { c.max_peers = 0; }));
    CHECK(accepted([](auto& c) { c.max_peers = 65535; }));
    CHECK_FALSE(accepted([](auto& c) { c.max_peers = 65536; }));
    CHECK_FALSE(accepted([](auto& c) { c.max_messages_per_peer = 0; }));
    CHECK(accepted([](auto& c) { c.max_unexpected = Bytes{0}; }));
    CHECK(accepted([](auto& c) { c.dscp[7] = 63; }));
    CHECK_FALSE(accepted([](auto& c) { c.congestion = static_cast<CongestionAlgorithm>(4); }));
    CHECK_FALSE(accepted([](auto& c) { c.crypto_library = static_cast<CryptoLibrary>(3); }));
    CHECK_FALSE(accepted([](auto& c) { c.cipher = static_cast<CipherChoice>(3); }));
}

TEST_CASE("config: encryption needs a key") {
    CHECK(complaint([](auto& c) { c.encrypt = true; }).starts_with("encrypt is true without a job_key"));
    CHECK(complaint([](auto& c) {
              c.encrypt = true;
              c.job_key = JobKeyBytes{};
          }) == "");
}

TEST_CASE("config: a crypto library that is not there is refused") {
    CHECK(complaint([](auto& c) { c.crypto_library = CryptoLibrary::openssl; }) == "");
    const std::string text = complaint([](auto& c) { c.crypto_library = CryptoLibrary::ipsec_mb; });
    const bool is_there = make_packet_key({}, CryptoLibrary::ipsec_mb) != nullptr;
    CHECK(text == (is_there ? "" : "crypto_library is ipsec_mb, which is not there; accepted: fastest, openssl"));
}

TEST_CASE("config: a cipher that this endpoint cannot use is refused") {
    const bool is_there = make_packet_key({}, Cipher::aegis_128x2, CryptoLibrary::fastest) != nullptr;
    CHECK((complaint([](auto& c) { c.cipher = CipherChoice::aegis_128x2; }) == "") == is_there);
    CHECK(complaint([](auto& c) {
              c.cipher = CipherChoice::aegis_128x2;
              c.crypto_library = CryptoLibrary::openssl;
          }).starts_with("cipher is aegis_128x2 and crypto_library is not fastest"));
}

TEST_CASE("config: line_rate needs a line rate") {
    EndpointConfig config;
    config.congestion = congestion_algorithm("line_rate");
    CHECK(config.validate().starts_with("line_rate is 0 bps"));
    config.line_rate = Rate{1};
    CHECK(config.validate() == "");
}

TEST_CASE("names: every enumerator has its own, anything else is unknown") {
    std::set<std::string> errors;
    constexpr int error_count = static_cast<int>(CommandError::peer_gone) + 1;
    for (int i = 0; i < error_count; ++i) errors.insert(name(static_cast<CommandError>(i)));
    CHECK(errors.size() == error_count);
    CHECK(errors.count("unknown") == 0);
    CHECK(std::string(name(static_cast<CommandError>(error_count))) == "unknown");

    std::set<std::string> kinds;
    constexpr int kind_count = static_cast<int>(EventKind::message_unexpected) + 1;
    for (int i = 0; i < kind_count; ++i) kinds.insert(name(static_cast<EventKind>(i)));
    CHECK(kinds.size() == kind_count);
    CHECK(kinds.count("unknown") == 0);
    CHECK(std::string(name(static_cast<EventKind>(kind_count))) == "unknown");
}
