// The table of functions through which NCCL drives a network, version 8, as NCCL publishes it (plugins/net of its
// sources). NCCL asks a plug-in for the newest version that both have; 2.20 was the first to know this one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dlcp::nccl {

enum class Result : int {
    success = 0,
    system_error = 2,    // the system or the network failed
    internal_error = 3,  // NCCL did what it may not
    invalid_usage = 5,   // a setting, or sizes that do not match
    remote_error = 6,    // the peer is gone
};

inline constexpr int log_warning = 2;
inline constexpr int log_info = 3;
inline constexpr unsigned long log_network = 16;
inline constexpr unsigned long log_all = ~0UL;
using Logger = void (*)(int level, unsigned long subsystems, const char* file, int line, const char* format, ...);

inline constexpr std::size_t handle_bytes = 128;
inline constexpr int pointers_host = 1;

struct Properties {
    char* name;
    char* pci_path;  // nullptr: virtual
    std::uint64_t guid;
    int pointers;
    int registration_is_global;
    int speed_mbps;
    int port;
    float latency_us;
    int max_connections;
    int max_grouped_receives;
    int device_type;  // 0: the host moves the bytes
    int device_version;
};

struct Table {
    const char* name;
    Result (*init)(Logger logger);
    Result (*devices)(int* count);
    Result (*get_properties)(int device, Properties* properties);
    Result (*listen)(int device, void* handle, void** listener);
    Result (*connect)(int device, void* handle, void** sender, void** offload);
    Result (*accept)(void* listener, void** receiver, void** offload);
    Result (*register_memory)(void* connection, void* data, std::size_t bytes, int type, void** registration);
    Result (*register_dma_buffer)(void* connection, void* data, std::size_t bytes, int type, std::uint64_t offset,
                                  int descriptor, void** registration);
    Result (*deregister_memory)(void* connection, void* registration);
    Result (*send)(void* sender, void* data, int bytes, int tag, void* registration, void** request);
    Result (*receive)(void* receiver, int count, void** data, int* bytes, int* tags, void** registrations,
                      void** request);
    Result (*flush)(void* receiver, int count, void** data, int* bytes, void** registrations, void** request);
    Result (*test)(void* request, int* done, int* bytes);
    Result (*close_sender)(void* sender);
    Result (*close_receiver)(void* receiver);
    Result (*close_listener)(void* listener);
    Result (*get_device_registration)(void* connection, void* registration, void** device_registration);
    Result (*receive_consumed)(void* receiver, int count, void* request);
};

}  // namespace dlcp::nccl
