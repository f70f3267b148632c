// Host of matches, and verifier of the credentials of their players, for C++17. Header only.
//
// Functions return the result codes of fireteam.h, and throw nothing. Vectors grow to the needed length; if memory runs out, the program ends.

#ifndef FIRETEAM_MATCH_HOST_HPP
#define FIRETEAM_MATCH_HOST_HPP

#include <fireteam/client.hpp>
#include <fireteam/object.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fireteam {

// Host of the matches of one advertisement. Before `open`, functions return FT_ERROR_NULL.
class MatchHost : public detail::Owner<ft_match_host, ft_match_host_free> {
 public:
  // Makes the host. `random` is from the system's random number generator.
  std::int32_t open(const Bytes& advertisement_token, const std::uint8_t (&random)[FT_MATCH_HOST_RANDOM_BYTES]) noexcept {
    return take([&](ft_match_host** made) {
      return ft_match_host_new(advertisement_token.data(), advertisement_token.size(), random, sizeof random, made);
    });
  }

  std::int32_t start(std::uint64_t now_us) noexcept { return ft_match_host_start(get(), now_us); }
  std::int32_t stop(std::uint64_t now_us) noexcept { return ft_match_host_stop(get(), now_us); }
  std::int32_t state() const noexcept { return ft_match_host_state(get()); }

  std::int32_t handle_answer(const ft_answer& answer, std::uint64_t now_us) noexcept {
    return ft_match_host_handle_answer(get(), &answer, now_us);
  }
  std::int32_t handle_timeout(std::uint64_t now_us) noexcept { return ft_match_host_handle_timeout(get(), now_us); }
  std::int32_t matches_changed(std::uint64_t now_us) noexcept { return ft_match_host_matches_changed(get(), now_us); }
  std::int32_t give_up(const char* match_id, std::uint64_t now_us) noexcept {
    return ft_match_host_give_up(get(), match_id, now_us);
  }
  std::int32_t end_match(const char* match_id, bool failed, std::uint64_t now_us) noexcept {
    return ft_match_host_end_match(get(), match_id, failed ? 1 : 0, now_us);
  }
  std::int32_t report(const char* match_id, const std::vector<ft_team_rank>& ranks, std::uint64_t now_us) noexcept {
    return ft_match_host_report(get(), match_id, ranks.data(), ranks.size(), now_us);
  }
  // The same with a protobuf ReportResultRequest.
  std::int32_t report_result(const Bytes& report, std::uint64_t now_us) noexcept {
    return ft_match_host_report_result(get(), report.data(), report.size(), now_us);
  }

  // Each of these returns FT_NONE when there is nothing left.
  std::int32_t poll_call(ft_call& call, Bytes& request) noexcept {
    return detail::fill(request, [&](auto* data, auto size) { return ft_match_host_poll_call(get(), &call, data, size); });
  }
  std::int32_t poll_outcome(ft_match_outcome& outcome, Bytes& data) noexcept {
    return detail::fill(data, [&](auto* to, auto size) { return ft_match_host_poll_outcome(get(), &outcome, to, size); });
  }
  std::int32_t poll_timeout(std::uint64_t& at_us) noexcept { return ft_match_host_poll_timeout(get(), &at_us); }
};

// Verifier of the credentials that players present to one game server.
class Verifier : public detail::Owner<ft_verifier, ft_verifier_free> {
 public:
  // Makes the verifier from a JWKS, for one audience. It remembers `remembered_max` used credentials; 0 is the default.
  std::int32_t open(const Bytes& key_set, const char* audience, std::size_t remembered_max = 0) noexcept {
    return take([&](ft_verifier** made) {
      return ft_verifier_new(key_set.data(), key_set.size(), audience, remembered_max, made);
    });
  }
  std::int32_t replace_keys(const Bytes& key_set) noexcept {
    return ft_verifier_replace_keys(get(), key_set.data(), key_set.size());
  }

  // Admits the player of a credential; below 0 do not admit it. `unix_s` is the time in seconds since 1970.
  std::int32_t verify(const Bytes& credential, std::uint64_t unix_s, ft_admitted_player& player) noexcept {
    return ft_verifier_verify(get(), credential.data(), credential.size(), unix_s, &player);
  }
};

}  // namespace fireteam

#endif  // FIRETEAM_MATCH_HOST_HPP
