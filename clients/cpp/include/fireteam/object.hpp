// Owners of the objects of fireteam.h for C++17, which the other headers share. Header only.
//
// Functions return the result codes of fireteam.h, and throw nothing. Vectors grow to the needed length; if memory runs out, the program ends.

#ifndef FIRETEAM_OBJECT_HPP
#define FIRETEAM_OBJECT_HPP

#include <fireteam.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace fireteam {

using Bytes = std::vector<std::uint8_t>;

namespace detail {

// Calls a function that fills a buffer, with a larger one if it is too small. Returns its result; below 0 the bytes are empty.
template <typename Function>
std::int32_t fill(Bytes& bytes, Function function) noexcept {
  bytes.resize(bytes.capacity() < 1024 ? 1024 : bytes.capacity());
  std::int32_t length = function(bytes.data(), bytes.size());
  while (length > 0 && static_cast<std::size_t>(length) > bytes.size()) {
    bytes.resize(static_cast<std::size_t>(length));
    length = function(bytes.data(), bytes.size());
  }
  bytes.resize(length < 0 ? 0 : static_cast<std::size_t>(length));
  return length;
}

// Owner of an object of the C interface.
template <typename Object, std::int32_t (*Free)(Object*)>
class Owner {
 public:
  Owner() = default;

  // False before `open`, and after a failed one.
  explicit operator bool() const noexcept { return object_ != nullptr; }

  // Object for functions of fireteam.h; null if there is none.
  Object* get() const noexcept { return object_.get(); }

 protected:
  // Takes the object that a function makes, and frees the one before.
  template <typename Function>
  std::int32_t take(Function function) noexcept {
    Object* made = nullptr;
    const std::int32_t result = function(&made);
    object_.reset(made);
    return result;
  }

  // Frees the object.
  void release() noexcept { object_.reset(); }

 private:
  struct Deleter {
    void operator()(Object* object) const noexcept { Free(object); }
  };
  std::unique_ptr<Object, Deleter> object_;
};

}  // namespace detail

}  // namespace fireteam

#endif  // FIRETEAM_OBJECT_HPP
