#!/usr/bin/env bash
# Runs clang-format and clang-tidy over the tracked sources, and fails with the first of the two that finds something. The
# compile commands come from a folder configured with the preset `lint`, because clang-tidy does not understand all of
# GCC's. clang-tidy skips tests, benchmarks and fuzzers: their macros expand to code that nobody reviews.
# usage: tools/lint.sh BUILD_DIR [FILE...]     (no files: all)
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: tools/lint.sh BUILD_DIR [FILE...]}
shift
files=("$@")
[ ${#files[@]} -gt 0 ] ||
  mapfile -t files < <(git ls-files 'src/*.h' 'src/*.cpp' 'src/*.inl' 'examples/*.h' 'examples/*.cpp')
clang-format --dry-run --Werror "${files[@]}"

# One file per process, because files differ much in how long they take. The output of a file is printed in one piece.
export build
# shellcheck disable=SC2016
printf '%s\n' "${files[@]}" | { grep -E '^src/.*\.cpp$' || true; } | { grep -vE '_(test|bench|fuzz)\.cpp$' || true; } |
  xargs -r -P "$(nproc)" -n 1 bash -c '
    report=$(nice clang-tidy-16 -p "$build" --quiet "$1" 2>&1) && exit 0
    # The analyzer follows calls into the headers of libraries. What it finds there is not ours to mend.
    printf "%s\n" "$report" | grep "error:" | grep -qv "^/usr/" || exit 0
    printf "%s\n" "$report" | grep -vE "^[0-9]+ warnings? (and [0-9]+ errors? )?generated"
    exit 1' lint
echo "lint: clean"
