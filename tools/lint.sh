#!/usr/bin/env bash
# Runs clang-format and clang-tidy over the tracked sources, and fails with the first of the two that finds something. The
# compile commands come from a folder configured with the preset `lint`, because clang-tidy does not understand all of
# GCC's. clang-tidy skips tests, benchmarks and fuzzers: their macros expand to code that nobody reviews.
# Sources are looked at in the groups in which they are compiled (QUIRE_UNITY): most checks walk through all headers of the
# libraries, and so do it once for eight files. A group that was clean is not looked at again until one of its sources, a
# header that they include, or .clang-tidy changes.
# usage: tools/lint.sh BUILD_DIR [FILE...]     (no files: all; else the groups that these are in)
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: tools/lint.sh BUILD_DIR [FILE...]}
shift
files=("$@")
[ ${#files[@]} -gt 0 ] ||
  mapfile -t files < <(git ls-files 'src/*.h' 'src/*.cpp' 'src/*.inl' 'examples/*.h' 'examples/*.cpp')
clang-format --dry-run --Werror "${files[@]}"

# What is compiled, with its command: sources, and groups of sources.
mkdir -p "$build/clean"
awk -F'"' '/^ *"command":/ {sub(/^ *"command": "/, ""); sub(/",$/, ""); gsub(/\\\\"/, "\""); command = $0}
           /^ *"file":/ {print $4 "\t" command}' "$build/compile_commands.json" >"$build/clean/commands"
for file in "${files[@]}"; do echo "$PWD/$file"; done >"$build/clean/wanted"

# One per process, because they differ much in how long they take, the longest (groups) first. The output of each is printed
# in one piece.
export build
# shellcheck disable=SC2016
cut -f1 "$build/clean/commands" | sort -u | while read -r unit; do
  case $unit in
    *_test.cpp | *_bench.cpp | *_fuzz.cpp) ;;
    */Unity/*) grep -qFf <(sed 's/.*/"&"/' "$build/clean/wanted") "$unit" && echo "0 $unit" || true ;;
    "$PWD"/src/*) grep -qFx "$unit" "$build/clean/wanted" && echo "1 $unit" || true ;;
  esac
done | sort | cut -d' ' -f2 |
  xargs -r -P "$(nproc)" -n 1 bash -o pipefail -c '
    stamp=$build/clean/$(echo "${1#"$PWD"/}" | tr / +)
    command=$(awk -F"\t" -v file="$1" "\$1 == file {print \$2; exit}" "$build/clean/commands")
    seen=$({ cd "$build" && eval "${command% -o * -c *} -E -C $1"; } 2>/dev/null | cat - .clang-tidy | sha256sum) || seen=
    [ -n "$seen" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$seen" ] && exit 0
    clean() { [ -z "$seen" ] || echo "$seen" >"$stamp"; exit 0; }
    # A group includes sources, and nobody wrote it.
    case $1 in */Unity/*) group=(--checks=-bugprone-suspicious-include) ;; *) group=() ;; esac
    report=$(clang-tidy-16 -p "$build" --quiet --config-file=.clang-tidy "${group[@]}" "$1" 2>&1) && clean
    # The analyzer follows calls into the headers of libraries. What it finds there is not ours to mend.
    printf "%s\n" "$report" | grep "error:" | grep -qv "^/usr/" || clean
    printf "%s\n" "$report" | grep -vE "^[0-9]+ warnings? (and [0-9]+ errors? )?generated"
    exit 1' lint
echo "lint: clean"
