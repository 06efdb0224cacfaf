#!/usr/bin/env bash
# Installs the missing Debian packages of the given sets. Does nothing if all are installed.
# usage: tools/deps.sh [build] [fuzz] [lint] [clients]
set -euo pipefail

build=(g++ cmake ninja-build pkg-config libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev libxxhash-dev
       libfmt-dev libcli11-dev libboost1.81-dev libboost-json1.81-dev libssl-dev openssl libpcre2-dev libedit-dev
       prometheus-cpp-dev librocksdb-dev libhiredis-dev libhwloc-dev)
fuzz=(clang-16 libclang-rt-16-dev)
lint=(clang-16 clang-tidy-16 clang-format)
# Node.js and npm may not come from Debian, and then Debian's packages would conflict. So the check looks for the commands.
clients=(chromium fonts-dejavu-core curl redis-server nginx-light)
command -v node >/dev/null || clients+=(nodejs)
command -v npm >/dev/null || clients+=(npm)

wanted=()
for set in "${@:-build}"; do
  case $set in
    build) wanted+=("${build[@]}") ;;
    fuzz) wanted+=("${build[@]}" "${fuzz[@]}") ;;
    lint) wanted+=("${build[@]}" "${lint[@]}") ;;
    clients) wanted+=("${clients[@]}") ;;
    *) echo "deps.sh: unknown set '$set' (build, fuzz, lint, clients)" >&2; exit 2 ;;
  esac
done

declare -A seen=()
missing=()
for package in "${wanted[@]}"; do
  [ -z "${seen[$package]:-}" ] || continue
  seen[$package]=1
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "deps.sh: needs root or sudo to install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "installing: ${missing[*]}"
# A missing or stale package list is the usual reason why an install fails, so it is renewed first. sudo drops the
# environment, so apt's variables are set after it. RUNLEVEL=1: servers that are installed for tests are not started.
"${as_root[@]}" apt-get update -qq || echo "deps.sh: some package lists could not be renewed; trying with the old ones" >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
  apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 "${missing[@]}" >/dev/null
