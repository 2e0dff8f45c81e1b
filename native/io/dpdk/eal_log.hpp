// What DPDK's libraries say, kept: the last lines of their log, and what their start prints to standard output and
// error. Nothing of it reaches the terminal unless asked for. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dlcp::dpdk {

// Makes DPDK log to the ring of lines. `echo`: to standard error too, all levels; else notices and worse are kept.
// Before EAL starts; once.
void keep_log(bool echo);
std::string kept_log();
// How many lines there were so far: a mark for what follows.
std::uint64_t log_mark();
// The last lines of warnings and errors since a mark, joined with "; "; empty: none.
std::string last_complaints(std::uint64_t since, std::size_t lines);
// All lines of errors, as far as they are kept, oldest first: neither warnings nor information.
std::vector<std::string> logged_errors();
// The last line since a mark that contains `part`; empty: none.
std::string find_in_log(std::uint64_t since, const std::string& part);

// While it lives, what its thread prints through C's stdout and stderr goes to the log (stderr) or nowhere (stdout: the
// usage that EAL prints at a wrong argument). Other threads print as ever.
class PrintCapture {
public:
    PrintCapture();
    ~PrintCapture();
    PrintCapture(const PrintCapture&) = delete;
    PrintCapture& operator=(const PrintCapture&) = delete;

private:
    struct Stream;
    Stream* out_ = nullptr;
    Stream* err_ = nullptr;
};

}  // namespace dlcp::dpdk
