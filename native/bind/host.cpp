// Host and Transfer for Python; bound_host.hpp says who holds memory.
#include <nanobind/ndarray.h>

#include "bind/bound_host.hpp"
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

nb::dict capabilities(BoundHost& bound) {
    const dlcp_io_capabilities& c = bound.host().capabilities();
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

    nb::class_<BoundHost> host(m, "Host", "An engine joined to a driver.");
    host.def(nb::init<const HostOptions&>(), nb::arg("options"))
        .def("close", &BoundHost::close)
        .def_prop_ro("closed", [](BoundHost& h) { return h.host().closed(); })
        .def("connect", &BoundHost::connect, nb::arg("rank"), nb::arg("address"))
        .def("disconnect", &BoundHost::disconnect, nb::arg("rank"))
        .def("wait_established", &BoundHost::wait_established, nb::arg("rank"), nb::arg("timeout_s").none())
        .def(
            "established", [](BoundHost& h, std::uint32_t rank) { return h.host().established(rank); },
            nb::arg("rank"))
        .def("peers", [](BoundHost& h) { return h.host().peers(); })
        .def(
            "block_bytes", [](BoundHost& h, std::uint32_t rank) { return h.host().block_bytes(rank); },
            nb::arg("rank"))
        .def("peer_address", &BoundHost::peer_address, nb::arg("rank"))
        .def("send", &BoundHost::send, nb::arg("rank"), nb::arg("payload").none(), nb::arg("tag"),
             nb::arg("traffic_class"), nb::arg("delivery"), nb::arg("loss_ratio"), nb::arg("deadline_s"),
             nb::arg("importance"), nb::arg("wait_follows"))
        .def("receive", &BoundHost::receive, nb::arg("buffer").none(), nb::arg("rank").none(), nb::arg("tag"),
             nb::arg("wait_follows"))
        .def("wait", &BoundHost::wait, nb::arg("transfer"), nb::arg("timeout_s").none())
        .def("cancel", &BoundHost::cancel, nb::arg("transfer"))
        .def("progress", &BoundHost::progress, nb::arg("timeout_s").none())
        .def("watch", &BoundHost::watch, nb::arg("transfer"), nb::arg("id"))
        .def("next_finished", &BoundHost::next_finished, nb::arg("timeout_s").none())
        .def("drain_log", &BoundHost::drain_log)
        .def("statistics", &BoundHost::statistics)
        .def("driver_statistics", &BoundHost::driver_statistics)
        .def(
            "peer_statistics",
            [](BoundHost& h, std::uint32_t rank) { return to_dict(h.host().peer_statistics(rank)); },
            nb::arg("rank"))
        .def("path_statistics", &BoundHost::path_statistics, nb::arg("rank"))
        .def("advance_key_epoch", [](BoundHost& h) { h.host().advance_key_epoch(); })
        .def_prop_ro("driver", [](BoundHost& h) { return h.host().driver_name(); })
        .def_prop_ro("local_address", [](BoundHost& h) { return h.host().local_address(); })
        .def_prop_ro("warnings", [](BoundHost& h) { return h.host().warnings(); })
        .def_prop_ro("capabilities", &capabilities)
        .def_prop_ro("max_datagram_bytes", [](BoundHost& h) { return h.host().config().max_datagram_bytes; });
    bind_collectives(m, host);
}

}  // namespace dlcp::bind
