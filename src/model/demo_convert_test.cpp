// tools/demo makes the files that Quire runs. A demo model is converted to a Hugging Face folder and back, and must be
// the same file again. The two converters are independent of each other (to_hf.py, convert.py). Our own reader checks
// the result.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "quire/gguf/writer.h"
#include "quire/model/model.h"

namespace quire::model {
namespace {

const std::string kTools = QUIRE_SOURCE_DIR "/tools/demo/";

// Without leaving compiled modules in the source tree.
bool python(const std::string& arguments) {
  return std::system(("PYTHONDONTWRITEBYTECODE=1 python3 " + arguments).c_str()) == 0;
}

class Folder {
 public:
  Folder() {
    std::string name = ::testing::TempDir() + "quire-demo-XXXXXX";
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// The bytes of a value in the file.
std::vector<std::byte> bytes_of(const gguf::Value& value) {
  gguf::Writer writer;
  writer.add_value("value", value);
  auto bytes = writer.to_memory();
  return bytes ? std::move(*bytes) : std::vector<std::byte>();
}

void expect_same_metadata(const gguf::File& was, const gguf::File& is) {
  EXPECT_EQ(is.entry_count(), was.entry_count());
  for (std::size_t i = 0; i < was.entry_count(); ++i) {
    const gguf::Entry entry = was.entry(i);
    const auto again = is.find(entry.key);
    ASSERT_TRUE(again) << entry.key;
    EXPECT_TRUE(bytes_of(again->value) == bytes_of(entry.value))
        << entry.key << ": " << entry.value.describe() << " has become " << again->value.describe();
  }
}

void expect_same_tensors(const gguf::File& was, const gguf::File& is) {
  EXPECT_EQ(is.tensor_count(), was.tensor_count());
  for (std::size_t i = 0; i < was.tensor_count(); ++i) {
    const gguf::Tensor tensor = was.tensor(i);
    const auto again = is.find_tensor(tensor.name);
    ASSERT_TRUE(again) << tensor.name;
    ASSERT_EQ(again->type, tensor.type) << tensor.name;
    ASSERT_EQ(again->shape, tensor.shape) << tensor.name;
    if (!tensor.name.ends_with(".ssm_a")) {
      EXPECT_TRUE(std::ranges::equal(again->data, tensor.data)) << tensor.name;
      continue;
    }
    // These went through a logarithm and back.
    std::vector<float> before(tensor.elements()), after(tensor.elements());
    ASSERT_TRUE(gguf::dequantize(tensor.type, tensor.data, before));
    ASSERT_TRUE(gguf::dequantize(again->type, again->data, after));
    for (std::size_t n = 0; n < before.size(); ++n) EXPECT_NEAR(after[n] / before[n], 1, 1e-6) << tensor.name;
  }
}

class DemoConvert : public ::testing::TestWithParam<std::string> {};

TEST_P(DemoConvert, AModelFromHuggingFaceIsTheFileThatItCameFrom) {
  if (!python("--version > /dev/null 2>&1")) GTEST_SKIP() << "there is no python3 on this machine";
  const Folder folder;
  const std::string path = QUIRE_SOURCE_DIR "/models/quire-demo-" + GetParam() + "-q8_0.gguf";
  const auto was = gguf::File::open(path);
  ASSERT_TRUE(was) << was.error().message;
  const auto name = was->get<std::string_view>("general.name");
  ASSERT_TRUE(name) << name.error().message;

  ASSERT_TRUE(python(fmt::format("'{}to_hf.py' '{}' '{}'", kTools, path, folder / "hf")));
  const std::string converted = folder / "model.gguf";
  ASSERT_TRUE(python(fmt::format("'{}convert.py' '{}' '{}' --name '{}'", kTools, folder / "hf", converted, *name)));

  const auto model = Model::load(converted);
  ASSERT_TRUE(model) << model.error().message;
  expect_same_metadata(*was, (*model)->file());
  expect_same_tensors(*was, (*model)->file());
}

TEST(DemoQuestions, AreThoseThatTheScriptMakes) {
  if (!python("--version > /dev/null 2>&1")) GTEST_SKIP() << "there is no python3 on this machine";
  const Folder folder;
  const std::string generated = folder / "questions.json";
  ASSERT_TRUE(python(fmt::format("'{}questions.py' > '{}'", kTools, generated)));
  const auto text_of = [](const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  };
  EXPECT_TRUE(text_of(generated) == text_of(QUIRE_SOURCE_DIR "/testdata/demo/questions.json"));
}

INSTANTIATE_TEST_SUITE_P(Models, DemoConvert, ::testing::Values("llama", "mamba2", "hybrid"),
                         [](const ::testing::TestParamInfo<std::string>& model) { return model.param; });

}  // namespace
}  // namespace quire::model
