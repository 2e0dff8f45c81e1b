// The runtime as Python sees it, and the messages that it holds memory for.
//
// Memory: a Transfer holds the buffer of its message. If Python drops a Transfer whose message is under way, the
// buffer moves to the runtime's list of orphans and is freed by a later call, once the message is over. No thread
// of ours ever takes the GIL: what becomes over is asked for, never called back.
#pragma once

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
#include "io/runtime.hpp"

namespace dlcp::bind {

// Timeouts: None is none; negative counts as 0, as in concurrent.futures; clamped to about 100 years.
inline Duration timeout_of(std::optional<double> seconds) {
    if (!seconds || std::isnan(*seconds)) return Duration{-1};
    return Duration{static_cast<std::int64_t>(std::clamp(*seconds, 0.0, 3e9) * 1e9)};
}

inline const char* error_name(CommandError error) { return error == CommandError::none ? nullptr : name(error); }

// Text of a driver, which may be somebody else's plugin: what is not UTF-8 becomes U+FFFD.
inline nb::object text_of(const std::string& text) {
    return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

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

// Of one message: at most 4 GiB - 1.
inline std::uint32_t length_of(const char* what, const Buffer& buffer) {
    if (buffer.bytes() > UINT32_MAX) throw too_long_refusal(what, buffer.bytes());
    return static_cast<std::uint32_t>(buffer.bytes());
}

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

class BoundRuntime {
public:
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

    explicit BoundRuntime(const RuntimeOptions& options) {
        nb::gil_scoped_release release;
        runtime_.reset(new Runtime(options));
    }
    ~BoundRuntime() { close(); }

    // Threads that wait in here come back first, so that none of them is inside when the interpreter ends: a thread
    // that then asks for the GIL is killed in the middle of C++ (CPython issue 87135).
    void close() {
        {
            nb::gil_scoped_release release;
            runtime_->close();
        }
        for (int millisecond = 0; inside_ > 0 && millisecond < 1000; ++millisecond) {
            nb::gil_scoped_release release;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        orphans_->sweep();
    }

    bool connect(std::uint32_t rank, const std::string& address) {
        return unlocked([&] { return runtime_->connect(rank, address); });
    }

    bool wait_established(std::uint32_t rank, std::optional<double> timeout_s) {
        return in_slices(timeout_s, [&](Duration slice) { return runtime_->wait_established(rank, slice); });
    }

    bool wait_delivered(std::optional<double> timeout_s) {
        return in_slices(timeout_s, [&](Duration slice) { return runtime_->wait_delivered(slice); });
    }

    nb::dict undelivered() const {
        nb::dict out;
        for (const auto& [rank, bytes] : runtime_->undelivered()) out[nb::int_(rank)] = bytes;
        return out;
    }

    Transfer send(std::uint32_t rank, nb::handle payload, std::uint64_t tag, std::uint8_t traffic_class,
                  Delivery delivery, double loss_ratio, double deadline_s, nb::handle importance,
                  bool wait_follows) {
        orphans_->sweep();
        Buffer buffer(payload, false);
        SendCommand command;
        command.tag = tag;
        command.payload = static_cast<const std::uint8_t*>(buffer.data());
        command.message_bytes = length_of("message", buffer);
        command.traffic_class = traffic_class;
        command.delivery = delivery;
        command.loss_ratio = loss_ratio;
        command.deadline = Duration{static_cast<std::int64_t>(std::clamp(deadline_s, -1.0, 1e9) * 1e9)};
        Buffer scores;
        std::uint8_t importance_of_all = wire::importance_critical;
        if (nb::isinstance<nb::int_>(importance)) {
            importance_of_all = nb::cast<std::uint8_t>(importance);
        } else {
            scores = Buffer(importance, false);
            command.importance = {static_cast<const std::uint8_t*>(scores.data()), scores.bytes()};
        }
        OperationPtr operation =
            unlocked([&] { return runtime_->send(rank, command, importance_of_all, wait_follows); });
        return {std::move(operation), std::move(buffer), orphans_};
    }

    Transfer receive(nb::handle memory, std::optional<std::uint32_t> rank, std::uint64_t tag, bool wait_follows) {
        orphans_->sweep();
        Buffer buffer(memory, true);
        ReceiveCommand command;
        command.tag = tag;
        command.buffer = static_cast<std::uint8_t*>(buffer.data());
        command.capacity_bytes = length_of("receive buffer", buffer);
        OperationPtr operation = unlocked([&] { return runtime_->receive(rank, command, wait_follows); });
        return {std::move(operation), std::move(buffer), orphans_};
    }

    bool wait(Transfer& transfer, std::optional<double> timeout_s) {
        const bool over = transfer.over() || in_slices(timeout_s, [&](Duration slice) {
                              return runtime_->wait(transfer.operation(), slice);
                          });
        transfer.free_buffer_if_over();
        return over;
    }

    bool cancel(Transfer& transfer) {
        return unlocked([&] { return runtime_->cancel(transfer.operation()); });
    }

    bool progress(std::optional<double> timeout_s) {
        return in_slices(timeout_s, [&](Duration slice) { return runtime_->progress(slice); });
    }

    bool watch(Transfer& transfer, std::uint64_t id) { return runtime_->watch(transfer.operation(), id); }

    std::vector<std::uint64_t> next_finished(std::optional<double> timeout_s) {
        return unlocked([&] { return runtime_->next_finished(timeout_of(timeout_s)); });
    }

    nb::dict statistics() {
        return to_dict(unlocked([&] { return runtime_->statistics(); }));
    }

    nb::dict driver_statistics() {
        nb::dict out;
        for (const auto& [name, value] : unlocked([&] { return runtime_->driver_statistics(); }))
            out[text_of(name)] = value;
        return out;
    }

    std::string peer_address(std::uint32_t rank) {
        return unlocked([&] { return runtime_->peer_address(rank); });
    }

    void disconnect(std::uint32_t rank) {
        unlocked([&] { runtime_->disconnect(rank); });
    }

    nb::list path_statistics(std::uint32_t rank) const {
        nb::list out;
        for (const PathStatistics& path : runtime_->path_statistics(rank)) out.append(to_dict(path));
        return out;
    }

    // (time_s, kind, error or None, rank or None, value, waited_s, text)
    nb::list drain_log() {
        nb::list out;
        for (const RuntimeLogEntry& entry : runtime_->drain_log()) {
            nb::object rank = nb::none();
            if (entry.rank != UINT32_MAX) rank = nb::int_(entry.rank);
            nb::object error = nb::none();
            if (entry.error != CommandError::none) error = nb::str(name(entry.error));
            const std::string kind = entry.driver_event.empty() ? name(entry.kind) : entry.driver_event;
            out.append(nb::make_tuple(static_cast<double>(entry.time.value) * 1e-9, kind, error, rank, entry.value,
                                      in_seconds(entry.waited), text_of(entry.text)));
        }
        return out;
    }

    Runtime& runtime() { return *runtime_; }

private:
    RuntimePtr runtime_;
    std::shared_ptr<Orphans> orphans_ = std::make_shared<Orphans>();
    int inside_ = 0;  // threads in unlocked(); counted with the GIL held
};

}  // namespace dlcp::bind
