// The driver "local": who is found in shared memory, what arrives, in which order, and what happens when the other side
// is full, gone, of another kind, or not a dlcp process at all. Two processes where processes matter.
#include <dirent.h>
#include <doctest/doctest.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "io/local_driver.hpp"
#include "io/runtime.hpp"
#include "io/shm_rendezvous.hpp"
#include "io/udp_driver.hpp"
#include "support/native/open_driver.hpp"

namespace {

using namespace dlcp::test;

const dlcp_io_table& local = *dlcp_local_driver();

dlcp_io_config config_for(const char* extra) {
    dlcp_io_config config = {};
    config.paths = 1;
    config.extra = extra;
    return config;
}

class Io : public OpenDriver {
public:
    explicit Io(const char* extra = nullptr, const dlcp_io_table& table = local)
        : OpenDriver(table, config_for(extra)) {}

    // How many were taken of packets in three pieces: a third is head, if there is room, the last byte tail.
    int send(const dlcp_address& to, const std::vector<std::string>& packets, std::uint8_t tos = 0) const {
        std::vector<Outgoing> out;
        for (const std::string& from : packets) {
            const std::size_t head = std::min<std::size_t>(from.size() / 3, 4096);
            const std::size_t tail = from.empty() ? 0 : 1;
            out.push_back({.head = from.substr(0, head),
                           .body = from.substr(head, from.size() - head - tail),
                           .tail = from.substr(from.size() - tail),
                           .tos = tos});
        }
        return OpenDriver::send(to, out);
    }
    // Sleeps until there is something.
    std::vector<Incoming> await() const {
        for (;;) {
            auto out = receive();
            if (!out.empty()) return out;
            table().wait(*this, -1);
        }
    }
};

bool same(const dlcp_address& a, const dlcp_address& b) {
    return a.length == b.length && a.flags == b.flags && memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

bool trusted(const dlcp_address& address) { return (address.flags & DLCP_ADDRESS_TRUSTED) != 0; }

std::string of_length(std::size_t bytes, char first) {
    std::string out(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>(first + i);
    return out;
}

int open_descriptors() {
    int count = 0;
    DIR* folder = opendir("/proc/self/fd");
    while (readdir(folder) != nullptr) ++count;
    closedir(folder);
    return count;
}

// A fresh process that runs `body` and then ends; its address text comes back through a pipe.
class Process {
public:
    explicit Process(const std::function<void(int say, int hear)>& body) {
        int up[2], down[2];
        REQUIRE(pipe(up) == 0);
        REQUIRE(pipe(down) == 0);
        id_ = fork();
        REQUIRE(id_ >= 0);
        if (id_ == 0) {
            ::close(up[0]);
            ::close(down[1]);
            body(up[1], down[0]);
            _exit(0);
        }
        ::close(up[1]);
        ::close(down[0]);
        hear_ = up[0];
        say_ = down[1];
    }
    ~Process() {
        ::close(hear_);
        ::close(say_);
        if (id_ > 0) end(SIGKILL);
    }
    std::string line() const {
        std::string out;
        for (char c = 0; read(hear_, &c, 1) == 1 && c != '\n';) out += c;
        return out;
    }
    void say(const std::string& text) const {
        const std::string line = text + "\n";
        REQUIRE(write(say_, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
    }
    void end(int signal) {
        kill(id_, signal);
        waitpid(id_, nullptr, 0);
        id_ = -1;
    }
    int wait_for_end() {
        int status = 0;
        waitpid(id_, &status, 0);
        id_ = -1;
        return status;
    }

private:
    pid_t id_ = -1;
    int hear_ = -1;
    int say_ = -1;
};

void say_line(int descriptor, const std::string& text) {
    const std::string line = text + "\n";
    if (write(descriptor, line.data(), line.size()) < 0) _exit(2);
}

std::string hear_line(int descriptor) {
    std::string out;
    for (char c = 0; read(descriptor, &c, 1) == 1 && c != '\n';) out += c;
    return out;
}

}  // namespace

TEST_CASE("shm local: an endpoint of this host is found in shared memory, by the address it gives") {
    Io a, b;
    const std::string text = b.text();
    REQUIRE(text.find("127.0.0.1:") == 0);
    REQUIRE(text.find("+shm:") != std::string::npos);
    const dlcp_address there = a.resolve(text);
    CHECK(trusted(there));
    CHECK(a.text_of(there) == text);
    CHECK(same(a.resolve(text), there));
    CHECK(a.counters().channels == 1);
}

TEST_CASE("shm local: another host's, a vanished one's and a plain address are the network's") {
    Io a, b;
    const std::string full = b.text();
    const std::string plain = full.substr(0, full.find('+'));
    std::string elsewhere = full;
    char& digit = elsewhere[full.find("+shm:") + 5];
    digit = digit == '0' ? '1' : '0';
    CHECK(!trusted(a.resolve(plain)));
    CHECK(!trusted(a.resolve(elsewhere)));
    b.close();
    CHECK(!trusted(a.resolve(full)));
    CHECK(a.text_of(a.resolve(full)) == plain);
    CHECK(a.counters().channels == 0);
}

TEST_CASE("shm local: the UDP driver takes the network's part of the address") {
    Io a(nullptr, *dlcp_udp_driver());
    Io b;
    const dlcp_address there = a.resolve(b.text());
    CHECK(!trusted(there));
    CHECK(a.send(there, {"hello"}) == 1);
    const auto got = b.await();
    REQUIRE(got.size() == 1);
    CHECK(got[0].datagram == "hello");
    CHECK((got[0].flags & DLCP_PACKET_TRUSTED) == 0);
}

TEST_CASE("shm local: an address that names nothing is refused, and so are words it does not know") {
    Io a;
    char error[512] = "";
    dlcp_address out;
    const std::string broken = a.text() + "0";
    CHECK(local.resolve(a, broken.c_str(), &out, error, sizeof error) == -EINVAL);
    CHECK(std::string(error).find(broken) != std::string::npos);
    CHECK(local.resolve(a, nullptr, &out, error, sizeof error) == -EINVAL);
    CHECK(local.resolve(nullptr, "127.0.0.1:1", &out, error, sizeof error) == -EBADF);
    for (const char* extra :
         {"ring_bytes=1000000", "ring_bytes=4096", "ring_bytes=1073741824", "rings=3", "ring_bytes="}) {
        CAPTURE(extra);
        const OpenFailure failure = open_failure(local, config_for(extra));
        CHECK(failure.result == -EDOM);
        CHECK(failure.text.find("65536") != std::string::npos);
    }
}

TEST_CASE("shm local: packets arrive whole and in order, both ways, and say that they are trusted") {
    Io a, b;
    const dlcp_address there = a.resolve(b.text());
    const std::vector<std::string> sent = {of_length(3, 1), of_length(64, 2), of_length(1472, 3),
                                           of_length(9152, 4)};
    CHECK(a.send(there, sent, 0x88) == 4);
    const auto got = b.await();
    REQUIRE(got.size() == sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i) {
        CHECK(got[i].datagram == sent[i]);
        CHECK(got[i].tos == 0x88);
        CHECK(got[i].flags == DLCP_PACKET_TRUSTED);
        CHECK(same(got[i].source, got[0].source));
    }
    // The source is where answers go, and where resolve() would lead.
    CHECK(same(b.resolve(a.text()), got[0].source));
    CHECK(b.text_of(got[0].source) == a.text());
    CHECK(b.send(got[0].source, {of_length(500, 9)}) == 1);
    const auto back = a.await();
    REQUIRE(back.size() == 1);
    CHECK(back[0].datagram == of_length(500, 9));
    CHECK(same(back[0].source, there));
    CHECK(a.counters().channel_tx_packets == 4);
    CHECK(a.counters().tx_packets == 4);
    CHECK(b.counters().channel_rx_bytes == 3 + 64 + 1472 + 9152);
    CHECK(b.counters().channels == 1);
}

TEST_CASE("shm local: rings and sockets serve one burst together") {
    Io a, b;
    const dlcp_address ring = a.resolve(b.text());
    const dlcp_address socket = a.resolve(b.text().substr(0, b.text().find('+')));
    std::vector<dlcp_packet> out(6);
    REQUIRE(local.tx_get(a, out.data(), 6) == 6);
    for (int i = 0; i < 6; ++i) {
        out[i].head[0] = static_cast<std::uint8_t>(i);
        out[i].head_bytes = 1;
        out[i].address = i % 2 == 0 ? &ring : &socket;
    }
    CHECK(local.tx_put(a, out.data(), 6) == 6);
    std::string from_ring, from_socket;
    while (from_ring.size() + from_socket.size() < 6)
        for (const auto& packet : b.await())
            (packet.flags & DLCP_PACKET_TRUSTED ? from_ring : from_socket) += packet.datagram;
    CHECK(from_ring == std::string({0, 2, 4}));
    CHECK(from_socket == std::string({1, 3, 5}));
}

TEST_CASE(
    "shm local: of two channels opened at once the smaller name's carries on, and nothing is lost in the other") {
    using namespace dlcp::shm;
    bool smaller_seen = false, larger_seen = false;
    for (int round = 0; round < 200 && !(smaller_seen && larger_seen); ++round) {
        Io io;
        const std::string text = io.text();
        Name name;
        REQUIRE(from_text(text.substr(text.rfind('/') + 1), name));
        // The other side, step by step: it opens its channel when the first one is on its way.
        Rendezvous other(1 << 20, 9216);
        REQUIRE(other.open() == 0);
        const dlcp_address there = io.resolve("127.0.0.1:9+shm:" + host_identity() + "/" + to_text(other.name()));
        REQUIRE(io.send(there, {"first"}) == 1);
        int error = 0;
        const auto opened = other.connect(name, "other", error);
        REQUIRE(error == 0);
        std::uint8_t* to = opened->writer.reserve(6);
        memcpy(to, "second", 6);
        opened->writer.commit(6, 0);
        opened->writer.publish();

        const auto got = io.await();
        REQUIRE(got.size() == 1);
        CHECK(got[0].datagram == "second");
        CHECK(same(got[0].source, there));
        REQUIRE(io.send(there, {"third"}) == 1);

        Greeting greeting;
        const auto taken = other.accept(greeting);
        REQUIRE(taken != nullptr);
        CHECK(greeting.from == name);
        CHECK(greeting.address == text);
        RingReader::Packet packet;
        REQUIRE(taken->reader.next(packet));
        CHECK(std::string(reinterpret_cast<const char*>(packet.bytes), packet.length) == "first");
        const bool smaller = name < other.name();
        CHECK(taken->reader.next(packet) == smaller);
        CHECK(opened->reader.next(packet) == !smaller);
        CHECK(std::string(reinterpret_cast<const char*>(packet.bytes), packet.length) == "third");
        CHECK(io.counters().channels == (smaller ? 2 : 1));
        (smaller ? smaller_seen : larger_seen) = true;
    }
    CHECK(smaller_seen);
    CHECK(larger_seen);
}

TEST_CASE(
    "shm local: what the other side wrote into its own channel comes before what it wrote into this side's") {
    using namespace dlcp::shm;
    for (int rounds = 0, looked = 0; looked < 6; ++looked) {  // whichever channel is read first
        Io io;
        const std::string text = io.text();
        Name name;
        REQUIRE(from_text(text.substr(text.rfind('/') + 1), name));
        Rendezvous other(1 << 20, 9216);
        REQUIRE(other.open() == 0);
        if (!(name < other.name())) {  // only the smaller name's channel carries on
            REQUIRE(++rounds < 200);
            --looked;
            continue;
        }
        const dlcp_address there = io.resolve("127.0.0.1:9+shm:" + host_identity() + "/" + to_text(other.name()));
        int error = 0;
        const auto opened = other.connect(name, "other", error);
        REQUIRE(error == 0);
        Greeting greeting;
        const auto taken = other.accept(greeting);
        REQUIRE(taken != nullptr);
        // The first half finds its channel waiting to be taken, the other has taken it; each look turns the order of
        // reading.
        if (looked >= 3) {
            *opened->writer.reserve(1) = '0';
            opened->writer.commit(1, 0);
            opened->writer.publish();
            CHECK(io.await()[0].datagram == "0");
        }
        dlcp_packet packet;
        for (int look = 0; look < looked; ++look) CHECK(local.rx(io, &packet, 1) == 0);
        for (Channel* channel : {opened.get(), taken.get()}) {
            *channel->writer.reserve(1) = channel == opened.get() ? 'a' : 'b';
            channel->writer.commit(1, 0);
            channel->writer.publish();
        }
        std::string got;
        while (got.size() < 2)
            for (const auto& packet : io.await()) got += packet.datagram;
        CHECK(got == "ab");
        static_cast<void>(there);
    }
}

TEST_CASE("shm local: two processes that open a channel to each other at the same moment") {
    for (int round = 0; round < 10; ++round) {
        Process other([](int say, int hear) {
            Io io;
            say_line(say, io.text());
            const dlcp_address to = io.resolve(hear_line(hear));
            io.send(to, {"from the child"});
            std::string got;
            while (got != "from the parent") got = io.await()[0].datagram;
            io.send(to, {"and again"});
            hear_line(hear);
        });
        Io io;
        other.say(io.text());
        const dlcp_address to = io.resolve(other.line());
        REQUIRE(trusted(to));
        io.send(to, {"from the parent"});
        std::vector<std::string> got;
        while (got.size() < 2)
            for (const auto& packet : io.await())
                if (packet.flags == DLCP_PACKET_TRUSTED) got.push_back(packet.datagram);
        CHECK(got == std::vector<std::string>{"from the child", "and again"});
        other.say("end");
        other.wait_for_end();
    }
}

TEST_CASE("shm local: what a full ring cannot take counts as lost here, and what fits arrives") {
    Io a("ring_bytes=65536"), b("ring_bytes=65536");
    const dlcp_address there = a.resolve(b.text());
    const std::vector<std::string> burst(10, of_length(9152, 1));
    CHECK(a.send(there, burst) == 7);
    CHECK(a.counters().tx_dropped_packets == 3);
    CHECK(b.await().size() == 7);
    CHECK(a.send(there, burst) == 7);
    CHECK(b.await().size() == 7);
}

TEST_CASE("shm local: a packet is as long as the wire format can say, and the smallest ring holds one") {
    Io a, b;
    const dlcp_address there = a.resolve(b.text());
    CHECK(a.send(there, {of_length(65535, 1), of_length(65536, 2), of_length(61504, 3)}) == 2);
    const auto got = b.await();
    REQUIRE(got.size() == 2);
    CHECK(got[0].datagram == of_length(65535, 1));
    CHECK(got[1].datagram == of_length(61504, 3));
    CHECK(a.counters().tx_dropped_packets == 1);
    Io small("ring_bytes=65536"), other("ring_bytes=65536");
    const dlcp_address near = small.resolve(other.text());
    for (int round = 0; round < 3; ++round) {
        CHECK(small.send(near, {of_length(65535, 1), of_length(61504, 2), of_length(61504, 3)}) == 1);
        CHECK(other.await()[0].datagram == of_length(61504, 2));
    }
}

TEST_CASE("shm local: any mix of packets of what a channel promises to hold fits in it") {
    Io a, b;
    const dlcp_io_capabilities capabilities = a.capabilities();
    REQUIRE(capabilities.channel_buffer_bytes > 1'000'000);
    for (const std::size_t length : {std::size_t{65}, std::size_t{73}, std::size_t{1400}, std::size_t{9152},
                                     std::size_t{61504}, std::size_t{65535}}) {
        CAPTURE(length);
        const dlcp_address there = a.resolve(b.text());
        std::uint64_t sent_bytes = 0;
        // 8192 is the most packets that the engine has in flight.
        for (int packets = 0; packets < 8192 && sent_bytes + length <= capabilities.channel_buffer_bytes;
             ++packets) {
            REQUIRE(a.send(there, {of_length(length, 1)}) == 1);
            sent_bytes += length;
        }
        while (sent_bytes > 0)
            for (const auto& packet : b.await()) sent_bytes -= packet.datagram.size();
    }
    CHECK(a.counters().tx_dropped_packets == 0);
}

TEST_CASE("shm local: wait() is left for a packet, for a new channel and for wake()") {
    Io a, b;
    std::atomic<int> seen{0};
    std::thread other([&] {
        while (seen < 3) {
            for (const auto& packet : b.await()) {
                static_cast<void>(packet);
                ++seen;
                seen.notify_all();
            }
        }
        local.wait(b, -1);
    });
    const dlcp_address there = a.resolve(b.text());
    for (int i = 0; i < 3; ++i) {
        CHECK(a.send(there, {"knock"}) == 1);
        seen.wait(i);
    }
    local.wake(b);
    other.join();
    CHECK(seen == 3);
}

TEST_CASE("shm local: when the other side closes, its last packets come first and then word that it has gone") {
    Io a;
    auto b = std::make_unique<Io>();
    const dlcp_address there = a.resolve(b->text());
    const std::string text = b->text();
    a.send(there, {"hello"});
    CHECK(b->await().size() == 1);
    b->send(b->resolve(a.text()), {"one", "two!"});
    b.reset();
    std::vector<Incoming> got;
    while (got.size() < 3)
        for (auto& packet : a.await()) got.push_back(packet);
    CHECK(got[0].datagram == "one");
    CHECK(got[1].datagram == "two!");
    CHECK(got[2].flags == (DLCP_PACKET_TRUSTED | DLCP_PACKET_GONE));
    CHECK(got[2].datagram.empty());
    CHECK(same(got[2].source, there));
    CHECK(a.counters().channels == 0);
    CHECK(a.send(there, {"too late"}) == 0);
    CHECK(a.counters().tx_dropped_packets == 1);
    CHECK(!trusted(a.resolve(text)));
}

TEST_CASE("shm local: a killed process is told of as gone, and leaves nothing behind") {
    const int before = open_descriptors();
    {
        Io io;
        Process other([](int say, int) {
            Io own;
            say_line(say, own.text());
            for (;;)
                for (const auto& packet : own.await()) own.send(packet.source, {packet.datagram});
        });
        const dlcp_address to = io.resolve(other.line());
        REQUIRE(trusted(to));
        io.send(to, {"are you there"});
        CHECK(io.await()[0].datagram == "are you there");
        other.end(SIGKILL);
        const auto got = io.await();
        REQUIRE(got.size() == 1);
        CHECK((got[0].flags & DLCP_PACKET_GONE) != 0);
    }
    CHECK(open_descriptors() == before);
}

TEST_CASE("shm local: packets lent out stay readable when the other side goes meanwhile") {
    Io a;
    auto b = std::make_unique<Io>();
    const dlcp_address there = b->resolve(a.text());
    b->send(there, {of_length(5000, 7)});
    dlcp_packet packet;
    while (local.rx(a, &packet, 1) == 0) local.wait(a, -1);
    b.reset();
    dlcp_packet word;
    while (local.rx(a, &word, 1) == 0) local.wait(a, -1);
    CHECK((word.flags & DLCP_PACKET_GONE) != 0);
    CHECK(std::string(reinterpret_cast<const char*>(packet.head), packet.head_bytes) == of_length(5000, 7));
    local.rx_done(a, &word, 1);
    local.rx_done(a, &packet, 1);
    local.rx_done(a, &packet, 1);  // twice: no harm
}

// What the endpoint listens to, as /proc/net/unix lists it: an abstract name begins with NUL.
sockaddr_un listening_address(const std::string& endpoint) {
    const std::string name = endpoint.substr(endpoint.rfind('/') + 1);
    std::ifstream listed("/proc/net/unix");
    sockaddr_un out = {};
    for (std::string line; std::getline(listed, line);) {
        if (line.find(name) == std::string::npos) continue;
        std::string path = line.substr(line.rfind(' ') + 1);
        if (path.front() == '@') path.front() = '\0';
        out.sun_family = AF_UNIX;
        memcpy(out.sun_path, path.data(), path.size());
        break;
    }
    return out;
}

// A connection that says nothing; a negative errno.
int connect_to(const std::string& endpoint) {
    const sockaddr_un address = listening_address(endpoint);
    const auto path_bytes =
        address.sun_path[0] == '\0' ? strlen(address.sun_path + 1) + 1 : sizeof address.sun_path;
    const int stranger = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
    if (connect(stranger, reinterpret_cast<const sockaddr*>(&address),
                static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path_bytes)) == 0)
        return stranger;
    const int number = errno;
    close(stranger);
    return -number;
}

TEST_CASE("shm local: another user of the host cannot connect to an endpoint") {
    Io io;
    const std::string text = io.text();
    const std::string path = listening_address(text).sun_path;
    REQUIRE(!path.empty());
    const std::string folder = path.substr(0, path.rfind('/'));
    struct stat status = {};
    REQUIRE(lstat(folder.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0700);
    CHECK(status.st_uid == geteuid());
    if (geteuid() == 0) {
        const pid_t child = fork();
        if (child == 0) _exit(setuid(65534) == 0 && connect_to(text) == -EACCES ? 0 : 1);
        int ended = -1;
        REQUIRE(waitpid(child, &ended, 0) == child);
        CHECK(ended == 0);
    }
}

TEST_CASE("shm local: many connections that come at once are taken a few at a time") {
    Io io;
    std::vector<int> strangers;
    for (int i = 0; i < 200; ++i) {
        strangers.push_back(connect_to(io.text()));
        REQUIRE(strangers.back() >= 0);
    }
    // 64 may be silent at a time; if all 200 were taken at once, the first would be dropped.
    local.wait(io, -1);
    CHECK(io.receive().empty());
    char byte;
    CHECK(recv(strangers[0], &byte, 1, 0) == -1);
    for (const int stranger : strangers) close(stranger);
}

TEST_CASE("shm local: an endpoint removes its folder, and those that killed processes of its user left") {
    using namespace dlcp::shm;
    Name left_name;
    REQUIRE(from_text("00000000000000a1", left_name));
    const std::string left = folder_of(left_name);
    Rendezvous living(ring_bytes_min, 9152);
    REQUIRE(living.open() == 0);
    REQUIRE(mkdir(left.c_str(), 0700) == 0);
    const timespec long_ago[2] = {};
    REQUIRE(utimensat(AT_FDCWD, left.c_str(), long_ago, 0) == 0);
    REQUIRE(utimensat(AT_FDCWD, folder_of(living.name()).c_str(), long_ago, 0) == 0);
    std::string own;
    {
        Rendezvous next(ring_bytes_min, 9152);
        REQUIRE(next.open() == 0);
        own = folder_of(next.name());
        CHECK(access(own.c_str(), F_OK) == 0);
    }
    CHECK(access(own.c_str(), F_OK) != 0);
    CHECK(access(left.c_str(), F_OK) != 0);
    CHECK(access(folder_of(living.name()).c_str(), F_OK) == 0);
}

TEST_CASE("shm local: who does not greet as an endpoint does is dropped") {
    Io a, b;
    const std::string text = a.text();
    std::vector<int> strangers;
    for (int i = 0; i < 100; ++i) {
        const int stranger = connect_to(text);
        REQUIRE(stranger >= 0);
        if (i % 2 == 0) REQUIRE(send(stranger, "good day", 8, 0) == 8);  // the others say nothing
        strangers.push_back(stranger);
    }
    const dlcp_address there = b.resolve(text);
    b.send(there, {"hello"});
    const auto got = a.await();
    REQUIRE(got.size() == 1);
    CHECK(got[0].datagram == "hello");
    CHECK(a.counters().channels == 1);
    for (const int stranger : strangers) close(stranger);
}

TEST_CASE("shm local: hosts exchange messages through shared memory, under a key") {
    using namespace dlcp;
    const auto options = [](std::uint32_t rank) {
        RuntimeOptions out;
        out.driver = "local";
        out.engine.rank = rank;
        out.engine.job_key.emplace();
        out.engine.job_key->fill(7);
        return out;
    };
    Runtime left(options(0)), right(options(1));
    left.connect(1, right.local_address());
    right.connect(0, left.local_address());
    REQUIRE(left.wait_established(1, seconds(60)));
    REQUIRE(right.wait_established(0, seconds(60)));
    CHECK(left.peer_address(1) == right.local_address());
    CHECK(right.peer_address(0) == left.local_address());
    const std::string sent = of_length(3'000'000, 5);
    std::string got(sent.size(), '\0');
    ReceiveCommand receive;
    receive.buffer = reinterpret_cast<std::uint8_t*>(got.data());
    receive.capacity_bytes = static_cast<std::uint32_t>(got.size());
    const auto there = right.receive(0, receive);
    SendCommand send;
    send.payload = reinterpret_cast<const std::uint8_t*>(sent.data());
    send.message_bytes = static_cast<std::uint32_t>(sent.size());
    const auto here = left.send(1, send);
    REQUIRE(left.wait(here, seconds(60)));
    REQUIRE(right.wait(there, seconds(60)));
    CHECK(there->error == CommandError::none);
    CHECK(got == sent);
    const RuntimeStatistics statistics = left.statistics();
    CHECK(statistics.io.channel_tx_bytes > sent.size());
    CHECK(statistics.io.tx_packets == statistics.io.channel_tx_packets);
    CHECK(statistics.engine.lost_packets == 0);
}
