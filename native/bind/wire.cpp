// The wire format's constants and pure functions, for tests that compare them with a Python twin and for tools.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <string>

#include "bind/bind.hpp"
#include "engine/wire.hpp"

namespace dlcp::bind {
namespace {

// Every field of a header by its name; `visit(name, member)`.
template <class Header, class Visit>
void each_field(Header& header, Visit&& visit) {
    visit("flags", header.flags);
    visit("traffic_class", header.traffic_class);
    visit("importance", header.importance);
    visit("key_epoch", header.key_epoch);
    visit("path", header.path);
    visit("job", header.job);
    visit("source_rank", header.source_rank);
    visit("session", header.session);
    visit("timestamp_ns", header.timestamp_ns);
    visit("packet_number", header.packet_number);
    visit("tag", header.tag);
    visit("message_id", header.message_id);
    visit("message_bytes", header.message_bytes);
    visit("block_index", header.block_index);
    visit("critical_blocks", header.critical_blocks);
    visit("block_bytes", header.block_bytes);
    visit("payload_bytes", header.payload_bytes);
    visit("budget", header.budget);
    visit("deadline", header.deadline);
}

std::pair<std::string, nb::object> parse_header(nb::bytes datagram, std::uint32_t virtual_payload_bytes) {
    wire::Datagram out;
    const auto error = wire::parse({static_cast<const std::uint8_t*>(datagram.data()), datagram.size()},
                                   virtual_payload_bytes, out);
    if (error != wire::ParseError::none) return {wire::name(error), nb::none()};
    nb::dict fields;
    fields["type"] = static_cast<int>(out.header.type);
    each_field(out.header, [&](const char* field, auto value) { fields[field] = value; });
    return {wire::name(error), fields};
}

nb::bytes write_header(nb::dict fields) {
    wire::Header header;
    std::size_t known = 0;
    if (fields.contains("type")) {
        header.type = static_cast<wire::Type>(nb::cast<std::uint8_t>(fields["type"]));
        ++known;
    }
    each_field(header, [&](const char* field, auto& member) {
        if (!fields.contains(field)) return;
        // Throws if the value does not fit the field.
        member = nb::cast<std::decay_t<decltype(member)>>(fields[field]);
        ++known;
    });
    if (known != fields.size()) throw nb::key_error("not a header field; native/engine/wire.hpp lists them");
    std::array<std::uint8_t, wire::header_bytes> bytes{};
    wire::write(header, bytes.data());
    return nb::bytes(bytes.data(), wire::header_bytes_of(header.type));
}

void bind_constants(nb::module_& m) {
    m.attr("WIRE_VERSION") = wire::version;
    m.attr("HEADER_BYTES") = wire::header_bytes;
    m.attr("TAG_BYTES") = wire::tag_bytes;
    m.attr("TRAFFIC_CLASSES") = wire::traffic_classes;
    m.attr("CONTROL_CLASS") = wire::control_class;
    m.attr("IMPORTANCE_CRITICAL") = wire::importance_critical;
    nb::dict types;
    for (const auto type : {wire::Type::data, wire::Type::control, wire::Type::hello, wire::Type::short_data})
        types[wire::name(type)] = static_cast<int>(type);
    m.attr("PACKET_TYPES") = types;
    nb::dict flags;
    flags["critical"] = wire::flag::critical;
    flags["authenticated"] = wire::flag::authenticated;
    flags["encrypted"] = wire::flag::encrypted;
    flags["ack_request"] = wire::flag::ack_request;
    flags["first_pass_over"] = wire::flag::first_pass_over;
    flags["repair"] = wire::flag::repair;
    flags["reserved"] = wire::flag::reserved;
    flags["trimmed"] = wire::flag::trimmed;
    m.attr("FLAGS") = flags;
    nb::list errors;
    for (std::size_t i = 0; i < wire::parse_error_count; ++i)
        errors.append(wire::name(static_cast<wire::ParseError>(i)));
    m.attr("PARSE_ERRORS") = nb::tuple(errors);
}

}  // namespace

void bind_wire(nb::module_& m) {
    bind_constants(m);
    m.def("parse_header", &parse_header, nb::arg("datagram"), nb::arg("virtual_payload_bytes") = 0,
          "The name of the parse error (\"none\") and the header's fields, or None if there is an error.");
    m.def("write_header", &write_header, nb::arg("fields"),
          "The bytes of a header, 64 or 32 by its type; fields left out are 0, the type is data.");
    m.def(
        "block_count",
        [](std::uint32_t message_bytes, std::uint16_t block_bytes) {
            if (block_bytes == 0) throw nb::value_error("block_bytes is 0; accepted: 1 to 65535");
            return wire::block_count(message_bytes, block_bytes);
        },
        nb::arg("message_bytes"), nb::arg("block_bytes"));
    m.def(
        "encode_deadline", [](std::int64_t ns) { return wire::encode_deadline(Duration{ns}); },
        nb::arg("deadline_ns"));
    m.def(
        "decode_deadline", [](std::uint16_t code) { return wire::decode_deadline(code).value; }, nb::arg("code"));
    m.def(
        "encode_budget",
        [](double loss_ratio) {
            if (!(loss_ratio >= 0.0 && loss_ratio < 1.0))
                throw nb::value_error("loss_ratio: accepted 0 to less than 1");
            return wire::encode_budget(loss_ratio);
        },
        nb::arg("loss_ratio"));
    m.def("budget_bytes", &wire::budget_bytes, nb::arg("message_bytes"), nb::arg("budget"));
}

}  // namespace dlcp::bind
