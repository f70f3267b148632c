// Queue loop for C++17. Header only.
//
// Functions return the result codes of fireteam.h, and throw nothing. Vectors grow to the needed length; if memory runs out, the program ends.

#ifndef FIRETEAM_QUEUEING_HPP
#define FIRETEAM_QUEUEING_HPP

#include <fireteam/client.hpp>
#include <fireteam/object.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fireteam {

// Queue loop of one party. Before `open` or `restore`, functions return FT_ERROR_NULL.
class Queueing : public detail::Owner<ft_queueing, ft_queueing_free> {
 public:
  // Makes the loop from a protobuf QueueEnterRequest. `random` is from the system's random number generator.
  std::int32_t open(const Bytes& request, const std::uint8_t (&random)[FT_QUEUEING_RANDOM_BYTES]) noexcept {
    return take([&](ft_queueing** made) {
      return ft_queueing_new(request.data(), request.size(), random, sizeof random, made);
    });
  }
  // Makes the loop from the bytes of `save`.
  std::int32_t restore(const Bytes& saved, const std::uint8_t (&random)[FT_QUEUEING_RANDOM_BYTES]) noexcept {
    return take([&](ft_queueing** made) {
      return ft_queueing_restore(saved.data(), saved.size(), random, sizeof random, made);
    });
  }
  // The loop as bytes, which are a secret.
  std::int32_t save(Bytes& saved) noexcept {
    return detail::fill(saved, [&](auto* data, auto size) { return ft_queueing_save(get(), data, size); });
  }
  std::int32_t set_latency_token(const Bytes& token, std::uint64_t now_us) noexcept {
    return ft_queueing_set_latency_token(get(), token.data(), token.size(), now_us);
  }

  std::int32_t start(std::uint64_t now_us) noexcept { return ft_queueing_start(get(), now_us); }
  std::int32_t cancel(std::uint64_t now_us) noexcept { return ft_queueing_cancel(get(), now_us); }
  std::int32_t state() const noexcept { return ft_queueing_state(get()); }

  std::int32_t handle_answer(const ft_answer& answer, std::uint64_t now_us) noexcept {
    return ft_queueing_handle_answer(get(), &answer, now_us);
  }
  std::int32_t handle_watch_message(std::uint64_t watch_id, const Bytes& message, std::uint64_t now_us) noexcept {
    return ft_queueing_handle_watch_message(get(), watch_id, message.data(), message.size(), now_us);
  }
  std::int32_t handle_watch_end(const ft_answer& end, std::uint64_t now_us) noexcept {
    return ft_queueing_handle_watch_end(get(), &end, now_us);
  }
  std::int32_t handle_timeout(std::uint64_t now_us) noexcept { return ft_queueing_handle_timeout(get(), now_us); }

  std::int32_t respond(const char* match_id, bool accept, std::uint64_t now_us) noexcept {
    return ft_queueing_respond(get(), match_id, accept ? 1 : 0, now_us);
  }
  std::int32_t connected(std::uint64_t now_us) noexcept { return ft_queueing_connected(get(), now_us); }
  std::int32_t connect_failed(std::uint64_t now_us) noexcept { return ft_queueing_connect_failed(get(), now_us); }
  std::int32_t report(const std::vector<ft_team_rank>& ranks, std::uint64_t now_us) noexcept {
    return ft_queueing_report(get(), ranks.data(), ranks.size(), now_us);
  }

  // Each of these returns FT_NONE when there is nothing left.
  std::int32_t poll_call(ft_call& call, Bytes& request) noexcept {
    return detail::fill(request, [&](auto* data, auto size) { return ft_queueing_poll_call(get(), &call, data, size); });
  }
  std::int32_t poll_watch(ft_call& watch, Bytes& request) noexcept {
    return detail::fill(request, [&](auto* data, auto size) { return ft_queueing_poll_watch(get(), &watch, data, size); });
  }
  std::int32_t poll_outcome(ft_queue_outcome& outcome, Bytes& data) noexcept {
    return detail::fill(data, [&](auto* to, auto size) { return ft_queueing_poll_outcome(get(), &outcome, to, size); });
  }
  std::int32_t poll_timeout(std::uint64_t& at_us) noexcept { return ft_queueing_poll_timeout(get(), &at_us); }

  // Address and credential for the match's game server; FT_NONE if there are none now.
  std::int32_t connect_data(Bytes& data) noexcept {
    return detail::fill(data, [&](auto* to, auto size) { return ft_queueing_connect_data(get(), to, size); });
  }
  std::int32_t credential(std::uint32_t player, Bytes& credential) noexcept {
    return detail::fill(credential, [&](auto* to, auto size) { return ft_queueing_credential(get(), player, to, size); });
  }
};

}  // namespace fireteam

#endif  // FIRETEAM_QUEUEING_HPP
