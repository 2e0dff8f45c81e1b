// Host and Transfer for Python.
//
// Memory: a Transfer holds the buffer of its message. If Python drops a Transfer whose message is under way, the
// buffer moves to the host's list of orphans and is freed by a later call, once the message is over. No thread
// of ours ever takes the GIL: what becomes over is asked for, never called back.
#include "io/host.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>
#include <utility>

#include "bind/buffer.hpp"
#include "bind/statistics.hpp"

namespace dlcp::bind {
namespace {

// Timeouts: None is none; negative counts as 0, as in concurrent.futures; clamped to about 100 years.
Duration timeout_of(std::optional<double> seconds) {
    if (!seconds || std::isnan(*seconds)) return Duration{-1};
    return Duration{static_cast<std::int64_t>(std::clamp(*seconds, 0.0, 3e9) * 1e9)};
}

const char* error_name(CommandError error) { return error == CommandError::none ? nullptr : name(error); }

using AbandonedWords = nb::ndarray<nb::numpy, std::uint64_t, nb::ndim<1>>;

// Memory of messages that nobody holds a Transfer for. Touched with the GIL held.
struct Orphans {
    struct Orphan {
        OperationPtr operation;
        Buffer buffer;
    };
    std::vector<Orphan> list;

    void sweep() {
        std::erase_if(list, [](const Orphan& orphan) { return orphan.operation->over.load(); });
    }
};

class Transfer {
public:
    Transfer(OperationPtr operation, Buffer buffer, std::shared_ptr<Orphans> orphans)
        : operation_(std::move(operation)), buffer_(std::move(buffer)), orphans_(std::move(orphans)) {}
    Transfer(Transfer&&) = default;
    ~Transfer() {
        if (operation_ != nullptr && !over()) orphans_->list.push_back({operation_, std::move(buffer_)});
    }

    bool over() const { return operation_->over.load(std::memory_order_acquire); }
    const OperationPtr& operation() const { return operation_; }
    // What is constant only once the message is over.
    const Operation& ended() const {
        if (!over()) throw nb::value_error("the transfer is not over");
        return *operation_;
    }
    void free_buffer_if_over() {
        if (over()) buffer_.release();
    }

private:
    OperationPtr operation_;
    Buffer buffer_;
    std::shared_ptr<Orphans> orphans_;
};

class BoundHost {
    // Runs without the GIL.
    template <class Call>
    auto unlocked(Call&& call) {
        struct Count {
            int& inside;
            explicit Count(int& count) : inside(count) { ++inside; }
            ~Count() { --inside; }
        } const count(inside_);
        nb::gil_scoped_release release;
        return call();
    }

    // Waits without the GIL in slices, between which Python sees signals: Ctrl-C ends a wait.
    template <class Wait>
    bool in_slices(std::optional<double> timeout_s, Wait&& wait) {
        using Clock = std::chrono::steady_clock;
        constexpr Duration slice = milliseconds(100);
        const Duration timeout = timeout_of(timeout_s);
        const auto start = Clock::now();
        for (;;) {
            Duration left = slice;
            bool last = false;
            if (timeout.value >= 0) {
                left = timeout - Duration{std::chrono::nanoseconds(Clock::now() - start).count()};
                last = left <= slice;
                left = std::clamp(left, Duration{0}, slice);
            }
            if (unlocked([&] { return wait(left); })) return true;
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
            if (last) return false;
        }
    }

public:
    explicit BoundHost(const HostOptions& options) {
        nb::gil_scoped_release release;
        host_ = std::make_unique<Host>(options);
    }
    ~BoundHost() { close(); }

