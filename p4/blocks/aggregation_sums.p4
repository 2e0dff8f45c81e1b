// The sums: one 32-bit register per slot and lane, and what a contribution does to them.
//
// After each action the packet's values are what the slot holds, so the packet that completes a slot is its result. A
// lane that leaves the range of 32 bits stays at the end it left by in that addition, and its bit in `saturated` says
// so for good. Arithmetic is on bit<32> alone, which every target has; a signed comparison flips the sign bit.
#ifndef AGGREGATION_SUMS_P4
#define AGGREGATION_SUMS_P4

control AggregationSums(inout headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(AGGREGATION_SLOTS * 32) sums;
    bit<32> old;
    bit<32> sum;
    bit<32> over;
    bit<32> cell;

    // The first contribution.
    action put() {
        cell = meta.slot.index << 5;
#define LANE(i) sums.write(cell + i, hdr.values.v##i);
#include "aggregation_lanes.p4"
#undef LANE
    }

    // Overflow: both operands have the sign that the sum has not. Then the sum of two positives is 2^31 − 1, of two
    // negatives −2^31.
    action add() {
        cell = meta.slot.index << 5;
#define LANE(i)                                                                                \
    sums.read(old, cell + i);                                                                  \
    sum = old + hdr.values.v##i;                                                               \
    over = ((old ^ sum) & (hdr.values.v##i ^ sum)) >> 31;                                      \
    hdr.values.v##i = over == 0 ? sum : 0x7fffffff + (old >> 31);                              \
    meta.slot.saturated = meta.slot.saturated | over << i;                                     \
    sums.write(cell + i, hdr.values.v##i);
#include "aggregation_lanes.p4"
#undef LANE
    }

    action maximum() {
        cell = meta.slot.index << 5;
#define LANE(i)                                                                                                \
    sums.read(old, cell + i);                                                                                  \
    hdr.values.v##i = (old ^ 0x80000000) > (hdr.values.v##i ^ 0x80000000) ? old : hdr.values.v##i;             \
    sums.write(cell + i, hdr.values.v##i);
#include "aggregation_lanes.p4"
#undef LANE
    }

    // Nothing is added: a result that is sent, or sent again.
    action get() {
        cell = meta.slot.index << 5;
#define LANE(i) sums.read(hdr.values.v##i, cell + i);
#include "aggregation_lanes.p4"
#undef LANE
    }

    apply {
        if (meta.sums == SUMS_PUT) {
            put();
        } else if (meta.sums == SUMS_ADD) {
            if (hdr.aggregation.operation == OPERATION_SUM) {
                add();
            } else {
                maximum();
            }
        } else if (meta.sums == SUMS_GET) {
            get();
        }
    }
}

#endif
