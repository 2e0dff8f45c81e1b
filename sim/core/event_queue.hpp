// The queue of events: a timing wheel for the near future, a radix heap for events beyond it.
//
// An event is a 32-bit code; its time is kept with whatever it stands for, and asked for when its bucket comes up. The
// wheel's buckets are some hundred picoseconds wide and hold chains of small chunks, so that filing an event writes to
// memory that was used a moment ago, and emptying a bucket starts all its cache misses at once; a bucket is sorted when it
// comes up (C. R. Brown's calendar queues with the sorting put off). Radix heap: Ahuja, Mehlhorn, Orlin, Tarjan 1990.
//
// Invariant: events come out in order of time, those of one moment as `before` says, whatever the order they went in and
// whatever the sizes of the wheel. With `heap_only` there is no wheel at all: slow, for tests of this claim.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace dlcp::sim {

// A heap whose keys never fall below the last one popped.
class RadixHeap {
public:
    struct Entry {
        std::int64_t key;
        std::uint32_t value;
    };
    bool empty() const { return size_ == 0; }
    std::size_t size() const { return size_; }
    void push(std::int64_t key, std::uint32_t value) {
        buckets_[bucket_of(key)].push_back({key, value});
        ++size_;
    }
    // Not when empty. Leaves everything where it is: keys between the last one popped and this one may still come.
    std::int64_t least() const {
        if (!buckets_[0].empty()) return last_;
        std::size_t i = 1;
        while (buckets_[i].empty()) ++i;
        std::int64_t least = buckets_[i][0].key;
        for (const Entry& entry : buckets_[i]) least = std::min(least, entry.key);
        return least;
    }
    Entry pop() {
        settle();
        const Entry entry = buckets_[0].back();
        buckets_[0].pop_back();
        --size_;
        return entry;
    }

private:
    std::size_t bucket_of(std::int64_t key) const {
        const std::uint64_t differ = static_cast<std::uint64_t>(key) ^ static_cast<std::uint64_t>(last_);
        return static_cast<std::size_t>(64 - std::countl_zero(differ));
    }
    void settle() {
        if (!buckets_[0].empty()) return;
        std::size_t i = 1;
        while (buckets_[i].empty()) ++i;
        last_ = least();
        for (const Entry& entry : buckets_[i]) buckets_[bucket_of(entry.key)].push_back(entry);
        buckets_[i].clear();
    }

    std::vector<Entry> buckets_[65];
    std::int64_t last_ = 0;
    std::size_t size_ = 0;
};

// `Clock` offers tie_of(code, at_ps), 22 bits that order events of one moment; before(a, b), which decides when these
// are equal too; and for a bucket that comes up: prefetch(code), called for all of it before anything else is asked;
// then for each look(code, tie), which returns the time, sets tie_of, and may prefetch what handling touches; and then
// looked().
template <class Clock>
class EventQueue {
public:
    // Buckets of 2^width_log2 picoseconds. `buckets_log2` 0: no wheel, everything goes through the heap.
    EventQueue(unsigned width_log2, unsigned buckets_log2) : width_(width_log2) {
        const std::size_t buckets = buckets_log2 == 0 ? 0 : std::size_t{1} << buckets_log2;
        heads_.assign(buckets, nothing);
        occupied_.assign(buckets / 64, 0);
        buckets_ = static_cast<std::int64_t>(buckets);
    }

    bool empty() const { return size() == 0; }
    // Worked out when asked: pushing and popping need not keep count.
    std::size_t size() const { return filed_ + far_.size() + ready_.size() - taken_; }

    // `at_ps` is at least the time of the last event popped.
    void push(Clock& clock, std::int64_t at_ps, std::uint32_t code) {
        const std::int64_t bucket = at_ps >> width_;
        if (bucket > current_ && bucket - current_ < buckets_) [[likely]]
            file(bucket, code);
        else if (bucket <= current_)
            insert(clock, at_ps, code);
        else
            put_far(at_ps, code);
    }

    // The next event before `limit_ps`; false if there is none.
    bool pop(Clock& clock, std::int64_t limit_ps, std::int64_t& at_ps, std::uint32_t& code) {
        while (taken_ == ready_.size()) {
            ready_.clear();
            taken_ = 0;
            if (size() == 0 || !open_next(clock, limit_ps)) return false;
        }
        at_ps = time_at(taken_);
        if (at_ps >= limit_ps) return false;
        code = ready_[taken_].code;
        ++taken_;
        return true;
    }

