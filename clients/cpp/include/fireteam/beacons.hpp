// Measurement of beacons for C++17. Header only.
//
// Functions return the result codes of fireteam.h, and throw nothing. Vectors grow to the needed length; if memory runs out, the program ends.

#ifndef FIRETEAM_BEACONS_HPP
#define FIRETEAM_BEACONS_HPP

#include <fireteam/client.hpp>
#include <fireteam/object.hpp>

#include <cstddef>
#include <cstdint>

namespace fireteam {

// Measurement of beacons by one client: its tokens are for `set_latency_token` of Matching and Queueing. Before `open`, functions return
// FT_ERROR_NULL.
class Beacons : public detail::Owner<ft_beacons, ft_beacons_free> {
 public:
  // Makes the measurement. `random` is FT_BEACONS_RANDOM_BYTES bytes of the system's random number generator.
  std::int32_t open(const std::uint8_t (&random)[FT_BEACONS_RANDOM_BYTES]) noexcept {
    return take([&](ft_beacons** made) { return ft_beacons_new(nullptr, random, sizeof random, made); });
  }
  // The same for a client whose place the game knows.
  std::int32_t open(const ft_place& place, const std::uint8_t (&random)[FT_BEACONS_RANDOM_BYTES]) noexcept {
    return take([&](ft_beacons** made) { return ft_beacons_new(&place, random, sizeof random, made); });
  }

  std::int32_t start(std::uint64_t now_us) noexcept { return ft_beacons_start(get(), now_us); }
  std::int32_t state() const noexcept { return ft_beacons_state(get()); }

  std::int32_t handle_answer(const ft_answer& answer, std::uint64_t now_us) noexcept {
    return ft_beacons_handle_answer(get(), &answer, now_us);
  }
  std::int32_t handle_datagram(const ft_address& from, const std::uint8_t* packet, std::size_t length,
                               std::uint64_t now_us) noexcept {
    return ft_beacons_handle_datagram(get(), &from, packet, length, now_us);
  }
  std::int32_t handle_timeout(std::uint64_t now_us) noexcept { return ft_beacons_handle_timeout(get(), now_us); }
  std::int32_t other_packet_sent(std::uint64_t now_us) noexcept { return ft_beacons_other_packet_sent(get(), now_us); }

  // Each of these returns FT_NONE when there is nothing left. An empty token: none is to be sent any longer.
  std::int32_t poll_call(ft_call& call, Bytes& request) noexcept {
    return detail::fill(request, [&](auto* data, auto size) { return ft_beacons_poll_call(get(), &call, data, size); });
  }
  std::int32_t poll_transmit(ft_address& to, Bytes& packet) noexcept {
    return detail::fill(packet, [&](auto* data, auto size) { return ft_beacons_poll_transmit(get(), &to, data, size); });
  }
  std::int32_t poll_token(Bytes& token) noexcept {
    return detail::fill(token, [&](auto* data, auto size) { return ft_beacons_poll_token(get(), data, size); });
  }
  std::int32_t poll_timeout(std::uint64_t& at_us) noexcept { return ft_beacons_poll_timeout(get(), &at_us); }

  // Answer to the last report, a protobuf ReportTripsResponse with the round trips to regions; FT_NONE if there was none.
  std::int32_t report(Bytes& report) noexcept {
    return detail::fill(report, [&](auto* data, auto size) { return ft_beacons_report(get(), data, size); });
  }
};

}  // namespace fireteam

#endif  // FIRETEAM_BEACONS_HPP
