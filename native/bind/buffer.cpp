#include "bind/buffer.hpp"

#include <cstring>
#include <memory>
#include <string>

namespace dlcp::bind {
namespace {

// One address for empty messages: the engine takes nullptr for virtual payload.
std::uint8_t nothing[1];

std::string class_name(nb::handle object) { return nb::str(nb::getattr(object.type(), "__name__")).c_str(); }

}  // namespace

Buffer::Buffer(nb::handle object, bool writable) {
    if (PyObject_CheckBuffer(object.ptr()) != 0) {
        from_protocol(object, writable);
    } else if (!(writable ? from_dlpack(object, array_) : from_dlpack(object, read_only_array_))) {
        throw BufferError(
            class_name(object) + " is not " + (writable ? "writable " : "") +
            "C-contiguous memory of the CPU; give a NumPy array, a bytes-like object or a CPU tensor "
            "(.contiguous() and .cpu() make one)");
    }
    if (bytes_ == 0 || data_ == nullptr) data_ = nothing;
}

void Buffer::from_protocol(nb::handle object, bool writable) {
    auto view = std::make_unique<Py_buffer>();
    if (PyObject_GetBuffer(object.ptr(), view.get(), PyBUF_ND | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)) !=
        0) {
        const nb::python_error reason;
        throw BufferError(class_name(object) + ": " + nb::str(reason.value()).c_str() + "; give a" +
                          (writable ? " writable" : "") +
                          " C-contiguous array (numpy.ascontiguousarray makes one)");
    }
    if (view->format != nullptr && std::strchr(view->format, 'O') != nullptr) {
        PyBuffer_Release(view.get());
        throw BufferError(class_name(object) +
                          " holds Python objects, which mean nothing on another host; give numbers");
    }
    view_ = view.release();
    data_ = view_->buf;
    bytes_ = static_cast<std::size_t>(view_->len);
}

template <class Array>
bool Buffer::from_dlpack(nb::handle object, Array& array) {
    if (!nb::try_cast<Array>(object, array, false)) return false;
    data_ = const_cast<void*>(static_cast<const void*>(array.data()));
    bytes_ = array.nbytes();
    return true;
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    if (this != &other) {
        release();
        view_ = std::exchange(other.view_, nullptr);
        read_only_array_ = std::move(other.read_only_array_);
        array_ = std::move(other.array_);
        data_ = std::exchange(other.data_, nullptr);
        bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
}

void Buffer::release() {
    if (view_ != nullptr) {
        PyBuffer_Release(view_);
        delete std::exchange(view_, nullptr);
    }
    read_only_array_ = {};
    array_ = {};
}

}  // namespace dlcp::bind
