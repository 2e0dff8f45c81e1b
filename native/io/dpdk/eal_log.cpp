// Takes the log and the standard streams over while DPDK starts, and keeps the last lines.
#include "io/dpdk/eal_log.hpp"

#include <rte_log.h>
#include <unistd.h>

#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

namespace dlcp::dpdk {
namespace {

constexpr std::size_t lines_max = 256;
constexpr std::size_t line_bytes_max = 512;

struct Line {
    std::uint32_t level;
    std::string text;
};

// Never destroyed: DPDK's threads log until the process ends.
struct Kept {
    std::mutex mutex;
    std::deque<Line> lines;
    std::uint64_t written = 0;  // lines ever; lines.back() is the last of them
    std::string partial;
    bool echo = false;
};

Kept& kept() {
    static Kept* const instance = new Kept;
    return *instance;
}

// Lines that look like errors and are none.
bool is_noise(std::string_view line) {
    // rte_eal_init prints to stderr what it also logs, without "FATAL".
    if (line.starts_with("EAL: FATAL: ")) return true;
    // net_memif and net_tap offer their ports to secondary processes, which --no-shconf and --in-memory rule out.
    return line.find("Failed to register mp action callback") != std::string_view::npos ||
           line.find("Failed to register IPC callback") != std::string_view::npos;
}

void append(Kept& log, std::uint32_t level, std::string_view text) {
    const std::lock_guard lock(log.mutex);
    log.partial += text;
    for (std::size_t end = log.partial.find('\n'); end != std::string::npos; end = log.partial.find('\n')) {
        std::string line = log.partial.substr(0, std::min(end, line_bytes_max));
        log.partial.erase(0, end + 1);
        if (line.empty() || is_noise(line)) continue;
        // A line that is repeated keeps one place.
        const bool is_repeated = !log.lines.empty() && log.lines.back().text == line;
        if (is_repeated) log.lines.pop_back();
        if (log.lines.size() == lines_max) log.lines.pop_front();
        log.lines.push_back({level, std::move(line)});
        ++log.written;
    }
    if (log.partial.size() > line_bytes_max) log.partial.clear();
}

ssize_t write_log(void*, const char* text, std::size_t bytes) {
    Kept& log = kept();
    const auto level = static_cast<std::uint32_t>(rte_log_cur_msg_loglevel());
    if (log.echo) std::fwrite(text, 1, bytes, stderr);
    if (log.echo || level <= RTE_LOG_NOTICE) append(log, level, {text, bytes});
    return static_cast<ssize_t>(bytes);
}

}  // namespace

void keep_log(bool echo) {
    kept().echo = echo;
    static FILE* const stream =
        fopencookie(nullptr, "w", {.read = nullptr, .write = write_log, .seek = nullptr, .close = nullptr});
    if (stream != nullptr) rte_openlog_stream(stream);
}

std::string kept_log() {
    Kept& log = kept();
    const std::lock_guard lock(log.mutex);
    std::string text;
    for (const Line& line : log.lines) text += line.text + "\n";
    return text;
}

std::uint64_t log_mark() {
    Kept& log = kept();
    const std::lock_guard lock(log.mutex);
    return log.written;
}

std::string last_complaints(std::uint64_t since, std::size_t lines) {
    Kept& log = kept();
    const std::lock_guard lock(log.mutex);
    std::deque<std::string_view> last;
    std::uint64_t number = log.written;
    for (auto line = log.lines.rbegin(); line != log.lines.rend() && number > since && last.size() < lines;
         ++line) {
        --number;
        if (line->level <= RTE_LOG_WARNING) last.push_front(line->text);
    }
    std::string text;
    for (const std::string_view line : last) text += (text.empty() ? "" : "; ") + std::string(line);
    return text;
}

std::vector<std::string> logged_errors() {
    Kept& log = kept();
    const std::lock_guard lock(log.mutex);
    std::vector<std::string> errors;
    for (const Line& line : log.lines)
        if (line.level <= RTE_LOG_ERR) errors.push_back(line.text);
    return errors;
}

std::string find_in_log(std::uint64_t since, const std::string& part) {
    Kept& log = kept();
    const std::lock_guard lock(log.mutex);
    std::uint64_t number = log.written;
    for (auto line = log.lines.rbegin(); line != log.lines.rend() && number > since; ++line) {
        --number;
        if (line->text.find(part) != std::string::npos) return line->text;
    }
    return {};
}

// glibc lets a program set `stdout` and `stderr` like other variables (its manual, 12.2 "Standard Streams"). The streams
// put in their place are unbuffered, so that each write comes on the thread that prints.
struct PrintCapture::Stream {
    FILE** variable;
    FILE* usual;
    FILE* ours;
    std::thread::id captured;

    explicit Stream(FILE** variable_in)
        : variable(variable_in), usual(*variable_in), captured(std::this_thread::get_id()) {
        ours = fopencookie(this, "w", {.read = nullptr, .write = write, .seek = nullptr, .close = nullptr});
        if (ours == nullptr) return;
        std::setvbuf(ours, nullptr, _IONBF, 0);
        *variable = ours;
    }

    void end() {
        if (ours != nullptr) *variable = usual;
    }

    static ssize_t write(void* cookie, const char* text, std::size_t bytes) {
        const auto* stream = static_cast<const Stream*>(cookie);
        if (std::this_thread::get_id() != stream->captured || kept().echo) {
            std::fwrite(text, 1, bytes, stream->usual);
        } else if (stream->variable == &stderr) {
            append(kept(), RTE_LOG_ERR, {text, bytes});
        }
        return static_cast<ssize_t>(bytes);
    }
};

PrintCapture::PrintCapture() {
    // Kept for the process's life: another thread may have read the variable just before it was set back.
    static std::deque<std::unique_ptr<Stream>>* const streams = new std::deque<std::unique_ptr<Stream>>;
    out_ = streams->emplace_back(std::make_unique<Stream>(&stdout)).get();
    err_ = streams->emplace_back(std::make_unique<Stream>(&stderr)).get();
}

PrintCapture::~PrintCapture() {
    out_->end();
    err_->end();
}

}  // namespace dlcp::dpdk
