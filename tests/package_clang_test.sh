#!/usr/bin/env bash
# Checks that users of the installed package need no extra flags with clang. The headers use std::expected. libstdc++ offers
# it to clang before 19 only with a macro, which the package sets. The test uses the newest clang on the PATH that can
# compile std::expected; clang 16 is the first that can. It is skipped (77) if there is none.
# usage: tests/package_clang_test.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source_dir=${1:?usage: tests/package_clang_test.sh SOURCE_DIR BUILD_DIR}
build_dir=${2:?usage: tests/package_clang_test.sh SOURCE_DIR BUILD_DIR}
cmake=${CMAKE:-cmake}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A value type with a destructor: std::expected then needs conditional members, which older clangs do not support.
cat >"$work/probe.cpp" <<'END'
#include <expected>
#include <string>
std::expected<std::string, int> name(int n) {
  if (n < 0) return std::unexpected(n);
  return std::string("name");
}
bool has(int n) { return name(n).has_value(); }
END
# Every clang++ on the PATH, the newest first. The one without a number in its name is sorted by its version too.
candidates() {
  local program version
  for program in $(compgen -c clang++ | grep -E '^clang\+\+(-[0-9]+)?$' | sort -u); do
    version=$("$program" -dumpversion 2>/dev/null) && echo "$version $program"
  done | sort -V -r
}
clang='' too_old=''
while read -r version program; do
  if "$program" -std=c++2b -U__cpp_concepts -D__cpp_concepts=202002L -fsyntax-only "$work/probe.cpp" 2>"$work/why"; then
    clang=$(command -v "$program")
    break
  fi
  too_old+="$program is version $version and does not compile std::expected: $(grep -m1 error: "$work/why" || true)"$'\n'
done < <(candidates)
if [ -z "$clang" ]; then
  printf '%s' "$too_old"
  [ -n "$too_old" ] || echo "there is no clang++ on the PATH"
  echo "skipped: this test needs clang 16 or newer"
  exit 77
fi

mkdir "$work/user"
cp "$source_dir/examples/embed_state/main.cpp" "$work/user"
# Compile only: a library built for one compiler's sanitizer does not link with the other's.
cat >"$work/user/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
find_package(quire 0.1 REQUIRED)
add_library(user OBJECT main.cpp)
target_compile_options(user PRIVATE -Wall -Wextra -Wpedantic -Werror)
target_link_libraries(user PRIVATE quire::state)
END
{
  "$cmake" --install "$build_dir" --component state --prefix "$work/prefix" &&
    CXXFLAGS='' "$cmake" -S "$work/user" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER="$clang" &&
    "$cmake" --build "$work/build"
} >"$work/log" 2>&1 || {
  cat "$work/log" >&2
  echo "FAILED: $clang does not compile a program on the installed headers" >&2
  exit 1
}
echo "$clang compiles a program on the installed headers"
