// Reads the data in pieces, keeps the candidates, and finds the k largest of them. What depends on the
// processor is in select_kernels.hpp.
#include "collective/select.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "collective/kernels.hpp"

namespace dlcp {
namespace {

constexpr std::uint32_t nan_key = 0x7f800001;    // of every NaN, whatever its bits
constexpr std::uint32_t no_key = 0x80000000;     // above all keys
constexpr std::size_t piece_elements = 8192;     // read between two looks at the bound: 32 KiB
constexpr std::size_t few_candidates = 1 << 16;  // more room than this is made only for large k
constexpr std::size_t sample_elements = 16;      // in a row: a cache line
constexpr std::size_t sample_period = 64 * sample_elements;
constexpr std::size_t sample_periods_max = 8192;            // longer data has longer periods
constexpr std::size_t sampled_from = std::size_t{1} << 18;  // shorter data is not worth a sample

// --- histograms of keys --------------------------------------------------------------------------------------

constexpr unsigned key_bits = 31;

// Bits `begin` up to `end` of keys.
struct Level {
    unsigned begin = 0;
    unsigned end = 0;
};

// Counts keys by at most 12 bits of them. Each bin has four counters that take turns, because a processor waits
// when it adds twice in a row to the same place.
class Histogram {
public:
    static constexpr unsigned bits = 12;
    static constexpr std::size_t bins = 1 << bits;

    Histogram() : counters_(turns * bins) {}

    // By their first bits.
    void add(const std::uint32_t* keys, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) ++at(keys[i] >> (key_bits - bits), i);
    }
    // By the bits of a level, those that have the bits of `prefix` above it.
    void add_within(const std::uint32_t* keys, std::size_t count, Level level, std::uint32_t prefix) {
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint32_t key = std::min(keys[i], nan_key);
            const bool within = key >> level.end == prefix >> level.end;
            at(key % (1u << level.end) >> level.begin, i) += static_cast<std::uint32_t>(within);
        }
    }
    std::size_t in(std::size_t bin) const {
        std::size_t sum = 0;
        for (std::size_t turn = 0; turn < turns; ++turn) sum += counters_[bin * turns + turn];
        return sum;
    }
    void clear() { std::fill(counters_.begin(), counters_.end(), 0); }

private:
    static constexpr std::size_t turns = 4;
    std::uint32_t& at(std::uint32_t bin, std::size_t i) { return counters_[bin * turns + i % turns]; }

    std::vector<std::uint32_t> counters_;
};

// The k-th largest key, and how many elements with exactly this key are among the k largest.
struct Threshold {
    std::uint32_t key = 0;
    std::size_t ties = 0;
};

// 0 < k <= count.
Threshold find_threshold(Histogram& histogram, const std::uint32_t* keys, std::size_t count, std::size_t k) {
    Threshold found{.ties = k};
    for (const Level level : {Level{19, 31}, Level{7, 19}, Level{0, 7}}) {
        histogram.clear();
        histogram.add_within(keys, count, level, found.key);
        std::uint32_t bin = (1u << (level.end - level.begin)) - 1;
        for (std::size_t in = histogram.in(bin); in < found.ties; in = histogram.in(--bin)) found.ties -= in;
        found.key |= bin << level.begin;
    }
    return found;
}

// --- the candidates ------------------------------------------------------------------------------------------

// Elements that may be among the k largest of what was read, by ascending index.
//
// Invariant: an element that was read and is no candidate comes after k candidates in the order of select.hpp;
// or its key is less than the bound that read() began with.
class Candidates {
public:
    Candidates(std::size_t count, std::size_t k, const SelectKernels& kernels)
        : kernels_(kernels),
          k_(k),
          room_(std::min(3 * k + 2 * few_candidates, count + piece_elements)),
          keys_(std::make_unique_for_overwrite<std::uint32_t[]>(room_ + select_slack)),
          indices_(std::make_unique_for_overwrite<std::uint32_t[]>(room_ + select_slack)) {}

    // Reads all data, from the bound `low` on. False: fewer than k elements reach it.
    bool read(const void* data, std::size_t count, std::uint32_t low) {
        low_ = low;
        bin_ = low >> bin_shift;
        counted_.clear();
        reached_ = 0;
        count_ = 0;
        for (std::size_t begin = 0; begin < count; begin += piece_elements) {
            if (room_ - count_ < piece_elements) shrink();
            const std::size_t elements = std::min(piece_elements, count - begin);
            const std::size_t added =
                kernels_.collect(static_cast<const char*>(data) + begin * sizeof(float), elements, low_,
                                 static_cast<std::uint32_t>(begin), keys_.get() + count_, indices_.get() + count_);
            counted_.add(keys_.get() + count_, added);
            count_ += added;
            reached_ += added;
            raise_bound();
        }
        return count_ >= k_;
    }

    // The k largest, ascending. After read() was true.
    void write(std::int64_t* out) {
        drop_low_bins();
        select([&](std::size_t at, std::uint32_t, std::uint32_t index) { out[at] = index; });
    }

private:
    static constexpr unsigned bin_shift = key_bits - Histogram::bits;   // 16 bins to a power of two
    static constexpr std::uint32_t bin_max = 0x7f800000u >> bin_shift;  // of infinity and NaN

