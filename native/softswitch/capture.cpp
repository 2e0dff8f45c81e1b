#include "softswitch/capture.hpp"

#include <cerrno>
#include <system_error>

namespace dlcp::softswitch {
namespace {

struct FileHeader {
    std::uint32_t magic = 0xa1b23c4d;
    std::uint16_t major = 2;
    std::uint16_t minor = 4;
    std::uint32_t reserved[2] = {};
    std::uint32_t snap_bytes = 262'144;  // Wireshark's largest
    std::uint32_t link_type = 1;         // Ethernet
};

struct RecordHeader {
    std::uint32_t seconds;
    std::uint32_t nanoseconds;
    std::uint32_t captured_bytes;
    std::uint32_t frame_bytes;
};

}  // namespace

Capture::Capture(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "wb")) {
    if (file_ == nullptr) throw std::system_error(errno, std::generic_category(), path);
    std::setvbuf(file_.get(), nullptr, _IOFBF, 1 << 20);
    const FileHeader header;
    std::fwrite(&header, sizeof header, 1, file_.get());
    flush();  // so that a reader sees a capture from the start
}

void Capture::write(std::span<const std::uint8_t> frame, Time wall) {
    const auto bytes = static_cast<std::uint32_t>(frame.size());
    const auto seconds = std::chrono::floor<std::chrono::seconds>(wall);
    const RecordHeader header{static_cast<std::uint32_t>(seconds.count()),
                              static_cast<std::uint32_t>((wall - seconds).count()), bytes, bytes};
    std::fwrite(&header, sizeof header, 1, file_.get());
    std::fwrite(frame.data(), 1, frame.size(), file_.get());
}

}  // namespace dlcp::softswitch
