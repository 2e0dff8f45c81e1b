// Frames of one port into a file: classic pcap with nanoseconds, as Wireshark and tcpdump read it (IETF draft
// draft-ietf-opsawg-pcap; magic a1b23c4d). Both directions, as a capture on the wire would have them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "softswitch/time.hpp"

namespace dlcp::softswitch {

class Capture {
public:
    // std::system_error if the file cannot be written.
    explicit Capture(const std::string& path);

    void write(std::span<const std::uint8_t> frame, Time wall);
    void flush() { std::fflush(file_.get()); }
    const std::string& path() const { return path_; }

private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };

    std::string path_;
    std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace dlcp::softswitch
