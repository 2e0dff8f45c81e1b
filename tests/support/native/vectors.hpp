// Reads golden vectors: see tests/vectors/README.md for the format.
//
// The folder is $DLCP_VECTORS, or tests/vectors of the source tree this was built from (source_folder.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "support/native/source_folder.hpp"

namespace dlcp::vectors {

// Each key's values, in order.
class Record {
public:
    void add(const std::string& key, std::string value) { values_[key].push_back(std::move(value)); }
    bool has(const std::string& key) const { return values_.count(key) != 0; }
    std::vector<std::string> all(const std::string& key) const {
        return has(key) ? values_.at(key) : std::vector<std::string>{};
    }
    const std::string& text(const std::string& key) const {
        if (!has(key)) throw std::runtime_error("vector without " + key);
        return values_.at(key).front();
    }
    std::uint64_t number(const std::string& key) const { return std::stoull(text(key)); }
    std::vector<std::uint8_t> bytes(const std::string& key) const {
        const std::string& hex = text(key);
        std::vector<std::uint8_t> out;
        for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
            out.push_back(static_cast<std::uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
        }
        return out;
    }
    bool empty() const { return values_.empty(); }

private:
    std::map<std::string, std::vector<std::string>> values_;
};

inline std::vector<Record> load(const std::string& file) {
    const char* folder = std::getenv("DLCP_VECTORS");
    const std::string path =
        (folder != nullptr ? std::string(folder) : test::source_folder() + "/tests/vectors") + "/" + file;
    std::ifstream in(path);
    if (!in) throw std::runtime_error("no golden vectors at " + path + "; set DLCP_VECTORS");

    constexpr std::string_view between = " | ", indent = "  ";
    std::vector<Record> records;
    std::string line;
    while (std::getline(in, line)) {
        if (line.empty() || line.front() == '#') continue;
        std::size_t begin = 0;
        if (line.starts_with(indent))
            begin = indent.size();
        else
            records.emplace_back();
        while (begin < line.size()) {
            const std::size_t end = std::min(line.find(between, begin), line.size());
            const std::string field = line.substr(begin, end - begin);
            const std::size_t colon = field.find(':');
            if (colon == std::string::npos) throw std::runtime_error(path + ": no colon in: " + field);
            const std::size_t start = field.find_first_not_of(' ', colon + 1);
            records.back().add(field.substr(0, colon), start == std::string::npos ? "" : field.substr(start));
            begin = end + between.size();
        }
    }
    return records;
}

inline std::string hex(const std::uint8_t* p, std::size_t n) {
    constexpr char digits[] = "0123456789abcdef";
    std::string out;
    for (std::size_t i = 0; i < n; ++i) {
        out += digits[p[i] >> 4];
        out += digits[p[i] & 15];
    }
    return out;
}

}  // namespace dlcp::vectors
