// A random run of a small world, made from one seed: who there is, what the network does to them, what is sent.
//
// A scenario is data and can be printed; running it adds no further chance. That every message ends is judged here,
// since only the scenario knows what could not: a message whose receive was cancelled, a peer that never came back.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "engine/config.hpp"
#include "support/native/world.hpp"

namespace dlcp::test {

// One thing an application or an operator does.
struct Action {
    enum class Kind : std::uint8_t {
        connect,            // first -> second
        send,               // sends[first]
        receive,            // receives[first]
        cancel_send,        // sends[first]
        cancel_receive,     // receives[first]
        advance_key_epoch,  // host first
        close,              // host first
        stop,               // host first
        restart,            // host first; it connects to everybody and posts again what it still waited for
        scribble,
        narrow,  // every port drops datagrams of more than `first` bytes from now on
    };
    Time at;
    Kind kind = Kind::connect;
    std::uint32_t first = 0;
    std::uint32_t second = 0;
};

struct Scenario {
    std::uint64_t seed = 0;
    Time origin;
    std::vector<EndpointConfig> hosts;
    std::vector<HostSettings> host_settings;
    LinkSettings port;  // of every host, both directions
    std::vector<std::pair<std::pair<std::uint32_t, std::uint32_t>, LinkSettings>> ways;
    Bytes inbox{0};
    std::vector<SendPlan> sends;
    std::vector<ReceivePlan> receives;
    std::vector<Action> actions;  // by time
    Allowed allowed;
    Duration patience;  // after the last action everything that can end has ended within this time
};

Scenario make_scenario(std::uint64_t seed);
void print(const Scenario& scenario, std::FILE* file);

struct Verdict {
    std::string failure;  // empty: all is well
    std::uint64_t trace_hash = 0;
    std::uint64_t packets = 0;
    Time end;
    // Of collectives only: what was computed, however the packets went, and whether no rank was to go wrong.
    std::uint64_t result_hash = 0;
    bool all_done = false;
};
Verdict run(const Scenario& scenario, std::FILE* trace);

}  // namespace dlcp::test
