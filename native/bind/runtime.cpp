// Runtime and Transfer for Python; bound_runtime.hpp says who holds memory.
#include <nanobind/ndarray.h>

#include "bind/bound_runtime.hpp"
#include "bind/collective.hpp"

namespace dlcp::bind {
namespace {

using AbandonedWords = nb::ndarray<nb::numpy, std::uint64_t, nb::ndim<1>>;

AbandonedWords abandoned_words(const Transfer& transfer) {
    const auto& words = transfer.ended().abandoned;
    auto* copy = new std::vector<std::uint64_t>(words);
    const nb::capsule owner(copy, [](void* p) noexcept { delete static_cast<std::vector<std::uint64_t>*>(p); });
    return {copy->data(), {copy->size()}, owner};
}

// (message_bytes, block_bytes, blocks, delivered_bytes, abandoned_bytes, abandoned_blocks, retransmitted_bytes)
nb::tuple outcome(const Transfer& transfer) {
    const MessageOutcome& o = transfer.ended().outcome;
    return nb::make_tuple(o.message_bytes, o.block_bytes, o.blocks, o.delivered_bytes, o.abandoned_bytes,
                          o.abandoned_blocks, o.retransmitted_bytes);
}

nb::dict capabilities(BoundRuntime& bound) {
    const dlcp_io_capabilities& c = bound.runtime().capabilities();
    nb::dict out;
    out["max_datagram_bytes"] = c.max_datagram_bytes;
    out["max_burst_packets"] = c.max_burst_packets;
    out["receive_buffer_bytes"] = c.receive_buffer_bytes;
    out["wants_runs"] = c.wants_runs != 0;
    out["reports_ecn"] = c.reports_ecn != 0;
    out["pollable"] = c.pollable != 0;
    out["is_loopback"] = c.is_loopback != 0;
    return out;
}

}  // namespace

void bind_host(nb::module_& m) {
    nb::enum_<Delivery>(m, "Delivery")
        .value("reliable", Delivery::reliable)
        .value("bounded", Delivery::bounded)
        .value("deadline", Delivery::deadline);

    nb::class_<Transfer>(m, "Transfer",
                         "One message under way or over. What it became is to be asked when it is over.")
        .def_prop_ro("over", &Transfer::over)
        .def_prop_ro(
            "error", [](const Transfer& t) { return error_name(t.ended().error); },
            nb::sig("def error(self) -> str | None"))
        .def_prop_ro("rank",
                     [](const Transfer& t) -> std::optional<std::uint32_t> {
                         const std::uint32_t rank = t.ended().rank;
                         return rank == UINT32_MAX ? std::nullopt : std::optional(rank);
                     })
        .def_prop_ro("waited_s", [](const Transfer& t) { return in_seconds(t.ended().waited); })
        .def_prop_ro("outcome", &outcome)
        .def_prop_ro("abandoned_words", &abandoned_words, nb::rv_policy::automatic);

    nb::class_<BoundRuntime> runtime(m, "Runtime", "An engine joined to a driver.");
    runtime.def(nb::init<const RuntimeOptions&>(), nb::arg("options"))
        .def("close", &BoundRuntime::close)
        .def_prop_ro("closed", [](BoundRuntime& h) { return h.runtime().closed(); })
        .def("connect", &BoundRuntime::connect, nb::arg("rank"), nb::arg("address"))
        .def("disconnect", &BoundRuntime::disconnect, nb::arg("rank"))
        .def("wait_established", &BoundRuntime::wait_established, nb::arg("rank"), nb::arg("timeout_s").none())
        .def("wait_delivered", &BoundRuntime::wait_delivered, nb::arg("timeout_s").none())
        .def("undelivered", &BoundRuntime::undelivered, nb::sig("def undelivered(self) -> dict[int, int]"))
        .def(
            "established", [](BoundRuntime& h, std::uint32_t rank) { return h.runtime().established(rank); },
            nb::arg("rank"))
        .def("peers", [](BoundRuntime& h) { return h.runtime().peers(); })
        .def(
            "block_bytes",
            [](BoundRuntime& h, std::uint32_t rank, std::uint16_t unit_bytes) {
                if (unit_bytes < 1 || unit_bytes > most_unit_bytes)
                    throw nb::value_error(("unit_bytes is " + std::to_string(unit_bytes) + "; accepted: 1 to " +
                                           std::to_string(most_unit_bytes))
                                              .c_str());
                return h.runtime().block_bytes(rank, unit_bytes);
            },
            nb::arg("rank"), nb::arg("unit_bytes") = 1)
        .def("peer_address", &BoundRuntime::peer_address, nb::arg("rank"))
        .def("send", &BoundRuntime::send, nb::arg("rank"), nb::arg("payload").none(), nb::arg("tag"),
             nb::arg("traffic_class"), nb::arg("delivery"), nb::arg("loss_ratio"), nb::arg("deadline_s"),
             nb::arg("importance"), nb::arg("wait_follows"))
        .def("receive", &BoundRuntime::receive, nb::arg("buffer").none(), nb::arg("rank").none(), nb::arg("tag"),
             nb::arg("wait_follows"))
        .def("wait", &BoundRuntime::wait, nb::arg("transfer"), nb::arg("timeout_s").none())
        .def("cancel", &BoundRuntime::cancel, nb::arg("transfer"))
        .def("progress", &BoundRuntime::progress, nb::arg("timeout_s").none())
        .def("watch", &BoundRuntime::watch, nb::arg("transfer"), nb::arg("id"))
        .def("next_finished", &BoundRuntime::next_finished, nb::arg("timeout_s").none())
        .def("drain_log", &BoundRuntime::drain_log)
        .def("statistics", &BoundRuntime::statistics)
        .def("driver_statistics", &BoundRuntime::driver_statistics)
        .def(
            "peer_statistics",
            [](BoundRuntime& h, std::uint32_t rank) { return to_dict(h.runtime().peer_statistics(rank)); },
            nb::arg("rank"))
        .def("path_statistics", &BoundRuntime::path_statistics, nb::arg("rank"))
        .def("advance_key_epoch", [](BoundRuntime& h) { h.runtime().advance_key_epoch(); })
        .def_prop_ro("driver", [](BoundRuntime& h) { return h.runtime().driver_name(); })
        .def_prop_ro("local_address", [](BoundRuntime& h) { return h.runtime().local_address(); })
        .def_prop_ro("warnings", [](BoundRuntime& h) { return h.runtime().warnings(); })
        .def_prop_ro("capabilities", &capabilities)
        .def_prop_ro("max_datagram_bytes",
                     [](BoundRuntime& h) { return h.runtime().config().max_datagram_bytes; });
    bind_collectives(m, runtime);
}

}  // namespace dlcp::bind
