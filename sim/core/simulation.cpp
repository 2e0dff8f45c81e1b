// A run: preparation, windows of one or more threads, when it is over, and what must hold afterwards.
#include "sim/core/simulation.hpp"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <stdexcept>
#include <thread>

#include "sim/core/domain.hpp"

namespace dlcp::sim {
namespace {

using Clock = std::chrono::steady_clock;

double thread_cpu_s() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// How many events pass between two looks at the wall clock: some milliseconds.
constexpr std::uint64_t events_per_look = 1 << 15;

// Of a flow: Packet::number has 28 bits.
constexpr std::uint64_t max_packets = 1 << 28;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

}  // namespace

// Where threads meet between windows. A thread that is early spins, since a window is some microseconds of work.
// Then the others probably wait for a processor, and it sleeps: one that only yields keeps them from it on a busy
// machine.
class Simulation::Barrier {
public:
    explicit Barrier(std::uint32_t threads) : threads_(threads) {}
    void wait() {
        const std::uint32_t turn = turn_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
            arrived_.store(0, std::memory_order_relaxed);
            turn_.store(turn + 1, std::memory_order_release);
            turn_.notify_all();
            return;
        }
        for (std::uint32_t spins = 0; spins < spins_max; ++spins)
            if (turn_.load(std::memory_order_acquire) != turn) return;
        turn_.wait(turn, std::memory_order_acquire);
    }

private:
    static constexpr std::uint32_t spins_max = 20'000;  // some ten microseconds

    const std::uint32_t threads_;
    std::atomic<std::uint32_t> arrived_{0};
    std::atomic<std::uint32_t> turn_{0};
};

std::uint64_t Simulation::ps_per_byte_q16(double rate_bps) {
    return static_cast<std::uint64_t>(std::llround(8e12 * 65536 / rate_bps));
}

Simulation::Simulation(Fabric fabric, const switching::Policy& policy, std::unique_ptr<Transport> transport,
                       const SimulationSettings& settings)
    : fabric_(std::move(fabric)), policy_(policy), transport_(std::move(transport)), settings_(settings) {
    if (const std::string problem = policy_.validate(); !problem.empty()) refuse(problem);
    if (settings_.threads < 1 || settings_.threads > 1024)
        refuse("threads is " + std::to_string(settings_.threads) + "; accepted: 1 to 1024");
    routes_ = std::make_unique<Routes>(fabric_);
    if (settings_.host_costs)
        processors_ = std::make_unique<HostProcessors>(*settings_.host_costs, fabric_.hosts());

    const std::uint32_t ports = fabric_.ports();
    ports_.resize(ports);
    queues_.resize(ports);
    node_of_port_.resize(ports);
    packet_counters_.reset(std::size_t{ports} * switching::traffic_classes);
    event_counters_.reset(std::size_t{ports} * switching::traffic_classes);
    if (settings_.discipline == Discipline::least_rank) rank_queues_.resize(ports);
    shared_used_bytes_.assign(fabric_.switches(), 0);
    if (policy_.pause_above_bytes != switching::never) {
        if (settings_.discipline == Discipline::least_rank)
            refuse("pause_above_bytes does not go with queues by rank");
        ingress_.resize(std::size_t{ports} * switching::traffic_classes);
    }
    std::uint64_t fastest_bps = 0;
    lookahead_ps_ = INT64_MAX;
    std::int64_t least_delay_ps = INT64_MAX;
    for (std::uint32_t p = 0; p < ports; ++p) {
        const Link& link = fabric_.link(p);
        Port& port = ports_[p];
        port.ps_per_byte_q16 = ps_per_byte_q16(static_cast<double>(link.rate_bps));
        port.delay_ps = link.delay_ps;
        port.to = node_of_port_[p] = link.to;
        port.is_host = link.from < fabric_.hosts();
        port.shared = port.is_host ? none : link.from - fabric_.hosts();
        fastest_bps = std::max(fastest_bps, link.rate_bps);
        least_delay_ps = std::min(least_delay_ps, link.delay_ps);
        if (fabric_.region_of(link.from) != fabric_.region_of(link.to))
            lookahead_ps_ = std::min(lookahead_ps_, link.delay_ps);
    }
    if (lookahead_ps_ == INT64_MAX) lookahead_ps_ = least_delay_ps;

    // Regions in a row go to one thread, so that neighbours stay together.
    const std::uint32_t domains = std::min(settings_.threads, fabric_.regions());
    domain_of_node_.resize(fabric_.nodes());
    for (std::uint32_t n = 0; n < fabric_.nodes(); ++n)
        domain_of_node_[n] =
            static_cast<std::uint32_t>(std::uint64_t{fabric_.region_of(n)} * domains / fabric_.regions());

    // A bucket should hold a few events: each port has one every 100 ns or so at 100 Gbit/s when all are busy. Synchronous
    // senders put several at one moment; wider buckets cost more to sort than narrower ones to find (4 in place of 1:
    // 2 % more instructions on 128 hosts).
    // A transport that foresees does so for a bucket at a time, and needs several events to do it for.
    const double bucket_events = transport_->foresees() ? 4 : 1;
    const double events_per_ps = static_cast<double>(fastest_bps) / 8e12 / 2000 * ports / 4 / domains;
    wheel_width_log2_ = static_cast<unsigned>(std::clamp(std::log2(bucket_events / events_per_ps), 5.0, 14.0));
}

