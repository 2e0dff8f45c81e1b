// The tags of a group's messages.
#include "collective/tag.hpp"

#include <doctest/doctest.h>

#include <initializer_list>

namespace dlcp {
namespace {

TEST_CASE("tag: what a collective's message says is read back") {
    const Tag tag = Tag::read(Tag::of_collective(0x2aaa, 0xabcde, 7, 0x1234));
    CHECK(tag.kind == TagKind::collective);
    CHECK(tag.group == 0x2aaa);
    CHECK(tag.sequence == 0xabcde);
    CHECK(tag.message == 7);
    CHECK(tag.signature == 0x1234);
}

TEST_CASE(
    "tag: the high bits of a signature move the number of the message, and its sender's signature gives it back") {
    const std::uint32_t signature = 0xfff1234;
    const Tag tag = Tag::read(Tag::of_collective(1, 2, 4000, signature));
    CHECK(tag.signature == 0x1234);
    CHECK(tag.message != 4000);
    CHECK(tag.message_under(signature) == 4000);
    CHECK(tag.message_under(0x1234) != 4000);
}

TEST_CASE("tag: a sequence counts on past the bits that a tag has for it") {
    CHECK(Tag::of_collective(1, 5, 0, 0) == Tag::of_collective(1, 5 + Tag::sequence_mask + 1, 0, 0));
}

TEST_CASE("tag: each kind is told from the others, and all of a group's have its number") {
    const std::uint64_t of_group = Tag::of_collective(9, 0, 0, 0);
    for (const std::uint64_t bits : {Tag::of_collective(9, 1, 2, 3), Tag::of_message(9, 0xffffffff),
                                     Tag::of_failure(9), Tag::of_inquiry(9, 1, Tag::question)})
        CHECK(Tag::read(bits).group == Tag::read(of_group).group);
    CHECK(Tag::read(Tag::of_message(9, 0xffffffff)).kind == TagKind::message);
    CHECK(Tag::read(Tag::of_failure(9)).kind == TagKind::failure);
    CHECK(Tag::read(Tag::of_inquiry(9, 1, Tag::question)).kind == TagKind::inquiry);
}

TEST_CASE("tag: an inquiry carries a question, a refusal, or a rank with or without silence") {
    for (const std::uint32_t said : {Tag::question, Tag::not_called, 17u, 17u | Tag::silent}) {
        const std::uint64_t bits = Tag::of_inquiry(3, 0xfffff, said);
        CHECK(Tag::inquiry_of(bits) == said);
        CHECK(Tag::read(bits).sequence == 0xfffff);
    }
}

}  // namespace
}  // namespace dlcp
