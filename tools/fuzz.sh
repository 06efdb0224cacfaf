#!/usr/bin/env bash
# Builds only the fuzzers, in a folder configured with the preset `fuzz`. Runs each for SECONDS, and fails with the first
# that finds something.
# usage: tools/fuzz.sh SECONDS [JOBS]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?usage: tools/fuzz.sh SECONDS [JOBS]}
cmake --build --preset fuzz --target fuzzers -j "${2:-$(nproc)}"
ran=0
for fuzzer in build/fuzz/fuzzers/*; do
  [ -x "$fuzzer" ] || continue
  name=$(basename "$fuzzer")
  corpus=build/fuzz/corpus/$name
  mkdir -p "$corpus"
  seeds=()
  [ -d "testdata/fuzz/$name" ] && seeds=("testdata/fuzz/$name")
  dictionary=()
  [ -f "testdata/fuzz/$name.dict" ] && dictionary=("-dict=testdata/fuzz/$name.dict")
  echo "== $name, $seconds s"
  "$fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/$name-" "${dictionary[@]}" "$corpus" "${seeds[@]}" 2>&1 |
    { grep -E '^(stat::number_of_executed_units|stat::peak_rss_mb|==|SUMMARY|artifact)|ERROR|check failed|DIFFERENCE' || true; }
  ran=$((ran + 1))
done
[ "$ran" -gt 0 ] || { echo "fuzz.sh: there is no fuzzer in build/fuzz/fuzzers" >&2; exit 1; }
echo "no finding"