Simulation::~Simulation() = default;

std::uint32_t Simulation::add_flow(const Flow& flow) {
    if (prepared_) throw std::logic_error("flows are added before the run");
    const auto host = [this](std::uint32_t value, const char* what) {
        if (value >= fabric_.hosts())
            refuse(std::string(what) + " is " + std::to_string(value) + "; accepted: hosts 0 to " +
                   std::to_string(fabric_.hosts() - 1));
    };
    host(flow.source, "source");
    host(flow.destination, "destination");
    if (flow.source == flow.destination)
        refuse("a flow goes from host " + std::to_string(flow.source) + " to itself");
    if (flow.start_ps < -1 || flow.start_ps > latest_given_ps)
        refuse("start_ps is " + std::to_string(flow.start_ps) + "; accepted: 0 to 2^55, -1: by its task");
    if (flow.bytes / transport_->payload_bytes() >= max_packets)
        refuse("bytes is " + std::to_string(flow.bytes) + "; accepted: less than 2^28 packets of " +
               std::to_string(transport_->payload_bytes()));
    if (flow.traffic_class > 6)
        refuse("traffic_class is " + std::to_string(flow.traffic_class) + "; accepted: 0 to 6");
    if (!(flow.loss_ratio >= 0 && flow.loss_ratio < 1))
        refuse("loss_ratio is " + std::to_string(flow.loss_ratio) + "; accepted: [0, 1)");
    if (!(flow.critical_ratio >= 0 && flow.critical_ratio <= 1))
        refuse("critical_ratio is " + std::to_string(flow.critical_ratio) + "; accepted: [0, 1]");
    flows_.push_back(flow);
    return static_cast<std::uint32_t>(flows_.size() - 1);
}

void Simulation::add_fault(const Fault& fault) {
    if (prepared_) throw std::logic_error("faults are added before the run");
    if (fault.at_ps < 0 || fault.at_ps > latest_given_ps)
        refuse("at_ps of a fault is " + std::to_string(fault.at_ps) + "; accepted: 0 to 2^55");
    if (fault.kind != FaultKind::reroute && fault.port >= fabric_.ports())
        refuse("port of a fault is " + std::to_string(fault.port) + "; accepted: 0 to " +
               std::to_string(fabric_.ports() - 1));
    const auto ratio = [](double value) {
        if (!(value >= 0 && value <= 1))
            refuse("a fault's ratio is " + std::to_string(value) + "; accepted: [0, 1]");
    };
    if (fault.kind == FaultKind::loss) ratio(fault.value);
    if (fault.kind == FaultKind::burst) {
        ratio(fault.value);
        ratio(fault.value2);
        ratio(fault.value3);
    }
    if (fault.kind == FaultKind::rate && !(fault.value >= 1000 && fault.value <= 1e14))
        refuse("a fault's rate is " + std::to_string(fault.value) + " bit/s; accepted: 1e3 to 1e14");
    if (fault.kind == FaultKind::delay && !(fault.value >= 0 && fault.value <= 1e13))
        refuse("a fault's delay is " + std::to_string(fault.value) + " ps; accepted: 0 to 1e13");
    faults_.push_back(fault);
}

void Simulation::sample(const std::vector<std::uint32_t>& ports, std::int64_t interval_ps) {
    if (prepared_) throw std::logic_error("samples are asked for before the run");
    if (interval_ps < 1 || interval_ps > latest_given_ps)
        refuse("interval_ps is " + std::to_string(interval_ps) + "; accepted: 1 to 2^55");
    for (std::uint32_t p : ports)
        if (p >= fabric_.ports())
            refuse("port is " + std::to_string(p) + "; accepted: 0 to " + std::to_string(fabric_.ports() - 1));
    recorder_.sampled_ports = ports;
    recorder_.sample_interval_ps = interval_ps;
}

