// Turns IoError into Python exceptions. Which class a kind raises is told once by dlcp.transport, since the
// classes live in Python; a kind without a class raises RuntimeError.
#include <exception>

#include "bind/bind.hpp"
#include "io/io_error.hpp"

namespace dlcp::bind {
namespace {

// Kind to exception class. Never freed: a translator may run until the interpreter is gone.
nb::dict* error_types = nullptr;

void raise(const char* kind, const char* sentence) {
    nb::object type = error_types != nullptr ? error_types->attr("get")(kind) : nb::none();
    PyErr_SetString(type.is_none() ? PyExc_RuntimeError : type.ptr(), sentence);
}

}  // namespace

void bind_errors(nb::module_& m) {
    error_types = new nb::dict();
    m.def(
        "register_errors",
        [](nb::dict types) {
            for (auto [kind, type] : types) (*error_types)[kind] = type;
        },
        nb::arg("types"), "Sets the exception class raised for each kind of error.");
    nb::register_exception_translator([](const std::exception_ptr& error, void*) {
        try {
            std::rethrow_exception(error);
        } catch (const IoError& refused) {
            raise(name(refused.kind), refused.what());
        } catch (const BufferError& refused) {
            raise("buffer", refused.what());
        }
    });
}

}  // namespace dlcp::bind
