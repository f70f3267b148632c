// Calls and streams over HTTP/2 and TLS for C++17. Header only.
//
// Functions return the result codes of fireteam.h, and throw nothing. Vectors grow to the needed length, but for the bodies of
// `call` and `end`: give these a size. If memory runs out, the program ends.

#ifndef FIRETEAM_CLIENT_HPP
#define FIRETEAM_CLIENT_HPP

#include <fireteam/object.hpp>

#include <cstdint>

namespace fireteam {

// Connection to one server. Several threads may call `call` with buffers of their own.
class Client : public detail::Owner<ft_client, ft_client_free> {
 public:
  std::int32_t open(const ft_client_options& options) noexcept {
    return take([&](ft_client** made) { return ft_client_new(&options, made); });
  }

  // Makes a call and blocks. `answer` points into `body`, so keep `body` until the answer is handled. A body of at least FT_ANSWER_BYTES keeps its
  // size: hosts of many matches give one of FT_QUEUE_ANSWER_BYTES.
  std::int32_t call(const ft_call& call, const Bytes& request, Bytes& body, ft_answer& answer) const noexcept {
    if (body.size() < FT_ANSWER_BYTES) body.resize(FT_ANSWER_BYTES);
    return ft_client_call(get(), &call, request.data(), request.size(), body.data(), body.size(), &answer);
  }
};

// Server stream, such as the watch of a ticket. One thread at a time may use it. It may live longer than its client.
class Stream : public detail::Owner<ft_stream, ft_stream_free> {
 public:
  // Makes the stream, and closes the one before. It does not block: the first `next` opens it.
  std::int32_t open(const Client& client, const ft_call& call, const Bytes& request) noexcept {
    return take([&](ft_stream** made) { return ft_stream_new(client.get(), &call, request.data(), request.size(), made); });
  }

  // Closes the stream.
  void close() noexcept { release(); }

  // Waits for a message, at most `wait_ms`. FT_NONE: none came. FT_STREAM_ENDED: `end` says why.
  std::int32_t next(std::uint32_t wait_ms, Bytes& message) noexcept {
    return detail::fill(message, [&](auto* data, auto size) { return ft_stream_next(get(), wait_ms, data, size); });
  }

  // End of the stream: status and details. `end` points into `body`.
  std::int32_t end(Bytes& body, ft_answer& end) noexcept {
    if (body.size() < FT_ANSWER_BYTES) body.resize(FT_ANSWER_BYTES);
    return ft_stream_end(get(), body.data(), body.size(), &end);
  }
};

}  // namespace fireteam

#endif  // FIRETEAM_CLIENT_HPP
