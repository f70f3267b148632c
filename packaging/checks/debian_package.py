#!/usr/bin/env python3
"""Installs the Debian package in a copy of this machine's root, boots systemd there, and plays with the service. Then removes it.

The copy is an overlay in memory: nothing is installed on the machine. Needs root, dpkg, systemd and systemd-nspawn.
"""

import os
import pathlib
import platform
import re
import subprocess
import sys

from roots import copy_of_this_machine, mount
from support import notice_of_skipped_part, package, run_in_own_namespaces, tool, version

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
BOOT_SECONDS_MAX = 180
# `systemd-analyze security` gives 0 (all confined) to 10 (nothing). A change that opens the service is noticed.
EXPOSURE_MAX = 1.5
STATE = "var/lib/private/fireteam"

# Runs inside, as root, after the service has started. Prints one line for each fact.
INSIDE = r"""
set -eu
systemctl is-active fireteam.service
until fireteam health; do sleep 0.2; done 2>/dev/null
{python} {checks}/first_match.py --running && echo matched
pid=$(systemctl show --property MainPID --value fireteam.service)
echo "user $(stat --format %u /proc/$pid)"
echo "capabilities $(sed -n 's/^CapEff:[[:space:]]*//p' /proc/$pid/status)"
echo "no new privileges $(sed -n 's/^NoNewPrivs:[[:space:]]*//p' /proc/$pid/status)"
echo "state $(stat --format %a /{state}) $(ls /{state} | tr '\n' ' ')"
systemctl kill --signal KILL fireteam.service
until [ "$(systemctl show --property NRestarts --value fireteam.service)" = 1 ]; do sleep 0.2; done
until fireteam health; do sleep 0.2; done 2>/dev/null
echo restarted
fireteam keygen --out /etc/fireteam/check >/dev/null
mkdir /etc/systemd/system/fireteam.service.d
printf '[Service]\nLoadCredential=key.pem:/etc/fireteam/check.key.pem\n' >/etc/systemd/system/fireteam.service.d/check.conf
echo 'match_key_file = "/run/credentials/fireteam.service/key.pem"' >>/etc/fireteam/fireteam.toml
systemctl daemon-reload
systemctl restart fireteam.service
until fireteam health; do sleep 0.2; done 2>/dev/null
echo "credential $(stat --format %a /etc/fireteam/check.key.pem)"
systemctl stop fireteam.service
systemctl show --property Result --property ExecMainStatus fireteam.service
"""

UNIT = """
[Unit]
Description=Check of the fireteam service
Wants=fireteam.service
After=fireteam.service
SuccessAction=poweroff-force
FailureAction=poweroff-force

[Service]
Type=oneshot
Environment=PATH={path}
ExecStart=/bin/sh /check.sh
StandardOutput=file:/check.out
StandardError=file:/check.err
TimeoutStartSec=120
"""

EXPECTED = [
    r"^active$",
    r"^matched$",
    r"^user [1-9]\d*$",
    r"^capabilities 0+$",
    r"^no new privileges 1$",
    r"^state 700 .*fireteam\.db ",
    r"^restarted$",
    r"^credential 600$",
    r"^Result=success$",
    r"^ExecMainStatus=0$",
]


def in_root(root: pathlib.Path, *command: str) -> str:
    result = subprocess.run(["chroot", root, *command], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}: {result.stdout}{result.stderr}")
    return result.stdout + result.stderr


def install(root: pathlib.Path, file: pathlib.Path) -> None:
    (root / "fireteam.deb").write_bytes(file.read_bytes())
    in_root(root, "dpkg", "--install", "/fireteam.deb")
    printed = in_root(root, "fireteam", "--version").strip()
    if printed != f"fireteam {version()}":
        sys.exit(f"the installed program is {printed!r}")
    print(f"  installed: {printed}")
    warnings = in_root(root, "systemd-analyze", "verify", "--man=no", "/lib/systemd/system/fireteam.service")
    of_this_unit = [line for line in warnings.splitlines() if "fireteam" in line]
    if of_this_unit:
        sys.exit("\n".join(of_this_unit))
    print("  systemd-analyze verify: no complaint about fireteam.service")
    report = in_root(root, "systemd-analyze", "security", "--offline=true", "--no-pager", "fireteam.service")
    exposure = float(re.search(r"Overall exposure level for fireteam\.service: ([\d.]+)", report)[1])
    print(f"  systemd-analyze security: exposure {exposure} of 10, at most {EXPOSURE_MAX}")
    if exposure > EXPOSURE_MAX:
        sys.exit(report)


