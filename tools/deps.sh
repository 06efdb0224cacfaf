#!/usr/bin/env bash
# Installs the Debian packages that are missing for what is asked, and does nothing where all are there.
# usage: tools/deps.sh [build] [fuzz] [lint]
set -euo pipefail

build=(g++ cmake ninja-build pkg-config libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev libxxhash-dev
       libfmt-dev libcli11-dev libboost1.81-dev libboost-json1.81-dev libpcre2-dev)
fuzz=(clang libclang-rt-14-dev)
lint=(clang-tidy clang-format)

wanted=()
for set in "${@:-build}"; do
  case $set in
    build) wanted+=("${build[@]}") ;;
    fuzz) wanted+=("${build[@]}" "${fuzz[@]}") ;;
    lint) wanted+=("${build[@]}" "${lint[@]}") ;;
    *) echo "deps.sh: unknown set '$set' (build, fuzz, lint)" >&2; exit 2 ;;
  esac
done

missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "deps.sh: needs root or sudo to install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# A stale package list is the usual reason for a failing install: renew it first.
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
