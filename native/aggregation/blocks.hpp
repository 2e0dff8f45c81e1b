// What a worker contributes, block by block, and what it does with results: gradients, a probe, a drain.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "aggregation/packet.hpp"
#include "aggregation/values.hpp"

namespace dlcp::aggregation {

// The blocks of one task. The worker asks for a block as often as it sends it, and hands over each result once.
class Blocks {
public:
    virtual ~Blocks() = default;
    virtual std::uint32_t count() const = 0;
    // The exponent that all workers' packets of this block carry.
    virtual std::uint8_t exponent(std::uint32_t block) const = 0;
    // This worker's values, `lanes` of them, in network order.
    virtual void write(std::uint32_t block, std::uint8_t* values) const = 0;
    // The sums. False: they are not what they have to be.
    virtual bool take(std::uint32_t block, const std::uint8_t* values) = 0;
};

// An all-reduce of float32 under agreed codes, one per block, in fields of `width` bits. `out` may not be `values`: they
// are needed until all blocks are done.
class FloatBlocks final : public Blocks {
public:
    FloatBlocks(std::span<const float> values, std::span<const std::uint8_t> codes, std::uint32_t width,
                std::uint32_t lanes, std::uint32_t ranks, float divisor, float* out)
        : values_(values),
          codes_(codes),
          width_(width),
          lanes_(lanes),
          bits_(value_bits(ranks, width)),
          divisor_(divisor),
          out_(out) {}

    std::uint32_t count() const override { return static_cast<std::uint32_t>(codes_.size()); }
    std::uint8_t exponent(std::uint32_t block) const override { return codes_[block]; }
    void write(std::uint32_t block, std::uint8_t* values) const override {
        quantise(part(block), codes_[block], bits_, width_, lanes_, values);
    }
    bool take(std::uint32_t block, const std::uint8_t* values) override {
        const std::span<float> sums(out_ + from(block), part(block).size());
        dequantise(values, codes_[block], bits_, width_, lanes_, divisor_, sums);
        return true;
    }

private:
    std::size_t from(std::uint32_t block) const { return std::size_t{block} * values_per_block(lanes_, width_); }
    std::span<const float> part(std::uint32_t block) const {
        const std::size_t most = values_per_block(lanes_, width_);
        return values_.subspan(from(block), std::min(most, values_.size() - from(block)));
    }

    std::span<const float> values_;
    std::span<const std::uint8_t> codes_;
    std::uint32_t width_, lanes_;
    int bits_;
    float divisor_;
    float* out_;
};

// One block for every slot of the job, of values that follow from a seed which only this run's ranks know. Sums that are
// right come from a switch that has the program, admits all workers, and holds nothing newer in any slot.
class ProbeBlocks final : public Blocks {
public:
    ProbeBlocks(std::uint64_t seed, std::uint32_t slots, std::uint32_t lanes, std::uint32_t ranks,
                std::uint32_t rank)
        : seed_(seed), slots_(slots), lanes_(lanes), ranks_(ranks), rank_(rank) {}

    std::uint32_t count() const override { return slots_; }
    std::uint8_t exponent(std::uint32_t) const override { return code_zero; }
    void write(std::uint32_t block, std::uint8_t* values) const override {
        for (std::uint32_t lane = 0; lane < lanes_; ++lane) write32(values + 4 * lane, value(block, lane, rank_));
    }
    bool take(std::uint32_t block, const std::uint8_t* values) override {
        for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
            std::uint32_t sum = 0;
            for (std::uint32_t rank = 0; rank < ranks_; ++rank) sum += value(block, lane, rank);
            if (sum != read32(values + 4 * lane)) return false;
        }
        return true;
    }

private:
    // SplitMix64 (Steele, Lea, Flood 2014), cut to 21 bits: 1024 of them stay below 2^31.
    std::uint32_t value(std::uint32_t block, std::uint32_t lane, std::uint32_t rank) const {
        std::uint64_t z = seed_ + 0x9e3779b97f4a7c15U * ((std::uint64_t{block} << 24 | lane << 11 | rank) + 1);
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
        z = (z ^ z >> 27) * 0x94d049bb133111ebU;
        return static_cast<std::uint32_t>((z ^ z >> 31) >> 43);
    }

    std::uint64_t seed_;
    std::uint32_t slots_, lanes_, ranks_, rank_;
};

// The blocks that a task which was given up may have left in slots: contributed once more by everyone, so that every
// slot is done. What their sums are is of no interest, their exponents have to be those of the task.
class DrainBlocks final : public Blocks {
public:
    DrainBlocks(std::span<const std::uint8_t> exponents, std::uint32_t lanes)
        : exponents_(exponents), lanes_(lanes) {}

    std::uint32_t count() const override { return static_cast<std::uint32_t>(exponents_.size()); }
    std::uint8_t exponent(std::uint32_t block) const override { return exponents_[block]; }
    void write(std::uint32_t, std::uint8_t* values) const override {
        std::fill_n(values, std::size_t{4} * lanes_, std::uint8_t{0});
    }
    bool take(std::uint32_t, const std::uint8_t*) override { return true; }

private:
    std::span<const std::uint8_t> exponents_;
    std::uint32_t lanes_;
};

}  // namespace dlcp::aggregation
