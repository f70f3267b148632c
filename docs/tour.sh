#!/bin/sh
# Runs the commands of a page of docs/, in order, and prints each command with its output, as the page shows them.
#
#   docs/tour.sh                    docs/TOUR.md
#   docs/tour.sh docs/QUEUES.md     another page; its `console` blocks are run, its `sh` blocks are not
#
# The commands run in a temporary directory with copies of rulesets/ and data/, or in the directory $TOUR_DIR. Servers that
# they start are stopped at the end. Needs grpcurl, jq and curl.
#
#   TOUR_BINARY                            binary to run; default: built with `cargo build --release`
#   TOUR_CLIENT_PORT, TOUR_OPERATOR_PORT   used instead of the ports 50051 and 50052 of the page
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
page=$(realpath "${1:-$root/docs/TOUR.md}")
client_port=${TOUR_CLIENT_PORT:-50051}
operator_port=${TOUR_OPERATOR_PORT:-50052}
if [ -z "${TOUR_BINARY:-}" ]; then
    cargo build --release --manifest-path "$root/Cargo.toml"
    TOUR_BINARY=$root/target/release/fireteam
fi
export TOUR_BINARY LC_ALL=C
export FIRETEAM_LISTEN="127.0.0.1:$client_port" FIRETEAM_OPERATOR_LISTEN="127.0.0.1:$operator_port"

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
directory=${TOUR_DIR:-$temporary}
cp -r "$root/rulesets" "$root/data" "$directory"

# Definitions for the page's commands: both spellings of the binary, and the wait for a server that was just started.
cat >"$temporary/commands.sh" <<'END'
fireteam() { "$TOUR_BINARY" "$@"; }
cargo() {
    while [ "$1" != -- ]; do shift; done
    shift
    "$TOUR_BINARY" "$@"
}
servers=
trap '[ -z "$servers" ] || { kill $servers && wait $servers; } 2>/dev/null' EXIT
trap 'exit 1' INT TERM
wait_for_server() {
    servers="$servers $1"
    until grep -qs 'server started' server.log; do
        kill -0 "$1" 2>/dev/null || { cat server.log; exit 1; }
        sleep 0.1
    done
}
END

# Translates the page: each command becomes its own text, printed, and the command itself with the ports to use.
# An `xml` block below a line that ends with a file's name in backticks and a colon is saved as that file.
awk -v client=":$client_port" -v operator=":$operator_port" '
function command_ends() {
    if (command == "") return
    # A server in the background is started without a shell between, so that $! is its process id.
    if (command ~ / serve .*&$/) sub(/^(cargo run --release --|fireteam) /, "\"$TOUR_BINARY\" ", command)
    printf "cat <<\"SHOWN\"\n%s\nSHOWN\n%s\n", shown, command
    if (command ~ / serve .*&$/) print "wait_for_server $!"
    command = ""
}
function with_ports(text) { gsub(/:50051/, client, text); gsub(/:50052/, operator, text); return text }
/^```console$/ { block = "console"; continues = 0; next }
/^```xml$/ && file != "" {
    block = "xml"
    directory = file
    if (sub(/\/[^\/]*$/, "", directory)) printf "mkdir -p %s\n", directory
    printf "cat >%s <<\"SAVED\"\n", file
    next
}
/^```$/ { if (block == "xml") print "SAVED"; command_ends(); block = ""; next }
block == "xml" { print; next }
block == "console" {
    if (!continues && !document && /^\$ /) { command_ends(); shown = $0; command = with_ports(substr($0, 3)) }
    else if (continues || document) { shown = shown "\n" $0; command = command "\n" with_ports($0) }
    else next
    if (document) { if ($0 == "END") document = 0; continues = 0; next }
    continues = /\\$/
    if (!continues && command ~ /<<END/) document = 1
    next
}
block == "" && NF { file = ""; if (match($0, /`[^`]+`:$/)) file = substr($0, RSTART + 1, RLENGTH - 3) }
' "$page" >>"$temporary/commands.sh"

cd "$directory"
sh "$temporary/commands.sh" 2>&1 | sed -u "s/:$client_port/:50051/g; s/:$operator_port/:50052/g"
