// Why DPDK did not start, from lines that it logs (DPDK 22.11): the cause is told, not what follows from it.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "io/dpdk/eal_failure.hpp"

using dlcp::dpdk::explain_failure;

namespace {

std::string explained(const std::vector<std::string>& lines) { return explain_failure(lines); }
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("eal failure: the line that shows the cause, and what to do") {
    struct Case {
        std::vector<std::string> lines;
        const char* line;
        const char* advice;
    };
    for (const Case& known : {
             Case{{"dlcp: unrecognized option '--bad'", "EAL: Invalid 'command line' arguments."},
                  "'--bad'",
                  "guide"},
             Case{{"EAL: core 99 unavailable", "EAL: invalid parameter for --lcores"}, "core 99", "taskset -p"},
             Case{{"EAL: lcore 4000 >= RTE_MAX_LCORE (128)", "EAL: invalid core list syntax"},
                  "4000",
                  "taskset -p"},
             Case{{"EAL: invalid characters in coremask: [zz]", "EAL: invalid coremask syntax"},
                  "coremask",
                  "taskset -p"},
             Case{{"EAL: Main lcore is not enabled for DPDK"}, "Main lcore", "taskset -p"},
             Case{{"EAL: invalid parameter for --lcores"}, "--lcores", "0@(2,3)"},
             Case{{"EAL: invalid parameters for --iova-mode"}, "--iova-mode", "guide"},
             Case{{"EAL: failed to parse device \"foo0\"", "EAL: Unable to parse device 'foo0'"},
                  "'foo0'",
                  "no such kind of virtual device"},
             Case{{"EAL: Cannot create lock on '/var/run/dpdk/rte/config'. Is another primary process running?"},
                  "config",
                  "--file-prefix"},
             Case{{"EAL: Could not open /var/run/dpdk/rte/hugepage_data", "EAL: Cannot init memory"},
                  "hugepage_data",
                  "primary process"},
             // What may not be opened is not missing.
             Case{{"EAL: get_seg_fd(): open '/dev/hugepages/rtemap_0' failed: Permission denied",
                   "EAL: Couldn't get fd on hugepage file", "EAL: Not enough memory available on socket 0!"},
                  "Permission denied",
                  "this user may not"},
             Case{{"EAL: 8 hugepages of size 2097152 reserved, but no mounted hugetlbfs found for that size",
                   "EAL: Cannot get hugepage information."},
                  "8 hugepages",
                  "mount -t hugetlbfs"},
             Case{{"EAL: Not enough memory available on socket 0! Requested: 64MB, available: 0MB"},
                  "Requested: 64MB",
                  "nr_hugepages"},
             Case{{"EAL: Cannot get hugepage information."}, "hugepage information", "nr_hugepages"},
         }) {
        CAPTURE(known.lines.front());
        CHECK(contains(explained(known.lines), known.line));
        CHECK(contains(explained(known.lines), known.advice));
    }
}

TEST_CASE("eal failure: what is no cause is not taken for one") {
    CHECK(explained({}) == "");
    // Told by every start on a machine without pages of 1 GB, and of every CPU with --log-level=debug.
    CHECK(explained({"EAL: No free 1048576 kB hugepages reported on node 0"}) == "");
    CHECK(explained({"EAL: Detected lcore 0 as core 0 on socket 0"}) == "");
    CHECK(explained({"EAL: Cannot set affinity of core 0"}) == "");
}
