// Starts the EAL once per process and turns its failure into a sentence.
#include "io/dpdk/eal.hpp"

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_version.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "io/dpdk/eal_arguments.hpp"
#include "io/dpdk/eal_failure.hpp"
#include "io/dpdk/eal_log.hpp"
#include "io/dpdk/lcore.hpp"

namespace dlcp::dpdk {
namespace {

struct State {
    std::mutex mutex;
    Arguments asked;     // as given to the start that succeeded
    std::string used;    // with what was added
    std::string failed;  // why the one start failed
    pid_t started_by = 0;
};

State& state() {
    static State* const instance = new State;  // never destroyed: threads of others may ask at exit
    return *instance;
}

std::vector<unsigned> allowed_cpus() {
    std::vector<unsigned> cpus;
    cpu_set_t set;
    CPU_ZERO(&set);
    // A host with more CPUs than a cpu_set_t holds is an error here: DPDK's own types hold no more either.
    if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
    return cpus;
}

std::uint64_t read_number(const std::filesystem::path& path) {
    std::uint64_t value = 0;
    std::ifstream(path) >> value;
    return value;
}

// Hugepages of any size that nobody uses, or that the kernel would make when asked.
bool has_free_hugepages() {
    std::error_code ignored;
    for (const auto& size : std::filesystem::directory_iterator("/sys/kernel/mm/hugepages", ignored)) {
        const std::uint64_t free = read_number(size.path() / "free_hugepages");
        const std::uint64_t reserved = read_number(size.path() / "resv_hugepages");
        const std::uint64_t overcommit = read_number(size.path() / "nr_overcommit_hugepages");
        if (free > reserved || overcommit > read_number(size.path() / "surplus_hugepages")) return true;
    }
    return false;
}

// What rte_eal_init's failure means for a person: a cause that the log shows and what to do, else what it says.
std::string explain(int eal_errno) {
    const std::string known = explain_failure(logged_errors());
    if (!known.empty()) return known;
    const std::string log = last_complaints(0, 3);
    return log.empty() ? rte_strerror(eal_errno) : log;
}

// On a thread of its own: EAL pins the thread that calls it, and the threads it makes inherit that thread's signal mask.
// Nothing asks for that thread later: with one lcore, nobody launches work on the others, and the main lcore's thread
// id is kept for that alone.
int init(Arguments arguments, int& eal_errno) {
    int rc = -1;
    std::thread starter([&] {
        std::vector<char*> argv;
        for (std::string& argument : arguments) argv.push_back(argument.data());
        argv.push_back(nullptr);
        const PrintCapture capture;
        rc = rte_eal_init(static_cast<int>(arguments.size()), argv.data());
        eal_errno = rte_errno;
        if (rc >= 0) Lcore::prepare_timers();
    });
    starter.join();
    return rc;
}

// rte_errno has values of its own beyond the system's, and of the system's some that mean something else to who opens a
// driver: an address that is wrong, a device that is taken.
int error_of_start(int eal_errno) {
    switch (eal_errno) {
        case EACCES:
        case EPERM:
        case ENODEV:  // --vdev or -a names none
        case ENOMEM: return eal_errno;
        case EINVAL: return EDOM;  // an argument, or its value
        default: return EIO;
    }
}

struct SignalsBlocked {
    sigset_t before;
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
};

int start_again(const State& s, const Arguments& asked, ErrorText error) {
    if (s.started_by != getpid()) {
        return error.fail(
            EPERM,
            "DPDK was started before this process was forked off process %d and does not survive that; "
            "start the process with spawn instead of fork",
            static_cast<int>(s.started_by));
    }
    if (asked.empty() || asked == s.asked) return 0;
    return error.fail(
        EALREADY,
        "DPDK runs already, with the EAL arguments \"%s\", and is started once per process; use the same "
        "arguments or none instead of \"%s\"",
        s.used.c_str(), join_arguments(asked).c_str());
}

}  // namespace

int start_eal(const std::string& arguments, ErrorText error) {
    Arguments asked;
    if (const int rc = split_arguments(arguments, asked, error); rc < 0) return rc;
    State& s = state();
    const std::lock_guard lock(s.mutex);
    if (s.started_by != 0) return start_again(s, asked, error);
    if (!s.failed.empty()) {
        return error.fail(EALREADY,
                          "DPDK failed to start before in this process (%s) and cannot be tried twice: start the "
                          "process anew with other EAL arguments",
                          s.failed.c_str());
    }
    if (const int rc = check_arguments(asked, error); rc < 0) return rc;
    if (!has_option(asked, "no-huge") && !has_free_hugepages()) {
        return error.fail(ENOMEM, "DPDK needs hugepages and none is free: %s", hugepage_advice);
    }
    Arguments used = asked;
    for (std::string& argument : added_arguments(asked, allowed_cpus())) used.push_back(std::move(argument));
    s.used = join_arguments(used);
    keep_log(has_option(asked, "log-level"));
    used.insert(used.begin(), "dlcp");
    int eal_errno = 0;
    int rc;
    {
        const SignalsBlocked blocked;
        rc = init(used, eal_errno);
    }
    if (rc < 0) {
        s.failed = explain(eal_errno);
        return error.fail(error_of_start(eal_errno), "DPDK does not start: %s (EAL arguments: %s)",
                          s.failed.c_str(), s.used.c_str());
    }
    s.asked = std::move(asked);
    s.started_by = getpid();
    return 0;
}

bool eal_started() {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    return s.started_by != 0 && s.started_by == getpid();
}

std::string eal_arguments() {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    return s.started_by != 0 ? s.used : std::string();
}

std::string eal_log() { return kept_log(); }

}  // namespace dlcp::dpdk
