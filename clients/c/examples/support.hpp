// Parts that the C++ examples share: checks, a clock, random numbers, and protobuf fields by hand. A game has a protobuf library.

#ifndef FIRETEAM_EXAMPLES_SUPPORT_HPP
#define FIRETEAM_EXAMPLES_SUPPORT_HPP

#include <fireteam/beacons.hpp>
#include <fireteam/client.hpp>

#include "datagrams.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace support {

using fireteam::Bytes;

inline std::int32_t check(const char* step, std::int32_t result) {
  if (result < 0) throw std::runtime_error(std::string(step) + " failed: " + std::to_string(result) + ", " + ft_result_text(result));
  return result;
}

// Result of a function of the system, which sets errno.
inline int check_system(const char* step, int result) {
  if (result < 0) throw std::runtime_error(std::string(step) + " failed: " + std::strerror(errno));
  return result;
}

// Clock that never goes back, microseconds.
inline std::uint64_t now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

// Protobuf field of bytes shorter than 128.
inline void put_field(Bytes& to, unsigned number, const Bytes& bytes) {
  if (bytes.size() > 127) throw std::runtime_error("a field is too long");
  to.push_back(static_cast<std::uint8_t>(number << 3 | 2));
  to.push_back(static_cast<std::uint8_t>(bytes.size()));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// Protobuf field of type float.
inline void put_float(Bytes& to, unsigned number, float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  to.push_back(static_cast<std::uint8_t>(number << 3 | 5));
  for (unsigned shift = 0; shift < 32; shift += 8) to.push_back(static_cast<std::uint8_t>(bits >> shift));
}

// Protobuf field of type double.
inline void put_double(Bytes& to, unsigned number, double value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  to.push_back(static_cast<std::uint8_t>(number << 3 | 1));
  for (unsigned shift = 0; shift < 64; shift += 8) to.push_back(static_cast<std::uint8_t>(bits >> shift));
}

inline Bytes bytes_of(const std::string& text) { return Bytes(text.begin(), text.end()); }

inline std::string text_of(const Bytes& bytes) { return std::string(bytes.begin(), bytes.end()); }

// Protobuf field of type uint32, int32 or enum, not negative.
inline void put_number(Bytes& to, unsigned number, std::uint32_t value) {
  to.push_back(static_cast<std::uint8_t>(number << 3));
  for (; value > 127; value >>= 7) to.push_back(static_cast<std::uint8_t>(value | 128));
  to.push_back(static_cast<std::uint8_t>(value));
}

// Fills bytes from the random number generator of the system.
template <std::size_t Length>
void fill_random(std::uint8_t (&bytes)[Length]) {
  std::random_device source;
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(source());
}

// Client of a server; the token is FIRETEAM_TOKEN in the environment.
inline fireteam::Client open_client(const char* uri) {
  ft_client_options options{};
  options.uri = uri;
  options.token = std::getenv("FIRETEAM_TOKEN");
  fireteam::Client client;
  check("open the client", client.open(options));
  return client;
}

// Makes all calls of a loop, and returns their number. A game makes them on another thread: here, all else waits until the call is answered.
template <typename Loop>
int make_calls(Loop& loop, const fireteam::Client& client, Bytes& body) {
  ft_call call{};
  Bytes request;
  int count = 0;
  for (std::int32_t length = 0; (length = loop.poll_call(call, request)) != FT_NONE; ++count) {
    check("poll_call", length);
    ft_answer answer{};
    check("call", client.call(call, request, body, answer));
    std::printf("%s: %d\n", call.path, static_cast<int>(answer.status));
    const std::int32_t result = loop.handle_answer(answer, now_us());
    if (result != FT_ERROR_MALFORMED) check("handle_answer", result);
  }
  return count;
}

// Sends the datagrams of a loop, and calls a function after each: that of another loop on the same network.
template <typename Loop, typename Function>
void send_datagrams(Loop& loop, int udp, Function packet_sent) {
  ft_address to{};
  Bytes packet;
  for (std::int32_t length = 0; (length = loop.poll_transmit(to, packet)) != FT_NONE;) {
    check("poll_transmit", length);
    send_datagram(udp, &to, packet.data(), packet.size());
    packet_sent();
  }
}

// Gives a datagram of the socket to a loop. Packets of other loops change nothing.
template <typename Loop>
void give_datagram(Loop& loop, const ft_address& from, const std::uint8_t* packet, std::int32_t length, std::uint64_t arrived_us) {
  const std::int32_t result = loop.handle_datagram(from, packet, static_cast<std::size_t>(length), arrived_us);
  if (result != FT_NONE) check("handle_datagram", result);
}

// Gives a new latency token of a measurement to a loop.
template <typename Loop>
void pass_on_token(fireteam::Beacons& beacons, Loop& loop) {
  Bytes token;
  for (std::int32_t length = 0; (length = beacons.poll_token(token)) != FT_NONE;) {
    check("poll_token", length);
    std::printf("latency token of %d bytes\n", static_cast<int>(length));
    check("set_latency_token", loop.set_latency_token(token, now_us()));
  }
}

// Milliseconds until a loop needs its timeout, at most `most_ms`.
template <typename Loop>
int pause_ms(Loop& loop, int most_ms) {
  std::uint64_t at_us = 0;
  if (loop.poll_timeout(at_us) < 0) return most_ms;
  const std::uint64_t now = now_us();
  const std::uint64_t pause_us = now < at_us ? at_us - now : 0;
  return static_cast<int>(std::min<std::uint64_t>(pause_us / 1000 + 1, static_cast<std::uint64_t>(most_ms)));
}

// Runs a program, and ends with `ok` and exit code 0, or with one line and exit code 1.
template <typename Function>
int run(Function function) {
  // Lines are read by other programs while this one runs.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  try {
    function();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::puts("ok");
  return 0;
}

}  // namespace support

#endif  // FIRETEAM_EXAMPLES_SUPPORT_HPP
