// The k elements of largest magnitude in a buffer of f32: exactly k of them, the same on every processor. And
// how many elements reach a threshold, by which selectors as published search.
//
// Order: magnitudes, so that -0 equals 0 and subnormal numbers count. NaN is above everything and all NaNs are
// equal; infinity comes next. Of equal magnitudes the least index is selected. The key of an element is its
// bits without the sign; keys are in the order of magnitudes.
//
// The data is read once. Elements whose key reaches a lower bound of the k-th largest one become candidates,
// and the k largest of them are found by three levels of histograms. The methods differ in where the bound
// comes from and agree in the result:
//
//   histogram  A histogram of the candidates so far, by exponent and four bits of the fraction, raises the
//              bound while the data is read: it is the lower end of the highest bin that k of them reach. In
//              random order about k ln(count / k) elements become candidates; in ascending order all do.
//   sampled    The bound starts at a guess from a sample, one element of 64 or fewer, and is seldom raised.
//              Ascending order costs no more than another. If fewer than k elements reach the guess, all is
//              done again without it.
//
// Scratch memory is 8 bytes for each of at most 3 k + 2^17 candidates (fewer for short data).
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/reduce.hpp"

namespace dlcp {

enum class SelectMethod : std::uint8_t { histogram, sampled };

inline constexpr std::size_t select_count_max = 0xffffffff;  // indices of candidates have 32 bits

// Writes the k indices to `out`, ascending. `data`: `count` f32 at any address; k <= count <= select_count_max;
// `variant` is one of available_variants().
void select_largest(const void* data, std::size_t count, std::size_t k, std::int64_t* out, SelectMethod method,
                    Variant variant);

// How many elements have at least this magnitude; NaN counts as infinite. No element reaches a threshold that
// is NaN; all reach 0 or less. `data` and `variant` as above.
std::size_t count_reaching(const void* data, std::size_t count, float threshold, Variant variant);

}  // namespace dlcp