void Simulation::trace(const std::vector<std::uint32_t>& ports, std::uint64_t limit) {
    if (prepared_) throw std::logic_error("traces are asked for before the run");
    for (std::uint32_t p : ports)
        if (p >= fabric_.ports())
            refuse("port is " + std::to_string(p) + "; accepted: 0 to " + std::to_string(fabric_.ports() - 1));
    for (std::uint32_t p : recorder_.traced_ports) ports_[p].traced = false;
    for (std::uint32_t p : ports) ports_[p].traced = true;
    recorder_.traced_ports = ports;
    recorder_.trace_limit = limit;
}

SimulationState Simulation::state() {
    return {
        .flows = flows_.data(),
        .results = results_.data(),
        .ports = ports_.data(),
        .queues = queues_.data(),
        .packet_counters = packet_counters_.data(),
        .event_counters = event_counters_.data(),
        .rank_queues = rank_queues_.data(),
        .shared_used_bytes = shared_used_bytes_.data(),
        .ingress = ingress_.empty() ? nullptr : ingress_.data(),
        .node_of_port = node_of_port_.data(),
        .domain_of_node = domain_of_node_.data(),
        .transport = transport_.get(),
        .processors = processors_.get(),
        .routes = routes_.get(),
        .policy = &policy_,
        .hosts = fabric_.hosts(),
    };
}

void Simulation::prepare() {
    prepared_ = true;
    std::stable_sort(faults_.begin(), faults_.end(),
                     [](const Fault& a, const Fault& b) { return a.at_ps < b.at_ps; });
    route_versions_.prepare(fabric_, faults_);
    results_.resize(flows_.size());
    tasks_.prepare(*this);
    for (std::size_t f = 0; f < flows_.size(); ++f)
        if (flows_[f].start_ps < 0 && flows_[f].task == none)
            refuse("flow " + std::to_string(f) + " has neither a start nor a task");
    const std::uint32_t domains =
        domain_of_node_.empty() ? 1 : 1 + *std::max_element(domain_of_node_.begin(), domain_of_node_.end());
    recorder_.domains.resize(domains);
    for (std::uint32_t d = 0; d < domains; ++d) domains_.push_back(std::make_unique<Domain>(*this, d, domains));
    transport_->prepare(*this);
    for (const auto& domain : domains_) domain->prepare();
    if (target() == 0) end_ps_ = 0;
}

// Deliveries, acknowledgements and tasks: when all are done the run is over.
std::uint64_t Simulation::target() const { return open_ ? UINT64_MAX : 2 * flows_.size() + tasks_.tasks(); }

bool Simulation::idle() const {
    return std::all_of(domains_.begin(), domains_.end(), [](const auto& domain) { return domain->idle(); });
}

bool Simulation::run(std::int64_t until_ps, double wall_s) {
    if (!failure_.empty()) throw std::logic_error("a run that has failed does not go on; it said: " + failure_);
    try {
        return run_on(until_ps, wall_s);
    } catch (const std::exception& error) {
        failure_ = error.what();
        throw;
    }
}

bool Simulation::run_on(std::int64_t until_ps, double wall_s) {
    if (!prepared_) prepare();
    if (over_ && !open_) return true;
    if (end_ps_ == 0) return over_ = true;
    // What is open may be given more at `until_ps`, and is sampled up to there.
    const bool stops_idle = !open_ || until_ps < 0;
    for (const auto& domain : domains_) domain->set_stops_idle(stops_idle);
    over_ = domains_.size() == 1 ? run_alone(until_ps, wall_s) : run_threads(until_ps, wall_s);
    // How many samples a domain took after all had come to rest depends on its windows.
    const bool rests = over_ && !open_ && idle();
    for (const auto& domain : domains_)
        now_ps_ = std::max(now_ps_, rests ? domain->last_active_ps() : domain->now_ps());
    if (rests) recorder_.end_samples(now_ps_);
    const bool all_time = std::all_of(domains_.begin(), domains_.end(),
                                      [](const auto& domain) { return domain->next_ps() >= end_of_time_ps; });
    if (!over_ && all_time && (until_ps < 0 || until_ps > end_of_time_ps))
        throw std::runtime_error("the simulated time has come to " + std::to_string(end_of_time_ps) +
                                 " ps, its end, and something is left to happen");
    // Stopped by `wall_s` it is not yet there.
    const bool reached = until_ps >= 0 && std::all_of(domains_.begin(), domains_.end(), [&](const auto& domain) {
                             return domain->next_ps() >= until_ps;
                         });
    if ((!over_ || open_) && reached) now_ps_ = std::max(now_ps_, until_ps);
    if (settings_.check_invariants)
        if (const std::string broken = broken_invariant(); !broken.empty()) throw std::logic_error(broken);
    return over_;
}

