// Units as types, so that mixing a time with a byte count does not compile.
//
// Invariant: every quantity in the engine is an integer (no floating-point clock), so that the same
// inputs give the same bytes on every machine. Deliberately small: only the operations that make sense
// for a unit exist; anything else is spelled out with `.value`.
#pragma once

#include <compare>
#include <cstdint>

namespace dlcp {

// A length of time in nanoseconds. May be negative (a difference of two points).
struct Duration {
    std::int64_t value = 0;

    friend constexpr auto operator<=>(Duration, Duration) = default;
    friend constexpr Duration operator+(Duration a, Duration b) { return {a.value + b.value}; }
    friend constexpr Duration operator-(Duration a, Duration b) { return {a.value - b.value}; }
    friend constexpr Duration operator*(Duration a, std::int64_t k) { return {a.value * k}; }
    friend constexpr Duration operator/(Duration a, std::int64_t k) { return {a.value / k}; }
    constexpr Duration& operator+=(Duration b) {
        value += b.value;
        return *this;
    }
};

// A point in time: nanoseconds since an origin that the driver chooses (a monotonic clock, virtual time).
struct Time {
    std::int64_t value = 0;

    friend constexpr auto operator<=>(Time, Time) = default;
    friend constexpr Time operator+(Time a, Duration b) { return {a.value + b.value}; }
    friend constexpr Time operator-(Time a, Duration b) { return {a.value - b.value}; }
    friend constexpr Duration operator-(Time a, Time b) { return {a.value - b.value}; }
};

// "Never": later than any deadline that can be reached.
inline constexpr Time time_never{INT64_MAX};

constexpr Duration nanoseconds(std::int64_t n) { return {n}; }
constexpr Duration microseconds(std::int64_t n) { return {n * 1'000}; }
constexpr Duration milliseconds(std::int64_t n) { return {n * 1'000'000}; }
constexpr Duration seconds(std::int64_t n) { return {n * 1'000'000'000}; }

// A number of bytes.
struct Bytes {
    std::uint64_t value = 0;

    friend constexpr auto operator<=>(Bytes, Bytes) = default;
    friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.value + b.value}; }
    friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.value - b.value}; }
    friend constexpr Bytes operator*(Bytes a, std::uint64_t k) { return {a.value * k}; }
    friend constexpr Bytes operator/(Bytes a, std::uint64_t k) { return {a.value / k}; }
    constexpr Bytes& operator+=(Bytes b) {
        value += b.value;
        return *this;
    }
    constexpr Bytes& operator-=(Bytes b) {
        value -= b.value;
        return *this;
    }
};

// A rate in bits per second.
struct Rate {
    std::uint64_t value_bps = 0;

    friend constexpr auto operator<=>(Rate, Rate) = default;
};

// a * b / c, rounded down, of 64 bits wherever these hold the product: a division of 128 costs a call. c is not 0.
constexpr std::uint64_t multiply_divide(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
    std::uint64_t product = 0;
    if (!__builtin_mul_overflow(a, b, &product)) return product / c;
    __extension__ using u128 = unsigned __int128;
    return static_cast<std::uint64_t>(u128{a} * b / c);
}

// How long `n` bytes take at `r`. A zero rate means "unlimited": no time at all.
constexpr Duration time_to_send(Bytes n, Rate r) {
    if (r.value_bps == 0) return {0};
    return {static_cast<std::int64_t>(multiply_divide(n.value, 8'000'000'000ULL, r.value_bps))};
}

// What `bytes` per `over` amounts to. `over` must be positive.
constexpr Rate rate_of(Bytes bytes, Duration over) {
    return {multiply_divide(bytes.value, 8'000'000'000ULL, static_cast<std::uint64_t>(over.value))};
}

}  // namespace dlcp