    // No event comes earlier than this; INT64_MAX if there is none.
    std::int64_t next_ps() {
        if (taken_ < ready_.size()) return time_at(taken_);
        if (size() == 0) return INT64_MAX;
        const std::int64_t bucket = next_bucket();
        return bucket == INT64_MAX ? far_least_ : bucket << width_;
    }

private:
    static constexpr std::uint32_t nothing = UINT32_MAX;
    static constexpr std::uint32_t chunk_codes = 6;
    static constexpr unsigned tie_bits = 22;
    static constexpr unsigned digit_bits = 11;
    static constexpr std::uint64_t digit_mask = (1u << digit_bits) - 1;
    struct Chunk {
        std::uint32_t next;
        std::uint32_t count;
        std::uint32_t codes[chunk_codes];
    };
    // An event of the open bucket. `key`: time within the bucket, then tie_of, so that one comparison does for both.
    // Synchronous senders put thousands of events at one moment, so there is a sort by digits for these.
    struct Ready {
        std::int64_t key;
        std::uint32_t code;
    };

    // A row of them: what a vector is, without clearing what is written anyway.
    class Row {
    public:
        std::size_t size() const { return size_; }
        Ready* data() { return memory_.get(); }
        Ready& operator[](std::size_t i) { return memory_[i]; }
        const Ready& operator[](std::size_t i) const { return memory_[i]; }
        Ready* begin() { return data(); }
        Ready* end() { return data() + size_; }
        void clear() { size_ = 0; }
        // Room for `more`, so that `append` need not look.
        void make_room(std::size_t more) {
            if (size_ + more > capacity_) grow(size_ + more);
        }
        void append(const Ready& entry) { memory_[size_++] = entry; }
        void resize(std::size_t size) {
            if (size > capacity_) grow(size);
            size_ = size;
        }
        void swap(Row& other) {
            memory_.swap(other.memory_);
            std::swap(size_, other.size_);
            std::swap(capacity_, other.capacity_);
        }

    private:
        void grow(std::size_t least) {
            const std::size_t capacity = std::max(least, 2 * capacity_);
            std::unique_ptr<Ready[]> memory(new Ready[capacity]);
            std::copy_n(memory_.get(), size_, memory.get());
            memory_ = std::move(memory);
            capacity_ = capacity;
        }

        std::unique_ptr<Ready[]> memory_;
        std::size_t size_ = 0;
        std::size_t capacity_ = 0;
    };

    std::int64_t time_at(std::size_t i) const { return (ready_[i].key >> tie_bits) + open_ps_; }
    std::int64_t key(std::int64_t at_ps, std::uint32_t tie) const {
        return (at_ps - open_ps_) * (std::int64_t{1} << tie_bits) + tie;
    }
    static bool later(Clock& clock, const Ready& a, const Ready& b) {
        return a.key > b.key || (a.key == b.key && clock.before(b.code, a.code));
    }

    // Not inline, as all that is rare: filing, which nearly every event takes, then needs no register saved.
    [[gnu::noinline]] void put_far(std::int64_t at_ps, std::uint32_t code) {
        far_.push(at_ps, code);
        far_least_ = std::min(far_least_, at_ps);
    }
    [[gnu::noinline]] void add_chunk() {
        free_ = static_cast<std::uint32_t>(chunks_.size());
        chunks_.emplace_back();
        chunks_.back().next = nothing;
    }

    void file(std::int64_t bucket, std::uint32_t code) {
        const std::size_t i = static_cast<std::size_t>(bucket & (buckets_ - 1));
        std::uint32_t chunk = heads_[i];
        if (chunk == nothing || chunks_[chunk].count == chunk_codes) {
            const std::uint32_t next = chunk;
            if (free_ == nothing) add_chunk();
            chunk = free_;
            free_ = chunks_[chunk].next;
            chunks_[chunk].next = next;
            chunks_[chunk].count = 0;
            heads_[i] = chunk;
            occupied_[i / 64] |= std::uint64_t{1} << (i % 64);
        }
        Chunk& c = chunks_[chunk];
        c.codes[c.count++] = code;
        ++filed_;
    }

    // Into the bucket that is open.
    [[gnu::noinline]] void insert(Clock& clock, std::int64_t at_ps, std::uint32_t code) {
        const Ready entry{key(at_ps, clock.tie_of(code, at_ps)), code};
        std::size_t i = ready_.size();
        ready_.make_room(1);
        ready_.append(entry);
        while (i > taken_ && later(clock, ready_[i - 1], entry)) {
            ready_[i] = ready_[i - 1];
            --i;
        }
        ready_[i] = entry;
    }

