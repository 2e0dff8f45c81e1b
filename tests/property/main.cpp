// dlcp_property: runs many random scenarios, or one, or writes the result table.
//
// Scenarios run in child processes, so that one that crashes or hangs is named like one that fails.
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "collectives.hpp"
#include "gradients.hpp"
#include "scenario.hpp"
#include "table.hpp"

namespace {

using dlcp::test::Verdict;

constexpr unsigned hang_seconds = 60;       // of the processor's time for one seed: far above the slowest
constexpr std::uint64_t max_failures = 10;  // shown; then the rest is not run
constexpr std::uint64_t twice_every = 64;   // seeds of which one is run twice, to compare its traces
constexpr std::uint64_t other_network_every =
    8;  // … of which one is run on another network, to compare its results

const char* usage =
    "usage: dlcp_property [--collectives | --gradients] [--seeds N] [--first S] [--jobs J] [--progress]\n"
    "       dlcp_property [--collectives | --gradients] --seed S [--trace] [--hash]\n"
    "       dlcp_property --table\n"
    "\n"
    "  --collectives  of collectives; otherwise of messages\n"
    "  --gradients    of collectives that may lose, among others that may not\n"
    "  --seeds N   run N random scenarios (default 1000), seeds S, S+1, …\n"
    "  --first S   the first seed (default 1)\n"
    "  --jobs J    processes (default: one per core)\n"
    "  --progress  say how far it is, on standard error\n"
    "  --seed S    run one scenario in this process\n"
    "  --trace     print everything that happens\n"
    "  --hash      print a hash of everything that happens; with --seeds, of all seeds together\n"
    "  --table     print the table of completion times by loss, load and mode\n";

// What the children tell the parent, in shared memory.
struct Shared {
    std::uint64_t seed;  // being run
    std::uint64_t done;
    std::uint64_t failures;
    std::uint64_t packets;
    std::uint64_t hash;
};

// What is run: set once, before anything starts.
enum class Worlds { messages, collectives, gradients };
Worlds worlds = Worlds::messages;

const char* word_of(Worlds what) {
    switch (what) {
        case Worlds::messages: return "";
        case Worlds::collectives: return "--collectives ";
        case Worlds::gradients: return "--gradients ";
    }
    return "";
}

// On the network that another seed draws. The results of collectives must not depend on it.
Verdict run_on_network(std::uint64_t seed, std::uint64_t network_seed, std::FILE* trace) {
    if (worlds == Worlds::collectives) return dlcp::test::run_collectives(seed, network_seed, trace);
    return dlcp::test::run_gradients(seed, network_seed, trace);
}

Verdict run_seed(std::uint64_t seed, std::FILE* trace) {
    if (worlds != Worlds::messages) return run_on_network(seed, seed, trace);
    return dlcp::test::run(dlcp::test::make_scenario(seed), trace);
}

void report_failure(std::uint64_t seed, const std::string& what) {
    std::printf("FAILED seed %" PRIu64 ": %s\n  replay: dlcp_property %s--seed %" PRIu64 " --trace\n", seed,
                what.c_str(), word_of(worlds), seed);
    std::fflush(stdout);
}

// The processor's time, not the clock's: beside other work a seed may wait for its turn as long.
void limit(unsigned seconds) {
    const itimerval timer = {{0, 0}, {static_cast<time_t>(seconds), 0}};
    setitimer(ITIMER_PROF, &timer, nullptr);
}

void run_share(std::uint64_t first, std::uint64_t last, std::uint64_t stride, Shared& shared) {
    for (std::uint64_t seed = first; seed < last && shared.failures < max_failures; seed += stride) {
        shared.seed = seed;
        limit(hang_seconds);
        const Verdict verdict = run_seed(seed, nullptr);
        if (!verdict.failure.empty()) {
            ++shared.failures;
            report_failure(seed, verdict.failure);
        } else if (seed % twice_every == 0) {
            if (run_seed(seed, nullptr).trace_hash != verdict.trace_hash) {
                ++shared.failures;
                report_failure(seed, "the second run went another way than the first");
            }
        } else if (worlds != Worlds::messages && seed % other_network_every == 0 && verdict.all_done) {
            const Verdict other = run_on_network(seed, ~seed, nullptr);
            if (!other.failure.empty() || other.result_hash != verdict.result_hash) {
                ++shared.failures;
                report_failure(seed, "packets that move otherwise give another result: " + other.failure);
            }
        }
        shared.packets += verdict.packets;
        shared.hash ^= verdict.trace_hash * (2 * seed + 1);
        ++shared.done;
    }
    limit(0);
}

int run_many(std::uint64_t first, std::uint64_t seeds, std::uint64_t jobs, bool progress, bool hash) {
    jobs = std::clamp<std::uint64_t>(jobs, 1, std::max<std::uint64_t>(seeds, 1));
    auto* const shared = static_cast<Shared*>(
        mmap(nullptr, sizeof(Shared) * jobs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (shared == MAP_FAILED) {
        std::perror("mmap");
        return 2;
    }
    const std::uint64_t last = first + seeds;
    std::vector<pid_t> children(jobs);
    const auto start = [&](std::uint64_t job, std::uint64_t from) {
        std::fflush(stdout);
        const pid_t pid = fork();
        if (pid == 0) {
            run_share(from, last, jobs, shared[job]);
            std::fflush(stdout);
            _exit(0);
        }
        if (pid < 0) std::perror("fork");
        children[job] = pid;
    };
    for (std::uint64_t job = 0; job < jobs; ++job) start(job, first + job);

    const auto sum = [&](auto member) {
        std::uint64_t total = 0;
        for (std::uint64_t job = 0; job < jobs; ++job) total += shared[job].*member;
        return total;
    };
    std::uint64_t running = jobs;
    while (running != 0) {
        int status = 0;
        const pid_t pid = waitpid(-1, &status, progress ? WNOHANG : 0);
        if (pid == 0) {
            std::fprintf(stderr, "\r%" PRIu64 "/%" PRIu64, sum(&Shared::done), seeds);
            usleep(200'000);
            continue;
        }
        if (pid < 0) break;
        const auto found = std::find(children.begin(), children.end(), pid);
        if (found == children.end()) continue;
        const auto job = static_cast<std::uint64_t>(found - children.begin());
        if (WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) != 0)) {
            Shared& s = shared[job];
            ++s.failures;
            ++s.done;
            const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
            report_failure(s.seed, signal == SIGPROF ? "hung for " + std::to_string(hang_seconds) + " s"
                                   : signal != 0     ? std::string("crashed: ") + strsignal(signal)
                                                     : "exited: " + std::to_string(WEXITSTATUS(status)));
            if (s.seed + jobs < last && s.failures < max_failures) {
                start(job, s.seed + jobs);
                continue;
            }
        }
        --running;
    }
    if (progress) std::fputc('\n', stderr);
    const std::uint64_t failures = sum(&Shared::failures);
    std::printf("%" PRIu64 " seeds from %" PRIu64 ", %" PRIu64 " packets, %" PRIu64 " failures\n",
                sum(&Shared::done), first, sum(&Shared::packets), failures);
    if (hash) {
        std::uint64_t all = 0;
        for (std::uint64_t job = 0; job < jobs; ++job) all ^= shared[job].hash;
        std::printf("hash %016" PRIx64 "\n", all);
    }
    return failures == 0 ? 0 : 1;
}

int run_one(std::uint64_t seed, bool trace, bool hash) {
    const Verdict verdict = run_seed(seed, trace ? stdout : nullptr);
    if (hash) std::printf("hash %016" PRIx64 "\n", verdict.trace_hash);
    std::printf("seed %" PRIu64 ": %" PRIu64 " packets, %s\n", seed, verdict.packets,
                verdict.failure.empty() ? "passed" : verdict.failure.c_str());
    return verdict.failure.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    std::uint64_t seeds = 1000, first = 1, seed = 0;
    std::uint64_t jobs = static_cast<std::uint64_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
    bool one = false, progress = false, trace = false, hash = false, table = false;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const auto number = [&]() -> std::uint64_t {
            char* end = nullptr;
            const char* const text = i + 1 < argc ? argv[++i] : "";
            const std::uint64_t value = std::strtoull(text, &end, 10);
            if (*text == '\0' || *end != '\0') {
                std::fprintf(stderr, "%s needs a number\n%s", word.c_str(), usage);
                std::exit(2);
            }
            return value;
        };
        if (word == "--seeds") {
            seeds = number();
        } else if (word == "--first") {
            first = number();
        } else if (word == "--jobs") {
            jobs = number();
        } else if (word == "--seed") {
            seed = number();
            one = true;
        } else if (word == "--progress") {
            progress = true;
        } else if (word == "--trace") {
            trace = true;
        } else if (word == "--hash") {
            hash = true;
        } else if (word == "--collectives") {
            worlds = Worlds::collectives;
        } else if (word == "--gradients") {
            worlds = Worlds::gradients;
        } else if (word == "--table") {
            table = true;
        } else {
            std::fputs(usage, word == "--help" ? stdout : stderr);
            return word == "--help" ? 0 : 2;
        }
    }
    if (table) {
        dlcp::test::print_table(stdout);
        return 0;
    }
    return one ? run_one(seed, trace, hash) : run_many(first, seeds, jobs, progress, hash);
}
