// RuntimeOptions: one attribute per setting of the engine and of the host, with the engine's own units (ns, bytes,
// bits per second). dlcp.transport.settings is what people use.
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <string>

#include "bind/bind.hpp"
#include "io/runtime.hpp"

namespace dlcp::bind {
namespace {

using Options = nb::class_<RuntimeOptions>;

template <class Value, class Member>
void bind_engine_value(Options& options, const char* field, Member EndpointConfig::*member) {
    options.def_prop_rw(
        field, [member](const RuntimeOptions& o) { return static_cast<Value>(o.engine.*member); },
        [member](RuntimeOptions& o, Value value) { o.engine.*member = static_cast<Member>(value); });
}

void bind_duration(Options& options, const char* field, Duration EndpointConfig::*member) {
    options.def_prop_rw(
        field, [member](const RuntimeOptions& o) { return (o.engine.*member).value; },
        [member](RuntimeOptions& o, std::int64_t ns) { o.engine.*member = Duration{ns}; });
}

void bind_bytes(Options& options, const char* field, Bytes EndpointConfig::*member) {
    options.def_prop_rw(
        field, [member](const RuntimeOptions& o) { return (o.engine.*member).value; },
        [member](RuntimeOptions& o, std::uint64_t bytes) { o.engine.*member = Bytes{bytes}; });
}

void set_key(RuntimeOptions& options, nb::bytes key) {
    if (key.size() != job_key_bytes)
        throw IoError(IoErrorKind::settings, "the job key has " + std::to_string(key.size()) +
                                                 " bytes; accepted: exactly " + std::to_string(job_key_bytes));
    JobKeyBytes bytes{};
    std::copy_n(static_cast<const std::uint8_t*>(key.data()), bytes.size(), bytes.begin());
    options.engine.job_key = bytes;
}

}  // namespace

void bind_options(nb::module_& m) {
    nb::enum_<CongestionAlgorithm>(m, "CongestionAlgorithm")
        .value("window", CongestionAlgorithm::window)
        .value("line_rate", CongestionAlgorithm::line_rate)
        .value("credit", CongestionAlgorithm::credit);
    nb::enum_<CryptoLibrary>(m, "CryptoLibrary")
        .value("fastest", CryptoLibrary::fastest)
        .value("openssl", CryptoLibrary::openssl)
        .value("ipsec_mb", CryptoLibrary::ipsec_mb);

    Options options(m, "RuntimeOptions", "Settings of one host; attributes have the engine's units.");
    options.def(nb::init<>())
        .def_rw("driver", &RuntimeOptions::driver)
        .def_rw("driver_options", &RuntimeOptions::driver_options)
        .def_rw("bind_host", &RuntimeOptions::bind_host)
        .def_rw("port", &RuntimeOptions::port)
        .def_rw("interface_name", &RuntimeOptions::interface_name)
        .def_rw("max_datagram_bytes", &RuntimeOptions::max_datagram_bytes)
        .def_rw("receive_buffer_bytes", &RuntimeOptions::receive_buffer_bytes)
        .def_rw("socket_buffer_bytes", &RuntimeOptions::socket_buffer_bytes)
        .def_rw("inject_loss_ratio", &RuntimeOptions::inject_loss_ratio)
        .def_rw("allow_unauthenticated", &RuntimeOptions::allow_unauthenticated)
        .def_rw("io_thread", &RuntimeOptions::io_thread)
        .def_prop_rw(
            "segmentation_offload", [](const RuntimeOptions& o) { return (o.io_flags & DLCP_IO_NO_GSO) == 0; },
            [](RuntimeOptions& o, bool on) {
                o.io_flags = on ? o.io_flags & ~DLCP_IO_NO_GSO : o.io_flags | DLCP_IO_NO_GSO;
            })
        .def_prop_rw(
            "receive_offload", [](const RuntimeOptions& o) { return (o.io_flags & DLCP_IO_NO_GRO) == 0; },
            [](RuntimeOptions& o, bool on) {
                o.io_flags = on ? o.io_flags & ~DLCP_IO_NO_GRO : o.io_flags | DLCP_IO_NO_GRO;
            })
        .def_prop_rw(
            "linger_ns", [](const RuntimeOptions& o) { return o.linger.value; },
            [](RuntimeOptions& o, std::int64_t ns) { o.linger = Duration{ns}; })
        .def("set_job_key", &set_key, nb::arg("key"), "Takes 32 bytes.")
        .def_prop_rw(
            "line_rate_bps", [](const RuntimeOptions& o) { return o.engine.line_rate.value_bps; },
            [](RuntimeOptions& o, std::uint64_t bps) { o.engine.line_rate = Rate{bps}; })
        .def_prop_rw(
            "dscp", [](const RuntimeOptions& o) { return o.engine.dscp; },
            [](RuntimeOptions& o, const std::array<std::uint8_t, 8>& dscp) { o.engine.dscp = dscp; });
    bind_engine_value<std::uint32_t>(options, "rank", &EndpointConfig::rank);
    bind_engine_value<std::uint32_t>(options, "job", &EndpointConfig::job);
    bind_engine_value<bool>(options, "encrypt", &EndpointConfig::encrypt);
    bind_engine_value<bool>(options, "announce_unexpected", &EndpointConfig::announce_unexpected);
    bind_engine_value<CryptoLibrary>(options, "crypto_library", &EndpointConfig::crypto_library);
    bind_engine_value<std::uint16_t>(options, "paths", &EndpointConfig::paths);
    bind_engine_value<std::uint16_t>(options, "run_packets", &EndpointConfig::run_packets);
    bind_engine_value<CongestionAlgorithm>(options, "congestion", &EndpointConfig::congestion);
    bind_engine_value<std::uint32_t>(options, "max_peers", &EndpointConfig::max_peers);
    bind_engine_value<std::uint32_t>(options, "max_messages_per_peer", &EndpointConfig::max_messages_per_peer);
    bind_duration(options, "target_delay_ns", &EndpointConfig::target_delay);
    bind_duration(options, "initial_rtt_ns", &EndpointConfig::initial_rtt);
    bind_duration(options, "min_rto_ns", &EndpointConfig::min_rto);
    bind_duration(options, "max_rto_ns", &EndpointConfig::max_rto);
    bind_duration(options, "max_ack_delay_ns", &EndpointConfig::max_ack_delay);
    bind_duration(options, "timer_granularity_ns", &EndpointConfig::timer_granularity);
    bind_duration(options, "peer_timeout_ns", &EndpointConfig::peer_timeout);
    bind_bytes(options, "initial_window_bytes", &EndpointConfig::initial_window);
    bind_bytes(options, "max_window_bytes", &EndpointConfig::max_window);
    bind_bytes(options, "max_unexpected_bytes", &EndpointConfig::max_unexpected);
    bind_bytes(options, "max_unexpected_message_bytes", &EndpointConfig::max_unexpected_message);
}

}  // namespace dlcp::bind
