#include "quire/cli/bundled_model.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "quire/cli/printable.h"

#if !defined(QUIRE_BUILD_TREE) || !defined(QUIRE_SOURCE_MODELS) || !defined(QUIRE_INSTALLED_MODELS)
#error "the build says where models are"
#endif

namespace quire::cli {

namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "quire-demo-llama-q8_0.gguf";

bool lies_within(const fs::path& path, const fs::path& folder) {
  const fs::path relative = path.lexically_relative(folder);
  return !relative.empty() && *relative.begin() != "..";
}

}  // namespace

Result<std::string> bundled_model() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return bundled_model(error ? std::string() : program.string());
}

Result<std::string> bundled_model(const std::string& program) {
  std::vector<fs::path> folders;
  if (lies_within(program, QUIRE_BUILD_TREE)) {
    folders = {QUIRE_SOURCE_MODELS};
  } else {
    // The installation may have been moved: the program in bin/, models in share/.
    if (!program.empty()) folders.push_back(fs::path(program).parent_path().parent_path() / "share/quire/models");
    if (folders.empty() || folders[0] != fs::path(QUIRE_INSTALLED_MODELS)) folders.emplace_back(QUIRE_INSTALLED_MODELS);
  }
  std::string looked;
  for (const fs::path& folder : folders) {
    std::error_code error;
    if (fs::exists(folder / kName, error)) return (folder / kName).string();
    looked += fmt::format("{}{}", looked.empty() ? "" : " or ", printable(folder.string()));
  }
  return fail(fmt::format("the bundled model {} is not in {}; give another with -m", kName, looked));
}

}  // namespace quire::cli
