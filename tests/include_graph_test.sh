#!/usr/bin/env bash
# Checks that the include matrix in docs/design.md is the one that tools/include_graph.sh draws now, and that the tool
# refuses modules that include each other in a circle.
# usage: tests/include_graph_test.sh SOURCE_DIR [BUILD_DIR]
set -euo pipefail
source_dir=${1:?usage: tests/include_graph_test.sh SOURCE_DIR}
graph=$source_dir/tools/include_graph.sh

# The matrix of a small tree.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/src/low" "$work/src/middle" "$work/src/abc"
touch "$work"/src/{low,middle,abc}/CMakeLists.txt "$work/src/low/low.h"
echo '#include "quire/low/low.h"' >"$work/src/middle/middle.cpp"
echo '#include "quire/middle/middle.h"' >"$work/src/abc/abc.h"
echo '#include "quire/middle/middle.h"' >"$work/src/low/low_test.cpp" # tests do not count
cat >"$work/expected" <<'END'
        low  middle  abc
low      o
middle   s     o
abc      .     h      o
END
QUIRE_SOURCE_DIR=$work "$graph" >"$work/drawn"
diff -u "$work/expected" "$work/drawn" || { echo "FAILED: a small tree is drawn wrong" >&2; exit 1; }
echo '#include "quire/abc/abc.h"' >"$work/src/low/low.cpp"
if QUIRE_SOURCE_DIR=$work "$graph" >/dev/null 2>&1; then
  echo "FAILED: modules that include each other in a circle are drawn" >&2
  exit 1
fi

QUIRE_SOURCE_DIR=$source_dir "$graph" --check "$source_dir/docs/design.md"
cp "$source_dir/docs/design.md" "$work/page.md"
sed -i 's/^state .*/state/' "$work/page.md"
if QUIRE_SOURCE_DIR=$source_dir "$graph" --check "$work/page.md" >/dev/null 2>&1; then
  echo "FAILED: a page with another drawing is not refused" >&2
  exit 1
fi
echo "docs/design.md shows the current includes"