    void raise_bound() {
        for (; bin_ < bin_max; ++bin_) {
            const std::size_t in = counted_.in(bin_);
            if (reached_ - in < k_) break;
            reached_ -= in;
        }
        low_ = std::max(low_, bin_ << bin_shift);
    }

    // By the bin and not by `low_`, which excludes what shrink() has kept.
    void drop_low_bins() { count_ = kernels_.keep(keys_.get(), indices_.get(), count_, bin_ << bin_shift); }

    // Makes room for a piece. When the bound alone does not free half of the spare room, as with many equal
    // keys, only the k largest stay: from then on an element with the k-th largest key comes after them.
    void shrink() {
        drop_low_bins();
        if (count_ <= k_ + (room_ - k_) / 2) return;
        const Threshold threshold = select([&](std::size_t at, std::uint32_t key, std::uint32_t index) {
            keys_[at] = key;
            indices_[at] = index;
        });
        count_ = k_;
        low_ = threshold.key == nan_key ? no_key : threshold.key + 1;
    }

    // Calls `put` with place, key and index of candidates; the last call for a place is of one of the k
    // largest.
    template <class Put>
    Threshold select(const Put& put) {
        const Threshold threshold = find_threshold(scratch_, keys_.get(), count_, k_);
        std::size_t at = 0;
        std::size_t ties = threshold.ties;
        for (std::size_t i = 0; i < count_ && at < k_; ++i) {
            const std::uint32_t key = std::min(keys_[i], nan_key);
            const bool tie = key == threshold.key && ties != 0;
            put(at, keys_[i], indices_[i]);
            at += static_cast<std::size_t>(key > threshold.key || tie);
            ties -= static_cast<std::size_t>(tie);
        }
        return threshold;
    }

    const SelectKernels& kernels_;
    const std::size_t k_;
    const std::size_t room_;
    std::unique_ptr<std::uint32_t[]> keys_;
    std::unique_ptr<std::uint32_t[]> indices_;
    std::size_t count_ = 0;
    std::uint32_t low_ = 0;    // an element that is read with a key below is no candidate; grows
    std::uint32_t bin_ = 0;    // the bin that k of the elements read so far reach; grows
    std::size_t reached_ = 0;  // elements counted in this bin and above
    Histogram counted_;        // of all that have been candidates
    Histogram scratch_;
};

// --- the guess -----------------------------------------------------------------------------------------------

// Where in its period a sample lies: by a fixed rule, but without a period that data could have too.
std::size_t sample_offset(std::size_t number, std::size_t period) {
    constexpr std::uint64_t golden = 0x9e3779b97f4a7c15;
    const std::uint64_t word = (number + 1) * golden;
    return static_cast<std::size_t>((word ^ word >> 29) * golden >> 32) % (period - sample_elements + 1);
}

// A key that probably somewhat more than k elements reach; 0 if the sample is too small for one.
std::uint32_t guess_bound(const void* data, std::size_t count, std::size_t k) {
    const std::size_t period = std::max(sample_period, count / sample_periods_max);
    const std::size_t sampled = count / period * sample_elements;
    const double expected = static_cast<double>(k) * static_cast<double>(sampled) / static_cast<double>(count);
    // Two standard deviations, each four times that of independent elements: neighbours resemble each other.
    const auto wanted = static_cast<std::size_t>(expected + 8 * std::sqrt(expected) + 32);
    if (wanted >= sampled) return 0;
    const auto sample = std::make_unique_for_overwrite<std::uint32_t[]>(sampled);
    const auto* bytes = static_cast<const char*>(data);
    for (std::size_t i = 0; i < sampled; i += sample_elements) {
        const std::size_t number = i / sample_elements;
        std::memcpy(sample.get() + i, bytes + (number * period + sample_offset(number, period)) * sizeof(float),
                    sample_elements * sizeof(float));
    }
    for (std::size_t i = 0; i < sampled; ++i) sample[i] &= magnitude_bits;
    Histogram histogram;
    return find_threshold(histogram, sample.get(), sampled, wanted).key;
}

}  // namespace

void select_largest(const void* data, std::size_t count, std::size_t k, std::int64_t* out, SelectMethod method,
                    Variant variant) {
    assert(k <= count && count <= select_count_max);
    if (k == 0) return;
    if (k == count) {
        for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::int64_t>(i);
        return;
    }
    Candidates candidates(count, k, kernels_of(variant).select);
    const bool sampled = method == SelectMethod::sampled && count >= sampled_from;
    const std::uint32_t guess = sampled ? guess_bound(data, count, k) : 0;
    if (!candidates.read(data, count, guess)) {
        const bool enough = candidates.read(data, count, 0);
        assert(enough);
    }
    candidates.write(out);
}

std::size_t count_reaching(const void* data, std::size_t count, float threshold, Variant variant) {
    const std::uint32_t low = std::isnan(threshold) ? no_key
                              : threshold > 0       ? std::bit_cast<std::uint32_t>(threshold)
                                                    : 0;
    return kernels_of(variant).select.count(data, count, low);
}

}  // namespace dlcp
