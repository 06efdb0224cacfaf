#!/usr/bin/env bash
# Checks that a target names exactly the modules whose headers it includes. A module names under DEPS the modules that its
# headers include, and under PRIVATE_DEPS those that only its sources include. A test or a program names what it includes
# beyond what its module names. BUILD_DIR/modules records what targets name (cmake/QuireModule.cmake). The compiler finds
# most mistakes, but not an include that happens to work because another module's header needs the same folder.
# usage: tests/named_modules_test.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source_dir=${1:?usage: tests/named_modules_test.sh SOURCE_DIR BUILD_DIR}
build_dir=${2:?usage: tests/named_modules_test.sh SOURCE_DIR BUILD_DIR}

# The modules that these files include.
included() {
  [ $# -gt 0 ] || return 0
  { grep -hoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]quire/[a-z0-9_]+/' "$@" || true; } |
    sed -E 's|.*quire/([a-z0-9_]+)/|\1|' | sort -u
}

# These files, and the test helpers (x_testing.h) below $1 that they include.
with_helpers() {
  local src=$1 files=("${@:2}") i path
  declare -A seen=()
  for ((i = 0; i < ${#files[@]}; ++i)); do
    while read -r path; do
      [ -z "${seen[$path]:-}" ] && [ -f "$src/$path" ] || continue
      seen[$path]=1
      files+=("$src/$path")
    done < <(sed -nE 's|^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]quire/([a-z0-9_/]+_testing\.h)[">].*|\1|p' "${files[i]}")
  done
  printf '%s\n' "${files[@]}"
}

# Prints one line for each mistake in the targets of the sources below $1. The folder $2 has the records.
check() {
  local record module folder public named wanted_public wanted sources
  for record in "$2"/*; do
    named=$(sed -n 's/^names //p' "$record" | sort -u)
    module=$(sed -n 's/^module //p' "$record")
    if [ -n "$module" ]; then
      folder=$(sed -n 's/^folder //p' "$record")
      public=$(sed -n 's/^headers //p' "$record" | sort -u)
      mapfile -t sources < <(find "$folder" -name '*.h' ! -name '*_testing.h')
      wanted_public=$(included "${sources[@]}" | { grep -vx "$module" || true; })
      mapfile -t sources < <(find "$folder" \( -name '*.h' -o -name '*.cpp' -o -name '*.inl' \) |
        { grep -vE '_(test|bench|fuzz)\.cpp$|_testing\.h$' || true; })
      wanted=$(included "${sources[@]}" | { grep -vx "$module" || true; })
      comm -23 <(echo "$wanted") <(echo "$named") | sed "/^$/d; s|.*|$module includes quire/&/ and does not name quire::&|"
      comm -13 <(echo "$wanted") <(echo "$named") | sed "/^$/d; s|.*|$module names quire::& and includes none of its headers|"
      comm -12 <(echo "$wanted") <(echo "$named") | comm -12 - <(comm -23 <(echo "$wanted_public") <(echo "$public")) |
        sed "/^$/d; s|.*|headers of $module include quire/&/: quire::& belongs to its DEPS|"
      comm -12 <(echo "$wanted") <(echo "$public") | comm -23 - <(echo "$wanted_public") |
        sed "/^$/d; s|.*|only sources of $module include quire/&/: quire::& belongs to its PRIVATE_DEPS|"
    else
      mapfile -t sources < <(with_helpers "$1" "$(sed -n 's/^source //p' "$record")")
      comm -23 <(included "${sources[@]}") <(echo "$named") |
        sed "/^$/d; s|.*|$(basename "$record") includes quire/&/ and does not name quire::&|"
    fi
  done
}

# The check finds the mistakes in a small tree.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/src/up" "$work/modules"
echo '#include "quire/low/a.h"' >"$work/src/up/up.h"
printf '#include "quire/up/up.h"\n  #  include <quire/other/b.h>\n#include "quire/quiet/c.h"\n' >"$work/src/up/up.cpp"
printf '#include "quire/up/up.h"\n#include "quire/up/up_testing.h"\n#include "quire/far/d.h"\n' >"$work/src/up/up_test.cpp"
printf '#pragma once\n#include "quire/strange/e.h"\n' >"$work/src/up/up_testing.h"
printf 'module up\nfolder %s\nheaders quiet\nnames low\nnames quiet\nnames idle\n' "$work/src/up" >"$work/modules/quire-up"
printf 'source %s\nnames up\nnames low\n' "$work/src/up/up_test.cpp" >"$work/modules/up_test"
cat >"$work/expected" <<'END'
up includes quire/other/ and does not name quire::other
up names quire::idle and includes none of its headers
headers of up include quire/low/: quire::low belongs to its DEPS
only sources of up include quire/quiet/: quire::quiet belongs to its PRIVATE_DEPS
up_test includes quire/far/ and does not name quire::far
up_test includes quire/strange/ and does not name quire::strange
END
check "$work/src" "$work/modules" >"$work/found"
diff -u "$work/expected" "$work/found" || { echo "FAILED: this test does not find what it should" >&2; exit 1; }

count=$(find "$build_dir/modules" -type f | wc -l)
[ "$count" -gt 50 ] || { echo "FAILED: $build_dir/modules has records of $count targets only" >&2; exit 1; }
wrong=$(check "$source_dir/src" "$build_dir/modules")
if [ -n "$wrong" ]; then
  echo "$wrong" >&2
  echo "FAILED: targets of $source_dir name other modules than they include; see cmake/QuireModule.cmake" >&2
  exit 1
fi
echo "$count targets name the modules that they include"
