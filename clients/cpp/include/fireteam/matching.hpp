// Search loop and responder for C++17. Header only.
//
// Functions return the result codes of fireteam.h, and throw nothing. Vectors grow to the needed length; if memory runs out, the program ends.

#ifndef FIRETEAM_MATCHING_HPP
#define FIRETEAM_MATCHING_HPP

#include <fireteam/client.hpp>
#include <fireteam/object.hpp>

#include <cstddef>
#include <cstdint>

namespace fireteam {

// Search loop of one party. Before `open`, functions return FT_ERROR_NULL.
class Matching : public detail::Owner<ft_matching, ft_matching_free> {
 public:
  // Makes the loop. `random` is FT_MATCHING_RANDOM_BYTES bytes of the system's random number generator.
  std::int32_t open(const ft_matching_options& options, const std::uint8_t (&random)[FT_MATCHING_RANDOM_BYTES]) noexcept {
    return take([&](ft_matching** made) { return ft_matching_new(&options, random, sizeof random, made); });
  }

  std::int32_t set_latency_token(const Bytes& token, std::uint64_t now_us) noexcept {
    return ft_matching_set_latency_token(get(), token.data(), token.size(), now_us);
  }
  std::int32_t other_packet_sent(std::uint64_t now_us) noexcept { return ft_matching_other_packet_sent(get(), now_us); }

  std::int32_t start(std::uint64_t now_us) noexcept { return ft_matching_start(get(), now_us); }
  std::int32_t cancel(std::uint64_t now_us) noexcept { return ft_matching_cancel(get(), now_us); }
  std::int32_t state() const noexcept { return ft_matching_state(get()); }

  std::int32_t handle_answer(const ft_answer& answer, std::uint64_t now_us) noexcept {
    return ft_matching_handle_answer(get(), &answer, now_us);
  }
  std::int32_t handle_datagram(const ft_address& from, const std::uint8_t* packet, std::size_t length,
                               std::uint64_t now_us) noexcept {
    return ft_matching_handle_datagram(get(), &from, packet, length, now_us);
  }
  std::int32_t handle_timeout(std::uint64_t now_us) noexcept { return ft_matching_handle_timeout(get(), now_us); }
  std::int32_t handle_reservation(const Bytes& event, std::uint64_t now_us) noexcept {
    return ft_matching_handle_reservation(get(), event.data(), event.size(), now_us);
  }

  std::int32_t connected(const char* reservation_id, std::uint64_t now_us) noexcept {
    return ft_matching_connected(get(), reservation_id, now_us);
  }
  std::int32_t connect_failed(const char* reservation_id, std::uint64_t now_us) noexcept {
    return ft_matching_connect_failed(get(), reservation_id, now_us);
  }
  std::int32_t connection_lost(std::uint64_t now_us) noexcept { return ft_matching_connection_lost(get(), now_us); }
  std::int32_t become_host(const ft_hosting& hosting, std::uint64_t now_us) noexcept {
    return ft_matching_become_host(get(), &hosting, now_us);
  }
  std::int32_t host_moved(std::uint64_t now_us) noexcept { return ft_matching_host_moved(get(), now_us); }
  std::int32_t session_changed(const Bytes& update, std::uint64_t now_us) noexcept {
    return ft_matching_session_changed(get(), update.data(), update.size(), now_us);
  }

  // Each of these returns FT_NONE when there is nothing left.
  std::int32_t poll_call(ft_call& call, Bytes& request) noexcept {
    return detail::fill(request, [&](auto* data, auto size) { return ft_matching_poll_call(get(), &call, data, size); });
  }
  std::int32_t poll_transmit(ft_address& to, Bytes& packet) noexcept {
    return detail::fill(packet, [&](auto* data, auto size) { return ft_matching_poll_transmit(get(), &to, data, size); });
  }
  std::int32_t poll_outcome(ft_outcome& outcome, Bytes& data) noexcept {
    return detail::fill(data, [&](auto* to, auto size) { return ft_matching_poll_outcome(get(), &outcome, to, size); });
  }
  std::int32_t poll_timeout(std::uint64_t& at_us) noexcept { return ft_matching_poll_timeout(get(), &at_us); }
};

// Answers to latency probes of one advertisement.
class Responder : public detail::Owner<ft_responder, ft_responder_free> {
 public:
  // Makes the responder. `random` is FT_RESPONDER_RANDOM_BYTES bytes of the system's random number generator.
  std::int32_t open(const std::uint8_t (&random)[FT_RESPONDER_RANDOM_BYTES]) noexcept {
    return take([&](ft_responder** made) { return ft_responder_new(random, sizeof random, made); });
  }

  std::int32_t endpoint(std::uint16_t port, Bytes& endpoint) noexcept {
    return detail::fill(endpoint, [&](auto* data, auto size) { return ft_responder_endpoint(get(), port, data, size); });
  }
  std::int32_t advertise(const char* advertisement_id) noexcept { return ft_responder_advertise(get(), advertisement_id); }
  std::int32_t withdraw() noexcept { return ft_responder_withdraw(get()); }
  std::int32_t set_full(bool full) noexcept { return ft_responder_set_full(get(), full ? 1 : 0); }
  std::int32_t set_game_data(const Bytes& data) noexcept { return ft_responder_set_game_data(get(), data.data(), data.size()); }

  // Writes the answer to a packet into `answer`; FT_NONE if it is not answered.
  std::int32_t handle_datagram(const ft_address& from, const std::uint8_t* packet, std::size_t length,
                               std::uint64_t arrived_us, std::uint64_t now_us, Bytes& answer) noexcept {
    answer.resize(length);
    const std::int32_t result = ft_responder_handle_datagram(get(), &from, packet, length, arrived_us, now_us, answer.data(), length);
    answer.resize(result < 0 ? 0 : static_cast<std::size_t>(result));
    return result;
  }
};

}  // namespace fireteam

#endif  // FIRETEAM_MATCHING_HPP
