// How a runtime opens and closes.
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "io/driver_config.hpp"
#include "io/runtime.hpp"

namespace dlcp {
namespace {

std::uint64_t entropy() {
    std::uint64_t seed = 0;
    auto* bytes = reinterpret_cast<std::uint8_t*>(&seed);
    for (std::size_t have = 0; have < sizeof seed;) {
        const ssize_t got = getrandom(bytes + have, sizeof seed - have, 0);
        if (got > 0) {
            have += static_cast<std::size_t>(got);
        } else if (errno != EINTR) {
            throw IoError(IoErrorKind::system,
                          std::string("getrandom: ") + std::strerror(errno) + "; session ids need entropy");
        }
    }
    return seed;
}

void check_max_datagram(std::uint32_t bytes) {
    if (bytes > UINT16_MAX)
        throw IoError(IoErrorKind::settings, "max_datagram_bytes is " + std::to_string(bytes) +
                                                 "; accepted: 576 to 9152, or 0 for what the driver carries");
}

void check(const EndpointConfig& config) {
    if (const std::string complaint = config.validate(); !complaint.empty())
        throw IoError(IoErrorKind::settings, complaint);
}

}  // namespace

Runtime::Runtime(const RuntimeOptions& options)
    : options_(options),
      huge_pages_(options.huge_pages && kernel_gives_huge_pages(), madvise),
      role_(pump_, options.linger) {
    options_.engine = configure();
    local_address_ = driver_->local_address();
    warnings_ = driver_->warnings();
    pump_.open(driver_->table(), driver_->io(), capabilities_.max_burst_packets);
    engine_ =
        std::make_unique<Endpoint>(options_.engine, options_.seed != 0 ? options_.seed : entropy(), pump_.now());
    collectives_ = std::make_unique<Collectives>(*engine_, options_.max_copied);
    pump_.set_engine(*engine_, collectives_->executor());
    if (options_.io_thread) start_thread();
}

// Opens the driver; returns what the engine is to be given.
EndpointConfig Runtime::configure() {
    // Spraying is for networks with several paths; loopback has one, and long runs cost less there.
    const bool choose_paths = options_.engine.paths == 0;
    if (choose_paths) options_.engine.paths = EndpointConfig().paths;
    const bool choose_runs = options_.engine.run_packets == 0;
    if (choose_runs) options_.engine.run_packets = EndpointConfig().run_packets;
    EndpointConfig config = options_.engine;
    // Before the driver: a mistake in the settings should not need a free port to be found.
    if (options_.max_datagram_bytes != 0) {
        check_max_datagram(options_.max_datagram_bytes);
        config.max_datagram_bytes = static_cast<std::uint16_t>(options_.max_datagram_bytes);
    }
    check(config);
    driver_.emplace(options_);
    capabilities_ = driver_->capabilities();
    if (capabilities_.is_loopback == 0 && !options_.engine.job_key && !options_.allow_unauthenticated)
        throw unauthenticated_refusal(options_.bind_host);
    if (choose_paths && capabilities_.is_loopback) config.paths = 1;
    if (choose_runs && !capabilities_.wants_runs) config.run_packets = config.min_run_packets;
    config.max_datagram_bytes = static_cast<std::uint16_t>(
        std::min({capabilities_.max_datagram_bytes, datagram_bytes_max,
                  options_.max_datagram_bytes != 0 ? options_.max_datagram_bytes : UINT32_MAX}));
    if (options_.receive_buffer_bytes != 0)
        config.receive_buffer = Bytes{options_.receive_buffer_bytes};
    else if (capabilities_.receive_buffer_bytes != 0)
        config.receive_buffer = Bytes{capabilities_.receive_buffer_bytes};
    if (capabilities_.channel_buffer_bytes != 0) {
        config.channel_buffer = Bytes{capabilities_.channel_buffer_bytes};
        // Several fit at once, so that one side writes while the other reads.
        config.channel_datagram_bytes = static_cast<std::uint16_t>(
            std::min<std::uint32_t>(config.channel_datagram_bytes, capabilities_.channel_buffer_bytes / 8));
    }
    check(config);
    return config;
}

void Runtime::start_thread() {
    // Signals are for the application's threads: a handler must not run where nobody looks for its result.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        thread_ = std::thread([this] { serve(); });
    } catch (const std::system_error& error) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw IoError(IoErrorKind::system, std::string("cannot start the I/O thread: ") + error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(thread_.native_handle(), "dlcp-io");
}

void Runtime::close() {
    if (forked()) return;
    Lock lock(mutex_);
    if (closing_) {  // by another thread: closed when this returns, whoever does it
        changed_.wait(lock, [&] { return closed_; });
        return;
    }
    closing_ = true;
    role_.take(lock);
    CollectiveExecutor& executor = collectives_->executor();
    executor.stop_waiting(pump_.now());
    drive(
        lock, [&] { return !executor.draining(); }, real_deadline(options_.close_timeout));
    executor.stop_waiting(pump_.now());  // a peer may have left meanwhile
    engine_->close(pump_.now());
    // Bounded: the goodbyes to max_peers peers, and what was queued behind them, fit in far fewer rounds.
    for (int rounds = 0; rounds < 64; ++rounds)
        if (round(lock)) break;
    end_operations();
    stop_ = true;
    role_.leave();
    role_.notify_all();
    finished_condition_.notify_all();
    changed_.wait(lock, [&] { return inside_ == 0; });
    lock.unlock();
    if (thread_.joinable()) thread_.join();
    final_io_ = driver_->counters();
    final_injected_lost_packets_ = driver_->injected_lost_packets();
    driver_.reset();
    lock.lock();
    closed_ = true;
    changed_.notify_all();
}

bool Runtime::closed() const {
    if (forked()) return true;
    const Lock lock(mutex_);
    return closing_;
}

}  // namespace dlcp
