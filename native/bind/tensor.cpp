// Tensors of torch as memory, read through their Python attributes: this module is not linked to torch.
#include "bind/bind.hpp"

namespace dlcp::bind {
namespace {

// Reads the arguments of all_reduce calls that need no preparation: one contiguous tensor of the CPU of a type that is
// reduced, to be summed while the caller waits. It answers None to anything else. Such a call asks a dozen things of
// its tensor, which takes longer in Python than its packets travel.
class PlainSums {
public:
    // `tensor`: the class; `strided`: the layout; `types`: DataType by dtype; `sum`: the ReduceOp; `grows`: called without
    // arguments, whether autograd records; `changed`: called with a tensor that autograd does not see change.
    PlainSums(nb::object tensor, nb::object strided, nb::dict types, nb::object sum, nb::object no_time,
              nb::object grows, nb::object changed)
        : tensor_(std::move(tensor)),
          strided_(std::move(strided)),
          types_(std::move(types)),
          sum_(std::move(sum)),
          no_time_(std::move(no_time)),
          grows_(std::move(grows)),
          changed_(std::move(changed)) {}

    // The tensor's address, bytes and type, and the tensor.
    nb::object read(nb::handle tensors, nb::handle options) const {
        if (!nb::isinstance<nb::list>(tensors) || nb::len(tensors) != 1) return nb::none();
        if (is_true(options.attr(async_)) || !options.attr(op_).equal(sum_) || options.attr(timeout_) > no_time_)
            return nb::none();
        const nb::object tensor = nb::borrow<nb::list>(tensors)[0];
        if (!tensor.type().is(tensor_) || !nb::object(tensor.attr(layout_)).is(strided_) ||
            !is_true(tensor.attr(is_cpu_)) || !is_true(tensor.attr(is_contiguous_)()))
            return nb::none();
        // A view may be of complex numbers; one that autograd follows is looked at by whoever starts other calls.
        if (!nb::object(tensor.attr(base_)).is_none() || is_true(tensor.attr(requires_grad_)) ||
            is_true(tensor.attr(is_neg_)()) || is_true(tensor.attr(is_conj_)()))
            return nb::none();
        const nb::object type = nb::steal(PyObject_GetItem(types_.ptr(), nb::object(tensor.attr(dtype_)).ptr()));
        if (!type.is_valid()) {
            PyErr_Clear();
            return nb::none();
        }
        if (is_true(grows_())) changed_(tensor);
        return nb::make_tuple(tensor.attr(data_ptr_)(), tensor.attr(nbytes_), type, tensor);
    }

private:
    static bool is_true(const nb::object& value) { return value.ptr() == Py_True; }
    static nb::object name(const char* text) { return nb::steal(PyUnicode_InternFromString(text)); }

    nb::object tensor_, strided_;
    nb::dict types_;
    nb::object sum_, no_time_, grows_, changed_;
    nb::object async_ = name("asyncOp"), op_ = name("reduceOp"), timeout_ = name("timeout"),
               layout_ = name("layout"), is_cpu_ = name("is_cpu"), is_contiguous_ = name("is_contiguous"),
               base_ = name("_base"), requires_grad_ = name("requires_grad"), is_neg_ = name("is_neg"),
               is_conj_ = name("is_conj"), dtype_ = name("dtype"), data_ptr_ = name("data_ptr"),
               nbytes_ = name("nbytes");
};

}  // namespace

void bind_tensor(nb::module_& m) {
    nb::class_<PlainSums>(m, "PlainSums", "Reads the arguments of all_reduce calls that need no preparation.")
        .def(nb::init<nb::object, nb::object, nb::dict, nb::object, nb::object, nb::object, nb::object>(),
             nb::arg("tensor"), nb::arg("strided"), nb::arg("types"), nb::arg("sum"), nb::arg("no_time"),
             nb::arg("grows"), nb::arg("changed"))
        .def("read", &PlainSums::read, nb::arg("tensors"), nb::arg("options"),
             nb::sig("def read(self, tensors: object, options: object) -> tuple[int, int, DataType, object] | None"));
}

}  // namespace dlcp::bind