    // Threads that wait in here come back first, so that none of them is inside when the interpreter ends: a thread
    // that then asks for the GIL is killed in the middle of C++ (CPython issue 87135).
    void close() {
        {
            nb::gil_scoped_release release;
            host_->close();
        }
        for (int millisecond = 0; inside_ > 0 && millisecond < 1000; ++millisecond) {
            nb::gil_scoped_release release;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        orphans_->sweep();
    }

    bool connect(std::uint32_t rank, const std::string& address) {
        return unlocked([&] { return host_->connect(rank, address); });
    }

    bool wait_established(std::uint32_t rank, std::optional<double> timeout_s) {
        return in_slices(timeout_s, [&](Duration slice) { return host_->wait_established(rank, slice); });
    }

    Transfer send(std::uint32_t rank, nb::handle payload, std::uint64_t tag, std::uint32_t traffic_class,
                  Delivery delivery, double loss_ratio, double deadline_s, nb::handle importance,
                  bool wait_follows) {
        orphans_->sweep();
        Buffer buffer(payload, false);
        HostSend command;
        command.rank = rank;
        command.tag = tag;
        command.payload = buffer.data();
        command.message_bytes = buffer.bytes();
        command.traffic_class = traffic_class;
        command.delivery = delivery;
        command.loss_ratio = loss_ratio;
        command.deadline = Duration{static_cast<std::int64_t>(std::clamp(deadline_s, -1.0, 1e9) * 1e9)};
        command.wait_follows = wait_follows;
        Buffer scores;
        if (nb::isinstance<nb::int_>(importance)) {
            command.importance_of_all = nb::cast<std::uint8_t>(importance);
        } else {
            scores = Buffer(importance, false);
            command.importance = static_cast<const std::uint8_t*>(scores.data());
            command.importance_count = scores.bytes();
        }
        OperationPtr operation = unlocked([&] { return host_->send(command); });
        return {std::move(operation), std::move(buffer), orphans_};
    }

    Transfer receive(nb::handle memory, std::optional<std::uint32_t> rank, std::uint64_t tag, bool wait_follows) {
        orphans_->sweep();
        Buffer buffer(memory, true);
        HostReceive command;
        command.rank = rank;
        command.tag = tag;
        command.buffer = buffer.data();
        command.capacity_bytes = buffer.bytes();
        command.wait_follows = wait_follows;
        OperationPtr operation = unlocked([&] { return host_->receive(command); });
        return {std::move(operation), std::move(buffer), orphans_};
    }

    bool wait(Transfer& transfer, std::optional<double> timeout_s) {
        const bool over = transfer.over() || in_slices(timeout_s, [&](Duration slice) {
                              return host_->wait(transfer.operation(), slice);
                          });
        transfer.free_buffer_if_over();
        return over;
    }

    bool cancel(Transfer& transfer) {
        return unlocked([&] { return host_->cancel(transfer.operation()); });
    }

    bool progress(std::optional<double> timeout_s) {
        return in_slices(timeout_s, [&](Duration slice) { return host_->progress(slice); });
    }

    bool watch(Transfer& transfer, std::uint64_t id) { return host_->watch(transfer.operation(), id); }

    std::vector<std::uint64_t> next_finished(std::optional<double> timeout_s) {
        return unlocked([&] { return host_->next_finished(timeout_of(timeout_s)); });
    }

    nb::dict statistics() {
        return to_dict(unlocked([&] { return host_->statistics(); }));
    }

    std::string peer_address(std::uint32_t rank) {
        return unlocked([&] { return host_->peer_address(rank); });
    }

    void disconnect(std::uint32_t rank) {
        unlocked([&] { host_->disconnect(rank); });
    }

    nb::list path_statistics(std::uint32_t rank) const {
        nb::list out;
        for (const PathStatistics& path : host_->path_statistics(rank)) out.append(to_dict(path));
        return out;
    }

    // (time_s, kind, error or None, rank or None, value, waited_s)
    nb::list drain_log() {
        nb::list out;
        for (const HostLogEntry& entry : host_->drain_log()) {
            nb::object rank = nb::none();
            if (entry.rank != UINT32_MAX) rank = nb::int_(entry.rank);
            nb::object error = nb::none();
            if (entry.error != CommandError::none) error = nb::str(name(entry.error));
            out.append(nb::make_tuple(static_cast<double>(entry.time.value) * 1e-9, name(entry.kind), error, rank,
                                      entry.value, in_seconds(entry.waited)));
        }
        return out;
    }

    Host& host() { return *host_; }

private:
    std::unique_ptr<Host> host_;
    std::shared_ptr<Orphans> orphans_ = std::make_shared<Orphans>();
    int inside_ = 0;  // threads in unlocked(); counted with the GIL held
};

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

    nb::class_<BoundHost>(m, "Host", "An engine joined to a driver.")
        .def(nb::init<const HostOptions&>(), nb::arg("options"))
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
}

}  // namespace dlcp::bind