bool Simulation::run_alone(std::int64_t until_ps, double wall_s) {
    Domain& domain = *domains_[0];
    const std::int64_t limit_ps = until_ps < 0 ? INT64_MAX : until_ps;
    const auto start = Clock::now();
    const double cpu_start_s = thread_cpu_s();
    bool ended = false;
    while (!ended && !(domain.idle() && domain.stops_idle_)) {
        ended = domain.run(limit_ps, events_per_look);
        if (wall_s >= 0 && std::chrono::duration<double>(Clock::now() - start).count() >= wall_s) break;
    }
    cpu_s_ += thread_cpu_s() - cpu_start_s;
    return domain.idle() || (ended && domain.next_ps() >= domain.end_ps_);
}

bool Simulation::run_threads(std::int64_t until_ps, double wall_s) {
    const auto threads = static_cast<std::uint32_t>(domains_.size());
    const auto start = Clock::now();
    Barrier barrier(threads);
    std::vector<double> cpu_s(threads, 0);
    std::vector<std::exception_ptr> errors(threads);
    std::atomic<bool> failed{false};
    // What all threads read between two meetings, written by each for itself.
    struct alignas(64) Word {
        std::int64_t next_ps;
        bool idle;
        std::uint64_t completed;
        std::int64_t last_completed_ps;
    };
    std::vector<Word> words(threads);
    std::atomic<bool> time_is_up{false};
    bool over = false;

    const auto work = [&](std::uint32_t me) {
        Domain& domain = *domains_[me];
        const double cpu_start_s = thread_cpu_s();
        for (;;) {
            if (!failed.load(std::memory_order_relaxed)) try {
                    domain.read_mail();
                } catch (...) {
                    errors[me] = std::current_exception();
                    failed.store(true);
                }
            words[me] = {domain.next_ps(), domain.idle(), domain.completed(), domain.last_completed_ps()};
            if (me == 0 && wall_s >= 0 && std::chrono::duration<double>(Clock::now() - start).count() >= wall_s)
                time_is_up.store(true, std::memory_order_relaxed);
            barrier.wait();
            // All threads read the same values and so reach the same conclusion.
            std::int64_t next_ps = INT64_MAX, last_ps = 0;
            std::uint64_t completed = 0;
            bool idle = true;
            for (const Word& word : words) {
                next_ps = std::min(next_ps, word.next_ps);
                idle = idle && word.idle;
                completed += word.completed;
                last_ps = std::max(last_ps, word.last_completed_ps);
            }
            const std::int64_t end_ps = completed == target() ? last_ps + lookahead_ps_ : INT64_MAX;
            const bool stop = failed.load() || time_is_up.load() || (idle && domain.stops_idle_) ||
                              next_ps >= std::min(end_ps, end_of_time_ps) ||
                              (until_ps >= 0 && next_ps >= until_ps);
            if (me == 0) over = idle || next_ps >= end_ps;
            barrier.wait();
            if (stop) break;
            std::int64_t limit_ps = std::min(next_ps + lookahead_ps_, end_ps);
            if (until_ps >= 0) limit_ps = std::min(limit_ps, until_ps);
            try {
                domain.run(limit_ps, UINT64_MAX);
            } catch (...) {
                errors[me] = std::current_exception();
                failed.store(true);
            }
            barrier.wait();
        }
        cpu_s[me] = thread_cpu_s() - cpu_start_s;
    };
    std::vector<std::thread> others;
    for (std::uint32_t t = 1; t < threads; ++t) others.emplace_back(work, t);
    work(0);
    for (std::thread& other : others) other.join();
    for (double s : cpu_s) cpu_s_ += s;
    for (const std::exception_ptr& error : errors)
        if (error) std::rethrow_exception(error);
    return over;
}

std::uint64_t Simulation::events() const {
    std::uint64_t sum = 0;
    for (const auto& domain : domains_) sum += domain->events();
    return sum;
}

std::uint64_t Simulation::hops() const {
    std::uint64_t sum = 0;
    for (const auto& domain : domains_) sum += domain->hops();
    return sum;
}

std::uint64_t Simulation::flows_finished() const {
    std::uint64_t sum = 0;
    for (const auto& domain : domains_) sum += domain->delivered();
    return sum;
}

std::uint64_t Simulation::packets_unroutable() const {
    std::uint64_t sum = 0;
    for (const auto& domain : domains_) sum += domain->unroutable();
    return sum;
}

}  // namespace dlcp::sim
