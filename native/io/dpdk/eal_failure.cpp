// The table of what lines of DPDK's log mean for a user.
#include "io/dpdk/eal_failure.hpp"

namespace dlcp::dpdk {

const char* const hugepage_advice =
    "reserve some as root (echo 512 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages), or do without: EAL "
    "arguments --no-huge -m 256 (slower; virtual devices only)";

namespace {

struct Cause {
    const char* part;  // of a line as DPDK logs it (22.11)
    const char* advice;
};

constexpr const char* guide = "see \"EAL parameters\" in DPDK's guide";
constexpr const char* cores =
    "--lcores, -l and -c name CPUs that this process may run on (taskset -p shows them); without them DPDK's one "
    "thread "
    "floats over all of these";

// The first that some line shows is the answer, so what is the consequence of another comes after it: without permission
// there is no memory either, and a wrong argument is always said to be one, last.
const Cause causes[] = {
    {"unrecognized option", guide},
    {"invalid option", guide},
    {"requires an argument", guide},
    {"is ambiguous", guide},
    {"--legacy-mem is not compatible", "--no-huge implies --legacy-mem and does not go with --in-memory"},
    {"Unable to parse device",
     "no such kind of virtual device, or not a PCI address; see \"Network Interface Controller Drivers\" in "
     "DPDK's "
     "guide"},
    {">= RTE_MAX_LCORE", cores},
    {"core list", cores},
    {"invalid coremask", cores},
    {"ain lcore is not enabled", cores},
    {"No detected lcore is enabled", cores},
    {" unavailable", cores},  // "core 9 unavailable", "lcore 9 unavailable"
    {"parameter for --lcores", "as in --lcores=0@(2,3)"},
    {"invalid parameter", guide},
    {"Is another primary process running",
     "another process uses the same --file-prefix: give this one its own, or leave it out (--in-memory is added "
     "then)"},
    {"ermission denied", "this user may not: run as root, or with --in-memory or --no-huge"},
    {"hugepage_data", "--proc-type=secondary needs a primary process that runs"},
    {"no mounted hugetlbfs found",
     "mount it (mount -t hugetlbfs nodev /dev/hugepages), or leave --file-prefix and --huge-dir out: --in-memory, "
     "which is added then, needs no mount"},
    {"Not enough memory available", hugepage_advice},
    {"Cannot get hugepage information", hugepage_advice},
};

}  // namespace

std::string explain_failure(std::span<const std::string> errors) {
    for (const Cause& cause : causes) {
        for (const std::string& line : errors)
            if (line.find(cause.part) != std::string::npos) return line + ": " + cause.advice;
    }
    return {};
}

}  // namespace dlcp::dpdk
