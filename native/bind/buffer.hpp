// Memory of a Python object, held for as long as a message needs it.
#pragma once

#include <nanobind/ndarray.h>

#include <cstddef>
#include <utility>

#include "bind/bind.hpp"

namespace dlcp::bind {

// Keeps the object alive and its memory in place. Made, moved and destroyed with the GIL held.
class Buffer {
public:
    Buffer() = default;
    // Takes anything with the buffer protocol or DLPack on the CPU, C-contiguous. Throws BufferError.
    Buffer(nb::handle object, bool writable);
    ~Buffer() { release(); }
    Buffer(Buffer&& other) noexcept { *this = std::move(other); }
    Buffer& operator=(Buffer&& other) noexcept;

    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    void release();

private:
    void from_protocol(nb::handle object, bool writable);
    template <class Array>
    bool from_dlpack(nb::handle object, Array& array);

    // Exactly one of these holds the memory. The view is on the heap since an exporter may keep its address.
    Py_buffer* view_ = nullptr;
    nb::ndarray<nb::ro, nb::device::cpu, nb::c_contig> read_only_array_;
    nb::ndarray<nb::device::cpu, nb::c_contig> array_;
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace dlcp::bind
