// Completion times, goodput and what they cost, by loss, load and mode: one fixed text, so that a change of
// behaviour shows as a diff.
#pragma once

#include <cstdio>

namespace dlcp::test {

void print_table(std::FILE* file);

}  // namespace dlcp::test
