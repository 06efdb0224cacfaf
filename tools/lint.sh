#!/usr/bin/env bash
# Formatting and clang-tidy over the tracked sources; fails with the first of the two that finds something. Compile
# commands are those of a folder configured with the preset `lint`: clang-tidy does not understand all of GCC's.
# Tests, benchmarks and fuzzers are formatted but not tidied: their macros expand to what no reviewer would read.
# usage: tools/lint.sh BUILD_DIR [FILE...]     (no files: all)
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: tools/lint.sh BUILD_DIR [FILE...]}
shift
files=("$@")
[ ${#files[@]} -gt 0 ] ||
  mapfile -t files < <(git ls-files 'src/*.h' 'src/*.cpp' 'src/*.inl' 'examples/*.h' 'examples/*.cpp')
clang-format --dry-run --Werror "${files[@]}"

# One file at a time, since they differ much in how long they take; the output of each comes in one piece.
export build
# shellcheck disable=SC2016
printf '%s\n' "${files[@]}" | { grep -E '^src/.*\.cpp$' || true; } | { grep -vE '_(test|bench|fuzz)\.cpp$' || true; } |
  xargs -r -P "$(nproc)" -n 1 bash -c '
    report=$(nice clang-tidy-16 -p "$build" --quiet "$1" 2>&1) && exit 0
    printf "%s\n" "$report" | grep -vE "^[0-9]+ warnings? (and [0-9]+ errors? )?generated"
    exit 1' lint
echo "lint: clean"
