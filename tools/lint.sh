#!/usr/bin/env bash
# Runs clang-format and clang-tidy over the tracked sources, and fails with the first of the two that finds something. The
# compile commands come from a folder configured with the preset `lint`, because clang-tidy does not understand all of
# GCC's. clang-tidy skips tests, benchmarks and fuzzers: their macros expand to code that nobody reviews.
# A file that was clean is not looked at again until it, a header that it includes, or .clang-tidy changes.
# usage: tools/lint.sh BUILD_DIR [FILE...]     (no files: all)
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?usage: tools/lint.sh BUILD_DIR [FILE...]}
shift
files=("$@")
[ ${#files[@]} -gt 0 ] ||
  mapfile -t files < <(git ls-files 'src/*.h' 'src/*.cpp' 'src/*.inl' 'examples/*.h' 'examples/*.cpp')
clang-format --dry-run --Werror "${files[@]}"

# The command of each source, to see what clang-tidy would see. A source without one is always looked at.
mkdir -p "$build/clean"
awk -F'"' '/^ *"command":/ {sub(/^ *"command": "/, ""); sub(/",$/, ""); gsub(/\\\\"/, "\""); command = $0}
           /^ *"file":/ {print $4 "\t" command}' "$build/compile_commands.json" >"$build/clean/commands"

# One file per process, because files differ much in how long they take. The output of a file is printed in one piece.
export build
# shellcheck disable=SC2016
printf '%s\n' "${files[@]}" | { grep -E '^src/.*\.cpp$' || true; } | { grep -vE '_(test|bench|fuzz)\.cpp$' || true; } |
  xargs -r -P "$(nproc)" -n 1 bash -o pipefail -c '
    stamp=$build/clean/${1//\//+}
    command=$(awk -F"\t" -v file="$PWD/$1" "\$1 == file {print \$2; exit}" "$build/clean/commands")
    seen=$({ cd "$build" && eval "${command% -o * -c *} -E -C $OLDPWD/$1"; } 2>/dev/null | cat - .clang-tidy | sha256sum) || seen=
    [ -n "$command" ] && [ -n "$seen" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$seen" ] && exit 0
    clean() { [ -z "$command" ] || [ -z "$seen" ] || echo "$seen" >"$stamp"; exit 0; }
    report=$(nice clang-tidy-16 -p "$build" --quiet "$1" 2>&1) && clean
    # The analyzer follows calls into the headers of libraries. What it finds there is not ours to mend.
    printf "%s\n" "$report" | grep "error:" | grep -qv "^/usr/" || clean
    printf "%s\n" "$report" | grep -vE "^[0-9]+ warnings? (and [0-9]+ errors? )?generated"
    exit 1' lint
echo "lint: clean"
