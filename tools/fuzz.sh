#!/usr/bin/env bash
# Builds only the fuzzers, in a folder configured with the preset `fuzz`. Runs each for SECONDS, JOBS of them at a time.
# The first that finds something ends the others, and the script fails. All that a fuzzer prints is in
# build/fuzz/logs/NAME; what it found is in build/fuzz/NAME-*.
# usage: tools/fuzz.sh SECONDS [JOBS]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?usage: tools/fuzz.sh SECONDS [JOBS]}
jobs=${2:-$(nproc)}
cmake --build --preset fuzz --target fuzzers -j "$jobs"
logs=build/fuzz/logs
rm -rf "$logs" && mkdir -p "$logs"

declare -A running=() # names by process
trap 'for pid in "${!running[@]}"; do kill "$pid" 2>/dev/null || true; done; wait' EXIT

start() {
  local fuzzer=$1 name corpus seeds=() dictionary=()
  name=$(basename "$fuzzer")
  corpus=build/fuzz/corpus/$name
  mkdir -p "$corpus"
  [ -d "testdata/fuzz/$name" ] && seeds=("testdata/fuzz/$name")
  [ -f "testdata/fuzz/$name.dict" ] && dictionary=("-dict=testdata/fuzz/$name.dict")
  "$fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/$name-" "${dictionary[@]}" "$corpus" "${seeds[@]}" >"$logs/$name" 2>&1 &
  running[$!]=$name
}

# Waits until one of them ends, and shows what it printed, in one piece.
collect() {
  local pid name result=0
  wait -n -p pid "${!running[@]}" || result=$?
  name=${running[$pid]}
  unset "running[$pid]"
  echo "== $name, $seconds s"
  grep -E '^(stat::number_of_executed_units|stat::peak_rss_mb|==|SUMMARY|artifact)|ERROR|check failed|DIFFERENCE' "$logs/$name" || true
  [ "$result" -eq 0 ] || { tail -n 60 "$logs/$name" >&2; echo "fuzz.sh: $name ended with $result; all that it printed is in $logs/$name" >&2; exit 1; }
}

ran=0
for fuzzer in build/fuzz/fuzzers/*; do
  [ -x "$fuzzer" ] || continue
  [ "${#running[@]}" -lt "$jobs" ] || collect
  start "$fuzzer"
  ran=$((ran + 1))
done
while [ "${#running[@]}" -gt 0 ]; do collect; done
[ "$ran" -gt 0 ] || { echo "fuzz.sh: there is no fuzzer in build/fuzz/fuzzers" >&2; exit 1; }
echo "no finding"