def boot(root: pathlib.Path) -> None:
    """Boots systemd in the root, with the service and the check as its only goal."""
    checks = pathlib.Path(__file__).resolve().parent
    script = INSIDE
    for name, value in {"{python}": sys.executable, "{checks}": str(checks), "{state}": STATE}.items():
        script = script.replace(name, value)
    (root / "check.sh").write_text(script)
    path = f"{pathlib.Path(tool('grpcurl')).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    (root / "etc/systemd/system/check.service").write_text(UNIT.replace("{path}", path))
    (root / "etc/machine-id").unlink(missing_ok=True)
    (root / "etc/machine-id").touch()
    command = [tool("systemd-nspawn"), "--quiet", "--register=no", "--keep-unit", "--private-network", "--directory", str(root)]
    command += ["--boot", "systemd.unit=check.service"]
    # The tools of the check may be in /tmp, which would be hidden.
    environment = os.environ | {"SYSTEMD_NSPAWN_TMPFS_TMP": "0"}
    booted = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=BOOT_SECONDS_MAX, check=False, stdin=subprocess.DEVNULL
    )
    output = root / "check.out"
    if not output.exists():
        # The boot itself needs control groups, which not every container gives.
        notice_of_skipped_part(f"systemd cannot boot here: the service was NOT started: {booted.stdout[-500:]}{booted.stderr[-500:]}")
        return
    text = output.read_text()
    missing = [pattern for pattern in EXPECTED if not re.search(pattern, text, re.MULTILINE)]
    if missing:
        sys.exit(f"missing {missing} in:\n{text}\n{(root / 'check.err').read_text()[-3000:]}\n{journal(root)}")
    print("  the service under systemd: " + "; ".join(text.split("\n")).strip("; "))


def journal(root: pathlib.Path) -> str:
    command = ["chroot", root, "journalctl", "--unit", "fireteam.service", "--no-pager", "--merge", "--output", "cat"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout[-3000:]


def remove(root: pathlib.Path) -> None:
    """Removing keeps the settings and the data; purging removes them."""
    # Made by the check, not by the package.
    for path in root.glob("etc/fireteam/check.*"):
        path.unlink()
    in_root(root, "dpkg", "--remove", "fireteam")
    kept = [path for path in ("etc/fireteam/fireteam.toml", "etc/fireteam/rulesets/ranked_duel.xml") if (root / path).exists()]
    if (root / "usr/bin/fireteam").exists() or len(kept) != 2:
        sys.exit(f"after dpkg --remove: program {(root / 'usr/bin/fireteam').exists()}, settings {kept}")
    in_root(root, "dpkg", "--purge", "fireteam")
    rest = [path for path in ("etc/fireteam", STATE, "var/lib/fireteam", "lib/systemd/system/fireteam.service") if (root / path).exists()]
    if rest:
        sys.exit(f"after dpkg --purge there are still {rest}")
    print("  removed: settings and data stayed until the purge, and then nothing was left")


def main() -> None:
    file = package(f"fireteam_{version()}_{ARCHITECTURES[platform.machine()]}.deb")
    for program in ("dpkg", "systemd-analyze", "systemd-nspawn", "grpcurl"):
        tool(program)
    folder = run_in_own_namespaces()
    root = copy_of_this_machine(folder / "machine")
    mount("--bind", "/dev", root / "dev")
    mount("-t", "proc", "proc", root / "proc")
    install(root, file)
    subprocess.run(["umount", root / "proc", root / "dev"], check=True)
    boot(root)
    remove(root)


if __name__ == "__main__":
    main()
