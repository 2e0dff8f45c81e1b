// NCCL's connections, which go one way, as messages between runtimes.
//
// A process receives through one runtime per device; it draws that runtime's key and gives it away in its handles. It
// sends through one runtime per receiving runtime that it knows, whatever number of connections go there. A connection
// has the number that its listener gave it; the first that a sending runtime serves is its rank, and the receiving
// runtime's is 0. Message n of a connection has the tag (number, n). Message 0 is empty: the sender is there.
//
// Everything is thrown as Failure, IoError or std::invalid_argument. Nothing here blocks, but for a runtime that opens
// or closes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "io/real_time.hpp"
#include "io/runtime.hpp"
#include "nccl/devices.hpp"
#include "nccl/net_v8.hpp"

namespace dlcp::nccl {

struct Failure : std::runtime_error {
    Failure(Result what, const std::string& sentence) : std::runtime_error(sentence), result(what) {}
    Result result;
};

// A runtime that receives, with what its peers have to know.
struct ReceivingRuntime {
    explicit ReceivingRuntime(RuntimeOptions options);
    JobKeyBytes key;
    RuntimePtr runtime;
    std::uint32_t connections = 0;  // so far
};

struct Connecting;

// What the receiver's NCCL gives to the sender's. NCCL keeps it until the connection stands.
struct Handle {
    char magic[8];
    std::uint32_t wire_version;
    std::uint32_t connection;
    JobKeyBytes key;
    char address[64];
    Connecting* connecting;  // the sender's alone
};
static_assert(sizeof(Handle) <= handle_bytes);

struct Request {
    std::shared_ptr<Runtime> runtime;
    OperationPtr operation;
    // True: it is over, and `bytes`, unless it is nullptr, what was sent or received.
    bool test(int* bytes) const;
};

class Sender {
public:
    Sender(std::shared_ptr<Runtime> runtime, std::uint32_t connection);
    std::unique_ptr<Request> send(const void* data, int bytes);

private:
    std::shared_ptr<Runtime> runtime_;
    std::uint64_t next_tag_;
};

class Receiver {
public:
    Receiver(std::shared_ptr<Runtime> runtime, std::uint32_t connection, std::uint32_t rank)
        : runtime_(std::move(runtime)), next_tag_((std::uint64_t{connection} << 32) + 1), rank_(rank) {}
    std::unique_ptr<Request> receive(void* data, int bytes);

private:
    std::shared_ptr<Runtime> runtime_;
    std::uint64_t next_tag_;
    std::uint32_t rank_;
};

class Listener {
public:
    Listener(std::shared_ptr<ReceivingRuntime> receiving, Handle& handle);
    // Gives its receive up where no sender has come.
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    // nullptr: the sender is not there yet.
    std::unique_ptr<Receiver> accept();

private:
    std::shared_ptr<Runtime> runtime_;
    std::uint32_t connection_;
    OperationPtr hello_;
};

// The devices of a process and the runtimes that are open. Any thread may call it.
class Network {
public:
    // Throws Failure: a variable DLCP_* has a bad value, or no interface can be used.
    Network();

    const std::vector<Device>& devices() const { return devices_; }
    const Device& device(int index) const;
    std::unique_ptr<Listener> listen(int device, Handle& handle);
    // nullptr: the receiver has not answered yet. Throws Failure: it has not for connect_timeout.
    std::unique_ptr<Sender> connect(int device, Handle& handle);

private:
    RuntimeOptions options_of(int device) const;
    std::shared_ptr<Runtime> runtime_toward(int device, const Handle& handle);

    RuntimeOptions options_;
    std::vector<Device> devices_;
    std::mutex mutex_;                                                 // guards all below
    std::vector<std::weak_ptr<ReceivingRuntime>> receiving_;           // by device
    std::unordered_map<std::string, std::weak_ptr<Runtime>> sending_;  // by address and key of the receiving one
};

}  // namespace dlcp::nccl
