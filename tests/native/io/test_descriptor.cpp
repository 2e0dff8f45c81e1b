// A descriptor is closed with its owner, and a forked child keeps no copy of it: so a port is free and a peer hears the
// end as soon as the parent has closed, whatever its children do.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <utility>
#include <vector>

#include "io/descriptor.hpp"
#include "io/local_driver.hpp"
#include "io/udp_driver.hpp"
#include "support/native/open_driver.hpp"

namespace dlcp {
namespace {

bool is_open(int number) { return fcntl(number, F_GETFD) >= 0; }

std::array<int, 2> make_pipe() {
    std::array<int, 2> ends{};
    REQUIRE(pipe(ends.data()) == 0);
    return ends;
}

// A forked child that lives until this goes, as a data loader's worker does. It runs when the constructor returns.
class Worker {
public:
    Worker() : id_(fork()) {
        char byte = 0;
        if (id_ != 0) {
            close(until_[0]);
            REQUIRE(read(runs_[0], &byte, 1) == 1);
            return;
        }
        close(until_[1]);
        [[maybe_unused]] auto bytes = write(runs_[1], &byte, 1);
        bytes = read(until_[0], &byte, 1);
        _exit(0);
    }
    ~Worker() {
        close(until_[1]);
        waitpid(id_, nullptr, 0);
        for (const int end : runs_) close(end);
    }

private:
    std::array<int, 2> until_ = make_pipe();
    std::array<int, 2> runs_ = make_pipe();
    pid_t id_;
};

// What comes next; nothing if nothing comes in ten seconds.
std::vector<test::Incoming> await(const test::OpenDriver& io) {
    auto out = io.receive();
    for (int waits = 0; out.empty() && waits < 100; ++waits) {
        io.table().wait(io, 100'000'000);
        out = io.receive();
    }
    return out;
}

}  // namespace

TEST_CASE("descriptor: is closed once, by its last owner") {
    const auto [reading, writing] = make_pipe();
    {
        Descriptor first(writing);
        Descriptor second(std::move(first));
        CHECK(!first);
        CHECK(second.number() == writing);
        Descriptor third;
        third = std::move(second);
        CHECK(is_open(writing));
    }
    CHECK(!is_open(writing));
    close(reading);
}

TEST_CASE("descriptor: a forked child has none of its parent's, and does not close what has the number since") {
    const auto [reading, writing] = make_pipe();
    Descriptor owned(writing);
    const pid_t child = fork();
    if (child == 0) {
        const bool was_closed = !is_open(writing);
        dup2(reading, writing);
        { const Descriptor copy(std::move(owned)); }
        _exit(was_closed && is_open(writing) ? 0 : 1);
    }
    int ended = -1;
    REQUIRE(waitpid(child, &ended, 0) == child);
    CHECK(ended == 0);
    CHECK(is_open(writing));
    close(reading);
}

TEST_CASE("descriptor: what a library owns is closed in children until it is forgotten") {
    const auto [reading, writing] = make_pipe();
    close_in_children(reading);
    close_in_children(writing);
    forget(reading);
    const pid_t child = fork();
    if (child == 0) _exit(is_open(reading) && !is_open(writing) ? 0 : 1);
    int ended = -1;
    REQUIRE(waitpid(child, &ended, 0) == child);
    CHECK(ended == 0);
    forget(writing);
    close(reading);
    close(writing);
}

TEST_CASE("descriptor: the port of a closed UDP driver is free while a forked worker lives") {
    dlcp_io_config config{};
    config.paths = 1;
    test::OpenDriver io(*dlcp_udp_driver(), config);
    const std::string text = io.text();
    config.port = static_cast<std::uint16_t>(std::stoi(text.substr(text.rfind(':') + 1)));
    const Worker worker;
    io.close();
    CHECK_NOTHROW(test::OpenDriver(*dlcp_udp_driver(), config));
}

TEST_CASE("descriptor: a peer hears that an endpoint in shared memory has closed while its forked worker lives") {
    dlcp_io_config config{};
    config.paths = 1;
    test::OpenDriver here(*dlcp_local_driver(), config);
    test::OpenDriver there(*dlcp_local_driver(), config);
    const dlcp_address address = here.resolve(there.text());
    here.send(address, {{.body = "hello"}});
    REQUIRE(await(there).size() == 1);
    const Worker worker;
    there.close();
    const auto got = await(here);
    REQUIRE(got.size() == 1);
    CHECK((got[0].flags & DLCP_PACKET_GONE) != 0);
}

}  // namespace dlcp