    // The first bucket after the open one that holds something; INT64_MAX: the wheel is empty.
    std::int64_t next_bucket() const {
        if (filed_ == 0) return INT64_MAX;
        const std::size_t mask = heads_.size() - 1;
        const std::size_t start = static_cast<std::size_t>(current_ + 1) & mask;
        std::size_t word = start / 64;
        std::uint64_t bits = occupied_[word] & (~std::uint64_t{0} << (start % 64));
        while (bits == 0) {
            word = (word + 1) & (occupied_.size() - 1);
            bits = occupied_[word];
        }
        const std::size_t found = word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
        return current_ + 1 + static_cast<std::int64_t>((found - start) & mask);
    }

    bool open_next(Clock& clock, std::int64_t limit_ps) {
        std::int64_t bucket = next_bucket();
        if (bucket == INT64_MAX) bucket = far_least_ >> width_;
        if (bucket << width_ >= limit_ps) return false;
        current_ = bucket;
        open_ps_ = bucket << width_;
        // What has come within reach moves to the wheel; what belongs to this bucket goes straight in.
        while (!far_.empty() && (far_least_ >> width_) - current_ < std::max<std::int64_t>(buckets_, 1)) {
            const RadixHeap::Entry entry = far_.pop();
            far_least_ = far_.empty() ? INT64_MAX : far_.least();
            const std::int64_t b = entry.key >> width_;
            if (b == current_) {
                ready_.make_room(1);
                ready_.append({key(entry.key, clock.tie_of(entry.value, entry.key)), entry.value});
            } else
                file(b, entry.value);
        }
        if (heads_.empty()) return sort_ready(clock);
        const std::size_t i = static_cast<std::size_t>(bucket & (buckets_ - 1));
        const std::size_t from = ready_.size();
        for (std::uint32_t chunk = heads_[i]; chunk != nothing;) {
            Chunk& c = chunks_[chunk];
            ready_.make_room(chunk_codes);
            for (std::uint32_t k = 0; k < c.count; ++k) {
                clock.prefetch(c.codes[k]);
                ready_.append({0, c.codes[k]});
            }
            filed_ -= c.count;
            const std::uint32_t next = c.next;
            c.next = free_;
            free_ = chunk;
            chunk = next;
        }
        heads_[i] = nothing;
        occupied_[i / 64] &= ~(std::uint64_t{1} << (i % 64));
        for (Ready *entry = ready_.data() + from, *end = ready_.data() + ready_.size(); entry != end; ++entry) {
            std::uint32_t tie = 0;
            const std::int64_t at_ps = clock.look(entry->code, tie);
            entry->key = key(at_ps, tie);
        }
        clock.looked();
        return sort_ready(clock);
    }
    bool sort_ready(Clock& clock) {
        if (ready_.size() > 128) sort_by_digits();
        // What is left of a sort by digits are events of equal keys.
        Ready* const first = ready_.data();
        for (Ready *i = first + 1, *end = first + ready_.size(); i < end; ++i) {
            if (i[-1].key < i->key) continue;
            const Ready entry = *i;
            Ready* j = i;
            while (j > first && later(clock, j[-1], entry)) {
                *j = j[-1];
                --j;
            }
            *j = entry;
        }
        return true;
    }
    // By keys alone, which are not negative in a bucket that has just been opened.
    void sort_by_digits() {
        std::uint64_t differ = 0;
        for (const Ready& entry : ready_) differ |= static_cast<std::uint64_t>(entry.key ^ ready_[0].key);
        spare_.resize(ready_.size());
        for (unsigned shift = 0; differ >> shift != 0; shift += digit_bits) {
            if ((differ >> shift & digit_mask) == 0) continue;
            std::uint32_t places[digit_mask + 1] = {};
            for (const Ready& entry : ready_) ++places[entry.key >> shift & digit_mask];
            std::uint32_t sum = 0;
            for (std::uint32_t& place : places) {
                const std::uint32_t count = place;
                place = sum;
                sum += count;
            }
            for (const Ready& entry : ready_) spare_[places[entry.key >> shift & digit_mask]++] = entry;
            ready_.swap(spare_);
        }
    }

    unsigned width_;
    std::int64_t buckets_ = 0;
    std::int64_t current_ = -1;  // the bucket that is open; those before are past
    std::int64_t open_ps_ = 0;   // when it begins
    std::vector<std::uint32_t> heads_;
    std::vector<std::uint64_t> occupied_;
    std::vector<Chunk> chunks_;
    std::uint32_t free_ = nothing;
    std::size_t filed_ = 0;
    Row ready_;
    Row spare_;
    std::size_t taken_ = 0;
    RadixHeap far_;
    std::int64_t far_least_ = INT64_MAX;
};

}  // namespace dlcp::sim
